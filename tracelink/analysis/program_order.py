"""What ranks do together, line by line, in an order that is that of every rank's program."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from tracelink.events import NO_TIME, Int64s


@dataclass(frozen=True, slots=True)
class Programs:
    """What each rank does, one rank after the other and each in its order; one row for each thing that it does."""

    number: Int64s
    """Equal for what is done together."""
    alike: Int64s
    """Equal for what may share a line of a table, because different ranks do the same."""
    unit: Int64s
    """Equal for what a rank does one after the other, but in no order."""
    time: Int64s
    bounds: Int64s
    """Where each rank begins; one more for the end."""


def last_lines(programs: Programs, most: int | None) -> list[list[int]]:
    """The last `most` lines of a table of what is done, in an order that is that of each rank.

    What no rank orders is ordered by time. Where ranks contradict each other, most of them are right.
    """
    return list(reversed(_Backwards(programs, most).lines()))


class _Backwards:
    """Takes from the ends of all ranks what no rank does anything after, and writes lines from the last upwards."""

    def __init__(self, programs: Programs, most: int | None) -> None:
        self._programs = programs
        self._most = len(programs.number) if most is None else most
        self._first = programs.bounds[:-1].tolist()
        self._next = programs.bounds[1:].tolist()
        """Where the part of each rank ends that was not looked at yet."""
        self._open = [0] * len(self._next)
        """How many of the unit that each rank has come to are not taken yet."""
        self._top = [-1] * len(self._next)
        """The uppermost line of each rank."""
        self._below = set(range(len(self._next)))
        """The ranks that can still have something in the lines that are wanted."""
        count = int(programs.number.max(initial=-1)) + 1
        self._ranks = np.bincount(programs.number, minlength=count)
        self._alike = np.zeros(count, np.int64)
        self._alike[programs.number] = programs.alike
        self._time = _latest(programs)
        self._waiting: dict[int, list[int]] = defaultdict(list)
        """The ranks that have come to each number."""
        self._free: list[tuple[int, int]] = []
        self._taken: set[int] = set()
        self._lines: list[list[int]] = []
        self._lines_of: dict[int, list[int]] = defaultdict(list)
        """The lines of what is alike, upwards."""

    def lines(self) -> list[list[int]]:
        """The last first."""
        for rank in range(len(self._first)):
            self._step(rank)
        while self._below:
            number = -heappop(self._free)[1] if self._free else self._contradictory()
            self._taken.add(number)
            ranks = self._waiting.pop(number)
            self._write(number, ranks)
            for rank in ranks:
                self._open[rank] -= 1
                if not self._open[rank]:
                    self._step(rank)
        return self._lines[: self._most]

    def _write(self, number: int, ranks: Sequence[int]) -> None:
        """Into a line of what is alike above all that its ranks have, if there is one; else into a new one."""
        alike = self._lines_of[int(self._alike[number])]
        place = bisect(alike, max(self._top[rank] for rank in ranks))
        if place == len(alike):
            alike.append(len(self._lines))
            self._lines.append([])
        line = alike[place]
        self._lines[line].append(number)
        for rank in ranks:
            self._top[rank] = line
            if line >= self._most:
                self._below.discard(rank)

    def _step(self, rank: int) -> None:
        """Goes back to the unit before, or further where that is taken already."""
        while not self._open[rank] and self._next[rank] > self._first[rank]:
            unit = self._programs.unit[self._next[rank] - 1]
            while self._next[rank] > self._first[rank] and self._programs.unit[self._next[rank] - 1] == unit:
                self._next[rank] -= 1
                self._come(rank, int(self._programs.number[self._next[rank]]))
        if not self._open[rank]:
            self._below.discard(rank)

    def _come(self, rank: int, number: int) -> None:
        if number in self._taken:
            return
        self._open[rank] += 1
        waiting = self._waiting[number]
        waiting.append(rank)
        if len(waiting) == self._ranks[number]:
            heappush(self._free, (-int(self._time[number]), -number))

    def _contradictory(self) -> int:
        """What most ranks have come to, where no rank has come to anything that all agree on."""
        return max(
            self._waiting,
            key=lambda number: (len(self._waiting[number]), int(self._time[number]), number),
        )


def _latest(programs: Programs) -> Int64s:
    """For each number the latest time of all that is alike: so its order is the same for all who do it."""
    alike = np.full(int(programs.alike.max(initial=-1)) + 1, NO_TIME, np.int64)
    np.maximum.at(alike, programs.alike, programs.time)
    latest = np.full(int(programs.number.max(initial=-1)) + 1, NO_TIME, np.int64)
    latest[programs.number] = alike[programs.alike]
    return latest
