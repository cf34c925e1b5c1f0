"""Crossings as observations of clocks: grouped by clock and meeting, and where two clocks violate causality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._model.columns import NO_TIME, Bools, Float64s, Int32s, Int64s, Table

# Rows with equal numbers: medians and extremes of all numbers at once.


class Segments:
    """Rows grouped by a number from 0 to `count` - 1."""

    def __init__(self, number: Int64s, count: int) -> None:
        self.number = number
        self.sizes = np.bincount(number, minlength=count)
        self._order = np.argsort(number, kind="stable").astype(np.int32)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def median(self, values: Float64s) -> Float64s:
        """For each number the median of its rows; NaN if it has none."""
        result = np.full(len(self.sizes), np.nan)
        padded = np.append(values, np.inf)
        for segments, rows in self._blocks:
            block = np.sort(padded[rows], axis=1)
            line, size = np.arange(len(segments)), self.sizes[segments]
            result[segments] = (block[line, (size - 1) // 2] + block[line, size // 2]) / 2
        return result

    def largest(self, values: Float64s) -> Float64s:
        """For each number the largest of its rows; -inf if it has none."""
        return self._reduced(np.maximum, values, -np.inf)

    def smallest(self, values: Float64s) -> Float64s:
        """For each number the smallest of its rows; inf if it has none."""
        return self._reduced(np.minimum, values, np.inf)

    def _reduced(self, function: Any, values: Float64s, empty: float) -> Float64s:
        result = np.full(len(self.sizes), empty)
        filled = self.sizes > 0
        if filled.any():
            result[filled] = function.reduceat(values[self._order], self._starts[filled])
        return result

    @cached_property
    def _blocks(self) -> list[tuple[Int64s, Int32s]]:
        """Segments of similar size, and their rows side by side; the row after the last one is padding."""
        order = np.append(self._order, np.int32(len(self._order)))
        blocks = []
        widths = 1 << np.ceil(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)
        for width in np.unique(widths[self.sizes > 0]):
            segments = np.flatnonzero((widths == width) & (self.sizes > 0))
            column = np.arange(width)
            positions = self._starts[segments, None] + column
            blocks.append(
                (segments, order[np.where(column < self.sizes[segments, None], positions, len(self._order))])
            )
        return blocks


def linked(meeting: Int64s, clock: Int64s, meetings: int, clocks: int) -> Int64s:
    """For each clock the lowest clock that it is connected with through meetings."""
    label = np.arange(clocks)
    while True:
        lowest = np.full(meetings, clocks)
        np.minimum.at(lowest, meeting, label[clock])
        nearer = label.copy()
        np.minimum.at(nearer, clock, lowest[meeting])
        if np.array_equal(nearer, label):
            return label
        label = nearer


# Observations: the crossings of all ranks of one clock, merged.


MAX_DRIFT = 200e-6
"""The largest plausible drift between two clocks of computers."""


class ClockLines(Struct, frozen=True):
    """For each clock the conversion of its times to the reference clock: (time - offset)(1 - drift)."""

    offset: Float64s
    drift: Float64s

    def at(self, clock: Int64s, time: Float64s) -> Float64s:
        """Times on the reference clock."""
        result: Float64s = (time - self.offset[clock]) * (1 - self.drift[clock])
        return result

    def then(self, shift: Float64s, drift: Float64s) -> ClockLines:
        """These lines, corrected once more: time * (1 - drift) - shift."""
        rate = (1 - self.drift) * (1 - drift)
        return ClockLines(self.offset + shift / rate, 1 - rate)


class Observations(Table, frozen=True):
    """One row for each clock in each meeting, by meeting and clock; times since the clock's first time."""

    meeting: Int64s
    clock: Int64s
    entered: Float64s
    """The time when the last of its awaited ranks entered; -inf if none is awaited."""
    left: Float64s
    """The time when the first of its waiting ranks left; inf if none waits."""
    end: Float64s
    """The time when it left, if exits of the meeting compare clocks; else NaN."""

    @property
    def meetings(self) -> int:
        """The number of meetings, some of which may have no row."""
        return int(self.meeting[-1]) + 1 if len(self) else 0

    def where(self, chosen: Bools) -> Observations:
        """The chosen rows; not copied if all are."""
        return self if chosen.all() else self.take(chosen)

    def by(self, lines: ClockLines) -> Observations:
        """The observations with all times on the reference clock."""
        times = (lines.at(self.clock, time) for time in (self.entered, self.left, self.end))
        return Observations(self.meeting, self.clock, *times)


class Crossed(Struct, frozen=True):
    """Crossings of some meetings, as far as they are observations of clocks."""

    meeting: Int64s
    rank: Int64s
    """Indexes of ranks."""
    entered: Int64s
    """NO_TIME if the rank is not awaited."""
    left: Int64s
    """NO_TIME if the rank does not wait."""
    together: Bools


class SomeObservations(Struct, frozen=True):
    """The observations of some meetings, which are numbered from 0."""

    observations: Observations
    meetings: int
    """Those without an observation, too."""
    constraints: Int64s
    """For each clock the number of pairs of a waiting and an awaited rank, one of them on this clock."""


def observe(crossed: Crossed, clocks: SharedClocks) -> SomeObservations:
    """Crossings merged by clock."""
    meeting, clock = crossed.meeting, clocks.clock[crossed.rank]
    order = np.lexsort((clock, meeting))
    meeting, clock = meeting[order], clock[order]
    zero = clocks.first[clock]
    entered, left = crossed.entered[order], crossed.left[order]
    enters = np.where(entered == NO_TIME, -np.inf, entered - zero)
    leaves = np.where(left == NO_TIME, np.inf, left - zero)
    new_meeting = np.append(True, meeting[1:] != meeting[:-1])[: len(meeting)]
    new = new_meeting | np.append(True, clock[1:] != clock[:-1])[: len(meeting)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return SomeObservations(Observations.empty(), 0, np.zeros(len(clocks.first), np.int64))
    has_end = crossed.together[order] & np.isfinite(leaves)
    observations = Observations(
        (np.cumsum(new_meeting) - 1)[starts],
        clock[starts].astype(np.int64),
        np.maximum.reduceat(enters, starts),
        np.minimum.reduceat(leaves, starts),
        Segments((np.cumsum(new) - 1)[has_end], len(starts)).median(leaves[has_end]),
    )
    waits, awaited = (
        np.add.reduceat(np.isfinite(times), starts, dtype=np.int64) for times in (leaves, enters)
    )
    counts = _constraints(observations, waits, awaited, len(clocks.first))
    has_time = np.isfinite(observations.entered) | np.isfinite(observations.left)
    several = np.bincount(observations.meeting[has_time], minlength=observations.meetings) > 1
    used = has_time & several[observations.meeting]
    return SomeObservations(observations.where(used), observations.meetings, counts)


def _constraints(observations: Observations, waits: Int64s, awaited: Int64s, clocks: int) -> Int64s:
    """For each clock the number of pairs with other clocks."""
    all_wait = np.bincount(observations.meeting, waits).astype(np.int64)[observations.meeting]
    all_awaited = np.bincount(observations.meeting, awaited).astype(np.int64)[observations.meeting]
    pairs = waits * (all_awaited - awaited) + awaited * (all_wait - waits)
    return np.bincount(observations.clock, pairs, minlength=clocks).astype(np.int64)


class ClockObservations(Struct, frozen=True):
    """The observations of all clocks."""

    observations: Observations
    first: Int64s
    """For each clock its earliest time in ns since 1970, the zero of its observations; without times that of all."""
    constraints: Int64s
    """For each clock the number of pairs of a waiting and an awaited rank, one of them on this clock."""

    @classmethod
    def of(cls, parts: Iterable[SomeObservations], count: int, clocks: SharedClocks) -> ClockObservations:
        """All parts, one after the other, with `count` observations together; one part is in memory at a time."""
        whole = Observations(*np.empty((2, count), np.int64), *np.empty((3, count)))
        constraints = np.zeros(len(clocks.first), np.int64)
        row, meeting = 0, 0
        for part in parts:
            rows = slice(row, row + len(part.observations))
            for name in Observations.__struct_fields__:
                getattr(whole, name)[rows] = getattr(part.observations, name)
            whole.meeting[rows] += meeting
            row, meeting = rows.stop, meeting + part.meetings
            constraints += part.constraints
        return cls(whole, clocks.first, constraints)


# Ranks that share a clock: those of one host, unless their meetings contradict it.


TOLERANCE_NS = 100_000
"""Times that were converted to a host's clock (those of a GPU) can be off by tens of microseconds."""

_LATEST = int(np.iinfo(np.int64).max)


class Difference(Struct, frozen=True):
    """Two ranks of one host that cannot share a clock: the first left before the second had entered."""

    first: int
    second: int
    violation_ns: int


class Glance(Struct, frozen=True):
    """All that some meetings tell of ranks before any clock is known."""

    rank: Int64s
    first: Int64s
    """The earliest time of each of these ranks."""
    differences: Sequence[Difference]
    """The worst of each host."""


def glance_at(crossed: Crossed, hosts: Sequence[str]) -> Glance:
    """The earliest times, and differences of ranks with these hosts; a rank without a host has its own clock."""
    first = np.full(len(hosts), _LATEST)
    for times in (crossed.entered, crossed.left):
        known = times != NO_TIME
        np.minimum.at(first, crossed.rank[known], times[known])
    ranks = np.flatnonzero(first != _LATEST)
    return Glance(ranks, first[ranks], _differences(crossed, _hosts(hosts)))


class SharedClocks(Struct, frozen=True):
    """For each rank the number of its clock; clocks are numbered in the order of their lowest ranks."""

    clock: Int64s
    first: Int64s
    """For each clock its earliest time in ns since 1970; without times that of all."""
    differences: list[Difference]


def share_clocks(glances: Iterable[Glance], hosts: Sequence[str]) -> SharedClocks:
    """The clocks of ranks with these hosts, from glances at all meetings in order."""
    host = _hosts(hosts)
    first = np.full(len(hosts), _LATEST)
    worst: dict[int, Difference] = {}
    for glance in glances:
        first[glance.rank] = np.minimum(first[glance.rank], glance.first)
        for found in glance.differences:
            known = worst.setdefault(int(host[found.first]), found)
            if found.violation_ns > known.violation_ns:
                worst[int(host[found.first])] = found
    split = np.isin(host, list(worst))
    # a rank on its own is numbered after itself, a host after its lowest rank
    owner = np.where(split, np.arange(len(host)), host)
    clock = np.unique(owner, return_inverse=True)[1]
    return SharedClocks(clock, _earliest(clock, first), [worst[number] for number in sorted(worst)])


def _earliest(clock: Int64s, times: Int64s) -> Int64s:
    """The earliest time of each clock, from those of ranks; without times that of all."""
    first = np.full(int(clock.max(initial=0)) + 1, _LATEST)
    np.minimum.at(first, clock, times)
    earliest = int(first.min(initial=_LATEST))
    return np.where(first == _LATEST, 0 if earliest == _LATEST else earliest, first)


def _hosts(hosts: Sequence[str]) -> Int64s:
    """For each rank the lowest rank of its host."""
    lowest: dict[str, int] = {}
    return np.array(
        [lowest.setdefault(name, rank) if name else rank for rank, name in enumerate(hosts)], np.int64
    )


def _differences(crossed: Crossed, host: Int64s) -> list[Difference]:
    """The worst pair of each host that has ranks with contradicting times."""
    meeting, rank, entered, left = crossed.meeting, crossed.rank, crossed.entered, crossed.left
    order = np.lexsort((host[rank], meeting))
    where, host_of_row = meeting[order], host[rank[order]]
    new = np.append(True, (where[1:] != where[:-1]) | (host_of_row[1:] != host_of_row[:-1]))[: len(order)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return []
    waits = np.where(left[order] == NO_TIME, _LATEST, left[order])
    first, last = np.minimum.reduceat(waits, starts), np.maximum.reduceat(entered[order], starts)
    known = (first != _LATEST) & (last != NO_TIME)
    violation = np.where(known, last, 0) - np.where(known, first, 0)
    bad = np.flatnonzero(violation > TOLERANCE_NS)
    bad = bad[np.lexsort((-violation[bad], host_of_row[starts[bad]]))]
    bad = bad[np.unique(host_of_row[starts[bad]], return_index=True)[1]]
    stops = np.append(starts[1:], len(order))
    return [_worst(order[starts[number] : stops[number]], rank, entered, left) for number in bad.tolist()]


def _worst(rows: Int64s, rank: Int64s, entered: Int64s, left: Int64s) -> Difference:
    """The first rank to leave and the last to enter."""
    first = rows[np.where(left[rows] == NO_TIME, _LATEST, left[rows]).argmin()]
    second = rows[entered[rows].argmax()]
    return Difference(int(rank[first]), int(rank[second]), int(entered[second] - left[first]))


# The last to enter and the first to leave: where a meeting is closest to a violation of causality.


class Extremes(Struct, frozen=True):
    """For each meeting the rows that entered last and left first, and those next to them; or -1."""

    last: Int64s
    last_but_one: Int64s
    first: Int64s
    next_to_first: Int64s

    @classmethod
    def of(cls, times: Observations) -> Extremes:
        """The extremes; `times` are on one clock."""
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


class WorstPairs(Struct, frozen=True):
    """For each meeting the first to leave and the last to enter, of different clocks."""

    waits: Int64s
    awaited: Int64s
    violation: Float64s
    """By how much the first left before the last entered; at most 0 if causality holds."""

    @classmethod
    def of(cls, times: Observations, extremes: Extremes) -> WorstPairs:
        """If one clock is both first and last, the worse of its two neighbouring pairs."""
        with_first = violation_of(times, extremes.first, extremes.last_but_one)
        with_last = violation_of(times, extremes.next_to_first, extremes.last)
        same = extremes.first == extremes.last
        waits = np.where(same & (with_last > with_first), extremes.next_to_first, extremes.first)
        awaited = np.where(same & (with_last <= with_first), extremes.last_but_one, extremes.last)
        return cls(waits, awaited, violation_of(times, waits, awaited))


def violation_of(times: Observations, waits: Int64s, awaited: Int64s) -> Float64s:
    """By how much each waiting row left before the awaited row entered; -inf for missing rows (-1)."""
    left = np.where(waits >= 0, times.left[waits], np.inf)
    result: Float64s = np.where(awaited >= 0, times.entered[awaited], -np.inf) - left
    return result
