"""Order between threads: hand-overs to and from autograd's threads, and threads that resume after communication."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tracelink._model.call_tree import callers, innermost, outside
from tracelink._model.columns import UNKNOWN, Int64s, lexical_order
from tracelink._model.events import EventKind, Events, Relation
from tracelink._model.graph import Excerpt
from tracelink._order.order import Order, can_follow, lane_of_tracks

# Hand-overs: autograd runs on its own threads, between the operators of the thread that calls it.


BACKWARD = re.compile(r"^(autograd::engine::evaluate_function|torch::autograd::)")
"""Operators of the engine; some run on the calling thread, which helps while it waits."""


def hand_overs(part: Excerpt) -> Order:
    """Backward operators after their forward operators, and backward passes between operators of their callers.

    `backward()` blocks its caller. So the first operator of a run on an autograd thread follows the last operator
    that had ended on the forward thread, and the next operator of the forward thread follows the end of the run.
    """
    events = part.events
    links = part.where(Relation.BACKWARD_OF)
    linked = can_follow(events, links.target, links.source)
    before, after = [links.target[linked]], [links.source[linked]]
    passed = 0
    for last, first in _hand_over_pairs(part, links.source, links.target):
        allowed = can_follow(events, last, first)
        passed += int(np.count_nonzero(allowed))
        before.append(last[allowed])
        after.append(first[allowed])
    counts = {
        "backward_of": int(np.count_nonzero(linked)),
        "forward_had_not_ended": int(np.count_nonzero(~linked)),
        "between_threads": passed,
    }
    return Order.of(np.concatenate(before), np.concatenate(after), counts)


def _hand_over_pairs(part: Excerpt, backward: Int64s, forward: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """For each two threads the last operator to end on one and the first to start after it on the other, both ways."""
    events = part.events
    if not len(backward):
        return
    lane = lane_of_tracks(part.graph.tracks)[events.track]
    operators = (
        events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION) & events.timed & (events.duration >= 0)
    )
    caller = callers(part)
    outermost = operators & (outside(caller, innermost(caller, operators)) == UNKNOWN)
    of_engine = np.array([bool(BACKWARD.search(text)) for text in part.graph.strings], np.bool_)[events.name]
    of_engine[backward] = True
    engine = innermost(caller, of_engine)
    outside_engine, not_inside_engine = (
        operators & (engine == UNKNOWN),
        operators & (outside(caller, engine) == UNKNOWN),
    )
    pairs = np.stack([lane[backward], lane[forward]])
    for engine_lane, caller_lane in np.unique(pairs[:, pairs[0] != pairs[1]], axis=1).T.tolist():
        runs = _by_start(events, np.flatnonzero(outermost & (lane == engine_lane)))
        waits = _by_start(events, np.flatnonzero(not_inside_engine & (lane == caller_lane)))
        calls = _by_start(events, np.flatnonzero(outside_engine & (lane == caller_lane)))
        yield _last_and_first(
            events, calls, _heads(runs, np.searchsorted(events.start[calls], events.start[runs]))
        )
        ends = np.sort(events.end_of(runs))
        yield _last_and_first(
            events, runs, _heads(waits, np.searchsorted(ends, events.start[waits], side="right"))
        )


def _by_start(events: Events, rows: Int64s) -> Int64s:
    """Rows in the order of their starts, outer ones first."""
    ordered: Int64s = rows[lexical_order(events.start[rows], -events.end_of(rows))]
    return ordered


def _heads(rows: Int64s, passed: Int64s) -> Int64s:
    """The first row after each change on the other thread."""
    increased = np.diff(passed, prepend=0) > 0
    heads: Int64s = rows[increased]
    return heads


def _last_and_first(events: Events, ended: Int64s, first: Int64s) -> tuple[Int64s, Int64s]:
    """For each of `first` the last of `ended` when it started (of several the earliest to start), if there is one."""
    by_end = ended[lexical_order(events.end_of(ended), -events.start[ended])]
    count = np.searchsorted(events.end_of(by_end), events.start[first], side="right")
    known = count > 0
    return by_end[count[known] - 1], first[known]


# Resumptions: a thread continues when communication on another thread, which it waited for, has ended.


def resumptions(part: Excerpt, requesting: Int64s, done: Int64s) -> Order:
    """The first event of a thread after communication, after it: operator `requesting[i]` requested `done[i]`.

    CPU backends record no wait. But a thread that pauses until the work ends, and then continues, waited for it: the
    end must be in the second half of the pause, so that work which ended by chance during a pause is not used.
    """
    events = part.events
    known = (requesting != UNKNOWN) & (done != UNKNOWN) & (requesting != done)
    requesting, done = requesting[known], done[known]
    if not len(done):
        return Order.of(done, done)
    lanes = lane_of_tracks(part.graph.tracks)
    lane, own_lane = lanes[events.track[requesting]], lanes[events.track[done]]
    on_threads = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    on_threads = on_threads[events.timed[on_threads]]
    after = np.full(len(done), UNKNOWN, np.int64)
    for thread in np.unique(lane[lane != own_lane]).tolist():
        chosen = np.flatnonzero((lane == thread) & (own_lane != thread) & (events.duration[done] >= 0))
        on_thread = on_threads[lanes[events.track[on_threads]] == thread]
        after[chosen] = _resumed(part, on_thread, events.end_of(done[chosen]))
    found = after != UNKNOWN
    counts = {"requested": len(done), "waited": int(np.count_nonzero(found))}
    return Order.of(done[found], after[found], counts)


def _resumed(part: Excerpt, rows: Int64s, ended: Int64s) -> Int64s:
    """For each time the first row of the thread after it, if the thread had paused until then; else UNKNOWN."""
    events = part.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    starts = events.start[rows]
    changes = np.unique(np.concatenate([starts, events.end_of(rows)]))
    following = np.searchsorted(starts, ended)
    change = np.searchsorted(changes, ended)
    if not len(changes):
        return np.full(len(ended), UNKNOWN, np.int64)
    paused = ended - changes[np.maximum(change - 1, 0)]
    until = changes[np.minimum(change, len(changes) - 1)] - ended
    waited = (change > 0) & (change < len(changes)) & (following < len(rows)) & (paused > until)
    return np.where(waited, rows[np.minimum(following, len(rows) - 1)], UNKNOWN)
