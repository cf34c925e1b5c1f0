"""Which node of another thread a node had to wait for."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra.excerpt import NONE, Excerpt
from tracelink.events import Edges, Int64s, Relation

RELATIONS = (Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR)
"""A backward operator needs what its forward operator left; the others say so themselves."""


def hand_overs(part: Excerpt, node_of: Int64s, nodes: int) -> Int64s:
    """For each place of a node that of the last to end among those it waits for on other threads, or -1.

    Only earlier nodes: a reader that puts nodes in order would find a circle otherwise.
    """
    edges = Edges.concatenate([part.where(relation) for relation in RELATIONS])
    waiting, awaited = node_of[edges.source], node_of[edges.target]
    tracks = part.events.track
    chosen = (awaited != NONE) & (awaited < waiting) & (tracks[edges.source] != tracks[edges.target])
    waiting, awaited = waiting[chosen], awaited[chosen]
    order = np.argsort(part.events.end[edges.target[chosen]], kind="stable")
    found = np.full(nodes, NONE, np.int64)
    found[waiting[order]] = awaited[order]
    return found
