"""*same*: an execution-trace node and the profiled operator that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.linking.alignment import align
from tracelink.model.columns import UNKNOWN, Bools, Int64s, lookup
from tracelink.model.events import Edges, EventKind, Key, KeyColumn, Relation
from tracelink.model.graph import LinkReport, Links, nonzero
from tracelink.model.trace import RankTrace

RELATION = "same.et_kineto"
ROOT_NAMES = ("[pytorch|profiler|execution_trace|", "[pytorch|profiler|execution_graph|")
TRUSTED = 0.5
"""The smallest share of equal ids that must have equal names; below it the ids mean different things."""


@dataclass(frozen=True, slots=True)
class _IdPairs:
    """Nodes and operators with the same id."""

    nodes: Int64s
    operators: Int64s
    same_name: Bools

    @property
    def agreement(self) -> float:
        """The share of pairs with the same name."""
        return float(self.same_name.mean()) if len(self.nodes) else 0.0


def link_execution(trace: RankTrace) -> Links:
    """Nodes to operators: by record-function id, else by External id if it means the same, else by order."""
    nodes = _nodes(trace)
    operators = np.flatnonzero(_profiled(trace))
    if not len(nodes) or not len(operators):
        return Links(Edges.empty(), LinkReport(RELATION, 0, 0))
    handles = _among(trace, trace.key(Key.RECORD_FUNCTION), nodes)
    for key, meaning in ((Key.RECORD_FUNCTION, "record-function id"), (Key.EXTERNAL_ID, "External id")):
        recorded = _among(trace, trace.key(key), operators)
        pairs = _pairs_by_id(trace, handles, recorded)
        if pairs.agreement >= TRUSTED:
            return _linked_by_id(handles, recorded, pairs, meaning)
    return _linked_by_order(trace, nodes, operators)


def _nodes(trace: RankTrace) -> Int64s:
    """Nodes of something that ran, so without the roots of the process and its threads.

    A trace whose nodes have times was linked already: its remaining nodes match no other operator.
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
    return column.take(chosen[column.rows])


def _pairs_by_id(trace: RankTrace, handles: KeyColumn, recorded: KeyColumn) -> _IdPairs:
    found = lookup(recorded.values, handles.values)
    nodes, operators = handles.rows[found != UNKNOWN], recorded.rows[found[found != UNKNOWN]]
    return _IdPairs(nodes, operators, trace.events.name[nodes] == trace.events.name[operators])


def _linked_by_id(handles: KeyColumn, recorded: KeyColumn, pairs: _IdPairs, meaning: str) -> Links:
    """Candidates are the nodes with ids from the profiled time."""
    first, last = int(recorded.values.min()), int(recorded.values.max())
    inside = int(np.count_nonzero((handles.values >= first) & (handles.values <= last)))
    edges = Edges.of_relation(Relation.SAME, pairs.nodes[pairs.same_name], pairs.operators[pairs.same_name])
    renamed = len(pairs.nodes) - len(edges)
    missing = inside - len(pairs.nodes)
    unlinked = {
        "the profile has a different name for its id": renamed,
        "its id is not in the profile": missing,
    }
    notes = {
        "nodes outside the profiled time": len(handles) - inside,
        f"linked by {meaning}": len(edges),
    }
    return Links(
        edges,
        LinkReport(
            RELATION,
            len(edges),
            inside,
            nonzero(unlinked),
            nonzero(notes),
        ),
    )


def _linked_by_order(trace: RankTrace, nodes: Int64s, operators: Int64s) -> Links:
    """Thread by thread: nodes are numbered in the order in which operators start."""
    name = trace.events.name.astype(np.int64)
    logical = trace.key(Key.LOGICAL_THREAD).dense(len(trace.events), 0)
    node_id = trace.key(Key.NODE_ID).dense(len(trace.events), 0)
    nodes = nodes[np.argsort(node_id[nodes], kind="stable")]
    partner = np.full(len(trace.events), UNKNOWN, np.int64)
    ambiguous = np.zeros(len(trace.events), np.bool_)
    for thread_nodes, thread_operators in _threads(trace, nodes, _by_start(trace, operators), logical):
        _pair(partner, ambiguous, name, thread_nodes, thread_operators)
    by_time = operators[np.argsort(trace.events.start[operators], kind="stable")]
    for thread in np.unique(logical[nodes]):
        left_over = nodes[(logical[nodes] == thread) & (partner[nodes] == UNKNOWN)]
        free = by_time[~_marks(len(partner), partner[nodes[partner[nodes] != UNKNOWN]])[by_time]]
        free = free[np.isin(name[free], name[left_over])]
        _pair(partner, ambiguous, name, left_over, free)
    linked = nodes[partner[nodes] != UNKNOWN]
    edges = Edges.of_relation(Relation.SAME, linked, partner[linked])
    several = int(np.count_nonzero(ambiguous[nodes] & (partner[nodes] == UNKNOWN)))
    missing = len(nodes) - len(edges) - several
    unlinked = {"several operators match": several, "no operator of its name at its position": missing}
    return Links(
        edges,
        LinkReport(
            RELATION,
            len(edges),
            len(nodes),
            nonzero(unlinked),
            {"linked by name and order": len(edges)},
        ),
    )


def _pair(partner: Int64s, ambiguous: Bools, name: Int64s, nodes: Int64s, operators: Int64s) -> None:
    """Fills in the operator of each node, and marks the nodes that several operators match."""
    alignment = align(name[nodes], name[operators])
    paired = alignment.index != UNKNOWN
    partner[nodes[paired]] = operators[alignment.index[paired]]
    ambiguous[nodes[alignment.ambiguous]] = True


def _marks(length: int, rows: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[rows] = True
    return marks


def _threads(
    trace: RankTrace, nodes: Int64s, operators: Int64s, logical: Int64s
) -> Iterator[tuple[Int64s, Int64s]]:
    """Nodes of each logical thread, with the operators of the OS thread that has the most names in common."""
    track = trace.events.track[operators]
    free = {int(number): operators[track == number] for number in np.unique(track)}
    threads = [nodes[logical[nodes] == number] for number in np.unique(logical[nodes])]
    for thread in sorted(threads, key=len, reverse=True):
        if free:
            best = max(free, key=lambda number: _in_common(trace, thread, free[number]))
            yield thread, free.pop(best)


def _by_start(trace: RankTrace, operators: Int64s) -> Int64s:
    """By External id, which counts operators as they start; by time if the two orders contradict each other."""
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
    """How many operators have an equal name on both threads, in any order."""
    size = len(trace.strings)
    of_nodes = np.bincount(trace.events.name[nodes], minlength=size)
    of_operators = np.bincount(trace.events.name[operators], minlength=size)
    return int(np.minimum(of_nodes, of_operators).sum())
