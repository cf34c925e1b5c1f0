"""What of a trace must come before what, and when each node could begin at the earliest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.table import NodeTable
from tracelink.events import Bools, Int64s

NOWHERE = -1
RELEASED = 0


@dataclass(frozen=True, slots=True)
class Precedence:
    """Pairs of rows, each pair once: the effect waits for the cause."""

    count: int
    """How many nodes there are."""
    cause: Int64s
    effect: Int64s
    data: Bools
    """Whether it is a data dependency."""
    control: Bools
    """Whether it is a control dependency; it can be both."""
    missing: int = 0
    """Dependencies on nodes that do not exist."""
    itself: int = 0
    """Dependencies of nodes on themselves."""

    @classmethod
    def of(cls, nodes: NodeTable) -> Precedence:
        """The union of data and control dependencies; of several nodes with one id the first is meant."""
        pairs, missing, itself = list[Int64s](), 0, 0
        for links in (nodes.data, nodes.control):
            cause, effect = nodes.places(links), links.owners
            missing += int((cause == NOWHERE).sum())
            itself += int((cause == effect).sum())
            fits = (cause != NOWHERE) & (cause != effect)
            pairs.append(np.unique(cause[fits] * len(nodes) + effect[fits]))
        both = np.union1d(*pairs)
        cause, effect = np.divmod(both, max(len(nodes), 1))
        data, control = (np.isin(both, some, assume_unique=True) for some in pairs)
        return cls(len(nodes), cause, effect, data, control, missing, itself)


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order in which causes come first, and how early each node can begin."""

    order: Sequence[int]
    """Rows; those of a cycle, and those that wait for one, have no place in it."""
    begins: Sequence[float]
    """For each row when all its causes have ended; 0 where it has none."""
    last_cause: Sequence[int]
    """For each row that cause of it which ends last, or -1."""

    def chain(self, row: int) -> list[int]:
        """The rows that `row` waited for, one for the other, and itself."""
        rows = [row]
        while (row := self.last_cause[row]) != NOWHERE:
            rows.append(row)
        return rows[::-1]


def earliest(precedence: Precedence, durations: Sequence[float], *, through_cycles: bool = False) -> Schedule:
    """Every node begins as soon as all that it waits for has ended. Linear, and a cycle only leaves nodes out.

    `through_cycles` lets a node of a cycle begin where nothing else can, so that none is left out.
    """
    count = precedence.count
    waiting = np.bincount(precedence.effect, minlength=count).tolist()
    bounds = np.searchsorted(precedence.cause, np.arange(count + 1)).tolist()
    effects = precedence.effect.tolist()
    begins: list[float] = [0] * count
    last_cause = [NOWHERE] * count
    order = [row for row, causes in enumerate(waiting) if not causes]
    for row in _growing(order, waiting) if through_cycles else order:
        end = begins[row] + durations[row]
        for effect in effects[bounds[row] : bounds[row + 1]]:
            if end > begins[effect] or last_cause[effect] == NOWHERE:
                begins[effect], last_cause[effect] = max(end, begins[effect]), row
            waiting[effect] -= 1
            if not waiting[effect]:
                order.append(effect)
    return Schedule(order, begins, last_cause)


def _growing(order: list[int], waiting: list[int]) -> Iterator[int]:
    """The rows of a list that grows meanwhile; where it ends, the next row that still waits is put behind it."""
    yield from order
    done = len(order)
    for row in range(len(waiting)):
        if waiting[row] > 0:
            waiting[row] = RELEASED
            order.append(row)
            while done < len(order):
                yield order[done]
                done += 1


def cycle(precedence: Precedence, schedule: Schedule) -> list[int]:
    """Rows of which each waits for the one before, and the first for the last; empty where there are none."""
    left = np.ones(precedence.count, np.bool_)
    left[np.array(schedule.order, np.int64)] = False
    among = left[precedence.cause] & left[precedence.effect]
    cause_of = dict(zip(precedence.effect[among].tolist(), precedence.cause[among].tolist(), strict=True))
    if not cause_of:
        return []
    row, place = next(iter(cause_of)), dict[int, int]()
    while row not in place:
        place[row] = len(place)
        row = cause_of[row]
    return list(place)[place[row] :][::-1]
