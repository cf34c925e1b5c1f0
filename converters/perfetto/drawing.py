"""What is drawn, and when: every event with a time; nodes in logical order where nothing has one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tracelink.events import NO_TIME, UNFINISHED, Bools, EventKind, Int64s, Key, Relation
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph
from tracelink.job import Job

SECOND = 10**9
MICROSECOND = 1000
SHOWS_PROGRESS = frozenset({"started", "completed"})
DONE = "completed"
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Drawing:
    """For each event whether and when it is drawn; times are nanoseconds after `base`."""

    base: int
    shown: Bools
    instant: Bools
    start: Int64s
    duration: Int64s
    open_ended: Int64s
    """Rows whose end was not recorded."""
    nodes: Mapping[int, int]
    """Row of a timed event to that of the execution-trace node that is the same."""
    findings: tuple[Finding, ...] = ()
    hung: frozenset[int] = frozenset()
    """Rows of `open_ended` that hang."""


def base_of(job: Job) -> int | None:
    """The whole second before the first event; None where nothing has a time."""
    return None if job.first_ns is None else job.first_ns // SECOND * SECOND


def draw(
    graph: EventGraph,
    base: int | None,
    left_out: Collection[EventKind] = (),
    hung: Int64s = NO_ROWS,
    hung_until: int = 0,
) -> Drawing:
    """Times for everything of one rank that can be drawn and is not of a kind `left_out`, relative to `base`."""
    events = graph.events
    unwanted = events.timed & events.of_kind(*left_out)
    shown = events.timed & ~unwanted
    if base is None and events.of_kind(EventKind.NODE).any():
        return _in_logical_order(graph)
    base = base or 0
    start = np.where(shown, events.start - base, 0)
    instant = events.of_kind(EventKind.INSTANT, EventKind.MEMORY) & (events.duration <= 0) & shown
    open_ended = np.flatnonzero(shown & (events.duration == UNFINISHED) & ~instant)
    duration = np.maximum(events.duration, 0)
    findings = _left_out_findings(unwanted)
    if len(open_ended):
        duration[open_ended] = _until_end_of_same(graph, open_ended, _until_last_sign(graph, open_ended))
        duration[hung] = hung_until - events.start[hung]
        findings += _open_ended_findings(graph, open_ended, hung)
    nodes = _partners(graph, shown)
    findings += _untimed_findings(graph, nodes)
    caught = frozenset(hung[shown[hung]].tolist())
    return Drawing(base, shown, instant, start, duration, open_ended, nodes, tuple(findings), caught)


def _until_last_sign(graph: EventGraph, rows: Int64s) -> Int64s:
    """How long to draw events without an end: to the last sign of life of their rank, or not at all.

    gloo's entries stay "scheduled" for ever, so a recorder track on which nothing ever started says nothing
    about an end; neither does a completed entry without a duration.
    """
    events = graph.events
    until: Int64s = events.end[events.timed].max() - events.start[rows]
    records = events.kind[rows] == EventKind.RECORD
    states = graph.key(Key.STATE).dense(len(events), -1)
    progress = np.array([text in SHOWS_PROGRESS for text in graph.strings] + [False])
    done = np.array([text == DONE for text in graph.strings] + [False])
    telling = np.zeros(len(graph.tracks), np.bool_)
    telling[events.track[progress[states]]] = True
    until[records & (done[states[rows]] | ~telling[events.track[rows]])] = 0
    return until


def _until_end_of_same(graph: EventGraph, rows: Int64s, otherwise: Int64s) -> Int64s:
    """How long to draw events without an end that are the same as one with an end: as long as that lasts."""
    events = graph.events
    same = graph.edges.where(Relation.SAME)
    one, other = np.concatenate([same.source, same.target]), np.concatenate([same.target, same.source])
    known = events.timed[other] & (events.duration[other] != UNFINISHED)
    last = np.full(len(events), NO_TIME)
    np.maximum.at(last, one[known], events.end[other[known]])
    return np.where(last[rows] > events.start[rows], last[rows] - events.start[rows], otherwise)


def _open_ended_findings(graph: EventGraph, rows: Int64s, hung: Int64s) -> list[Finding]:
    others = np.setdiff1d(rows, hung)
    messages = {
        "hung": "entries of recorders that hang are drawn to the end of the trace; their names begin with HUNG",
        "unfinished": "events whose end was not recorded are drawn to the end of the event that is the same, else to "
        "the last event of their rank, or without length where their source never says that anything ends",
    }
    return [
        Finding(Severity.INFO, reason, messages[reason], len(some), example=graph.name(int(some[0])))
        for reason, some in (("hung", hung), ("unfinished", others))
        if len(some)
    ]


def _left_out_findings(unwanted: Bools) -> list[Finding]:
    """How many events nobody wants to see."""
    count = int(np.count_nonzero(unwanted))
    message = "calls of Python functions are left out, as was asked for"
    return [Finding(Severity.INFO, "left_out", message, count)] if count else []


def _untimed_findings(graph: EventGraph, nodes: Mapping[int, int]) -> list[Finding]:
    """How many events have neither a time nor a partner with one."""
    hidden = ~graph.events.timed
    hidden[list(nodes.values())] = False
    rows = np.flatnonzero(hidden)
    if not len(rows):
        return []
    message = "events that have no time and are the same as none that has one are not drawn"
    return [Finding(Severity.INFO, "untimed", message, len(rows), example=graph.name(int(rows[0])))]


def _partners(graph: EventGraph, shown: Bools) -> dict[int, int]:
    """The timed events that are the same as an execution-trace node without a time, and the node's row."""
    same = graph.edges.where(Relation.SAME)
    number = graph.key(Key.NODE_ID).dense(len(graph), -1)
    timed = np.concatenate([same.source, same.target])
    node = np.concatenate([same.target, same.source])
    fits = shown[timed] & ~shown[node] & (number[node] >= 0)
    return dict(zip(timed[fits].tolist(), node[fits].tolist(), strict=True))


def _in_logical_order(graph: EventGraph) -> Drawing:
    """Nodes in the order of their ids, one microsecond after the other, around their children."""
    events = graph.events
    shown = events.of_kind(EventKind.NODE)
    rows = np.flatnonzero(shown)
    ids = graph.key(Key.NODE_ID).dense(len(events), -1)
    start = np.zeros(len(events), np.int64)
    end = np.zeros(len(events), np.int64)
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(ids[mine], kind="stable")]
        start[mine] = np.arange(len(mine)) * MICROSECOND
        end[mine] = start[mine] + MICROSECOND
        _enclose_children(graph, mine, ids, end)
    none = np.empty(0, np.int64)
    finding = Finding(
        Severity.WARNING,
        "logical_order",
        "no event has a time: nodes are drawn in the order of their ids, a microsecond for each; "
        "lengths mean nothing",
        count=len(rows),
    )
    untimed = np.zeros(len(events), np.bool_)
    return Drawing(0, shown, untimed, start, np.maximum(end - start, 0), none, {}, (finding,))


def _enclose_children(graph: EventGraph, rows: Int64s, ids: Int64s, end: Int64s) -> None:
    """Lets every node end after its children; `rows` are one source's nodes in the order of their ids."""
    parents = graph.key(Key.NODE_PARENT).dense(len(ids), -1)[rows]
    row_of = dict(zip(ids[rows].tolist(), rows.tolist(), strict=True))
    ends = dict(zip(rows.tolist(), end[rows].tolist(), strict=True))
    for row, parent in zip(reversed(rows.tolist()), reversed(parents.tolist()), strict=True):
        outer = row_of.get(parent, row)
        if ends[outer] < ends[row]:
            ends[outer] = ends[row]
    end[rows] = list(ends.values())
