"""Which part of the job each rank's sources tell of, so that what is missing there was truly not done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.coding import starts_of
from tracelink.linking.collectives import Matching
from tracelink.linking.stacking import Stack

LATEST = int(np.iinfo(np.int64).max)
FIRST_NUMBER = 1
"""The recorder counts the collectives of a group from one."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """For each rank, by number: does it have sources, when was its last call, does a recorder tell all of it."""

    here: Bools
    last: Int64s
    recorded: Bools
    from_the_beginning: Bools


def covered(stack: Stack, matching: Matching, collective: Int64s, rank: Int64s) -> Bools:
    """Whether the sources of a rank would show its part in a collective, had it taken part."""
    if not len(collective):
        return np.zeros(0, np.bool_)
    width = max(int(rank.max()), *(one.rank for one in stack.ranks)) + 1
    ranks = _ranks(stack, width)
    first, last, known = _reach(matching, width, matching.group[collective] * np.int64(width) + rank)
    order = matching.order[collective]
    inside = known & (first < order) & (order < last)
    latest = _latest(matching)[collective]
    after = known & (order > last) & (ranks.recorded[rank] | (ranks.last[rank] > latest))
    before = (~known | (order < first)) & ranks.from_the_beginning[rank]
    result: Bools = ranks.here[rank] & (inside | after | before)
    return result


def _ranks(stack: Stack, width: int) -> _Rank:
    result = _Rank(
        np.zeros(width, np.bool_),
        np.full(width, NO_TIME),
        np.zeros(width, np.bool_),
        np.zeros(width, np.bool_),
    )
    numbers = np.array([rank.rank for rank in stack.ranks], np.int64)
    broken = np.array([rank.broken_off for rank in stack.ranks], np.bool_)
    result.here[numbers] = True
    calls = stack.calls
    if not len(calls):
        return result
    starts = starts_of(stack.rank)
    having = stack.rank[starts]
    result.last[having] = np.maximum.reduceat(np.maximum(calls.enqueued, calls.start), starts)
    recorded = calls.record != UNKNOWN
    result.recorded[having] = np.logical_or.reduceat(recorded, starts)
    result.recorded[numbers[broken]] = False
    first = np.where(recorded & (calls.sequence != UNKNOWN) & ~calls.point_to_point, calls.sequence, LATEST)
    result.from_the_beginning[having] = np.minimum.reduceat(first, starts) <= FIRST_NUMBER
    return result


def _reach(matching: Matching, width: int, wanted: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """The first and the last place of a rank in a group, by keys of group and rank; and whether it has any."""
    key = matching.group[matching.collective].astype(np.int64) * width + matching.rank
    by_key = np.lexsort((matching.order[matching.collective], key))
    starts = starts_of(key[by_key])
    ends = np.append(starts[1:], len(key)) - 1
    order = matching.order[matching.collective[by_key]]
    at = np.minimum(np.searchsorted(key[by_key[starts]], wanted), len(starts) - 1)
    return order[starts[at]], order[ends[at]], key[by_key[starts[at]]] == wanted


def _latest(matching: Matching) -> Int64s:
    """The last time that anything is known of each collective."""
    calls = matching.calls
    times = np.maximum(np.maximum(calls.enqueued, calls.start), calls.end)
    latest: Int64s = np.maximum.reduceat(times, matching.starts)
    return latest
