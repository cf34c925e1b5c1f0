"""*calls*: which event runs inside which, by nesting of their intervals; also the nesting of any intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.model.columns import UNKNOWN, Bools, Int64s, lookup, previous_at_least
from tracelink.model.events import ON_THREAD, Edges, EventKind, Key, Relation
from tracelink.model.graph import STATED, LinkReport, Links, nonzero
from tracelink.model.trace import RankTrace, scoped_pair

OUTER_FIRST = {EventKind.PYTHON: 0, EventKind.ANNOTATION: 1, EventKind.OPERATOR: 2, EventKind.RUNTIME: 3}
"""Which of two events with the same interval is outside."""


def link_calls(trace: RankTrace) -> Links:
    """Caller to callee for everything that runs on a thread; a caller that the source states comes first."""
    events = trace.events
    rows = np.flatnonzero(events.of_kind(*ON_THREAD) & events.timed)
    ties = np.zeros(256, np.int64)
    for kind, tie in OUTER_FIRST.items():
        ties[kind] = tie
    track, start, end = events.track[rows].astype(np.int64), events.start[rows], events.end[rows]
    order = sort_outer_first(track, start, end, ties[events.kind[rows]])
    nesting = nest(track[order], start[order], end[order])
    rows = rows[order]
    callee = np.flatnonzero(nesting.parent != UNKNOWN)
    parent = np.full(len(events), UNKNOWN, np.int64)
    parent[rows[callee]] = rows[nesting.parent[callee]]
    corrected = _use_python_ids(trace, parent)
    stated = trace.edges.where(Relation.CALLS)
    parent[stated.target] = stated.source
    children = np.flatnonzero(parent != UNKNOWN)
    outermost = parent[rows] == UNKNOWN
    lost = int(np.count_nonzero(nesting.overlaps & outermost))
    notes = {
        "outermost": int(np.count_nonzero(outermost)) - lost,
        "overlapping": int(np.count_nonzero(nesting.overlaps)),
        "Python parent by id instead of by time": corrected,
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


def _use_python_ids(trace: RankTrace, parent: Int64s) -> int:
    """Puts Python frames inside the frame that their ids name, unless another kind of event encloses them."""
    frames, callers = trace.key(Key.PYTHON_ID), trace.key(Key.PYTHON_PARENT)
    if not len(callers):
        return 0
    identity, wanted = scoped_pair(trace, frames, callers)
    found = lookup(identity, wanted)
    child = callers.rows[found != UNKNOWN]
    caller = frames.rows[found[found != UNKNOWN]]
    nested = parent[child]
    kind = trace.events.kind
    by_frame = (nested == UNKNOWN) | (kind[nested] == EventKind.PYTHON)
    wrong = by_frame & (nested != caller) & (child != caller)
    parent[child[wrong]] = caller[wrong]
    return int(np.count_nonzero(wrong))


# Nesting of intervals, for whole columns at once.


@dataclass(frozen=True, slots=True)
class Nesting:
    """How intervals lie in each other, in the order of `sort_outer_first`."""

    parent: Int64s
    """The position of the innermost interval around each one, or UNKNOWN."""
    overlaps: Bools
    """Whether an interval that is open when this one starts ends before this one does."""


def sort_outer_first(track: Int64s, start: Int64s, end: Int64s, tie: Int64s) -> Int64s:
    """Positions by track and start; of those with the same start the longest first, then the smallest `tie`."""
    span = int(start.max(initial=0) - start.min(initial=0)) + 1
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
