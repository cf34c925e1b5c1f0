"""Columns of nodes to the bytes of an `.et` file, a column at a time: one object per node costs four times as much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._io.framing import DELIMITED, VARINT, VARINT_BYTES, delimited, framed, key, varint
from tracelink._io.protobuf import varints
from tracelink._model.columns import Int64s
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata
from tracelink.converters.chakra.table import Attribute, Links, NodeTable

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
