"""Batches of nodes, one after the other, as one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.batch_attributes import Part
from tracelink.converters.chakra.batch_nodes import LISTS, NUMBERS, Lists, Nodes
from tracelink.converters.chakra.schema import CONTROL, DATA, DURATION, ID, START, TYPE
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, chosen
from tracelink.events import Int64s
from tracelink.strings import StringTable


class _Names(dict[bytes, int]):
    """The number of each name by its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.strings = StringTable()

    def __missing__(self, name: bytes) -> int:
        code = self[name] = self.strings[name.decode()]
        return code


class Columns:
    """Collects nodes."""

    def __init__(self) -> None:
        self._rows = 0
        self._names = _Names()
        self._name: list[npt.NDArray[np.int32]] = []
        self._numbers: dict[int, list[Int64s]] = {number: [] for number in NUMBERS}
        self._lists: dict[int, list[Lists]] = {number: [] for number in LISTS}
        self._attributes: dict[str, list[Attribute]] = {}

    def add(self, nodes: Nodes) -> None:
        """A batch, without what is no node."""
        good = np.flatnonzero(nodes.good)
        rows = np.cumsum(nodes.good) - 1 + self._rows
        names, codes = nodes.names, self._names
        kept = names if len(good) == len(names) else [names[row] for row in good.tolist()]
        self._name.append(np.array(list(map(codes.__getitem__, kept)), np.int32))
        for number, column in nodes.numbers.items():
            self._numbers[number].append(column[good])
        for number, lists in nodes.lists.items():
            self._lists[number].append(Lists(rows[lists.owner], lists.ids))
        for name, parts in _by_name(nodes.parts).items():
            self._attributes.setdefault(name, []).append(_attribute(parts, rows))
        self._rows += len(good)

    def table(self) -> NodeTable:
        """All of them."""
        numbers = {
            number: np.concatenate([np.empty(0, np.int64), *parts]) for number, parts in self._numbers.items()
        }
        return NodeTable(
            numbers[ID],
            np.concatenate([np.empty(0, np.int32), *self._name]),
            numbers[TYPE].astype(np.uint8),
            numbers[START],
            numbers[DURATION],
            _links(self._lists[DATA], self._rows),
            _links(self._lists[CONTROL], self._rows),
            self._names.strings.texts(),
            {name: _together(parts) for name, parts in self._attributes.items()},
        )


def _by_name(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """Parts of one name, names and parts in the order of their first."""
    found: dict[str, list[Part]] = {}
    for part in sorted((part for part in parts if len(part.row)), key=lambda part: int(part.place[0])):
        found.setdefault(part.name, []).append(part)
    return found


def _attribute(parts: Sequence[Part], rows: Int64s) -> Attribute:
    """The parts of one name, in the order of the file."""
    columns = [Attribute.of(part.kind, rows[part.row], part.values) for part in parts]
    if len(columns) == 1:
        return columns[0]
    whole = _together(columns)
    order = np.argsort(np.concatenate([part.place for part in parts]), kind="stable")
    return Attribute(whole.rows[order], chosen(whole.values, order), whole.kinds[order])


def _together(columns: Sequence[Attribute]) -> Attribute:
    """One behind the other; of one type of numbers they stay numbers."""
    arrays = [column.values for column in columns if isinstance(column.values, np.ndarray)]
    values: Sequence[Any] | npt.NDArray[Any]
    if len(arrays) == len(columns) and len({array.dtype for array in arrays}) == 1:
        values = np.concatenate(arrays)
    else:
        values = list(chain.from_iterable(_plain(column.values) for column in columns))
    return Attribute(
        np.concatenate([column.rows for column in columns]),
        values,
        np.concatenate([column.kinds for column in columns]),
    )


def _plain(values: Sequence[Any] | npt.NDArray[Any]) -> Sequence[Any]:
    plain: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    return plain


def _links(parts: Sequence[Lists], length: int) -> Links:
    owner = np.concatenate([np.empty(0, np.int64), *(part.owner for part in parts)])
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)])
    return Links(np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=length))]), ids)
