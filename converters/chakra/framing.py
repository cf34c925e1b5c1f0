"""Messages one after the other, each behind its length; nothing else tells where one ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

LENGTH_BYTES = 5
"""Readers take lengths of 32 bits."""
MOST = 512 << 20
"""A longer message is none: a small compressed file must not be able to ask for all memory."""
CHUNK = 1 << 20


class FramingError(Exception):
    """The bytes are no further message."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, and where its length begins."""

    offset: int
    body: bytes


def frames(stream: BinaryIO) -> Iterator[Frame]:
    """Every message; a `FramingError` where the bytes end within one or are none.

    A length says how much memory is asked for, so a body is read in chunks: no file can ask for more than it has.
    """
    offset = 0
    while (found := _length(stream, offset)) is not None:
        length, width = found
        body = _body(stream, length)
        if len(body) < length:
            at = offset + width + len(body)
            raise FramingError(
                offset,
                f"the message at byte {offset:,} says {length:,} bytes, and the file ends after {len(body):,} of them"
                f" (byte {at:,})",
            )
        yield Frame(offset, body)
        offset += width + length


def framed(body: bytes) -> bytes:
    """A message behind its length."""
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _length(stream: BinaryIO, offset: int) -> tuple[int, int] | None:
    """The next length and how many bytes it took; None at the end of the file."""
    number = 0
    for place in range(LENGTH_BYTES):
        byte = stream.read(1)
        if not byte:
            if not place:
                return None
            raise FramingError(offset, f"the file ends within a length at byte {offset:,}")
        number |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            if number > MOST:
                raise FramingError(
                    offset, f"the length at byte {offset:,} is {number:,}: no message is as long"
                )
            return number, place + 1
    raise FramingError(offset, f"the length at byte {offset:,} is longer than {LENGTH_BYTES} bytes")


def _body(stream: BinaryIO, length: int) -> bytes:
    parts = []
    while length and (part := stream.read(min(length, CHUNK))):
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
