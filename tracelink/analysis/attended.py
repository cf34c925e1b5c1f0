"""What each rank joined, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.events import Int64s
from tracelink.linking.coding import stable_order


@dataclass(frozen=True)
class Attended:
    """The parts by rank."""

    parts: Parts

    def by(self, rank: int) -> Int64s:
        """The parts of a rank, in the order of group and number."""
        order, begin = self._by_rank
        if not 0 <= rank < len(begin) - 1:
            return order[:0]
        return order[begin[rank] : begin[rank + 1]]

    @cached_property
    def _by_rank(self) -> tuple[Int64s, Int64s]:
        order = stable_order(self.parts.rank)
        count = np.bincount(self.parts.rank) if len(self.parts) else np.zeros(0, np.int64)
        return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
