"""Telling by time which of several equal calls of two ranks are the same, though their clocks may differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.alignment import NONE

Floats = npt.NDArray[np.float64]

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

    def gaps(self, length: int) -> Floats:
        """For each of `length` calls the time to the nearest other call of its label."""
        between = np.diff(self._ranked).astype(np.float64)
        between[between > 4 * self._span] = np.inf
        result = np.full(length, np.inf)
        result[self.rows] = np.minimum(np.append(np.inf, between), np.append(between, np.inf))
        return result

    def around(self, label: Int64s, time: Int64s) -> tuple[Int64s, Floats, Floats]:
        """For each label and time the row of the nearest call, its distance, and that of the next nearest."""
        keys = self._keys(label, time)
        right = np.searchsorted(self._ranked, keys)
        before, earlier, after, later = (self._distance(right + step, keys) for step in (-1, -2, 0, 1))
        left = before <= after
        near = np.where(left, before, after)
        next_near = np.where(left, np.minimum(after, earlier), np.minimum(before, later))
        row = self.rows[np.clip(np.where(left, right - 1, right), 0, len(self.rows) - 1)]
        return row, near, next_near

    def _distance(self, place: Int64s, keys: Int64s) -> Floats:
        """From keys to those at these places; infinite to what is not there or of another label."""
        outside = (place < 0) | (place >= len(self._ranked))
        distance: Floats = np.abs(self._ranked[np.where(outside, 0, place)] - keys).astype(np.float64)
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
    """For each call the equal one of the others that is nearest to it as it is to that, clearly so; else NONE.

    `expected` are the calls' times by the clock of the others; further apart than a few times `spread` is never
    the same. With an infinite spread any that are nearest to each other are taken.
    """
    place = np.full(len(track), NONE, np.int64)
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
    """For each call the equal one of the others that is clearly meant by its time; else NONE."""
    return mutual(track, Timeline(track), others, Timeline(others), expected, spread)


def in_order(place: Int64s) -> Int64s:
    """Without the places that contradict the order of others."""
    found = np.flatnonzero(place >= 0)
    values = place[found]
    before = np.maximum.accumulate(np.concatenate([np.full(1, NONE), values]))[:-1]
    after = np.minimum.accumulate(np.concatenate([values, np.full(1, np.iinfo(np.int64).max)])[::-1])[::-1][
        1:
    ]
    crossing: Bools = (values <= before) | (values >= after)
    result = place.copy()
    result[found[crossing]] = NONE
    return result
