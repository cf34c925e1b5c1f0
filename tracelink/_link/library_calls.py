"""Calls of a communication library that a profiler recorded, such as `ncclAllReduce`, and the kernels of each.

A call launches its work before it returns, or, between the start and the end of a group, when the group ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._link.call_events import CallEvents, LibraryCalls
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, lookup, scatter, values_at
from tracelink._model.events import EventKind
from tracelink._model.trace import RankTrace

LIBRARY_CALL = re.compile(r"^[nr]cclx?[A-Z]\w*$")
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


def library_calls(trace: RankTrace) -> LibraryCalls:
    """The calls that state something of communication."""
    events, names = trace.events, trace.strings
    stated = trace.communications.row
    stated = stated[events.kind[stated] == EventKind.ANNOTATION]
    matching = np.array([bool(LIBRARY_CALL.match(name)) for name in names.texts()] or [False], np.bool_)
    calls = np.unique(stated[matching[events.name[stated]]])
    if not len(calls):
        return LibraryCalls.empty()
    marks = [_marks(trace, name) for name in (GROUP_START, GROUP_END)]
    rows = np.concatenate([calls, *marks])
    change = np.repeat([0, 1, -1], [len(calls), len(marks[0]), len(marks[1])])
    order = np.lexsort((events.start[rows], events.track[rows]))
    return _units(trace, rows[order], change[order])


def _marks(trace: RankTrace, name: str) -> Int64s:
    """The events at which groups start or end."""
    code = trace.strings.find(name)
    return np.flatnonzero((trace.events.name == code) & (trace.events.kind == EventKind.ANNOTATION))


def _units(trace: RankTrace, rows: Int64s, change: Int64s) -> LibraryCalls:
    """Calls and marks in the order of their threads, where `change` is by how much they change the depth of groups."""
    track = trace.events.track[rows].astype(np.int64)
    fresh = np.concatenate([[True], np.diff(track) != 0])
    depth = np.cumsum(change)
    before = depth - change
    thread = np.cumsum(fresh) * (len(rows) + 1)
    lowest = np.minimum.accumulate(before - 2 * thread) + 2 * thread  # a recording can begin within a group
    opens = fresh | (before == lowest)
    unit = np.cumsum(opens) - 1
    ends = np.full(int(unit[-1]) + 1, NO_TIME, np.int64)
    np.maximum.at(ends, unit, trace.events.end[rows])
    first = np.flatnonzero(opens)
    is_call = change == 0
    return LibraryCalls(rows[is_call], unit[is_call], track[first], trace.events.start[rows[first]], ends)


class LaunchedWork(Struct, frozen=True):
    """For each library call its first kernel, or UNKNOWN, and when its last kernel ends, or NO_TIME."""

    kernel: Int64s
    kernels_end: Int64s
    other: Bools
    """Of each kernel whether no library call launched it."""


def launched_work(trace: RankTrace, calls: LibraryCalls, kernels: Int64s, launches: Int64s) -> LaunchedWork:
    """The kernels that units launched; a unit with as many kernels as calls launched one for each.

    `kernels` are in order of start, `launches` are the runtime calls that launched them, or UNKNOWN.
    """
    events = trace.events
    time = values_at(events.start, launches, NO_TIME)
    unit = calls.unit_at(values_at(events.track, launches).astype(np.int64), time)
    inside = np.flatnonzero(unit != UNKNOWN)
    inside = inside[np.lexsort((time[inside], unit[inside]))]
    units = len(calls.track)
    launched, called = (np.bincount(units_of, minlength=units) for units_of in (unit[inside], calls.unit))
    nth = np.arange(len(calls.rows)) - (np.cumsum(called) - called)[calls.unit]
    each = (launched == called)[calls.unit]
    some = (launched > 0)[calls.unit]
    position = (np.cumsum(launched) - launched)[calls.unit] + np.where(each, nth, 0)
    kernel = scatter(len(calls.rows), some, kernels[inside[position[some]]])
    latest = np.full(units, NO_TIME, np.int64)
    np.maximum.at(latest, unit[inside], events.end[kernels[inside]])
    ends = np.where(each, values_at(events.end, kernel, NO_TIME), latest[calls.unit])
    return LaunchedWork(kernel, np.where(some, ends, NO_TIME), unit == UNKNOWN)


def sum_sent(
    trace: RankTrace, parts: CallEvents, library: Int64s, issuer: Int64s, columns: Mapping[str, Any]
) -> None:
    """Sets what collectives that consist of messages send: the sum of all messages that their operator sent.

    `library` is the first library call of each call, `issuer` its operator, `columns` the attributes of calls.
    """
    table = trace.communications
    statement = lookup(table.row, parts.library.rows)
    sent = values_at(table.point_to_point, statement, False) & (values_at(table.target, statement) != UNKNOWN)
    sent &= parts.called != UNKNOWN
    size = np.maximum(values_at(table.elements_in, statement), 0)
    total = np.bincount(parts.called[sent], size[sent], int(issuer.max(initial=0)) + 1).astype(np.int64)
    first = lookup(parts.library.rows, library)
    composed = np.flatnonzero(
        values_at(sent, first, False) & ~columns["point_to_point"] & (issuer != UNKNOWN)
    )
    columns["elements_in"][composed] = columns["elements_out"][composed] = total[issuer[composed]]
