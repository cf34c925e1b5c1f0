"""Where device work was launched: the operator, the module and the line of the program around each launch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s, Rows, Table, lookup
from tracelink._model.events import EventKind, Relation
from tracelink._model.records import OF_TORCH_IN_PROFILES, frame_of, starts_a_program
from tracelink._model.selection import STEP_NAMES
from tracelink._time.rank.view import RankView, Work

MODULE = "nn.Module: "
"""How a profile names the calls of modules."""
DEEPEST = 1200
"""Calls around a launch that are looked at; Python itself ends deeper recursions."""


class CallSites(Table, frozen=True):
    """One row for each call: the events around it, or UNKNOWN."""

    call: Rows
    operator: Rows
    """The innermost operator."""
    outermost: Rows
    """The outermost operator or annotation, other than a step."""
    module: Rows
    """The innermost module; of backward work that of the forward operator."""
    line: Rows
    """The innermost function of the program itself; of backward work that of the forward operator."""
    forward: Rows
    """The forward operator of backward work, if module and line are those of it."""


class Marks(Struct, frozen=True):
    """Which events are what, by row; one more for UNKNOWN."""

    operator: Bools
    outer: Bools
    module: Bools
    line: Bools
    forward: Int64s
    """The forward operator of a backward one, or UNKNOWN."""

    @classmethod
    def of(cls, view: RankView) -> Marks:
        """The marks of a rank."""
        events = view.events
        python = np.flatnonzero(events.kind == EventKind.PYTHON)
        outer = np.flatnonzero(events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION))
        forward = np.full(len(events) + 1, UNKNOWN, np.int64)
        edges = view.graph.edges
        backward = np.flatnonzero(edges.relation == Relation.BACKWARD_OF)
        forward[edges.source[backward]] = edges.target[backward]
        return cls(
            np.append(events.kind == EventKind.OPERATOR, False),
            _marked(view, outer, ~view.named(outer, _is_step)),
            _marked(view, python, view.named(python, lambda name: name.startswith(MODULE))),
            _marked(view, python, view.named(python, _is_of_program)),
            forward,
        )


def _marked(view: RankView, rows: Int64s, passed: Bools) -> Bools:
    marks = np.zeros(len(view.events) + 1, np.bool_)
    marks[rows[passed]] = True
    return marks


def _is_step(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in STEP_NAMES)


def _is_of_program(name: str) -> bool:
    frame = frame_of(name)
    return bool(
        frame and not OF_TORCH_IN_PROFILES.match(frame.filename) and not starts_a_program(frame.filename)
    )


def call_sites_of(view: RankView, marks: Marks, calls: Int64s) -> CallSites:
    """The sites of calls, sorted by the row of the call; UNKNOWN is left out."""
    called = np.zeros(len(view.events) + 1, np.bool_)
    called[calls] = True
    calls = np.flatnonzero(called[:-1])
    operator, outermost, module, line, forward = np.full((5, len(calls)), UNKNOWN, np.int64)
    for row, at in _upwards(view, calls):
        _keep_first(operator, at, row, marks.operator)
        _keep_first(module, at, row, marks.module)
        _keep_first(line, at, row, marks.line)
        outer = marks.outer[row]
        outermost[at[outer]] = row[outer]
        linked = marks.forward[row] != UNKNOWN
        forward[at[linked]] = marks.forward[row[linked]]
    forward[(module != UNKNOWN) | (line != UNKNOWN)] = UNKNOWN
    behind = np.flatnonzero(forward != UNKNOWN)
    for row, at in _upwards(view, forward[behind]):
        _keep_first(module, behind[at], row, marks.module)
        _keep_first(line, behind[at], row, marks.line)
    return CallSites(calls, operator, outermost, module, line, forward)


def _keep_first(found: Int64s, at: Int64s, row: Int64s, marked: Bools) -> None:
    hit = marked[row] & (found[at] == UNKNOWN)
    found[at[hit]] = row[hit]


def _upwards(view: RankView, rows: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yields the rows, then their callers, and so on, each time with the indexes of those that have one."""
    at = np.arange(len(rows))
    for _ in range(DEEPEST):
        if not len(at):
            return
        yield rows, at
        rows = view.caller[rows]
        there = rows != UNKNOWN
        rows, at = rows[there], at[there]


def device_time(view: RankView, inside: Bools) -> Int64s:
    """For each event the device time of the work that was launched within it; `inside` selects work."""
    chosen = inside & (view.work.call != UNKNOWN)
    return _rolled_up(view, view.work.call[chosen], view.work.take(chosen))


def backward_time(view: RankView, sites: CallSites, inside: Bools) -> Int64s:
    """For each event the device time of the backward work of forward operators within it."""
    forward = np.append(sites.forward, UNKNOWN)[lookup(sites.call, view.work.call)]
    chosen = inside & (forward != UNKNOWN)
    return _rolled_up(view, forward[chosen], view.work.take(chosen))


def _rolled_up(view: RankView, rows: Int64s, work: Work) -> Int64s:
    """For each event the time of the work of all these rows that it encloses."""
    total = np.zeros(len(view.events) + 1, np.int64)
    spent = np.zeros(len(view.events), np.int64)
    np.add.at(spent, rows, work.end - work.start)
    spending = np.flatnonzero(spent)
    for around, at in _upwards(view, spending):
        np.add.at(total, around, spent[spending[at]])
    return total[:-1]
