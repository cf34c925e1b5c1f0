"""Work on one stream runs one after the other."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.analysis.ordering.order import Order, can_follow
from tracelink.events import GPU_WORK, Int64s
from tracelink.excerpt import NONE, Excerpt


def stream_order(part: Excerpt) -> Order:
    """Each kernel, copy and memset after the last one of its stream that had ended when it started.

    What overlaps on one stream, as graphs and programmatic launches do, is not put in order, but all of it comes
    before what starts once it has ended.
    """
    events = part.events
    rows = part.rows(*GPU_WORK)
    rows = rows[events.timed[rows]]
    lanes = lane_of_tracks(part.graph.tracks)
    lane = lanes[events.track[rows]] if len(rows) else rows
    previous, following = np.full((2, len(rows)), NONE, np.int64)
    for stream in np.unique(lane).tolist():
        places = np.flatnonzero(lane == stream)
        previous[places] = _previous(
            rows[places], events.start[rows[places]], events.end[rows[places]], events.duration[rows[places]]
        )
        ended = places[events.duration[rows[places]] >= 0]
        following[ended] = _following(rows[ended], events.start[rows[ended]], events.end[rows[ended]])
    found = previous != NONE
    ahead = np.flatnonzero(following != NONE)
    ahead = ahead[can_follow(events, rows[ahead], following[ahead])]
    counts = {"work": len(rows), "first": int(np.count_nonzero(~found))}
    before, after = np.append(previous[found], rows[ahead]), np.append(rows[found], following[ahead])
    return Order.of(before, after, counts)


def _previous(rows: Int64s, start: Int64s, end: Int64s, duration: Int64s) -> Int64s:
    """For each row the one that ended last before it starts, or NONE; `rows` ascend."""
    ended = np.flatnonzero(duration >= 0)
    by_end = ended[np.lexsort((rows[ended], start[ended], end[ended]))]
    earlier = np.searchsorted(end[by_end], start, side="right")
    instant = end[by_end] == start[by_end]
    # Of several without length at one time each follows the one before it, the first what ended at that time.
    earlier[by_end[instant]] = np.flatnonzero(instant)
    return np.where(earlier > 0, rows[by_end[earlier - 1]], NONE) if len(by_end) else np.full(len(rows), NONE)


def _following(rows: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """For each row the first other one that starts once it has ended, or NONE."""
    by_start = np.lexsort((rows, end, start))
    place = np.searchsorted(start[by_start], end)
    instant = np.flatnonzero(start == end)
    place[by_start] = np.where(np.isin(by_start, instant), np.arange(len(rows)) + 1, place[by_start])
    return np.append(rows[by_start], NONE)[place]
