"""What meetings allow of each pair of clocks, cut down to the tightest bound in each stretch of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.clocks.passages import MAX_DRIFT, Passages
from tracelink.clocks.rooms import tightest
from tracelink.clocks.segments import Floats
from tracelink.events import Bools, Int64s

STRETCHES = 32
CELLS = 1 << 21
"""Pairs times stretches that are kept at most; more clocks get fewer stretches."""
ALL_PAIRS = 1 << 24
"""Pairs within meetings that are looked at; the largest meetings are cut down to pairs with one clock."""
AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Envelopes:
    """For each pair of clocks what the first shows more than the second at most, and when (clock, clock, stretch)."""

    bound: Floats
    time: Floats


def envelopes_of(passages: Passages, clocks: int) -> Envelopes:
    """The tightest bounds; all times of `passages` are about those of the reference clock, whose zero is early."""
    stretches = int(np.clip(CELLS // clocks**2, 4, STRETCHES))
    bound = np.full(clocks * clocks * stretches, np.inf)
    time = np.zeros(len(bound))
    span = _last(passages)
    for waits, awaited in _pairs(passages):
        wide = passages.left[waits] - passages.entered[awaited]
        middle = (passages.left[waits] + passages.entered[awaited]) / 2
        slack = 2 * MAX_DRIFT * (np.abs(wide) + 2 * np.maximum(-middle, 0))
        middle = np.maximum(middle, 0)
        stretch = np.minimum(middle * stretches // span, stretches - 1).astype(np.int64)
        cell = (passages.clock[waits] * clocks + passages.clock[awaited]) * stretches + stretch
        tightest(wide + slack, middle, cell, bound, time)
    shape = (clocks, clocks, stretches)
    return Envelopes(bound.reshape(shape), time.reshape(shape))


def _last(passages: Passages) -> float:
    left = passages.left[np.isfinite(passages.left)]
    return max(float(left.max(initial=1)), float(passages.entered.max(initial=1)), 1.0)


def _pairs(passages: Passages) -> Iterator[tuple[Int64s, Int64s]]:
    """Rows of one that waits and one that is awaited in one meeting, of different clocks, many at once."""
    waits, awaited = np.isfinite(passages.left), np.isfinite(passages.entered)
    small = _small(passages, waits, awaited)[passages.meeting]
    first = _first_of(passages, waits), _first_of(passages, awaited)
    yield from _products(passages, waits & small, awaited & small)
    yield from _products(passages, waits & ~small, first[1] & ~small)
    yield from _products(passages, first[0] & ~small, awaited & ~small)


def _small(passages: Passages, waits: Bools, awaited: Bools) -> Bools:
    """Meetings all pairs of which can be looked at; of one size all or none."""
    pairs = np.bincount(passages.meeting, waits) * np.bincount(passages.meeting, awaited)
    sizes, count = np.unique(pairs, return_counts=True)
    fitting = sizes[np.cumsum(sizes * count) <= ALL_PAIRS]
    small: Bools = pairs <= fitting.max(initial=0)
    return small


def _first_of(passages: Passages, chosen: Bools) -> Bools:
    """Of each meeting the chosen row with the lowest clock."""
    rows = np.flatnonzero(chosen)
    meeting = passages.meeting[rows]
    result = np.zeros(len(passages), np.bool_)
    result[rows[np.append(True, meeting[1:] != meeting[:-1])[: len(rows)]]] = True
    return result


def _products(passages: Passages, waits: Bools, awaited: Bools) -> Iterator[tuple[Int64s, Int64s]]:
    ones, others = np.flatnonzero(waits), np.flatnonzero(awaited)
    begin = np.searchsorted(passages.meeting[others], passages.meeting[ones], "left")
    count = np.searchsorted(passages.meeting[others], passages.meeting[ones], "right") - begin
    reached = np.cumsum(count)
    cuts = (
        np.searchsorted(reached, np.arange(AT_ONCE, reached[-1] + AT_ONCE if len(ones) else 0, AT_ONCE)) + 1
    )
    for chunk in np.split(np.arange(len(ones)), cuts):
        sizes = count[chunk]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        one, other = np.repeat(ones[chunk], sizes), others[np.repeat(begin[chunk], sizes) + within]
        across = one != other
        yield one[across], other[across]
