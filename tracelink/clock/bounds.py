"""Bounds on offset and drift (polygons)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.clock.observations import MAX_DRIFT, Passages
from tracelink.model.columns import Bools, Float64s, Int64s

# What bounds at different times leave of an offset and a drift: a polygon, for many at once.


HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Rooms:
    """One row for each offset: upper and lower bounds of offset + drift * time, and their times."""

    upper: Float64s
    upper_time: Float64s
    lower: Float64s
    lower_time: Float64s

    def at(self, drift: Float64s) -> tuple[Float64s, Float64s]:
        """Between what the offsets must lie at such drifts."""
        return (
            (self.lower - drift[:, None] * self.lower_time).max(axis=1),
            (self.upper - drift[:, None] * self.upper_time).min(axis=1),
        )

    def roomiest(self, low: Float64s, high: Float64s) -> Float64s:
        """The drifts that leave most room: room is concave, so its growth says on which side they lie."""
        line = np.arange(len(low))
        for _ in range(HALVINGS):
            drift = (low + high) / 2
            above = (self.upper - drift[:, None] * self.upper_time).argmin(axis=1)
            below = (self.lower - drift[:, None] * self.lower_time).argmax(axis=1)
            grows = self.lower_time[line, below] > self.upper_time[line, above]
            low, high = np.where(grows, drift, low), np.where(grows, high, drift)
        return (low + high) / 2

    def drifts(self, low: Float64s, high: Float64s) -> tuple[Float64s, Float64s]:
        """The least and the greatest drift that leaves room, rather too wide than too narrow."""
        best = self.roomiest(low, high)
        lacking = np.minimum(self._room(best), 0)
        return self._edge(best, low, lacking), self._edge(best, high, lacking)

    def _edge(self, inside: Float64s, limit: Float64s, lacking: Float64s) -> Float64s:
        """How far drift can go from `inside` towards its limit."""
        free = self._room(limit) >= lacking
        outside = limit
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            fits = self._room(middle) >= lacking
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return np.where(free, limit, outside)

    def _room(self, drift: Float64s) -> Float64s:
        low, high = self.at(drift)
        return high - low


def tightest(bound: Float64s, time: Float64s, cell: Int64s, best: Float64s, when: Float64s) -> None:
    """Puts the least bound of each cell into `best`, and its time into `when`."""
    np.minimum.at(best, cell, bound)
    least = bound == best[cell]
    when[cell[least]] = time[least]


def rooms_of(
    clock: Int64s, clocks: int, upper: tuple[Float64s, Float64s], lower: tuple[Float64s, Float64s]
) -> Rooms:
    """One row for each clock; of bounds and times of each row the tightest in each stretch of time is kept."""
    sides = []
    for (bound, time), sign in ((upper, 1), (lower, -1)):
        known = np.isfinite(bound)
        bound, time = sign * bound[known], time[known]
        start, end = time.min(initial=0), time.max(initial=1)
        stretch = ((time - start) / (end - start) * (STRETCHES - 1)).astype(np.int64)
        best, when = np.full(clocks * STRETCHES, np.inf), np.zeros(clocks * STRETCHES)
        tightest(bound, time, clock[known] * STRETCHES + stretch, best, when)
        sides += [sign * best.reshape(clocks, STRETCHES), when.reshape(clocks, STRETCHES)]
    return Rooms(*sides)


# What meetings allow of each pair of clocks, cut down to the tightest bound in each stretch of time.


STRETCHES = 32
CELLS = 1 << 21
"""Pairs times stretches that are kept at most; more clocks get fewer stretches."""
ALL_PAIRS = 1 << 24
"""Pairs within meetings that are looked at; the largest meetings are cut down to pairs with one clock."""
AT_ONCE_ENVELOPES = 1 << 18


@dataclass(frozen=True, slots=True)
class Envelopes:
    """For each pair of clocks what the first shows more than the second at most, and when (clock, clock, stretch)."""

    bound: Float64s
    time: Float64s


def envelopes_of(passages: Passages, clocks: int) -> Envelopes:
    """The tightest bounds; all times of `passages` are about those of the reference clock, whose zero is early."""
    stretches = int(np.clip(CELLS // clocks**2, 4, STRETCHES))
    bound = np.full(clocks * clocks * stretches, np.inf)
    time = np.zeros(len(bound))
    span = _last(passages)
    for waits, awaited in _pairs_envelopes(passages):
        wide = passages.left[waits] - passages.entered[awaited]
        middle = (passages.left[waits] + passages.entered[awaited]) / 2
        slack = 2 * MAX_DRIFT * (np.abs(wide) + 2 * np.maximum(-middle, 0))
        middle = np.maximum(middle, 0)
        stretch = np.minimum(middle * stretches // span, stretches - 1).astype(np.int64)
        cell = (passages.clock[waits] * clocks + passages.clock[awaited]) * stretches + stretch
        tightest(wide + slack, middle, cell, bound, time)
    shape = (clocks, clocks, stretches)
    return Envelopes(bound.reshape(shape), time.reshape(shape))


def _last(passages: Passages) -> float:
    left = passages.left[np.isfinite(passages.left)]
    return max(float(left.max(initial=1)), float(passages.entered.max(initial=1)), 1.0)


def _pairs_envelopes(passages: Passages) -> Iterator[tuple[Int64s, Int64s]]:
    """Rows of one that waits and one that is awaited in one meeting, of different clocks, many at once."""
    waits, awaited = np.isfinite(passages.left), np.isfinite(passages.entered)
    small = _small(passages, waits, awaited)[passages.meeting]
    first = _first_of(passages, waits), _first_of(passages, awaited)
    yield from _products(passages, waits & small, awaited & small)
    yield from _products(passages, waits & ~small, first[1] & ~small)
    yield from _products(passages, first[0] & ~small, awaited & ~small)


def _small(passages: Passages, waits: Bools, awaited: Bools) -> Bools:
    """Meetings all pairs of which can be looked at; of one size all or none."""
    pairs = np.bincount(passages.meeting, waits) * np.bincount(passages.meeting, awaited)
    sizes, count = np.unique(pairs, return_counts=True)
    fitting = sizes[np.cumsum(sizes * count) <= ALL_PAIRS]
    small: Bools = pairs <= fitting.max(initial=0)
    return small


def _first_of(passages: Passages, chosen: Bools) -> Bools:
    """Of each meeting the chosen row with the lowest clock."""
    rows = np.flatnonzero(chosen)
    meeting = passages.meeting[rows]
    result = np.zeros(len(passages), np.bool_)
    result[rows[np.append(True, meeting[1:] != meeting[:-1])[: len(rows)]]] = True
    return result


def _products(passages: Passages, waits: Bools, awaited: Bools) -> Iterator[tuple[Int64s, Int64s]]:
    ones, others = np.flatnonzero(waits), np.flatnonzero(awaited)
    begin = np.searchsorted(passages.meeting[others], passages.meeting[ones], "left")
    count = np.searchsorted(passages.meeting[others], passages.meeting[ones], "right") - begin
    reached = np.cumsum(count)
    steps = np.arange(
        AT_ONCE_ENVELOPES, reached[-1] + AT_ONCE_ENVELOPES if len(ones) else 0, AT_ONCE_ENVELOPES
    )
    cuts = np.searchsorted(reached, steps) + 1
    for chunk in np.split(np.arange(len(ones)), cuts):
        sizes = count[chunk]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        one, other = np.repeat(ones[chunk], sizes), others[np.repeat(begin[chunk], sizes) + within]
        across = one != other
        yield one[across], other[across]


# Between what the offset of each clock must lie, whatever its drift within the limits.


AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of clocks, and what is left of the offset and drift of the one from the other."""

    one: Int64s
    other: Int64s
    rooms: Rooms


def offset_bounds(envelopes: Envelopes, drift: Float64s) -> tuple[Float64s, Float64s]:
    """Lower and upper bounds of the offsets from the lowest clock (inf: none); `drift` is corrected already."""
    clocks = len(drift)
    least, most = drift_limits(drift)
    chunks = list(_pairs(envelopes))
    drifts = np.full((clocks, clocks), np.inf)
    drifts[:, 0], drifts[0, :] = most, -least
    ranges = []
    for pairs in chunks:
        low, high = pairs.rooms.drifts(*_difference(pairs, least, most))
        drifts[pairs.one, pairs.other] = np.minimum(drifts[pairs.one, pairs.other], high)
        drifts[pairs.other, pairs.one] = np.minimum(drifts[pairs.other, pairs.one], -low)
        ranges.append((low, high))
    most, least = _farthest(drifts), -_farthest(drifts.T)
    offsets = np.full((clocks, clocks), np.inf)
    for pairs, (low, high) in zip(chunks, ranges, strict=True):
        lowest, highest = _difference(pairs, least, most)
        # as no time is negative, the least drift leaves the greatest offset
        offsets[pairs.one, pairs.other] = pairs.rooms.at(np.maximum(low, lowest))[1]
        offsets[pairs.other, pairs.one] = -pairs.rooms.at(np.minimum(high, highest))[0]
    return -_farthest(offsets.T), _farthest(offsets)


def lacking_room(envelopes: Envelopes, drift: Float64s) -> Float64s:
    """By how much each two clocks contradict each other, whatever their drifts; not above 0 where they do not."""
    least, most = drift_limits(drift)
    lacking = np.full((len(drift), len(drift)), -np.inf)
    for pairs in _pairs(envelopes):
        best = pairs.rooms.roomiest(*_difference(pairs, least, most))
        low, high = pairs.rooms.at(best)
        lacking[pairs.one, pairs.other] = lacking[pairs.other, pairs.one] = low - high
    return lacking


def drift_limits(drift: Float64s) -> tuple[Float64s, Float64s]:
    """The least and the greatest drift that clocks can have besides what is corrected already."""
    least, most = ((limit - drift) / (1 - drift) for limit in (-MAX_DRIFT, MAX_DRIFT))
    least[0] = most[0] = 0.0
    return least, most


def _difference(pairs: Pairs, least: Float64s, most: Float64s) -> tuple[Float64s, Float64s]:
    return least[pairs.one] - most[pairs.other], most[pairs.one] - least[pairs.other]


def _pairs(envelopes: Envelopes) -> list[Pairs]:
    """All pairs of clocks that anything bounds."""
    bounded = np.isfinite(envelopes.bound).any(axis=2)
    one, other = np.nonzero(np.triu(bounded | bounded.T, 1))
    chunks = [slice(first, first + AT_ONCE) for first in range(0, len(one), AT_ONCE)]
    bound, time = envelopes.bound, envelopes.time
    return [
        Pairs(i, j, Rooms(bound[i, j], time[i, j], -bound[j, i], time[j, i]))
        for i, j in ((one[chunk], other[chunk]) for chunk in chunks)
    ]


def _farthest(most: Float64s) -> Float64s:
    """For each clock how much more than the lowest it can show, by chains of pairs."""
    reach = np.full(len(most), np.inf)
    reach[0] = 0.0
    for _ in range(len(most)):
        nearer = np.minimum(reach, (most + reach).min(axis=1))
        if np.array_equal(nearer, reach):
            break
        reach = nearer
    return reach
