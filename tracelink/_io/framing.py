"""Protobuf's wire format, one value and one message at a time, and messages that follow one another in a file.

Formats are recognised with this module, so it imports neither numpy nor protobuf. Columns: `tracelink._io.protobuf`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types."""
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}

GROUP_BITS = 7
VARINT_BYTES = 10
"""The most bytes of a number of 64 bits."""
LENGTH_BYTES = 5
"""The most bytes of a length: readers take lengths of 32 bits."""
LONGEST_MESSAGE = 512 << 20
"""A longer message is invalid: a small compressed file must not be able to request all memory."""
LARGEST_FIELD = (1 << 29) - 1
CHUNK = 2 << 20
"""Bytes of a file that are read at a time."""

_UNSIGNED = (1 << 64) - 1
_SHORT = 1 << 14


# Writing


def varint(number: int) -> bytes:
    """A number of 64 unsigned bits in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= GROUP_BITS
    groups.append(number)
    return bytes(groups)


_short_length = cache(varint)


def framed(body: bytes) -> bytes:
    """A message after its length."""
    length = len(body)
    return (_short_length(length) if length < _SHORT else varint(length)) + body


@cache
def key(number: int, wire_type: int) -> bytes:
    """The tag that starts a field."""
    return varint(number << 3 | wire_type)


def delimited(number: int, body: bytes) -> bytes:
    """A field of bytes, a string or a message."""
    length = len(body)
    return key(number, DELIMITED) + (_short_length(length) if length < _SHORT else varint(length)) + body


# Reading one value or one message


class Field(NamedTuple):
    """A field of a message; its value is `data[begin:end]`, after the length if it has one."""

    number: int
    wire: int
    begin: int
    end: int
    value: int
    """The number that a varint is, or the length of a delimited field."""


def varint_at(data: bytes, offset: int, end: int = sys.maxsize) -> tuple[int, int]:
    """The signed number of 64 bits at `offset` and the offset after it, which is 0 if no varint ends before `end`."""
    number = 0
    for width, byte in enumerate(data[offset : min(offset + VARINT_BYTES, end)]):
        number |= (byte & 0x7F) << GROUP_BITS * width
        if byte < 0x80:
            return (number & _UNSIGNED) - ((number >> 63 & 1) << 64), offset + width + 1
    return 0, 0


def length_at(data: bytes, offset: int) -> tuple[int, int] | None:
    """The length at `offset` and the offset after it; None if `data` ends within it.

    A length above LONGEST_MESSAGE is invalid; one that takes too many bytes is given as such.
    """
    length, after = varint_at(data, offset, offset + LENGTH_BYTES)
    if after:
        return length, after
    return None if len(data) - offset < LENGTH_BYTES else (LONGEST_MESSAGE + 1, offset + LENGTH_BYTES)


def fields_of(data: bytes, begin: int, end: int) -> Iterator[Field | None]:
    """The fields of the message `data[begin:end]` in order; None, as the last, if it is damaged."""
    while begin < end:
        if begin + 1 < end and (tag := data[begin]) < 0x80 and (value := data[begin + 1]) < 0x80 and tag > 7:
            # Most tags, lengths and numbers have one byte.
            wire, start = tag & 7, begin + 2
            if wire == DELIMITED and start + value <= end:
                begin = start + value
                yield Field(tag >> 3, wire, start, begin, value)
                continue
            if wire == VARINT:
                yield Field(tag >> 3, wire, begin + 1, start, value)
                begin = start
                continue
        tag, start = varint_at(data, begin, end)
        number, wire = tag >> 3, tag & 7
        value, after = 0, 0
        if wire == VARINT:
            value, after = varint_at(data, start, end)
        elif wire == DELIMITED:
            value, start = varint_at(data, start, end)
            after = start + value if start and value >= 0 else 0
        elif wire in FIXED_BYTES:
            after = start + FIXED_BYTES[wire]
        if not (0 < number <= LARGEST_FIELD and 0 < after <= end):
            yield None
            return
        yield Field(number, wire, start, after, value)
        begin = after


# Reading the messages of a file


class FramingError(Exception):
    """No message starts at `offset`, or the file ends within it."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that were read together: `data[begins[i]:ends[i]]`, without gaps but for lengths and marks."""

    offset: int
    """Where `data` starts in the file."""
    data: bytes
    begins: list[int]
    ends: list[int]

    @property
    def offsets(self) -> list[int]:
        """Where each message starts in the file, with its mark and its length."""
        return [self.offset, *(self.offset + end for end in self.ends[:-1])]


@dataclass(frozen=True, slots=True)
class Framing:
    """How messages follow one another: each after its length, which follows the mark."""

    noun: str
    """What a message is called in errors."""
    mark: bytes = b""
    """At most one byte."""

    def batches(self, read: Callable[[int], bytes], offset: int = 0) -> Iterator[Batch]:
        """Every message of a file from `offset` on, as many at a time as a chunk holds.

        The borders of batches depend only on `offset`. Raises FramingError after the last message if bytes follow it
        that are not a message.
        """
        rest = b""
        while data := self._read_on(read, rest):
            batch, error = self.split(offset, data)
            used = batch.ends[-1] if batch.ends else 0
            if used:
                yield batch
            if error:
                raise error
            if not used and len(data) == len(rest):
                raise FramingError(offset, f"the file ends within the {self.noun} at byte {offset:,}")
            offset, rest = offset + used, data[used:]

    def split(self, offset: int, data: bytes, most: int = sys.maxsize) -> tuple[Batch, FramingError | None]:
        """Up to `most` complete messages at the start of `data`, and what is wrong with the bytes after them."""
        batch = Batch(offset, data, [], [])
        begins, ends = batch.begins, batch.ends
        at, size, mark, lead = 0, len(data), self.mark[0] if self.mark else -1, len(self.mark)
        while at + lead < size and len(begins) < most:
            if lead and data[at] != mark:
                return batch, FramingError(offset + at, f"there is no {self.noun} at byte {offset + at:,}")
            length, begin = data[at + lead], at + lead + 1
            if length > 0x7F and begin < size and (second := data[begin]) <= 0x7F:
                length, begin = length & 0x7F | second << GROUP_BITS, begin + 1
            elif length > 0x7F:
                found = length_at(data, at + lead)
                if found is None:
                    break
                length, begin = found
                if length > LONGEST_MESSAGE:
                    text = (
                        f"the length of the {self.noun} at byte {offset + at:,} is invalid: more than 512 MiB"
                    )
                    return batch, FramingError(offset + at, text)
            if begin + length > size:
                break
            at = begin + length
            if lead and not length:
                begin = at = self._after_empty(data, at)
            begins.append(begin)
            ends.append(at)
        return batch, None

    def _after_empty(self, data: bytes, at: int) -> int:
        """Where the empty messages end that follow an empty one: together they are one, however many there are."""
        run = re.compile(b"(?:%s\\0)*" % re.escape(self.mark)).match(data, at)
        return run.end() if run else at

    def _read_on(self, read: Callable[[int], bytes], rest: bytes) -> bytes:
        """`rest` and the bytes that fill a chunk, or complete the message in it; `rest` at the end of the file."""
        wanted = max(CHUNK, len(rest) + 1)
        found = length_at(rest, len(self.mark)) if rest.startswith(self.mark) else None
        if found and found[0] <= LONGEST_MESSAGE:
            wanted = max(CHUNK, sum(found))
        parts, size = [rest], len(rest)
        while size < wanted and (part := read(min(wanted - size, CHUNK))):
            parts.append(part)
            size += len(part)
        return b"".join(parts)
