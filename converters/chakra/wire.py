"""Columns to the bytes of protobuf fields, a column at a time: a message object for each node costs four times as much.

What comes out is what protobuf would write; the tests hold both against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy.typing as npt

from tracelink.converters.chakra.schema import ATTRIBUTE, ATTRIBUTE_NAME, Kind
from tracelink.events import Int64s
from tracelink.wire import (
    DELIMITED,
    MOST_BYTES,
    SHORT,
    SHORT_LENGTHS,
    VARINT,
    delimited,
    key,
    varint,
    varints,
)


def number_fields(number: int, values: Int64s) -> list[bytes]:
    """A scalar field of each node; empty where it is zero, which is what its absence means."""
    head = key(number, VARINT)
    buffer, bounds = varints(values)
    return [
        head + buffer[begin:end] if given else b""
        for (begin, end), given in zip(pairwise(bounds.tolist()), (values != 0).tolist(), strict=True)
    ]


def packed_fields(number: int, bounds: Int64s, ids: Int64s) -> list[bytes]:
    """A repeated field of each node: that of node `i` holds `ids[bounds[i]:bounds[i + 1]]`."""
    head = key(number, DELIMITED)
    buffer, places = varints(ids)
    cuts = places[bounds].tolist()
    return [
        head
        + (SHORT_LENGTHS[end - begin] if end - begin < SHORT else varint(end - begin))
        + buffer[begin:end]
        if end > begin
        else b""
        for begin, end in pairwise(cuts)
    ]


def attribute(name: str, kind: Kind, value: Any) -> bytes:
    """One attribute of a node; negative numbers take ten bytes, as protobuf writes them."""
    body = delimited(ATTRIBUTE_NAME, name.encode())
    if kind == Kind.STRING:
        body += delimited(kind, value.encode())
    else:
        body += key(kind, VARINT) + varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
    return delimited(ATTRIBUTE, body)


def number_attributes(name: str, kind: Kind, values: Int64s) -> list[bytes]:
    """An attribute that is a whole number, of each node."""
    before = delimited(ATTRIBUTE_NAME, name.encode()) + key(kind, VARINT)
    heads = [
        key(ATTRIBUTE, DELIMITED) + varint(len(before) + width) + before for width in range(MOST_BYTES + 1)
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
