"""A robust first estimate: a line for each clock, fitted from clock to clock and then polished."""

from __future__ import annotations

import numpy as np

from tracelink._match.bounds import FeasibleRegions, feasible_regions
from tracelink._match.observations import MAX_DRIFT, ClockLines, Observations, Segments, linked
from tracelink._model.columns import Bools, Float64s, Int64s

# Robust slopes of values over time, for each clock, with their uncertainty.


POINTS = 48
"""The rows of a clock are reduced to at most so many points by medians; all pairs of points are used."""

BATCH = 512
"""Clocks whose slopes are in memory at once."""

SIGMAS = 3.0
FEWEST_POINTS = 5
"""With fewer points the scatter is at least that of other clocks."""

DEVIATIONS = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class Slopes:
    """For each clock the median of the slopes between any two of its points, weighted by their distance in time.

    Collectives come in bursts: slopes within a burst are noise, and there are many of them.
    """

    def __init__(self, clock: Int64s, time: Float64s, clocks: int) -> None:
        sizes = np.bincount(clock, minlength=clocks)
        order = np.lexsort((time, clock))
        index = np.empty(len(clock), np.int64)
        index[order] = np.arange(len(clock)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        point = index * np.minimum(sizes, POINTS)[clock] // sizes[clock]
        self._points = Segments(clock * POINTS + point, clocks * POINTS)
        self._time = self._points.median(time).reshape(clocks, POINTS)
        self._count = np.minimum(sizes, POINTS)

    def of(self, values: Float64s) -> tuple[Float64s, Float64s]:
        """For each clock the slope of its values, and its uncertainty (inf: unknown)."""
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
        """The scatter of the points of each clock around its line; NaN if unknown."""
        few = self._count < FEWEST_POINTS
        farthest = np.where(np.isfinite(away), away, 0.0).max(axis=1)
        own = np.where(few, farthest, DEVIATIONS * _middle_of(away))
        reliable = own[(self._count > 2) & (few.all() | ~few)]
        typical = float(np.median(reliable)) if len(reliable) else 0.0
        several = (self._count > 1) & (typical > 0)
        return np.where(few, np.where(several, np.maximum(own, typical), np.nan), own)

    def _middle(self, points: Float64s) -> Float64s:
        """The weighted median of the slopes; 0 without any."""
        chunks = [slice(begin, begin + BATCH) for begin in range(0, len(points), BATCH)]
        return np.concatenate([_middle_slopes(points[chunk], self._time[chunk]) for chunk in chunks])

    def _width(self, given: Bools) -> Float64s:
        """The root of the summed squares of the points' distances from their mean time."""
        count = np.maximum(given.sum(axis=1), 1)
        time = np.where(given, self._time, 0.0)
        away = np.where(given, time - (time.sum(axis=1) / count)[:, None], 0.0)
        width: Float64s = np.sqrt((away**2).sum(axis=1))
        return width


def _middle_slopes(points: Float64s, time: Float64s) -> Float64s:
    """The median of the slopes between any two points of each row, weighted by their distance in time."""
    first, second = np.triu_indices(POINTS, 1)
    distance = time[:, second] - time[:, first]
    usable = np.isfinite(distance) & (distance > 0) & np.isfinite(points[:, second] - points[:, first])
    weight = np.where(usable, distance, 0.0)
    slopes = np.where(usable, points[:, second] - points[:, first], 0.0) / np.where(usable, distance, 1.0)
    order = np.argsort(slopes, axis=1)
    reached = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    middle = (reached < reached[:, -1:] / 2).sum(axis=1)
    index = np.take_along_axis(order, np.minimum(middle, len(first) - 1)[:, None], axis=1)
    found = np.take_along_axis(slopes, index, axis=1)[:, 0]
    return np.where(reached[:, -1] > 0, found, 0.0)


def _middle_of(rows: Float64s) -> Float64s:
    """The median of each row's numbers; 0 without any."""
    filled = np.sort(np.where(np.isfinite(rows), rows, np.inf), axis=1)
    count = np.isfinite(rows).sum(axis=1)
    picked = [filled[np.arange(len(rows)), np.maximum(index, 0)] for index in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, (picked[0] + np.where(count > 0, picked[1], 0.0)) / 2, 0.0)


# Lines: fitted from clock to clock by the ends of their meetings, then polished.


POLISHES = 40
SETTLED_NS = 50.0
"""Polishing stops when no time changes by more."""

FINE_DRIFT = 15e-6
"""A drift with a smaller uncertainty than this is used even if zero drift is possible."""


def fit_lines(observations: Observations, unchanged: Float64s, *, drifting: bool) -> ClockLines:
    """A line for each clock; `unchanged` are the offsets of clocks that need no correction.

    Of connected clocks the lowest one is not corrected. Clocks without ends to compare have no drift unless
    `drifting`.
    """
    fit = _LineFit(observations, unchanged, drifting)
    while not fit.fitted.all():
        if not fit.fit_by_ends() and not fit.fit_by_bounds():
            fit.fix_first()
    return _polished(observations.where(fit.comparable), fit)


class _LineFit:
    """The lines of the clocks fitted so far, each by what it shares with those fitted before."""

    def __init__(self, observations: Observations, unchanged: Float64s, drifting: bool) -> None:
        clocks = len(unchanged)
        self._steepest = MAX_DRIFT / (1 + MAX_DRIFT) if drifting else 0.0
        self.observations = observations
        self.lines = ClockLines(unchanged.copy(), np.zeros(clocks))
        self.fitted = np.zeros(clocks, np.bool_)
        self.drifts = np.zeros(clocks, np.bool_)
        """Whether its drift is certain enough to be used."""
        self._uncertainty = np.zeros(clocks)
        """Of each drift."""
        has_end = np.isfinite(observations.end)
        several = np.bincount(observations.meeting[has_end], minlength=observations.meetings) > 1
        self.comparable = has_end & several[observations.meeting]
        rows = observations.where(self.comparable)
        self.component = linked(rows.meeting, rows.clock, observations.meetings, clocks)
        """For each clock the lowest one that it is compared with by ends, directly or through others."""

    def fix_first(self) -> None:
        """The lowest clock without a connection to the fitted ones is not corrected."""
        self.fitted[np.flatnonzero(~self.fitted)[0]] = True

    def fit_by_ends(self) -> bool:
        """Fits the clocks with exits that can be compared with those of fitted clocks."""
        known = self.comparable & self.fitted[self.observations.clock]
        rows = self.observations.where(known)
        by_meeting = Segments(rows.meeting, self.observations.meetings)
        common = by_meeting.median(self.lines.at(rows.clock, rows.end))
        uncertainty = by_meeting.largest(self._uncertainty[rows.clock])
        new = self.comparable & ~known & np.isfinite(common)[self.observations.meeting]
        if not new.any():
            return False
        rows = self.observations.where(new)
        self._fit(rows, common[rows.meeting], uncertainty[rows.meeting])
        return True

    def _fit(self, rows: Observations, common: Float64s, uncertainty: Float64s) -> None:
        clocks = len(self.fitted)
        by_clock = Segments(rows.clock, clocks)
        slope, half = Slopes(rows.clock, common, clocks).of(rows.end - common)
        uncertainty = np.hypot(half, np.nan_to_num(by_clock.median(uncertainty)))
        new = by_clock.sizes > 0
        certain = (
            new
            & ((np.abs(slope) > uncertainty) | (uncertainty < FINE_DRIFT))
            & (np.abs(slope) + uncertainty < MAX_DRIFT)
        )
        slope = np.where(certain, slope, 0.0)
        self.lines.offset[new] = by_clock.median(rows.end - common - slope[rows.clock] * common)[new]
        self.lines.drift[new] = (slope / (1 + slope))[new]
        self._uncertainty[new] = np.where(certain, uncertainty, 0.0)[new]
        self.drifts |= certain
        self.fitted |= new

    def fit_by_bounds(self) -> bool:
        """Fits one clock of each component, as close to no correction as the fitted clocks allow."""
        observations, fitted = self.observations, self.fitted
        times = observations.by(self.lines).where(fitted[observations.clock])
        by_meeting = Segments(times.meeting, observations.meetings)
        latest, earliest = by_meeting.largest(times.entered), by_meeting.smallest(times.left)
        rows = observations.where(~fitted[observations.clock])
        latest, earliest = latest[rows.meeting], earliest[rows.meeting]
        bounded = np.isfinite(rows.left - latest) | np.isfinite(rows.entered - earliest)
        if not bounded.any():
            return False
        chosen = np.unique(rows.clock[bounded])
        chosen = chosen[np.unique(self.component[chosen], return_index=True)[1]]
        upper, lower = (rows.left - latest, latest), (rows.entered - earliest, earliest)
        self._fit_within(feasible_regions(rows.clock, len(fitted), upper, lower), chosen)
        return True

    def _fit_within(self, regions: FeasibleRegions, chosen: Int64s) -> None:
        """Fits clocks without drift if that is feasible, else with the drift of the widest range of offsets."""
        no_drift, limit = np.zeros(len(self.fitted)), np.full(len(self.fitted), self._steepest)
        low, high = regions.at(no_drift)
        slope = np.where(low <= high, 0.0, regions.widest(-limit, limit))
        low, high = regions.at(slope)
        offset = np.clip(self.lines.offset, np.minimum(low, high), np.maximum(low, high))
        self.lines.offset[chosen] = offset[chosen]
        self.lines.drift[chosen] = (slope / (1 + slope))[chosen]
        self.fitted[chosen] = True


def _polished(ends: Observations, fit: _LineFit) -> ClockLines:
    """Median polish: a meeting's end is the median of its clocks, a clock's line is fitted to its meetings."""
    lines, start = fit.lines, fit.lines
    if not len(ends):
        return lines
    clocks = len(fit.fitted)
    by_meeting, by_clock = Segments(ends.meeting, ends.meetings), Segments(ends.clock, clocks)
    slopes = Slopes(ends.clock, lines.at(ends.clock, ends.end), clocks) if fit.drifts.any() else None
    for _ in range(POLISHES):
        time = lines.at(ends.clock, ends.end)
        rest = time - by_meeting.median(time)[ends.meeting]
        drift = _credible(slopes.of(rest)[0], fit.drifts, lines) if slopes else np.zeros(clocks)
        shift = np.nan_to_num(by_clock.median(rest - drift[ends.clock] * time))
        lines = lines.then(shift, drift)
        if np.abs(shift[ends.clock] + drift[ends.clock] * time).max() < SETTLED_NS:
            break
    return _anchored(lines, start, fit)


def _credible(drift: Float64s, drifts: Bools, lines: ClockLines) -> Float64s:
    return np.where(drifts & (np.abs(lines.drift + drift) < MAX_DRIFT), drift, 0.0)


def _anchored(lines: ClockLines, start: ClockLines, fit: _LineFit) -> ClockLines:
    """The lines, shifted so that the lowest clock of each component is where it was fitted."""
    lowest = fit.component
    moved = (start.offset - lines.offset)[lowest] * (1 - lines.drift[lowest])
    return lines.then(moved, np.zeros(len(lowest)))
