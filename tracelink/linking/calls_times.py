"""When calls were asked for, entered and left, what that rests on, and the order that follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink.communications import Calls, Evidence
from tracelink.events import NO_TIME, UNFINISHED, Int64s, Key
from tracelink.linking.calls_draft import Draft
from tracelink.linking.communicating import OF_CPU, Words
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.trace import RankTrace


def times_of(trace: RankTrace, words: Words, draft: Draft, closed_by: Int64s) -> dict[str, Any]:
    """The columns `enqueued`, `start`, `end`, `evidence` and `state`."""
    events = trace.events
    working = words.matching(OF_CPU, values_at(events.name, draft.annotation))
    created = values_at(events.start, draft.record, NO_TIME)
    asked = np.where(draft.operator != NONE, draft.operator, draft.annotation)
    asked[working & (draft.operator == NONE)] = NONE
    enqueued = np.where(created != NO_TIME, created, values_at(events.start, asked, NO_TIME))
    closing = np.where(closed_by != NONE, closed_by, draft.record)
    state = trace.key(Key.STATE)
    known = values_at(state.values, lookup(state.rows, closing)).astype(np.int32)
    columns: dict[str, Any] = {"enqueued": enqueued, "state": known}
    closed = values_at(events.start, closing, NO_TIME)
    duration = values_at(events.duration, closing, UNFINISHED)
    completed = (duration >= 0) & (closed != NO_TIME)
    evidence = np.where(completed, np.int32(Evidence.RECORDER), np.int32(Evidence.NONE))
    entered, left = np.full(len(draft), NO_TIME, np.int64), np.where(completed, closed + duration, NO_TIME)
    work = draft.annotation[working]
    lasted = events.duration[work]
    entered[working] = events.start[work]
    left[working] = np.where(lasted >= 0, events.start[work] + lasted, NO_TIME)
    evidence[working] = Evidence.ANNOTATION
    run = draft.kernel != NONE
    entered[run], left[run] = events.start[draft.kernel[run]], draft.kernels_end[run]
    evidence[run] = Evidence.KERNEL
    return columns | {"start": entered, "end": left, "evidence": evidence}


def in_order(trace: RankTrace, calls: Calls) -> Calls:
    """By the time they were asked for, else entered or left; what has none by its node, else by its number."""
    time = calls.enqueued
    for other in (calls.start, calls.end):
        time = np.where(time == NO_TIME, other, time)
    timed = time != NO_TIME
    if timed.all():
        return calls if np.all(np.diff(time) >= 0) else calls.take(np.argsort(time, kind="stable"))
    identity = trace.key(Key.NODE_ID)
    node = values_at(identity.values, lookup(identity.rows, calls.node))
    time = np.where(timed, time, _time_by_node(node, time, timed))
    return calls.take(np.lexsort((calls.sequence, node, ~timed, time)))


def _time_by_node(node: Int64s, time: Int64s, timed: Any) -> Int64s:
    """The time of the last call before each whose node comes first: ids count up as operators begin."""
    known = np.flatnonzero(timed & (node != NONE))
    known = known[np.argsort(node[known], kind="stable")]
    latest = np.maximum.accumulate(time[known]) if len(known) else np.empty(0, np.int64)
    before = np.searchsorted(node[known], node) - 1
    return np.where((before == NONE) | (node == NONE), NO_TIME, values_at(latest, before, NO_TIME))
