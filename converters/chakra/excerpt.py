"""One rank's part of an event graph, with rows counted from its first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.events import Bools, Edges, EventKind, Events, Int64s, Key, Relation
from tracelink.graph import EventGraph

NONE = -1


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Rows [first, first + len(events)) of the graph; `own` marks those of the rank."""

    graph: EventGraph
    first: int
    events: Events
    own: Bools
    edges: Edges

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        return self.edges.where(relation)

    def key(self, key: Key, default: int) -> Int64s:
        """The values of a link key, one for each row."""
        column = self.graph.key(key)
        inside = (column.rows >= self.first) & (column.rows < self.first + len(self.events))
        return column.where(inside).shifted(-self.first).dense(len(self.events), default)

    def rows(self, *kinds: EventKind) -> Int64s:
        """The rank's rows of these kinds."""
        return np.flatnonzero(self.own & self.events.of_kind(*kinds))


def excerpt(graph: EventGraph, rank: int) -> Excerpt:
    """The part of the graph that holds every row of `rank`."""
    own = graph.rank_of_events() == rank
    rows = np.flatnonzero(own)
    first, last = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    edges = graph.edges
    inside = (edges.source >= first) & (edges.source < last) & (edges.target >= first) & (edges.target < last)
    chosen = Edges(edges.source[inside] - first, edges.target[inside] - first, edges.relation[inside])
    return Excerpt(graph, first, graph.events.take(np.arange(first, last)), own[first:last], chosen)


def execution_traces(graph: EventGraph) -> dict[int, list[int]]:
    """For each rank the sources that hold nodes, the one with the most nodes first."""
    ranks = graph.rank_of_events()
    nodes = np.flatnonzero(graph.events.of_kind(EventKind.NODE))
    pairs, counts = np.unique(
        np.stack([ranks[nodes].astype(np.int64), graph.events.source[nodes].astype(np.int64)]),
        axis=1,
        return_counts=True,
    )
    found: dict[int, list[tuple[int, int]]] = {}
    for rank, source, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        found.setdefault(rank, []).append((-count, source))
    return {rank: [source for _, source in sorted(sources)] for rank, sources in found.items()}
