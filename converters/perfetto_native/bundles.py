"""Bundles: packets that stand compressed in a packet of their own, which says when the first of them is."""

from __future__ import annotations

import zlib
from enum import Enum

from isal import isal_zlib

from tracelink.converters.perfetto_native.schema import PACKET, Packet
from tracelink.wire import DELIMITED, VARINT, delimited, key, varint, varint_at

FAST = 2
"""The level of a library that takes a thousandth of a second for a megabyte."""

HEAD, CONTENT = key(Packet.TIME, VARINT), key(Packet.BUNDLE, DELIMITED)


class Packing(Enum):
    """How the packets of bundles are written."""

    BUNDLED = "bundled"
    DENSE = "dense"
    """In as few bytes as there is time for."""
    PLAIN = "plain"
    """Not compressed, for a file that is compressed as a whole."""


def bundle(time: int, packets: bytes) -> bytes:
    """The packet that holds these, of which none is before `time`."""
    return _bundle(time, isal_zlib.compress(packets, FAST))


def time_of(body: bytes) -> int | None:
    """When the first packet of a bundle is, by the first bytes of its body; None where this is no bundle."""
    if not body.startswith(HEAD):
        return None
    time, at = varint_at(body, len(HEAD))
    return time if body.startswith(CONTENT, at) else None


def packed(body: bytes, packing: Packing) -> bytes:
    """A bundle with this body, written in another way."""
    time, at = varint_at(body, len(HEAD))
    _, at = varint_at(body, at + len(CONTENT))
    packets = isal_zlib.decompress(memoryview(body)[at:])
    return packets if packing is Packing.PLAIN else _bundle(time, zlib.compress(packets))


def _bundle(time: int, compressed: bytes) -> bytes:
    return delimited(PACKET, HEAD + varint(time) + delimited(Packet.BUNDLE, compressed))
