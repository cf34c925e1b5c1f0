"""Participation: each rank's part in each collective, how far it got in each of its groups, and since its dump."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._hang.facts.journal import Journal, find_last_unusable, mark_synchronizing
from tracelink._model.columns import (
    MILLISECOND,
    NO_TIME,
    UNKNOWN,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    Integers,
    Table,
    distinct,
    stable_order,
    starts_of,
)
from tracelink._model.records import State

COALESCED = "coalesced"
"""Suffix of the entry that closes a coalesced operation, and of operations that may consist of several."""
NEVER = int(np.iinfo(np.int64).max)
"""In place of an entry, or of its number: the rank did not get there."""
TRACKING_BACKENDS = re.compile(r"[nrmhx]ccl")
"""Backends whose recorder tracks the state of entries. Other backends do if any of their entries has progressed."""


# Parts in collectives.


class Outcome(IntEnum):
    """Final state of a part."""

    OPEN = 0
    """Not finished."""
    DROPPED = 1
    """It left the list of work unfinished: it timed out, or failed."""
    RETIRED = 2
    """It left the list of work; its backend reports no more, and retires work after a timeout as well."""
    FINISHED = 3


class Parts(Struct, frozen=True):
    """One row for each rank's part in a collective, sorted by group, sequence number and rank."""

    group: Int32s
    sequence: Int64s
    rank: Int32s
    row: Int64s
    """Its first entry in the journal."""
    last: Int64s
    """Its last entry: the one that closes a coalesced collective, and the only one with its final state."""
    request: Int64s
    """Equal where ranks requested the same; a part of several entries has a number from the number of requests on.

    UNKNOWN if the dump starts or ends within what may be a coalesced collective.
    """
    outcome: Int8s
    created: Int64s
    collective: Int64s
    """A number for each pair of group and sequence number, without gaps, in this order."""
    compositions: Sequence[tuple[int, ...]]
    """The requests of each part that consists of several entries."""

    def __len__(self) -> int:
        return len(self.group)


def parts_of(journal: Journal) -> Parts:
    """The parts in all collectives that have a group and a sequence number."""
    records = journal.records
    rows = np.flatnonzero(~records.point_to_point & (records.group != UNKNOWN) & (records.sequence >= 0))
    collective, _ = distinct(records.group[rows], records.sequence[rows]) if len(rows) else (rows, rows)
    order = stable_order(collective) if len(rows) else rows
    rows, collective = rows[order], collective[order]
    first = starts_of(collective * (int(journal.ranks.max(initial=0)) + 1) + journal.rank[rows])
    last = np.append(first[1:], len(rows)) - 1 if len(first) else first
    requests, compositions = _request_numbers(journal, rows, first, last)
    incomplete = np.isin(rows[first], _at_cuts(journal)) | np.isin(rows[last], _at_cuts(journal))
    requests[incomplete & _possibly_coalesced(journal, requests, compositions)] = UNKNOWN
    parts = Parts(
        records.group[rows[first]],
        records.sequence[rows[first]],
        journal.rank[rows[first]],
        rows[first],
        rows[last],
        requests,
        find_outcomes(journal)[rows[last]],
        records.created[rows[first]],
        collective[first],
        compositions,
    )
    parts.outcome[_timed_out(journal, parts)] = Outcome.DROPPED
    return parts


def _timed_out(journal: Journal, parts: Parts) -> Int64s:
    """The last parts of ranks in a group that only retired, and whose timeout had passed when another rank joined."""
    candidates = (parts.outcome == Outcome.RETIRED) & (parts.created != NO_TIME)
    if not candidates.any():
        return np.empty(0, np.int64)
    joined = np.maximum.reduceat(parts.created, starts_of(parts.collective))
    limit = journal.records.timeout_ms[parts.row].astype(np.int64) * MILLISECOND
    candidates &= (limit > 0) & (joined[parts.collective] - parts.created >= limit)
    if not candidates.any():
        return np.empty(0, np.int64)
    furthest = highest(parts.group, parts.sequence, len(journal.groups))
    rows = np.flatnonzero(candidates & (parts.sequence == furthest[parts.group]))
    clock_ahead = [_joins_late_by_clock(parts, int(row), int(limit[row])) for row in rows.tolist()]
    found: Int64s = rows[~np.array(clock_ahead, np.bool_)]
    return found


def _joins_late_by_clock(parts: Parts, part: int, limit: int) -> bool:
    """True if the last rank to join is as late at most collectives of the group, so that its clock is ahead."""
    of_group = parts.group == parts.group[part]
    members = np.flatnonzero(of_group & (parts.collective == parts.collective[part]))
    last = members[parts.created[members].argmax()]
    own, late = (
        np.flatnonzero(of_group & (parts.rank == parts.rank[row]) & (parts.created != NO_TIME))
        for row in (part, last)
    )
    _, first, second = np.intersect1d(parts.sequence[own], parts.sequence[late], return_indices=True)
    differences = parts.created[late][second] - parts.created[own][first]
    return len(differences) > 1 and bool(np.median(differences) >= limit)


def _request_numbers(
    journal: Journal, rows: Int64s, first: Int64s, last: Int64s
) -> tuple[Int64s, list[tuple[int, ...]]]:
    """The request of each part; parts of several entries are numbered by their sequence of requests."""
    requests = journal.records.request[rows].astype(np.int64)
    number = requests[first]
    several = np.flatnonzero(last > first)
    compositions: dict[tuple[int, ...], int] = {}
    for part in several.tolist():
        composition = tuple(requests[first[part] : last[part] + 1].tolist())
        number[part] = len(journal.requests) + compositions.setdefault(composition, len(compositions))
    return number, list(compositions)


def _at_cuts(journal: Journal) -> Int64s:
    """The first entries of ring buffers that wrapped, or keep active calls only, and the last of truncated dumps."""
    rows = [
        row
        for recording, first, end in zip(
            journal.recordings.values(),
            journal.bounds[:-1].tolist(),
            journal.bounds[1:].tolist(),
            strict=True,
        )
        for row, applies in (
            (first, recording.overwritten > 0 or recording.only_active),
            (end - 1, recording.broken_off),
        )
        if applies and end > first
    ]
    return np.array(rows, np.int64)


def _possibly_coalesced(journal: Journal, requests: Int64s, compositions: Sequence[tuple[int, ...]]) -> Bools:
    """Which of these requests other ranks issued within a coalesced operation, or are or close such an operation."""
    names = journal.recorded_operations()
    closing = [request for request, name in enumerate(names) if name.endswith(COALESCED)]
    coalesced = {*closing, *(request for composition in compositions for request in composition)}
    possible: Bools = (requests >= len(names)) | np.isin(requests, list(coalesced))
    return possible


def find_outcomes(journal: Journal) -> Int8s:
    """The outcome of each entry."""
    records = journal.records
    tracked = _tracked(journal)[records.request] if len(records) else np.zeros(0, np.bool_)
    early = np.array([recording.retires_early for recording in journal.recordings.values()], np.bool_)
    tracked = tracked & ~np.repeat(early, np.diff(journal.bounds))
    retired = np.where(tracked, np.int8(Outcome.DROPPED), np.int8(Outcome.RETIRED))
    outcome = np.where(records.retired == 1, retired, np.int8(Outcome.OPEN))
    found: Int8s = np.where(records.state == State.COMPLETED, np.int8(Outcome.FINISHED), outcome)
    return found


def _tracked(journal: Journal) -> Any:
    """True where its backend tracks states, so that they show what has finished."""
    backends = [name.partition(":")[0] for name in journal.recorded_operations()]
    progressed = np.bincount(
        journal.records.request, weights=journal.records.state > State.SCHEDULED, minlength=len(backends)
    )
    tracked = {
        backend
        for backend, count in zip(backends, progressed.tolist(), strict=True)
        if count or TRACKING_BACKENDS.match(backend)
    }
    return np.array([backend in tracked for backend in backends], np.bool_)


def highest(groups: Integers, numbers: Integers, count: int) -> Int64s:
    """The highest number of each of `count` groups; UNKNOWN for a group without one."""
    found = np.full(count, UNKNOWN, np.int64)
    np.maximum.at(found, groups, numbers)
    return found


def lowest(groups: Integers, numbers: Integers, count: int) -> Int64s:
    """The lowest number of each of `count` groups; NEVER for a group without one."""
    found = np.full(count, NEVER, np.int64)
    np.minimum.at(found, groups, numbers)
    return found


class PartsByRank(Struct, frozen=True, dict=True):
    """Parts in collectives, indexed by rank."""

    parts: Parts

    def of(self, rank: int) -> Int64s:
        """The parts of a rank, sorted by group and sequence number."""
        order, first = self._index
        if not 0 <= rank < len(first) - 1:
            return order[:0]
        return order[first[rank] : first[rank + 1]]

    @cached_property
    def _index(self) -> tuple[Int64s, Int64s]:
        order = stable_order(self.parts.rank)
        count = np.bincount(self.parts.rank) if len(self.parts) else np.zeros(0, np.int64)
        return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])


# How far each rank got in each of its groups.


class Knowledge(IntEnum):
    """How reliable the last known collective of a rank in a group is."""

    ABSENT = 0
    """The rank has no dump."""
    UNTIL = 1
    """It joined at least this one: its dump is truncated, overwritten, older than others, or has unusable entries."""
    EXACT = 2
    """It joined this one and none after it."""


class Positions(Table, frozen=True):
    """How far each member of each group got, sorted by group and rank. UNKNOWN means no collective."""

    group: Int32s
    rank: Int32s
    last: Int64s
    """The last collective that it is known to have joined."""
    own: Int64s
    """The last one according to its own dump."""
    completed: Int64s
    """The last one that it had completed before all calls that its dump contains, if that contains only active ones."""
    part: Int64s
    """Its last part, or UNKNOWN."""
    knowledge: Int8s

    def of_group(self, group: int) -> slice:
        """The rows of a group."""
        begin, end = np.searchsorted(self.group, [group, group + 1]).tolist()
        return slice(begin, end)

    def completed_by_any(self, groups: int) -> Int64s:
        """For each group the last collective that a member completed, as dumps of active calls show it."""
        return highest(self.group, self.completed, groups)


def positions_of(journal: Journal, parts: Parts, broken_off: Collection[int]) -> Positions:
    """The positions of all members of all groups; `broken_off` are ranks whose dumps are truncated."""
    group, rank = _members(journal, parts)
    part = _last_parts(journal, parts, group, rank)
    last = np.where(part == UNKNOWN, UNKNOWN, parts.sequence[part] if len(parts) else UNKNOWN)
    completed, unknown = _completed_before(journal, parts, group, rank)
    last = np.maximum(last, completed)
    overwritten = unknown | ((part == UNKNOWN) & _overwritten(journal, group, rank))
    knowledge = np.full(len(group), Knowledge.EXACT, np.int8)
    unusable = _possibly_later(journal, parts, part, rank)
    knowledge[np.isin(rank, list(broken_off)) | overwritten | unusable] = Knowledge.UNTIL
    knowledge[~np.isin(rank, journal.ranks)] = Knowledge.ABSENT
    proven = _proven_by_others(journal, parts)[group] if len(group) else last
    earlier = proven > last
    knowledge[earlier & (knowledge == Knowledge.EXACT)] = Knowledge.UNTIL
    return Positions(group, rank, np.maximum(last, proven), last, completed, part, knowledge)


def _members(journal: Journal, parts: Parts) -> tuple[Int32s, Int32s]:
    """The members of all groups: as described, and the ranks that took part."""
    sizes = [len(group.ranks) for group in journal.groups]
    group = np.concatenate([np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), parts.group])
    rank = np.concatenate([*(np.array(group.ranks, np.int32) for group in journal.groups), parts.rank])
    if not len(group):
        return group, rank
    _, first = distinct(group, rank)
    return group[first], rank[first]


def _last_parts(journal: Journal, parts: Parts, group: Int32s, rank: Int32s) -> Int64s:
    """The part with the highest sequence number of each member, or UNKNOWN."""
    span = max(int(rank.max(initial=0)), int(parts.rank.max(initial=0))) + 1
    keys = group.astype(np.int64) * span + rank
    own = np.searchsorted(keys, parts.group.astype(np.int64) * span + parts.rank)
    last = np.full(len(group), UNKNOWN, np.int64)
    last[own] = np.arange(len(parts))
    return last


def _completed_before(journal: Journal, parts: Parts, group: Int32s, rank: Int32s) -> tuple[Int64s, Bools]:
    """The last collective that a rank completed before its active calls, and where that is unknown.

    A dump of active calls contains all that are not completed: what comes before the first one of a group is. Without
    one the status of the group counts them; it counts messages, too: that of a group with messages shows nothing.
    """
    completed = np.full(len(group), UNKNOWN, np.int64)
    unknown = np.isin(rank, [number for number, found in journal.recordings.items() if found.only_active])
    if not unknown.any():
        return completed, unknown
    of_member = zip(parts.group[::-1].tolist(), parts.rank[::-1].tolist(), strict=True)
    first = dict(zip(of_member, parts.sequence[::-1].tolist(), strict=True))
    messages = set(journal.records.group[journal.records.point_to_point].tolist())
    for index in np.flatnonzero(unknown).tolist():
        number, member = int(group[index]), int(rank[index])
        progress = journal.recordings[member].progress.get(journal.groups[number].name)
        if (number, member) in first:
            completed[index] = first[number, member] - 1
        elif progress is None or number in messages:
            continue
        else:
            completed[index] = progress.completed
        unknown[index] = False
    return completed, unknown


def _possibly_later(journal: Journal, parts: Parts, part: Int64s, rank: Int32s) -> Bools:
    """True where an entry after the last known one cannot be used: it may be of a later collective of the group."""
    last_unusable = find_last_unusable(journal)
    later = np.isin(rank, list(last_unusable))
    for index in np.flatnonzero(later).tolist():
        known = part[index] != UNKNOWN
        place = int(journal.records.place[parts.last[part[index]]]) if known else UNKNOWN
        later[index] = place < last_unusable[int(rank[index])]
    return later


def _overwritten(journal: Journal, group: Int32s, rank: Int32s) -> Bools:
    """Whether a rank may have used a group without a trace: its buffer wrapped, and its status does not exclude it."""
    found = np.isin(
        rank, [number for number, recording in journal.recordings.items() if recording.overwritten]
    )
    for index in np.flatnonzero(found).tolist():
        progress = journal.recordings[int(rank[index])].progress.get(journal.groups[group[index]].name)
        past = int(group[index]) in journal.later_lives
        found[index] = past or progress is None or progress.enqueued >= 0
    return found


def _proven_by_others(journal: Journal, parts: Parts) -> Int64s:
    """For each group the last synchronizing collective that a rank has finished: all members have joined it."""
    synchronizing = mark_synchronizing(journal)
    request = journal.records.request[parts.row]
    finished = (parts.outcome == Outcome.FINISHED) & synchronizing[request]
    return highest(parts.group[finished], parts.sequence[finished], len(journal.groups))


# What ranks have passed since their dumps were taken, as other dumps show.


class DumpTimes(Struct, frozen=True):
    """What is known about when dumps were taken."""

    overtaken: Mapping[int, int]
    """By rank the last entry that is unfinished in its own dump, and finished in another one."""
    outdated: frozenset[int]
    """Ranks whose dumps were taken before something that other dumps contain."""
    lacking: frozenset[int]
    """Those of them that joined a collective since that is not in their dumps, so that they passed all that is."""
    kept_since: Mapping[int, int]
    """Creation time of the first recorded entry of ranks whose ring buffer wrapped."""

    def is_over(self, rank: int, row: int) -> bool:
        """True if a rank has passed an entry since its dump was taken."""
        return rank in self.lacking or row <= self.overtaken.get(rank, UNKNOWN)

    def may_have_lost(self, rank: int, time: int) -> bool:
        """True if a rank may have lost what it requested at about this time."""
        return rank in self.kept_since and (time == NO_TIME or time <= self.kept_since[rank])


def dump_times_of(journal: Journal, parts: Parts, positions: Positions) -> DumpTimes:
    """From collectives that no rank finishes before all have joined."""
    overtaken, lacking = (
        _overtaken_entries(journal, parts, positions),
        _lacking_ranks(journal, parts, positions),
    )
    return DumpTimes(overtaken, lacking.union(overtaken), lacking, _kept_since(journal))


def _overtaken_entries(journal: Journal, parts: Parts, positions: Positions) -> dict[int, int]:
    synchronizing = mark_synchronizing(journal)[journal.records.request[parts.row]]
    finished = (parts.outcome == Outcome.FINISHED) & synchronizing
    unfinished = np.flatnonzero((parts.outcome < Outcome.RETIRED) & synchronizing)
    left_out = (
        parts.sequence[unfinished] <= positions.completed_by_any(len(journal.groups))[parts.group[unfinished]]
    )
    overtaken = unfinished[np.isin(parts.collective[unfinished], parts.collective[finished]) | left_out]
    last_row: dict[int, int] = {}
    for rank, row in zip(parts.rank[overtaken].tolist(), parts.row[overtaken].tolist(), strict=True):
        last_row[rank] = max(row, last_row.get(rank, UNKNOWN))
    return last_row


def _lacking_ranks(journal: Journal, parts: Parts, positions: Positions) -> frozenset[int]:
    """Ranks whose dumps do not contain a collective that others have finished."""
    if not len(parts):
        return frozenset()
    lost = (positions.part == UNKNOWN) & np.isin(positions.rank, find_wrapped_ranks(journal))
    lacking = (positions.last > positions.own) & ~lost & np.isin(positions.rank, journal.ranks)
    return frozenset(np.unique(positions.rank[lacking]).tolist())


def _kept_since(journal: Journal) -> dict[int, int]:
    first_rows: Int64s = journal.bounds[np.searchsorted(journal.ranks, find_wrapped_ranks(journal))]
    times = {
        rank: int(journal.records.created[row])
        for rank, row in zip(find_wrapped_ranks(journal), first_rows.tolist(), strict=True)
        if row < len(journal) and journal.rank[row] == rank
    }
    return {rank: time for rank, time in times.items() if time != NO_TIME}


def find_wrapped_ranks(journal: Journal) -> list[int]:
    """Ranks whose ring buffer has overwritten entries."""
    return [rank for rank, recording in journal.recordings.items() if recording.overwritten]
