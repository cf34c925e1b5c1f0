"""Who waits for whom, and what is behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tracelink.diagnosis.journal import Journal, like_groups
from tracelink.diagnosis.model import Stage, Standing
from tracelink.diagnosis.participation import Knowledge, Outcome, Parts, Whereabouts
from tracelink.diagnosis.programs import Siblings
from tracelink.model.columns import NO_TIME, UNKNOWN, Int64s
from tracelink.model.operations import Operation, operation_of, peers_of
from tracelink.model.records import State

if TYPE_CHECKING:
    from networkx import DiGraph


# Who waits in what for whom.


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


# Where in the programs of ranks a message stands for which others wait.


NEVER = int(np.iinfo(np.int64).max)
"""Stands for the entry of what a rank did not come to."""


def rows_of_message(journal: Journal, wait: Wait) -> dict[int, int]:
    """The entry of the rank at the other end, and of those in its place in like groups, or NEVER.

    Without those that forgot what came before.
    """
    siblings = Siblings(journal)
    end = _end_of(journal, siblings, wait)
    rank = int(journal.rank[end]) if end != UNKNOWN else UNKNOWN
    if end == UNKNOWN or journal.recordings[rank].overwritten:
        return {}
    before = int(np.searchsorted(siblings.like(wait.group, rank, end), end))
    found = {}
    for group, other in _others(journal, siblings, wait.group, rank, end):
        if other in journal.recordings and not journal.recordings[other].overwritten:
            rows = siblings.answers(group, other, end)
            found[other] = int(rows[before]) if before < len(rows) else NEVER
    return found


def _end_of(journal: Journal, siblings: Siblings, wait: Wait) -> int:
    """The entry of one who waits that is an end of the message."""
    requests, records = journal.requests, journal.records
    between = peers_of(wait.operation)
    for rank, row in wait.rows.items():
        for end in siblings.call(wait.group, rank, int(records.sequence[row])).tolist():
            request = records.request[end]
            if between == (int(requests.source[request]), int(requests.target[request])):
                return int(end)
    return UNKNOWN


def _others(journal: Journal, siblings: Siblings, group: int, rank: int, end: int) -> list[tuple[int, int]]:
    """The rank at the other end, in this group and in those like it."""
    request = int(journal.records.request[end])
    peers = {int(journal.requests.source[request]), int(journal.requests.target[request])}
    place = list(journal.groups[group].ranks).index(rank)
    (other,) = peers - {place} or {place}
    groups = [group, *(where for where, _ in siblings.of(group, rank))]
    return [
        (where, journal.groups[where].ranks[other])
        for where in groups
        if other < len(journal.groups[where].ranks)
    ]


# What comes first in the program that all ranks run, by what each has done first.


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which ranks take part in collectives of different groups.

    Ranks of like groups, tensor-parallel ones for example, run the same program, each with its own group.
    """

    journal: Journal
    parts: Parts
    _found: dict[tuple[str, int, int, str], dict[int, int]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def first_for(self, one: Wait, other: Wait) -> tuple[set[int], set[int]]:
        """The ranks that do the one first, and those that do the other first; each in its own like groups."""
        ones, others = self._rows(one), self._rows(other)
        if one.message or other.message:
            ranks = [rank for wait, rows in ((one, ones), (other, others)) if wait.message for rank in rows]
            ones, others = ({rank: rows.get(rank, NEVER) for rank in ranks} for rows in (ones, others))
        one_first = {rank for rank, row in ones.items() if row < others.get(rank, row + 1)}
        other_first = {rank for rank, row in others.items() if row < ones.get(rank, row + 1)}
        return one_first, other_first

    def earliest(self, waits: Sequence[Wait], without: Iterable[int] = ()) -> int:
        """Which of these comes first for most ranks; where that is not clear, in which ranks began to wait first."""
        left_out = set(without)
        best = min(range(len(waits)), key=lambda number: waits[number].created)
        for number, wait in enumerate(waits):
            if number != best:
                sooner, later = self.first_for(wait, waits[best])
                if len(sooner - left_out) > len(later - left_out):
                    best = number
        return best

    def _rows(self, wait: Wait) -> dict[int, int]:
        group = self.journal.groups[wait.group]
        message = wait.operation if wait.message else ""
        kind = (group.description, len(group.ranks), wait.sequence, message)
        if kind not in self._found:  # rings of hundreds of groups ask for each of them again and again
            self._found[kind] = rows_of_message(self.journal, wait) if wait.message else self._searched(wait)
        return self._found[kind]

    def _searched(self, wait: Wait) -> dict[int, int]:
        alike = like_groups(self.journal.groups, wait.group)
        chosen = np.flatnonzero((self.parts.sequence == wait.sequence) & np.isin(self.parts.group, alike))
        return dict(zip(self.parts.rank[chosen].tolist(), self.parts.row[chosen].tolist(), strict=True))


# From who waits for whom to what everybody waits for in the end.


@dataclass(frozen=True, slots=True)
class Cause:
    """A wait that waits for nobody who waits himself, or a ring of waits."""

    waits: Sequence[Wait]
    """One; of a deadlock all in the ring."""
    culprits: tuple[int, ...]
    """Ranks that are awaited and wait for nothing; empty where all have joined, and in a deadlock."""
    waiting: tuple[int, ...]
    """Ranks that wait because of it, directly or not."""


def causes_of(waits: Sequence[Wait]) -> list[Cause]:
    """What is behind all waits, in the order in which ranks began to wait."""
    inside = waits_by_rank(waits)
    free = [tuple(rank for rank in wait.awaited if rank not in inside) for wait in waits]
    waits_for = [
        (number, other)
        for number, wait in enumerate(waits)
        for rank in wait.awaited
        for other in inside.get(rank, ())
    ]
    # Importing networkx takes longer than reading the dumps of ten ranks: not where nobody waits for who waits.
    causes = (
        _behind_each_other(waits, free, waits_for)
        if waits_for
        else [
            Cause([wait], culprits, tuple(sorted(wait.rows)))
            for wait, culprits in zip(waits, free, strict=True)
        ]
    )
    return sorted(causes, key=lambda cause: cause.waits[0].created)


def _behind_each_other(
    waits: Sequence[Wait], free: Sequence[tuple[int, ...]], waits_for: Sequence[tuple[int, int]]
) -> list[Cause]:
    import networkx

    graph: DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(waits)))
    graph.add_edges_from(waits_for)
    causes = []
    for component in networkx.strongly_connected_components(graph):
        ring = sorted(component, key=lambda number: (-len(waits[number].rows), waits[number].created))
        leaves = any(other not in component for number in ring for other in graph.successors(number))
        waiting = _waiting(graph, waits, ring)
        open_ended = [number for number in ring if free[number]]
        causes += [Cause([waits[number]], free[number], waiting) for number in open_ended]
        if not open_ended and not leaves:
            causes.append(Cause([waits[number] for number in ring], (), waiting))
    return causes


def _waiting(graph: DiGraph[int], waits: Sequence[Wait], ring: Sequence[int]) -> tuple[int, ...]:
    from networkx import ancestors

    behind = {*ring, *chain.from_iterable(ancestors(graph, number) for number in ring)}
    return tuple(sorted({rank for number in behind for rank in waits[number].rows}))


def _narrowed(causes: Sequence[Cause]) -> list[Cause]:
    """Without those of which somebody has to be the culprit, where it is known of one of them."""
    kept: list[Cause] = []
    for cause in sorted(causes, key=lambda one: (not one.waits[0].absent, len(one.culprits))):
        explains = [one for one in kept if set(one.culprits) < set(cause.culprits)]
        if cause.waits[0].absent or not explains:
            kept.append(cause)
            continue
        first = kept.index(explains[0])
        waiting = tuple(sorted({*kept[first].waiting, *cause.waiting}))
        kept[first] = Cause(kept[first].waits, kept[first].culprits, waiting)
    return sorted(kept, key=lambda cause: cause.waits[0].created)


def without_repetition(causes: Sequence[Cause], order: Order) -> list[Cause]:
    """Each culprit once, with the first thing that it did not join; who waits for it elsewhere waits there too."""
    left = _narrowed([cause for cause in causes if cause.culprits])
    kept = [cause for cause in causes if not cause.culprits]
    while left:
        together = [cause for cause in left if set(cause.culprits) & set(left[0].culprits)]
        waits = [cause.waits[0] for cause in together]
        first = together[order.earliest(waits, without=left[0].culprits)]
        waiting = {rank for cause in together for rank in cause.waiting}
        kept.append(Cause(first.waits, first.culprits, tuple(sorted(waiting))))
        blamed = set(first.culprits)
        rest = [
            Cause(cause.waits, tuple(rank for rank in cause.culprits if rank not in blamed), cause.waiting)
            for cause in left
        ]
        left = [cause for cause in rest if cause.culprits]
    return sorted(kept, key=lambda cause: cause.waits[0].created)


# What all have joined and nobody finishes: who is in it, and whose device is held up in something else.


def on_devices(journal: Journal, waits: Sequence[Wait], is_stuck: Callable[[Wait], bool]) -> list[Wait]:
    """The waits; what all have joined and is stuck waits for those whose devices are not in it.

    A device does one thing after the other: what was started, else what was asked for first. That some have
    started and others have not may be but a moment: it tells only of what is stuck, or of a ring.
    """
    inside = waits_by_rank(waits)
    heads = {rank: _head(journal, [waits[number] for number in own], rank) for rank, own in inside.items()}
    judged = (_judged(journal, wait, heads, is_stuck) for wait in waits)
    return [wait for wait in judged if wait.rows]


def _judged(journal: Journal, wait: Wait, heads: Mapping[int, int], is_stuck: Callable[[Wait], bool]) -> Wait:
    if wait.awaited:
        # Who has no dump may have joined what no device has come to yet.
        return wait if wait.absent or _inside(wait, heads) else replace(wait, unknown=())
    if is_stuck(wait):
        return _on_devices(journal, wait, heads)
    return replace(wait, rows=_inside(wait, heads)) if wait.message else wait


def _head(journal: Journal, waits: Sequence[Wait], rank: int) -> int:
    """The entry that the device of a rank is in."""
    rows = [wait.rows[rank] for wait in waits]
    started = [row for row in rows if journal.records.state[row] == State.STARTED]
    return min(started or rows)


def _on_devices(journal: Journal, wait: Wait, heads: Mapping[int, int]) -> Wait:
    elsewhere = tuple(rank for rank, row in wait.rows.items() if heads[rank] != row)
    inside = _inside(wait, heads)
    if elsewhere:
        return replace(wait, rows=inside, absent=elsewhere, queued=True)
    started = {rank: row for rank, row in inside.items() if journal.records.state[row] == State.STARTED}
    if not started or len(started) == len(inside):
        return wait
    idle = tuple(rank for rank in inside if rank not in started)
    return replace(wait, rows=started, absent=idle, queued=True)


def _inside(wait: Wait, heads: Mapping[int, int]) -> dict[int, int]:
    """Those whose devices are in it."""
    return {rank: row for rank, row in wait.rows.items() if heads[rank] == row}


# What became of a message, in words.


def never_answered(wait: Wait, what: str) -> str:
    """`never sent what rank 2 waits for in recv 2<-3 #5 of group 4 (pp)`."""
    rank = next(iter(wait.rows))
    if operation_of(wait.operation) == Operation.SEND:
        return f"never received what rank {rank} sends in {what}"
    return f"never sent what rank {rank} waits for in {what}"


# What each rank was last doing in each group.


def standings_of(journal: Journal, parts: Parts, where: Whereabouts, waits: Sequence[Wait]) -> list[Standing]:
    """The ranks of each group that stand at the same place, the last first: at the first that is not finished."""
    pending = {(wait.group, rank): wait for wait in waits if not wait.message for rank in wait.rows}
    together: dict[tuple[int, int, str, Stage], list[int]] = {}
    front = {group: int(where.last[where.of_group(group)].max()) for group in set(where.group.tolist())}
    for group, rank, last, part, knowledge in zip(
        where.group.tolist(),
        where.rank.tolist(),
        where.last.tolist(),
        where.part.tolist(),
        where.knowledge.tolist(),
        strict=True,
    ):
        if wait := pending.get((group, rank)):
            place = (group, wait.sequence, journal.operation(wait.rows[rank]), Stage.WAITING)
        else:
            operation = journal.operation(int(parts.row[part])) if part != UNKNOWN else ""
            place = (group, last, operation, _stage(parts, part, knowledge, behind=last < front[group]))
        together.setdefault(place, []).append(rank)
    return [
        Standing(
            journal.groups[group].name,
            journal.groups[group].description,
            last if last != UNKNOWN else None,
            operation,
            stage,
            tuple(ranks),
        )
        for (group, last, operation, stage), ranks in sorted(together.items())
    ]


def _stage(parts: Parts, part: int, knowledge: int, *, behind: bool) -> Stage:
    if part == UNKNOWN:
        return Stage.NEVER_JOINED if knowledge == Knowledge.EXACT else Stage.UNKNOWN
    if knowledge == Knowledge.UNTIL and behind:
        return Stage.UNKNOWN
    return Stage.FINISHED if parts.outcome[part] >= Outcome.RETIRED else Stage.WAITING
