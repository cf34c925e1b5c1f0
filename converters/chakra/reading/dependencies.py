"""What nodes depend on, as edges: callers, launches, and everything that must have ended before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.reading.kinds import Kinds
from tracelink.converters.chakra.table import NodeTable
from tracelink.enclosing import innermost
from tracelink.events import GPU_WORK, Bools, Edges, Int64s, Relation
from tracelink.excerpt import NONE


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Edges, and the dependencies that cannot be one."""

    edges: Edges
    parent: Int64s
    """The row of what encloses or launched each node, or NONE."""
    missing: Int64s
    """Rows of nodes that name a node which is not there, once for each."""
    on_itself: Int64s
    """Rows of nodes that depend on themselves."""


def dependencies_of(nodes: NodeTable, kinds: Kinds) -> Dependencies:
    """The first control dependency is the caller or launch; the others, and those of data, are dependencies."""
    after, before, control, missing, on_itself = _pairs(nodes)
    on_device = np.isin(kinds, np.array(GPU_WORK, np.uint8))
    first = _first_of_each(after, control & ~on_device[before], len(nodes))
    parent = np.full(len(nodes), NONE, np.int64)
    parent[after[first]] = before[first]
    endless = innermost(parent, parent == NONE) == NONE
    first = first[~endless[after[first]]]
    parent[endless] = NONE
    ranked = np.full(len(after), Relation.DEPENDS_ON, np.uint8)
    ranked[first] = np.where(on_device[after[first]], Relation.LAUNCHES, Relation.CALLS)
    down = ranked != Relation.DEPENDS_ON
    edges = Edges(np.where(down, before, after), np.where(down, after, before), ranked)
    return Dependencies(edges, parent, missing, on_itself)


def _pairs(nodes: NodeTable) -> tuple[Int64s, Int64s, Bools, Int64s, Int64s]:
    """Each node and what it depends on: rows, whether by control, and what is wrong."""
    owners = np.concatenate([nodes.control.owners, nodes.data.owners])
    places = np.concatenate([nodes.places(nodes.control), nodes.places(nodes.data)])
    control = np.arange(len(owners)) < len(nodes.control.ids)
    known, itself = places != NONE, places == owners
    usable = known & ~itself
    return owners[usable], places[usable], control[usable], owners[~known], owners[known & itself]


def _first_of_each(owner: Int64s, chosen: Bools, count: int) -> Int64s:
    """The place of the first chosen one of each owner."""
    first = np.full(count, NONE, np.int64)
    places = np.flatnonzero(chosen)[::-1]
    first[owner[places]] = places
    given: Int64s = first[first != NONE]
    return given
