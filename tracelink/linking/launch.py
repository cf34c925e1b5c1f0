"""Launches; backward of."""

from __future__ import annotations

import numpy as np

from tracelink.linking.links import Links, scoped, scoped_pair
from tracelink.model.columns import UNKNOWN, Bools, Int64s, lookup, repeated
from tracelink.model.communications import Calls
from tracelink.model.events import GPU_WORK, Edges, EventKind, Events, Key, KeyColumn, Relation
from tracelink.model.graph import STATED, LinkReport
from tracelink.model.trace import RankTrace

# *launches*: the call that put work on a device, and the work.


def link_launches(trace: RankTrace) -> Links:
    """Runtime call to device work of the same correlation; one call may launch many (a graph).

    Of work whose launch its source states, no correlation is asked.
    """
    stated = trace.edges.where(Relation.LAUNCHES)
    work = trace.events.of_kind(*GPU_WORK)
    work[stated.target] = False
    edges, cause, effect = _by_correlation(trace, work)
    total = int(np.count_nonzero(work))
    correlations = trace.key(Key.CORRELATION)
    without_id = total - int(np.count_nonzero(work[correlations.rows]))
    before = total - without_id - len(edges)
    unlinked = {"no correlation": without_id, "launched outside the recording": before}
    report = LinkReport(
        "launches",
        linked=len(edges) + len(stated),
        candidates=total + len(stated),
        unlinked={reason: count for reason, count in unlinked.items() if count},
        notes=_notes(trace, cause, effect) | ({STATED: len(stated)} if len(stated) else {}),
    )
    return Links(Edges.concatenate([edges, stated]), report)


def link_annotations(trace: RankTrace, calls: Calls) -> Links:
    """An annotation to its shadow on the device, and an operator to the annotation of its work on another thread."""
    events = trace.events
    external = trace.key(Key.EXTERNAL_ID)
    kind = events.kind[external.rows]
    shadows = external.where(kind == EventKind.GPU_ANNOTATION)
    annotations = external.where(kind == EventKind.ANNOTATION)
    identity, wanted = scoped_pair(trace, annotations, shadows)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    operator, work = _work_elsewhere(events, calls)
    source = np.concatenate([annotations.rows[found[linked]], operator])
    target = np.concatenate([shadows.rows[linked], work])
    edges = Edges.of(Relation.LAUNCHES, source, target)
    total = int(np.count_nonzero(events.of_kind(EventKind.GPU_ANNOTATION))) + len(work)
    missing = total - len(edges)
    reasons = {"its annotation was not recorded": missing} if missing else {}
    return Links(edges, LinkReport("launches.annotation", len(edges), total, reasons))


def _work_elsewhere(events: Events, calls: Calls) -> tuple[Int64s, Int64s]:
    """The operators whose work another thread does, and the annotations of that work."""
    whole = np.flatnonzero((calls.operator != UNKNOWN) & (calls.annotation != UNKNOWN))
    annotation, first = np.unique(calls.annotation[whole], return_index=True)
    operator = calls.operator[whole[first]]
    elsewhere = events.track[operator] != events.track[annotation]
    return operator[elsewhere], annotation[elsewhere]


def _by_correlation(trace: RankTrace, work: Bools) -> tuple[Edges, KeyColumn, KeyColumn]:
    correlations = trace.key(Key.CORRELATION)
    effects = correlations.where(work[correlations.rows])
    causes = correlations.where(trace.events.kind[correlations.rows] == EventKind.RUNTIME)
    identity, wanted = scoped_pair(trace, causes, effects)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    edges = Edges.of(Relation.LAUNCHES, causes.rows[found[linked]], effects.rows[linked])
    return edges, causes.where(_marks(len(causes), found[linked])), effects.where(linked)


def _marks(length: int, places: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[places] = True
    return marks


def _notes(trace: RankTrace, causes: KeyColumn, effects: KeyColumn) -> dict[str, int]:
    """How the launches compare with the arrows that the producer drew itself."""
    several = len(effects) - len(causes)
    counts = {
        "launched together with others (graphs)": several if several > 0 else 0,
        "correlations used by two calls": repeated(causes.values) if len(trace.sources) < 2 else 0,
    }
    if len(trace.launch_flows):
        agreed = lookup(causes.values, trace.launch_flows) != UNKNOWN
        counts["arrows in the file that agree"] = int(np.count_nonzero(agreed))
        counts["arrows in the file to no device work"] = int(np.count_nonzero(~agreed))
    return {note: count for note, count in counts.items() if count}


# *backward of*: a backward operator and the forward operator that it differentiates.


def link_backward(trace: RankTrace) -> Links:
    """By the arrows that the producer drew, where it drew any, else by autograd's sequence numbers."""
    drawn = trace.key(Key.BACKWARD_FLOW_IN)
    if len(drawn) and len(trace.key(Key.BACKWARD_FLOW_OUT)):
        return _by_arrows(trace)
    return _by_sequence(trace)


def _by_arrows(trace: RankTrace) -> Links:
    starts, ends = trace.key(Key.BACKWARD_FLOW_OUT), trace.key(Key.BACKWARD_FLOW_IN)
    identity, wanted = scoped_pair(trace, starts, ends)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    forward, backward = starts.rows[found[linked]], ends.rows[linked]
    edges = Edges.of(Relation.BACKWARD_OF, backward, forward)
    sequence = trace.key(Key.SEQUENCE).dense(len(trace.events), UNKNOWN)
    differ = int(np.count_nonzero(sequence[forward] != sequence[backward]))
    missing = int(np.count_nonzero(~linked))
    report = LinkReport(
        "backward_of",
        linked=len(edges),
        candidates=len(ends),
        unlinked={"its arrow has no beginning": missing} if missing else {},
        notes={"arrows between different sequence numbers": differ} if differ else {},
    )
    return Links(edges, report)


def _by_sequence(trace: RankTrace) -> Links:
    """The outermost backward operator of a sequence number, and the forward operator that started last with it."""
    operators = trace.key(Key.SEQUENCE)
    operators = operators.where(trace.events.kind[operators.rows] == EventKind.OPERATOR)
    forward_thread = trace.key(Key.FORWARD_THREAD).dense(len(trace.events), 0)
    is_backward = forward_thread[operators.rows] != 0
    backward, forward = operators.where(is_backward), operators.where(~is_backward)
    forward = _with_forward_threads(trace, backward, forward, forward_thread)
    backward = _first_by_start(trace, backward, forward_thread[backward.rows])
    identity, wanted = scoped_pair(trace, forward, backward)
    order = np.argsort(trace.events.start[forward.rows], kind="stable")
    found = lookup(identity[order], wanted)
    linked = found != UNKNOWN
    edges = Edges.of(Relation.BACKWARD_OF, backward.rows[linked], forward.rows[order[found[linked]]])
    missing = int(np.count_nonzero(~linked))
    reasons = {"its forward operator was not recorded": missing} if missing else {}
    return Links(edges, LinkReport("backward_of", len(edges), len(backward), reasons))


def _first_by_start(trace: RankTrace, column: KeyColumn, thread: Int64s) -> KeyColumn:
    """Of the operators with one sequence number and forward thread, the one that starts first."""
    order = np.argsort(trace.events.start[column.rows], kind="stable")
    column = KeyColumn(column.rows[order], column.values[order])
    code = scoped(trace, column) * (int(thread.max(initial=0)) + 1) + thread[order]
    _, first = np.unique(code, return_index=True)
    return KeyColumn(column.rows[first], column.values[first])


def _with_forward_threads(
    trace: RankTrace, backward: KeyColumn, forward: KeyColumn, forward_thread: Int64s
) -> KeyColumn:
    """Forward operators on those threads that the backward operators come from.

    Sequence numbers count per thread: where several threads have them, those of the thread that explains most
    backward operators are meant.
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
    return forward.where(np.isin(tracks, best))
