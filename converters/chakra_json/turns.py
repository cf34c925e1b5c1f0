"""In which turn a reader that runs each thread's nodes in order comes to them."""

from __future__ import annotations

import numpy as np

from tracelink.events import Int64s


def reached(parent: Int64s) -> Int64s:
    """For each node the latest one that its thread has come to when its turn is.

    `chakra_converter` makes every node wait for the one before it: a node, then what is inside it, by id. Where a
    node waits only for nodes of other threads that are reached earlier, nothing waits for itself in a circle.
    """
    by_parent = np.argsort(parent, kind="stable").tolist()
    bounds = np.searchsorted(parent[by_parent], np.arange(len(parent) + 1)).tolist()
    latest = np.arange(len(parent))
    for top in by_parent[bounds[0] : bounds[1]]:
        highest, stack = 0, [top] if top else []
        while stack:
            node = stack.pop()
            highest = max(highest, node)
            latest[node] = highest
            stack += reversed(by_parent[bounds[node] : bounds[node + 1]])
    return latest
