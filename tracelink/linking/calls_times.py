"""When calls were asked for, entered and left, what that rests on, and the order that follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN, Calls, Evidence
from tracelink.events import NO_TIME, Int64s, Key
from tracelink.linking.calls_draft import Draft
from tracelink.linking.communicating import OF_CPU, Words
from tracelink.linking.joins import NONE, lookup
from tracelink.trace import RankTrace


def times_of(trace: RankTrace, words: Words, draft: Draft, closed_by: Int64s) -> dict[str, Any]:
    """The columns `enqueued`, `start`, `end`, `evidence` and `state`."""
    events = trace.events
    start = np.append(events.start, NO_TIME)
    created = start[draft.record]
    columns: dict[str, Any] = {"enqueued": np.where(created != NO_TIME, created, start[draft.operator])}
    closing = np.where(closed_by != NONE, closed_by, draft.record)
    duration = np.append(events.duration, -1)[closing]
    completed = np.where((duration >= 0) & (start[closing] != NO_TIME), start[closing] + duration, NO_TIME)
    evidence = np.where(completed != NO_TIME, Evidence.RECORDER, Evidence.NONE)
    entered, left = np.full(len(draft), NO_TIME, np.int64), completed
    names = np.append(events.name, np.int32(UNKNOWN))[draft.annotation]
    working = words.matching(OF_CPU, names) & (start[draft.annotation] != NO_TIME)
    kernel = draft.kernel != NONE
    for chosen, basis, first, last in (
        (working, Evidence.ANNOTATION, start[draft.annotation], np.append(events.end, 0)[draft.annotation]),
        (kernel, Evidence.KERNEL, start[draft.kernel], draft.kernels_end),
    ):
        if chosen.any():
            entered, left = np.where(chosen, first, entered), np.where(chosen, last, left)
            evidence = np.where(chosen, basis, evidence)
    state = trace.key(Key.STATE)
    said = np.append(state.values, UNKNOWN)[lookup(state.rows, closing)]
    columns |= {"start": entered, "end": left, "evidence": evidence.astype(np.int32)}
    return columns | {"state": said.astype(np.int32)}


def in_order(trace: RankTrace, calls: Calls) -> Calls:
    """By the time they were asked for, else entered or left; what has none by its node, else by its number."""
    time = calls.enqueued
    for other in (calls.start, calls.end):
        time = np.where(time == NO_TIME, other, time)
    timed = time != NO_TIME
    if timed.all():
        return calls if np.all(np.diff(time) >= 0) else calls.take(np.argsort(time, kind="stable"))
    identity = trace.key(Key.NODE_ID)
    node = np.append(identity.values, NONE)[lookup(identity.rows, calls.node)]
    time = np.where(timed, time, _time_by_node(node, time, timed))
    return calls.take(np.lexsort((calls.sequence, node, ~timed, time)))


def _time_by_node(node: Int64s, time: Int64s, timed: Any) -> Int64s:
    """The time of the last call before each whose node comes first: ids count up as operators begin."""
    known = np.flatnonzero(timed & (node != NONE))
    known = known[np.argsort(node[known], kind="stable")]
    latest = np.maximum.accumulate(time[known]) if len(known) else np.empty(0, np.int64)
    before = np.searchsorted(node[known], node) - 1
    return np.where((before == NONE) | (node == NONE), NO_TIME, np.append(latest, NO_TIME)[before])
