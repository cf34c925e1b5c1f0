"""*backward of*: a backward operator and the forward operator that it differentiates."""

from __future__ import annotations

import numpy as np

from tracelink.events import Edges, EventKind, Int64s, Key, KeyColumn, Relation
from tracelink.linking.joins import NONE, lookup, scoped, scoped_pair
from tracelink.linking.report import LinkReport, Links
from tracelink.trace import RankTrace


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
    linked = found != NONE
    forward, backward = starts.rows[found[linked]], ends.rows[linked]
    edges = Edges.of(Relation.BACKWARD_OF, backward, forward)
    sequence = trace.key(Key.SEQUENCE).dense(len(trace.events), NONE)
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
    linked = found != NONE
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
        int(track): int(np.count_nonzero(lookup(forward.values[tracks == track], wanted) != NONE))
        for track in np.unique(tracks)
    }
    threads = len(np.unique(forward_thread[backward.rows]))
    best = sorted(explained, key=lambda track: -explained[track])[:threads]
    return forward.where(np.isin(tracks, best))
