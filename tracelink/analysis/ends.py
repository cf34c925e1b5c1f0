"""The ends of messages, out of the entries that tell of them: sends and receives, alone or in a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.parts import Outcome
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import stable_order
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.operations import Operation, operation_of
from tracelink.records import Int8s


@dataclass(frozen=True, slots=True)
class Ends(Columns):
    """One row for each send and each receive, in the order of rank, group and recording."""

    row: Int64s
    """Of the journal."""
    closing: Int64s
    """The entry that says what became of it: itself, or that which closes its batch."""
    group: Int32s
    rank: Int64s
    peer: Int64s
    """The rank of the job at the other end, or UNKNOWN: a receive may be from anybody."""
    sends: Bools
    batched: Bools
    shared: Bools
    """Whether it is in a batch with others."""
    request: Int32s
    outcome: Int8s

    def __len__(self) -> int:
        return len(self.row)


def ends_of(journal: Journal, outcome: Int8s) -> Ends:
    """All ends of messages; `outcome` is that of each entry."""
    records = journal.records
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    sending, receiving, closing = (
        np.array([name == operation for name in names], np.bool_)
        for operation in (Operation.SEND, Operation.RECV, Operation.COALESCED)
    )
    rows = np.flatnonzero(records.point_to_point & (records.group != UNKNOWN))
    rows = rows[(sending | receiving | closing)[records.request[rows]]]
    rows = _by_rank_and_group(journal, rows)
    closed_by = _closed_by(journal, rows, closing[records.request[rows]], outcome)
    kept = ~closing[records.request[rows]]
    rows, closed_by = rows[kept], closed_by[kept]
    request, group = records.request[rows], records.group[rows]
    sends = sending[request]
    within = np.where(sends, journal.requests.target[request], journal.requests.source[request])
    members = Members.of(Groups(journal.groups, group, UNKNOWN))
    return Ends(
        rows,
        closed_by,
        group,
        journal.rank[rows].astype(np.int64),
        members.rank_of(group, within, np.zeros(len(rows), np.bool_)),
        sends,
        closed_by != rows,
        _has_neighbours(closed_by),
        request,
        outcome[closed_by],
    )


def _by_rank_and_group(journal: Journal, rows: Int64s) -> Int64s:
    """The rows of each rank, those of one group together."""
    if not len(rows):
        return rows
    place = np.searchsorted(journal.ranks, journal.rank[rows])
    return rows[stable_order(place * len(journal.groups) + journal.records.group[rows])]


def _closed_by(journal: Journal, rows: Int64s, closes: Bools, outcome: Int8s) -> Int64s:
    """For each entry the one that closes its batch; itself where nothing does.

    What is closed by one entry comes just before it, has its number, and does not tell what became of it.
    """
    if not len(rows):
        return rows
    records = journal.records
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = closes[:-1] | (outcome[rows[:-1]] != Outcome.OPEN)
    for column in (journal.rank, records.group, records.sequence):
        begins[1:] |= column[rows[1:]] != column[rows[:-1]]
    starts = np.flatnonzero(begins)
    last = np.append(starts[1:], len(rows)) - 1
    length = last - starts + 1
    closed = np.repeat(closes[last], length)
    closed_by: Int64s = np.where(closed, np.repeat(rows[last], length), rows)
    return closed_by


def _has_neighbours(closed_by: Int64s) -> Bools:
    """Whether an entry closes more than one of them."""
    same = closed_by[1:] == closed_by[:-1]
    neighbours: Bools = np.append(same, False)[: len(closed_by)] | np.append(False, same)[: len(closed_by)]
    return neighbours
