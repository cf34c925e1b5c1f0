"""What dependencies must be: each on a node that there is, once, in no circle, and forward in time."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.rules import Rule
from tracelink.converters.chakra.validation.trace import Breach, Trace
from tracelink.events import Bools, Int64s

SHOWN = 4
SORTS = ("data_deps", "ctrl_deps")


def missing_dependency(trace: Trace) -> Breach:
    """M5: every id is that of a node."""
    wrong = np.flatnonzero(trace.dependencies.place < 0)
    return _breach(trace, Rule.MISSING_DEPENDENCY, wrong, "and there is no such node")


def self_dependency(trace: Trace) -> Breach:
    """M6: no node depends on itself."""
    stated = trace.dependencies
    wrong = (stated.id == trace.nodes.id[stated.owner]) if len(stated.id) else np.empty(0, bool)
    return _breach(trace, Rule.SELF_DEPENDENCY, _once(trace, wrong), "which is itself")


def duplicate_dependency(trace: Trace) -> Breach:
    """M7: no id stands twice in data_deps, nor in ctrl_deps."""
    stated = trace.dependencies
    order = np.lexsort((stated.id, stated.control, stated.owner))
    again = _alike(stated.owner[order], stated.control[order], stated.id[order])
    return _breach(trace, Rule.DUPLICATE_DEPENDENCY, np.sort(order[again]), "more than once")


def cycle(trace: Trace) -> Breach:
    """M6: data_deps and ctrl_deps together run in no circle."""
    cycles = trace.issued.cycles
    rows = np.array([circle[0] for circle in cycles], np.int64)

    def says(place: int) -> str:
        circle = cycles[place]
        names = [trace.called(row) for row in circle[:SHOWN]]
        rest = [f"{len(circle) - SHOWN:,} more"] if len(circle) > SHOWN else []
        path = ", which depends on ".join([*names, *rest, f"node {trace.id(circle[0])} again"])
        return f"{path}: with all that waits for circles, {trace.issued.stuck:,} nodes never begin"

    return Breach(Rule.CYCLE, rows, says)


def backward_time(trace: Trace) -> Breach:
    """A node does not start before what it depends on does, where both say when."""
    stated, start = trace.dependencies, trace.nodes.start
    usable = np.flatnonzero(stated.usable)
    before, after = start[stated.place[usable]], start[stated.owner[usable]]
    wrong = usable[(after > 0) & (before > after)]

    def says(place: int) -> str:
        one = int(wrong[place])
        owner, other = int(stated.owner[one]), int(stated.place[one])
        return (
            f"{trace.called(owner)} starts at {start[owner]:,} µs and depends on {trace.called(other)},"
            f" which starts {start[other] - start[owner]:,} µs later"
        )

    return Breach(Rule.BACKWARD_TIME, stated.owner[wrong], says)


def _breach(trace: Trace, rule: Rule, wrong: Int64s, why: str) -> Breach:
    stated = trace.dependencies

    def says(place: int) -> str:
        one = int(wrong[place])
        sort = SORTS[int(stated.control[one])]
        return f"{trace.called(int(stated.owner[one]))} has {unsigned(stated.id[one])} in {sort}, {why}"

    return Breach(rule, stated.owner[wrong], says)


def _alike(*columns: Int64s | Bools) -> Bools:
    """Which rows of sorted columns are like the one before."""
    alike = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        alike &= column[1:] == column[:-1]
    result: Bools = np.append(False, alike)[: len(columns[0])]
    return result


def _once(trace: Trace, wrong: Bools) -> Int64s:
    """The first of these of each node."""
    chosen = np.flatnonzero(wrong)
    _, first = np.unique(trace.dependencies.owner[chosen], return_index=True)
    return chosen[np.sort(first)]
