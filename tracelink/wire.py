"""The bytes of protobuf fields, of single values and of whole columns."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tracelink.events import Int64s

Bytes = npt.NDArray[np.uint8]

VARINT, FIXED64, DELIMITED = 0, 1, 2
"""Wire types."""
GROUP_BITS = 7
MOST_BYTES = 10
SHORT = 1 << 14


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


SHORT_LENGTHS = [varint(length) for length in range(SHORT)]


@cache
def key(number: int, wire_type: int) -> bytes:
    """What stands before a field."""
    return varint(number << 3 | wire_type)


def delimited(number: int, body: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    length = len(body)
    return key(number, DELIMITED) + (SHORT_LENGTHS[length] if length < SHORT else varint(length)) + body


def varints(values: Int64s) -> tuple[bytes, Int64s]:
    """Every number (of 64 unsigned bits) as a varint, one after the other, and where each begins."""
    groups, widths = varint_groups(values)
    inside = np.arange(groups.shape[1]) < widths[:, None]
    return groups[inside].tobytes(), np.concatenate([[0], np.cumsum(widths)])


def varint_groups(values: Int64s) -> tuple[Bytes, Int64s]:
    """Every number as a row of the bytes of a varint, and how many of them count."""
    numbers = values.view(np.uint64)
    widths = varint_widths(values)
    groups = np.empty((len(numbers), int(widths.max(initial=1))), np.uint8)
    for place, column in enumerate(groups.T):
        column[:] = numbers >> np.uint64(GROUP_BITS * place) & np.uint64(0x7F)
        column |= (widths > place + 1).view(np.uint8) << np.uint8(GROUP_BITS)
    return groups, widths


def varint_widths(values: Int64s) -> Int64s:
    """How many bytes each number takes."""
    numbers = values.view(np.uint64)
    widths = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for group in range(1, MOST_BYTES):
        if largest < 1 << GROUP_BITS * group:
            break
        widths += numbers >= np.uint64(1 << GROUP_BITS * group)
    return widths


def varint_at(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and where its bytes end."""
    number = shift = 0
    while data[place] > 0x7F:
        number |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + GROUP_BITS
    return number | data[place] << shift, place + 1
