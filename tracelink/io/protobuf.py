"""Protobuf fields of many messages as columns, both ways. One message: `tracelink.io.framing`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelink.io.framing import (
    DELIMITED,
    FIXED_BYTES,
    GROUP_BITS,
    VARINT,
    VARINT_BYTES,
    fields_of,
)
from tracelink.model.columns import Bools, Int64s

# The bytes of protobuf fields, of single values and of whole columns.


Bytes = npt.NDArray[np.uint8]


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
    for group in range(1, VARINT_BYTES):
        if largest < 1 << GROUP_BITS * group:
            break
        widths += numbers >= np.uint64(1 << GROUP_BITS * group)
    return widths


# Bytes that are looked at in many places at once: the words and the varints that begin there, as columns.


Words = npt.NDArray[np.uint64]

WORD = 8
PADDING = 3 * WORD
"""Behind the last byte, so that every place can be read like those before it."""
CONTINUES = np.uint64(0x8080808080808080)
"""The bit of each byte of a varint behind which more follow; no ASCII character has it."""
ONES = np.uint64(0x0101010101010101)
GROUPS = np.uint64(0x7F7F7F7F7F7F7F7F)
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)
CLOSER = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(gap))
    for low, high, gap in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Neighbours that move together, until the groups of seven bits of a word stand without gaps."""


class Octets:
    """The bytes of many messages."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._padded = np.zeros(len(data) // WORD * WORD + PADDING, np.uint8)
        self._padded[: len(data)] = np.frombuffer(data, np.uint8)
        self._words = self._padded.view("<u8")

    def ascii(self, begins: Int64s, ends: Int64s) -> Bools:
        """Which ranges are of ASCII characters only."""
        lengths = ends - begins
        edges = self.words(begins) | self.words(np.maximum(ends - WORD, begins))
        aligned = begins + WORD - 1 >> 3
        between = self._beyond[np.maximum(ends >> 3, aligned)] - self._beyond[aligned]
        return ((edges & leading(lengths) & CONTINUES) == 0) & (between == 0) | (lengths == 0)

    @cached_property
    def _beyond(self) -> npt.NDArray[np.int32]:
        """How many words before each are not of ASCII characters only."""
        beyond = np.zeros(len(self._words) + 1, np.int32)
        np.cumsum((self._words & CONTINUES) != 0, out=beyond[1:])
        return beyond

    def at(self, places: Int64s) -> Int64s:
        """Single bytes."""
        return self._padded[places].astype(np.int64)

    def words(self, places: Int64s) -> Words:
        """The eight bytes at each place as one number, the first byte lowest."""
        word = places >> 3
        shift = ((places & 7) << 3).view(np.uint64)
        low = self._words[word] >> shift
        high = (self._words[word + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        return low | high

    def varints(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """The number of 64 bits at each place and how many bytes it takes, 0 where it is in no usual form."""
        words = self.words(places)
        groups, widths = terminated(words)
        numbers = joined(groups).view(np.int64)
        long = np.flatnonzero(widths == WORD)
        if len(long):
            ninth, tenth = self.at(places[long] + WORD), self.at(places[long] + WORD + 1)
            ends = (words[long] & CONTINUES) != CONTINUES
            beyond = (ninth & 0x7F) << 56 | (ninth > 0x7F).astype(np.int64) << 63
            numbers[long] |= np.where(ends, 0, beyond)
            wider = np.where(ninth <= 0x7F, WORD + 1, np.where(tenth == 1, WORD + 2, 0))
            widths[long] = np.where(ends, WORD, wider)
        return numbers, widths


def leading(lengths: Int64s) -> Words:
    """The bits of a word's first bytes, at least one and all where it is filled."""
    rest = (np.maximum(WORD - lengths, 0) << 3).view(np.uint64)
    return FULL >> rest


def terminated(words: Words) -> tuple[Words, Int64s]:
    """The groups of the varint that each word begins with, and its bytes; eight also where it goes on behind them."""
    inside = ~words & CONTINUES
    inside = (inside & (~inside + np.uint64(1))) - np.uint64(1)
    widths = ((inside & ONES) * ONES) >> np.uint64(56)
    return inside & words & GROUPS, widths.view(np.int64)


def joined(groups: Words) -> Words:
    """Groups of seven bits, one in each byte, as one number."""
    for low, high, gap in CLOSER:
        groups = (groups & low) | ((groups & high) >> gap)
    return groups


# Many messages to their fields, a field of all messages at a time: protobuf knows one message at a time.


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
        for field in fields_of(octets.data, int(begins[row]), int(ends[row])):
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
        for kind, size in FIXED_BYTES.items():
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
