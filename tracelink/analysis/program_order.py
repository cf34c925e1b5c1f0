"""What ranks do together, in an order that is that of every rank's program."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np

from tracelink.events import NO_TIME, Int64s


def last_in_order(number: Int64s, bounds: Int64s, time: Int64s, most: int | None) -> list[int]:
    """The last `most` numbers, where equal ones are done together and each rank does its own in their order.

    What no rank orders is ordered by time. Where ranks contradict each other, most of them are right.
    """
    return list(reversed(_Backwards(number, bounds, time).take(most)))


class _Backwards:
    """Takes from the ends of all ranks what no rank does anything after."""

    def __init__(self, number: Int64s, bounds: Int64s, time: Int64s) -> None:
        self._number = number
        self._first = bounds[:-1].tolist()
        self._next = bounds[1:].tolist()
        count = int(number.max(initial=-1)) + 1
        self._ranks = np.bincount(number, minlength=count)
        self._time = np.full(count, NO_TIME, np.int64)
        np.maximum.at(self._time, number, time)
        self._waiting: dict[int, list[int]] = defaultdict(list)
        """The ranks whose last it is of what is left."""
        self._free: list[tuple[int, int]] = []
        self._taken: set[int] = set()

    def take(self, most: int | None) -> list[int]:
        """The last first."""
        taken: list[int] = []
        for rank in range(len(self._first)):
            self._step(rank)
        while self._waiting and (most is None or len(taken) < most):
            number = -heappop(self._free)[1] if self._free else self._contradictory()
            taken.append(number)
            self._taken.add(number)
            for rank in self._waiting.pop(number):
                self._step(rank)
        return taken

    def _step(self, rank: int) -> None:
        """Goes back to what the rank does before."""
        while self._next[rank] > self._first[rank]:
            self._next[rank] -= 1
            number = int(self._number[self._next[rank]])
            if number not in self._taken:
                waiting = self._waiting[number]
                waiting.append(rank)
                if len(waiting) == self._ranks[number]:
                    heappush(self._free, (-int(self._time[number]), -number))
                return

    def _contradictory(self) -> int:
        """What most ranks do last, where no other rank agrees."""
        return max(
            self._waiting,
            key=lambda number: (len(self._waiting[number]), int(self._time[number]), number),
        )
