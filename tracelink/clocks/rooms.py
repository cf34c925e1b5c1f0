"""What bounds at different times leave of an offset and a drift: a polygon, for many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.segments import Floats
from tracelink.events import Int64s

HALVINGS = 40
STRETCHES = 32


@dataclass(frozen=True, slots=True)
class Rooms:
    """One row for each offset: upper and lower bounds of offset + drift * time, and their times."""

    upper: Floats
    upper_time: Floats
    lower: Floats
    lower_time: Floats

    def at(self, drift: Floats) -> tuple[Floats, Floats]:
        """Between what the offsets must lie at such drifts."""
        return (
            (self.lower - drift[:, None] * self.lower_time).max(axis=1),
            (self.upper - drift[:, None] * self.upper_time).min(axis=1),
        )

    def roomiest(self, low: Floats, high: Floats) -> Floats:
        """The drifts that leave most room: room is concave, so its growth says on which side they lie."""
        line = np.arange(len(low))
        for _ in range(HALVINGS):
            drift = (low + high) / 2
            above = (self.upper - drift[:, None] * self.upper_time).argmin(axis=1)
            below = (self.lower - drift[:, None] * self.lower_time).argmax(axis=1)
            grows = self.lower_time[line, below] > self.upper_time[line, above]
            low, high = np.where(grows, drift, low), np.where(grows, high, drift)
        return (low + high) / 2

    def drifts(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """The least and the greatest drift that leaves room, rather too wide than too narrow."""
        best = self.roomiest(low, high)
        lacking = np.minimum(self._room(best), 0)
        return self._edge(best, low, lacking), self._edge(best, high, lacking)

    def _edge(self, inside: Floats, limit: Floats, lacking: Floats) -> Floats:
        """How far drift can go from `inside` towards its limit."""
        free = self._room(limit) >= lacking
        outside = limit
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            fits = self._room(middle) >= lacking
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return np.where(free, limit, outside)

    def _room(self, drift: Floats) -> Floats:
        low, high = self.at(drift)
        return high - low


def tightest(bound: Floats, time: Floats, cell: Int64s, best: Floats, when: Floats) -> None:
    """Puts the least bound of each cell into `best`, and its time into `when`."""
    np.minimum.at(best, cell, bound)
    least = bound == best[cell]
    when[cell[least]] = time[least]


def rooms_of(clock: Int64s, clocks: int, upper: tuple[Floats, Floats], lower: tuple[Floats, Floats]) -> Rooms:
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
