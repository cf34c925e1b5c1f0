"""Robust lines, fitted and polished."""

from __future__ import annotations

import numpy as np

from tracelink.clock.bounds import Rooms, rooms_of
from tracelink.clock.observations import MAX_DRIFT, Lines, Passages, Segments, linked
from tracelink.model.columns import Bools, Float64s, Int64s

# Robust slopes: how values of each clock grow with time, and within what limits that is certain.


POINTS = 48
"""Rows of a clock are put together to at most so many points by medians: all pairs of these are looked at."""

SIGMAS = 3.0
FEWEST_POINTS = 5
"""Fewer scatter as those of other clocks do, at least."""

DEVIATIONS = 1.4826
"""Standard deviations in the median distance from the median of what scatters normally."""


class Slopes:
    """For each clock the median of the slopes between any two of its points, weighed by how far they are apart.

    Collectives come in bursts: the slope between two of one burst is noise, and there are many of those.
    """

    def __init__(self, clock: Int64s, time: Float64s, clocks: int) -> None:
        sizes = np.bincount(clock, minlength=clocks)
        order = np.lexsort((time, clock))
        place = np.empty(len(clock), np.int64)
        place[order] = np.arange(len(clock)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        point = place * np.minimum(sizes, POINTS)[clock] // sizes[clock]
        self._points = Segments(clock * POINTS + point, clocks * POINTS)
        self._time = self._points.median(time).reshape(clocks, POINTS)
        self._count = np.minimum(sizes, POINTS)

    def of(self, values: Float64s) -> tuple[Float64s, Float64s]:
        """For each clock the slope of its values, and how far it can be from the true one (inf: not known)."""
        points = self._points.median(values).reshape(self._time.shape)
        slope = self._middle(points)
        given = np.isfinite(points)
        rest = np.where(given, points - slope[:, None] * np.where(given, self._time, 0.0), np.nan)
        scatter = self._scatter(np.abs(rest - _middle_of(rest)[:, None]))
        width = self._width(given)
        known = np.isfinite(scatter) & (width > 0)
        half = np.where(known, SIGMAS * scatter / np.where(known, width, 1.0), np.inf)
        return slope, half

    def _scatter(self, away: Float64s) -> Float64s:
        """How far the points of each clock are from its line; NaN where that is not known."""
        few = self._count < FEWEST_POINTS
        farthest = np.where(np.isfinite(away), away, 0.0).max(axis=1)
        own = np.where(few, farthest, DEVIATIONS * _middle_of(away))
        telling = own[(self._count > 2) & (few.all() | ~few)]
        usual = float(np.median(telling)) if len(telling) else 0.0
        several = (self._count > 1) & (usual > 0)
        return np.where(few, np.where(several, np.maximum(own, usual), np.nan), own)

    def _middle(self, points: Float64s) -> Float64s:
        """The weighted median of the slopes; 0 where there are none."""
        one, other = np.triu_indices(POINTS, 1)
        apart = self._time[:, other] - self._time[:, one]
        usable = np.isfinite(apart) & (apart > 0) & np.isfinite(points[:, other] - points[:, one])
        weight = np.where(usable, apart, 0.0)
        slopes = np.where(usable, points[:, other] - points[:, one], 0.0) / np.where(usable, apart, 1.0)
        order = np.argsort(slopes, axis=1)
        reached = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
        middle = (reached < reached[:, -1:] / 2).sum(axis=1)
        place = np.take_along_axis(order, np.minimum(middle, len(one) - 1)[:, None], axis=1)
        found = np.take_along_axis(slopes, place, axis=1)[:, 0]
        return np.where(reached[:, -1] > 0, found, 0.0)

    def _width(self, given: Bools) -> Float64s:
        """The root of the summed squares of the points' distances from their mean time."""
        count = np.maximum(given.sum(axis=1), 1)
        time = np.where(given, self._time, 0.0)
        away = np.where(given, time - (time.sum(axis=1) / count)[:, None], 0.0)
        width: Float64s = np.sqrt((away**2).sum(axis=1))
        return width


def _middle_of(rows: Float64s) -> Float64s:
    """The median of each row's numbers; 0 where it has none."""
    filled = np.sort(np.where(np.isfinite(rows), rows, np.inf), axis=1)
    count = np.isfinite(rows).sum(axis=1)
    picked = [filled[np.arange(len(rows)), np.maximum(place, 0)] for place in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, (picked[0] + np.where(count > 0, picked[1], 0.0)) / 2, 0.0)


# Where clocks stand by the ends of their meetings: robust lines, laid from clock to clock and then polished.


POLISHES = 40
SETTLED_NS = 50.0
"""Polishing ends when no time changes by more."""

FINE_DRIFT = 15e-6
"""A drift that is known so well does less harm than none, also where none cannot be excluded."""


def line_up(passages: Passages, unchanged: Float64s, *, drifting: bool) -> Lines:
    """A line for each clock; `unchanged` are the offsets of clocks that need no correction.

    Of clocks that are linked in any way, the lowest one is not corrected. Where no ends say so, none drifts unless
    `drifting`.
    """
    laying = _Laying(passages, unchanged, drifting)
    while not laying.laid.all():
        if not laying.by_ends() and not laying.by_bounds():
            laying.lay_first()
    return _polished(passages.where(laying.comparable), laying)


class _Laying:
    """Lines of those clocks that are laid, each along what it shares with those laid before."""

    def __init__(self, passages: Passages, unchanged: Float64s, drifting: bool) -> None:
        clocks = len(unchanged)
        self._steepest = MAX_DRIFT / (1 + MAX_DRIFT) if drifting else 0.0
        self.passages = passages
        self.lines = Lines(unchanged.copy(), np.zeros(clocks))
        self.laid = np.zeros(clocks, np.bool_)
        self.drifts = np.zeros(clocks, np.bool_)
        """Whether its drift is certain enough to be used."""
        self._doubt = np.zeros(clocks)
        """How far each drift can be from the true one."""
        ended = np.isfinite(passages.end)
        several = np.bincount(passages.meeting[ended], minlength=passages.meetings) > 1
        self.comparable = ended & several[passages.meeting]
        rows = passages.where(self.comparable)
        self.union = linked(rows.meeting, rows.clock, passages.meetings, clocks)
        """For each clock the lowest of those that it is compared with by ends, directly or not."""

    def lay_first(self) -> None:
        """The lowest clock that nothing links with those laid is not corrected."""
        self.laid[np.flatnonzero(~self.laid)[0]] = True

    def by_ends(self) -> bool:
        """Lays those clocks whose leaving can be compared with that of clocks laid before."""
        known = self.comparable & self.laid[self.passages.clock]
        rows = self.passages.where(known)
        by_meeting = Segments(rows.meeting, self.passages.meetings)
        common = by_meeting.median(self.lines.at(rows.clock, rows.end))
        doubt = by_meeting.largest(self._doubt[rows.clock])
        new = self.comparable & ~known & np.isfinite(common)[self.passages.meeting]
        if not new.any():
            return False
        rows = self.passages.where(new)
        self._lay(rows, common[rows.meeting], doubt[rows.meeting])
        return True

    def _lay(self, rows: Passages, common: Float64s, doubt: Float64s) -> None:
        clocks = len(self.laid)
        by_clock = Segments(rows.clock, clocks)
        slope, half = Slopes(rows.clock, common, clocks).of(rows.end - common)
        doubt = np.hypot(half, np.nan_to_num(by_clock.median(doubt)))
        new = by_clock.sizes > 0
        certain = new & ((np.abs(slope) > doubt) | (doubt < FINE_DRIFT)) & (np.abs(slope) + doubt < MAX_DRIFT)
        slope = np.where(certain, slope, 0.0)
        self.lines.offset[new] = by_clock.median(rows.end - common - slope[rows.clock] * common)[new]
        self.lines.drift[new] = (slope / (1 + slope))[new]
        self._doubt[new] = np.where(certain, doubt, 0.0)[new]
        self.drifts |= certain
        self.laid |= new

    def by_bounds(self) -> bool:
        """Lays one clock of each union, as near to no correction as clocks laid before allow."""
        passages, laid = self.passages, self.laid
        times = passages.by(self.lines).where(laid[passages.clock])
        by_meeting = Segments(times.meeting, passages.meetings)
        latest, earliest = by_meeting.largest(times.entered), by_meeting.smallest(times.left)
        rows = passages.where(~laid[passages.clock])
        latest, earliest = latest[rows.meeting], earliest[rows.meeting]
        bounded = np.isfinite(rows.left - latest) | np.isfinite(rows.entered - earliest)
        if not bounded.any():
            return False
        chosen = np.unique(rows.clock[bounded])
        chosen = chosen[np.unique(self.union[chosen], return_index=True)[1]]
        upper, lower = (rows.left - latest, latest), (rows.entered - earliest, earliest)
        self._lay_within(rooms_of(rows.clock, len(laid), upper, lower), chosen)
        return True

    def _lay_within(self, rooms: Rooms, chosen: Int64s) -> None:
        """Lays clocks without drift where that leaves room, else along the drift that leaves most."""
        none, limit = np.zeros(len(self.laid)), np.full(len(self.laid), self._steepest)
        low, high = rooms.at(none)
        slope = np.where(low <= high, 0.0, rooms.roomiest(-limit, limit))
        low, high = rooms.at(slope)
        offset = np.clip(self.lines.offset, np.minimum(low, high), np.maximum(low, high))
        self.lines.offset[chosen] = offset[chosen]
        self.lines.drift[chosen] = (slope / (1 + slope))[chosen]
        self.laid[chosen] = True


def _polished(ends: Passages, laying: _Laying) -> Lines:
    """Median polish: a meeting's end is the median of its clocks, a clock's line runs through its meetings."""
    lines, start = laying.lines, laying.lines
    if not len(ends):
        return lines
    clocks = len(laying.laid)
    by_meeting, by_clock = Segments(ends.meeting, ends.meetings), Segments(ends.clock, clocks)
    slopes = Slopes(ends.clock, lines.at(ends.clock, ends.end), clocks) if laying.drifts.any() else None
    for _ in range(POLISHES):
        time = lines.at(ends.clock, ends.end)
        rest = time - by_meeting.median(time)[ends.meeting]
        drift = _credible(slopes.of(rest)[0], laying.drifts, lines) if slopes else np.zeros(clocks)
        shift = np.nan_to_num(by_clock.median(rest - drift[ends.clock] * time))
        lines = lines.then(shift, drift)
        if np.abs(shift[ends.clock] + drift[ends.clock] * time).max() < SETTLED_NS:
            break
    return _anchored(lines, start, laying)


def _credible(drift: Float64s, drifts: Bools, lines: Lines) -> Float64s:
    return np.where(drifts & (np.abs(lines.drift + drift) < MAX_DRIFT), drift, 0.0)


def _anchored(lines: Lines, start: Lines, laying: _Laying) -> Lines:
    """The lines, shifted so that the lowest clock of each union is where it was laid."""
    lowest = laying.union
    moved = (start.offset - lines.offset)[lowest] * (1 - lines.drift[lowest])
    return lines.then(moved, np.zeros(len(lowest)))
