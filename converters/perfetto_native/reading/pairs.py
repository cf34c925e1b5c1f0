"""Which end closes which beginning: on each track what began last ends first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.events import Bools, Int32s, Int64s


@dataclass(frozen=True, slots=True)
class Pairs:
    """Beginnings and their ends, as rows; beginnings without one have -1, and ends without one are only counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def pairs_of(track: Int32s, time: Int64s, rows: Int64s, begin: Bools) -> Pairs:
    """Pairs of `rows`, of which some begin and all others end; of what happens at once the first row comes first."""
    rows = rows[np.lexsort((time[rows], track[rows]))]
    begins = begin[rows]
    segment = np.cumsum(np.diff(track[rows], prepend=-1) != 0)
    begins, rows, segment, lost = _without_lost_ends(begins, rows, segment)
    level = _depths(begins, segment) + ~begins
    turn = np.lexsort((level, segment))
    rows, begins, segment, level = rows[turn], begins[turn], segment[turn], level[turn]
    paired = np.zeros(len(rows), np.bool_)
    paired[:-1] = begins[:-1] & ~begins[1:] & (segment[:-1] == segment[1:]) & (level[:-1] == level[1:])
    following = np.append(rows[1:], -1)
    some = np.flatnonzero(begins)
    return Pairs(rows[some], np.where(paired[some], following[some], -1), lost)


def _without_lost_ends(begins: Bools, rows: Int64s, segment: Int64s) -> tuple[Bools, Int64s, Int64s, int]:
    """Without ends of what never began."""
    apart = segment * np.int64(2 * len(rows) + 2)
    depth = _depths(begins, segment) - apart
    lowest = np.minimum(np.minimum.accumulate(depth), -apart)
    before = np.append(-apart[:1], lowest[:-1]) if len(rows) else lowest
    kept = begins | (depth >= np.minimum(before, -apart))
    return begins[kept], rows[kept], segment[kept], int(np.count_nonzero(~kept))


def _depths(begins: Bools, segment: Int64s) -> Int64s:
    """How much is open behind each row of its segment."""
    total = np.cumsum(np.where(begins, 1, -1))
    first = np.searchsorted(segment, segment)
    return total - np.where(first > 0, total[first - 1], 0)
