"""A thread goes on when communication that it waited for has ended, where the work ran on another thread."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.analysis.ordering.order import Order
from tracelink.events import EventKind, Int64s
from tracelink.excerpt import NONE, Excerpt


def resumptions(part: Excerpt, asked: Int64s, done: Int64s) -> Order:
    """What a thread does first after communication, after it: `asked[i]` is the operator that asked for `done[i]`.

    CPU backends record no wait. But a thread that stands still until the work ends, and then goes on, waited:
    the end must lie in the second half of the pause, so that work which merely ended meanwhile puts nothing in order.
    """
    events = part.events
    known = (asked != NONE) & (done != NONE) & (asked != done)
    asked, done = asked[known], done[known]
    if not len(done):
        return Order.of(done, done)
    lanes = lane_of_tracks(part.graph.tracks)
    lane, own = lanes[events.track[asked]], lanes[events.track[done]]
    on_threads = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    on_threads = on_threads[events.timed[on_threads]]
    after = np.full(len(done), NONE, np.int64)
    for thread in np.unique(lane[lane != own]).tolist():
        mine = np.flatnonzero((lane == thread) & (own != thread) & (events.duration[done] >= 0))
        there = on_threads[lanes[events.track[on_threads]] == thread]
        after[mine] = _gone_on(part, there, events.end[done[mine]])
    found = after != NONE
    counts = {"asked": len(done), "waited": int(np.count_nonzero(found))}
    return Order.of(done[found], after[found], counts)


def _gone_on(part: Excerpt, rows: Int64s, ended: Int64s) -> Int64s:
    """For each time what the thread began after it, if it had paused until then; else NONE."""
    events = part.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    starts = events.start[rows]
    changes = np.unique(np.concatenate([starts, events.end[rows]]))
    following = np.searchsorted(starts, ended)
    change = np.searchsorted(changes, ended)
    if not len(changes):
        return np.full(len(ended), NONE, np.int64)
    paused = ended - changes[np.maximum(change - 1, 0)]
    until = changes[np.minimum(change, len(changes) - 1)] - ended
    waited = (change > 0) & (change < len(changes)) & (following < len(rows)) & (paused > until)
    return np.where(waited, rows[np.minimum(following, len(rows) - 1)], NONE)
