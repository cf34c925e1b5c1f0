"""Protobuf fields of many messages as columns, both ways; one message at a time: `tracelink._io.framing`.

Reading: `Octets` holds the bytes, `split` or `split_all` finds the fields of all messages in it.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._io.framing import (
    DELIMITED,
    FIXED_BYTES,
    GROUP_BITS,
    VARINT,
    VARINT_BYTES,
    fields_of,
)
from tracelink._model.columns import Bools, Int64s

Bytes = npt.NDArray[np.uint8]


def varints(values: Int64s) -> tuple[bytes, Int64s]:
    """The varints of all numbers (of 64 unsigned bits), one after the other, and the offset of each."""
    groups, widths = varint_groups(values)
    inside = np.arange(groups.shape[1]) < widths[:, None]
    return groups[inside].tobytes(), np.concatenate([[0], np.cumsum(widths)])


def varint_groups(values: Int64s) -> tuple[Bytes, Int64s]:
    """Each number as a row of the bytes of its varint, and the number of bytes that count."""
    numbers = values.view(np.uint64)
    widths = varint_widths(values)
    groups = np.empty((len(numbers), int(widths.max(initial=1))), np.uint8)
    for index, column in enumerate(groups.T):
        column[:] = numbers >> np.uint64(GROUP_BITS * index) & np.uint64(0x7F)
        column |= (widths > index + 1).view(np.uint8) << np.uint8(GROUP_BITS)
    return groups, widths


def varint_widths(values: Int64s) -> Int64s:
    """Number of bytes of the varint of each number."""
    numbers = values.view(np.uint64)
    widths = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for group in range(1, VARINT_BYTES):
        if largest < 1 << GROUP_BITS * group:
            break
        widths += numbers >= np.uint64(1 << GROUP_BITS * group)
    return widths


# Reading words and varints at many offsets at once


Words = npt.NDArray[np.uint64]

WORD = 8
PADDING = 3 * WORD
"""Zeros after the last byte, so that words can be read at every offset."""
CONTINUES = np.uint64(0x8080808080808080)
"""The bit of each byte of a varint that is followed by another; no ASCII character has it."""
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
"""Steps that move neighbouring groups of seven bits together until a word has no gaps."""


class Octets:
    """The bytes of many messages, read at many offsets at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._padded = np.zeros(len(data) // WORD * WORD + PADDING, np.uint8)
        self._padded[: len(data)] = np.frombuffer(data, np.uint8)
        self._words = self._padded.view("<u8")

    def ascii(self, begins: Int64s, ends: Int64s) -> Bools:
        """True for each range that has ASCII characters only."""
        lengths = ends - begins
        edges = self.words(begins) | self.words(np.maximum(ends - WORD, begins))
        aligned = begins + WORD - 1 >> 3
        between = self._beyond[np.maximum(ends >> 3, aligned)] - self._beyond[aligned]
        return ((edges & leading(lengths) & CONTINUES) == 0) & (between == 0) | (lengths == 0)

    @cached_property
    def _beyond(self) -> npt.NDArray[np.int32]:
        """For each word the number of words before it that have other characters than ASCII."""
        beyond = np.zeros(len(self._words) + 1, np.int32)
        np.cumsum((self._words & CONTINUES) != 0, out=beyond[1:])
        return beyond

    def at(self, offsets: Int64s) -> Int64s:
        """The byte at each offset."""
        return self._padded[offsets].astype(np.int64)

    def words(self, offsets: Int64s) -> Words:
        """The eight bytes at each offset as one number, the first byte lowest."""
        word = offsets >> 3
        shift = ((offsets & 7) << 3).view(np.uint64)
        low = self._words[word] >> shift
        high = (self._words[word + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        return low | high

    def varints(self, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """The varint at each offset and its width; the width is 0 if it is invalid or encoded unusually."""
        words = self.words(offsets)
        groups, widths = terminated(words)
        numbers = joined(groups).view(np.int64)
        long = np.flatnonzero(widths == WORD)
        if len(long):
            ninth, tenth = self.at(offsets[long] + WORD), self.at(offsets[long] + WORD + 1)
            ends = (words[long] & CONTINUES) != CONTINUES
            beyond = (ninth & 0x7F) << 56 | (ninth > 0x7F).astype(np.int64) << 63
            numbers[long] |= np.where(ends, 0, beyond)
            wider = np.where(ninth <= 0x7F, WORD + 1, np.where(tenth == 1, WORD + 2, 0))
            widths[long] = np.where(ends, WORD, wider)
        return numbers, widths


def leading(lengths: Int64s) -> Words:
    """A mask of the first bytes of a word: at least one, at most all."""
    rest = (np.maximum(WORD - lengths, 0) << 3).view(np.uint64)
    return FULL >> rest


def terminated(words: Words) -> tuple[Words, Int64s]:
    """The groups of the varint at the start of each word, and its width; eight also if it is longer."""
    inside = ~words & CONTINUES
    inside = (inside & (~inside + np.uint64(1))) - np.uint64(1)
    widths = ((inside & ONES) * ONES) >> np.uint64(56)
    return inside & words & GROUPS, widths.view(np.int64)


def joined(groups: Words) -> Words:
    """Groups of seven bits, one in each byte, as one number."""
    for low, high, gap in CLOSER:
        groups = (groups & low) | ((groups & high) >> gap)
    return groups


# Splitting many messages into fields, one field of all messages at a time


BYTE = np.uint64(8)
NOT_SHORT = 0x8087
"""These bits are equal to `DELIMITED` for a delimited field of up to 127 bytes with a tag of one byte."""
SEEN = 5
"""Varints of at most this width are within the word that starts with a tag of three bytes."""
LENGTH_BYTES = 4
"""Lengths of fields have at most this width, as messages are read at once."""
FEW = 8
"""So few messages are faster to read one by one."""
MANY = 256
"""A message with more fields is read on its own."""


class Read(NamedTuple):
    """One field of each of many messages."""

    number: Int64s
    wire: Int64s
    begin: Int64s
    """Where the value starts, after its length if it has one."""
    end: Int64s
    value: Int64s
    """The number that a varint is, or the length of a delimited field."""
    usual: Bools
    """True if it was read; if not, the message must be read on its own."""

    def where(self, chosen: Bools | Int64s) -> Read:
        """Some of the fields."""
        return Read._make(column[chosen] for column in self)


class Fields(Struct, frozen=True):
    """The fields of messages: the first field of each, then the second of each that has one, and so on."""

    owner: Int64s
    """The message of each field."""
    read: Read
    odd: Bools
    """Messages that were not read to their end; their fields are incomplete."""

    def of(self, number: int) -> tuple[Int64s, Read]:
        """The owners and the fields of one number, sorted by offset."""
        chosen = np.flatnonzero(self.read.number == number)
        chosen = chosen[np.argsort(self.read.begin[chosen], kind="stable")]
        return self.owner[chosen], self.read.where(chosen)


def split(octets: Octets, begins: Int64s, ends: Int64s) -> Fields:
    """The fields of the messages at these offsets."""
    odd = np.zeros(len(begins), bool)
    active = np.flatnonzero(ends > begins)
    offset, limit = begins[active], ends[active]
    owners, steps = [active[:0]], [read_fields(octets, offset[:0])]
    while len(active) > FEW and len(steps) <= MANY:
        read = read_fields(octets, offset)
        usual = read.usual & (read.end <= limit)
        if not usual.all():
            odd[active[~usual]] = True
            read, active, limit = read.where(usual), active[usual], limit[usual]
        owners.append(active)
        steps.append(read)
        going = read.end < limit
        active, offset, limit = active[going], read.end[going], limit[going]
    odd[active] = True
    return Fields(np.concatenate(owners), Read._make(map(np.concatenate, zip(*steps, strict=True))), odd)


def split_all(octets: Octets, begins: Int64s, ends: Int64s) -> Fields:
    """The same, with unusual messages read one by one: only damaged ones are odd, with the fields before the damage."""
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


def read_fields(octets: Octets, offset: Int64s) -> Read:
    """The field at each offset."""
    words = octets.words(offset)
    numbers = words.view(np.int64)
    number, begin, value = numbers >> 3 & 0xF, offset + 2, numbers >> 8 & 0x7F
    read = Read(number, np.full(len(offset), DELIMITED), begin, begin + value, value, number > 0)
    others = np.flatnonzero((numbers & NOT_SHORT) != DELIMITED)
    if len(others) == len(offset):
        return _read_any(octets, offset, words)
    if len(others):
        for column, values in zip(read, _read_any(octets, offset[others], words[others]), strict=True):
            column[others] = values
    return read


def _read_any(octets: Octets, offset: Int64s, words: Words) -> Read:
    """Fields of any kind, whose first bytes are `words`."""
    tag, width = _tags(words)
    behind = words >> (width.view(np.uint64) * BYTE)
    wire, number = tag & 7, tag >> 3
    groups, taken = terminated(behind)
    value = joined(groups).view(np.int64)
    begin = offset + width
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
    """The tag of up to three bytes at the start of each word, 0 if it is longer, and its width."""
    numbers = words.view(np.int64)
    first, width = numbers & 0xFF, np.ones(len(numbers), np.int64)
    if not (wide := first > 0x7F).any():
        return first, width
    second, third = numbers >> 8 & 0xFF, numbers >> 16 & 0xFF
    wider = wide & (second > 0x7F)
    tag = np.where(wide, first & 0x7F | (second & 0x7F) << 7, first)
    if not wider.any():
        return tag, width + wide
    tag = np.where(wider, np.where(third <= 0x7F, tag | third << 14, 0), tag)
    return tag, width + wide + wider
