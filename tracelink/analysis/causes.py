"""From who waits for whom to what everybody waits for in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tracelink.analysis.order import Order
from tracelink.analysis.waits import Wait, waits_by_rank

if TYPE_CHECKING:
    from networkx import DiGraph


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
    free = [tuple(rank for rank in wait.awaited if rank not in inside) for wait in waits]
    waits_for = [
        (number, other)
        for number, wait in enumerate(waits)
        for rank in wait.awaited
        for other in inside.get(rank, ())
    ]
    # Importing networkx takes longer than reading the dumps of ten ranks: not where nobody waits for who waits.
    causes = (
        _behind_each_other(waits, free, waits_for)
        if waits_for
        else [
            Cause([wait], culprits, tuple(sorted(wait.rows)))
            for wait, culprits in zip(waits, free, strict=True)
        ]
    )
    return sorted(causes, key=lambda cause: cause.waits[0].created)


def _behind_each_other(
    waits: Sequence[Wait], free: Sequence[tuple[int, ...]], waits_for: Sequence[tuple[int, int]]
) -> list[Cause]:
    import networkx

    graph: DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(waits)))
    graph.add_edges_from(waits_for)
    causes = []
    for component in networkx.strongly_connected_components(graph):
        ring = sorted(component, key=lambda number: (-len(waits[number].rows), waits[number].created))
        leaves = any(other not in component for number in ring for other in graph.successors(number))
        waiting = _waiting(graph, waits, ring)
        open_ended = [number for number in ring if free[number]]
        causes += [Cause([waits[number]], free[number], waiting) for number in open_ended]
        if not open_ended and not leaves:
            causes.append(Cause([waits[number] for number in ring], (), waiting))
    return causes


def _waiting(graph: DiGraph[int], waits: Sequence[Wait], ring: Sequence[int]) -> tuple[int, ...]:
    from networkx import ancestors

    behind = {*ring, *chain.from_iterable(ancestors(graph, number) for number in ring)}
    return tuple(sorted({rank for number in behind for rank in waits[number].rows}))


def _narrowed(causes: Sequence[Cause]) -> list[Cause]:
    """Without those of which somebody has to be the culprit, where it is known of one of them."""
    kept: list[Cause] = []
    for cause in sorted(causes, key=lambda one: (not one.waits[0].absent, len(one.culprits))):
        explains = [one for one in kept if set(one.culprits) < set(cause.culprits)]
        if cause.waits[0].absent or not explains:
            kept.append(cause)
            continue
        first = kept.index(explains[0])
        waiting = tuple(sorted({*kept[first].waiting, *cause.waiting}))
        kept[first] = Cause(kept[first].waits, kept[first].culprits, waiting)
    return sorted(kept, key=lambda cause: cause.waits[0].created)


def without_repetition(causes: Sequence[Cause], order: Order) -> list[Cause]:
    """Each culprit once, with the first thing that it did not join; who waits for it elsewhere waits there too."""
    left = _narrowed([cause for cause in causes if cause.culprits])
    kept = [cause for cause in causes if not cause.culprits]
    while left:
        together = [cause for cause in left if set(cause.culprits) & set(left[0].culprits)]
        waits = [cause.waits[0] for cause in together]
        first = together[order.earliest(waits, without=left[0].culprits)]
        waiting = {rank for cause in together for rank in cause.waiting}
        kept.append(Cause(first.waits, first.culprits, tuple(sorted(waiting))))
        blamed = set(first.culprits)
        rest = [
            Cause(cause.waits, tuple(rank for rank in cause.culprits if rank not in blamed), cause.waiting)
            for cause in left
        ]
        left = [cause for cause in rest if cause.culprits]
    return sorted(kept, key=lambda cause: cause.waits[0].created)
