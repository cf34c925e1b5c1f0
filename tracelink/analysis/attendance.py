"""When one rank, and when all others, came to the collectives that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.analysis.rounds import Rounds
from tracelink.clocks.segments import Floats
from tracelink.events import NO_TIME, Int32s, Int64s
from tracelink.journal import Journal

MOST_ROUNDS = 1000
"""So many of the newest rounds of a group are looked at."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """The rounds of one group: a row for each; of times of others a column for each, in ns from one zero."""

    part: Int64s
    """The rank's own."""
    others: Int32s
    """The other ranks."""
    own: Floats
    came: Floats
    """When each of the others came."""
    next: Floats
    """When each of the others did the next thing, in any group; inf where nothing follows."""
    own_over: Floats
    over: Floats
    """When its recorder saw that the collective was over, or NaN."""

    @property
    def late(self) -> Floats:
        """How long after all others the rank came; below 0 where it was not the last."""
        late: Floats = self.own - self.came.max(axis=1)
        return late


def attendances(
    journal: Journal, parts: Parts, rounds: Rounds, created: Int64s, rank: int
) -> list[Attendance]:
    """One for each group of the rank; `created` is when each part was, by one clock."""
    rows, round_of = rounds.parts(), rounds.of_parts()
    own = np.flatnonzero(parts.rank[rows] == rank)
    groups = parts.group[rows[own]]
    zero = int(created[rows].min(initial=np.iinfo(np.int64).max))
    found = []
    for group in np.unique(groups).tolist():
        mine = own[groups == group][-MOST_ROUNDS:]
        begin, size = rounds.begin[round_of[mine]], int(rounds.size[round_of[mine[0]]])
        table = begin[:, None] + np.arange(size)
        column = int(rows[mine[0]] - begin[0])
        others = np.delete(table, column, axis=1)
        times = _Times(journal, parts, created, zero)
        found.append(
            Attendance(
                rows[mine],
                parts.rank[others[0]],
                times.created(rows[mine]),
                times.created(others),
                times.following(others),
                times.over(rows[mine]),
                times.over(others),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Times:
    """Times of parts, all from the same zero and by the same clock."""

    journal: Journal
    parts: Parts
    clock: Int64s
    zero: int

    def created(self, part: Int64s) -> Floats:
        return (self.clock[part] - self.zero).astype(np.float64)

    def following(self, part: Int64s) -> Floats:
        last = self.parts.last[part]
        after = np.minimum(last + 1, len(self.journal) - 1)
        exists = (after > last) & (self.journal.rank[after] == self.parts.rank[part])
        time = np.where(exists, self.journal.records.created[after], NO_TIME)
        return self._by_clock(part, time, np.inf)

    def over(self, part: Int64s) -> Floats:
        return self._by_clock(part, self.journal.records.completed[self.parts.last[part]], np.nan)

    def _by_clock(self, part: Int64s, time: Int64s, unknown: float) -> Floats:
        known = time != NO_TIME
        shift = self.clock[part] - self.parts.created[part] - self.zero
        return np.where(known, (np.where(known, time, 0) + shift).astype(np.float64), unknown)
