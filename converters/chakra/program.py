"""In which order the nodes of a rank come, and what each had to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.nodes_of_events import Spots
from tracelink.converters.chakra.table import Links
from tracelink.events import Int64s
from tracelink.excerpt import NONE

ROUNDS = 16
"""Lanes push each other; where that does not end, dependencies against the order are left out."""

FIRST_ID = 1
"""A number of 0 is not written by protobuf, and some readers take what is not there for missing."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """`after[i]` could not begin before `before[i]`; both are spots."""

    before: Int64s
    after: Int64s

    def __len__(self) -> int:
        return len(self.before)

    @classmethod
    def concatenate(cls, parts: Sequence[Pairs]) -> Pairs:
        """All pairs of all parts."""
        empty = np.empty(0, np.int64)
        return cls(
            np.concatenate([empty, *(part.before for part in parts)]),
            np.concatenate([empty, *(part.after for part in parts)]),
        )

    def known(self) -> Pairs:
        """Those of which both ends are nodes, and two."""
        known = (self.before != NONE) & (self.after != NONE) & (self.before != self.after)
        return Pairs(self.before[known], self.after[known])


@dataclass(frozen=True, slots=True)
class Turns:
    """The nodes in the order of their ids: none depends on a later one, so there is no circle."""

    spot: Int64s
    turn: Int64s
    """The place of each spot in that order."""
    time: Int64s
    """Nanoseconds of each spot; for none earlier than for what put it on a device or stands before it in a stream."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What runs one after the other, whatever times say: each spot's lane, or NONE, and its place in it."""

    lane: Int64s
    place: Int64s

    def pairs(self) -> Pairs:
        """Each spot after the one before it in its lane."""
        mine = self._in_order()
        same = self.lane[mine][1:] == self.lane[mine][:-1]
        return Pairs(mine[:-1][same], mine[1:][same])

    def pushed(self, time: Int64s) -> Int64s:
        """Times that grow along every lane."""
        mine = self._in_order()
        lanes, begin = np.unique(self.lane[mine], return_index=True)
        pushed = time.copy()
        for spots in np.split(mine, begin[1:]) if len(lanes) else []:
            step = np.arange(len(spots))
            pushed[spots] = np.maximum.accumulate(pushed[spots] - step) + step
        return pushed

    def _in_order(self) -> Int64s:
        mine = np.flatnonzero(self.lane != NONE)
        return mine[np.lexsort((mine, self.place[mine], self.lane[mine]))]


def turns_of(spots: Spots, start: Int64s, ties: Sequence[Int64s], lanes: Sequence[Lane]) -> Turns:
    """Nodes by time, and a launch before the work, whatever clocks say; `ties` tell in turn what equal times do not."""
    time = start.copy()
    launched = np.flatnonzero((spots.work != NONE) & (spots.parent != NONE))
    time[launched] = np.maximum(time[launched], time[spots.parent[launched]])
    for _ in range(ROUNDS):
        before = time
        for lane in lanes:
            time = lane.pushed(time)
        if np.array_equal(time, before):
            break
    device = spots.work != NONE
    order = np.lexsort((*reversed(ties), device, time))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order))
    return Turns(order, turn, time)


def spread(pairs: Pairs, further: Int64s) -> Pairs:
    """The pairs, for every other message that shares an end too."""
    others = np.flatnonzero(further != np.arange(len(further)))
    if not len(others):
        return pairs
    parts = [pairs]
    for ends in ("before", "after"):
        joined = Pairs.concatenate(parts)
        column = getattr(joined, ends)
        by_end = np.argsort(column, kind="stable")
        begin = np.searchsorted(column[by_end], further[others])
        end = np.searchsorted(column[by_end], further[others], side="right")
        length = end - begin
        chosen = by_end[_ranges(begin, length)]
        owner = np.repeat(others, length)
        before, after = joined.before[chosen], joined.after[chosen]
        parts = [joined, Pairs(owner, after) if ends == "before" else Pairs(before, owner)]
    return Pairs.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What nodes wait for, and how much could not be kept."""

    links: Links
    against_order: Mapping[str, int]
    """Pairs by where they are from, left out because times contradict them."""


def waiting(named: Mapping[str, Pairs], turns: Turns) -> Waiting:
    """All pairs as ids by node; each once, none against the order."""
    against: dict[str, int] = {}
    kept: list[Pairs] = []
    for name, pairs in named.items():
        forward = turns.turn[pairs.before] < turns.turn[pairs.after]
        if lost := len(pairs) - int(np.count_nonzero(forward)):
            against[name] = lost
        kept.append(Pairs(pairs.before[forward], pairs.after[forward]))
    every = Pairs.concatenate(kept)
    count = len(turns.spot)
    joined = np.unique(turns.turn[every.after] * count + turns.turn[every.before])
    after, before = np.divmod(joined, max(count, 1))
    bounds = np.searchsorted(after, np.arange(count + 1))
    return Waiting(Links(bounds, before + FIRST_ID), against)


def control_links(parent: Int64s, turns: Turns) -> Links:
    """The id of the parent of each node that has one before it."""
    above = parent[turns.spot]
    place = np.where(above == NONE, NONE, np.append(turns.turn, NONE)[above])
    place = np.where(place < np.arange(len(place)), place, NONE)
    has = place != NONE
    return Links(np.concatenate([[0], np.cumsum(has)]), place[has] + FIRST_ID)


def _ranges(begin: Int64s, length: Int64s) -> Int64s:
    """`begin[i], begin[i] + 1, …` of each length, one after the other."""
    total = int(length.sum())
    offset: Int64s = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    return offset + np.arange(total)
