"""Which entries of different ranks belong together: one collective, or the two ends of one message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.channels import match
from tracelink.analysis.comparing import comparisons_of
from tracelink.analysis.ends import Ends, ends_of
from tracelink.analysis.parts import outcomes, parts_of
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct, stable_order, starts_of
from tracelink.linking.group_sources import UNDEFINED
from tracelink.trace import ProcessGroup

COALESCED = "coalesced"
"""How operations are called that close others: `nccl:coalesced`, `nccl:ALLGATHER_coalesced`."""


@dataclass(frozen=True, slots=True)
class Belonging(Columns):
    """One row for each entry of the journal."""

    number: Int64s
    """Equal where entries belong together; UNKNOWN for those that only close others."""
    alike: Int64s
    """Equal also where groups side by side do the same under one number."""
    closing: Int64s
    """The entry that closes it and what was issued with it, and alone tells what became of them; or UNKNOWN."""
    source: Int64s
    target: Int64s
    """The ranks of the job at both ends of a message, or UNKNOWN."""
    message: Bools
    of_all: Bools
    """Whether all members of the group have to take part."""

    def __len__(self) -> int:
        return len(self.number)


def belonging_of(journal: Journal) -> Belonging:
    """What belongs to what, over all ranks."""
    ends = ends_of(journal, outcomes(journal))
    message = np.zeros(len(journal), np.bool_)
    message[ends.row] = True
    closes = _closes(journal)
    closing = _closings(journal, closes)
    closing[ends.row] = np.where(ends.batched, ends.closing, UNKNOWN)
    number, alike = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    alone = ~message
    alone[closing[closing != UNKNOWN]] = False
    number[alone], alike[alone] = _of_collectives(journal, np.flatnonzero(alone))
    for column, own in zip((number, alike), _of_messages(journal, ends), strict=True):
        column[ends.row] = column.max(initial=UNKNOWN) + 1 + own
    source, target = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    source[ends.row] = np.where(ends.sends, ends.rank, ends.peer)
    target[ends.row] = np.where(ends.sends, ends.peer, ends.rank)
    of_all = ~message & ~closes & ~journal.records.point_to_point
    return Belonging(number, alike, closing, source, target, message, of_all)


def agreement(journal: Journal) -> Int64s:
    """For each request a number, equal where ranks agree that ask for it under one number."""
    compared = [one.value for one in comparisons_of(journal, ())]
    return distinct(*compared)[0] if compared else np.empty(0, np.int64)


def _closes(journal: Journal) -> Bools:
    """Which entries are without tensors and close what was issued under their number."""
    requests = journal.requests
    texts = [journal.texts[code].endswith(COALESCED) for code in requests.operation.tolist()]
    empty = (requests.elements_in < 0) & (requests.elements_out < 0)
    closes: Bools = (np.array(texts, np.bool_) & empty)[journal.records.request]
    return closes


def _closings(journal: Journal, closes: Bools) -> Int64s:
    """For each entry the one that closes it."""
    records = journal.records
    closed = np.full(len(journal), UNKNOWN, np.int64)
    rows = np.flatnonzero(closes & (records.sequence >= 0))
    if not len(rows):
        return closed
    message = records.point_to_point.astype(np.int8)
    issued, _ = distinct(journal.rank, records.group, message, records.sequence)
    closing = np.full(int(issued.max()) + 1, UNKNOWN, np.int64)
    closing[issued[rows]] = rows
    others = np.flatnonzero(~closes & (records.sequence >= 0))
    closed[others] = closing[issued[others]]
    return closed


def _of_collectives(journal: Journal, rows: Int64s) -> tuple[Int64s, Int64s]:
    """What is one by group and number, and what is alike; what one rank has twice is told apart by its order."""
    if not len(rows):
        return rows, rows
    records, rank = journal.records, journal.rank[rows]
    group, sequence = records.group[rows], records.sequence[rows]
    message = records.point_to_point[rows].astype(np.int8)
    alone = np.where((group == UNKNOWN) | (sequence < 0), rank, UNKNOWN)
    number, _ = distinct(group, message, sequence, alone)
    place = _place_among_equal(journal, rows, number)
    number, first = distinct(number, place)
    family, several = families(journal.groups)
    asked = np.where(several[group[first]], agreement(journal)[records.request[rows[first]]], UNKNOWN)
    columns = (family[group[first]], message[first], sequence[first], alone[first], place[first], asked)
    return number, distinct(*columns)[0][number]


def families(groups: Sequence[ProcessGroup]) -> tuple[Int64s, Bools]:
    """For each group, and for none at the end, a number that groups side by side share; and which ones do.

    Groups are side by side that are described alike and have no rank in common.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        if group.description not in ("", UNDEFINED):
            alike[group.description].append(row)
    family = np.append(np.arange(len(groups)), UNKNOWN)
    several = np.zeros(len(groups) + 1, np.bool_)
    for rows in alike.values():
        ranks = Counter(rank for row in rows for rank in groups[row].ranks)
        if len(rows) > 1 and max(ranks.values(), default=0) == 1 and all(groups[row].ranks for row in rows):
            family[rows] = rows[0]
            several[rows] = True
    return family, several


def _place_among_equal(journal: Journal, rows: Int64s, number: Int64s) -> Int64s:
    """How many of the same number and rank were issued before each."""
    order = stable_order(number)
    run, _ = distinct(number[order], journal.rank[rows[order]])
    starts = starts_of(run)
    length = np.diff(np.append(starts, len(rows)))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(
        starts - _forgotten(journal, rows[order], starts, length, number[order]), length
    )
    return place


def _forgotten(journal: Journal, rows: Int64s, starts: Int64s, length: Int64s, number: Int64s) -> Int64s:
    """How many a ring buffer forgot of each run: only of that in which it begins, and as many as others have more."""
    most = np.zeros(int(number[-1]) + 1, np.int64)
    np.maximum.at(most, number[starts], length)
    wrapped = [rank for rank, one in journal.recordings.items() if one.overwritten]
    begins = journal.bounds[:-1][np.isin(journal.ranks, wrapped)]
    forgotten: Int64s = np.where(np.isin(rows[starts], begins), most[number[starts]] - length, 0)
    return forgotten


def _of_messages(journal: Journal, ends: Ends) -> tuple[Int64s, Int64s]:
    """What is one message, unless a rank sends it to itself; and what is alike, by its first end."""
    own = np.arange(len(ends))
    if not len(own):
        return own, own
    partner = match(journal, parts_of(journal), ends).partner
    other = np.where((partner == UNKNOWN) | (ends.rank == ends.peer), own, partner)
    number = np.minimum(own, other)
    family, several = families(journal.groups)
    shared = several[ends.group[number]]
    columns = (family[ends.group[number]], ends.request[number], journal.records.sequence[ends.row[number]])
    return number, distinct(*columns, np.where(shared, UNKNOWN, number))[0]
