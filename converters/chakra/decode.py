"""The bytes of an `.et` file to node columns with the faults in its bytes, and columns to bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct, field

from tracelink._io.framing import (
    DELIMITED,
    VARINT,
    VARINT_BYTES,
    Batch,
    Framing,
    FramingError,
    delimited,
    framed,
    key,
    varint,
)
from tracelink._io.protobuf import varints
from tracelink._io.sources import Opened, Source
from tracelink._model.columns import Int64s, StringTable
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.batch import ID_LISTS, NUMBERS, IdLists, Nodes, Part, nodes_of
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata
from tracelink.converters.chakra.schema import CONTROL, DATA, DURATION, ID, START, TYPE, value_of
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, chosen

BROKEN_OFF = "broken_off"
NO_METADATA = "no_metadata"
EMPTY_MESSAGE = "empty_message"
UNREADABLE_NODE = "unreadable_node"
UNREADABLE_METADATA = "unreadable_metadata"
"""Reasons of faults."""

_BUFFER = 1 << 20


class Fault(Struct, frozen=True):
    """Bytes that are not valid."""

    reason: str
    message: str
    offset: int


class Decoded(Struct, frozen=True):
    """A decoded file: its metadata, its nodes, and the faults in its bytes."""

    metadata: GlobalMetadata
    nodes: NodeTable
    offsets: list[int]
    """The offset of each node's message in the file."""
    faults: list[Fault] = field(default_factory=list)

    def metadata_value(self, name: str) -> Any:
        """An attribute of the metadata; None if missing."""
        for attribute in self.metadata.attr:
            if attribute.name == name:
                return value_of(attribute)
        return None

    def metadata_integer(self, name: str, largest: int) -> int | None:
        """An attribute of the metadata; None unless it is an integer from 0 to `largest`."""
        value = self.metadata_value(name)
        return value if type(value) is int and 0 <= value <= largest else None


class _File:
    """Collects the batches of a file."""

    def __init__(self) -> None:
        self.metadata: GlobalMetadata | None = None
        self.columns = _Columns()
        self.offsets: list[int] = []
        self.faults: list[Fault] = []

    def add(self, batch: Batch) -> None:
        """Adds a batch of messages; the first message of a file is its metadata."""
        offsets, begins, ends = batch.offsets, batch.begins, batch.ends
        if self.metadata is None:
            self.metadata = self._metadata(offsets[0], batch.data[begins[0] : ends[0]])
            offsets, begins, ends = offsets[1:], begins[1:], ends[1:]
        nodes = nodes_of(batch.data, begins, ends)
        for row in np.flatnonzero(~nodes.good).tolist():
            self.faults.append(_node_fault(offsets[row], empty=begins[row] == ends[row]))
        self.offsets += [offsets[row] for row in np.flatnonzero(nodes.good).tolist()]
        self.columns.add(nodes)

    def _metadata(self, offset: int, body: bytes) -> GlobalMetadata:
        try:
            return GlobalMetadata.FromString(body)
        except DecodeError:
            text = "the first message is not valid GlobalMetadata"
            self.faults.append(Fault(UNREADABLE_METADATA, text, offset))
            return GlobalMetadata()


def decode(stream: BinaryIO) -> Decoded:
    """Decodes a file. A fault is recorded, and ends the decoding only if the next message cannot be found."""
    file = _File()
    broken: list[Fault] = []
    for batch in _batches(stream, broken):
        file.add(batch)
    if file.metadata is None:
        broken.append(Fault(NO_METADATA, "the file has no metadata, which must be its first message", 0))
    metadata = file.metadata or GlobalMetadata()
    return Decoded(metadata, file.columns.table(), file.offsets, [*file.faults, *broken])


def _batches(stream: BinaryIO, faults: list[Fault]) -> Iterator[Batch]:
    try:
        yield from FRAMING.batches(stream.read)
    except FramingError as error:
        faults.append(Fault(BROKEN_OFF, str(error), error.offset))


def _node_fault(offset: int, *, empty: bool) -> Fault:
    if empty:
        text = f"the message at byte {offset:,} is empty; some readers stop at it"
        return Fault(EMPTY_MESSAGE, text, offset)
    return Fault(UNREADABLE_NODE, f"the message at byte {offset:,} is not a valid Node", offset)


# Batches of nodes as one table.


class _Names(dict[bytes, int]):
    """The code of each name, by its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.strings = StringTable()

    def __missing__(self, name: bytes) -> int:
        code = self[name] = self.strings[name.decode()]
        return code


class _Columns:
    """Collects the nodes of batches."""

    def __init__(self) -> None:
        self._rows = 0
        self._names = _Names()
        self._name: list[npt.NDArray[np.int32]] = []
        self._numbers: dict[int, list[Int64s]] = {number: [] for number in NUMBERS}
        self._lists: dict[int, list[IdLists]] = {number: [] for number in ID_LISTS}
        self._attributes: dict[str, list[Attribute]] = {}

    def add(self, nodes: Nodes) -> None:
        """Adds the valid nodes of a batch."""
        good = np.flatnonzero(nodes.good)
        rows = np.cumsum(nodes.good) - 1 + self._rows
        names, codes = nodes.names, self._names
        kept = names if len(good) == len(names) else [names[row] for row in good.tolist()]
        self._name.append(np.array(list(map(codes.__getitem__, kept)), np.int32))
        for number, column in nodes.numbers.items():
            self._numbers[number].append(column[good])
        for number, lists in nodes.lists.items():
            self._lists[number].append(IdLists(rows[lists.owner], lists.ids))
        for name, parts in _by_name(nodes.parts).items():
            self._attributes.setdefault(name, []).append(_attribute(parts, rows))
        self._rows += len(good)

    def table(self) -> NodeTable:
        """All nodes."""
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
            {name: _joined(parts) for name, parts in self._attributes.items()},
        )


def _by_name(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """The parts of each name; names and parts are in the order of their first attribute."""
    found: dict[str, list[Part]] = {}
    for part in sorted((part for part in parts if len(part.row)), key=lambda part: int(part.offset[0])):
        found.setdefault(part.name, []).append(part)
    return found


def _attribute(parts: Sequence[Part], rows: Int64s) -> Attribute:
    """The parts of one name as one attribute, in the order of the file."""
    columns = [Attribute.of(part.kind, rows[part.row], part.values) for part in parts]
    if len(columns) == 1:
        return columns[0]
    joined = _joined(columns)
    order = np.argsort(np.concatenate([part.offset for part in parts]), kind="stable")
    return Attribute(joined.rows[order], chosen(joined.values, order), joined.kinds[order])


def _joined(columns: Sequence[Attribute]) -> Attribute:
    """Attributes one after the other; an array if all are arrays of the same type."""
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


def _links(parts: Sequence[IdLists], length: int) -> Links:
    owner = np.concatenate([np.empty(0, np.int64), *(part.owner for part in parts)])
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)])
    return Links(np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=length))]), ids)


# Framing: each message follows its length, and only the length tells where it ends.

FRAMING = Framing("message")


class Frame(NamedTuple):
    """A message and the offset of its length."""

    offset: int
    body: bytes


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Every message; raises `FramingError` at a truncated or invalid message."""
    for batch in FRAMING.batches(stream.read):
        data = batch.data
        for offset, begin, end in zip(batch.offsets, batch.begins, batch.ends, strict=True):
            yield Frame(offset, data[begin:end])


# Sources as streams, and the findings on truncated ones.


class _Raw(io.RawIOBase):
    """An opened source as a raw stream that Python can buffer."""

    def __init__(self, opened: Opened, count: Callable[[int], None]) -> None:
        self._opened = opened
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = self._opened.readinto(memoryview(buffer))
        self._count(size)
        return size


@contextmanager
def buffered(
    source: Source, count: Callable[[int], None] = lambda _: None, offset: int = 0
) -> Iterator[tuple[BinaryIO, Opened]]:
    """A buffered stream of a source from `offset` on, and the opened source.

    `count` is called with the number of bytes of every read.
    """
    with source.open() as opened:
        opened.skip(offset)
        yield cast(BinaryIO, io.BufferedReader(_Raw(opened, count), _BUFFER)), opened


def too_few_nodes(path: str, expected: int, kept: int) -> Finding:
    """The finding on a file with fewer nodes than its metadata count."""
    text = (
        f"{path}: the metadata count {expected:,} nodes, but the file has {kept:,}. Copy or record it again."
    )
    return Finding(Severity.WARNING, Truncated.reason, text, source=path)


# Columns of nodes to the bytes of an `.et` file, a column at a time: one object per node costs four times as much.

FEW_VALUES = 4096
"""Each value of an attribute with at most so many different ones is encoded once."""
BATCH = 8192
"""Nodes written at once."""

Metadata = Mapping[str, tuple[schema.Kind, Any]]


class _Encoded(Struct, frozen=True):
    """An attribute with few values, which are encoded already."""

    rows: Int64s
    codes: Int64s
    """The index in `values` of each node."""
    values: Sequence[bytes]

    def fields(self, begin: int, end: int) -> list[bytes]:
        """The attribute of the nodes from `begin` to `end`."""
        inside = slice(*np.searchsorted(self.rows, [begin, end]))
        return scattered(end - begin, self.rows[inside] - begin, repeated(self.codes[inside], self.values))


class _Numbers(Struct, frozen=True):
    """An attribute with many different numbers."""

    name: str
    kind: schema.Kind
    rows: Int64s
    values: Int64s

    def fields(self, begin: int, end: int) -> list[bytes]:
        """The attribute of the nodes from `begin` to `end`."""
        inside = slice(*np.searchsorted(self.rows, [begin, end]))
        written = number_attributes(self.name, self.kind, self.values[inside])
        return scattered(end - begin, self.rows[inside] - begin, written)


def encoded(metadata: Metadata, nodes: NodeTable, tensors: Sequence[bytes] | None = None) -> Iterator[bytes]:
    """The chunks of a file; `tensors` are the fields of inputs and outputs of each node, if any."""
    yield framed(metadata_message(metadata))
    names = [delimited(schema.NAME, text.encode()) if text else b"" for text in nodes.strings]
    attributes = [_encoded_attribute(name, column) for name, column in nodes.attributes.items()]
    for begin in range(0, len(nodes), BATCH):
        end = min(begin + BATCH, len(nodes))
        inside = slice(begin, end)
        columns = [
            number_fields(schema.ID, nodes.id[inside]),
            repeated(nodes.name[inside], names),
            number_fields(schema.TYPE, nodes.type[inside].astype(np.int64)),
            _ids(schema.CONTROL, nodes.control, begin, end),
            _ids(schema.DATA, nodes.data, begin, end),
            number_fields(schema.START, nodes.start[inside]),
            number_fields(schema.DURATION, nodes.duration[inside]),
            *([tensors[inside]] if tensors is not None else []),
            *(column.fields(begin, end) for column in attributes),
        ]
        yield b"".join(map(framed, map(b"".join, zip(*columns, strict=True))))


def metadata_message(metadata: Metadata) -> bytes:
    """The first message of a file."""
    attributes = [
        AttributeProto(name=name, **{schema.FIELD_OF_KIND[kind]: value})
        for name, (kind, value) in metadata.items()
    ]
    message: bytes = GlobalMetadata(version=schema.VERSION, attr=attributes).SerializeToString()
    return message


def _ids(number: int, links: Links, begin: int, end: int) -> list[bytes]:
    bounds = links.bounds[begin : end + 1]
    return packed_fields(number, bounds - bounds[0], links.ids[bounds[0] : bounds[-1]])


def _encoded_attribute(name: str, column: Attribute) -> _Encoded | _Numbers:
    """An attribute with one kind, ready to be written."""
    kind = schema.Kind(int(column.kinds[0])) if len(column) else schema.Kind.INT64
    if kind in (schema.Kind.STRING, schema.Kind.STRING_LIST):
        texts = map(tuple, column.values) if kind == schema.Kind.STRING_LIST else column.values
        codes: dict[str | tuple[str, ...], int] = {}
        coded = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)
        return _Encoded(column.rows, coded, [attribute(name, kind, text) for text in codes])
    values = np.asarray(column.values, np.int64)
    distinct, coded = np.unique(values, return_inverse=True)
    if len(distinct) > FEW_VALUES:
        return _Numbers(name, kind, column.rows, values)
    return _Encoded(column.rows, coded, [attribute(name, kind, value) for value in distinct.tolist()])


# Fields of all nodes.


def number_fields(number: int, values: Int64s) -> list[bytes]:
    """An integer field of each node; empty for zero, which is what a missing field means."""
    head = key(number, VARINT)
    buffer, bounds = varints(values)
    return [
        head + buffer[begin:end] if is_set else b""
        for (begin, end), is_set in zip(pairwise(bounds.tolist()), (values != 0).tolist(), strict=True)
    ]


def packed_fields(number: int, bounds: Int64s, ids: Int64s) -> list[bytes]:
    """A packed field of each node: node `i` has `ids[bounds[i]:bounds[i + 1]]`."""
    buffer, offsets = varints(ids)
    cuts = offsets[bounds].tolist()
    return [delimited(number, buffer[begin:end]) if end > begin else b"" for begin, end in pairwise(cuts)]


def attribute(name: str, kind: schema.Kind, value: Any) -> bytes:
    """One attribute of a node; negative numbers take ten bytes, as protobuf writes them."""
    body = delimited(schema.ATTRIBUTE_NAME, name.encode())
    if kind == schema.Kind.STRING:
        body += delimited(kind, value.encode())
    elif kind == schema.Kind.STRING_LIST:
        body += delimited(kind, b"".join(delimited(schema.LIST_VALUES, text.encode()) for text in value))
    else:
        body += key(kind, VARINT) + varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
    return delimited(schema.ATTRIBUTE, body)


def number_attributes(name: str, kind: schema.Kind, values: Int64s) -> list[bytes]:
    """An integer attribute of each node."""
    before = delimited(schema.ATTRIBUTE_NAME, name.encode()) + key(kind, VARINT)
    heads = [
        key(schema.ATTRIBUTE, DELIMITED) + varint(len(before) + width) + before
        for width in range(VARINT_BYTES + 1)
    ]
    buffer, bounds = varints(values)
    return [heads[end - begin] + buffer[begin:end] for begin, end in pairwise(bounds.tolist())]


def scattered(length: int, rows: Int64s, fields: Sequence[bytes]) -> list[bytes]:
    """Fields of some nodes as one for each node, empty for the others."""
    if len(rows) == length:
        return list(fields)
    column = [b""] * length
    for row, text in zip(rows.tolist(), fields, strict=True):
        column[row] = text
    return column


def repeated(values: npt.NDArray[Any], fields: Sequence[bytes]) -> list[bytes]:
    """`fields[i]` for each `i` in `values`."""
    return list(map(fields.__getitem__, values.tolist()))
