"""Lanes: slices of one thread that overlap without nesting are put side by side.

Perfetto up to v56 drops such a slice, later versions move it and call the file faulty. Times are compared as
half nanoseconds (see `halves`), so that a slice without length still lies inside itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.schema import MAX_DEPTH
from tracelink.enclosing import depths
from tracelink.events import Bools, Int64s
from tracelink.linking.nesting import LOWEST, NONE, nest, previous_at_least, sort_outer_first

PATIENCE = 8
"""So many slices in a row that are over end the search for one that is open: kernels can overlap in long chains."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices by track in the order in which they open, the longest first."""

    track: Int64s
    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.track)

    def take(self, places: Int64s) -> Slices:
        """The slices at `places`."""
        return Slices(self.track[places], self.start[places], self.end[places])


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane of each row, and the rows in the order in which they open on their track."""

    lane: Int64s
    order: Int64s


def halves(start: Int64s, duration: Int64s) -> tuple[Int64s, Int64s]:
    """Start and end in half nanoseconds; what has no length, instants too, lasts for one of them."""
    end = 2 * (start + duration)
    end += duration == 0
    return 2 * start, end


def assign_lanes(track: Int64s, start: Int64s, end: Int64s) -> Lanes:
    """Lanes on which all slices nest; of two that cross the lighter one moves, with all that is in it."""
    order = sort_outer_first(track, start, end, np.zeros(len(track), np.int64))
    slices = Slices(track[order], start[order], end[order])
    lane = np.zeros(len(slices), np.int64)
    parent, crosses = _on_lanes(slices, lane)
    if crosses.any():
        places = np.flatnonzero(np.isin(slices.track, slices.track[crosses]))
        lane[places], inside = _separated(slices.take(places), crosses[places])
        parent[places] = np.where(inside == NONE, NONE, places[inside])
    depth = depths(parent)
    if depth.max(initial=0) >= MAX_DEPTH:
        _split_deep(slices.track, depth, lane)
    by_row = np.empty_like(lane)
    by_row[order] = lane
    return Lanes(by_row, order)


def _on_lanes(slices: Slices, lane: Int64s) -> tuple[Int64s, Bools]:
    """What each slice is in on its lane, and whether it crosses another there."""
    if not lane.any():
        nesting = nest(slices.track, slices.start, slices.end)
        return nesting.parent, nesting.crosses
    seat = slices.track * (int(lane.max()) + 1) + lane
    order = np.argsort(seat, kind="stable")
    nesting = nest(seat[order], slices.start[order], slices.end[order])
    parent = np.empty_like(lane)
    parent[order] = np.where(nesting.parent == NONE, NONE, order[nesting.parent])
    crosses = np.empty(len(lane), np.bool_)
    crosses[order] = nesting.crosses
    return parent, crosses


def _separated(slices: Slices, crosses: Bools) -> tuple[Int64s, Int64s]:
    """Lanes for slices of which some cross, and what each is in there: those choose, all others follow."""
    opens, closes = _on_one_line(slices)
    late = np.flatnonzero(crosses)
    early = _outermost_crossed(opens, closes, late)
    yields = _lighter(opens, closes, late, early)
    choosing = crosses.copy()
    choosing[early] = True
    lane = _chosen(opens, closes, yields, choosing)
    parent, crosses = _on_lanes(slices, lane)
    if crosses.any():  # one moved to where another follows
        lane = _chosen(opens, closes, yields, np.ones_like(choosing))
        parent, _ = _on_lanes(slices, lane)
    return lane, parent


def _chosen(opens: Int64s, closes: Int64s, yields: Bools, choosing: Bools) -> Int64s:
    """Lanes for those that choose, and for the others that of the slice they open in."""
    places = np.flatnonzero(choosing)
    lanes = choose_lanes(opens[places].tolist(), closes[places].tolist(), yields[places].tolist())
    lane = np.zeros(len(opens), np.int64)
    lane[places] = lanes
    turns = np.unique(np.concatenate([[0], places, np.searchsorted(opens, closes[places])]))
    turns = turns[turns < len(opens)]  # between two of them all are in the same slice
    mine = choosing[turns]
    inside, _ = previous_at_least(np.where(mine, closes[turns], LOWEST), opens[turns] + 1)
    followed = np.where(mine | (inside == NONE), lane[turns], lane[turns[inside]])
    return np.repeat(followed, np.diff(turns, append=len(opens)))


def _on_one_line(slices: Slices) -> tuple[Int64s, Int64s]:
    """Starts and ends with each track behind the one before it, so that they can be compared over all tracks."""
    start, end = slices.start, slices.end
    low, span = int(start.min()), int(end.max() - start.min()) + 2
    if span * (int(slices.track.max()) + 1) >= 1 << 62:
        ranks = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
        start, end = ranks[: len(start)], ranks[len(start) :]
        low, span = 0, int(ranks.max()) + 2
    base = slices.track * span - low
    return start + base, end + base


def _outermost_crossed(opens: Int64s, closes: Int64s, late: Int64s) -> Int64s:
    """For each of `late`, the outermost of the slices that are open at its start and that it outlasts."""
    around, _ = previous_at_least(closes, opens + 1)
    outermost = around[late]
    climber, node = np.arange(len(late)), outermost
    over = np.zeros(len(late), np.int64)
    while len(climber):
        node = around[node]
        on = (node != NONE) & (closes[node] < closes[late[climber]]) & (over < PATIENCE)
        climber, node, over = climber[on], node[on], over[on]
        still_open = closes[node] > opens[late[climber]]
        outermost[climber[still_open]] = node[still_open]
        over = np.where(still_open, 0, over + 1)
    return outermost


def _lighter(opens: Int64s, closes: Int64s, late: Int64s, early: Int64s) -> Bools:
    """Which slices make way for a slice that crosses them: those that hold less than it does."""
    before, after = np.searchsorted(late, late + 1), np.searchsorted(opens, closes[late])
    crossing_inside = np.searchsorted(late, after) - before
    held = after - late - crossing_inside
    lighter = np.zeros(len(opens), np.bool_)
    lighter[early[late - early < held]] = True
    return lighter


def choose_lanes(starts: list[int], ends: list[int], yields: list[bool]) -> list[int]:
    """For slices in opening order: the lane of the slice around, or the first after it where there is room.

    One that yields leaves the lane of the slice around to a later slice.
    """
    around: list[tuple[int, int]] = []
    lanes: list[list[int]] = []
    chosen: list[int] = []
    for start, end, leaves in zip(starts, ends, yields, strict=True):
        while around and around[-1][0] < end:
            around.pop()
        number = (around[-1][1] if around else 0) + leaves
        while not _fits(lanes, number, start, end):
            number += 1
        lanes[number].append(end)
        around.append((end, number))
        chosen.append(number)
    return chosen


def _fits(lanes: list[list[int]], number: int, start: int, end: int) -> bool:
    """Whether a slice nests in what is open on a lane at its start."""
    while number >= len(lanes):
        lanes.append([])
    open_ends = lanes[number]
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or open_ends[-1] >= end


def _split_deep(track: Int64s, depth: Int64s, lane: Int64s) -> None:
    """Gives slices that are too deep in their lane a further lane of their track."""
    band = depth // MAX_DEPTH
    used = np.zeros(int(track[-1]) + 1, np.int64)
    np.maximum.at(used, track, lane + 1)
    deep = np.flatnonzero(band)
    wanted, which = np.unique(np.stack([track[deep], band[deep], lane[deep]]), axis=1, return_inverse=True)
    nth = np.arange(wanted.shape[1]) - np.searchsorted(wanted[0], wanted[0])
    lane[deep] = (used[wanted[0]] + nth)[which.ravel()]
