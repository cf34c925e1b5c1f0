"""Messages one after the other, each behind its length; nothing else tells where one ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from tracelink.wire import varint

LENGTH_BYTES = 5
"""Readers take lengths of 32 bits."""
MOST = 512 << 20
"""A longer message is none: a small compressed file must not be able to ask for all memory."""
CHUNK = 2 << 20


class FramingError(Exception):
    """The bytes are no further message."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


class Frame(NamedTuple):
    """One message, and where its length begins."""

    offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that were read together: each is `data[begins[i]:ends[i]]`, and the next one's length follows it."""

    offset: int
    """Where the first one's length begins in the file; it is the first byte of `data`."""
    data: bytes
    begins: list[int]
    ends: list[int]

    @property
    def offsets(self) -> list[int]:
        """Where each one's length begins in the file."""
        return [self.offset, *(self.offset + end for end in self.ends[:-1])]


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Every message; a `FramingError` where the bytes end within one or are none."""
    for batch in batches(stream):
        data = batch.data
        for offset, begin, end in zip(batch.offsets, batch.begins, batch.ends, strict=True):
            yield Frame(offset, data[begin:end])


def batches(stream: BinaryIO) -> Iterator[Batch]:
    """Every message, as many at a time as a chunk of the file holds; a `FramingError` as `frames` raises.

    A length says how much memory is asked for, so a message is read in chunks: no file can ask for more than it has.
    """
    offset, rest = 0, b""
    while len(data := _read_on(stream, rest)) > len(rest):
        batch, problem = _batch(offset, data)
        used = batch.ends[-1] if batch.ends else 0
        if used:
            yield batch
        if problem:
            raise problem
        offset, rest = offset + used, data[used:]
    if rest:
        raise _cut(offset, rest)


def framed(body: bytes) -> bytes:
    """A message behind its length."""
    return varint(len(body)) + body


def _batch(offset: int, data: bytes) -> tuple[Batch, FramingError | None]:
    """The whole messages at the beginning of `data`, and what is wrong with the length behind them."""
    batch = Batch(offset, data, [], [])
    begins, ends = batch.begins, batch.ends
    place, size = 0, len(data)
    try:
        while place < size:
            length, begin = data[place], place + 1
            if length > 0x7F and begin < size and (second := data[begin]) <= 0x7F:
                length, begin = length & 0x7F | second << 7, place + 2
            elif length > 0x7F:
                if not (found := _length(data, place, offset)):
                    break
                length, begin = found
            if begin + length > size:
                break
            place = begin + length
            begins.append(begin)
            ends.append(place)
    except FramingError as error:
        return batch, error
    return batch, None


def _length(data: bytes, place: int, offset: int) -> tuple[int, int] | None:
    """The length at a place and where its message begins; None where the bytes end within it."""
    number = 0
    for width, byte in enumerate(data[place : place + LENGTH_BYTES]):
        number |= (byte & 0x7F) << 7 * width
        if byte < 0x80:
            if number > MOST:
                raise FramingError(
                    offset + place,
                    f"the length at byte {offset + place:,} is {number:,}: no message is as long",
                )
            return number, place + width + 1
    if len(data) - place < LENGTH_BYTES:
        return None
    raise FramingError(
        offset + place, f"the length at byte {offset + place:,} is longer than {LENGTH_BYTES} bytes"
    )


def _cut(offset: int, rest: bytes) -> FramingError:
    """The file ended within a length or a message."""
    if not (found := _length(rest, 0, offset)):
        return FramingError(offset, f"the file ends within a length at byte {offset:,}")
    length, begin = found
    return FramingError(
        offset,
        f"the message at byte {offset:,} says {length:,} bytes, and the file ends after {len(rest) - begin:,} of them"
        f" (byte {offset + len(rest):,})",
    )


def _read_on(stream: BinaryIO, rest: bytes) -> bytes:
    """What was left and a chunk more, or as much more as the message in it takes."""
    found = _length(rest, 0, 0)
    wanted = max(CHUNK, sum(found) - len(rest)) if found else CHUNK
    parts = [rest]
    while wanted and (part := stream.read(min(wanted, CHUNK))):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)
