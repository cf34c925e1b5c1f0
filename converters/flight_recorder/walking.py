"""Passes over all entries of a dump that are spelt alike at once, span by span and number by number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.converters.flight_recorder.spelling import (
    FIRST,
    KEYS,
    LAST,
    MIDDLE,
    floats_among_numbers,
    opening_of_entries,
)
from tracelink.events import Bools, Int64s

ABSENT = -1
"""Stands for a number that is None; numbers in a dump are not negative."""

NONE, FLOAT, LONG = b"NG\x8a"
WHOLE = {ord("K"): ("u1", 1), ord("M"): ("<u2", 1), ord("J"): ("<i4", 1), LONG: ("<i8", 2)}
"""How the number after an opcode is written, and where."""

LONG_BYTES = 8
WIDTHS = np.zeros(256, np.int64)
WIDTHS[[NONE, FLOAT, *WHOLE]] = (1, 9, 2, 3, 5, 10)
"""Bytes of a number with its opcode."""

LONGEST_NUMBER = 10
LONGEST_SPAN = 1 << 11
WORD = 8
MOST_FORMS = 8
MOST_SIZES = 16
"""So many lengths of a span are looked at in all entries at once; what is left, in one entry after the other."""

BUCKET_BITS = 12
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd and without a pattern: the upper bits of a product depend on all bits."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Entries with the same keys in the same order, and numbers in the same places."""

    start: Int64s
    end: Int64s
    spans: Sequence[Int64s]
    """For each span a number that is the same for equal spans."""
    keys: Sequence[int]
    """How many keys each span has; all but the last end in the key of a number."""
    numbers: Sequence[Int64s | None]
    """None for floats."""


def entries_alike(data: bytes) -> list[Alike]:
    """Everything that looks like an entry without new texts, form by form."""
    text = data + bytes(2 * LONGEST_SPAN + WORD)
    starts = _starts(data, text)
    left = np.ones(len(starts), np.bool_)
    found: list[Alike] = []
    for row, start in enumerate(starts.tolist()):
        if left[row] and len(found) < MOST_FORMS and (floats := floats_among_numbers(data, start)):
            rows = row + left[row:].nonzero()[0]
            walk = _Walk(data, text, starts[rows])
            found.append(walk.along(floats))
            left[rows[walk.rows]] = False
    return [alike for alike in found if len(alike.start)]


def _starts(data: bytes, text: bytes) -> Int64s:
    """Where entries may begin."""
    opening = opening_of_entries(data)
    if opening is None:
        return np.empty(0, np.int64)
    starts = (np.frombuffer(data, np.uint8) == opening[0]).nonzero()[0]
    first = np.uint64(int.from_bytes(opening, "little"))
    read = _part(_read(text, WORD, starts), "<u8") & np.uint64((1 << 8 * len(opening)) - 1)
    found: Int64s = starts[read == first]
    return found


def _read(text: bytes, size: int, places: Int64s) -> Any:
    """So many bytes from each place; anything for a place behind the dump, where no entry ends."""
    windows = np.ndarray(len(text) - size + 1, f"V{size}", text, strides=(1,))
    return windows[np.minimum(places, len(windows) - 1)]


def _part(read: Any, kind: str, at: int = 0) -> Any:
    """What was read, as another kind of value that stands `at` bytes after the place."""
    return np.ndarray(len(read), kind, read, at, (read.itemsize,))


def _words(read: Any, size: int) -> list[Any]:
    """The first `size` bytes in words, for NumPy compares texts byte by byte."""
    words = [_part(read, "<u8", at) for at in range(0, size, WORD)]
    if size % WORD:
        words[-1] = words[-1] & np.uint64((1 << 8 * (size % WORD)) - 1)
    return words


def _first_alike(words: Sequence[Any]) -> Int64s:
    """For each row one of the first that have the same words; ABSENT for rows of which another took the place."""
    mixed = words[0] * MULTIPLIER
    for word in words[1:]:
        mixed = (mixed ^ word) * MULTIPLIER
    bucket = (mixed >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    place = np.empty(1 << BUCKET_BITS, np.int64)
    place[bucket[::-1]] = np.arange(len(bucket) - 1, -1, -1)
    first = place[bucket]
    alike = np.ones(len(first), np.bool_)
    for word in words:
        alike &= word == word[first]
    return np.where(alike, first, ABSENT)


class _Walk:
    """A place in each of many entries, which all move on together; those that do not fit are left behind."""

    def __init__(self, data: bytes, text: bytes, starts: Int64s) -> None:
        self.data, self.text, self.starts = data, text, starts
        self.rows, self.at = np.arange(len(starts)), starts.copy()
        self.spans: list[Int64s] = []
        self.keys: list[int] = []
        self.numbers: list[Int64s | None] = []

    def along(self, floats: Sequence[bool]) -> Alike:
        """The entries with these numbers."""
        self.span(FIRST)
        for is_float in floats[:-1]:
            self.number(is_float)
            self.span(MIDDLE)
        self.number(floats[-1])
        self.span(LAST)
        self.keep(self.at <= len(self.data))
        return Alike(self.starts[self.rows], self.at, self.spans, self.keys, self.numbers)

    def keep(self, fitting: Bools) -> None:
        """Leaves all other entries behind."""
        if not fitting.all():
            self.rows, self.at = self.rows[fitting], self.at[fitting]
            self.spans = [span[fitting] for span in self.spans]
            self.numbers = [None if values is None else values[fitting] for values in self.numbers]

    def span(self, form: re.Pattern[bytes]) -> None:
        """Passes over a span in all entries, and numbers them so that equal spans have the same number."""
        numbers, pieces = np.full(len(self.at), ABSENT, np.int64), _Pieces(form, self.data)
        rows, size_count = np.arange(len(self.at)), 0
        while len(rows) and size_count < MOST_SIZES:
            number = pieces.number_at(int(self.at[rows[0]]))
            if number == ABSENT:
                rows = rows[1:]
                continue
            numbers[rows] = found = self._alike(rows, pieces, pieces.sizes[number])
            rows, size_count = rows[found == ABSENT], size_count + 1
        numbers[rows] = [pieces.number_at(place) for place in self.at[rows].tolist()]
        self.spans.append(numbers)
        self.keys.append(len(pieces.keys))
        self.at = self.at + np.array([*pieces.sizes, 0])[numbers]
        self.keep(np.array([*pieces.fit, False])[numbers])

    def _alike(self, rows: Int64s, pieces: _Pieces, size: int) -> Int64s:
        """The numbers of spans that are as long as the first, or shorter; of others only where it is easy."""
        places = self.at[rows]
        words = _words(_read(self.text, -(-size // WORD) * WORD, places), size)
        if all((word == word[0]).all() for word in words):
            return np.full(len(rows), pieces.number_at(int(places[0])), np.int64)
        first = _first_alike(words)
        known = np.full(len(rows) + 1, ABSENT, np.int64)
        common = np.bincount(first + 1, minlength=1)[1:] > 1
        common[:1] = True
        for row in common.nonzero()[0].tolist():
            number = pieces.number_at(int(places[row]))
            if number != ABSENT and pieces.sizes[number] <= size:
                known[row] = number
        return known[first]

    def number(self, is_float: bool) -> None:
        """Passes over a number in all entries."""
        read = _read(self.text, LONGEST_NUMBER, self.at)
        opcode = _part(read, "u1")
        if is_float:
            self.at = self.at + WIDTHS[FLOAT]
            self.numbers.append(None)
            self.keep(opcode == FLOAT)
            return
        values, codes = np.full(len(self.at), ABSENT, np.int64), opcode.tobytes()
        for code, (kind, before) in WHOLE.items():
            if code in codes:
                np.copyto(values, _part(read, kind, before), where=opcode == code)
        if LONG in codes:
            values[(opcode == LONG) & (_part(read, "u1", 1) != LONG_BYTES)] = ABSENT
        self.at = self.at + WIDTHS[opcode]
        self.numbers.append(values)
        self.keep((values >= 0) | (opcode == NONE))


class _Pieces:
    """Different spans, each with a number."""

    def __init__(self, form: re.Pattern[bytes], data: bytes) -> None:
        self.form, self.data = form, data
        self.sizes: list[int] = []
        self.fit: list[bool] = []
        """Which of them have the keys of the first."""
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number_at(self, place: int) -> int:
        """The number of the span at a place; ABSENT where there is none."""
        found = self.form.match(self.data, place)
        if not found or len(found[0]) > LONGEST_SPAN:
            return ABSENT
        if (known := self._numbers.get(found[0])) is not None:
            return known
        keys = KEYS.findall(found[0])
        self.keys = self.keys or keys
        self.fit.append(keys == self.keys)
        self.sizes.append(len(found[0]))
        return self._numbers.setdefault(found[0], len(self._numbers))
