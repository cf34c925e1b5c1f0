"""Which node of another thread a node had to wait for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra_json.turns import reached
from tracelink.events import Edges, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt

RELATIONS = (Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR)
"""A backward operator needs what its forward operator left; the others say so themselves."""


@dataclass(frozen=True, slots=True)
class HandOvers:
    """For each place of a node that of the last to end among those it waits for on other threads, or -1."""

    awaited: Int64s
    circular: int
    """How many are left out because a reader that runs nodes in order would wait in a circle."""


def hand_overs(part: Excerpt, node_of: Int64s, parent: Int64s) -> HandOvers:
    """What the edges between threads say of nodes; `node_of` is the place of the node that each row is."""
    edges = Edges.concatenate([part.where(relation) for relation in RELATIONS])
    tracks = part.events.track
    waiting, awaited = node_of[edges.source], node_of[edges.target]
    between = (waiting != NONE) & (awaited != NONE) & (tracks[edges.source] != tracks[edges.target])
    waiting, awaited, end = waiting[between], awaited[between], part.events.end[edges.target[between]]
    turn = reached(parent)
    possible = turn[awaited] < turn[waiting]
    order = np.flatnonzero(possible)[np.argsort(end[possible], kind="stable")]
    found = np.full(len(parent), NONE, np.int64)
    found[waiting[order]] = awaited[order]
    return HandOvers(found, int(np.count_nonzero(~possible)))
