"""What crossings say of clocks; grouping by clock and meeting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from tracelink.model.columns import NO_TIME, Bools, Columns, Float64s, Int32s, Int64s

# Rows that share a number: medians and extremes of all numbers at once.


class Segments:
    """Rows by the number (0 to `count` - 1) that each carries."""

    def __init__(self, number: Int64s, count: int) -> None:
        self.number = number
        self.sizes = np.bincount(number, minlength=count)
        self._order = np.argsort(number, kind="stable").astype(np.int32)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def median(self, values: Float64s) -> Float64s:
        """For each number the median of its rows; NaN where it has none."""
        result = np.full(len(self.sizes), np.nan)
        padded = np.append(values, np.inf)
        for segments, rows in self._blocks:
            block = np.sort(padded[rows], axis=1)
            line, size = np.arange(len(segments)), self.sizes[segments]
            result[segments] = (block[line, (size - 1) // 2] + block[line, size // 2]) / 2
        return result

    def largest(self, values: Float64s) -> Float64s:
        """For each number the largest of its rows; -inf where it has none."""
        return self._reduced(np.maximum, values, -np.inf)

    def smallest(self, values: Float64s) -> Float64s:
        """For each number the smallest of its rows; inf where it has none."""
        return self._reduced(np.minimum, values, np.inf)

    def _reduced(self, function: Any, values: Float64s, nothing: float) -> Float64s:
        result = np.full(len(self.sizes), nothing)
        filled = self.sizes > 0
        if filled.any():
            result[filled] = function.reduceat(values[self._order], self._starts[filled])
        return result

    @cached_property
    def _blocks(self) -> list[tuple[Int64s, Int32s]]:
        """Segments of about one size, and their rows side by side; one row too many stands for nothing."""
        order = np.append(self._order, np.int32(len(self._order)))
        blocks = []
        widths = 1 << np.ceil(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)
        for width in np.unique(widths[self.sizes > 0]):
            segments = np.flatnonzero((widths == width) & (self.sizes > 0))
            column = np.arange(width)
            places = self._starts[segments, None] + column
            blocks.append(
                (segments, order[np.where(column < self.sizes[segments, None], places, len(self._order))])
            )
        return blocks


def linked(meeting: Int64s, clock: Int64s, meetings: int, clocks: int) -> Int64s:
    """For each clock the lowest clock that it is linked with through meetings."""
    label = np.arange(clocks)
    while True:
        lowest = np.full(meetings, clocks)
        np.minimum.at(lowest, meeting, label[clock])
        nearer = label.copy()
        np.minimum.at(nearer, clock, lowest[meeting])
        if np.array_equal(nearer, label):
            return label
        label = nearer


# Clocks passing through meetings: what ranks' crossings say once ranks that share a clock are one.


MAX_DRIFT = 200e-6
"""No clock of a computer goes faster or slower than another by more."""


@dataclass(frozen=True, slots=True)
class Lines:
    """For each clock, how its own times become times of the reference clock: (time - offset)(1 - drift)."""

    offset: Float64s
    drift: Float64s

    def at(self, clock: Int64s, time: Float64s) -> Float64s:
        """Times of the reference clock."""
        result: Float64s = (time - self.offset[clock]) * (1 - self.drift[clock])
        return result

    def then(self, shift: Float64s, drift: Float64s) -> Lines:
        """These lines, and what they give once more corrected: by time * (1 - drift) - shift."""
        rate = (1 - self.drift) * (1 - drift)
        return Lines(self.offset + shift / rate, 1 - rate)


@dataclass(frozen=True, slots=True)
class Passages(Columns):
    """One row for each clock in each meeting, ordered by meeting and clock; times since the clock's own first."""

    meeting: Int64s
    clock: Int64s
    entered: Float64s
    """When the last of its ranks that are awaited entered; -inf where nobody waits for it."""
    left: Float64s
    """When the first of its ranks that wait left; inf where it does not wait."""
    end: Float64s
    """When it left, where leaving compares clocks; else NaN."""

    def __len__(self) -> int:
        return len(self.meeting)

    @classmethod
    def none(cls) -> Passages:
        """No meeting at all."""
        numbers, times = np.empty(0, np.int64), np.empty(0)
        return cls(numbers, numbers, times, times, times)

    @property
    def meetings(self) -> int:
        """How many meetings there can be."""
        return int(self.meeting[-1]) + 1 if len(self) else 0

    def where(self, chosen: Bools) -> Passages:
        """The chosen rows."""
        return Passages(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def by(self, lines: Lines) -> Passages:
        """The same with all times on the reference clock."""
        times = (lines.at(self.clock, time) for time in (self.entered, self.left, self.end))
        return Passages(self.meeting, self.clock, *times)


@dataclass(frozen=True, slots=True)
class Meetings:
    """What crossings say of clocks."""

    passages: Passages
    first: Int64s
    """For each clock its earliest time, in ns since 1970: passages count from there; where it has none, that of all."""
    constraints: Int64s
    """For each clock the pairs of a rank that waits and one that is awaited, one of them by this clock."""


def meetings_of(
    meeting: Int64s, clock: Int64s, entered: Int64s, left: Int64s, together: Bools, clocks: int
) -> Meetings:
    """Crossings put together by clock; `entered` and `left` are NO_TIME where nobody awaits or it does not wait."""
    first = _first(clock, entered, left, clocks)
    order = np.lexsort((clock, meeting))
    meeting, clock = meeting[order], clock[order]
    began = first[clock]
    entered, left = entered[order], left[order]
    enters = np.where(entered == NO_TIME, -np.inf, entered - began)
    leaves = np.where(left == NO_TIME, np.inf, left - began)
    new_meeting = np.append(True, meeting[1:] != meeting[:-1])[: len(meeting)]
    new = new_meeting | np.append(True, clock[1:] != clock[:-1])[: len(meeting)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return Meetings(Passages.none(), first, np.zeros(clocks, np.int64))
    ended = together[order] & np.isfinite(leaves)
    passages = Passages(
        (np.cumsum(new_meeting) - 1)[starts],
        clock[starts].astype(np.int64),
        np.maximum.reduceat(enters, starts),
        np.minimum.reduceat(leaves, starts),
        Segments((np.cumsum(new) - 1)[ended], len(starts)).median(leaves[ended]),
    )
    waits, awaited = (
        np.add.reduceat(np.isfinite(times), starts, dtype=np.int64) for times in (leaves, enters)
    )
    counts = _constraints(passages, waits, awaited, clocks)
    timed = np.isfinite(passages.entered) | np.isfinite(passages.left)
    several = np.bincount(passages.meeting[timed], minlength=passages.meetings) > 1
    return Meetings(passages.where(timed & several[passages.meeting]), first, counts)


def _first(clock: Int64s, entered: Int64s, left: Int64s, clocks: int) -> Int64s:
    """The earliest time of each clock; where it has none, that of all."""
    never = np.iinfo(np.int64).max
    first = np.full(clocks, never)
    for times in (entered, left):
        known = times != NO_TIME
        np.minimum.at(first, clock[known], times[known])
    earliest = int(first.min(initial=never))
    return np.where(first == never, 0 if earliest == never else earliest, first)


def _constraints(passages: Passages, waits: Int64s, awaited: Int64s, clocks: int) -> Int64s:
    """For each clock the pairs that it makes with others."""
    all_wait = np.bincount(passages.meeting, waits).astype(np.int64)[passages.meeting]
    all_awaited = np.bincount(passages.meeting, awaited).astype(np.int64)[passages.meeting]
    pairs = waits * (all_awaited - awaited) + awaited * (all_wait - waits)
    return np.bincount(passages.clock, pairs, minlength=clocks).astype(np.int64)


# Which ranks share a clock: those of one host, unless what they did together says otherwise.


TOLERANCE_NS = 100_000
"""Times of one clock that were brought to it from elsewhere (a GPU's) can be off by tens of microseconds."""

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Difference:
    """Two ranks of one host that cannot have the same clock: one left before the other had entered."""

    one: int
    other: int
    early_ns: int


@dataclass(frozen=True, slots=True)
class Shared:
    """For each rank the number of its clock; clocks are numbered by their lowest ranks."""

    clock: Int64s
    differences: list[Difference]


def share_clocks(
    meeting: Int64s, rank: Int64s, entered: Int64s, left: Int64s, hosts: Sequence[str]
) -> Shared:
    """The clocks of ranks with these hosts; one without a host has its own."""
    host = _hosts(hosts)
    differences = _differences(meeting, rank, entered, left, host)
    split = np.isin(host, host[[difference.one for difference in differences]])
    # a rank on its own is numbered after itself, a host after its lowest rank
    owner = np.where(split, np.arange(len(host)), host)
    return Shared(np.unique(owner, return_inverse=True)[1], differences)


def _hosts(hosts: Sequence[str]) -> Int64s:
    """For each rank the lowest rank of its host."""
    lowest: dict[str, int] = {}
    return np.array(
        [lowest.setdefault(name, rank) if name else rank for rank, name in enumerate(hosts)], np.int64
    )


def _differences(
    meeting: Int64s, rank: Int64s, entered: Int64s, left: Int64s, host: Int64s
) -> list[Difference]:
    """For each host whose ranks contradict each other the worst pair."""
    order = np.lexsort((host[rank], meeting))
    where, whose = meeting[order], host[rank[order]]
    new = np.append(True, (where[1:] != where[:-1]) | (whose[1:] != whose[:-1]))[: len(order)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return []
    waits = np.where(left[order] == NO_TIME, _NEVER, left[order])
    first, last = np.minimum.reduceat(waits, starts), np.maximum.reduceat(entered[order], starts)
    known = (first != _NEVER) & (last != NO_TIME)
    early = np.where(known, last, 0) - np.where(known, first, 0)
    bad = np.flatnonzero(early > TOLERANCE_NS)
    bad = bad[np.lexsort((-early[bad], whose[starts[bad]]))]
    bad = bad[np.unique(whose[starts[bad]], return_index=True)[1]]
    stops = np.append(starts[1:], len(order))
    return [_worst(order[starts[number] : stops[number]], rank, entered, left) for number in bad.tolist()]


def _worst(rows: Int64s, rank: Int64s, entered: Int64s, left: Int64s) -> Difference:
    """The first to leave and the last to enter of these rows."""
    one = rows[np.where(left[rows] == NO_TIME, _NEVER, left[rows]).argmin()]
    other = rows[entered[rows].argmax()]
    return Difference(int(rank[one]), int(rank[other]), int(entered[other] - left[one]))


# Who entered last and who left first: where a meeting is closest to being violated.


@dataclass(frozen=True, slots=True)
class Extremes:
    """For each meeting the rows of who entered last and of who left first, and of those next to them; or -1."""

    last: Int64s
    last_but_one: Int64s
    first: Int64s
    next_to_first: Int64s

    @classmethod
    def of(cls, times: Passages) -> Extremes:
        """Times are on one clock."""
        by_meeting = Segments(times.meeting, times.meetings)
        last, last_but_one = _two_largest(by_meeting, times.entered)
        first, next_to_first = _two_largest(by_meeting, -times.left)
        return cls(last, last_but_one, first, next_to_first)


def _two_largest(by_meeting: Segments, values: Float64s) -> tuple[Int64s, Int64s]:
    largest = _row_of_largest(by_meeting, values)
    rest = values.copy()
    rest[largest[largest >= 0]] = -np.inf
    return largest, _row_of_largest(by_meeting, rest)


def _row_of_largest(by_meeting: Segments, values: Float64s) -> Int64s:
    rows = np.flatnonzero(np.isfinite(values) & (values == by_meeting.largest(values)[by_meeting.number]))
    result = np.full(len(by_meeting.sizes), -1)
    result[by_meeting.number[rows[::-1]]] = rows[::-1]
    return result


@dataclass(frozen=True, slots=True)
class Worst:
    """For each meeting the rows of who left first and who entered last, of different clocks, and by how much."""

    waits: Int64s
    awaited: Int64s
    early: Float64s
    """By how much it left before the other entered; not above 0 where all is well."""

    @classmethod
    def of(cls, times: Passages, extremes: Extremes) -> Worst:
        """Where one clock is both first and last, the worse of the two pairs next to it."""
        one = early(times, extremes.first, extremes.last_but_one)
        other = early(times, extremes.next_to_first, extremes.last)
        same = extremes.first == extremes.last
        waits = np.where(same & (other > one), extremes.next_to_first, extremes.first)
        awaited = np.where(same & (other <= one), extremes.last_but_one, extremes.last)
        return cls(waits, awaited, early(times, waits, awaited))


def early(times: Passages, waits: Int64s, awaited: Int64s) -> Float64s:
    """By how much each left before the other of the pair entered; -inf where there is none (-1)."""
    left = np.where(waits >= 0, times.left[waits], np.inf)
    result: Float64s = np.where(awaited >= 0, times.entered[awaited], -np.inf) - left
    return result
