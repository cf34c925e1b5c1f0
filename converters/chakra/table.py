"""The nodes of one rank, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.schema import WHOLE_NUMBERS, Kind, Name, NodeType
from tracelink.events import Bools, Columns, Int32s, Int64s

UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF
WHOLE = np.array([*WHOLE_NUMBERS, Kind.BOOL], np.uint8)


@dataclass(frozen=True, slots=True)
class Links:
    """For each node the ids of others: those of node `i` are `ids[bounds[i]:bounds[i + 1]]`."""

    bounds: Int64s
    ids: Int64s
    """Ids of 64 unsigned bits, as signed numbers of the same bits."""

    @classmethod
    def of(cls, lists: Sequence[Iterable[int]]) -> Links:
        """Links from plain numbers."""
        rows = [list(ids) for ids in lists]
        return cls(
            np.cumsum([0, *map(len, rows)], dtype=np.int64),
            signed([number for row in rows for number in row]),
        )

    @property
    def owners(self) -> Int64s:
        """The row of the node that each id belongs to."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def __getitem__(self, row: int) -> list[int]:
        """The ids of one node."""
        ids: list[int] = (self.ids[self.bounds[row] : self.bounds[row + 1]].view(np.uint64)).tolist()
        return ids


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of those nodes that have it; a node that has it twice has two rows here."""

    rows: Int64s
    values: Sequence[Any] | npt.NDArray[Any]
    """Numbers, texts, bytes, or lists of them, as `kinds` says."""
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, kind: Kind, rows: Int64s, values: Sequence[Any] | npt.NDArray[Any]) -> Attribute:
        """An attribute that is of one kind everywhere."""
        return cls(rows, values, np.full(len(rows), kind, np.uint8))

    def __len__(self) -> int:
        return len(self.rows)

    def told(self, places: Int64s) -> Iterator[tuple[int, Any]]:
        """The node and the plain value at some places."""
        values = chosen(self.values, places)
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        return zip(self.rows[places].tolist(), plain, strict=True)

    def whole_numbers(self, length: int, default: int) -> Int64s:
        """One number for each of `length` nodes, `default` where a node has none or something else."""
        column = np.full(length, default, np.int64)
        whole = np.isin(self.kinds, WHOLE)
        values = self.values if whole.all() else chosen(self.values, np.flatnonzero(whole))
        try:
            column[self.rows[whole]] = np.asarray(values, np.int64)
        except OverflowError:
            column[self.rows[whole]] = signed(values)
        return column

    def texts(self, length: int, default: str = "") -> list[str]:
        """One text for each of `length` nodes."""
        column = [default] * length
        for row, value in zip(self.rows.tolist(), self.values, strict=True):
            if isinstance(value, str):
                column[row] = value
        return column


@dataclass(frozen=True, slots=True)
class NodeTable(Columns):
    """One row for each node, in the order of the file; `name` is a code of `strings`."""

    id: Int64s
    """64 unsigned bits, as a signed number of the same bits."""
    name: Int32s
    type: npt.NDArray[np.uint8]
    start: Int64s
    """Microseconds."""
    duration: Int64s
    data: Links
    """What must have ended before the node begins."""
    control: Links
    """What encloses it, or put it on a device."""
    strings: Sequence[str]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.id)

    def attribute(self, name: str) -> Attribute:
        """An attribute; one that no node has is empty."""
        return self.attributes.get(name) or Attribute(np.empty(0, np.int64), [], np.empty(0, np.uint8))

    def text(self, row: int) -> str:
        """The name of a node."""
        return self.strings[int(self.name[row])]

    def of_type(self, *types: NodeType) -> Bools:
        """Which nodes are of these types."""
        chosen: Bools = np.isin(self.type, np.array(types, np.uint8))
        return chosen

    def on_host(self) -> Bools:
        """Which nodes say that they are operators of the host."""
        told: Bools = self.attribute(Name.IS_CPU_OP).whole_numbers(len(self), 0) != 0
        return told

    def places(self, links: Links) -> Int64s:
        """The row of the node that each id of `links` names, or -1; of several nodes with one id the first."""
        order = np.argsort(self.id, kind="stable")
        place = np.searchsorted(self.id[order], links.ids)
        place = np.minimum(place, max(len(order) - 1, 0))
        if not len(order):
            return np.full(len(links.ids), -1, np.int64)
        found = self.id[order][place] == links.ids
        return np.where(found, order[place], -1)


def chosen(values: Sequence[Any] | npt.NDArray[Any], places: Int64s) -> Sequence[Any] | npt.NDArray[Any]:
    """Some of the values of an attribute."""
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places.tolist()]


def signed(numbers: Sequence[int] | npt.NDArray[Any]) -> Int64s:
    """Numbers of 64 unsigned bits as signed ones of the same bits, so that columns need one type only."""
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.int64)
    return np.array([number & UNSIGNED for number in numbers], np.uint64).view(np.int64)


def unsigned(number: int) -> int:
    """The number that a signed one of the same bits stands for."""
    return int(number) & UNSIGNED
