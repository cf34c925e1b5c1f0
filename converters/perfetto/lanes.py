"""Lanes: slices of one thread that overlap without nesting are put side by side.

Perfetto up to v56 drops such a slice, later versions move it and call the file faulty. Times are compared as
half nanoseconds (see `halves`), so that a slice without length still lies inside itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.schema import MAX_DEPTH
from tracelink.events import Bools, Int64s


@dataclass(frozen=True, slots=True)
class Nesting:
    """Slices in the order in which they open, and which one each opens in; all in places of that order."""

    order: Int64s
    """Rows by track, start, longest first."""
    track: Int64s
    start: Int64s
    end: Int64s
    around: Int64s
    """The nearest earlier slice that is open at the start; -1 where none is."""

    @property
    def crossing(self) -> Bools:
        """Whether the slice outlasts the one that it starts in."""
        return (self.around >= 0) & (self.end[self.around] < self.end)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of each row, and the rows in the order in which they open on their track."""

    lane: Int64s
    order: Int64s
    crossing: int


def halves(start: Int64s, duration: Int64s, instant: Bools) -> tuple[Int64s, Int64s]:
    """Start and end in half nanoseconds; a slice without length, unlike an instant, lasts for one of them."""
    end = 2 * (start + duration)
    end += (duration == 0) & ~instant
    return 2 * start, end


def assign_lanes(track: Int64s, start: Int64s, end: Int64s) -> Lanes:
    """Lanes on which all slices nest; of two that cross, the one with less in it moves, and all of that."""
    nesting = nest(track, start, end)
    lane = np.zeros(len(track), np.int64)
    crossing = nesting.crossing
    count = int(np.count_nonzero(crossing))
    if count:
        _move_crossing(nesting, crossing, lane)
    if _chains_reach(nesting.around, MAX_DEPTH):
        _split_deep(nesting, lane)
    by_row = np.empty_like(lane)
    by_row[nesting.order] = lane
    return Lanes(by_row, nesting.order, count)


def nest(track: Int64s, start: Int64s, end: Int64s) -> Nesting:
    """Sorts slices of all tracks and finds what each of them opens in."""
    order = _opening_order(track, start, end)
    track, start, end = track[order], start[order], end[order]
    begins = np.zeros(len(track), np.int64)
    changed = np.flatnonzero(track[1:] != track[:-1]) + 1
    begins[changed] = changed
    return Nesting(order, track, start, end, _nearest_open(start, end, np.maximum.accumulate(begins)))


def _opening_order(track: Int64s, start: Int64s, end: Int64s) -> Int64s:
    if not len(track):
        return np.empty(0, np.int64)
    lowest = int(start.min())
    bits = (int(start.max()) - lowest).bit_length()
    if int(track.max()).bit_length() + bits > 62:
        return np.lexsort((np.arange(len(track)), -end, start, track))
    key = (track << bits) | (start - lowest)
    order = np.argsort(key)  # one key is several times faster than three
    key = key[order]
    equal = np.zeros(len(key) + 1, np.bool_)
    np.equal(key[1:], key[:-1], out=equal[1:-1])
    tied = np.flatnonzero(equal[1:] | equal[:-1])
    rows = order[tied]
    order[tied] = rows[np.lexsort((rows, -end[rows], key[tied]))]
    return order


def _nearest_open(start: Int64s, end: Int64s, first: Int64s) -> Int64s:
    """For each place, the nearest earlier place, from `first` on, whose end is later than the start there."""
    found = np.arange(-1, len(start) - 1)
    found[: min(1, len(found))] = -1
    open_before = (found >= first) & (end[found] > start) if len(found) else np.empty(0, np.bool_)
    found[~open_before] = -1
    places = np.flatnonzero(~open_before)
    places = places[places > first[places]]
    levels = _maxima(end)
    stops: list[tuple[Int64s, Int64s]] = []
    node = places - 1
    for level, highest in enumerate(levels):
        hit = highest[node] > start[places]
        beside = ~hit & (node & 1 == 1)
        node = node - beside
        hit |= beside & (highest[node] > start[places])
        stops.append((places[hit], node[hit]))
        node = (node >> 1) - 1
        on = ~hit & (node >= 0) & ((node + 1) << (level + 1) > first[places])
        places, node = places[on], node[on]
    _descend(levels, stops, start, first, found)
    return found


def _maxima(end: Int64s) -> list[Int64s]:
    """A tree of maxima, leaves first."""
    levels = [end]
    while len(levels[-1]) > 1:
        below = levels[-1]
        if len(below) & 1:
            below = np.append(below, np.iinfo(np.int64).min)
            levels[-1] = below
        levels.append(np.maximum(below[::2], below[1::2]))
    return levels


def _descend(
    levels: list[Int64s], stops: list[tuple[Int64s, Int64s]], start: Int64s, first: Int64s, found: Int64s
) -> None:
    """From the nodes where the climb stopped down to the last leaf below each that is open."""
    places, node = stops[-1] if stops else (start, start)
    for level in range(len(stops) - 2, -1, -1):
        node = 2 * node + 1
        node -= levels[level][node] <= start[places]
        places = np.concatenate([places, stops[level][0]])
        node = np.concatenate([node, stops[level][1]])
    if stops:
        inside = node >= first[places]
        found[places[inside]] = node[inside]


def _move_crossing(nesting: Nesting, crossing: Bools, lane: Int64s) -> None:
    """Slices that cross another choose a lane, and all others follow what they are in, until none cross."""
    concerned = np.zeros(int(nesting.track[-1]) + 1, np.bool_)
    concerned[nesting.track[crossing]] = True
    places = np.flatnonzero(concerned[nesting.track])
    involved = crossing.copy()
    involved[nesting.around[crossing]] = True
    while True:
        _choose(nesting, np.flatnonzero(involved), lane)
        lanes = int(lane.max()) + 1
        within = nest(
            nesting.track[places] * lanes + lane[places], nesting.start[places], nesting.end[places]
        )
        left = np.flatnonzero(within.crossing)
        if not len(left):
            return
        involved[places[within.order[left]]] = True
        involved[places[within.order[within.around[left]]]] = True


def _choose(nesting: Nesting, involved: Int64s, lane: Int64s) -> None:
    """Lanes of the slices involved, and of what starts inside them."""
    tracks, begins = np.unique(nesting.track[involved], return_index=True)
    ends = [*begins.tolist()[1:], len(involved)]
    for track, low, high in zip(tracks.tolist(), begins.tolist(), ends, strict=True):
        places = involved[low:high]
        begin, end = np.searchsorted(nesting.track, [track, track + 1]).tolist()
        lane[begin:end] = 0
        closed = begin + np.searchsorted(nesting.start[begin:end], nesting.end[places])
        chosen = choose_lanes(
            nesting.start[places].tolist(), nesting.end[places].tolist(), (closed - places).tolist()
        )
        for place, after, number in zip(places.tolist(), closed.tolist(), chosen, strict=True):
            lane[place:after] = number  # a later slice that starts inside and outlasts it overrides this


def choose_lanes(starts: list[int], ends: list[int], weights: list[int]) -> list[int]:
    """For slices in opening order: of two that cross, the one with less in it moves to the next lane."""
    around = _parents(ends)
    chosen = [0] * len(starts)
    left = list(range(len(starts)))
    number = 0
    while left:
        moved = _moved(left, starts, ends, weights)
        number += 1
        for index in left:
            if index in moved or chosen[around[index]] == number:
                moved.add(index)
                chosen[index] = number
        left = sorted(moved)
    return chosen


def _parents(ends: list[int]) -> list[int]:
    """For each slice the nearest earlier one that ends no earlier; itself where there is none."""
    parents: list[int] = []
    candidates: list[int] = []
    for index, end in enumerate(ends):
        while candidates and ends[candidates[-1]] < end:
            candidates.pop()
        parents.append(candidates[-1] if candidates else index)
        candidates.append(index)
    return parents


def _moved(left: list[int], starts: list[int], ends: list[int], weights: list[int]) -> set[int]:
    """Which slices must leave a lane, so that those that stay nest."""
    moved: set[int] = set()
    open_slices: list[int] = []
    for index in left:
        while open_slices and ends[open_slices[-1]] <= starts[index]:
            open_slices.pop()
        keep = len(open_slices)
        while keep and ends[open_slices[keep - 1]] < ends[index]:
            keep -= 1
        crossed = open_slices[keep:]
        if crossed and weights[crossed[0]] >= weights[index]:
            moved.add(index)
            continue
        moved.update(crossed)
        open_slices[keep:] = [index]
    return moved


def _chains_reach(around: Int64s, depth: int) -> bool:
    """Whether any slice is in more than about `depth` others."""
    hop = np.append(around, -1)
    for _ in range((depth - 1).bit_length() - 1):
        hop = hop[hop]
        if not (hop >= 0).any():
            return False
    return True


def _split_deep(nesting: Nesting, lane: Int64s) -> None:
    """Gives slices that are too deep in their lane a further lane of their track."""
    places = nest(nesting.track * (int(lane.max()) + 1) + lane, nesting.start, nesting.end)
    hop = np.append(places.around, -1)
    depth = (hop >= 0).astype(np.int64)
    while (hop >= 0).any():
        depth += depth[hop]
        hop = hop[hop]
    band = np.empty_like(lane)
    band[places.order] = depth[:-1] // MAX_DEPTH
    used = np.zeros(int(nesting.track[-1]) + 1, np.int64)
    np.maximum.at(used, nesting.track, lane + 1)
    deep = np.flatnonzero(band)
    if not len(deep):
        return
    wanted, which = np.unique(
        np.stack([nesting.track[deep], band[deep], lane[deep]]), axis=1, return_inverse=True
    )
    nth = np.arange(wanted.shape[1]) - np.searchsorted(wanted[0], wanted[0])
    lane[deep] = (used[wanted[0]] + nth)[which.ravel()]
