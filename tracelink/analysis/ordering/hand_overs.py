"""Autograd runs on threads of its own: what they take over from the thread that calls them, and give back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.analysis.ordering.order import Order, can_follow
from tracelink.enclosing import callers, innermost, outside
from tracelink.events import EventKind, Events, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt

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
    outermost = operators & (outside(caller, innermost(caller, operators)) == NONE)
    of_engine = np.array([bool(BACKWARD.search(text)) for text in part.graph.strings], np.bool_)[events.name]
    of_engine[backward] = True
    engine = innermost(caller, of_engine)
    own, not_within = operators & (engine == NONE), operators & (outside(caller, engine) == NONE)
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
