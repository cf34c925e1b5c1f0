"""Who waits in what for whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.whereabouts import Knowledge, Whereabouts
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int64s
from tracelink.journal import Journal


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks that are in one collective, or in the messages between two ranks, and have not finished it."""

    group: int
    """Row of the groups."""
    sequence: int
    operation: str
    rows: dict[int, int]
    """The entry of the journal by rank, of those who wait: the last, where several make a part."""
    absent: tuple[int, ...]
    """Who has not joined, as their own dumps show."""
    unknown: tuple[int, ...] = ()
    """Who may not have joined: their dumps do not say."""
    ahead: int = 1
    """How many collectives those who wait are ahead of the absent, as far as these were in any."""
    created: int = NO_TIME
    """When the first of them began to wait."""
    dropped: bool = False
    """Whether a rank gave it up."""
    queued: bool = False
    """Whether the absent have joined too, but their devices have not started it."""
    message: bool = False
    """Whether it is a message and not a collective."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who waits."""
        return tuple(self.rows)

    @property
    def awaited(self) -> tuple[int, ...]:
        """For whom: those who certainly have not joined, else those who may not have."""
        return self.absent or self.unknown


@dataclass(slots=True)
class _Members:
    """The members of one group that have not joined a collective."""

    absent: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    behind: int = 1


def collective_waits(
    journal: Journal, parts: Parts, where: Whereabouts, disputed: Collection[int] = ()
) -> list[Wait]:
    """The first collective of each rank in each group that it is in and that is not finished.

    `disputed` are rounds in which ranks do not agree: those who only retired one may have been stuck in it.
    """
    pending = _first_pending(parts, _pending(journal, parts, where, disputed))
    waits = []
    for round_number in np.unique(parts.round[pending]).tolist():
        inside = pending[parts.round[pending] == round_number]
        waits.append(_wait(journal, parts, where, inside))
    return waits


def _pending(journal: Journal, parts: Parts, where: Whereabouts, disputed: Collection[int]) -> Int64s:
    """Parts that are not finished; one that only retired counts as finished unless somebody has not joined."""
    exact = where.knowledge == Knowledge.EXACT
    joined_by_all = np.full(len(journal.groups), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(joined_by_all, where.group[exact], where.last[exact])
    unfinished = parts.outcome < Outcome.RETIRED
    given_up = (parts.outcome == Outcome.RETIRED) & (
        (parts.sequence > joined_by_all[parts.group])
        | (np.isin(parts.round, list(disputed)) & np.isin(parts.last, journal.bounds[1:] - 1))
    )
    pending: Int64s = np.flatnonzero(unfinished | given_up)
    return pending


def _first_pending(parts: Parts, pending: Int64s) -> Int64s:
    """The first of each rank in each group; parts are in the order of their numbers."""
    keys = parts.group[pending].astype(np.int64) << 32 | parts.rank[pending]
    _, first = np.unique(keys, return_index=True)
    chosen: Int64s = pending[np.sort(first)]
    return chosen


def _wait(journal: Journal, parts: Parts, where: Whereabouts, inside: Int64s) -> Wait:
    group, sequence = int(parts.group[inside[0]]), int(parts.sequence[inside[0]])
    members = _not_joined(parts, where, group, sequence, int(parts.round[inside[0]]))
    created = parts.created[inside]
    timed = created[created != NO_TIME]
    return Wait(
        group,
        sequence,
        journal.operation(int(parts.last[inside[0]])),
        dict(zip(parts.rank[inside].tolist(), parts.last[inside].tolist(), strict=True)),
        tuple(members.absent),
        tuple(members.unknown),
        members.behind,
        int(timed.min()) if len(timed) else NO_TIME,
        bool((parts.outcome[inside] == Outcome.DROPPED).any()),
    )


def _not_joined(parts: Parts, where: Whereabouts, group: int, sequence: int, number: int) -> _Members:
    members = _Members()
    begin, end = np.searchsorted(parts.round, [number, number + 1]).tolist()
    joined = set(parts.rank[begin:end].tolist())
    rows = where.of_group(group)
    last = where.last[rows]
    front = int(last.max(initial=UNKNOWN))
    for rank, reached, knowledge in zip(
        where.rank[rows].tolist(), last.tolist(), where.knowledge[rows].tolist(), strict=True
    ):
        if rank in joined or reached >= sequence:
            continue
        if knowledge == Knowledge.EXACT:
            members.absent.append(rank)
            if reached != UNKNOWN:
                members.behind = max(members.behind, front - reached)
        else:
            members.unknown.append(rank)
    return members


def waits_by_rank(waits: Sequence[Wait]) -> dict[int, list[int]]:
    """The numbers of the waits that each rank is in."""
    found: dict[int, list[int]] = {}
    for number, wait in enumerate(waits):
        for rank in wait.rows:
            found.setdefault(rank, []).append(number)
    return found
