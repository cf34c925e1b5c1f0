"""Calls that a rank issued as one: they share a number, and a last one closes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink.communications import CALL_ROWS, UNKNOWN, Calls
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.coding import ranges, starts_of
from tracelink.linking.sizes import is_one_of
from tracelink.linking.stacking import Stack
from tracelink.operations import Operation

LATEST = int(np.iinfo(np.int64).max)


def one_part_for_each_rank(stack: Stack, rows: Int64s, number: Int64s) -> tuple[Int64s, Calls, Int64s]:
    """The first call of each rank in each collective, with what was coalesced with it; and what is repeated."""
    rank = stack.rank[rows]
    change = np.ones(len(rows), np.bool_)
    change[1:] = (number[1:] != number[:-1]) | (rank[1:] != rank[:-1])
    parts = np.flatnonzero(change)
    calls = stack.calls.take(rows[parts])
    if len(parts) == len(rows):
        return parts, calls, np.empty(0, np.int64)
    length = np.diff(np.append(parts, len(rows)))
    closing = is_one_of(stack.calls.operation[rows], stack.strings, (Operation.COALESCED,))
    empty = (stack.calls.elements_in[rows] <= 0) & (stack.calls.elements_out[rows] <= 0)
    closing |= empty & ~np.repeat(np.logical_and.reduceat(empty, parts), length)
    together = np.logical_or.reduceat(closing, parts) | _others_have_several(number[parts], length)
    coalesced = np.flatnonzero((length > 1) & together)
    if len(coalesced):
        inside = ranges(parts[coalesced], length[coalesced])
        _write(calls, coalesced, stack.calls.take(rows[inside]), closing[inside], length[coalesced])
    length[coalesced] = 1
    return parts, calls, parts[length > 1]


def _others_have_several(number: Int64s, length: Int64s) -> Bools:
    """Whether another part of the same collective is of several calls too, or there is no other."""
    starts = starts_of(number)
    count = np.diff(np.append(starts, len(number)))
    several = np.add.reduceat(length > 1, starts)
    together: Bools = np.repeat((several > 1) | (count == 1), count)
    return together


def _write(calls: Calls, parts: Int64s, every: Calls, closing: Bools, length: Int64s) -> None:
    """Writes each run of `every` as one call into `calls`."""
    begin = np.cumsum(length) - length
    members = ~closing | np.repeat(np.logical_and.reduceat(closing, begin), length)
    first = _first(members, begin)
    for name in ("operation", "type", "shape", "source", "target", "global_ranks"):
        getattr(calls, name)[parts] = getattr(every, name)[first]
    for name in ("elements_in", "elements_out"):
        elements = np.where(members, getattr(every, name), UNKNOWN)
        total = np.add.reduceat(np.maximum(elements, 0), begin)
        getattr(calls, name)[parts] = np.where(np.maximum.reduceat(elements, begin) >= 0, total, UNKNOWN)
    for name in CALL_ROWS:
        column = getattr(every, name)
        getattr(calls, name)[parts] = column[_first(column != UNKNOWN, begin)]
    calls.state[parts] = every.state[begin + length - 1]
    calls.enqueued[parts] = _earliest(every.enqueued, begin)
    calls.evidence[parts] = np.maximum.reduceat(every.evidence, begin)
    best = every.evidence == np.repeat(calls.evidence[parts], length)
    calls.start[parts] = _earliest(np.where(best, every.start, NO_TIME), begin)
    calls.end[parts] = np.maximum.reduceat(np.where(best, every.end, NO_TIME), begin)


def _first(chosen: Bools, begin: Int64s) -> Int64s:
    """Of each run the first row that is chosen, else its first."""
    rows = np.where(chosen, np.arange(len(chosen)), LATEST)
    first: Any = np.minimum.reduceat(rows, begin)
    return np.where(first == LATEST, begin, first)


def _earliest(times: Int64s, begin: Int64s) -> Int64s:
    first: Any = np.minimum.reduceat(np.where(times == NO_TIME, LATEST, times), begin)
    return np.where(first == LATEST, NO_TIME, first)
