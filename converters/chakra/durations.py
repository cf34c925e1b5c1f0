"""How long an operator ran itself: without the operators inside it."""

from __future__ import annotations

import numpy as np

from tracelink.events import Int64s
from tracelink.excerpt import NONE


def exclusive(start: Int64s, end: Int64s, around: Int64s) -> Int64s:
    """Each interval without the union of those directly inside it; `around` is the row around each, or -1."""
    inner = np.flatnonzero(around != NONE)
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
    before = np.append(NONE, latest[:-1])[: len(group)]
    same = before >= number * len(ends)
    lowest = np.iinfo(np.int64).min
    if not len(ends):
        return right
    return np.where(same, ends[np.where(same, before % len(ends), 0)], lowest)
