"""The order in which a simulator begins the nodes of a rank, and which it never begins."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from tracelink.events import Int64s


@dataclass(frozen=True, slots=True)
class Issued:
    """Rows in the order in which they begin, and circles that keep others from beginning."""

    rows: Int64s
    """Every row; those that never begin come last, by id."""
    stuck: int
    """How many never begin."""
    cycles: tuple[tuple[int, ...], ...]
    """Rows of which each depends on the next, and the last on the first."""


def issued(ids: Int64s, owner: Int64s, place: Int64s) -> Issued:
    """A node begins when all that it depends on have; of those that are free the lowest id is first.

    `owner` and `place` are rows of a node and of what it depends on.
    """
    by_id = np.argsort(ids.view(np.uint64), kind="stable")
    rank = np.empty(len(ids), np.int64)
    rank[by_id] = np.arange(len(ids))
    if bool(np.all(rank[place] < rank[owner])):
        return Issued(by_id, 0, ())  # then the lowest id is always free
    order = _released(rank[owner], rank[place], len(ids))
    left = np.setdiff1d(np.arange(len(ids)), order, assume_unique=True)
    cycles = _cycles(left, rank[owner], rank[place])
    rows = by_id[np.concatenate([order, left])]
    return Issued(rows, len(left), tuple(tuple(by_id[list(cycle)].tolist()) for cycle in cycles))


def _released(owner: Int64s, place: Int64s, count: int) -> Int64s:
    """Kahn's algorithm with the lowest number first."""
    waiting = np.bincount(owner, minlength=count).tolist()
    by_place = np.argsort(place, kind="stable")
    followers = owner[by_place].tolist()
    bounds = np.searchsorted(place[by_place], np.arange(count + 1)).tolist()
    free = [number for number, others in enumerate(waiting) if not others]
    heapify(free)
    order = list[int]()
    while free:
        number = heappop(free)
        order.append(number)
        for follower in followers[bounds[number] : bounds[number + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(free, follower)
    return np.array(order, np.int64)


def _cycles(left: Int64s, owner: Int64s, place: Int64s) -> list[list[int]]:
    """One circle for each that is found by following, from what is left, one dependency that is left too."""
    inside = np.isin(owner, left) & np.isin(place, left)
    following = dict(zip(owner[inside].tolist(), place[inside].tolist(), strict=True))
    seen: dict[int, int] = {}
    cycles = []
    for start in left.tolist():
        number, walk = start, list[int]()
        while number not in seen:
            seen[number] = start
            walk.append(number)
            number = following[number]
        if walk and seen[number] == start:
            cycles.append(walk[walk.index(number) :])
    return cycles
