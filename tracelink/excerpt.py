"""One rank's events, as what is written of them asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.events import Edges, EventKind, Events, Int64s, Key, Relation
from tracelink.graph import EventGraph
from tracelink.trace import Payload

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


def texts_of(graph: EventGraph, rows: Int64s) -> Iterator[tuple[int, Payload]]:
    """What the sources recorded of these rows, in the order of the sources; each stretch of a source is read once."""
    events = graph.events
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(events.payload[mine], kind="stable")]
        numbers = events.payload[mine]
        for first, texts in graph.payloads[source].batches(int(numbers[0]), int(numbers[-1]) + 1):
            begin, end = np.searchsorted(numbers, [first, first + len(texts)]).tolist()
            for row, number in zip(mine[begin:end].tolist(), numbers[begin:end].tolist(), strict=True):
                yield row, texts[number - first]


def execution_traces(graph: EventGraph) -> list[int]:
    """The sources that hold nodes, the one with the most nodes first."""
    nodes = graph.events.source[graph.events.of_kind(EventKind.NODE)]
    sources, counts = np.unique(nodes, return_counts=True)
    order: list[int] = sources[np.argsort(-counts, kind="stable")].tolist()
    return order
