"""Launches, and which backward operator differentiates which forward operator."""

from __future__ import annotations

import numpy as np

from tracelink._model.columns import UNKNOWN, Bools, Int64s, lookup, repeated
from tracelink._model.communications import Calls
from tracelink._model.events import GPU_WORK, Edges, EventKind, Events, Key, KeyColumn, Relation
from tracelink._model.graph import STATED, LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, scoped, scoped_pair

# *launches*: a runtime call and the device work that it launched.


def link_launches(trace: RankTrace) -> Links:
    """Runtime call to device work with the same correlation id; one call may launch several (a graph).

    Launches that the source states itself are taken as they are.
    """
    stated = trace.edges.where(Relation.LAUNCHES)
    work = trace.events.of_kind(*GPU_WORK)
    work[stated.target] = False
    work &= of_sources_with_hosts(trace)
    edges, causes, effects = _by_correlation(trace, work)
    total = int(np.count_nonzero(work))
    correlations = trace.key(Key.CORRELATION)
    without_id = total - int(np.count_nonzero(work[correlations.rows]))
    unlinked = {
        "no correlation id": without_id,
        "launched outside the recording": total - without_id - len(edges),
    }
    report = LinkReport(
        "launches",
        linked=len(edges) + len(stated),
        candidates=total + len(stated),
        unlinked=nonzero(unlinked),
        notes=_launch_notes(trace, causes, effects) | nonzero({STATED: len(stated)}),
    )
    return Links(Edges.concatenate([edges, stated]), report)


def of_sources_with_hosts(trace: RankTrace) -> Bools:
    """The events of sources that can see launches: these have correlation ids, or more than device work."""
    shows = ~trace.events.of_kind(*GPU_WORK)
    shows[trace.key(Key.CORRELATION).rows] = True
    found: Bools = (np.bincount(trace.events.source, shows, len(trace.sources)) > 0)[trace.events.source]
    return found


def _by_correlation(trace: RankTrace, work: Bools) -> tuple[Edges, KeyColumn, KeyColumn]:
    """The launches, and the correlation ids of the calls and of the work that are linked."""
    correlations = trace.key(Key.CORRELATION)
    effects = correlations.take(work[correlations.rows])
    causes = correlations.take(trace.events.kind[correlations.rows] == EventKind.RUNTIME)
    identity, wanted = scoped_pair(trace, causes, effects)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    edges = Edges.of_relation(Relation.LAUNCHES, causes.rows[found[linked]], effects.rows[linked])
    launching = np.zeros(len(causes), np.bool_)
    launching[found[linked]] = True
    return edges, causes.take(launching), effects.take(linked)


def _launch_notes(trace: RankTrace, causes: KeyColumn, effects: KeyColumn) -> dict[str, int]:
    """The launches compared with the flows that the producer wrote itself."""
    counts = {
        "launched together with others (graphs)": max(len(effects) - len(causes), 0),
        "correlation ids used by two calls": repeated(causes.values) if len(trace.sources) < 2 else 0,
    }
    if len(trace.launch_flows):
        agrees = lookup(causes.values, trace.launch_flows) != UNKNOWN
        counts["flows in the file that agree"] = int(np.count_nonzero(agrees))
        counts["flows in the file without device work"] = int(np.count_nonzero(~agrees))
    return nonzero(counts)


def link_calls_by_flows(trace: RankTrace) -> Links:
    """Runtime call to the synchronization, or to the call on another thread, with its id and a flow of the producer.

    Only a flow shows that two calls with one correlation id belong together: ids can be used again.
    """
    correlations, events = trace.key(Key.CORRELATION), trace.events
    kind = events.kind[correlations.rows]
    drawn = np.empty(0, np.int64)
    if len(trace.launch_flows):
        device = np.isin(kind, GPU_WORK)
        drawn = trace.launch_flows[lookup(correlations.values[device], trace.launch_flows) == UNKNOWN]
    ends = correlations.take((kind == EventKind.RUNTIME) | (kind == EventKind.SYNCHRONIZATION))
    ends = ends.take(lookup(drawn, ends.values) != UNKNOWN)
    identity = scoped(trace, ends)
    waits = events.kind[ends.rows] == EventKind.SYNCHRONIZATION
    order = np.lexsort((ends.rows, events.start[ends.rows], waits, identity))
    rows, fresh = ends.rows[order], np.ones(len(order), np.bool_)
    fresh[1:] = identity[order][1:] != identity[order][:-1]
    cause = rows[np.maximum.accumulate(np.where(fresh, np.arange(len(rows)), 0))] if len(rows) else rows
    linked = ~fresh & (events.kind[cause] == EventKind.RUNTIME) & (events.track[cause] != events.track[rows])
    edges = Edges.of_relation(Relation.LAUNCHES, cause[linked], rows[linked])
    found = int(np.count_nonzero(lookup(ends.values[order][linked], drawn) != UNKNOWN))
    unlinked = nonzero({"no two events have its id": len(drawn) - found})
    return Links(edges, LinkReport("launches.drawn", found, len(drawn), unlinked))


def link_annotations(trace: RankTrace, calls: Calls) -> Links:
    """Annotation to its copy on the device, and operator to the annotation of its work on another thread."""
    events = trace.events
    external = trace.key(Key.EXTERNAL_ID)
    kind = events.kind[external.rows]
    copies = external.take(kind == EventKind.GPU_ANNOTATION)
    annotations = external.take(kind == EventKind.ANNOTATION)
    identity, wanted = scoped_pair(trace, annotations, copies)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    operator, work = _work_on_other_threads(events, calls)
    source = np.concatenate([annotations.rows[found[linked]], operator])
    target = np.concatenate([copies.rows[linked], work])
    edges = Edges.of_relation(Relation.LAUNCHES, source, target)
    total = int(np.count_nonzero(events.of_kind(EventKind.GPU_ANNOTATION))) + len(work)
    unlinked = nonzero({"its annotation was not recorded": total - len(edges)})
    return Links(edges, LinkReport("launches.annotation", len(edges), total, unlinked))


def _work_on_other_threads(events: Events, calls: Calls) -> tuple[Int64s, Int64s]:
    """Operators for which another thread does the work, and the annotations of that work."""
    complete = np.flatnonzero((calls.operator != UNKNOWN) & (calls.annotation != UNKNOWN))
    annotation, first = np.unique(calls.annotation[complete], return_index=True)
    operator = calls.operator[complete[first]]
    moved = events.track[operator] != events.track[annotation]
    return operator[moved], annotation[moved]


# *backward of*: a backward operator and the forward operator that it differentiates.


def link_backward(trace: RankTrace) -> Links:
    """By the producer's flows if it wrote any, else by autograd's sequence numbers."""
    ends = trace.key(Key.BACKWARD_FLOW_IN)
    if len(ends) and len(trace.key(Key.BACKWARD_FLOW_OUT)):
        return _backward_by_flows(trace)
    return _backward_by_sequence(trace)


def _backward_by_flows(trace: RankTrace) -> Links:
    starts, ends = trace.key(Key.BACKWARD_FLOW_OUT), trace.key(Key.BACKWARD_FLOW_IN)
    identity, wanted = scoped_pair(trace, starts, ends)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    forward, backward = starts.rows[found[linked]], ends.rows[linked]
    edges = Edges.of_relation(Relation.BACKWARD_OF, backward, forward)
    sequence = trace.key(Key.SEQUENCE).dense(len(trace.events), UNKNOWN)
    differ = int(np.count_nonzero(sequence[forward] != sequence[backward]))
    report = LinkReport(
        "backward_of",
        linked=len(edges),
        candidates=len(ends),
        unlinked=nonzero({"its flow has no start": int(np.count_nonzero(~linked))}),
        notes=nonzero({"flows between different sequence numbers": differ}),
    )
    return Links(edges, report)


def _backward_by_sequence(trace: RankTrace) -> Links:
    """The outermost backward operator of a sequence number, and the last forward operator to start with it."""
    operators = trace.key(Key.SEQUENCE)
    operators = operators.take(trace.events.kind[operators.rows] == EventKind.OPERATOR)
    forward_thread = trace.key(Key.FORWARD_THREAD).dense(len(trace.events), 0)
    is_backward = forward_thread[operators.rows] != 0
    backward, forward = operators.take(is_backward), operators.take(~is_backward)
    forward = _on_forward_threads(trace, backward, forward, forward_thread)
    backward = _first_to_start(trace, backward, forward_thread[backward.rows])
    identity, wanted = scoped_pair(trace, forward, backward)
    order = np.argsort(trace.events.start[forward.rows], kind="stable")
    found = lookup(identity[order], wanted)
    linked = found != UNKNOWN
    edges = Edges.of_relation(Relation.BACKWARD_OF, backward.rows[linked], forward.rows[order[found[linked]]])
    unlinked = nonzero({"its forward operator was not recorded": int(np.count_nonzero(~linked))})
    return Links(edges, LinkReport("backward_of", len(edges), len(backward), unlinked))


def _first_to_start(trace: RankTrace, column: KeyColumn, thread: Int64s) -> KeyColumn:
    """Of the operators with the same sequence number and forward thread, the first to start."""
    order = np.argsort(trace.events.start[column.rows], kind="stable")
    column = KeyColumn(column.rows[order], column.values[order])
    code = scoped(trace, column) * (int(thread.max(initial=0)) + 1) + thread[order]
    _, first = np.unique(code, return_index=True)
    return KeyColumn(column.rows[first], column.values[first])


def _on_forward_threads(
    trace: RankTrace, backward: KeyColumn, forward: KeyColumn, forward_thread: Int64s
) -> KeyColumn:
    """Forward operators on the threads that the backward operators come from.

    Each thread counts its own sequence numbers. If several threads have forward operators, the threads that
    explain most backward operators are taken.
    """
    tracks = trace.events.track[forward.rows]
    if not len(tracks) or tracks.min() == tracks.max() or not len(backward):
        return forward
    wanted = np.unique(backward.values)
    explained = {
        int(track): int(np.count_nonzero(lookup(forward.values[tracks == track], wanted) != UNKNOWN))
        for track in np.unique(tracks)
    }
    threads = len(np.unique(forward_thread[backward.rows]))
    best = sorted(explained, key=lambda track: -explained[track])[:threads]
    return forward.take(np.isin(tracks, best))
