"""The collectives and messages around a problem: which of some ranks are in which, and when they came to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Diagnosis
from tracelink.events import NO_TIME, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct, ranges
from tracelink.records import State

MOST_RANKS = 24
BEFORE = 20
AFTER = 9
"""Columns around the problem."""


@dataclass(frozen=True, slots=True)
class Column:
    """One collective, or one message."""

    group: int
    sequence: int
    source: int
    target: int
    """Ranks of the job between which a message goes, or UNKNOWN."""
    began: int
    """When the first of the ranks that are shown came to it, or NO_TIME."""
    operation: str
    """What most of them do there."""
    members: frozenset[int]
    rows: dict[int, int]
    """The entry of the journal by rank."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Some ranks and some columns in the order of time."""

    ranks: Sequence[int]
    columns: Sequence[Column]
    earlier: int
    later: int
    """How many columns there are before and behind."""


def recent_of(diagnosis: Diagnosis, journal: Journal) -> Recent:
    """What happened around the worst problem, or at the end."""
    ranks = _shown(diagnosis, journal)
    rows = _rows(journal, ranks)
    if not len(rows):
        return Recent(ranks, (), 0, 0)
    number, first = distinct(*_keys(journal, rows))
    created = journal.records.created[rows]
    began = np.full(len(first), np.iinfo(np.int64).max)
    timed = created != NO_TIME
    np.minimum.at(began, number[timed], created[timed])
    order = np.argsort(began, kind="stable")
    here = _anchor(diagnosis, journal, rows[first][order])
    begin = max(0, min(here - BEFORE, len(order) - BEFORE - AFTER))
    chosen = order[begin : begin + BEFORE + AFTER]
    columns = [_column(journal, rows[number == one]) for one in chosen.tolist()]
    return Recent(ranks, columns, begin, max(0, len(order) - begin - len(chosen)))


def _shown(diagnosis: Diagnosis, journal: Journal) -> list[int]:
    """Culprits first, then who shows a problem best, some of those who wait, and some of the rest."""
    present = set(journal.ranks.tolist())
    culprits = [rank for one in diagnosis.problems for rank in one.culprits]
    best = [rank for one in diagnosis.problems for rank in one.rows]
    waiting = [rank for one in diagnosis.problems for rank in _spread(one.waiting)]
    wanted = dict.fromkeys([*culprits, *best, *waiting, *_spread(journal.ranks.tolist())])
    return sorted([rank for rank in wanted if rank in present][:MOST_RANKS])


def _spread(ranks: Sequence[int]) -> Sequence[int]:
    """At most as many as are shown, evenly out of all."""
    return ranks[:: -(-len(ranks) // MOST_RANKS) or 1]


def _rows(journal: Journal, ranks: Sequence[int]) -> Int64s:
    """The entries of these ranks that say of which collective they are."""
    places = np.searchsorted(journal.ranks, ranks)
    rows = ranges(journal.bounds[places], journal.bounds[places + 1] - journal.bounds[places])
    records = journal.records
    return rows[(records.sequence[rows] != UNKNOWN) & (records.group[rows] != UNKNOWN)]


def _keys(journal: Journal, rows: Int64s) -> list[Int64s]:
    """What is equal where entries belong to the same collective or message."""
    records, requests = journal.records, journal.requests
    request, message = records.request[rows], records.point_to_point[rows]
    return [
        records.group[rows].astype(np.int64),
        records.sequence[rows],
        message.astype(np.int64),
        *(np.where(message, side[request], UNKNOWN) for side in (requests.source, requests.target)),
    ]


def _anchor(diagnosis: Diagnosis, journal: Journal, rows: Int64s) -> int:
    """The column in which the worst problem shows, or the last."""
    for problem in diagnosis.problems[:1]:
        named = [row for row, group in enumerate(journal.groups) if group.name == problem.group]
        same = np.isin(journal.records.group[rows], named)
        same &= journal.records.sequence[rows] == (UNKNOWN if problem.sequence is None else problem.sequence)
        if same.any():
            return int(np.flatnonzero(same)[0])
    return len(rows)


def _column(journal: Journal, rows: Int64s) -> Column:
    records, requests = journal.records, journal.requests
    row = int(rows[0])
    group = journal.groups[records.group[row]]
    request = records.request[row]
    ends = (requests.source[request], requests.target[request]) if records.point_to_point[row] else ()
    pair = [group.ranks[end] if 0 <= end < len(group.ranks) else UNKNOWN for end in map(int, ends)]
    source, target = pair or (UNKNOWN, UNKNOWN)
    known = [rank for rank in (source, target) if rank != UNKNOWN]
    created = records.created[rows]
    operations, votes = np.unique(requests.operation[records.request[rows]], return_counts=True)
    return Column(
        int(records.group[row]),
        int(records.sequence[row]),
        source,
        target,
        int(created[created != NO_TIME].min()) if (created != NO_TIME).any() else NO_TIME,
        journal.texts[int(operations[votes.argmax()])],
        frozenset(known or (() if ends else group.ranks)),
        dict(zip(journal.rank[rows].tolist(), rows.tolist(), strict=True)),
    )


def unfinished(journal: Journal, row: int) -> bool:
    """Whether an entry has neither ended nor left the list of work."""
    return bool(journal.records.state[row] != State.COMPLETED and journal.records.retired[row] != 1)
