"""Hand-overs between threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.events import EventKind, Events, Relation
from tracelink.model.graph import Excerpt, callers, innermost, outside
from tracelink.ordering.order import Order, can_follow, lane_of_tracks

# Autograd runs on threads of its own: what they take over from the thread that calls them, and give back.


BACKWARD = re.compile(r"^(autograd::engine::evaluate_function|torch::autograd::)")
"""What the engine runs; some of it on the thread that called it, which helps while it waits."""


def hand_overs(part: Excerpt) -> Order:
    """Backward operators after their forward operators, and backward passes between what their callers do.

    `backward()` blocks its caller. So the first operator of a run on a thread of autograd follows what the forward
    thread had ended by then, and what the forward thread does next follows what the run had ended.
    """
    events = part.events
    links = part.where(Relation.BACKWARD_OF)
    linked = can_follow(events, links.target, links.source)
    before, after = [links.target[linked]], [links.source[linked]]
    passed = 0
    for last, first in _passed(part, links.source, links.target):
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


def _passed(part: Excerpt, backward: Int64s, forward: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """For each two threads that hand over: what ended last, and what began first after it, there and back."""
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
    own, not_within = operators & (engine == UNKNOWN), operators & (outside(caller, engine) == UNKNOWN)
    pairs = np.stack([lane[backward], lane[forward]])
    for runner, calling in np.unique(pairs[:, pairs[0] != pairs[1]], axis=1).T.tolist():
        runs = _by_start(events, np.flatnonzero(outermost & (lane == runner)))
        waits = _by_start(events, np.flatnonzero(not_within & (lane == calling)))
        calls = _by_start(events, np.flatnonzero(own & (lane == calling)))
        yield _last_and_first(
            events, calls, _heads(runs, np.searchsorted(events.start[calls], events.start[runs]))
        )
        ends = np.sort(events.end[runs])
        yield _last_and_first(
            events, runs, _heads(waits, np.searchsorted(ends, events.start[waits], side="right"))
        )


def _by_start(events: Events, rows: Int64s) -> Int64s:
    """Rows in the order of their starts, the outer one first."""
    ordered: Int64s = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    return ordered


def _heads(rows: Int64s, passed: Int64s) -> Int64s:
    """The first row after each time that something on the other thread has come to pass."""
    fresh = np.diff(passed, prepend=0) > 0
    heads: Int64s = rows[fresh]
    return heads


def _last_and_first(events: Events, ended: Int64s, first: Int64s) -> tuple[Int64s, Int64s]:
    """For each of `first` what had ended last when it began, of what began earliest; where there is such a thing."""
    by_end = ended[np.lexsort((-events.start[ended], events.end[ended]))]
    count = np.searchsorted(events.end[by_end], events.start[first], side="right")
    known = count > 0
    return by_end[count[known] - 1], first[known]


# A thread goes on when communication that it waited for has ended, where the work ran on another thread.


def resumptions(part: Excerpt, asked: Int64s, done: Int64s) -> Order:
    """What a thread does first after communication, after it: `asked[i]` is the operator that asked for `done[i]`.

    CPU backends record no wait. But a thread that stands still until the work ends, and then goes on, waited:
    the end must lie in the second half of the pause, so that work which merely ended meanwhile puts nothing in order.
    """
    events = part.events
    known = (asked != UNKNOWN) & (done != UNKNOWN) & (asked != done)
    asked, done = asked[known], done[known]
    if not len(done):
        return Order.of(done, done)
    lanes = lane_of_tracks(part.graph.tracks)
    lane, own = lanes[events.track[asked]], lanes[events.track[done]]
    on_threads = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    on_threads = on_threads[events.timed[on_threads]]
    after = np.full(len(done), UNKNOWN, np.int64)
    for thread in np.unique(lane[lane != own]).tolist():
        mine = np.flatnonzero((lane == thread) & (own != thread) & (events.duration[done] >= 0))
        there = on_threads[lanes[events.track[on_threads]] == thread]
        after[mine] = _gone_on(part, there, events.end[done[mine]])
    found = after != UNKNOWN
    counts = {"asked": len(done), "waited": int(np.count_nonzero(found))}
    return Order.of(done[found], after[found], counts)


def _gone_on(part: Excerpt, rows: Int64s, ended: Int64s) -> Int64s:
    """For each time what the thread began after it, if it had paused until then; else UNKNOWN."""
    events = part.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    starts = events.start[rows]
    changes = np.unique(np.concatenate([starts, events.end[rows]]))
    following = np.searchsorted(starts, ended)
    change = np.searchsorted(changes, ended)
    if not len(changes):
        return np.full(len(ended), UNKNOWN, np.int64)
    paused = ended - changes[np.maximum(change - 1, 0)]
    until = changes[np.minimum(change, len(changes) - 1)] - ended
    waited = (change > 0) & (change < len(changes)) & (following < len(rows)) & (paused > until)
    return np.where(waited, rows[np.minimum(following, len(rows) - 1)], UNKNOWN)
