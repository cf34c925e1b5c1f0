"""Levels: what counters show from when on, out of changes that may happen at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.events import Bools, Columns, Int64s

FEW = 4096
"""So many samples are never too many."""

SHARE = 32
"""Of more there are at most as many as this part of the events: to a viewer two are a slice."""

KEPT = 3
"""Of successive samples that are too many, the lowest, the highest and the last are kept."""


@dataclass(frozen=True, slots=True)
class Levels(Columns):
    """Samples by counter and time; a counter shows 0 before its first, and none repeats what its counter shows."""

    counter: Int64s
    time: Int64s
    value: Int64s

    def __len__(self) -> int:
        return len(self.counter)

    def where(self, keep: Bools | Int64s) -> Levels:
        """Some of the samples."""
        return Levels(self.counter[keep], self.time[keep], self.value[keep])


def levels_of(counter: Int64s, time: Int64s, change: Int64s) -> Levels:
    """What counters show after these changes; of those at one time only the sum is seen."""
    order = np.lexsort((time, counter))
    counter, time = counter[order], time[order]
    last = np.flatnonzero((np.diff(counter, append=-1) != 0) | (np.diff(time, append=0) != 0))
    total = np.cumsum(change[order])[last]
    levels = Levels(counter[last], time[last], total)
    begins = _begins(levels)
    before = np.append(0, total)[begins]
    value = total - np.repeat(before, np.diff(begins, append=len(levels)))
    return _without_repeats(Levels(levels.counter, levels.time, value))


def thinned(levels: Levels, events: int) -> Levels:
    """No more samples than are worth it beside so many events; counters with few samples keep all."""
    most = max(FEW, events // SHARE)
    if len(levels) <= most:
        return levels
    begins = _begins(levels)
    counts = np.diff(begins, append=len(levels))
    shares = _shares(counts, most)
    stretch = np.where(counts <= shares, 1, -(-KEPT * counts // np.maximum(shares, 1)))
    place = (np.arange(len(levels)) - np.repeat(begins, counts)) // np.repeat(stretch, counts)
    last = (np.diff(levels.counter, append=-1) != 0) | (np.diff(place, append=-1) != 0)
    ends = np.flatnonzero(last)
    by_value = np.lexsort((levels.value, np.cumsum(last) - last))
    keep = last
    keep[by_value[ends]] = True
    keep[by_value[np.append(0, ends[:-1] + 1)]] = True
    return _without_repeats(levels.where(keep))


def _shares(counts: Int64s, most: int) -> Int64s:
    """How many samples each counter may have: who needs less than others leaves them the rest."""
    shares, left = np.zeros_like(counts), most
    for number, place in enumerate(np.argsort(counts).tolist()):
        shares[place] = min(int(counts[place]), left // (len(counts) - number))
        left -= int(shares[place])
    return shares


def _begins(levels: Levels) -> Int64s:
    """Where the samples of each counter begin."""
    return np.flatnonzero(np.diff(levels.counter, prepend=-1))


def _without_repeats(levels: Levels) -> Levels:
    before = np.append(0, levels.value)[: len(levels)]
    before[_begins(levels)] = 0
    return levels.where(levels.value != before)
