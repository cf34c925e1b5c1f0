"""When nodes began and how long they took, where they say it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.reading.kinds import Kinds
from tracelink.converters.chakra.schema import Name
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.times import inclusive_ns, starts_ns
from tracelink.events import NO_TIME, UNFINISHED, Bools, EventKind, Int64s

FARTHEST = 1 << 62
LONGEST = 10**16
"""Nothing takes longer, 116 days."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Nanoseconds; and the rows of numbers that cannot be times."""

    start: Int64s
    duration: Int64s
    unusable: Int64s

    def span(self) -> tuple[int | None, int | None]:
        """When the first node began and the last one ended, if any says it."""
        timed = self.start != NO_TIME
        if not timed.any():
            return None, None
        end = self.start[timed] + np.maximum(self.duration[timed], 0)
        return int(self.start[timed].min()), int(end.max())


def moments_of(nodes: NodeTable, kinds: Kinds) -> Moments:
    """Nodes of an execution trace have no time, whatever stands there for simulators to sort by."""
    start, far = _below(starts_ns(nodes), FARTHEST, NO_TIME)
    duration, long = _below(inclusive_ns(nodes), LONGEST, UNFINISHED)
    untimed = ~_says_start(nodes) | (kinds == EventKind.NODE)
    start[untimed] = NO_TIME
    duration[kinds == EventKind.NODE] = UNFINISHED
    return Moments(start, duration, np.flatnonzero(far | long))


def _says_start(nodes: NodeTable) -> Bools:
    """Whether each node says when it began; 0 says so only beside nodes that began later."""
    said = np.zeros(len(nodes), np.bool_)
    said[nodes.attribute(Name.START).rows] = True
    if said.any():
        return said
    return np.full(len(nodes), (nodes.start != 0).any())


def _below(numbers: list[int], limit: int, instead: int) -> tuple[Int64s, Bools]:
    """The numbers as a column, and which of them are beyond the limit."""
    beyond = np.array([number >= limit for number in numbers], np.bool_)
    column = np.array([min(number, limit) for number in numbers], np.int64)
    column[beyond] = instead
    return column, beyond
