"""JSON objects as arguments of events: engines take them as they are."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.converters.perfetto_native.interning import Texts
from tracelink.converters.perfetto_native.readable import readable
from tracelink.converters.perfetto_native.schema import Argument, Event, Table
from tracelink.trace import Payload
from tracelink.wire import DELIMITED, VARINT, key, varint

EMPTY = len(b"{}")
NULL = b"null"
"""Engines that get it as a whole argument end."""


def arguments(texts: Texts, name: str, payloads: Sequence[Payload]) -> list[bytes]:
    """For each object a field that holds an argument of this name, or nothing where it is empty."""
    number = key(Argument.NAME, VARINT) + varint(texts.number(Table.ARGUMENT_NAMES, name))
    objects = readable(payloads)
    lengths = list(map(len, objects))
    heads = {length: _head(number, length) for length in set(lengths)}
    return [
        heads[length] + text if length > EMPTY and text != NULL else b""
        for text, length in zip(objects, lengths, strict=True)
    ]


def _head(number: bytes, length: int) -> bytes:
    """What stands before a text of this length."""
    inner = number + key(Argument.JSON, DELIMITED) + varint(length)
    return key(Event.ARGUMENT, DELIMITED) + varint(len(inner) + length) + inner
