"""Robust slopes: how values of each clock grow with time, and within what limits that is certain."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.segments import Floats, Segments
from tracelink.events import Bools, Int64s

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

    def __init__(self, clock: Int64s, time: Floats, clocks: int) -> None:
        sizes = np.bincount(clock, minlength=clocks)
        order = np.lexsort((time, clock))
        place = np.empty(len(clock), np.int64)
        place[order] = np.arange(len(clock)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        point = place * np.minimum(sizes, POINTS)[clock] // sizes[clock]
        self._points = Segments(clock * POINTS + point, clocks * POINTS)
        self._time = self._points.median(time).reshape(clocks, POINTS)
        self._count = np.minimum(sizes, POINTS)

    def of(self, values: Floats) -> tuple[Floats, Floats]:
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

    def _scatter(self, away: Floats) -> Floats:
        """How far the points of each clock are from its line; NaN where that is not known."""
        few = self._count < FEWEST_POINTS
        farthest = np.where(np.isfinite(away), away, 0.0).max(axis=1)
        own = np.where(few, farthest, DEVIATIONS * _middle_of(away))
        telling = own[(self._count > 2) & (few.all() | ~few)]
        usual = float(np.median(telling)) if len(telling) else 0.0
        several = (self._count > 1) & (usual > 0)
        return np.where(few, np.where(several, np.maximum(own, usual), np.nan), own)

    def _middle(self, points: Floats) -> Floats:
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

    def _width(self, given: Bools) -> Floats:
        """The root of the summed squares of the points' distances from their mean time."""
        count = np.maximum(given.sum(axis=1), 1)
        time = np.where(given, self._time, 0.0)
        away = np.where(given, time - (time.sum(axis=1) / count)[:, None], 0.0)
        width: Floats = np.sqrt((away**2).sum(axis=1))
        return width


def _middle_of(rows: Floats) -> Floats:
    """The median of each row's numbers; 0 where it has none."""
    filled = np.sort(np.where(np.isfinite(rows), rows, np.inf), axis=1)
    count = np.isfinite(rows).sum(axis=1)
    picked = [filled[np.arange(len(rows)), np.maximum(place, 0)] for place in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, (picked[0] + np.where(count > 0, picked[1], 0.0)) / 2, 0.0)
