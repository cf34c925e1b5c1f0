"""Puts marks into a dump in place of entries that repeat others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from tracelink.converters.flight_recorder.walking import Alike
from tracelink.events import Bools, Int64s

MARK = b"\x8a\x08"
NUMBER_BYTES = TOKEN_BYTES = 4
FIRST_TOKEN = 0x6B72616D
"""A mark is a whole number: its own, and above that a token that stands nowhere in what is kept of the dump."""


@dataclass(frozen=True, slots=True)
class Form:
    """Entries of one form, and for each of their spans the first row that has it."""

    alike: Alike
    first: Sequence[Int64s]

    @classmethod
    def of(cls, alike: Alike) -> Form:
        """The form of these entries."""
        return cls(alike, [_first_of_equal(span) for span in alike.spans])

    @property
    def telling(self) -> Bools:
        """Which entries have a span that none had before."""
        telling = np.zeros(len(self.alike.start), np.bool_)
        for first in self.first:
            telling[first] = True
        return telling


def _first_of_equal(numbers: Int64s) -> Int64s:
    if not numbers.any():
        return numbers
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first[numbers]


@dataclass(frozen=True, slots=True)
class Marks:
    """The entries of all forms in the order of the dump, and those among them that have a mark."""

    order: Int64s
    """Their rows in the forms, counted from one form to the next."""
    start: Int64s
    end: Int64s
    telling: Bools
    head: Int64s
    """Rows with a mark: each that tells, and the first of each run of others."""

    @classmethod
    def of(cls, forms: Sequence[Form]) -> Marks:
        """One mark before each entry that tells, and one in place of each run of others."""
        starts = np.concatenate([form.alike.start for form in forms])
        order = np.argsort(starts)
        start, end = starts[order], np.concatenate([form.alike.end for form in forms])[order]
        telling = np.concatenate([form.telling for form in forms])[order]
        continues = np.zeros(len(start), np.bool_)
        continues[1:] = ~telling[1:] & ~telling[:-1] & (start[1:] == end[:-1])
        return cls(order, start, end, telling, np.flatnonzero(~continues))

    @property
    def overlap(self) -> bool:
        """Whether entries stand in each other, so that not all of them are entries."""
        return bool((self.start[1:] < self.end[:-1]).any())

    @property
    def lengths(self) -> Int64s:
        """How many rows there are from each mark to the next."""
        return np.diff(self.head, append=len(self.start))

    @property
    def omitted(self) -> Int64s:
        """How many entries each mark stands for; a mark before an entry that tells, for none."""
        return np.where(self.telling[self.head], 0, self.lengths)

    def abridgement(self, data: bytes) -> tuple[bytes, int]:
        """The dump with the marks, and without the entries that they stand for; and what the first mark is."""
        starts = self.start[self.head]
        ends = np.where(self.omitted > 0, self.end[self.head + self.lengths - 1], starts)
        kept = [
            data[end:start] for end, start in zip([0, *ends.tolist()], [*starts.tolist(), None], strict=True)
        ]
        token = _token_unlike(b"".join(kept))
        text = b"".join(
            part + MARK + number.to_bytes(NUMBER_BYTES, "little") + token
            for number, part in enumerate(kept[:-1])
        )
        return text + kept[-1], int.from_bytes(token, "little") << 8 * NUMBER_BYTES


def _token_unlike(data: bytes) -> bytes:
    tokens = (token.to_bytes(TOKEN_BYTES, "little") for token in count(FIRST_TOKEN))
    return next(token for token in tokens if token not in data)
