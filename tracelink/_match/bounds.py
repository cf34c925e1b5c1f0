"""Bounds on offset and drift: what meetings allow for each pair of clocks, and so for each clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracelink._match.observations import MAX_DRIFT, Observations
from tracelink._model.columns import Bools, Float64s, Int32s, Int64s, lookup

# Feasible regions: bounds at different times leave a polygon of offsets and drifts; many at once.


HALVINGS = 40


class FeasibleRegions(Struct, frozen=True):
    """One row for each region: upper and lower bounds of offset + drift * time, and the times of the bounds."""

    upper: Float64s
    upper_time: Float64s
    lower: Float64s
    lower_time: Float64s

    def at(self, drift: Float64s) -> tuple[Float64s, Float64s]:
        """The lowest and highest offsets at these drifts."""
        return (
            (self.lower - drift[:, None] * self.lower_time).max(axis=1),
            (self.upper - drift[:, None] * self.upper_time).min(axis=1),
        )

    def widest(self, low: Float64s, high: Float64s) -> Float64s:
        """The drifts with the widest range of offsets: the width is concave, so bisect on its slope."""
        line = np.arange(len(low))
        for _ in range(HALVINGS):
            drift = (low + high) / 2
            above = (self.upper - drift[:, None] * self.upper_time).argmin(axis=1)
            below = (self.lower - drift[:, None] * self.lower_time).argmax(axis=1)
            grows = self.lower_time[line, below] > self.upper_time[line, above]
            low, high = np.where(grows, drift, low), np.where(grows, high, drift)
        return (low + high) / 2

    def drifts(self, low: Float64s, high: Float64s) -> tuple[Float64s, Float64s]:
        """The least and the greatest feasible drift, rather too wide than too narrow."""
        best = self.widest(low, high)
        least_slack = np.minimum(self._slack(best), 0)
        return self._edge(best, low, least_slack), self._edge(best, high, least_slack)

    def _edge(self, inside: Float64s, limit: Float64s, least_slack: Float64s) -> Float64s:
        """The distance that the drift can go from `inside` towards its limit."""
        free = self._slack(limit) >= least_slack
        outside = limit
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            fits = self._slack(middle) >= least_slack
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return np.where(free, limit, outside)

    def _slack(self, drift: Float64s) -> Float64s:
        low, high = self.at(drift)
        return high - low


def _keep_tightest(bound: Float64s, time: Float64s, cell: Int64s, best: Float64s, when: Float64s) -> None:
    """Writes the least bound of each cell into `best`, and its time into `when`."""
    np.minimum.at(best, cell, bound)
    least = bound == best[cell]
    when[cell[least]] = time[least]


def feasible_regions(
    clock: Int64s, clocks: int, upper: tuple[Float64s, Float64s], lower: tuple[Float64s, Float64s]
) -> FeasibleRegions:
    """One row for each clock, with the tightest bound of each stretch of time."""
    sides = []
    for (bound, time), sign in ((upper, 1), (lower, -1)):
        known = np.isfinite(bound)
        bound, time = sign * bound[known], time[known]
        start, end = time.min(initial=0), time.max(initial=1)
        stretch = ((time - start) / (end - start) * (STRETCHES - 1)).astype(np.int64)
        best, when = np.full(clocks * STRETCHES, np.inf), np.zeros(clocks * STRETCHES)
        _keep_tightest(bound, time, clock[known] * STRETCHES + stretch, best, when)
        sides += [sign * best.reshape(clocks, STRETCHES), when.reshape(clocks, STRETCHES)]
    return FeasibleRegions(*sides)


# Envelopes: what meetings allow for each pair of clocks, the tightest bound of each stretch of time.


STRETCHES = 32
CELLS = 1 << 21
"""The most pairs times stretches that are kept; more clocks get fewer stretches."""
ALL_PAIRS = 1 << 24
"""The most pairs within meetings that are used; of the largest meetings only pairs with one clock are."""
PAIR_BATCH = 1 << 18


class Envelopes(Struct, frozen=True):
    """For pairs of clocks the most that the first can be ahead of the second, and when (pair, stretch)."""

    first: Int64s
    second: Int64s
    """Clocks of each pair, in the order of first and second; a pair without a row is not bounded."""
    bound: Float64s
    time: Float64s


def envelopes_of(observations: Observations, clocks: int) -> Envelopes:
    """The tightest bounds; all times are about those of the reference clock, with an early zero."""
    stretches = int(np.clip(CELLS // clocks**2, 4, STRETCHES))
    batches = _PairsOfRows(observations)
    number, pairs = _numbered_pairs(batches, clocks)
    bound = np.full(len(pairs) * stretches, np.inf)
    time = np.zeros(len(bound))
    span = _last(observations)
    for waits, awaited in batches:
        wide = observations.left[waits] - observations.entered[awaited]
        middle = (observations.left[waits] + observations.entered[awaited]) / 2
        slack = 2 * MAX_DRIFT * (np.abs(wide) + 2 * np.maximum(-middle, 0))
        middle = np.maximum(middle, 0)
        stretch = np.minimum(middle * stretches // span, stretches - 1).astype(np.int64)
        pair = number[observations.clock[waits] * clocks + observations.clock[awaited]]
        _keep_tightest(wide + slack, middle, pair * np.int64(stretches) + stretch, bound, time)
    shape = (len(pairs), stretches)
    return Envelopes(*np.divmod(pairs, clocks), bound.reshape(shape), time.reshape(shape))


def _numbered_pairs(batches: _PairsOfRows, clocks: int) -> tuple[Int32s, Int64s]:
    """Numbers for pairs of clocks that meet, by first * clocks + second; and these pairs."""
    meets = np.zeros(clocks * clocks, np.bool_)
    clock = batches.observations.clock
    for waits, awaited in batches:
        meets[clock[waits] * clocks + clock[awaited]] = True
    return np.cumsum(meets, dtype=np.int32) - np.int32(1), np.flatnonzero(meets)


def _last(observations: Observations) -> float:
    left = observations.left[np.isfinite(observations.left)]
    return max(float(left.max(initial=1)), float(observations.entered.max(initial=1)), 1.0)


class _PairsOfRows:
    """Pairs of a waiting and an awaited row of one meeting, of different clocks, in batches."""

    def __init__(self, observations: Observations) -> None:
        self.observations = observations
        self._waits, self._awaited = np.isfinite(observations.left), np.isfinite(observations.entered)
        self._small = _small(observations, self._waits, self._awaited)[observations.meeting]

    def __iter__(self) -> Iterator[tuple[Int64s, Int64s]]:
        observations, waits, awaited, small = self.observations, self._waits, self._awaited, self._small
        first = _first_of(observations, waits), _first_of(observations, awaited)
        yield from _products(observations, waits & small, awaited & small)
        yield from _products(observations, waits & ~small, first[1] & ~small)
        yield from _products(observations, first[0] & ~small, awaited & ~small)


def _small(observations: Observations, waits: Bools, awaited: Bools) -> Bools:
    """Meetings that are small enough to use all their pairs; of one size all or none."""
    pairs = np.bincount(observations.meeting, waits) * np.bincount(observations.meeting, awaited)
    sizes, count = np.unique(pairs, return_counts=True)
    fitting = sizes[np.cumsum(sizes * count) <= ALL_PAIRS]
    small: Bools = pairs <= fitting.max(initial=0)
    return small


def _first_of(observations: Observations, chosen: Bools) -> Bools:
    """The chosen row with the lowest clock of each meeting."""
    rows = np.flatnonzero(chosen)
    meeting = observations.meeting[rows]
    result = np.zeros(len(observations), np.bool_)
    result[rows[np.append(True, meeting[1:] != meeting[:-1])[: len(rows)]]] = True
    return result


def _products(observations: Observations, waits: Bools, awaited: Bools) -> Iterator[tuple[Int64s, Int64s]]:
    waiting, entered = np.flatnonzero(waits), np.flatnonzero(awaited)
    begin = np.searchsorted(observations.meeting[entered], observations.meeting[waiting], "left")
    count = np.searchsorted(observations.meeting[entered], observations.meeting[waiting], "right") - begin
    reached = np.cumsum(count)
    steps = np.arange(PAIR_BATCH, reached[-1] + PAIR_BATCH if len(waiting) else 0, PAIR_BATCH)
    cuts = np.searchsorted(reached, steps) + 1
    for chunk in np.split(np.arange(len(waiting)), cuts):
        sizes = count[chunk]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first, second = np.repeat(waiting[chunk], sizes), entered[np.repeat(begin[chunk], sizes) + within]
        across = first != second
        yield first[across], second[across]


# Bounds on the offset of each clock, for any drift within the limits.


CLOCK_PAIR_BATCH = 1 << 14


class _ClockPairs(Struct, frozen=True):
    """Pairs of clocks, and the feasible offsets and drifts of the first from the second."""

    first: Int64s
    second: Int64s
    regions: FeasibleRegions


def offset_bounds(envelopes: Envelopes, drift: Float64s) -> tuple[Float64s, Float64s]:
    """Lower and upper bounds of the offsets from the lowest clock (inf: unbounded); `drift` is already corrected."""
    clocks = np.arange(len(drift))
    least, most = drift_limits(drift)
    chunks = list(_pairs(envelopes))
    drifts = [_Limits(clocks, 0 * clocks, most), _Limits(0 * clocks, clocks, -least)]
    ranges = []
    for pairs in chunks:
        low, high = pairs.regions.drifts(*_difference(pairs, least, most))
        drifts += [_Limits(pairs.first, pairs.second, high), _Limits(pairs.second, pairs.first, -low)]
        ranges.append((low, high))
    most, least = _farthest(drifts, len(drift)), -_farthest([one.reversed() for one in drifts], len(drift))
    offsets = []
    for pairs, (low, high) in zip(chunks, ranges, strict=True):
        lowest, highest = _difference(pairs, least, most)
        # as no time is negative, the least drift leaves the greatest offset
        ahead = pairs.regions.at(np.maximum(low, lowest))[1]
        behind = -pairs.regions.at(np.minimum(high, highest))[0]
        offsets += [_Limits(pairs.first, pairs.second, ahead), _Limits(pairs.second, pairs.first, behind)]
    return -_farthest([one.reversed() for one in offsets], len(drift)), _farthest(offsets, len(drift))


def infeasibility(envelopes: Envelopes, drift: Float64s) -> Float64s:
    """By how much each two clocks contradict each other at any drift; at most 0 if they do not."""
    least, most = drift_limits(drift)
    excess = np.full((len(drift), len(drift)), -np.inf)
    for pairs in _pairs(envelopes):
        best = pairs.regions.widest(*_difference(pairs, least, most))
        low, high = pairs.regions.at(best)
        excess[pairs.first, pairs.second] = excess[pairs.second, pairs.first] = low - high
    return excess


def drift_limits(drift: Float64s) -> tuple[Float64s, Float64s]:
    """The least and the greatest drift that remain possible after the correction."""
    least, most = ((limit - drift) / (1 - drift) for limit in (-MAX_DRIFT, MAX_DRIFT))
    least[0] = most[0] = 0.0
    return least, most


def _difference(pairs: _ClockPairs, least: Float64s, most: Float64s) -> tuple[Float64s, Float64s]:
    return least[pairs.first] - most[pairs.second], most[pairs.first] - least[pairs.second]


def _pairs(envelopes: Envelopes) -> Iterator[_ClockPairs]:
    """All pairs of clocks with any bound, the lower clock first, in batches."""
    clocks = int(max(envelopes.first.max(initial=0), envelopes.second.max(initial=0))) + 1
    code, back = (
        first * clocks + second
        for first, second in ((envelopes.first, envelopes.second), (envelopes.second, envelopes.first))
    )
    both = np.unique(np.where(envelopes.first < envelopes.second, code, back))
    there, returned = lookup(code, both), lookup(back, both)
    bound = np.concatenate([envelopes.bound, np.full((1, envelopes.bound.shape[1]), np.inf)])
    time = np.concatenate([envelopes.time, np.zeros((1, envelopes.time.shape[1]))])
    for begin in range(0, len(both), CLOCK_PAIR_BATCH):
        chunk = slice(begin, begin + CLOCK_PAIR_BATCH)
        ahead, behind = there[chunk], returned[chunk]
        regions = FeasibleRegions(bound[ahead], time[ahead], -bound[behind], time[behind])
        yield _ClockPairs(*np.divmod(both[chunk], clocks), regions)


class _Limits(Struct, frozen=True):
    """By how much the first clock of a pair can be ahead of the second at most."""

    first: Int64s
    second: Int64s
    most: Float64s

    def reversed(self) -> _Limits:
        """The same with the clocks exchanged."""
        return _Limits(self.second, self.first, self.most)


def _farthest(limits: Sequence[_Limits], clocks: int) -> Float64s:
    """For each clock the most that it can be ahead of the lowest one, along chains of pairs."""
    none = np.empty(0, np.int64)
    first = np.concatenate([none, *(one.first for one in limits)])
    second = np.concatenate([none, *(one.second for one in limits)])
    most = np.concatenate([none, *(one.most for one in limits)])
    reach = np.full(clocks, np.inf)
    reach[0] = 0.0
    for _ in range(clocks):
        nearer = reach.copy()
        np.minimum.at(nearer, first, most + reach[second])
        if np.array_equal(nearer, reach):
            break
        reach = nearer
    return reach
