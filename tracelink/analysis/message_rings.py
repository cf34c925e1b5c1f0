"""Who is to blame for a ring of waits in which messages are: who leaves its habits, or is in most of the conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracelink.analysis.habits import Habits
from tracelink.analysis.siblings import Siblings
from tracelink.analysis.waits import Wait
from tracelink.events import Int64s
from tracelink.journal import Journal

RECENT = 32
"""So many messages before those in a ring may be the first that went wrong."""


def culprits_of_ring(journal: Journal, ring: Sequence[Wait]) -> tuple[tuple[int, ...], bool]:
    """Those to blame, and whether nothing tells which of them is."""
    everybody = {rank for wait in ring for rank in wait.rows}
    unusual = _unusual(journal, ring)
    if unusual and unusual < everybody:
        return tuple(sorted(unusual)), False
    conflicts = _conflicts(ring)
    count = Counter(rank for conflict in conflicts for rank in conflict)
    most = [rank for rank, times in count.items() if times == max(count.values())]
    return tuple(sorted(most or everybody)), len(most) != 1


def _unusual(journal: Journal, ring: Sequence[Wait]) -> set[int]:
    """Ranks that wait in messages in which their siblings, or they themselves before, did something else."""
    habits, siblings = Habits(journal), Siblings(journal)
    return {
        rank
        for wait in ring
        if wait.message
        for rank in wait.rows
        if _is_unusual(habits, siblings, siblings.call(wait.group, rank, wait.sequence), wait.group, rank)
    }


def _is_unusual(habits: Habits, siblings: Siblings, call: Int64s, group: int, rank: int) -> bool:
    """Whether this, or one of the messages just before it, is not what siblings have under the same number."""
    number = int(siblings.journal.records.sequence[call[0]])
    compared = False
    for one in range(number, max(number - RECENT, 0), -1):
        due, own = siblings.due(group, rank, one), siblings.codes(siblings.call(group, rank, one))
        if due and own:
            compared = True
            if due != own:
                return True
    return not compared and habits.deviates(int(call[0]))


def _conflicts(ring: Sequence[Wait]) -> set[frozenset[int]]:
    """Pairs of ranks of which each waits for the other, one of them at least in a message."""
    return {
        frozenset((rank, awaited))
        for wait in ring
        if wait.message
        for rank in wait.rows
        for awaited in wait.awaited
        if any(awaited in other.rows and rank in other.awaited for other in ring)
    }
