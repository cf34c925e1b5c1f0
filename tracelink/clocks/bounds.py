"""Between what the offset of each clock must lie, whatever its drift within the limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.envelopes import Envelopes
from tracelink.clocks.passages import MAX_DRIFT
from tracelink.clocks.rooms import Rooms
from tracelink.clocks.segments import Floats
from tracelink.events import Int64s

AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of clocks, and what is left of the offset and drift of the one from the other."""

    one: Int64s
    other: Int64s
    rooms: Rooms


def offset_bounds(envelopes: Envelopes, drift: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the offsets from the lowest clock (inf: none); `drift` is corrected already."""
    clocks = len(drift)
    least, most = drift_limits(drift)
    chunks = list(_pairs(envelopes))
    drifts = np.full((clocks, clocks), np.inf)
    drifts[:, 0], drifts[0, :] = most, -least
    ranges = []
    for pairs in chunks:
        low, high = pairs.rooms.drifts(*_difference(pairs, least, most))
        drifts[pairs.one, pairs.other] = np.minimum(drifts[pairs.one, pairs.other], high)
        drifts[pairs.other, pairs.one] = np.minimum(drifts[pairs.other, pairs.one], -low)
        ranges.append((low, high))
    most, least = _farthest(drifts), -_farthest(drifts.T)
    offsets = np.full((clocks, clocks), np.inf)
    for pairs, (low, high) in zip(chunks, ranges, strict=True):
        lowest, highest = _difference(pairs, least, most)
        # as no time is negative, the least drift leaves the greatest offset
        offsets[pairs.one, pairs.other] = pairs.rooms.at(np.maximum(low, lowest))[1]
        offsets[pairs.other, pairs.one] = -pairs.rooms.at(np.minimum(high, highest))[0]
    return -_farthest(offsets.T), _farthest(offsets)


def lacking_room(envelopes: Envelopes, drift: Floats) -> Floats:
    """By how much each two clocks contradict each other, whatever their drifts; not above 0 where they do not."""
    least, most = drift_limits(drift)
    lacking = np.full((len(drift), len(drift)), -np.inf)
    for pairs in _pairs(envelopes):
        best = pairs.rooms.roomiest(*_difference(pairs, least, most))
        low, high = pairs.rooms.at(best)
        lacking[pairs.one, pairs.other] = lacking[pairs.other, pairs.one] = low - high
    return lacking


def drift_limits(drift: Floats) -> tuple[Floats, Floats]:
    """The least and the greatest drift that clocks can have besides what is corrected already."""
    least, most = ((limit - drift) / (1 - drift) for limit in (-MAX_DRIFT, MAX_DRIFT))
    least[0] = most[0] = 0.0
    return least, most


def _difference(pairs: Pairs, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    return least[pairs.one] - most[pairs.other], most[pairs.one] - least[pairs.other]


def _pairs(envelopes: Envelopes) -> list[Pairs]:
    """All pairs of clocks that anything bounds."""
    bounded = np.isfinite(envelopes.bound).any(axis=2)
    one, other = np.nonzero(np.triu(bounded | bounded.T, 1))
    chunks = [slice(first, first + AT_ONCE) for first in range(0, len(one), AT_ONCE)]
    bound, time = envelopes.bound, envelopes.time
    return [
        Pairs(i, j, Rooms(bound[i, j], time[i, j], -bound[j, i], time[j, i]))
        for i, j in ((one[chunk], other[chunk]) for chunk in chunks)
    ]


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
