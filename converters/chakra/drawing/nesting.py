"""Which node encloses which, and how deep each lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.table import NodeTable
from tracelink.events import Bools, Int64s

OUTSIDE = -1


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each row what encloses it, or -1, and how many nodes lie around it and itself.

    Work of a device is not inside the operator that launched it: it runs beside it.
    """

    parent: Sequence[int]
    level: Sequence[int]

    @classmethod
    def of(cls, nodes: NodeTable, on_device: Bools) -> Nesting:
        """The first control dependency that is on the same side encloses a node."""
        around, inside = nodes.places(nodes.control), nodes.control.owners
        fits = (around >= 0) & (around != inside)
        fits[fits] = on_device[around[fits]] == on_device[inside[fits]]
        parent = np.full(len(nodes), OUTSIDE, np.int64)
        parent[inside[fits][::-1]] = around[fits][::-1]
        return cls.of_parents(parent.tolist())

    @classmethod
    def of_parents(cls, parent: list[int]) -> Nesting:
        """A circle of parents is cut open at one place."""
        level = [0] * len(parent)
        on_path = -1
        for row in range(len(parent)):
            path = []
            while not level[row]:
                level[row] = on_path
                path.append(row)
                if parent[row] == OUTSIDE:
                    break
                if level[parent[row]] == on_path:
                    parent[row] = OUTSIDE
                    break
                row = parent[row]
            for row in reversed(path):
                level[row] = 1 if parent[row] == OUTSIDE else level[parent[row]] + 1
        return cls(parent, level)

    def outermost_first(self) -> list[int]:
        """All rows, each behind what encloses it."""
        order: list[int] = np.argsort(np.array(self.level, np.int64), kind="stable").tolist()
        return order

    def drawn_as(self, wanted: Bools, depth: int | None) -> Int64s:
        """For each wanted row the one that it is drawn as, which is itself or lies around it at `depth`; else -1."""
        drawn = [OUTSIDE] * len(self.parent)
        for row in self.outermost_first():
            around = self.parent[row]
            if around != OUTSIDE and drawn[around] != OUTSIDE:
                drawn[row] = drawn[around]
            if wanted[row] and (drawn[row] == OUTSIDE or depth is None or self.level[row] <= depth):
                drawn[row] = row
        return np.where(wanted, np.array(drawn, np.int64), OUTSIDE)
