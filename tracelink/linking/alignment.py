"""Aligning two sequences without guessing; telling equal calls apart by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Float64s, Int64s

# Aligning two sequences where elements may be missing from either, and nothing is guessed.


MOST_EDITS = 4000
"""Sequences that differ more than this are not the same run; the memory needed grows with the square."""

SHORT_RUN = 32

MULTIPLIER = np.uint64(6364136223846793005)


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each element of the first sequence its place in the second, or -1."""

    place: Int64s
    ambiguous: Bools
    """Elements that could be paired in more than one way, or be left over."""


def align(one: Int64s, other: Int64s, most: int = MOST_EDITS) -> Alignment:
    """Pairs equal elements in order, where there is one way to do it with the fewest left over.

    Where even that takes more than `most` edits, everything is ambiguous.
    """
    history = _history(_Texts(one, other), most)
    if history is None:
        return Alignment(np.full(len(one), UNKNOWN, np.int64), np.ones(len(one), np.bool_))
    first = _trace_back(history, one, other, skipping=True)
    last = _trace_back(history, one, other, skipping=False)
    same = (first.place == last.place) & (first.place != UNKNOWN)
    either = (first.place != UNKNOWN) | (last.place != UNKNOWN)
    either |= _between(one, other, first.left_at, last.left_at)
    return Alignment(np.where(same, first.place, UNKNOWN), either & ~same)


def _history(text: _Texts, most: int) -> list[Int64s] | None:
    """How far each diagonal gets with each number of edits, until the end is reached."""
    history: list[Int64s] = []
    reach = text.extend(np.zeros(1, np.int64), np.zeros(1, np.int64))
    for edits in range(most):
        history.append(reach)
        diagonal = np.arange(-edits, edits + 1, 2)
        if ((reach >= len(text.one)) & (reach - diagonal >= len(text.other))).any():
            return history
        reach = _step(text, reach, edits + 1)
    return None


def _between(one: Int64s, other: Int64s, some: Int64s, others: Int64s) -> Bools:
    """Whether elements that two scripts leave over at different places have an equal between these places."""
    low, high = np.minimum(some, others), np.maximum(some, others)
    left = np.flatnonzero((low != UNKNOWN) & (low < high))
    result = np.zeros(len(one), np.bool_)
    if len(left):
        order = np.argsort(other, kind="stable")
        begin = np.searchsorted(other[order], one[left])
        end = np.searchsorted(other[order], one[left], side="right")
        for element, first, last in zip(left.tolist(), begin.tolist(), end.tolist(), strict=True):
            places = order[first:last]
            result[element] = np.searchsorted(places, low[element]) < np.searchsorted(places, high[element])
    return result


def _step(text: _Texts, reach: Int64s, edits: int) -> Int64s:
    """How far each diagonal gets with one more edit; diagonal k is place in one minus place in the other."""
    diagonal = np.arange(-edits, edits + 1, 2)
    x = np.maximum(np.append(UNKNOWN, reach + 1), np.append(reach, UNKNOWN))
    x = np.minimum(x, len(text.one))
    y = x - diagonal
    inside = (y >= 0) & (y <= len(text.other))
    x[inside] = text.extend(x[inside], y[inside])
    x[~inside] = np.where(y[~inside] > len(text.other), len(text.other) + diagonal[~inside], UNKNOWN)
    reached: Int64s = np.minimum(x, len(text.one))
    return reached


@dataclass(frozen=True, slots=True)
class _Script:
    """One edit script: the places of the elements, and at which place each one is left over that is."""

    place: Int64s
    left_at: Int64s


def _trace_back(history: list[Int64s], one: Int64s, other: Int64s, *, skipping: bool) -> _Script:
    """An outermost script: from the end on it skips elements of one, or passes over the other's, where it can."""
    x, y = len(one), len(other)
    script = _Script(np.full(x, UNKNOWN, np.int64), np.full(x, UNKNOWN, np.int64))
    for edits in range(len(history) - 1, 0, -1):
        run = _run_before(one, other, x, y)
        skip_from, pass_from = _arrivals(history[edits - 1], (x - y + edits) // 2)
        by_skip, by_pass = x - min(x, skip_from), x - min(x, pass_from)
        can_skip = by_skip <= run and by_skip < x
        can_pass = by_pass <= run and by_pass < y
        skip = can_skip if skipping else not can_pass
        moved = (by_skip if skipping else run) if skip else (run if skipping else by_pass)
        script.place[x - moved : x] = np.arange(y - moved, y)
        x, y = x - moved, y - moved
        if skip:
            x -= 1
            script.left_at[x] = y
        else:
            y -= 1
    script.place[:x] = np.arange(x)
    return script


def _arrivals(reach: Int64s, index: int) -> tuple[int, int]:
    """The furthest places that one more edit leads to: a skip from the diagonal below, a pass from that above."""
    skipped = int(reach[index - 1]) + 1 if index > 0 else UNKNOWN
    passed = int(reach[index]) if index < len(reach) else UNKNOWN
    return skipped, passed


def _run_before(one: Int64s, other: Int64s, x: int, y: int) -> int:
    """How many elements before these places are equal."""
    run, step = 0, SHORT_RUN
    while size := min(step, x - run, y - run):
        different = np.flatnonzero(one[x - run - size : x - run] != other[y - run - size : y - run])
        if len(different):
            return run + size - 1 - int(different[-1])
        run, step = run + size, 2 * step
    return run


class _Texts:
    """Two sequences whose runs can be compared at any two places at once, by hash."""

    def __init__(self, one: Int64s, other: Int64s) -> None:
        self.one = one
        self.other = other
        longest = max(len(one), len(other))
        self._powers = _powers(longest + 1)
        self._hash_one = _prefix_hashes(one, self._powers)
        self._hash_other = _prefix_hashes(other, self._powers)

    def extend(self, x: Int64s, y: Int64s) -> Int64s:
        """x plus the length of the equal run that begins at (x, y), for all pairs at once."""
        result = x.copy()
        room = np.minimum(len(self.one) - x, len(self.other) - y)
        more = np.flatnonzero(room > 0)
        more = more[self.one[x[more]] == self.other[y[more]]]
        if not len(more):
            return result
        low, high = np.ones(len(more), np.int64), room[more]
        x, y = x[more], y[more]
        while np.any(low < high):
            middle = (low + high + 1) >> 1
            equal = self._run(self._hash_one, x, middle) == self._run(self._hash_other, y, middle)
            low = np.where(equal, middle, low)
            high = np.where(equal, high, middle - 1)
        result[more] += low
        return result

    def _run(self, hashes: npt.NDArray[np.uint64], start: Int64s, length: Int64s) -> npt.NDArray[np.uint64]:
        """A number for the run of this length; runs of equal content have equal numbers wherever they stand."""
        run = hashes[start + length] - hashes[start]
        aligned: npt.NDArray[np.uint64] = run * self._powers[len(self._powers) - 1 - start]
        return aligned


def _powers(count: int) -> npt.NDArray[np.uint64]:
    powers: npt.NDArray[np.uint64] = np.multiply.accumulate(np.full(count, MULTIPLIER, np.uint64))
    return powers


def _prefix_hashes(values: Int64s, powers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (values.astype(np.uint64) + np.uint64(1)) * MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    terms = mixed * powers[: len(values)]
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])


# Telling by time which of several equal calls of two ranks are the same, though their clocks may differ.

CLEARLY = 3
"""The nearest is meant if the next is this many times as far away."""

ROOM = 1_000_000_000
"""Nanoseconds between times so far apart that they cannot be the same."""


@dataclass(frozen=True, slots=True)
class Track:
    """What one rank did in one group, in order."""

    label: Int64s
    """What it did: equal for what can be the same."""
    time: Int64s
    """Of one kind for all ranks, by the rank's own clock; NO_TIME where not known."""
    sequence: Int64s
    """The number within the group, or UNKNOWN."""
    entered: Int64s
    """When it began what none of the others ends before that, if `time` is the end; else NO_TIME."""

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Int64s | slice) -> Track:
        """Some of the calls."""
        return Track(self.label[rows], self.time[rows], self.sequence[rows], self.entered[rows])


class Timeline:
    """The calls of a track by label and time, to find the nearest of a label at any time."""

    def __init__(self, track: Track) -> None:
        timed = np.flatnonzero(track.time != NO_TIME)
        time = track.time[timed]
        self._first = int(time.min()) if len(time) else 0
        self._span = (int(time.max()) - self._first if len(time) else 0) + ROOM
        keys = self._keys(track.label[timed], time)
        order = np.argsort(keys, kind="stable")
        self.rows = timed[order]
        self._ranked = keys[order]

    def _keys(self, label: Int64s, time: Int64s) -> Int64s:
        """One number for label and time: equal labels lie close to each other, others far away."""
        return label * (8 * self._span) + np.clip(time - self._first, -self._span, 2 * self._span)

    def typical_gap(self) -> float:
        """Between two successive calls of one label."""
        gaps = np.diff(self._ranked)
        gaps = gaps[gaps < 4 * self._span]
        return float(np.median(gaps)) if len(gaps) else np.inf

    def gaps(self, length: int) -> Float64s:
        """For each of `length` calls the time to the nearest other call of its label."""
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

    def _distance(self, place: Int64s, keys: Int64s) -> Float64s:
        """From keys to those at these places; infinite to what is not there or of another label."""
        outside = (place < 0) | (place >= len(self._ranked))
        distance: Float64s = np.abs(self._ranked[np.where(outside, 0, place)] - keys).astype(np.float64)
        distance[outside | (distance > 4 * self._span)] = np.inf
        return distance

    def all_of(self, label: int, track: Track) -> Int64s:
        """The times of all calls of a label."""
        rows = self.rows[track.label[self.rows] == label]
        times: Int64s = track.time[rows]
        return times


def mutual(
    track: Track, mine: Timeline, others: Track, theirs: Timeline, expected: Int64s, spread: float
) -> Int64s:
    """For each call the equal one of the others that is nearest to it as it is to that, clearly so; else UNKNOWN.

    `expected` are the calls' times by the clock of the others; further apart than a few times `spread` is never
    the same. With an infinite spread any that are nearest to each other are taken.
    """
    place = np.full(len(track), UNKNOWN, np.int64)
    timed = mine.rows
    if not len(timed) or not len(theirs.rows):
        return place
    shift = expected - track.time
    there, near, next_near = theirs.around(track.label[timed], expected[timed])
    back, _, _ = mine.around(others.label[there], others.time[there] - shift[timed])
    good = (back == timed) & np.isfinite(near)
    if np.isfinite(spread):
        good &= (near <= 8 * spread) & (next_near > np.maximum(CLEARLY * near, 6 * spread))
    place[timed[good]] = there[good]
    return in_order(place)


def nearest(track: Track, others: Track, expected: Int64s, spread: float) -> Int64s:
    """For each call the equal one of the others that is clearly meant by its time; else UNKNOWN."""
    return mutual(track, Timeline(track), others, Timeline(others), expected, spread)


def in_order(place: Int64s) -> Int64s:
    """Without the places that contradict the order of others."""
    found = np.flatnonzero(place >= 0)
    values = place[found]
    before = np.maximum.accumulate(np.concatenate([np.full(1, UNKNOWN), values]))[:-1]
    after = np.minimum.accumulate(np.concatenate([values, np.full(1, np.iinfo(np.int64).max)])[::-1])[::-1][
        1:
    ]
    crossing: Bools = (values <= before) | (values >= after)
    result = place.copy()
    result[found[crossing]] = UNKNOWN
    return result


# How far two ranks' clocks are apart, as far as that decides which of their calls are the same.


PLAUSIBLE_NS = 250_000_000
"""Clocks that somebody sets are seldom further apart."""

FASTEST_DRIFT = 2e-4
FINEST_DRIFT = 1e-5
"""Drift that is left where it was estimated."""

OVERLAPPING = 0.9
FEWEST = 3
"""Distances of fewer calls say nothing of how they scatter."""

CHANCE = 6
"""Scatterings of n calls that differ by less than this part of the square root of n are alike."""

DECIDES = 12
"""Times decide between ways that labels allow if equal calls are so many scatterings apart."""

DECIDES_ALONE = 100
"""Times decide whatever labels allow if equal calls are so many scatterings apart."""

MOST = 0.7
"""So many of the calls that two ranks made at the same time must coincide."""

FINEST_NS = 5000.0
"""Ends that scatter less coincide."""

PROBES = 24
PEAKS = 2
ROUNDS = 20
WIDTHS = (1000, 200, 40)
"""Offsets are alike that differ by less than such a part of the time between equal calls."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A way to pair calls by time: their times by the other clock are `time + offset + drift * (time - center)`."""

    offset: float
    drift: float
    center: int
    spread: float
    place: Int64s
    """Of the calls that coincide."""
    matched: int

    def expected(self, time: Int64s) -> Int64s:
        """Times by the clock of the others; NO_TIME stays."""
        shift = np.rint(self.offset + self.drift * (time - self.center)).astype(np.int64)
        return np.where(time == NO_TIME, NO_TIME, time + shift)

    def scatters_like(self, sharpest: Shift) -> bool:
        """Whether it is by chance that its calls scatter more than those of another."""
        chance = 1 + CHANCE / float(min(self.matched, sharpest.matched)) ** 0.5
        return bool(self.spread <= sharpest.spread * chance)

    def perfect(self, ours: int, theirs: int) -> bool:
        """Whether all calls coincide as well as they can, by clocks that somebody set."""
        exact = self.spread <= FINEST_NS and abs(self.offset) <= PLAUSIBLE_NS
        return exact and self.matched == ours == theirs

    def like(self, other: Shift) -> bool:
        """Whether both mean the same distance of the clocks."""
        return abs(self.offset - other.offset) <= DECIDES * min(self.spread, other.spread)


def shift_of(track: Track, others: Track, place: Int64s) -> Shift | None:
    """The shift that given places mean; None where too few tell."""
    known = np.flatnonzero((place >= 0) & (track.time != NO_TIME))
    known = known[others.time[place[known]] != NO_TIME]
    if len(known) < FEWEST:
        return None
    time = track.time[known]
    apart = (others.time[place[known]] - time).astype(np.float64)
    center = int(np.median(time))
    drift = _drift(time, apart)
    offset = float(np.median(apart - drift * (time - center)))
    distance = np.abs(apart - offset - drift * (time - center))
    spread = max(float(np.median(distance)), FINEST_NS)
    close = np.full(len(place), UNKNOWN, np.int64)
    close[known] = np.where(distance <= DECIDES * spread, place[known], UNKNOWN)
    return Shift(offset, drift, center, spread, close, int(np.count_nonzero(close != UNKNOWN)))


def sharp(shift: Shift, others: Track, decides: int) -> bool:
    """Whether equal calls are apart by `decides` times as much as the ends of one scatter."""
    return decides * shift.spread <= Timeline(others).typical_gap()


def possible_shifts(track: Track, others: Track) -> list[Shift]:
    """Shifts by which many calls coincide."""
    mine, theirs = Timeline(track), Timeline(others)
    found: list[Shift] = []
    if len(mine.rows) < FEWEST or len(theirs.rows) < FEWEST:
        return found
    for offset in (0, *_peaks(track, mine, others, theirs)):
        if not any(abs(offset - other.offset) <= FINEST_NS for other in found):
            shift = _refined(track, mine, others, theirs, int(offset))
            if shift and not any(shift.like(other) for other in found):
                found.append(shift)
            if shift and shift.perfect(len(mine.rows), len(theirs.rows)):
                break
    return [
        shift
        for shift in found
        if _coincide(shift, track, others) and overlap(track, others, shift.place, shift.drift)
    ]


def best_shift(shifts: Sequence[Shift], others: Track, decides: int) -> Shift | None:
    """The shift by which most calls coincide best.

    None where others are as good, or if it is not sharp enough to decide.
    """
    if not shifts:
        return None
    sharpest = min(shifts, key=lambda shift: shift.spread)
    alike = [shift for shift in shifts if shift.scatters_like(sharpest)]
    alike = [shift for shift in alike if abs(shift.offset) <= PLAUSIBLE_NS] or alike
    most = max(shift.matched for shift in alike)
    best = [shift for shift in alike if shift.matched == most]
    return best[0] if len(best) == 1 and sharp(best[0], others, decides) else None


def overlap(track: Track, others: Track, place: Int64s, drift: float = 0.0) -> bool:
    """Whether there is a distance of the clocks with which nearly all pairs overlap in time that must."""
    paired = np.flatnonzero((place >= 0) & (track.time != NO_TIME))
    paired = paired[others.time[place[paired]] != NO_TIME]
    theirs = place[paired]
    waited = others.entered[theirs] != NO_TIME
    awaited = track.entered[paired] != NO_TIME
    if not (waited & awaited).any():
        return True
    apart = drift * (track.time[paired] - track.time[paired[0]])
    least = np.where(waited, others.entered[theirs] - track.time[paired] - apart, -np.inf)
    most = np.where(awaited, others.time[theirs] - track.entered[paired] - apart, np.inf)
    slack = FINEST_NS + (FINEST_DRIFT if drift else FASTEST_DRIFT) * float(np.ptp(track.time[paired]))
    least, most = np.sort(least), np.sort(most) + slack
    covered = np.arange(1, len(paired) + 1) - np.searchsorted(most, least)
    return bool(covered.max() >= OVERLAPPING * len(paired))


def _coincide(shift: Shift, track: Track, others: Track) -> bool:
    """Whether most of what both ranks did while both were watched is paired."""
    ours, theirs = shift.expected(track.time), others.time
    ours, theirs = ours[ours != NO_TIME], theirs[theirs != NO_TIME]
    first, last = max(ours.min(), theirs.min()), min(ours.max(), theirs.max())
    slack = int(DECIDES * shift.spread)
    both = min(np.count_nonzero((time >= first - slack) & (time <= last + slack)) for time in (ours, theirs))
    return bool(shift.matched >= MOST * both)


def _refined(track: Track, mine: Timeline, others: Track, theirs: Timeline, offset: int) -> Shift | None:
    """The shift near an offset that the calls nearest to each other have in common."""
    expected = np.where(track.time == NO_TIME, NO_TIME, track.time + offset)
    best = None
    for _ in range(ROUNDS):
        shift = shift_of(track, others, mutual(track, mine, others, theirs, expected, np.inf))
        if not shift or (best and shift.spread >= best.spread and shift.matched <= best.matched):
            break
        best, expected = shift, shift.expected(track.time)
    if not best:
        return None
    place = mutual(track, mine, others, theirs, best.expected(track.time), best.spread)
    return replace(best, place=place, matched=int(np.count_nonzero(place != UNKNOWN)))


def _peaks(track: Track, mine: Timeline, others: Track, theirs: Timeline) -> Iterator[int]:
    """Offsets by which most of some calls coincide with an equal one."""
    probes = mine.rows[np.linspace(0, len(mine.rows) - 1, min(PROBES, len(mine.rows))).astype(np.int64)]
    apart = np.sort(
        np.concatenate(
            [theirs.all_of(int(track.label[row]), others) - track.time[row] for row in probes.tolist()]
        )
    )
    gap = theirs.typical_gap()
    for part in WIDTHS if np.isfinite(gap) else WIDTHS[:1]:
        width = max(int(gap / part) if np.isfinite(gap) else 0, int(FINEST_NS))
        votes = np.searchsorted(apart, apart + width, side="right") - np.arange(len(apart))
        for _ in range(PEAKS):
            if votes.max(initial=0) < FEWEST:
                break
            best = int(np.argmax(votes))
            middle = int(apart[best + int(votes[best]) // 2])
            yield middle
            votes[np.abs(apart - middle) <= 2 * width] = 0


def _drift(time: Int64s, apart: Float64s) -> float:
    """How much faster the other clock goes, from the first and the last third of the distances."""
    third = len(time) // 3
    if third < FEWEST:
        return 0.0
    length = float(np.median(time[-third:]) - np.median(time[:third]))
    if length <= 0:
        return 0.0
    slope = float(np.median(apart[-third:]) - np.median(apart[:third])) / length
    return slope if abs(slope) <= FASTEST_DRIFT else 0.0
