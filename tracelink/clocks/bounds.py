"""Between what the offset of each clock must lie, whatever its drift within the limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.envelopes import Envelopes
from tracelink.clocks.passages import MAX_DRIFT
from tracelink.clocks.segments import Floats
from tracelink.events import Int64s

HALVINGS = 60
AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of clocks: upper and lower bounds of what the first shows more than the second, and their times."""

    one: Int64s
    other: Int64s
    upper: Floats
    upper_time: Floats
    lower: Floats
    lower_time: Floats

    def room(self, drift: Floats) -> tuple[Floats, Floats]:
        """How much room offsets have between both bounds at such drifts, and how it grows with drift."""
        above = self.upper - drift[:, None] * self.upper_time
        below = self.lower - drift[:, None] * self.lower_time
        line, high, low = np.arange(len(drift)), above.argmin(axis=1), below.argmax(axis=1)
        room = above[line, high] - below[line, low]
        return room, self.lower_time[line, low] - self.upper_time[line, high]


def offset_bounds(envelopes: Envelopes, drift: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the offsets from the lowest clock (inf: none); `drift` is corrected already."""
    clocks = len(drift)
    most, least = ((limit - drift) / (1 - drift) for limit in (MAX_DRIFT, -MAX_DRIFT))
    most[0] = least[0] = 0.0
    chunks = list(_pairs(envelopes))
    drifts = np.full((clocks, clocks), np.inf)
    drifts[:, 0], drifts[0, :] = most, -least
    ranges = []
    for pairs in chunks:
        low, high = _drift_range(pairs, *_difference(pairs, least, most))
        drifts[pairs.one, pairs.other] = np.minimum(drifts[pairs.one, pairs.other], high)
        drifts[pairs.other, pairs.one] = np.minimum(drifts[pairs.other, pairs.one], -low)
        ranges.append((low, high))
    most, least = _farthest(drifts), -_farthest(drifts.T)
    offsets = np.full((clocks, clocks), np.inf)
    for pairs, (low, high) in zip(chunks, ranges, strict=True):
        lowest, highest = _difference(pairs, least, most)
        low, high = np.maximum(low, lowest)[:, None], np.minimum(high, highest)[:, None]
        offsets[pairs.one, pairs.other] = (pairs.upper - low * pairs.upper_time).min(axis=1)
        offsets[pairs.other, pairs.one] = -(pairs.lower - high * pairs.lower_time).max(axis=1)
    return -_farthest(offsets.T), _farthest(offsets)


def _difference(pairs: Pairs, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    return least[pairs.one] - most[pairs.other], most[pairs.one] - least[pairs.other]


def _pairs(envelopes: Envelopes) -> list[Pairs]:
    """All pairs of clocks that anything bounds."""
    bounded = np.isfinite(envelopes.bound).any(axis=2)
    one, other = np.nonzero(np.triu(bounded | bounded.T, 1))
    chunks = [slice(first, first + AT_ONCE) for first in range(0, len(one), AT_ONCE)]
    bound, time = envelopes.bound, envelopes.time
    return [
        Pairs(i, j, bound[i, j], time[i, j], -bound[j, i], time[j, i])
        for i, j in ((one[chunk], other[chunk]) for chunk in chunks)
    ]


def _drift_range(pairs: Pairs, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """The drifts that leave room for an offset, rather too wide than too narrow."""
    best = _roomiest(pairs, least, most)
    lacking = np.minimum(pairs.room(best)[0], 0)
    return tuple(_edge(pairs, best, limit, lacking) for limit in (least, most))  # type: ignore[return-value]


def _roomiest(pairs: Pairs, low: Floats, high: Floats) -> Floats:
    """The drift that leaves most room: room is concave, so its growth says on which side it lies."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        grows = pairs.room(middle)[1] > 0
        low, high = np.where(grows, middle, low), np.where(grows, high, middle)
    return (low + high) / 2


def _edge(pairs: Pairs, inside: Floats, outside: Floats, lacking: Floats) -> Floats:
    """How far drift can go from `inside` towards `outside`."""
    free = pairs.room(outside)[0] >= lacking
    limit = outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        fits = pairs.room(middle)[0] >= lacking
        inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
    return np.where(free, limit, outside)


def _farthest(most: Floats) -> Floats:
    """For each clock how much more than the lowest it can show, by chains of pairs."""
    reach = np.full(len(most), np.inf)
    reach[0] = 0.0
    for _ in range(len(most)):
        nearer = np.minimum(reach, (most + reach).min(axis=1))
        if np.array_equal(nearer, reach):
            break
        reach = nearer
    return reach
