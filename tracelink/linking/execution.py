"""Same: execution-trace node and operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.linking.alignment import align
from tracelink.linking.links import Links
from tracelink.model.columns import UNKNOWN, Bools, Int64s, lookup
from tracelink.model.events import Edges, EventKind, Key, KeyColumn, Relation
from tracelink.model.graph import LinkReport
from tracelink.model.trace import RankTrace

RELATION = "same.et_kineto"
ROOT_NAMES = ("[pytorch|profiler|execution_trace|", "[pytorch|profiler|execution_graph|")
TRUSTED = 0.5
"""Ids of which fewer than this share lead to the same name are not the same ids."""


@dataclass(frozen=True, slots=True)
class _Joined:
    """Nodes and operators that have the same id, and how far their names agree."""

    nodes: Int64s
    operators: Int64s
    same_name: Bools

    @property
    def agreement(self) -> float:
        return float(self.same_name.mean()) if len(self.nodes) else 0.0


def link_execution(trace: RankTrace) -> Links:
    """Nodes to operators: by record-function id, by External id where that is what it means, else by order."""
    nodes = _nodes(trace)
    operators = np.flatnonzero(_profiled(trace))
    if not len(nodes) or not len(operators):
        return Links(Edges.empty(), LinkReport(RELATION, 0, 0))
    handles = _among(trace, trace.key(Key.RECORD_FUNCTION), nodes)
    for key, meaning in ((Key.RECORD_FUNCTION, "record-function id"), (Key.EXTERNAL_ID, "External id")):
        recorded = _among(trace, trace.key(key), operators)
        joined = _join(trace, handles, recorded)
        if joined.agreement >= TRUSTED:
            return _by_id(handles, recorded, joined, meaning)
    return _by_order(trace, nodes, operators)


def _nodes(trace: RankTrace) -> Int64s:
    """Nodes that stand for something that ran; the roots of the process and its threads do not.

    A trace of which nodes have times was linked before: no other of its operators is one of its nodes.
    """
    is_root = np.array([text.startswith(ROOT_NAMES) for text in trace.strings.texts()] or [False], np.bool_)
    identified = trace.key(Key.NODE_ID).rows
    linked = np.unique(trace.events.source[identified[_profiled(trace)[identified]]])
    nodes = np.flatnonzero(trace.events.of_kind(EventKind.NODE) & ~np.isin(trace.events.source, linked))
    return nodes[~is_root[trace.events.name[nodes]]]


def _profiled(trace: RankTrace) -> Bools:
    return trace.events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION)


def _among(trace: RankTrace, column: KeyColumn, rows: Int64s) -> KeyColumn:
    chosen = np.zeros(len(trace.events), np.bool_)
    chosen[rows] = True
    return column.where(chosen[column.rows])


def _join(trace: RankTrace, handles: KeyColumn, recorded: KeyColumn) -> _Joined:
    found = lookup(recorded.values, handles.values)
    nodes, operators = handles.rows[found != UNKNOWN], recorded.rows[found[found != UNKNOWN]]
    return _Joined(nodes, operators, trace.events.name[nodes] == trace.events.name[operators])


def _by_id(handles: KeyColumn, recorded: KeyColumn, joined: _Joined, meaning: str) -> Links:
    """Candidates are the nodes with ids from the time that the profiler was on."""
    first, last = int(recorded.values.min()), int(recorded.values.max())
    inside = int(np.count_nonzero((handles.values >= first) & (handles.values <= last)))
    edges = Edges.of(Relation.SAME, joined.nodes[joined.same_name], joined.operators[joined.same_name])
    renamed = len(joined.nodes) - len(edges)
    missing = inside - len(joined.nodes)
    unlinked = {"the profile has another name for its id": renamed, "its id is not in the profile": missing}
    notes = {
        "nodes from outside the profiled time": len(handles) - inside,
        f"linked by {meaning}": len(edges),
    }
    return Links(
        edges,
        LinkReport(
            RELATION,
            len(edges),
            inside,
            {reason: count for reason, count in unlinked.items() if count},
            {note: count for note, count in notes.items() if count},
        ),
    )


def _by_order(trace: RankTrace, nodes: Int64s, operators: Int64s) -> Links:
    """Thread by thread: the order of node ids is the order in which operators began."""
    name = trace.events.name.astype(np.int64)
    logical = trace.key(Key.LOGICAL_THREAD).dense(len(trace.events), 0)
    begun = trace.key(Key.NODE_ID).dense(len(trace.events), 0)
    nodes = nodes[np.argsort(begun[nodes], kind="stable")]
    partner = np.full(len(trace.events), UNKNOWN, np.int64)
    unsure = np.zeros(len(trace.events), np.bool_)
    for ours, theirs in _threads(trace, nodes, _in_order_of_begin(trace, operators), logical):
        _pair(partner, unsure, name, ours, theirs)
    by_time = operators[np.argsort(trace.events.start[operators], kind="stable")]
    for thread in np.unique(logical[nodes]):
        left_over = nodes[(logical[nodes] == thread) & (partner[nodes] == UNKNOWN)]
        free = by_time[~_marks(len(partner), partner[nodes[partner[nodes] != UNKNOWN]])[by_time]]
        free = free[np.isin(name[free], name[left_over])]
        _pair(partner, unsure, name, left_over, free)
    linked = nodes[partner[nodes] != UNKNOWN]
    edges = Edges.of(Relation.SAME, linked, partner[linked])
    ambiguous = int(np.count_nonzero(unsure[nodes] & (partner[nodes] == UNKNOWN)))
    missing = len(nodes) - len(edges) - ambiguous
    unlinked = {"several operators could be it": ambiguous, "no operator of its name at its place": missing}
    return Links(
        edges,
        LinkReport(
            RELATION,
            len(edges),
            len(nodes),
            {reason: count for reason, count in unlinked.items() if count},
            {"linked by name and order": len(edges)},
        ),
    )


def _pair(partner: Int64s, unsure: Bools, name: Int64s, nodes: Int64s, operators: Int64s) -> None:
    """Notes each node's operator, and the nodes that several operators could be."""
    alignment = align(name[nodes], name[operators])
    paired = alignment.place != UNKNOWN
    partner[nodes[paired]] = operators[alignment.place[paired]]
    unsure[nodes[alignment.ambiguous]] = True


def _marks(length: int, rows: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[rows] = True
    return marks


def _threads(
    trace: RankTrace, nodes: Int64s, operators: Int64s, logical: Int64s
) -> Iterator[tuple[Int64s, Int64s]]:
    """Logical threads, each with the OS thread that runs the most of the same operators."""
    track = trace.events.track[operators]
    free = {int(number): operators[track == number] for number in np.unique(track)}
    threads = [nodes[logical[nodes] == number] for number in np.unique(logical[nodes])]
    for thread in sorted(threads, key=len, reverse=True):
        if free:
            best = max(free, key=lambda number: _in_common(trace, thread, free[number]))
            yield thread, free.pop(best)


def _in_order_of_begin(trace: RankTrace, operators: Int64s) -> Int64s:
    """By External id, which counts up as operators begin; by time where the two contradict each other."""
    events = trace.events
    external = trace.key(Key.EXTERNAL_ID).dense(len(events), 0)
    by_time = operators[np.lexsort((external[operators], -events.end[operators], events.start[operators]))]
    by_id = operators[np.argsort(external[operators], kind="stable")]
    for track in np.unique(events.track[operators]):
        starts = events.start[by_id[events.track[by_id] == track]]
        if np.any(np.diff(starts) < 0):
            return by_time
    return by_id


def _in_common(trace: RankTrace, nodes: Int64s, operators: Int64s) -> int:
    """How many operators two threads have in common, whatever their order."""
    size = len(trace.strings)
    ours = np.bincount(trace.events.name[nodes], minlength=size)
    theirs = np.bincount(trace.events.name[operators], minlength=size)
    return int(np.minimum(ours, theirs).sum())
