"""Packets one after the other, each a field of the trace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tracelink.converters.perfetto_native.schema import PACKET
from tracelink.sources import Opened
from tracelink.wire import DELIMITED, GROUP_BITS, key

HEAD = key(PACKET, DELIMITED)[0]
LENGTH_BYTES = 5
MOST = 512 << 20
"""A longer packet is none: a small compressed file must not be able to ask for all memory."""
CHUNK = 2 << 20


class FramingError(Exception):
    """The bytes are no further packet."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Batch:
    """Packets that were read together: each is `data[begins[i]:ends[i]]`."""

    offset: int
    """Where `data` begins in the file."""
    data: bytes
    begins: list[int]
    ends: list[int]
    anchors: Sequence[tuple[int, int]] = ()
    """Packets that begin a bundle, and the times that it says."""


def batches(
    opened: Opened, offset: int = 0, count: Callable[[int], None] = lambda _: None
) -> Iterator[Batch]:
    """Every packet from `offset` on; a `FramingError` where the bytes end within one or are none.

    Where batches are cut depends on nothing but where the first one begins.
    """
    rest = b""
    while data := _read_on(opened, rest, count):
        batch, problem = framed(offset, data)
        used = batch.ends[-1] if batch.ends else 0
        if used:
            yield batch
        if problem:
            raise problem
        if not used and len(data) == len(rest):
            raise FramingError(offset, f"the file ends within the packet at byte {offset:,}")
        offset, rest = offset + used, data[used:]


def framed(offset: int, data: bytes, most: int = sys.maxsize) -> tuple[Batch, FramingError | None]:
    """The whole packets at the beginning of `data`, `most` of them, and what is wrong with the bytes behind them."""
    batch = Batch(offset, data, [], [])
    begins, ends = batch.begins, batch.ends
    place, size = 0, len(data)
    while place + 1 < size and len(begins) < most:
        length, begin = data[place + 1], place + 2
        if data[place] != HEAD:
            return batch, FramingError(offset + place, f"there is no packet at byte {offset + place:,}")
        if length > 0x7F and begin < size and (second := data[begin]) <= 0x7F:
            length, begin = length & 0x7F | second << GROUP_BITS, begin + 1
        elif length > 0x7F:
            found = length_at(data, place + 1)
            if found is None:
                break
            length, begin = found
            if length > MOST:
                text = f"the packet at byte {offset + place:,} says {length:,} bytes: none is as long"
                return batch, FramingError(offset + place, text)
        if begin + length > size:
            break
        place = begin + length
        begins.append(begin)
        ends.append(place)
    return batch, None


def length_at(data: bytes, place: int) -> tuple[int, int] | None:
    """The length at a place and where what it counts begins; None where the bytes end within it."""
    number = 0
    for width, byte in enumerate(data[place : place + LENGTH_BYTES]):
        number |= (byte & 0x7F) << GROUP_BITS * width
        if byte < 0x80:
            return number, place + width + 1
    return None if len(data) - place < LENGTH_BYTES else (MOST + 1, place + LENGTH_BYTES)


def _read_on(opened: Opened, rest: bytes, count: Callable[[int], None]) -> bytes:
    """What was left and what fills a chunk, or as much as the packet in it takes; nothing at the end."""
    wanted = CHUNK
    if rest[:1] == bytes([HEAD]) and (found := length_at(rest, 1)) and found[0] <= MOST:
        wanted = max(CHUNK, sum(found))
    parts, have = [rest], len(rest)
    while have < wanted and (part := opened.read(min(wanted - have, CHUNK))):
        count(len(part))
        parts.append(part)
        have += len(part)
    return b"".join(parts)
