"""Lost waits: collectives in which ranks wait although their ring buffers have lost the entries.

The status of each group (`pg_status`) still counts them. It is used only where it decides: if another member of the
group certainly has not joined. Input: journal, parts and positions. Output: waits, and the ranks that skipped them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.journal import Journal, message_requests
from tracelink.diagnosis.participation import Knowledge, Parts, PartsByRank, Positions
from tracelink.diagnosis.programs import similar_groups
from tracelink.diagnosis.waits import Wait
from tracelink.model.columns import NO_TIME, UNKNOWN
from tracelink.model.records import Progress
from tracelink.model.trace import ProcessGroup

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
    wrapped = [rank for rank, recording in journal.recordings.items() if recording.overwritten]
    candidates = np.flatnonzero(np.isin(positions.rank, wrapped) & (positions.part == UNKNOWN))
    waits: dict[tuple[int, int], Wait] = {}
    skipped: set[int] = set()
    groups = _Groups(journal, positions)
    parts_by_rank = PartsByRank(parts)
    for position in candidates.tolist():
        group, rank = int(positions.group[position]), int(positions.rank[position])
        wait = _lost_wait(journal, groups, group, rank)
        if wait is None:
            continue
        passed = {absent for absent in wait.absent if _has_passed(parts_by_rank, absent, rank)}
        progress = groups.progress(group, rank)
        if progress.completed >= wait.sequence and not passed:
            continue
        skipped |= passed
        known = waits.get((group, wait.sequence))
        waits[group, wait.sequence] = replace(known, rows=known.rows | wait.rows) if known else wait
    return LostWaits(list(waits.values()), frozenset(skipped))


class _Groups(Struct, frozen=True, dict=True):
    """What the status of groups shows of their members."""

    journal: Journal
    positions: Positions

    def progress(self, group: int, rank: int) -> Progress:
        """The status of a group in the dump of a rank; that of an unused group if it has none."""
        if rank not in self.journal.recordings or group in self.journal.later_lives:
            return Progress()
        return self.journal.recordings[rank].progress.get(self.journal.groups[group].name, Progress())

    def absent(self, group: int) -> list[int]:
        """The members that certainly have never used the group."""
        rows = self.positions.of_group(group)
        never = (self.positions.last[rows] == UNKNOWN) & (self.positions.knowledge[rows] == Knowledge.EXACT)
        ranks: list[int] = self.positions.rank[rows][never].tolist()
        return ranks

    def is_used_by_all(self, group: int, without: Sequence[int]) -> bool:
        """Whether all other members of this and of similar groups are known to have used them."""
        similar = np.isin(self.positions.group, similar_groups(self.journal.groups, group))
        others = np.flatnonzero(similar & ~np.isin(self.positions.rank, without))
        lost = others[self.positions.last[others] == UNKNOWN]
        return all(
            self.progress(int(self.positions.group[row]), int(self.positions.rank[row])).enqueued > 0
            for row in lost.tolist()
        )

    def has_messages(self, group: int) -> bool:
        """Whether members of this or of similar groups recorded messages in them."""
        return _kind(self.journal.groups[group]) in self._kinds_with_messages

    @cached_property
    def _kinds_with_messages(self) -> set[tuple[str, int]]:
        records = self.journal.records
        messages = message_requests(self.journal)[records.request] & (records.group != UNKNOWN)
        return {_kind(self.journal.groups[row]) for row in np.unique(records.group[messages]).tolist()}


def _kind(group: ProcessGroup) -> tuple[str, int]:
    """Equal for similar groups."""
    return group.description, len(group.ranks)


def _lost_wait(journal: Journal, groups: _Groups, group: int, rank: int) -> Wait | None:
    """The wait of a rank in the first collective of a group that another member certainly has not joined.

    The status counts messages, too, some of which are not recorded: it proves a collective only if most members and
    all of similar groups used their group, or if the rank has not finished it and there is one other member.
    """
    progress = groups.progress(group, rank)
    absent = groups.absent(group) if progress.enqueued > 0 else []
    if not absent or groups.has_messages(group):
        return None
    waits_in_a_pair = progress.completed < 1 and len(journal.groups[group].ranks) == PAIR
    few = PAIR * len(absent) <= len(journal.groups[group].ranks)
    if not waits_in_a_pair and not (few and groups.is_used_by_all(group, absent)):
        return None
    first = int(journal.bounds[np.searchsorted(journal.ranks, rank)])
    sequence = max(progress.completed + 1, 1) if progress.completed < progress.enqueued else 1
    return Wait(
        group,
        sequence,
        COLLECTIVE,
        {rank: first},
        tuple(absent),
        created=int(journal.records.created[first]) if len(journal) else NO_TIME,
        lost=True,
    )


def _has_passed(parts_by_rank: PartsByRank, awaited: int, rank: int) -> bool:
    """Whether the awaited rank joined a collective that the rank joined after the lost one: any that it has kept."""
    parts = parts_by_rank.parts
    own, other = parts_by_rank.of(rank), parts_by_rank.of(awaited)
    return bool(np.isin(parts.collective[own], parts.collective[other]).any())
