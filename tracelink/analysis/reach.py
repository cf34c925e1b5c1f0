"""Whether a rank will ever come to what another waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN
from tracelink.events import Int64s
from tracelink.linking.coding import stable_order


@dataclass(frozen=True)
class Reach:
    """What ranks have joined, and who waits for whom."""

    parts: Parts
    waits: Sequence[Wait]

    def comes_no_more(self, awaited: int, rank: int, row: int, *, only_past: bool = False) -> bool:
        """Whether one that is awaited by a rank since an entry has gone past that, or waits for the rank itself."""
        in_a_ring = self._ring.get(rank) == self._ring.get(awaited, UNKNOWN)
        return (in_a_ring and not only_past) or self.went_past(awaited, rank, row)

    def went_past(self, awaited: int, rank: int, row: int) -> bool:
        """Whether it joined something that the rank did after this entry."""
        own, other = self._of_rank(rank), self._of_rank(awaited)
        later = self.parts.round[own[self.parts.row[own] > row]]
        return bool(np.isin(later, self.parts.round[other]).any())

    def _of_rank(self, rank: int) -> Int64s:
        order, begin = self._by_rank
        if rank + 1 >= len(begin):
            return order[:0]
        return order[begin[rank] : begin[rank + 1]]

    @cached_property
    def _by_rank(self) -> tuple[Int64s, Int64s]:
        order = stable_order(self.parts.rank)
        count = np.bincount(self.parts.rank) if len(self.parts) else np.zeros(0, np.int64)
        return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])

    @cached_property
    def _ring(self) -> dict[int, int]:
        """For each rank a number that it shares with all that wait for it and that it waits for, directly or not."""
        from networkx import DiGraph, strongly_connected_components

        graph: DiGraph[int] = DiGraph()
        for wait in self.waits:
            graph.add_edges_from((rank, other) for rank in wait.rows for other in wait.awaited)
        rings = strongly_connected_components(graph)
        return {rank: number for number, ring in enumerate(rings) for rank in ring}
