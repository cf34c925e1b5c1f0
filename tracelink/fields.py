"""Many messages to their fields, a field of all messages at a time: protobuf knows one message at a time.

What is not as writers write it is told as odd, and nothing is said of it: protobuf has to judge it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tracelink.events import Bools, Int64s
from tracelink.octets import Octets, Words, joined, terminated
from tracelink.wire import GROUP_BITS, MOST_BYTES

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}
BYTE = np.uint64(8)
NOT_SHORT = 0x8087
"""Of a field of up to 127 bytes, whose tag is one byte, these bits are those of `DELIMITED`."""
SEEN = 5
"""So many bytes behind a tag of two bytes are surely seen, and end a varint."""
LENGTH_BYTES = 4
"""No field within a message that was read at once has a longer length."""
FEW = 8
"""So few messages are faster judged one by one."""
MANY = 256
"""Fields of a message after which it is none of the usual ones."""

LARGEST_NUMBER = (1 << 29) - 1
UNSIGNED = (1 << 64) - 1


class Read(NamedTuple):
    """A field of each of many messages."""

    number: Int64s
    wire: Int64s
    begin: Int64s
    """Where the value begins, behind its length if it has one."""
    end: Int64s
    value: Int64s
    """The number that a varint is."""
    usual: Bools
    """Whether it is understood."""

    def where(self, chosen: Bools | Int64s) -> Read:
        """Some of them."""
        return Read._make(column[chosen] for column in self)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of messages: the first of each, then the second of each that has one, and so on."""

    owner: Int64s
    read: Read
    odd: Bools
    """Which messages are not understood; what is said of their fields is not all."""

    def of(self, number: int) -> tuple[Int64s, Read]:
        """Those of a number, each message's in their order."""
        chosen = np.flatnonzero(self.read.number == number)
        chosen = chosen[np.argsort(self.read.begin[chosen], kind="stable")]
        return self.owner[chosen], self.read.where(chosen)


def split(octets: Octets, begins: Int64s, ends: Int64s) -> Fields:
    """The fields of the messages that lie at these places."""
    odd = np.zeros(len(begins), bool)
    active = np.flatnonzero(ends > begins)
    place, limit = begins[active], ends[active]
    owners, steps = [active[:0]], [read_fields(octets, place[:0])]
    while len(active) > FEW and len(steps) <= MANY:
        read = read_fields(octets, place)
        usual = read.usual & (read.end <= limit)
        if not usual.all():
            odd[active[~usual]] = True
            read, active, limit = read.where(usual), active[usual], limit[usual]
        owners.append(active)
        steps.append(read)
        going = read.end < limit
        active, place, limit = active[going], read.end[going], limit[going]
    odd[active] = True
    return Fields(np.concatenate(owners), Read._make(map(np.concatenate, zip(*steps, strict=True))), odd)


def split_all(octets: Octets, begins: Int64s, ends: Int64s) -> Fields:
    """The same where nobody else judges: odd are only damaged messages, and what is said of those stands before it."""
    fields = split(octets, begins, ends)
    if not fields.odd.any():
        return fields
    owners, found = [], []
    damaged = np.zeros(len(begins), bool)
    for row in np.flatnonzero(fields.odd).tolist():
        for field in walked(octets.data, int(begins[row]), int(ends[row])):
            if field is None:
                damaged[row] = True
            else:
                owners.append(row)
                found.append(field)
    usual = ~fields.odd[fields.owner]
    columns = zip(*found, strict=True) if found else [()] * (len(Read._fields) - 1)
    others = Read._make([*(np.array(column, np.int64) for column in columns), np.ones(len(found), bool)])
    read = Read._make(map(np.concatenate, zip(fields.read.where(usual), others, strict=True)))
    return Fields(np.concatenate([fields.owner[usual], np.array(owners, np.int64)]), read, damaged)


def walked(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int, int, int] | None]:
    """Number, wire type, begin, end and value of each field of a message; None where it is damaged."""
    while place < end:
        tag, begin = varint_within(data, place, end)
        number, wire = tag >> 3, tag & 7
        value, after = 0, 0
        if wire == VARINT:
            value, after = varint_within(data, begin, end)
        elif wire == DELIMITED:
            value, begin = varint_within(data, begin, end)
            after = begin + value if begin and value >= 0 else 0
        elif wire in FIXED:
            after = begin + FIXED[wire]
        if not (0 < number <= LARGEST_NUMBER and 0 < after <= end):
            yield None
            return
        yield number, wire, begin, after, value
        place = after


def varint_within(data: bytes, place: int, end: int) -> tuple[int, int]:
    """The number of 64 bits at a place and where it ends: 0 where there is none."""
    number = 0
    for width, byte in enumerate(data[place : min(place + MOST_BYTES, end)]):
        number |= (byte & 0x7F) << GROUP_BITS * width
        if byte < 0x80:
            return (number & UNSIGNED) - ((number >> 63 & 1) << 64), place + width + 1
    return 0, 0


def read_fields(octets: Octets, place: Int64s) -> Read:
    """The field that begins at each place."""
    words = octets.words(place)
    numbers = words.view(np.int64)
    number, begin, value = numbers >> 3 & 0xF, place + 2, numbers >> 8 & 0x7F
    read = Read(number, np.full(len(place), DELIMITED), begin, begin + value, value, number > 0)
    others = np.flatnonzero((numbers & NOT_SHORT) != DELIMITED)
    if len(others) == len(place):
        return _read_any(octets, place, words)
    if len(others):
        for column, told in zip(read, _read_any(octets, place[others], words[others]), strict=True):
            column[others] = told
    return read


def _read_any(octets: Octets, place: Int64s, words: Words) -> Read:
    """Fields of any sort, whose first bytes are `words`."""
    tag, width = _tags(words)
    behind = words >> (width.view(np.uint64) * BYTE)
    wire, number = tag & 7, tag >> 3
    groups, taken = terminated(behind)
    value = joined(groups).view(np.int64)
    begin = place + width
    end = begin + taken
    varint, delimited = wire == VARINT, wire == DELIMITED
    usual = (number > 0) & (varint | (delimited & (taken <= LENGTH_BYTES)))
    long = np.flatnonzero(varint & (taken > SEEN))
    if len(long):
        value[long], taken = octets.varints(begin[long])
        end[long] = begin[long] + taken
        usual[long] &= taken > 0
    begin = np.where(delimited, end, begin)
    end = np.where(delimited, end + value, end)
    if not usual.all():
        for kind, size in FIXED.items():
            fixed = (wire == kind) & (number > 0)
            end[fixed] = begin[fixed] + size
            usual |= fixed
    return Read(number, wire, begin, end, value, usual)


def _tags(words: Words) -> tuple[Int64s, Int64s]:
    """The tag of one byte or two that each word begins with, 0 where it is neither, and its width."""
    numbers = words.view(np.int64)
    first, width = numbers & 0xFF, np.ones(len(numbers), np.int64)
    if not (wide := first > 0x7F).any():
        return first, width
    second = numbers >> 8 & 0xFF
    usual = wide & (second <= 0x7F)
    return np.where(wide, np.where(usual, first & 0x7F | second << 7, 0), first), width + wide
