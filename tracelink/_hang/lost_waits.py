"""Lost waits: collectives in which ranks wait although their ring buffers have lost the entries.

The status of each group (`pg_status`) still counts them. It is used only where it decides: if another member of the
group certainly has not joined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.journal import Journal, message_requests
from tracelink._hang.participation import Knowledge, Parts, PartsByRank, Positions, wrapped_ranks
from tracelink._hang.programs import similar_groups
from tracelink._hang.waits import Wait
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.records import Progress

COLLECTIVE = "collective"
"""The operation of a collective whose entries are all lost."""
PAIR = 2


class LostWaits(Struct, frozen=True):
    """Waits in collectives whose entries are lost."""

    waits: Sequence[Wait]
    skipped_by: frozenset[int]
    """Ranks that did not join one of them, and have joined collectives that the waiting ranks joined later."""

    def added_to(self, waits: Sequence[Wait]) -> list[Wait]:
        """All waits. A rank that skipped a collective is not held up by others: others are held up by it."""
        remaining = [
            replace(wait, rows={rank: row for rank, row in wait.rows.items() if rank not in self.skipped_by})
            for wait in waits
        ]
        return [*(wait for wait in remaining if wait.rows), *self.waits]


def lost_waits(journal: Journal, parts: Parts, positions: Positions) -> LostWaits:
    """The waits of ranks whose ring buffers have lost all entries of a group."""
    waits: list[Wait] = []
    skipped: set[int] = set()
    candidates = np.isin(positions.rank, wrapped_ranks(journal)) & (positions.part == UNKNOWN)
    for group in np.unique(positions.group[candidates]).tolist():
        rows = positions.of_group(group)
        ranks = positions.rank[rows]
        progress = {rank: _progress(journal, group, rank) for rank in ranks[candidates[rows]].tolist()}
        never = (positions.last[rows] == UNKNOWN) & (positions.knowledge[rows] == Knowledge.EXACT)
        absent = tuple(ranks[never].tolist())
        if not absent or not _counts_collectives(journal, positions, group, absent):
            continue
        by_rank = PartsByRank(parts)
        for rank, status in progress.items():
            passed = {other for other in absent if _shares_a_collective(by_rank, other, rank)}
            gave_up = status.completed >= status.enqueued
            if status.enqueued > 0 and (passed or not gave_up):
                skipped |= passed
                first = int(journal.bounds[np.searchsorted(journal.ranks, rank)])
                created = int(journal.records.created[first]) if len(journal) else NO_TIME
                sequence = 1 if gave_up else max(status.completed + 1, 1)
                waits.append(
                    Wait(group, sequence, COLLECTIVE, {rank: first}, absent, created=created, lost=True)
                )
    return LostWaits(_together(waits), frozenset(skipped))


def _together(waits: Sequence[Wait]) -> list[Wait]:
    """One wait for each collective."""
    found: dict[tuple[int, int], Wait] = {}
    for wait in waits:
        known = found.setdefault((wait.group, wait.sequence), wait)
        found[wait.group, wait.sequence] = replace(known, rows=known.rows | wait.rows)
    return list(found.values())


def _progress(journal: Journal, group: int, rank: int) -> Progress:
    """The status of a group in the dump of a rank; that of an unused group if it has none."""
    if rank not in journal.recordings or group in journal.later_lives:
        return Progress()
    return journal.recordings[rank].progress.get(journal.groups[group].name, Progress())


def _counts_collectives(journal: Journal, positions: Positions, group: int, absent: Sequence[int]) -> bool:
    """Whether the status of a group counts collectives, and not messages that may not even be recorded.

    Messages involve two members: most members, and all of similar groups, have used them if it counts collectives.
    """
    similar = similar_groups(journal.groups, group)
    records = journal.records
    if (message_requests(journal)[records.request] & np.isin(records.group, similar)).any():
        return False
    others = np.isin(positions.group, similar) & ~np.isin(positions.rank, absent)
    unseen = np.flatnonzero(others & (positions.last == UNKNOWN)).tolist()
    used_by_all = all(
        _progress(journal, int(positions.group[row]), int(positions.rank[row])).enqueued > 0 for row in unseen
    )
    return used_by_all and PAIR * len(absent) <= len(journal.groups[group].ranks)


def _shares_a_collective(by_rank: PartsByRank, awaited: int, rank: int) -> bool:
    """Whether the awaited rank joined a collective that the rank joined after the lost one: any that it has kept."""
    own, other = by_rank.of(rank), by_rank.of(awaited)
    return bool(np.isin(by_rank.parts.collective[own], by_rank.parts.collective[other]).any())
