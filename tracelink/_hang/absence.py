"""Ranks without a complete dump: which of them others wait for, what these reached at least, and where they ran.

A process that was killed leaves no dump, or a damaged one. That proves nothing: a copy of the dumps may be incomplete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._hang.journal import Journal, synchronizing_requests
from tracelink._hang.model import Kind
from tracelink._hang.participation import Knowledge, Outcome, Parts, Positions, outcomes
from tracelink._hang.stalls import NO_CLUES, Clues
from tracelink._hang.verdicts.absence import NoDump
from tracelink._hang.verdicts.base import Verdict, facts_of_all
from tracelink._hang.verdicts.unrecorded import NothingRecorded
from tracelink._hang.waits import Wait
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink._model.text import collective_in_words
from tracelink._model.trace import ProcessGroup

NEVER = int(np.iinfo(np.int64).max)


class Absence(Struct, frozen=True, dict=True):
    """What is known of the ranks without a complete dump."""

    journal: Journal
    parts: Parts
    positions: Positions
    waits: Sequence[Wait]
    unreadable: Mapping[int, str]
    clues: Clues = NO_CLUES

    def is_incomplete(self, rank: int) -> bool:
        """Whether there is no dump of a rank that can be read to its end."""
        recording = self.journal.recordings.get(rank)
        return recording is None or recording.broken_off

    @cached_property
    def certain_waits(self) -> frozenset[int]:
        """Ranks that certainly wait, or gave up: some backends do not record whether a call failed or finished."""
        outcome = outcomes(self.journal)
        return frozenset(
            rank
            for wait in self.waits
            for rank, row in wait.rows.items()
            if wait.absent or outcome[row] < Outcome.RETIRED or self.clues.has_failed(rank, wait.sequence)
        )

    @cached_property
    def passed(self) -> dict[int, tuple[int, int]]:
        """For each group an entry of the last collective that all members joined, and the time of the last arrival.

        Others have finished it; where that is not recorded, they went on after all known ranks had arrived.
        """
        parts, records = self.parts, self.journal.records
        if not len(parts):
            return {}
        synchronizing = synchronizing_requests(self.journal)[records.request[parts.row]]
        arrived = _by_collective(np.maximum, parts, parts.created, NO_TIME)
        left = _by_collective(np.minimum, parts, self._next_times(), NEVER)
        finished = _by_collective(np.maximum, parts, (parts.outcome == Outcome.FINISHED).astype(np.int64), 0)
        went_on = (left != NEVER) & (left >= arrived) & (arrived != NO_TIME)
        joined = (finished == 1) | went_on
        certain = np.flatnonzero(synchronizing & joined[parts.collective] & ~self._unfinished(parts))
        groups, from_the_end = np.unique(parts.group[certain][::-1], return_index=True)
        last = certain[::-1][from_the_end]
        found = zip(parts.last[last].tolist(), arrived[parts.collective[last]].tolist(), strict=True)
        return dict(zip(groups.tolist(), found, strict=True))

    def _next_times(self) -> Int64s:
        """When the rank of each part made its next call, or NEVER."""
        following = np.minimum(self.parts.last + 1, len(self.journal) - 1)
        same_rank = (following > self.parts.last) & (self.journal.rank[following] == self.parts.rank)
        times: Int64s = np.where(same_rank, self.journal.records.created[following], NEVER)
        return times

    def _unfinished(self, parts: Parts) -> Bools:
        """Parts from the first collective of their group on in which ranks wait."""
        first = np.full(len(self.journal.groups), NEVER, np.int64)
        for wait in self.waits:
            if not wait.message:
                first[wait.group] = min(first[wait.group], wait.sequence)
        unfinished: Bools = parts.sequence >= first[parts.group]
        return unfinished


def _by_collective(reduce: np.ufunc, parts: Parts, values: Int64s, start: int) -> Int64s:
    """A value for each collective from those of its parts."""
    reduced = np.full(int(parts.collective[-1]) + 1, start, np.int64)
    reduce.at(reduced, parts.collective, values)
    return reduced


# Ranks that others wait for.


def absent_culprits(absence: Absence, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, where those of ranks without a complete dump are one: a host that is gone is one cause."""
    concerned = [
        verdict
        for verdict in verdicts
        if verdict.kind in (Kind.NEVER_JOINED, Kind.IN_FLIGHT)
        and verdict.culprits
        and not verdict.proven
        and all(map(absence.is_incomplete, verdict.culprits))
    ]
    others = [verdict for verdict in verdicts if verdict not in concerned]
    return [*others, _of_absent_ranks(absence, concerned)] if concerned else others


def _of_absent_ranks(absence: Absence, verdicts: Sequence[Verdict]) -> NoDump:
    first = verdicts[0]
    culprits = tuple(sorted({rank for verdict in verdicts for rank in verdict.culprits}))
    waiting = _waiting(absence, verdicts, culprits)
    wait = not absence.certain_waits.isdisjoint(waiting)
    return NoDump(
        kind=first.kind if wait else Kind.ABSENT,
        group=first.group,
        description=first.description,
        sequence=first.sequence,
        operation=first.operation,
        culprits=culprits,
        waiting=waiting if wait else (),
        ending=() if wait else waiting,
        each=all(len(verdict.culprits) == 1 for verdict in verdicts),
        **facts_of_all(verdicts, culprits),
        **_known_of(absence, culprits),
    )


def _known_of(absence: Absence, culprits: Sequence[int]) -> dict[str, Any]:
    """The host of these ranks, the last call that all of them joined, and other ranks without a complete dump."""
    journal, positions, last = absence.journal, absence.positions, _last_joined(absence, culprits)
    absent = positions.rank[np.isin(positions.group, _used_groups(absence)) & _is_absent(positions)]
    known = {*journal.recordings, *absence.unreadable}
    facts: dict[str, Any] = {
        "host": host_of(journal, [rank for rank in culprits if rank not in known]),
        "others": tuple(np.setdiff1d(absent, culprits).tolist()),
    }
    if last is not None:
        group = journal.groups[journal.records.group[last]]
        joined = collective_in_words(journal.operation(last), int(journal.records.sequence[last]), group)
        finished = bool(outcomes(journal)[last] == Outcome.FINISHED)
        facts |= {"joined": joined, "finished": finished}
    return facts


def _waiting(absence: Absence, verdicts: Sequence[Verdict], culprits: Sequence[int]) -> tuple[int, ...]:
    """The ranks that wait for the culprits, also behind other work of their devices."""
    awaited = frozenset(culprits)
    direct = {rank for wait in absence.waits if not awaited.isdisjoint(wait.awaited) for rank in wait.rows}
    return tuple(sorted(direct.union(*(verdict.waiting for verdict in verdicts)) - awaited))


def _last_joined(absence: Absence, ranks: Sequence[int]) -> int | None:
    """The entry of another rank in the last collective that all of these ranks certainly joined."""
    positions = absence.positions
    members = np.bincount(positions.group[np.isin(positions.rank, list(ranks))])
    shared = set(np.flatnonzero(members == len(ranks)).tolist()) & set(absence.passed)
    if not shared:
        return None
    return absence.passed[max(shared, key=lambda group: absence.passed[group][1])][0]


def _is_absent(positions: Positions) -> Bools:
    absent: Bools = positions.knowledge == Knowledge.ABSENT
    return absent


# Ranks that no rank waits for, but whose groups others used.


def absent_members(absence: Absence, named: Collection[int] = ()) -> list[Verdict]:
    """A verdict if members of groups that others used left no dump that can be read, or no dump has an entry.

    There is none if other verdicts have `named` all of them.
    """
    positions, journal = absence.positions, absence.journal
    used = np.isin(positions.group, _used_groups(absence)) | (len(journal) == 0)
    rows = np.flatnonzero(used & _is_absent(positions))
    if not len(rows):
        return [] if len(journal) else [NothingRecorded.of_call(ProcessGroup(""), None, "", proven=False)]
    culprits = np.unique(positions.rank[rows]).tolist()
    if set(culprits) <= set(named):
        return []
    row = _last_joined(absence, culprits)
    group = journal.groups[int(positions.group[rows[0]] if row is None else journal.records.group[row])]
    sequence = 0 if row is None else int(journal.records.sequence[row])
    operation = "" if row is None else journal.operation(row)
    shown = {} if row is None else {int(journal.rank[row]): row}
    known = _known_of(absence, culprits)
    return [NoDump.of_call(group, sequence, operation, culprits=culprits, rows=shown, **known)]


def _used_groups(absence: Absence) -> Int64s:
    """Groups in which a rank finished a call, or gave it up; dumps of active calls only count what is finished."""
    journal, positions = absence.journal, absence.positions
    over = (outcomes(journal) > Outcome.OPEN) & (journal.records.group != UNKNOWN)
    counted = positions.group[positions.completed > 0]
    return np.union1d(journal.records.group[over], counted).astype(np.int64)


# Hosts.


def host_of(journal: Journal, ranks: Sequence[int]) -> str:
    """The host of ranks without a dump, if the ranks before and after them ran on one host; else empty."""
    if not ranks:
        return ""
    present = journal.ranks
    before, after = present[present < min(ranks)], present[present > max(ranks)]
    between = set(ranks) >= set(range(min(ranks), max(ranks) + 1))
    if not len(before) or not len(after) or not between:
        return ""
    hosts = {journal.recordings[int(rank)].source.host for rank in (before[-1], after[0])}
    return hosts.pop() if len(hosts) == 1 else ""
