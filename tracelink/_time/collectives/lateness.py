"""Who delays whom: the waits for the last rank of each collective, and whether other ranks had delayed that one.

A rank that waited in a collective of another group comes later to the next one of its own group. By as much as it
waited longer than the rank that now waits for it, the cause is the rank that it waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink._model.communications import Participations
from tracelink._time.collectives.costs import Measured
from tracelink._time.model.communication import Delay, LateRank, Pattern, PatternRow

HABIT = 2 / 3
"""A rank that causes this share of all waits is late constantly."""
FEWEST = 4
"""Collectives with a significant wait, for a pattern."""
SIGNIFICANT_NS = 1000
MOST_DELAYS = 100


class _Tally(Struct):
    """Sums by rank, and by pairs of ranks."""

    caused: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    passed_on: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    inherited: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    waited: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    delays: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def add(self, cause: int, waiting: int, wait: int) -> None:
        """A wait of one rank for another, which is the cause."""
        sums = self.delays.setdefault((cause, waiting), [0, 0])
        sums[0] += wait
        sums[1] += 1


class Lateness(Struct, frozen=True):
    """Late ranks, whom they delayed, and who is late in each group."""

    late: Sequence[LateRank]
    delays: Sequence[Delay]
    patterns: Sequence[PatternRow]


def lateness_of(spent: Measured, used: Bools) -> Lateness:
    """The waits in these collectives, by their causes."""
    parts = spent.job.participations
    chosen = used & (spent.last != UNKNOWN)
    of_part = np.repeat(np.arange(len(spent.start)), spent.size)
    rows = np.flatnonzero(chosen[of_part] & (spent.wait > 0))
    history = _History.of(spent, chosen, of_part)
    tally = _Tally()
    last = spent.last[of_part[rows]]
    passed = history.passed_on(spent, rows, last)
    by_cause = _Blame(history, spent, of_part)
    for row, cause_row, delayed in zip(rows.tolist(), last.tolist(), passed.tolist(), strict=True):
        waiting, cause, wait = int(parts.rank[row]), int(parts.rank[cause_row]), int(spent.wait[row])
        tally.caused[cause] += wait
        tally.waited[waiting] += wait
        tally.passed_on[cause] += delayed
        if wait > delayed:
            tally.add(cause, waiting, wait - delayed)
        for other, share in by_cause.split(cause_row, delayed).items():
            tally.inherited[other] += share
            tally.add(other, waiting, share)
    return Lateness(
        _late_ranks(spent, chosen, of_part, tally), _delays(tally), _patterns(spent, chosen, of_part)
    )


# What ranks waited before, in other groups.


class _History(Struct, frozen=True):
    """The waits of each rank by time: when they began, their sums, and their participations."""

    begin: Mapping[int, Int64s]
    sums: Mapping[int, Int64s]
    parts: Mapping[int, Int64s]
    since: Int64s
    """For each participation when the rank left the collective before it of the same group; NO_TIME if unknown."""
    arrived: Int64s
    """When the rank of each participation arrived."""

    @classmethod
    def of(cls, spent: Measured, chosen: Bools, of_part: Int64s) -> _History:
        """The history of all ranks."""
        table = spent.job.participations
        arrived = np.where(table.start == NO_TIME, table.enqueued, table.start)
        begin, sums, parts = {}, {}, {}
        usable = chosen[of_part] & (arrived != NO_TIME)
        for rank in np.unique(table.rank).tolist():
            mine = np.flatnonzero(usable & (table.rank == rank))
            mine = mine[np.argsort(arrived[mine], kind="stable")]
            begin[rank], parts[rank] = arrived[mine], mine
            sums[rank] = np.append(0, np.cumsum(np.maximum(spent.wait[mine], 0)))
        return cls(begin, sums, parts, _since(spent, table, arrived, of_part), arrived)

    def between(self, rank: int, first: Int64s, last: Int64s) -> Int64s:
        """How long a rank waited in collectives that it entered in each of these stretches of time."""
        begin, sums = self.begin[rank], self.sums[rank]
        low, high = np.searchsorted(begin, first), np.searchsorted(begin, last)
        return sums[np.maximum(high, low)] - sums[low]

    def passed_on(self, spent: Measured, rows: Int64s, last: Int64s) -> Int64s:
        """For each waiting participation the part of its wait that other ranks caused for the last one."""
        ranks = spent.job.participations.rank
        lost, own = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for rank in self.begin:
            for result, of in ((lost, last), (own, rows)):
                mine = np.flatnonzero((ranks[of] == rank) & (self.since[of] != NO_TIME))
                result[mine] = self.between(rank, self.since[of[mine]], self.arrived[of[mine]])
        return np.clip(lost - own, 0, spent.wait[rows])


def _since(spent: Measured, table: Participations, arrived: Int64s, of_part: Int64s) -> Int64s:
    group = spent.job.collectives.group[of_part]
    order = np.lexsort((arrived, group, table.rank))
    same = (table.rank[order][1:] == table.rank[order][:-1]) & (group[order][1:] == group[order][:-1])
    left = np.where(table.end == NO_TIME, arrived, table.end)
    since = np.full(len(table), NO_TIME, np.int64)
    since[order[1:][same]] = left[order[:-1][same]]
    return since


class _Blame(Struct):
    """Who is to blame for the waits of a rank before it came last: again by the last ranks of those collectives."""

    history: _History
    spent: Measured
    of_part: Int64s
    known: dict[int, dict[int, float]] = field(default_factory=dict)

    def split(self, part: int, wait: int) -> dict[int, int]:
        """A wait that was passed on from this participation, divided over its causes, exactly."""
        if not wait:
            return {}
        shares = self.shares(part)
        if not shares:
            return {int(self.spent.job.participations.rank[part]): wait}
        ranks = sorted(shares)
        reached = np.rint(np.cumsum([shares[rank] for rank in ranks]) * wait).astype(np.int64)
        reached[-1] = wait
        return {
            rank: amount
            for rank, amount in zip(ranks, np.diff(reached, prepend=0).tolist(), strict=True)
            if amount
        }

    def shares(self, part: int) -> dict[int, float]:
        """The share of each rank in what delayed this participation."""
        pending = [part]
        while pending:
            current = pending[-1]
            if current in self.known:
                pending.pop()
                continue
            earlier = list(self._earlier(current))
            missing = [last for _, last in earlier if last not in self.known]
            if missing:
                pending += missing
                continue
            self.known[current] = self._divided(earlier)
            pending.pop()
        return self.known[part]

    def _earlier(self, part: int) -> Iterator[tuple[int, int]]:
        """The waits before a participation since the last of its group, and the participations that they were for."""
        history, rank = self.history, int(self.spent.job.participations.rank[part])
        first, last = int(history.since[part]), int(history.arrived[part])
        if first == NO_TIME:
            return
        low, high = np.searchsorted(history.begin[rank], [first, last]).tolist()
        for row in history.parts[rank][low:high].tolist():
            cause = int(self.spent.last[self.of_part[row]])
            # a cause that came no earlier than what it is to explain is an error of clocks
            if self.spent.wait[row] > 0 and history.arrived[cause] < last:
                yield int(self.spent.wait[row]), cause

    def _divided(self, earlier: Sequence[tuple[int, int]]) -> dict[int, float]:
        total = sum(wait for wait, _ in earlier)
        shares: dict[int, float] = defaultdict(float)
        for wait, cause in earlier:
            rank = int(self.spent.job.participations.rank[cause])
            delayed = self._delayed(cause)
            shares[rank] += wait / total * (1 - delayed)
            for other, share in self.known[cause].items():
                shares[other] += wait / total * delayed * share
        return dict(shares)

    def _delayed(self, part: int) -> float:
        """The share of the waits for a participation that others caused, by the longest one."""
        collective = int(self.of_part[part])
        rows = self.spent.start[collective] + np.arange(self.spent.size[collective])
        longest = rows[[int(np.argmax(self.spent.wait[rows]))]]
        wait = int(self.spent.wait[longest][0])
        if wait <= 0 or not self.known[part]:
            return 0.0
        return int(self.history.passed_on(self.spent, longest, np.array([part]))[0]) / wait


# Results.


def _late_ranks(spent: Measured, chosen: Bools, of_part: Int64s, tally: _Tally) -> list[LateRank]:
    ranks = spent.job.participations.rank
    took_part = np.bincount(ranks[chosen[of_part]]) if len(ranks) else np.empty(0, np.int64)
    waited_for = np.zeros(len(spent.start), np.bool_)
    waited_for[of_part[np.flatnonzero(chosen[of_part] & (spent.wait > 0))]] = True
    last = np.bincount(ranks[spent.last[waited_for]], minlength=len(took_part))
    rows = [
        LateRank(
            rank,
            int(last[rank]),
            int(took_part[rank]),
            tally.caused[rank] - tally.passed_on[rank] + tally.inherited[rank],
            tally.caused[rank],
            tally.passed_on[rank],
            tally.inherited[rank],
            tally.waited[rank],
        )
        for rank in np.flatnonzero(took_part).tolist()
    ]
    return sorted(rows, key=lambda row: (-row.own_ns, row.rank))


def _delays(tally: _Tally) -> list[Delay]:
    rows = [Delay(*pair, *sums) for pair, sums in tally.delays.items()]
    return sorted(rows, key=lambda row: (-row.wait_ns, row.cause, row.waiting))[:MOST_DELAYS]


def _patterns(spent: Measured, chosen: Bools, of_part: Int64s) -> list[PatternRow]:
    """For each group whether it is always the same rank that others wait for."""
    table, ranks = spent.job.collectives, spent.job.participations.rank
    longest = np.maximum.reduceat(np.maximum(spent.wait, 0), spent.start) if len(spent.start) else spent.start
    bound = np.minimum(spent.uncertainty, np.iinfo(np.int64).max // 2)
    significant = chosen & (longest > np.maximum(SIGNIFICANT_NS, bound))
    sums = spent.sums(np.maximum(spent.wait, 0))
    rows = []
    for group in np.unique(table.group[chosen]).tolist():
        found = np.flatnonzero(significant & (table.group == group))
        by_rank = np.bincount(ranks[spent.last[found]], weights=sums[found])
        share = float(by_rank.max() / by_rank.sum()) if len(found) else 0.0
        constant = share >= HABIT
        pattern = Pattern.CONSTANT if constant else Pattern.ROTATING
        if len(found) < FEWEST:
            pattern, constant = Pattern.TOO_FEW, False
        rank = int(np.argmax(by_rank)) if constant else None
        rows.append(
            PatternRow(group, spent.job.groups[group].name, pattern, rank, round(share, 4), len(found))
        )
    return rows
