"""Equal calls of two ranks: the ones that are the same, by their times, although the ranks' clocks may differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Float64s, Int64s, Table, scatter

# Telling by time which of several equal calls of two ranks are the same, though their clocks may differ.

CLEARLY = 3
"""The nearest call is taken if the next one is this many times as far away."""

ROOM = 1_000_000_000
"""Nanoseconds that separate the calls of different labels."""


class CallSequence(Table, frozen=True):
    """The calls of one rank in one group, in order."""

    label: Int64s
    """The action of the call: equal for calls that can be the same."""
    time: Int64s
    """Of the same kind for all ranks, on the rank's own clock; NO_TIME if unknown."""
    sequence: Int64s
    """The number within the group, or UNKNOWN."""
    entered: Int64s
    """The time when it started, if `time` is the end and no rank can end before all have started; else NO_TIME."""


class Timeline:
    """Calls by label and time, to find the nearest one of a label at any time."""

    def __init__(self, calls: CallSequence) -> None:
        self.calls = calls
        timed = np.flatnonzero(calls.time != NO_TIME)
        time = calls.time[timed]
        self._first = int(time.min()) if len(time) else 0
        self._span = (int(time.max()) - self._first if len(time) else 0) + ROOM
        keys = self._keys(calls.label[timed], time)
        order = np.argsort(keys, kind="stable")
        self.rows = timed[order]
        self._ranked = keys[order]

    def _keys(self, label: Int64s, time: Int64s) -> Int64s:
        """One number for label and time: near each other for equal labels, far apart for different ones."""
        return label * (8 * self._span) + np.clip(time - self._first, -self._span, 2 * self._span)

    def typical_gap(self) -> float:
        """The median time between two successive calls of one label."""
        gaps = np.diff(self._ranked)
        gaps = gaps[gaps < 4 * self._span]
        return float(np.median(gaps)) if len(gaps) else np.inf

    def gaps(self, length: int) -> Float64s:
        """For each of `length` calls the time to the nearest other call with its label."""
        between = np.diff(self._ranked).astype(np.float64)
        between[between > 4 * self._span] = np.inf
        result = np.full(length, np.inf)
        result[self.rows] = np.minimum(np.append(np.inf, between), np.append(between, np.inf))
        return result

    def around(self, label: Int64s, time: Int64s) -> tuple[Int64s, Float64s, Float64s]:
        """For each label and time the row of the nearest call, its distance, and that of the next nearest."""
        keys = self._keys(label, time)
        right = np.searchsorted(self._ranked, keys)
        before, earlier, after, later = (self._distance(right + step, keys) for step in (-1, -2, 0, 1))
        left = before <= after
        near = np.where(left, before, after)
        next_near = np.where(left, np.minimum(after, earlier), np.minimum(before, later))
        row = self.rows[np.clip(np.where(left, right - 1, right), 0, len(self.rows) - 1)]
        return row, near, next_near

    def _distance(self, position: Int64s, keys: Int64s) -> Float64s:
        """From keys to those at these positions; infinite for a missing one and for other labels."""
        outside = (position < 0) | (position >= len(self._ranked))
        distance: Float64s = np.abs(self._ranked[np.where(outside, 0, position)] - keys).astype(np.float64)
        distance[outside | (distance > 4 * self._span)] = np.inf
        return distance

    def times_of(self, label: int) -> Int64s:
        """The times of all calls of a label."""
        rows = self.rows[self.calls.label[self.rows] == label]
        times: Int64s = self.calls.time[rows]
        return times


def _mutually_nearest(timeline: Timeline, reference: Timeline, expected: Int64s, spread: float) -> Int64s:
    """For each call the reference call with its label, if the two are clearly nearest to each other; else UNKNOWN.

    `expected` are the calls' times on the reference's clock. Calls that differ by more than a few times `spread` are
    never the same. With an infinite spread any two that are nearest to each other are taken.
    """
    calls, others = timeline.calls, reference.calls
    index = np.full(len(calls), UNKNOWN, np.int64)
    timed = timeline.rows
    if not len(timed) or not len(reference.rows):
        return index
    shift = expected - calls.time
    nearest_row, near, next_near = reference.around(calls.label[timed], expected[timed])
    nearest_back, _, _ = timeline.around(others.label[nearest_row], others.time[nearest_row] - shift[timed])
    clear = (nearest_back == timed) & np.isfinite(near)
    if np.isfinite(spread):
        clear &= (near <= 8 * spread) & (next_near > np.maximum(CLEARLY * near, 6 * spread))
    index[timed[clear]] = nearest_row[clear]
    return _without_crossings(index)


def nearest(calls: CallSequence, reference: CallSequence, expected: Int64s, spread: float) -> Int64s:
    """For each call the reference call with its label that is clearly nearest by time; else UNKNOWN."""
    return _mutually_nearest(Timeline(calls), Timeline(reference), expected, spread)


def _without_crossings(index: Int64s) -> Int64s:
    """The indexes, UNKNOWN where one contradicts the order of the others."""
    found = np.flatnonzero(index >= 0)
    values = index[found]
    before = np.maximum.accumulate(np.concatenate([np.full(1, UNKNOWN), values]))[:-1]
    after = np.minimum.accumulate(np.concatenate([values, np.full(1, np.iinfo(np.int64).max)])[::-1])[::-1][
        1:
    ]
    crossing: Bools = (values <= before) | (values >= after)
    result = index.copy()
    result[found[crossing]] = UNKNOWN
    return result


# The offset between the clocks of two ranks, as far as it decides which of their calls are the same.


PLAUSIBLE_NS = 250_000_000
"""Clocks that are synchronised seldom differ by more."""

FASTEST_DRIFT = 2e-4
FINEST_DRIFT = 1e-5
"""Drift that remains after it was estimated."""

OVERLAPPING = 0.9
"""The share of pairs that must overlap in time."""
FEWEST = 3
"""The scatter of fewer calls is not significant."""

CHANCE = 6
"""Scatters of n calls are similar if they differ by less than this part of the square root of n."""

DECIDES = 12
"""Times decide between pairings that labels allow if equal calls are this many times the scatter apart."""

DECIDES_ALONE = 100
"""Times decide against labels if equal calls are this many times the scatter apart."""

MOST = 0.7
"""The share of calls in the time that both ranks recorded that must coincide."""

FINEST_NS = 5000.0
"""Ends that scatter by less coincide."""

PROBES = 24
PEAKS = 2
ROUNDS = 20
WIDTHS = (1000, 200, 40)
"""Offsets are similar if they differ by less than such a part of the time between equal calls."""


class Shift(Struct, frozen=True):
    """A way to pair calls by time: on the reference's clock they are at `time + offset + drift * (time - center)`."""

    offset: float
    drift: float
    center: int
    spread: float
    index: Int64s
    """For each call the index of the reference call that coincides with it, or UNKNOWN."""
    matched: int

    def expected(self, time: Int64s) -> Int64s:
        """Times on the reference's clock; NO_TIME stays."""
        shift = np.rint(self.offset + self.drift * (time - self.center)).astype(np.int64)
        return np.where(time == NO_TIME, NO_TIME, time + shift)

    def scatters_like(self, sharpest: Shift) -> bool:
        """True if its calls scatter more than those of the sharpest shift only by chance."""
        chance = 1 + CHANCE / float(min(self.matched, sharpest.matched)) ** 0.5
        return bool(self.spread <= sharpest.spread * chance)

    def is_exact(self, calls: int, reference: int) -> bool:
        """True if all calls coincide as well as possible, with a plausible offset."""
        sharp = self.spread <= FINEST_NS and abs(self.offset) <= PLAUSIBLE_NS
        return sharp and self.matched == calls == reference

    def same_offset(self, other: Shift) -> bool:
        """True if both are the same offset between the clocks."""
        return abs(self.offset - other.offset) <= DECIDES * min(self.spread, other.spread)


def shift_of(calls: CallSequence, reference: CallSequence, index: Int64s) -> Shift | None:
    """The shift that given pairs imply; None if too few have times."""
    known = np.flatnonzero((index >= 0) & (calls.time != NO_TIME))
    known = known[reference.time[index[known]] != NO_TIME]
    if len(known) < FEWEST:
        return None
    time = calls.time[known]
    difference = (reference.time[index[known]] - time).astype(np.float64)
    center = int(np.median(time))
    drift = _drift(time, difference)
    offset = float(np.median(difference - drift * (time - center)))
    distance = np.abs(difference - offset - drift * (time - center))
    spread = max(float(np.median(distance)), FINEST_NS)
    close = scatter(len(index), known, np.where(distance <= DECIDES * spread, index[known], UNKNOWN))
    return Shift(offset, drift, center, spread, close, int(np.count_nonzero(close != UNKNOWN)))


def sharp(shift: Shift, reference: CallSequence, decides: int) -> bool:
    """True if the gap between equal calls is at least `decides` times the scatter."""
    return decides * shift.spread <= Timeline(reference).typical_gap()


def possible_shifts(calls: CallSequence, reference: CallSequence) -> list[Shift]:
    """Shifts with which many calls coincide."""
    timeline, reference_timeline = Timeline(calls), Timeline(reference)
    found: list[Shift] = []
    if len(timeline.rows) < FEWEST or len(reference_timeline.rows) < FEWEST:
        return found
    for offset in (0, *_peaks(timeline, reference_timeline)):
        if not any(abs(offset - known.offset) <= FINEST_NS for known in found):
            shift = _refined(timeline, reference_timeline, int(offset))
            if shift and not any(shift.same_offset(known) for known in found):
                found.append(shift)
            if shift and shift.is_exact(len(timeline.rows), len(reference_timeline.rows)):
                break
    return [
        shift
        for shift in found
        if _coincide(shift, calls, reference) and overlap(calls, reference, shift.index, shift.drift)
    ]


def best_shift(shifts: Sequence[Shift], reference: CallSequence, decides: int) -> Shift | None:
    """The shift with which most calls coincide best; None if several are as good, or if it is not sharp enough."""
    if not shifts:
        return None
    sharpest = min(shifts, key=lambda shift: shift.spread)
    similar = [shift for shift in shifts if shift.scatters_like(sharpest)]
    similar = [shift for shift in similar if abs(shift.offset) <= PLAUSIBLE_NS] or similar
    most = max(shift.matched for shift in similar)
    best = [shift for shift in similar if shift.matched == most]
    return best[0] if len(best) == 1 and sharp(best[0], reference, decides) else None


def overlap(calls: CallSequence, reference: CallSequence, index: Int64s, drift: float = 0.0) -> bool:
    """True if nearly all pairs that must overlap in time do so with one offset between the clocks."""
    paired = np.flatnonzero((index >= 0) & (calls.time != NO_TIME))
    paired = paired[reference.time[index[paired]] != NO_TIME]
    partners = index[paired]
    has_partner_entry = reference.entered[partners] != NO_TIME
    has_entry = calls.entered[paired] != NO_TIME
    if not (has_partner_entry & has_entry).any():
        return True
    drifted = drift * (calls.time[paired] - calls.time[paired[0]])
    least = np.where(has_partner_entry, reference.entered[partners] - calls.time[paired] - drifted, -np.inf)
    most = np.where(has_entry, reference.time[partners] - calls.entered[paired] - drifted, np.inf)
    slack = FINEST_NS + (FINEST_DRIFT if drift else FASTEST_DRIFT) * float(np.ptp(calls.time[paired]))
    least, most = np.sort(least), np.sort(most) + slack
    covered = np.arange(1, len(paired) + 1) - np.searchsorted(most, least)
    return bool(covered.max() >= OVERLAPPING * len(paired))


def _coincide(shift: Shift, calls: CallSequence, reference: CallSequence) -> bool:
    """True if most calls in the time that both ranks recorded are paired."""
    expected, times = shift.expected(calls.time), reference.time
    expected, times = expected[expected != NO_TIME], times[times != NO_TIME]
    first, last = max(expected.min(), times.min()), min(expected.max(), times.max())
    slack = int(DECIDES * shift.spread)
    both = min(
        np.count_nonzero((time >= first - slack) & (time <= last + slack)) for time in (expected, times)
    )
    return bool(shift.matched >= MOST * both)


def _refined(timeline: Timeline, reference: Timeline, offset: int) -> Shift | None:
    """The shift near an offset that is common to the calls that are nearest to each other."""
    calls = timeline.calls
    expected = np.where(calls.time == NO_TIME, NO_TIME, calls.time + offset)
    best = None
    for _ in range(ROUNDS):
        index = _mutually_nearest(timeline, reference, expected, np.inf)
        shift = shift_of(calls, reference.calls, index)
        if not shift or (best and shift.spread >= best.spread and shift.matched <= best.matched):
            break
        best, expected = shift, shift.expected(calls.time)
    if not best:
        return None
    index = _mutually_nearest(timeline, reference, best.expected(calls.time), best.spread)
    return replace(best, index=index, matched=int(np.count_nonzero(index != UNKNOWN)))


def _peaks(timeline: Timeline, reference: Timeline) -> Iterator[int]:
    """Offsets with which most of some sampled calls coincide with an equal one."""
    calls, rows = timeline.calls, timeline.rows
    probes = rows[np.linspace(0, len(rows) - 1, min(PROBES, len(rows))).astype(np.int64)]
    differences = np.sort(
        np.concatenate(
            [reference.times_of(int(calls.label[row])) - calls.time[row] for row in probes.tolist()]
        )
    )
    gap = reference.typical_gap()
    for part in WIDTHS if np.isfinite(gap) else WIDTHS[:1]:
        width = max(int(gap / part) if np.isfinite(gap) else 0, int(FINEST_NS))
        votes = np.searchsorted(differences, differences + width, side="right") - np.arange(len(differences))
        for _ in range(PEAKS):
            if votes.max(initial=0) < FEWEST:
                break
            best = int(np.argmax(votes))
            middle = int(differences[best + int(votes[best]) // 2])
            yield middle
            votes[np.abs(differences - middle) <= 2 * width] = 0


def _drift(time: Int64s, difference: Float64s) -> float:
    """The rate by which the reference's clock runs faster, from the first and the last third of the differences."""
    third = len(time) // 3
    if third < FEWEST:
        return 0.0
    length = float(np.median(time[-third:]) - np.median(time[:third]))
    if length <= 0:
        return 0.0
    slope = float(np.median(difference[-third:]) - np.median(difference[:third])) / length
    return slope if abs(slope) <= FASTEST_DRIFT else 0.0
