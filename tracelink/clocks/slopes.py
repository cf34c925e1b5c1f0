"""Robust slopes: how values of each clock grow with time, and within what limits that is certain."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.segments import Floats, Segments
from tracelink.events import Int64s

POINTS = 48
"""Rows of a clock are put together to at most so many points by medians: all pairs of these are looked at."""

SIGMAS = 3.0


class Slopes:
    """Theil's slope for each clock: the median of the slopes between any two of its points."""

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
        one, other = np.triu_indices(POINTS, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            slopes = (points[:, other] - points[:, one]) / (self._time[:, other] - self._time[:, one])
        slopes = np.sort(np.where(np.isfinite(slopes), slopes, np.inf), axis=1)
        pairs = np.isfinite(slopes).sum(axis=1)
        middle = (_at(slopes, (pairs - 1) // 2) + _at(slopes, pairs // 2)) / 2
        n = self._count
        doubt = SIGMAS * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
        low, high = np.floor((pairs - doubt) / 2), np.ceil((pairs + doubt) / 2)
        known = (low >= 0) & (high < pairs)
        low, high = _at(slopes, low.astype(np.int64)), _at(slopes, high.astype(np.int64))
        known &= np.isfinite(middle)
        with np.errstate(invalid="ignore"):
            half = np.where(known, np.maximum(high - middle, middle - low), np.inf)
        return np.where(np.isfinite(middle), middle, 0.0), half


def _at(rows: Floats, place: Int64s) -> Floats:
    result: Floats = rows[np.arange(len(rows)), np.clip(place, 0, rows.shape[1] - 1)]
    return result
