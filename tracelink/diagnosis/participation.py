"""Who took part in what, how far each got."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from tracelink.diagnosis.journal import Journal
from tracelink.model.columns import UNKNOWN, Bools, Columns, Int32s, Int64s, distinct, stable_order, starts_of
from tracelink.model.operations import SYNCHRONIZING, operation_of
from tracelink.model.records import Int8s, State

# Each rank's part in each collective, out of the entries that tell of it.


COALESCED = "coalesced"
"""Ends the names of what closes a group of operations, and of operations that may consist of several."""


FOLLOWED = re.compile(r"[nrmhx]ccl")
"""Backends whose recorder follows what becomes of each entry; of others that shows where any entry has moved."""


class Outcome(IntEnum):
    """What became of a part."""

    OPEN = 0
    """It is not finished."""
    DROPPED = 1
    """It left the list of work without having finished: it timed out, or failed."""
    RETIRED = 2
    """It left the list of work; its backend says no more, and that is so after a timeout too."""
    FINISHED = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """One row for each rank's part in a collective, in the order of group, number and rank."""

    group: Int32s
    sequence: Int64s
    rank: Int32s
    row: Int64s
    """Its first entry in the journal."""
    last: Int64s
    """Its last one: that which closes a coalesced collective, and which alone says what became of it."""
    request: Int64s
    """Equal where ranks asked for the same; not below the number of requests where several entries make a part.

    UNKNOWN where the dump begins or ends with what others have as one of several.
    """
    outcome: Int8s
    created: Int64s
    round: Int64s
    """Equal where group and number are; a number without gaps, in the same order."""
    wholes: Sequence[tuple[int, ...]]
    """The requests that make up each part that consists of several entries."""

    def __len__(self) -> int:
        return len(self.group)


def parts_of(journal: Journal) -> Parts:
    """The parts in collectives that have a number in a group."""
    records = journal.records
    rows = np.flatnonzero(~records.point_to_point & (records.group != UNKNOWN) & (records.sequence >= 0))
    number, _ = distinct(records.group[rows], records.sequence[rows]) if len(rows) else (rows, rows)
    order = stable_order(number) if len(rows) else rows
    rows, number = rows[order], number[order]
    first = starts_of(number * (int(journal.ranks.max(initial=0)) + 1) + journal.rank[rows])
    last = np.append(first[1:], len(rows)) - 1 if len(first) else first
    requests, wholes = _requests(journal, rows, first, last)
    cut = np.isin(rows[first], _cut(journal)) | np.isin(rows[last], _cut(journal))
    requests[cut & _may_be_more(journal, requests, wholes)] = UNKNOWN
    return Parts(
        records.group[rows[first]],
        records.sequence[rows[first]],
        journal.rank[rows[first]],
        rows[first],
        rows[last],
        requests,
        outcomes(journal)[rows[last]],
        records.created[rows[first]],
        number[first],
        wholes,
    )


def _may_be_more(journal: Journal, requests: Int64s, wholes: Sequence[tuple[int, ...]]) -> Bools:
    """Which of these others have as one of several, or are several themselves, or close several."""
    names = [journal.texts[code] for code in journal.requests.operation.tolist()]
    closing = [request for request, name in enumerate(names) if name.endswith(COALESCED)]
    several = {*closing, *(request for whole in wholes for request in whole)}
    more: Bools = (requests >= len(names)) | np.isin(requests, list(several))
    return more


def _cut(journal: Journal) -> Int64s:
    """The first entries of ranks that forgot what was before, and the last of those whose dumps break off."""
    cut = [
        row
        for one, begin, end in zip(
            journal.recordings.values(),
            journal.bounds[:-1].tolist(),
            journal.bounds[1:].tolist(),
            strict=True,
        )
        for row, applies in ((begin, one.overwritten > 0), (end - 1, one.broken_off))
        if applies and end > begin
    ]
    return np.array(cut, np.int64)


def _requests(
    journal: Journal, rows: Int64s, first: Int64s, last: Int64s
) -> tuple[Int64s, list[tuple[int, ...]]]:
    """The request of each part; one number for all requests of a part that consists of several."""
    requests = journal.records.request[rows].astype(np.int64)
    single = requests[first]
    several = np.flatnonzero(last > first)
    wholes: dict[tuple[int, ...], int] = {}
    for part in several.tolist():
        whole = tuple(requests[first[part] : last[part] + 1].tolist())
        single[part] = len(journal.requests) + wholes.setdefault(whole, len(wholes))
    return single, list(wholes)


def outcomes(journal: Journal) -> Int8s:
    """What became of each entry."""
    records = journal.records
    follows = _follows(journal)[records.request] if len(records) else np.zeros(0, np.bool_)
    retired = np.where(follows, np.int8(Outcome.DROPPED), np.int8(Outcome.RETIRED))
    outcome = np.where(records.retired == 1, retired, np.int8(Outcome.OPEN))
    found: Int8s = np.where(records.state == State.COMPLETED, np.int8(Outcome.FINISHED), outcome)
    return found


def _follows(journal: Journal) -> Any:
    """For each request whether its backend's states ever move, and so tell what finished."""
    texts = [journal.texts[code].partition(":")[0] for code in journal.requests.operation.tolist()]
    moved = np.bincount(
        journal.records.request, weights=journal.records.state > State.SCHEDULED, minlength=len(texts)
    )
    moving = {
        text for text, count in zip(texts, moved.tolist(), strict=True) if count or FOLLOWED.match(text)
    }
    return np.array([text in moving for text in texts], np.bool_)


# How far each rank is in each of its groups, and how much of that its dump can tell.


class Knowledge(IntEnum):
    """What is known of a rank in a group after the last collective that it is known to have joined."""

    ABSENT = 0
    """There is no dump of it."""
    UNTIL = 1
    """It joined at least so many: its dump breaks off, was taken earlier than others, or was overwritten."""
    EXACT = 2
    """It joined these and no more."""


@dataclass(frozen=True, slots=True)
class Whereabouts(Columns):
    """One row for each member of each group, by group and rank. Numbers are UNKNOWN where there are none."""

    group: Int32s
    rank: Int32s
    last: Int64s
    """The last collective that it is known to have joined."""
    part: Int64s
    """Its last part."""
    knowledge: Int8s

    def __len__(self) -> int:
        return len(self.group)

    def of_group(self, group: int) -> slice:
        """The rows of a group."""
        begin, end = np.searchsorted(self.group, [group, group + 1]).tolist()
        return slice(begin, end)


def whereabouts_of(journal: Journal, parts: Parts, broken_off: Collection[int]) -> Whereabouts:
    """Where all members of all groups are."""
    group, rank = _members(journal, parts)
    part = _last_parts(journal, parts, group, rank)
    last = np.where(part == UNKNOWN, UNKNOWN, parts.sequence[part] if len(parts) else UNKNOWN)
    forgotten = (part == UNKNOWN) & _overwritten(journal, group, rank)
    knowledge = np.full(len(group), Knowledge.EXACT, np.int8)
    knowledge[np.isin(rank, list(broken_off)) | forgotten] = Knowledge.UNTIL
    knowledge[~np.isin(rank, journal.ranks)] = Knowledge.ABSENT
    passed = _passed(journal, parts)[group] if len(group) else last
    earlier = passed > last
    knowledge[earlier & (knowledge == Knowledge.EXACT)] = Knowledge.UNTIL
    return Whereabouts(group, rank, np.maximum(last, passed), part, knowledge)


def _members(journal: Journal, parts: Parts) -> tuple[Int32s, Int32s]:
    """The members of all groups: as described, and those that took part."""
    described = [(row, rank) for row, group in enumerate(journal.groups) for rank in group.ranks]
    group = np.concatenate([np.array([row for row, _ in described], np.int32), parts.group])
    rank = np.concatenate([np.array([rank for _, rank in described], np.int32), parts.rank])
    if not len(group):
        return group, rank
    _, first = distinct(group, rank)
    return group[first], rank[first]


def _last_parts(journal: Journal, parts: Parts, group: Int32s, rank: Int32s) -> Int64s:
    """The part with the highest number of each member, or UNKNOWN."""
    span = max(int(rank.max(initial=0)), int(parts.rank.max(initial=0))) + 1
    keys = group.astype(np.int64) * span + rank
    own = np.searchsorted(keys, parts.group.astype(np.int64) * span + parts.rank)
    last = np.full(len(group), UNKNOWN, np.int64)
    last[own] = np.arange(len(parts))
    return last


def _overwritten(journal: Journal, group: Int32s, rank: Int32s) -> Bools:
    """Whether a rank may have used a group and forgotten it: it forgot something, and does not say that it has not."""
    found = np.isin(rank, [number for number, one in journal.recordings.items() if one.overwritten])
    for place in np.flatnonzero(found).tolist():
        progress = journal.recordings[int(rank[place])].progress.get(journal.groups[group[place]].name)
        found[place] = progress is None or progress.enqueued >= 0
    return found


def _passed(journal: Journal, parts: Parts) -> Int64s:
    """For each group the last collective that somebody has left, which nobody can before all have joined."""
    synchronizing = _synchronizing(journal)
    request = journal.records.request[parts.row]
    left = (parts.outcome == Outcome.FINISHED) & synchronizing[request]
    passed = np.full(len(journal.groups), UNKNOWN, np.int64)
    np.maximum.at(passed, parts.group[left], parts.sequence[left])
    return passed


def _synchronizing(journal: Journal) -> Bools:
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    return np.array([name in SYNCHRONIZING for name in names], np.bool_)


# What each rank joined, rank by rank.


@dataclass(frozen=True)
class Attended:
    """The parts by rank."""

    parts: Parts

    def by(self, rank: int) -> Int64s:
        """The parts of a rank, in the order of group and number."""
        order, begin = self._by_rank
        if not 0 <= rank < len(begin) - 1:
            return order[:0]
        return order[begin[rank] : begin[rank + 1]]

    @cached_property
    def _by_rank(self) -> tuple[Int64s, Int64s]:
        order = stable_order(self.parts.rank)
        count = np.bincount(self.parts.rank) if len(self.parts) else np.zeros(0, np.int64)
        return order, np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
