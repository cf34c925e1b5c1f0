"""From who waits for whom to what everybody waits for in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import networkx

from tracelink.analysis.waits import Wait, waits_by_rank


@dataclass(frozen=True, slots=True)
class Cause:
    """A wait that waits for nobody who waits himself, or a ring of waits."""

    waits: Sequence[Wait]
    """One; of a deadlock all in the ring."""
    culprits: tuple[int, ...]
    """Ranks that are awaited and wait for nothing; empty where all have joined, and in a deadlock."""
    waiting: tuple[int, ...]
    """Ranks that wait because of it, directly or not."""


def causes_of(waits: Sequence[Wait]) -> list[Cause]:
    """What is behind all waits, in the order in which ranks began to wait."""
    inside = waits_by_rank(waits)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(waits)))
    free: list[tuple[int, ...]] = []
    for number, wait in enumerate(waits):
        free.append(tuple(rank for rank in wait.awaited if rank not in inside))
        graph.add_edges_from((number, other) for rank in wait.awaited for other in inside.get(rank, ()))
    causes = []
    for component in networkx.strongly_connected_components(graph):
        ring = sorted(component, key=lambda number: (-len(waits[number].rows), waits[number].created))
        leaves = any(other not in component for number in ring for other in graph.successors(number))
        waiting = _waiting(graph, waits, ring)
        open_ended = [number for number in ring if free[number]]
        causes += [Cause([waits[number]], free[number], waiting) for number in open_ended]
        if not open_ended and not leaves:
            causes.append(Cause([waits[number] for number in ring], (), waiting))
    return _without_repetition(sorted(causes, key=lambda cause: cause.waits[0].created))


def _waiting(graph: networkx.DiGraph, waits: Sequence[Wait], ring: Sequence[int]) -> tuple[int, ...]:
    behind = {*ring, *chain.from_iterable(networkx.ancestors(graph, number) for number in ring)}
    return tuple(sorted({rank for number in behind for rank in waits[number].rows}))


def _without_repetition(causes: Sequence[Cause]) -> list[Cause]:
    """Each culprit once, with what it kept waiting first; everybody else who waits for it waits there too."""
    kept: list[Cause] = []
    for cause in causes:
        earlier = [number for number, one in enumerate(kept) if set(one.culprits) & set(cause.culprits)]
        blamed = set(chain.from_iterable(kept[number].culprits for number in earlier))
        rest = tuple(rank for rank in cause.culprits if rank not in blamed)
        for number in earlier:
            waiting = tuple(sorted({*kept[number].waiting, *cause.waiting}))
            kept[number] = Cause(kept[number].waits, kept[number].culprits, waiting)
        if rest or not cause.culprits:
            kept.append(Cause(cause.waits, rest, cause.waiting))
    return kept
