"""One rank's events, as what is written of them asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.events import Edges, EventKind, Events, Int64s, Key, Relation
from tracelink.graph import EventGraph

NONE = -1


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A graph of one rank."""

    graph: EventGraph

    @property
    def events(self) -> Events:
        """The rank's events."""
        return self.graph.events

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        return self.graph.edges.where(relation)

    def key(self, key: Key, default: int) -> Int64s:
        """The values of a link key, one for each row."""
        return self.graph.key(key).dense(len(self.events), default)

    def rows(self, *kinds: EventKind) -> Int64s:
        """The rows of these kinds."""
        return np.flatnonzero(self.events.of_kind(*kinds))


def execution_traces(graph: EventGraph) -> list[int]:
    """The sources that hold nodes, the one with the most nodes first."""
    nodes = graph.events.source[graph.events.of_kind(EventKind.NODE)]
    sources, counts = np.unique(nodes, return_counts=True)
    order: list[int] = sources[np.argsort(-counts, kind="stable")].tolist()
    return order
