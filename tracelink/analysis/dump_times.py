"""Which dumps were taken before others, as what is in them tells, and what they cannot tell for that reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.whereabouts import Whereabouts
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int64s
from tracelink.journal import Journal
from tracelink.operations import SYNCHRONIZING, operation_of


@dataclass(frozen=True, slots=True)
class DumpTimes:
    """What is known of when dumps were taken."""

    finished_since: Mapping[int, int]
    """By rank the last entry that is not finished in its dump, and is in that of another."""
    older: frozenset[int]
    """Ranks whose dumps were taken before something happened that others tell of."""
    kept_since: Mapping[int, int]
    """When the first entry was made that is kept, of ranks that forgot some."""

    def forgot(self, rank: int, time: int) -> bool:
        """Whether a rank may have forgotten what it asked for at about this time."""
        return rank in self.kept_since and (time == NO_TIME or time <= self.kept_since[rank])


def dump_times_of(journal: Journal, parts: Parts, where: Whereabouts) -> DumpTimes:
    """By the collectives that nobody finishes before all have joined."""
    overtaken = _overtaken(journal, parts)
    older = {*overtaken, *_left_behind(journal, parts, where)}
    return DumpTimes(overtaken, frozenset(older), _kept_since(journal))


def _overtaken(journal: Journal, parts: Parts) -> dict[int, int]:
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    synchronizing = np.array([name in SYNCHRONIZING for name in names], np.bool_)
    finished = (parts.outcome == Outcome.FINISHED) & synchronizing[journal.records.request[parts.row]]
    open_parts = np.flatnonzero(parts.outcome < Outcome.RETIRED)
    later = open_parts[np.isin(parts.round[open_parts], parts.round[finished])]
    found: dict[int, int] = {}
    for rank, row in zip(parts.rank[later].tolist(), parts.row[later].tolist(), strict=True):
        found[rank] = max(row, found.get(rank, UNKNOWN))
    return found


def _left_behind(journal: Journal, parts: Parts, where: Whereabouts) -> list[int]:
    """Ranks whose dumps lack a collective that others have finished."""
    if not len(parts):
        return []
    own = np.where(where.part == UNKNOWN, UNKNOWN, parts.sequence[where.part])
    forgotten = (where.part == UNKNOWN) & np.isin(where.rank, _forgetful(journal))
    older = (where.last > own) & ~forgotten & np.isin(where.rank, journal.ranks)
    return [int(rank) for rank in np.unique(where.rank[older])]


def _kept_since(journal: Journal) -> dict[int, int]:
    begins: Int64s = journal.bounds[np.searchsorted(journal.ranks, _forgetful(journal))]
    times = {
        rank: int(journal.records.created[begin])
        for rank, begin in zip(_forgetful(journal), begins.tolist(), strict=True)
        if begin < len(journal) and journal.rank[begin] == rank
    }
    return {rank: time for rank, time in times.items() if time != NO_TIME}


def _forgetful(journal: Journal) -> list[int]:
    return [rank for rank, one in journal.recordings.items() if one.overwritten]
