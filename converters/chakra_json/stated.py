"""What a linked trace states of its nodes: callers, launches, and what waited for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra_json.linked_nodes import (
    AWAITED,
    CATEGORY,
    NO_ID,
    ON_CPU,
    OTHER_THREAD,
    WAITING,
)
from tracelink.converters.execution_trace.nodes import ID
from tracelink.converters.execution_trace.parents import Parents
from tracelink.events import Bools, Edges, Int64s, Relation
from tracelink.linking.joins import NONE, lookup


@dataclass(frozen=True, slots=True)
class Stated:
    """The edges, and how many more name a node that is not in the file."""

    edges: Edges
    without_launch: int
    unknown: int


def stated_edges(table: Mapping[str, Int64s], parents: Parents, on_device: Bools) -> Stated:
    """Edges between rows. That work waits for another thread is a copy of what its node says, and left out."""
    ids = table[ID]
    child, caller = parents.column.rows, _earliest(ids, parents.column.values)
    work = on_device[child]
    other = np.flatnonzero((table[OTHER_THREAD] != NO_ID) & (table[CATEGORY] == ON_CPU))
    copied = table[CATEGORY][table[WAITING]] != ON_CPU
    waiting = np.concatenate([other, table[WAITING][~copied]])
    awaited = _earliest(ids, np.concatenate([table[OTHER_THREAD][other], table[AWAITED][~copied]]))
    known = (awaited != NONE) & (awaited != waiting)
    edges = [
        Edges.of(Relation.CALLS, caller[~work], child[~work]),
        Edges.of(Relation.LAUNCHES, caller[work], child[work]),
        Edges.of(Relation.DEPENDS_ON, waiting[known], awaited[known]),
    ]
    without_launch = int(np.count_nonzero(on_device)) - int(np.count_nonzero(work))
    return Stated(Edges.concatenate(edges), without_launch, int(np.count_nonzero(awaited == NONE)))


def _earliest(ids: Int64s, wanted: Int64s) -> Int64s:
    """The first row of each id, or NONE."""
    found = lookup(ids[::-1], wanted)
    return np.where(found == NONE, NONE, len(ids) - 1 - found)
