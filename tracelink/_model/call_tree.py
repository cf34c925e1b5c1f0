"""Which event encloses which, for all events of a rank at once.

Every function doubles how far it looks in each step, so that depth costs little and cycles end.
"""

from __future__ import annotations

import numpy as np

from tracelink._model.columns import UNKNOWN, Bools, Int64s, scatter
from tracelink._model.events import Relation
from tracelink._model.graph import Excerpt


def callers(part: Excerpt) -> Int64s:
    """The caller of each event, or UNKNOWN."""
    edges = part.graph.edges
    calls = np.flatnonzero(edges.relation == Relation.CALLS)
    return scatter(len(part.events), edges.target[calls], edges.source[calls])


def innermost(caller: Int64s, marked: Bools) -> Int64s:
    """For each event the nearest marked one among itself and all that enclose it, or UNKNOWN."""
    count = len(caller)
    row = np.where(marked, np.arange(count), np.where(caller == UNKNOWN, count, caller))
    row = np.append(row, count)
    for _ in range(count.bit_length()):
        further = row[row]
        if np.array_equal(further, row):
            break
        row = further
    found = row[:count]
    return np.where(np.append(marked, False)[found], found, UNKNOWN)


def outside(caller: Int64s, nearest: Int64s) -> Int64s:
    """For each event the nearest marked one that encloses it, itself excluded, or UNKNOWN."""
    return np.where(caller == UNKNOWN, UNKNOWN, nearest[caller])


def depths(parent: Int64s) -> Int64s:
    """For each event the number of events that enclose it."""
    hop = np.append(parent, UNKNOWN)
    depth = (hop != UNKNOWN).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        inside = np.flatnonzero(hop != UNKNOWN)
        if not len(inside):
            break
        depth[inside] += depth[hop[inside]]
        hop[inside] = hop[hop[inside]]
    return depth[: len(parent)]


def greatest_inside(parent: Int64s, values: Int64s) -> Int64s:
    """For each event the greatest value of itself and of all that it encloses."""
    count = len(parent)
    greatest = np.append(values, np.iinfo(np.int64).min)
    above = np.append(np.where(parent == UNKNOWN, count, parent), count)
    for _ in range(count.bit_length()):
        if (above == count).all():
            break
        seen = greatest.copy()
        np.maximum.at(seen, above, greatest)
        greatest = seen
        above = above[above]
    return greatest[:count]


def exclusive_time(start: Int64s, end: Int64s, around: Int64s) -> Int64s:
    """Length of each interval without the union of those directly inside it; `around` is the row of each parent."""
    inner = np.flatnonzero(around != UNKNOWN)
    outer = around[inner]
    left = np.clip(start[inner], start[outer], end[outer])
    right = np.clip(end[inner], start[outer], end[outer])
    order = np.lexsort((left, outer))
    outer, left, right = outer[order], left[order], right[order]
    reached = np.maximum(_reached_before(outer, right), left)
    covered = np.zeros(len(start), np.int64)
    np.add.at(covered, outer, np.maximum(right - reached, 0))
    return end - start - covered


def _reached_before(group: Int64s, right: Int64s) -> Int64s:
    """The latest end among the earlier ones of the same group; the lowest number where there are none.

    Ends are replaced by their rank, so that group and end fit one number that only grows.
    """
    ends, rank = np.unique(right, return_inverse=True)
    _, number = np.unique(group, return_inverse=True)
    latest = np.maximum.accumulate(number * len(ends) + rank)
    before = np.append(UNKNOWN, latest[:-1])[: len(group)]
    same = before >= number * len(ends)
    lowest = np.iinfo(np.int64).min
    if not len(ends):
        return right
    return np.where(same, ends[np.where(same, before % len(ends), 0)], lowest)
