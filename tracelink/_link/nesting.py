"""*calls*: which event runs inside which, by nesting of their intervals; also the nesting of any intervals.

Times alone do not say everything: in profiles of 2021 to 2023 many events begin in the same microsecond, and the end of
a Python function can be missing. What the profiler recorded besides times decides there, and only there.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table, UInt8s, lookup, previous_at_least, scatter
from tracelink._model.events import ON_THREAD, Edges, EventKind, Key, Relation
from tracelink._model.graph import STATED, LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, scoped_pair

OUTER_FIRST = {EventKind.PYTHON: 0, EventKind.ANNOTATION: 1, EventKind.OPERATOR: 2, EventKind.RUNTIME: 3}
"""The order of events with the same interval, outer ones first, if the profiler did not number them."""


def link_calls(trace: RankTrace) -> Links:
    """Caller to callee for everything that runs on a thread; a caller that the source states comes first."""
    events = trace.events
    rows = np.flatnonzero(events.of_kind(*ON_THREAD, EventKind.COMPILATION) & events.timed)
    named = named_callers(trace)
    end = ends_within_callers(events.end, named.callee, named.caller)
    order = _calling_order(trace, rows, end[rows])
    rows = rows[order]
    nesting = nest(events.track[rows].astype(np.int64), events.start[rows], end[rows])
    _leave_touched_calls(nesting.parent, events.start[rows], end[rows], events.kind[rows])
    callee = np.flatnonzero(nesting.parent != UNKNOWN)
    parent = scatter(len(events), rows[callee], rows[nesting.parent[callee]])
    corrected = _use_named_callers(trace, parent, named, rows, end)
    stated = trace.edges.where(Relation.CALLS)
    parent[stated.target] = stated.source
    children = np.flatnonzero(parent != UNKNOWN)
    outermost = parent[rows] == UNKNOWN
    lost = int(np.count_nonzero(nesting.overlaps & outermost))
    notes = {
        "outermost": int(np.count_nonzero(outermost)) - lost,
        "overlapping": int(np.count_nonzero(nesting.overlaps)),
        "Python parent by id instead of by time": corrected,
        "Python functions without an end": int(np.count_nonzero(end < events.end)),
        STATED: len(stated),
    }
    report = LinkReport(
        "calls",
        linked=len(children),
        candidates=len(children) + lost,
        unlinked=nonzero({"overlaps the event it starts in": lost}),
        notes=nonzero(notes),
    )
    return Links(Edges.of_relation(Relation.CALLS, parent[children], children), report)


# Python functions: the callers that their ids name.


class NamedCallers(Table, frozen=True):
    """Calls of Python functions and the calls that their ids name as callers, one row for each pair."""

    callee: Int64s
    caller: Int64s


def named_callers(trace: RankTrace) -> NamedCallers:
    """The pairs of which the callee begins while the caller runs, on the same thread: other ids are out of date."""
    frames, callers = trace.key(Key.PYTHON_ID), trace.key(Key.PYTHON_PARENT)
    identity, wanted = scoped_pair(trace, frames, callers)
    found = lookup(identity, wanted)
    known = found != UNKNOWN
    pairs = NamedCallers(callers.rows[known], frames.rows[found[known]])
    events = trace.events
    begun, start = events.start[pairs.caller], events.start[pairs.callee]
    runs = (begun <= start) & (start <= events.end[pairs.caller]) & events.timed[pairs.caller]
    same_thread = events.track[pairs.callee] == events.track[pairs.caller]
    return pairs.take(runs & same_thread & (pairs.callee != pairs.caller))


def ends_within_callers(end: Int64s, callee: Int64s, caller: Int64s) -> Int64s:
    """Ends of events, where each `callee` ends at the latest with its `caller`, which runs when the callee begins.

    If the profiler misses the return of a Python function, it lets the function last far beyond its callers.
    """
    if not (end[callee] > end[caller]).any():
        return end
    around = np.arange(len(end))
    around[callee] = caller
    earliest = end
    for _ in range(len(callee).bit_length()):  # each round looks twice as far up
        before, earliest = earliest, np.minimum(earliest, earliest[around])
        if np.array_equal(before, earliest):
            break
        around = around[around]
    return earliest


def _use_named_callers(
    trace: RankTrace, parent: Int64s, named: NamedCallers, rows: Int64s, end: Int64s
) -> int:
    """Uses the caller that the id of a Python function names where times leave it open; returns their number.

    `rows` are the events in their order. Times leave it open if the event around the callee ends after the named
    caller or has no known end, or if the callee has no duration and begins when the function around it ends.
    """
    if not len(named.callee):
        return 0
    start, position = trace.events.start, np.full(len(parent), UNKNOWN, np.int64)
    position[rows] = np.arange(len(rows))
    around = parent[named.callee]
    other = (around != UNKNOWN) & (around != named.caller) & (end[named.callee] <= end[named.caller])
    other &= position[named.caller] < position[named.callee]
    pairs, around = named.take(other), around[other]
    touches = (start[pairs.callee] == end[pairs.callee]) & (end[around] == start[pairs.callee])
    touches &= trace.events.kind[around] == EventKind.PYTHON
    unclosed = end[around] < trace.events.end[around]
    open_ = (end[around] > end[pairs.caller]) | unclosed | touches
    parent[pairs.callee[open_]] = pairs.caller[open_]
    return int(np.count_nonzero(open_))


# Events that begin at the same time.


def _calling_order(trace: RankTrace, rows: Int64s, end: Int64s) -> Int64s:
    """The positions of events on threads, callers first; the profiler's numbers decide among equal starts."""
    events = trace.events
    kind = events.kind[rows]
    ties = np.zeros(256, np.int64)
    for each, tie in OUTER_FIRST.items():
        ties[each] = tie
    track, start = events.track[rows].astype(np.int64), events.start[rows]
    order = sort_outer_first(track, start, end, ties[kind])
    numbers = trace.key(Key.EVENT_INDEX) if len(trace.key(Key.EVENT_INDEX)) else trace.key(Key.PYTHON_ID)
    if not len(numbers) or len(order) < 2:
        return order
    same = (np.diff(track[order]) == 0) & (np.diff(start[order]) == 0)
    tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
    if not len(tied):
        return order
    chosen = order[tied]
    group = np.cumsum(np.concatenate([[True], ~same]))[tied]
    number = numbers.dense(len(events), UNKNOWN)[rows[chosen]]
    order[tied] = chosen[_by_number(group, end[chosen], ties[kind[chosen]], number)]
    return order


def _by_number(group: Int64s, end: Int64s, tie: Int64s, number: Int64s) -> Int64s:
    """The order of events that begin together, group by group.

    If all events of a group that can have a number have one, their order is that of the numbers: a short event
    that began before a long one is not inside it. Calls of the runtime have no numbers and come after the events
    around them.
    """
    numbered = number != UNKNOWN
    incomplete = np.zeros(int(group.max()) + 1, np.bool_)
    incomplete[group[~numbered & (tie != OUTER_FIRST[EventKind.RUNTIME])]] = True
    numbered &= ~incomplete[group]
    last = end.copy()
    chosen = np.flatnonzero(numbered)
    chosen = chosen[np.lexsort((number[chosen], group[chosen]))][::-1]
    times, code = np.unique(end[chosen], return_inverse=True)
    if len(chosen):
        base = (group.max() - group[chosen]) * len(times)
        last[chosen] = times[np.maximum.accumulate(base + code) - base]
    return np.lexsort((number, np.where(numbered, 0, tie), -last, group))


def _leave_touched_calls(parent: Int64s, start: Int64s, end: Int64s, kind: UInt8s) -> None:
    """Takes events without a duration out of calls of the runtime that begin or end at their time."""
    child = np.flatnonzero((start == end) & (parent != UNKNOWN))
    while len(child):
        caller = parent[child]
        call = kind[caller] == EventKind.RUNTIME
        touched = call & ((start[caller] == start[child]) | (end[caller] == start[child]))
        child, caller = child[touched], caller[touched]
        parent[child] = parent[caller]
        child = child[parent[child] != UNKNOWN]


# Nesting of intervals, for whole columns at once.


class Nesting(Struct, frozen=True):
    """The nesting of intervals, in the order of `sort_outer_first`."""

    parent: Int64s
    """The position of the innermost interval around each one, or UNKNOWN."""
    overlaps: Bools
    """True if an interval that is open when this one starts ends before this one does."""


def sort_outer_first(track: Int64s, start: Int64s, end: Int64s, tie: Int64s) -> Int64s:
    """Positions by track and start; of those with the same start the longest first, then the smallest `tie`."""
    span = int(start.max(initial=0)) - int(start.min(initial=0)) + 1
    tracks = int(track.max(initial=0)) + 1
    if span * tracks >= 1 << 62:
        return np.lexsort((tie, -end, start, track))
    key = track * span + (start - start.min(initial=0))
    order = np.argsort(key)
    sorted_key = key[order]
    same = sorted_key[1:] == sorted_key[:-1]
    tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort((rows, tie[rows], -end[rows], key[rows]))]
    return order


def nest(track: Int64s, start: Int64s, end: Int64s) -> Nesting:
    """The nesting of intervals that are in the order of `sort_outer_first`."""
    if not len(start):
        empty = np.empty(0, np.int64)
        return Nesting(empty, empty.astype(np.bool_))
    low, high = int(start.min()), int(end.max())
    span = high - low + 2
    if span * (int(track.max()) + 1) >= 1 << 62:
        ranks = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
        start, end = ranks[: len(start)], ranks[len(start) :]
        low, span = 0, int(ranks.max()) + 2
    base = track * span - low
    closes = end + base
    parent, between = previous_at_least(closes, closes)
    return Nesting(parent, between > start + base)
