"""Perfetto's packets, field by field: `packet({8: 5000, 11: {9: 1, 11: 7}})` is an event at a time.

A whole number is a varint, a float or a `Fixed` has eight bytes, a text or bytes are as they are, a mapping is a
message, and a list repeats its field.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

from tracelink._io.framing import FIXED64, VARINT, delimited, key, varint

Fields = Mapping[int, Any] | bytes
BEGIN, END, INSTANT, COUNTED = 1, 2, 3, 4


class Fixed(int):
    """A number of eight bytes."""


def message(*contents: Fields) -> bytes:
    """The bytes of a message with these fields, in this order."""
    return b"".join(
        content if isinstance(content, bytes) else b"".join(_field(*item) for item in content.items())
        for content in contents
    )


def _field(place: int, value: Any) -> bytes:
    match value:
        case bytes():
            return delimited(place, value)
        case str():
            return delimited(place, value.encode())
        case float():
            return key(place, FIXED64) + struct.pack("<d", value)
        case Fixed():
            return key(place, FIXED64) + struct.pack("<Q", value)
        case int():
            return key(place, VARINT) + varint(value & (1 << 64) - 1)
        case list() | tuple():
            return b"".join(_field(place, one) for one in value)
        case dict():
            return delimited(place, message(value))
    raise TypeError(value)


def packet(*contents: Fields) -> bytes:
    return delimited(1, message(*contents))


def compressed(*packets: bytes) -> bytes:
    return packet({50: zlib.compress(b"".join(packets))})


def interned(texts: Mapping[str, int], name: int = 2) -> list[dict[int, Any]]:
    """The entries of a table of texts: their numbers and themselves."""
    return [{1: number, name: text} for text, number in texts.items()]
