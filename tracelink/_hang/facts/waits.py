"""Waits: which ranks wait in which collective or message, for whom, and the causes at the end of these chains.

Input: the parts in collectives and the positions of ranks. Output: `Wait`, `Cause`, and the `Standing` of each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._hang.facts.journal import (
    Journal,
    mark_messages,
    mark_requests,
    mark_synchronizing,
)
from tracelink._hang.facts.model import Stage, Standing
from tracelink._hang.facts.participation import (
    NEVER,
    Knowledge,
    Outcome,
    Parts,
    PartsByRank,
    Positions,
    find_outcomes,
    find_wrapped_ranks,
    highest,
    lowest,
)
from tracelink._hang.facts.programs import Counterparts, similar_groups
from tracelink._model.columns import (
    MILLISECOND,
    NO_TIME,
    UNKNOWN,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    distinct,
    stable_order,
    starts_of,
)
from tracelink._model.operations import Operation, peers_of
from tracelink._model.records import Progress, State

# Who waits where for whom.


class Wait(Struct, frozen=True):
    """Ranks that entered a collective, or a message, and have not finished it."""

    group: int
    """Row of the journal's groups."""
    sequence: int
    operation: str
    rows: dict[int, int]
    """The journal entry of each waiting rank: the last one of a part of several entries."""
    absent: tuple[int, ...]
    """Ranks that have not joined, according to their own dumps."""
    unknown: tuple[int, ...] = ()
    """Ranks that may not have joined: their dumps do not show it."""
    gone: bool = False
    """True if a rank that may not have joined left no dump."""
    ahead: int = 1
    """By how many collectives the waiting ranks are ahead of the absent ones, of those that joined any.

    If it is ending: how many collectives of the group, from this one on, others have completed.
    """
    created: int = NO_TIME
    """When the first rank began to wait."""
    dropped: bool = False
    """True if a rank gave it up."""
    queued: bool = False
    """True if the absent ranks have joined as well, but their devices have not started it."""
    message: bool = False
    """True if it is a message and not a collective."""
    late: bool = False
    """True if the absent ranks have joined, but after others had given it up."""
    ending: bool = False
    """True if all ranks have joined and others have finished it."""
    lost: bool = False
    """True if ring buffers have lost its entries: `rows` contains the first entries after it."""
    blocks: bool = True
    """True if its ranks make no other call before it is finished, as far as dumps show."""
    buffered: bool = False
    """True if it is a send that may be finished before it is received."""
    passed: bool = False
    """True if the awaited ranks have gone on to a collective that comes after it."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The waiting ranks."""
        return tuple(self.rows)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks they wait for: those that certainly have not joined, else those that may not have."""
        return self.absent or self.unknown

    @property
    def proves(self) -> bool:
        """True if absent ranks are proven to be why others wait: a rank without a dump may be the reason, too."""
        return bool(self.absent) and not self.gone


def find_collective_waits(
    journal: Journal, parts: Parts, positions: Positions, disputed: Collection[int] = ()
) -> list[Wait]:
    """The first unfinished collective of each rank in each group.

    `disputed` are collectives in which ranks do not agree: ranks that only retired one may have been stuck in it.
    """
    pending = _first_pending(parts, _pending(journal, parts, positions, disputed))
    collective = parts.collective[pending]
    order = np.argsort(collective, kind="stable")
    together = np.split(pending[order], starts_of(collective[order])[1:]) if len(order) else []
    return [_wait_in(journal, parts, positions, inside) for inside in together]


def _pending(journal: Journal, parts: Parts, positions: Positions, disputed: Collection[int]) -> Int64s:
    """Unfinished parts; a part that only retired is one if a member may not have joined, or ranks do not agree."""
    exact = positions.knowledge == Knowledge.EXACT
    joined_by_all = lowest(positions.group[exact], positions.last[exact], len(journal.groups))
    newest = np.isin(parts.last, journal.bounds[1:] - 1)
    abandoned = (parts.sequence > joined_by_all[parts.group]) | (
        newest & np.isin(parts.collective, list(disputed))
    )
    pending = (parts.outcome < Outcome.RETIRED) | ((parts.outcome == Outcome.RETIRED) & abandoned)
    candidates = newest & (parts.outcome == Outcome.RETIRED) & ~_passed_by_others(journal, parts)
    if candidates.any():
        candidates &= _possibly_missed(journal, parts, positions, truncated=bool(pending.any()))
    found: Int64s = np.flatnonzero((pending | candidates) & ~journal.has_left(parts.rank, parts.group))
    return found


def _passed_by_others(journal: Journal, parts: Parts) -> Bools:
    """Parts in synchronizing collectives after which a rank joined another one of the group: all had joined these."""
    furthest = highest(parts.group, parts.sequence, len(journal.groups))
    passed: Bools = mark_synchronizing(journal)[journal.records.request[parts.row]] & (
        parts.sequence < furthest[parts.group]
    )
    return passed


def _possibly_missed(journal: Journal, parts: Parts, positions: Positions, *, truncated: bool) -> Bools:
    """Parts in collectives that a rank without a dump may not have joined.

    A rank with a truncated dump counts only if ranks are known to wait: most truncated dumps are of ranks that went on.
    """
    unsure = positions.knowledge == Knowledge.ABSENT
    if truncated:
        broken_off = [rank for rank, recording in journal.recordings.items() if recording.broken_off]
        unsure |= np.isin(positions.rank, broken_off)
    joined = lowest(positions.group[unsure], positions.last[unsure], len(journal.groups))
    missed: Bools = parts.sequence > joined[parts.group]
    return missed


def _first_pending(parts: Parts, pending: Int64s) -> Int64s:
    """The first of each rank in each group; parts are sorted by sequence number."""
    keys = parts.group[pending].astype(np.int64) << 32 | parts.rank[pending]
    _, first = np.unique(keys, return_index=True)
    chosen: Int64s = pending[np.sort(first)]
    return chosen


def _wait_in(journal: Journal, parts: Parts, positions: Positions, inside: Int64s) -> Wait:
    group, sequence = int(parts.group[inside[0]]), int(parts.sequence[inside[0]])
    members = _not_joined(journal, parts, positions, group, sequence, int(parts.collective[inside[0]]))
    late = _late(journal, parts, inside)
    if members.gone and _possibly_failed(journal, parts, _parts_before(parts, group, sequence, late)).any():
        late = ()
    inside = inside[~np.isin(parts.rank[inside], late)]
    created = parts.created[inside]
    known = created[created != NO_TIME]
    return Wait(
        group,
        sequence,
        journal.operation(int(parts.last[inside[0]])),
        dict(zip(parts.rank[inside].tolist(), parts.last[inside].tolist(), strict=True)),
        tuple(members.absent) or late,
        tuple(members.unknown),
        members.gone,
        members.completed or members.behind,
        int(known.min()) if len(known) else NO_TIME,
        bool((parts.outcome[inside] == Outcome.DROPPED).any()),
        late=bool(late) and not members.absent,
        ending=not (members.absent or members.unknown or late)
        and (members.completed > 0 or _others_finished(parts, inside)),
    )


def _parts_before(parts: Parts, group: int, sequence: int, ranks: Sequence[int]) -> Int64s:
    """The parts of ranks in the collective before this one of the group."""
    before = (parts.group == group) & (parts.sequence == sequence - 1)
    return np.flatnonzero(before & np.isin(parts.rank, ranks))


def _late(journal: Journal, parts: Parts, inside: Int64s) -> tuple[int, ...]:
    """The ranks that joined after others had given up: later than these by more than their timeout."""
    given_up = inside[(parts.outcome[inside] == Outcome.DROPPED) & (parts.created[inside] != NO_TIME)]
    if not len(given_up):
        return ()
    limits = journal.records.timeout_ms[parts.row[given_up]].astype(np.int64) * MILLISECOND
    given_up, limits = given_up[limits > 0], limits[limits > 0]
    bounds = np.searchsorted(parts.collective, parts.collective[inside[0]] + np.arange(2)).tolist()
    joined = np.arange(*bounds)
    ends = (parts.created[given_up] + limits).min(initial=np.iinfo(np.int64).max)
    return tuple(parts.rank[joined[parts.created[joined] >= ends]].tolist())


def _others_finished(parts: Parts, inside: Int64s) -> bool:
    """True if other ranks have finished the collective of these parts, and no rank gave it up."""
    bounds = np.searchsorted(parts.collective, parts.collective[inside[0]] + np.arange(2)).tolist()
    others = np.setdiff1d(np.arange(*bounds), inside)
    given_up = bool((parts.outcome[slice(*bounds)] == Outcome.DROPPED).any())
    return bool((parts.outcome[others] >= Outcome.RETIRED).any()) and not given_up


class _Members(Struct):
    """The members of a group that have not joined a collective."""

    absent: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    behind: int = 1
    gone: bool = False
    """True if some of them left no dump."""
    completed: int = 0
    """How many collectives, from this one on, a member has completed whose dump contains only active calls."""


def _not_joined(
    journal: Journal, parts: Parts, positions: Positions, group: int, sequence: int, collective: int
) -> _Members:
    first, last = np.searchsorted(parts.collective, [collective, collective + 1]).tolist()
    rows = positions.of_group(group)
    rank, reached = positions.rank[rows], positions.last[rows]
    open_ranks = (reached < sequence) & ~np.isin(rank, parts.rank[first:last])
    exact = open_ranks & (positions.knowledge[rows] == Knowledge.EXACT)
    unknown = open_ranks & ~exact
    gone = open_ranks & (positions.knowledge[rows] == Knowledge.ABSENT)
    if gone.any():
        exact &= ~_possibly_failed(journal, parts, positions.part[rows])
    slowest = reached[exact & (reached != UNKNOWN)]
    return _Members(
        rank[exact].tolist(),
        rank[unknown].tolist(),
        max(1, int(reached.max() - slowest.min())) if len(slowest) else 1,
        bool(gone.any()),
        max(0, int(positions.completed[rows].max()) - sequence + 1),
    )


def _possibly_failed(journal: Journal, parts: Parts, part: Int64s) -> Bools:
    """True where a last part is an all-to-all that only retired: that others went on does not show that it succeeded.

    Each pair of ranks has sizes of its own, and those of a rank without a dump are not known.
    """
    exchanges = np.append(mark_requests(journal, {Operation.ALL_TO_ALL}), False)
    retired = (parts.outcome == Outcome.RETIRED) & exchanges[journal.records.request[parts.row]]
    failed: Bools = np.append(retired, False)[part]
    return failed


def index_waits(waits: Sequence[Wait]) -> dict[int, list[int]]:
    """The indexes of the waits of each rank."""
    found: dict[int, list[int]] = {}
    for number, wait in enumerate(waits):
        for rank in wait.rows:
            found.setdefault(rank, []).append(number)
    return found


# Which of several waits comes first in the program that all ranks run.


class WaitOrder(Struct, frozen=True):
    """The order in which ranks take part in collectives of different groups.

    Ranks of similar groups, such as the tensor-parallel ones, run the same program, each with its own group.
    """

    journal: Journal
    parts: Parts
    _found: dict[tuple[str, int, int, str], dict[int, int]] = field(default_factory=dict)

    def first_for(self, wait: Wait, other: Wait) -> tuple[set[int], set[int]]:
        """The ranks that do `wait` first, and those that do `other` first, each in its own similar group."""
        rows, other_rows = self._rows(wait), self._rows(other)
        if wait.message or other.message:
            ranks = [
                rank for each, found in ((wait, rows), (other, other_rows)) if each.message for rank in found
            ]
            rows, other_rows = (
                {rank: found.get(rank, NEVER) for rank in ranks} for found in (rows, other_rows)
            )
        wait_first = {rank for rank, row in rows.items() if row < other_rows.get(rank, row + 1)}
        other_first = {rank for rank, row in other_rows.items() if row < rows.get(rank, row + 1)}
        return wait_first, other_first

    def earliest(self, waits: Sequence[Wait], without: Iterable[int] = ()) -> int:
        """Index of the wait that comes first for most ranks; if that is unclear, of the one that began first."""
        ignored = set(without)
        best = min(range(len(waits)), key=lambda number: waits[number].created)
        for number, wait in enumerate(waits):
            if number != best:
                sooner, later = self.first_for(wait, waits[best])
                if len(sooner - ignored) > len(later - ignored):
                    best = number
        return best

    def _rows(self, wait: Wait) -> dict[int, int]:
        group = self.journal.groups[wait.group]
        message = wait.operation if wait.message else ""
        kind = (group.description, len(group.ranks), wait.sequence, message)
        if kind not in self._found:  # cycles of hundreds of groups need each of them many times
            self._found[kind] = (
                _message_rows(self.journal, wait) if wait.message else self._collective_rows(wait)
            )
        return self._found[kind]

    def _collective_rows(self, wait: Wait) -> dict[int, int]:
        similar = similar_groups(self.journal.groups, wait.group)
        chosen = np.flatnonzero((self.parts.sequence == wait.sequence) & np.isin(self.parts.group, similar))
        return dict(zip(self.parts.rank[chosen].tolist(), self.parts.row[chosen].tolist(), strict=True))


def _message_rows(journal: Journal, wait: Wait) -> dict[int, int]:
    """The entry of the rank at the other end of a message and of its counterparts, or NEVER.

    Ranks whose ring buffer wrapped are left out.
    """
    counterparts = Counterparts(journal)
    end = _end_of(journal, counterparts, wait)
    rank = int(journal.rank[end]) if end != UNKNOWN else UNKNOWN
    if end == UNKNOWN or journal.recordings[rank].overwritten:
        return {}
    count = int(np.searchsorted(counterparts.similar_ends(wait.group, rank, end), end))
    rows_by_rank = {}
    for group, opposite in _opposite_ends(journal, counterparts, wait.group, rank, end):
        if opposite in journal.recordings and not journal.recordings[opposite].overwritten:
            rows = counterparts.opposite_ends(group, opposite, end)
            rows_by_rank[opposite] = int(rows[count]) if count < len(rows) else NEVER
    return rows_by_rank


def _end_of(journal: Journal, counterparts: Counterparts, wait: Wait) -> int:
    """The entry of a waiting rank that is an end of the message."""
    requests, records = journal.requests, journal.records
    between = peers_of(wait.operation)
    for rank, row in wait.rows.items():
        for end in counterparts.message_rows(wait.group, rank, int(records.sequence[row])).tolist():
            request = records.request[end]
            if between == (int(requests.source[request]), int(requests.target[request])):
                return int(end)
    return UNKNOWN


def _opposite_ends(
    journal: Journal, counterparts: Counterparts, group: int, rank: int, end: int
) -> list[tuple[int, int]]:
    """The rank at the other end, in this group and in similar ones."""
    request = int(journal.records.request[end])
    peers = {int(journal.requests.source[request]), int(journal.requests.target[request])}
    position = list(journal.groups[group].ranks).index(rank)
    (opposite,) = peers - {position} or {position}
    groups = [group, *(similar for similar, _ in counterparts.of(group, rank))]
    return [
        (number, journal.groups[number].ranks[opposite])
        for number in groups
        if opposite < len(journal.groups[number].ranks)
    ]


# Collectives that all ranks joined: which devices execute them, and which are held up elsewhere.


def add_device_waits(journal: Journal, waits: Sequence[Wait], is_stuck: Callable[[Wait], bool]) -> list[Wait]:
    """The waits, where stuck collectives that all ranks joined wait for ranks whose devices have not started them.

    A device runs one thing after the other: what it started, else what was requested first. That only some devices have
    started may be a matter of moments: it counts for what is stuck, or part of a cycle.
    """
    inside = index_waits(waits)
    heads = {rank: _head(journal, [waits[number] for number in own], rank) for rank, own in inside.items()}
    judged = (_with_devices(journal, wait, heads, is_stuck) for wait in waits)
    return [wait for wait in judged if wait.rows]


def _head(journal: Journal, waits: Sequence[Wait], rank: int) -> int:
    """The entry that the device of a rank is executing."""
    rows = np.array([wait.rows[rank] for wait in waits], np.int64)
    started = rows[journal.records.state[rows] == State.STARTED]
    return int((started if len(started) else rows).min())


def _with_devices(
    journal: Journal, wait: Wait, heads: Mapping[int, int], is_stuck: Callable[[Wait], bool]
) -> Wait:
    if wait.awaited:
        # A rank without a dump may have joined what no device has started yet.
        return wait if wait.absent or _inside(wait, heads) else replace(wait, unknown=())
    if is_stuck(wait):
        return _waiting_for_devices(journal, wait, heads)
    return replace(wait, rows=_inside(wait, heads)) if wait.message else wait


def _waiting_for_devices(journal: Journal, wait: Wait, heads: Mapping[int, int]) -> Wait:
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
    """The waiting ranks whose devices execute it."""
    return {rank: row for rank, row in wait.rows.items() if heads[rank] == row}


# How far each rank is in each group.


_STAGES = tuple(Stage)


def standings_of(
    journal: Journal, parts: Parts, positions: Positions, waits: Sequence[Wait], stopped: Collection[int] = ()
) -> list[Standing]:
    """The ranks of each group that are at the same collective: the first unfinished one, else the last one.

    Ranks that have left a life of a group are not part of it. What only retired is unfinished if its rank is `stopped`:
    others may just not have joined it when their dumps were taken.
    """
    sequence, operation = positions.last.copy(), _last_operations(journal, parts, positions)
    stage, outcome = _stages(parts, positions), find_outcomes(journal)
    for wait in waits:
        entered = {
            rank: row
            for rank, row in wait.rows.items()
            if wait.dropped or wait.lost or rank in stopped or outcome[row] < Outcome.RETIRED
        }
        if entered and not wait.message:
            rows = positions.of_group(wait.group)
            waiting = rows.start + np.searchsorted(positions.rank[rows], [*entered])
            sequence[waiting] = wait.sequence
            entries = np.array([*entered.values()], np.int64)
            operation[waiting] = UNKNOWN if wait.lost else _operation_codes(journal, entries)
            stage[waiting] = _STAGES.index(Stage.WAITING)
            if wait.ending:
                stage[waiting[~np.isin(positions.rank[waiting], _queued(parts, wait.group))]] = _STAGES.index(
                    Stage.ENDING
                )
    number, _ = distinct(positions.group, sequence, operation, stage)
    order = stable_order(number)
    order = order[~journal.has_left(positions.rank, positions.group)[order]]
    first = starts_of(number[order])
    ranks_at = np.split(positions.rank[order], first[1:]) if len(order) else []
    names = [*journal.strings, ""]
    found = [
        (
            int(positions.group[row]),
            int(sequence[row]),
            names[operation[row]],
            _STAGES[stage[row]],
            tuple(ranks.tolist()),
        )
        for row, ranks in zip(order[first].tolist(), ranks_at, strict=True)
    ]
    return [
        Standing(
            journal.groups[group].name,
            journal.groups[group].description,
            last if last != UNKNOWN else None,
            operation_name,
            at,
            ranks,
        )
        for group, last, operation_name, at, ranks in sorted(found)
    ]


def _queued(parts: Parts, group: int) -> Int32s:
    """The ranks that have called what no rank of the group has finished."""
    first, end = np.searchsorted(parts.group, [group, group + 1]).tolist()
    finished = parts.outcome[first:end] >= Outcome.RETIRED
    furthest = parts.sequence[first:end][finished].max(initial=UNKNOWN)
    ranks: Int32s = parts.rank[first:end][~finished & (parts.sequence[first:end] > furthest)]
    return ranks


def _operation_codes(journal: Journal, rows: Int64s) -> Int32s:
    """The string codes of the operations of entries."""
    codes: Int32s = journal.requests.operation[journal.records.request[rows]]
    return codes


def _last_operations(journal: Journal, parts: Parts, positions: Positions) -> Int64s:
    """The string code of the last operation of each position; UNKNOWN without one."""
    codes = np.full(len(positions), UNKNOWN, np.int64)
    known = positions.part != UNKNOWN
    codes[known] = _operation_codes(journal, parts.row[positions.part[known]])
    return codes


def _stages(parts: Parts, positions: Positions) -> Int8s:
    """The stage of each position, as its index in `_STAGES`."""
    unseen = positions.part == UNKNOWN
    furthest = highest(positions.group, positions.last, int(positions.group.max(initial=UNKNOWN)) + 1)
    behind = positions.last < furthest[positions.group]
    outcome = np.append(parts.outcome, np.int8(Outcome.OPEN))[positions.part]
    never, waiting, finished, unknown = (
        _STAGES.index(stage) for stage in (Stage.NEVER_JOINED, Stage.WAITING, Stage.FINISHED, Stage.UNKNOWN)
    )
    exact = positions.knowledge == Knowledge.EXACT
    stages = np.where(outcome >= Outcome.RETIRED, finished, waiting).astype(np.int8)
    stages[(positions.knowledge == Knowledge.UNTIL) & behind] = unknown
    # a dump of active calls leaves out what is completed, and its status counts it
    never_or_left_out = np.where(positions.last == UNKNOWN, never, finished)
    stages[unseen] = np.where(exact, never_or_left_out, unknown)[unseen]
    return stages


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


def find_lost_waits(journal: Journal, parts: Parts, positions: Positions) -> LostWaits:
    """The waits of ranks whose ring buffers have lost all entries of a group."""
    waits: list[Wait] = []
    skipped: set[int] = set()
    candidates = np.isin(positions.rank, find_wrapped_ranks(journal)) & (positions.part == UNKNOWN)
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
                first = journal.entries_of(rank).start
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
    """True if the status of a group counts collectives, and not messages that may not even be recorded.

    Messages involve two members: most members, and all of similar groups, have used them if it counts collectives.
    """
    similar = similar_groups(journal.groups, group)
    records = journal.records
    if (mark_messages(journal)[records.request] & np.isin(records.group, similar)).any():
        return False
    others = np.isin(positions.group, similar) & ~np.isin(positions.rank, absent)
    unseen = np.flatnonzero(others & (positions.last == UNKNOWN)).tolist()
    used_by_all = all(
        _progress(journal, int(positions.group[row]), int(positions.rank[row])).enqueued > 0 for row in unseen
    )
    return used_by_all and PAIR * len(absent) <= len(journal.groups[group].ranks)


def _shares_a_collective(by_rank: PartsByRank, awaited: int, rank: int) -> bool:
    """True if the awaited rank joined a collective that the rank joined after the lost one: any that it has kept."""
    own, other = by_rank.of(rank), by_rank.of(awaited)
    return bool(np.isin(by_rank.parts.collective[own], by_rank.parts.collective[other]).any())
