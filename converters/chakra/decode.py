"""Bytes to columns; faults."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.batch import LISTS, NUMBERS, Lists, Nodes, Part, nodes_of
from tracelink.converters.chakra.chakra_pb2 import GlobalMetadata
from tracelink.converters.chakra.schema import CONTROL, DATA, DURATION, ID, START, TYPE, value_of
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, chosen
from tracelink.errors import Finding, Severity
from tracelink.io.framing import Batch, Framing, FramingError
from tracelink.io.sources import Opened, Source
from tracelink.model.columns import Int64s, StringTable

# Batches of nodes, one after the other, as one table.


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


# Messages one after the other, each behind its length; nothing else tells where one ends.


FRAMING = Framing("message")


class Frame(NamedTuple):
    """One message, and where its length begins."""

    offset: int
    body: bytes


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Every message; a `FramingError` where the bytes end within one or are none."""
    for batch in FRAMING.batches(stream.read):
        data = batch.data
        for offset, begin, end in zip(batch.offsets, batch.begins, batch.ends, strict=True):
            yield Frame(offset, data[begin:end])


# The bytes of an `.et` file to columns, and what is wrong with the bytes.


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes that are not as they must be."""

    reason: str
    message: str
    offset: int
    node: int | None = None
    """The id of the node, where there is one."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file: what it says of itself, its nodes, and what is wrong with its bytes."""

    metadata: GlobalMetadata
    nodes: NodeTable
    offsets: list[int]
    """Where each node's message begins in the file."""
    faults: list[Fault] = field(default_factory=list)

    def said(self, name: str) -> Any:
        """An attribute of the metadata, or None."""
        for attribute in self.metadata.attr:
            if attribute.name == name:
                return value_of(attribute)
        return None


class _File:
    """What was read of a file so far."""

    def __init__(self) -> None:
        self.metadata: GlobalMetadata | None = None
        self.columns = Columns()
        self.offsets: list[int] = []
        self.faults: list[Fault] = []

    def add(self, batch: Batch) -> None:
        """Messages, of which the first one of a file is its metadata."""
        offsets, begins, ends = batch.offsets, batch.begins, batch.ends
        if self.metadata is None:
            self.metadata = self._metadata(offsets[0], batch.data[begins[0] : ends[0]])
            offsets, begins, ends = offsets[1:], begins[1:], ends[1:]
        nodes = nodes_of(batch.data, begins, ends)
        for row in np.flatnonzero(~nodes.good).tolist():
            self.faults.append(_no_node(offsets[row], empty=begins[row] == ends[row]))
        self.offsets += [offsets[row] for row in np.flatnonzero(nodes.good).tolist()]
        self.columns.add(nodes)

    def _metadata(self, offset: int, body: bytes) -> GlobalMetadata:
        try:
            return GlobalMetadata.FromString(body)
        except DecodeError:
            text = "the first message is no GlobalMetadata"
            self.faults.append(Fault("unreadable_metadata", text, offset))
            return GlobalMetadata()


def decode(stream: BinaryIO) -> Decoded:
    """A whole file. What cannot be read is a fault, and ends the reading only where no further message is found."""
    file = _File()
    broken: list[Fault] = []
    for batch in _batches(stream, broken):
        file.add(batch)
    if file.metadata is None:
        text = "the file has no first message, which says what it is"
        broken.append(Fault("no_metadata", text, 0))
    metadata = file.metadata or GlobalMetadata()
    return Decoded(metadata, file.columns.table(), file.offsets, [*file.faults, *broken])


def _batches(stream: BinaryIO, faults: list[Fault]) -> Iterator[Batch]:
    try:
        yield from FRAMING.batches(stream.read)
    except FramingError as error:
        faults.append(Fault("broken_off", str(error), error.offset))


def _no_node(offset: int, *, empty: bool) -> Fault:
    if empty:
        text = f"the message at byte {offset:,} is empty: some readers take it for the end of the file"
        return Fault("empty_message", text, offset)
    return Fault("unreadable_node", f"the message at byte {offset:,} is no Node", offset)


# The messages of a source, one after the other, and what tells that there should be more.


BUFFER = 1 << 20


class _Raw(io.RawIOBase):
    """An opened source as what Python buffers."""

    def __init__(self, opened: Opened, count: Callable[[int], None]) -> None:
        self._opened = opened
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        got = self._opened.readinto(memoryview(buffer))
        self._count(got)
        return got


@contextmanager
def buffered(
    source: Source, count: Callable[[int], None] = lambda _: None, offset: int = 0
) -> Iterator[tuple[BinaryIO, Opened]]:
    """The bytes of a source from `offset` on, buffered, and the source itself; `count` is told how many are read."""
    with source.open() as opened:
        opened.skip(offset)
        yield cast(BinaryIO, io.BufferedReader(_Raw(opened, count), BUFFER)), opened


def truncated_at(path: str, problem: str, kept: int, offset: int) -> Finding:
    """What to say of a file that ends before its time."""
    text = f"{path}: {problem}; the {kept:,} nodes before that are used. Copy or record it again."
    return Finding(Severity.WARNING, "truncated", text, source=path, example=f"byte {offset}")


def too_few(path: str, said: int, kept: int) -> Finding:
    """What to say of a file that holds fewer nodes than its metadata count."""
    text = f"{path}: its metadata count {said:,} nodes, and {kept:,} are there. Copy or record it again."
    return Finding(Severity.WARNING, "truncated", text, source=path)
