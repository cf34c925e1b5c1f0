"""Arrows that the producer drew: bound to the events that they begin and end at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.kineto.columns import Flow
from tracelink.converters.kineto.schema import BACKWARD_FLOWS, FLOW_END, FLOW_START
from tracelink.converters.kineto.shapes import Shapes
from tracelink.events import Bools, Int64s, KeyColumn


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of one sort of arrow: starts and ends by id, with lane and time."""

    identity: Int64s
    pid: Int64s
    tid: Int64s
    time: Int64s


@dataclass(frozen=True, slots=True)
class Arrows:
    """The arrows of a file by what they say."""

    launches: Int64s
    """Ids of launch arrows that have both ends: correlations that the producer linked itself."""
    backward_out: Ends
    backward_in: Ends
    other_out: Ends
    other_in: Ends


def sort_flows(launch_ends: Sequence[tuple[Int64s, Int64s]], flows: Sequence[Flow], shapes: Shapes) -> Arrows:
    """Sorts the ends of all arrows by category and direction."""
    whole = _joined(flows)
    launch_shape = np.concatenate([np.empty(0, np.int64), *(shape for shape, _ in launch_ends)]).astype(
        np.int64
    )
    launch = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in launch_ends)]).astype(np.int64)
    category = [text[1:] for text in shapes.table.texts()]
    starts = _of(whole, [role == FLOW_START for role in shapes.roles])
    ends = _of(whole, [role == FLOW_END for role in shapes.roles])
    backward = _of(whole, [name in BACKWARD_FLOWS for name in category])
    other = ~backward
    return Arrows(
        in_both(
            launch[shapes.are(launch_shape, frozenset({FLOW_START}))],
            launch[shapes.are(launch_shape, frozenset({FLOW_END}))],
        ),
        _ends(whole, backward & starts),
        _ends(whole, backward & ends),
        _ends(whole, other & starts),
        _ends(whole, other & ends),
    )


def in_both(some: Int64s, others: Int64s) -> Int64s:
    """The ids in both columns, in order. Ids that count up from small numbers are looked up, not sorted."""
    if not len(some) or not len(others):
        return np.empty(0, np.int64)
    top = int(max(some.max(), others.max()))
    if min(int(some.min()), int(others.min())) < 0 or top > 8 * (len(some) + len(others)) + (1 << 20):
        return np.intersect1d(some, others)
    seen = np.zeros((2, top + 1), np.bool_)
    seen[0, some] = True
    seen[1, others] = True
    return np.flatnonzero(seen[0] & seen[1])


def bind(ends: Ends, lanes: tuple[Int64s, Int64s], start: Int64s, rows: Int64s, *, last: bool) -> KeyColumn:
    """The event, of `rows`, that each end stands on: same process, same thread, same start.

    Where several begin there, the `last` of them in the file's order or the first.
    """
    pid, tid = lanes
    code = _codes(
        np.concatenate([pid[rows], ends.pid]),
        np.concatenate([tid[rows], ends.tid]),
        np.concatenate([start[rows], ends.time]),
    )
    of_event, of_end = code[: len(rows)], code[len(rows) :]
    order = np.argsort(of_event, kind="stable")
    place = np.searchsorted(of_event[order], of_end, side="right" if last else "left") - (1 if last else 0)
    inside = (place >= 0) & (place < len(order))
    found = np.zeros(len(of_end), np.bool_)
    found[inside] = of_event[order[place[inside]]] == of_end[inside]
    return KeyColumn(rows[order[place[found]]], ends.identity[found])


def _codes(*columns: Int64s) -> Int64s:
    """One number for each row; equal numbers mean equal rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place, return_inverse=True)[1].astype(np.int64)
    return code


def _joined(flows: Sequence[Flow]) -> Flow:
    if not flows:
        empty = np.empty(0, np.int64)
        return Flow(empty, empty, empty, empty, empty)
    return Flow(
        np.concatenate([flow.shape for flow in flows]),
        np.concatenate([flow.identity for flow in flows]),
        np.concatenate([flow.pid for flow in flows]),
        np.concatenate([flow.tid for flow in flows]),
        np.concatenate([flow.time for flow in flows]),
    )


def _of(whole: Flow, marks: list[bool]) -> Bools:
    return np.array(marks, np.bool_)[whole.shape] if marks else np.zeros(len(whole.shape), np.bool_)


def _ends(whole: Flow, chosen: Bools) -> Ends:
    return Ends(whole.identity[chosen], whole.pid[chosen], whole.tid[chosen], whole.time[chosen])
