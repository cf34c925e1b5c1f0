"""Who came late to which collective, and by how much."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.analysis.rounds import Rounds
from tracelink.diagnosis import Lateness
from tracelink.events import Int32s, Int64s
from tracelink.journal import Journal


def lateness_of(journal: Journal, parts: Parts, rounds: Rounds) -> list[Lateness]:
    """Every rank that came last to anything, the one that others waited for longest first."""
    rank = parts.rank[rounds.last]
    ranks = int(journal.ranks.max(initial=-1)) + 1
    total = np.zeros(ranks, np.int64)
    np.add.at(total, rank, rounds.late)
    count = np.bincount(rank[rounds.late > 0], minlength=ranks)
    of = np.bincount(parts.rank[rounds.parts()], minlength=ranks)
    worst = _worst(rank, rounds.late, ranks)
    late = np.flatnonzero(count)
    return [
        _lateness(journal, parts, rounds, int(worst[one]), (int(count[one]), int(of[one]), int(total[one])))
        for one in late[np.argsort(-total[late], kind="stable")].tolist()
    ]


def _worst(rank: Int32s, late: Int64s, ranks: int) -> Int64s:
    """For each rank the round to which it came latest; the first of these."""
    worst = np.zeros(ranks, np.int64)
    order = np.argsort(late, kind="stable")[::-1]
    worst[rank[order][::-1]] = order[::-1]
    return worst


def _lateness(
    journal: Journal, parts: Parts, rounds: Rounds, worst: int, counts: tuple[int, int, int]
) -> Lateness:
    part = int(rounds.last[worst])
    group = journal.groups[int(parts.group[part])]
    came_last, of, total = counts
    return Lateness(
        int(parts.rank[part]),
        came_last,
        of,
        int(rounds.late[worst]),
        total,
        group.name,
        int(parts.sequence[part]),
    )
