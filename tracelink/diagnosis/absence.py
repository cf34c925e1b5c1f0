"""Ranks without a complete dump: which of them others wait for, what these reached at least, and where they ran.

A process that was killed leaves no dump, or a damaged one. That proves nothing: a copy of the dumps may be incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.journal import Journal, synchronizing_requests
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.participation import Knowledge, Outcome, Parts, Positions, outcomes
from tracelink.diagnosis.waits import Wait
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.text import (
    collective_in_words,
    count_of_ranks,
    duration,
    group_in_words,
    lowered,
    ranks_in_words,
)

NEVER = int(np.iinfo(np.int64).max)


class Damage(StrEnum):
    """Why the dump of a rank is not complete, as its subject continues."""

    MISSING = "left no dump"
    UNREADABLE = "left a dump that cannot be read"
    TRUNCATED = "left a truncated dump"


class Absence(Struct, frozen=True, dict=True):
    """What is known of the ranks without a complete dump."""

    journal: Journal
    parts: Parts
    positions: Positions
    waits: Sequence[Wait]
    unreadable: Mapping[int, str]

    def damage(self, rank: int) -> Damage | None:
        """Why the dump of a rank is not complete; None if it is."""
        if rank in self.unreadable:
            return Damage.UNREADABLE
        recording = self.journal.recordings.get(rank)
        if recording is None:
            return Damage.MISSING
        return Damage.TRUNCATED if recording.broken_off else None

    @cached_property
    def certain_waits(self) -> frozenset[int]:
        """Ranks that certainly wait, or gave up: some backends do not record whether a call failed or finished."""
        outcome = outcomes(self.journal)
        return frozenset(
            rank
            for wait in self.waits
            for rank, row in wait.rows.items()
            if wait.absent or outcome[row] < Outcome.RETIRED
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


def absent_culprits(absence: Absence, problems: Sequence[Problem]) -> list[Problem]:
    """The problems, where those of ranks without a complete dump are one: a host that is gone is one cause."""
    concerned = [problem for problem in problems if _is_of_absent_ranks(absence, problem)]
    others = [problem for problem in problems if problem not in concerned]
    return [*others, _of_absent_ranks(absence, concerned)] if concerned else others


def _is_of_absent_ranks(absence: Absence, problem: Problem) -> bool:
    return (
        problem.kind is Kind.NEVER_JOINED
        and not problem.proven
        and all(absence.damage(rank) for rank in problem.culprits)
    )


def _of_absent_ranks(absence: Absence, problems: Sequence[Problem]) -> Problem:
    first = problems[0]
    culprits = tuple(sorted({rank for problem in problems for rank in problem.culprits}))
    waiting = tuple(sorted(_waiting(absence, problems, culprits)))
    what = _call(absence.journal, first)
    waited_ns = max((problem.waited_ns or 0 for problem in problems), default=0) or None
    if absence.certain_waits.isdisjoint(waiting):
        kind, ends = Kind.ABSENT, f". {_ends_in(waiting, what)}"
    else:
        pronoun = "it" if len(culprits) == 1 else "them"
        awaited = (
            pronoun if all(len(problem.culprits) == 1 for problem in problems) else "at least one of them"
        )
        since = f" (at least {duration(waited_ns)})" if waited_ns else ""
        kind = Kind.NEVER_JOINED
        ends = f", and {count_of_ranks(waiting, 'wait')} for {awaited}{since}: first in {what}."
    return replace(
        first,
        kind=kind,
        culprits=culprits,
        waiting=waiting if kind is Kind.NEVER_JOINED else (),
        message=f"{_left(absence, culprits)}{ends}{_reached(absence, culprits)}{_also_missing(absence, culprits)}",
        count=sum(problem.count for problem in problems),
        waited_ns=waited_ns,
        rows={
            rank: row
            for problem in problems
            for rank, row in problem.rows.items()
            if problem is first or rank in culprits
        },
    )


def _waiting(absence: Absence, problems: Sequence[Problem], culprits: Sequence[int]) -> set[int]:
    """The ranks that wait for the culprits, also behind other work of their devices."""
    awaited = frozenset(culprits)
    direct = {rank for wait in absence.waits if not awaited.isdisjoint(wait.awaited) for rank in wait.rows}
    return direct.union(*(problem.waiting for problem in problems)) - set(culprits)


def _ends_in(ranks: Sequence[int], what: str) -> str:
    end = "ends" if len(ranks) == 1 else "end"
    return f"{ranks_in_words(ranks)} {end} in {what}; the dumps do not show whether it finished or failed."


def _call(journal: Journal, problem: Problem) -> str:
    group = next(group for group in journal.groups if group.name == problem.group)
    return collective_in_words(problem.operation, problem.sequence or 0, group)


def _left(absence: Absence, ranks: Sequence[int]) -> str:
    """`Ranks 24-31 left no dump`."""
    clauses = []
    damage_of = {rank: absence.damage(rank) for rank in ranks}
    for damage in Damage:
        damaged = [rank for rank in ranks if damage_of[rank] is damage]
        if damaged:
            host = host_of(absence.journal, damaged)
            clauses.append(f"{ranks_in_words(damaged)}{f' (host {host})' if host else ''} {damage}")
    return " and ".join([*clauses[:1], *map(lowered, clauses[1:])])


def _reached(absence: Absence, ranks: Sequence[int]) -> str:
    """The last collective that all of these ranks joined, from what others did after it."""
    found = _last_joined(absence, ranks)
    if found is None:
        return ""
    who = "It" if len(ranks) == 1 else "All of them"
    finished = outcomes(absence.journal)[found] == Outcome.FINISHED
    others = "which others finished" if finished else "after which others went on"
    return f" {who} had joined {_call_of(absence.journal, found)}, {others}."


def _also_missing(absence: Absence, ranks: Sequence[int]) -> str:
    """Other ranks without a dump: the same may have happened to them."""
    positions = absence.positions
    used = np.isin(positions.group, _used_groups(absence.journal)) & (positions.knowledge == Knowledge.ABSENT)
    others = np.setdiff1d(positions.rank[used], list(ranks)).tolist()
    return (
        f" {_left(absence, others)}, too; no rank is known to wait for {'it' if len(others) == 1 else 'them'}."
        if others
        else ""
    )


def _last_joined(absence: Absence, ranks: Sequence[int]) -> int | None:
    """The entry of another rank in the last collective that all of these ranks certainly joined."""
    positions = absence.positions
    members = np.bincount(positions.group[np.isin(positions.rank, list(ranks))])
    shared = set(np.flatnonzero(members == len(ranks)).tolist()) & set(absence.passed)
    if not shared:
        return None
    return absence.passed[max(shared, key=lambda group: absence.passed[group][1])][0]


def _call_of(journal: Journal, row: int) -> str:
    group = journal.groups[journal.records.group[row]]
    return collective_in_words(journal.operation(row), int(journal.records.sequence[row]), group)


# Ranks that no rank waits for, but whose groups others used.


def absent_members(absence: Absence) -> list[Problem]:
    """A problem if members of groups that others used left no dump that can be read, or no dump has an entry."""
    positions, journal = absence.positions, absence.journal
    used = np.isin(positions.group, _used_groups(journal)) | (len(journal) == 0)
    rows = np.flatnonzero(used & (positions.knowledge == Knowledge.ABSENT))
    if not len(rows):
        return [] if len(journal) else [_nothing_recorded()]
    culprits = tuple(np.unique(positions.rank[rows]).tolist())
    row = _last_joined(absence, culprits)
    group = int(positions.group[rows[0]] if row is None else journal.records.group[row])
    return [
        Problem.at(
            Kind.ABSENT,
            journal.groups[group],
            0 if row is None else int(journal.records.sequence[row]),
            "" if row is None else journal.operation(row),
            culprits=culprits,
            waiting=(),
            message=f"{_left(absence, culprits)}. {_used(journal, group, row, culprits)}",
            proven=False,
            rows={} if row is None else {int(journal.rank[row]): row},
        )
    ]


def _nothing_recorded() -> Problem:
    return Problem(
        Kind.IN_FLIGHT,
        group="",
        description="",
        sequence=None,
        operation="",
        culprits=(),
        waiting=(),
        message="No dump has an entry. The dumps do not show whether the job runs or hangs.",
        advice="Check that the recorder is on (TORCH_FR_BUFFER_SIZE is not 0). If it is, no rank has called a "
        "collective: look at what the processes do (py-spy dump --pid PID).",
        proven=False,
    )


def _used_groups(journal: Journal) -> Int64s:
    """Groups in which a rank finished a call, or gave it up."""
    records = journal.records
    over = (outcomes(journal) > Outcome.OPEN) & (records.group != UNKNOWN)
    return np.unique(records.group[over]).astype(np.int64)


def _used(journal: Journal, group: int, row: int | None, ranks: Sequence[int]) -> str:
    pronoun, was = ("it", "it was") if len(ranks) == 1 else ("them", "they were")
    if not len(journal):
        return "The other dumps have no entries: nothing shows whether ranks wait."
    if row is None:
        described = group_in_words(journal.groups[group].name, journal.groups[group].description)
        return f"Other ranks used {described} with {pronoun}; no rank is known to wait for {pronoun}."
    return (
        f"Others finished {_call_of(journal, row)}, so {was} there; no rank is known to wait for {pronoun}."
    )


# Hosts.


def host_of(journal: Journal, ranks: Sequence[int]) -> str:
    """The host of ranks without a dump, if the ranks before and after them ran on one host; else empty."""
    present = journal.ranks
    before, after = present[present < min(ranks)], present[present > max(ranks)]
    between = set(ranks) >= set(range(min(ranks), max(ranks) + 1))
    if not len(before) or not len(after) or not between:
        return ""
    hosts = {journal.recordings[int(rank)].source.host for rank in (before[-1], after[0])}
    return hosts.pop() if len(hosts) == 1 else ""
