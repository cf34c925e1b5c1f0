"""Bytes that are looked at in many places at once: the words and the varints that begin there, as columns."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracelink.events import Bools, Int64s

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
        plain: Bools = ((edges & leading(lengths) & CONTINUES) == 0) & (between == 0) | (lengths == 0)
        return plain

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
        words: Words = low | high
        return words

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
