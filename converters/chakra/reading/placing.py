"""Times for nodes that have none: each begins when what it depends on has ended, and its thread or stream is free."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from tracelink.events import NO_TIME, Edges, Int32s, Int64s, Relation

DOWN = (Relation.CALLS, Relation.LAUNCHES)
"""Relations that run from cause to effect."""
LATEST = 1 << 62


def placed(edges: Edges, duration: Int64s, track: Int32s) -> Int64s:
    """When each node begins, counted from the first; NO_TIME for nodes that wait for each other in a circle."""
    count = len(duration)
    down = np.isin(edges.relation, np.array(DOWN, np.uint8))
    before = np.where(down, edges.source, edges.target)
    after = np.where(down, edges.target, edges.source)
    order = np.argsort(before, kind="stable")
    bounds = np.searchsorted(before[order], np.arange(count + 1)).tolist()
    followers = after[order].tolist()
    waiting = np.bincount(after, minlength=count).tolist()
    start, lengths, tracks = [NO_TIME] * count, duration.tolist(), track.tolist()
    ready, free = [0] * count, [0] * (max(tracks, default=-1) + 1)
    heap = [(0, row) for row in range(count) if not waiting[row]]
    heapify(heap)
    while heap:
        time, row = heappop(heap)
        begin = max(time, free[tracks[row]])
        start[row], end = begin, min(begin + lengths[row], LATEST)
        free[tracks[row]] = end
        for follower in followers[bounds[row] : bounds[row + 1]]:
            ready[follower] = max(ready[follower], end)
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(heap, (ready[follower], follower))
    return np.array(start, np.int64)
