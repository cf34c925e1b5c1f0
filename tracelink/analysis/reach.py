"""Whether a rank will ever come to what another waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.attended import Attended
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN


@dataclass(frozen=True)
class Reach:
    """What ranks have joined, and who waits for whom."""

    attended: Attended
    waits: Sequence[Wait]

    def comes_no_more(self, awaited: int, rank: int, row: int, *, only_past: bool = False) -> bool:
        """Whether one that is awaited by a rank since an entry has gone past that, or waits for the rank itself."""
        in_a_ring = self._ring.get(rank) == self._ring.get(awaited, UNKNOWN)
        return (in_a_ring and not only_past) or self.went_past(awaited, rank, row)

    def went_past(self, awaited: int, rank: int, row: int) -> bool:
        """Whether it joined something that the rank did after this entry."""
        parts, own, other = self.attended.parts, self.attended.by(rank), self.attended.by(awaited)
        later = parts.round[own[parts.row[own] > row]]
        return bool(np.isin(later, parts.round[other]).any())

    @cached_property
    def _ring(self) -> dict[int, int]:
        """For each rank a number that it shares with all that wait for it and that it waits for, directly or not."""
        from networkx import DiGraph, strongly_connected_components

        graph: DiGraph[int] = DiGraph()
        for wait in self.waits:
            graph.add_edges_from((rank, other) for rank in wait.rows for other in wait.awaited)
        rings = strongly_connected_components(graph)
        return {rank: number for number, ring in enumerate(rings) for rank in ring}
