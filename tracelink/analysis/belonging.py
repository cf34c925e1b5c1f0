"""Which entries of different ranks belong together: one collective, or the two ends of one message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from tracelink.analysis.comparing import comparisons_of
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.channels import Ends, partners
from tracelink.linking.coding import distinct, stable_order, starts_of
from tracelink.linking.group_sources import UNDEFINED
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.trace import ProcessGroup

COALESCED = "coalesced"
"""How operations are called that close others: `nccl:coalesced`, `nccl:ALLGATHER_coalesced`."""


def numbers_of(journal: Journal, rows: Int64s) -> Int64s:
    """A number for each of these entries, equal where they belong together; they are in the order of the ranks."""
    messages = is_message(journal, rows)
    numbers = np.empty(len(rows), np.int64)
    numbers[~messages] = _of_collectives(journal, rows[~messages])
    numbers[messages] = numbers[~messages].max(initial=UNKNOWN) + 1 + _of_messages(journal, rows[messages])
    return numbers


def is_message(journal: Journal, rows: Int64s) -> Bools:
    """Which of these entries are one end of a message."""
    return _asks_for(journal, rows, *POINT_TO_POINT)


def closings(journal: Journal) -> Int64s:
    """For each entry that was issued with others the one that closes them, and tells what became of them."""
    records = journal.records
    closed = np.full(len(journal), UNKNOWN, np.int64)
    closes = _closes(journal)
    if not closes.any():
        return closed
    issued, _ = distinct(journal.rank, records.group, records.point_to_point, records.sequence)
    closing = np.full(int(issued.max()) + 1, UNKNOWN, np.int64)
    closing[issued[closes]] = np.flatnonzero(closes)
    rows = np.flatnonzero(~closes & (records.sequence >= 0))
    closed[rows] = closing[issued[rows]]
    return closed


def agreement(journal: Journal) -> Int64s:
    """For each request a number, equal where ranks agree that ask for it under one number."""
    compared = [one.value for one in comparisons_of(journal, ())]
    return distinct(*compared)[0] if compared else np.empty(0, np.int64)


def ends_of(journal: Journal, rows: Int64s) -> tuple[Int64s, Int64s]:
    """From which rank of the job to which these messages go; UNKNOWN where the group's ranks are not known."""
    requests, request = journal.requests, journal.records.request[rows]
    group, own = journal.records.group[rows], journal.rank[rows].astype(np.int64)
    members = Members.of(Groups(journal.groups, np.empty(0, np.int32), UNKNOWN))
    within = np.zeros(len(rows), np.bool_)
    sends = _asks_for(journal, rows, Operation.SEND)
    source = np.where(sends, own, members.rank_of(group, requests.source[request], within))
    target = np.where(sends, members.rank_of(group, requests.target[request], within), own)
    return source, target


def _closes(journal: Journal) -> Bools:
    """Which entries are without tensors and close those that were issued with them."""
    requests = journal.requests
    texts = [journal.texts[code].endswith(COALESCED) for code in requests.operation.tolist()]
    empty = (requests.elements_in < 0) & (requests.elements_out < 0)
    closes: Bools = np.append(np.array(texts, np.bool_) & empty, False)[journal.records.request]
    return closes & (journal.records.sequence >= 0)


def _asks_for(journal: Journal, rows: Int64s, *operations: Operation) -> Bools:
    texts = [operation_of(journal.texts[code]) in operations for code in journal.requests.operation.tolist()]
    asks: Bools = np.array([*texts, False], np.bool_)[journal.records.request[rows]]
    return asks


def _of_collectives(journal: Journal, rows: Int64s) -> Int64s:
    """By group and number; those of one rank that share both are told apart by their order.

    What groups side by side are asked under one number is one, where it is the same.
    """
    records, rank = journal.records, journal.rank[rows]
    group, sequence, message = records.group[rows], records.sequence[rows], records.point_to_point[rows]
    alone = np.where((group == UNKNOWN) | (sequence < 0), rank, UNKNOWN)
    number, _ = distinct(group, message, sequence, alone)
    place = _place_among_equal(number, rank)
    number, first = distinct(number, place)
    family, several = families(journal.groups)
    asked = np.where(several[group[first]], agreement(journal)[records.request[rows[first]]], UNKNOWN)
    columns = (family[group[first]], message[first], sequence[first], alone[first], place[first], asked)
    return distinct(*columns)[0][number] if len(rows) else number


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


def _place_among_equal(number: Int64s, rank: Int32s) -> Int64s:
    """How many of the same number and rank stand before each; ranks are in ascending order."""
    order = stable_order(number)
    starts = starts_of(distinct(number[order], rank[order])[0])
    place = np.empty(len(number), np.int64)
    lengths = np.diff(np.append(starts, len(number)))
    place[order] = np.arange(len(number)) - np.repeat(starts, lengths)
    return place


def _of_messages(journal: Journal, rows: Int64s) -> Int64s:
    """Sends and receives between the same ranks of a group belong together in their order."""
    source, target = ends_of(journal, rows)
    group = journal.records.group[rows]
    channel, _ = distinct(group, source, target)
    order = stable_order(channel)
    partner, _ = partners(_ends(journal, rows[order], source[order], target[order]), channel[order])
    other = np.where(partner < 0, np.arange(len(rows)), partner)
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = np.minimum(np.arange(len(rows)), other)
    return numbers


def _ends(journal: Journal, rows: Int64s, source: Int64s, target: Int64s) -> Ends:
    records, requests = journal.records, journal.requests
    request = records.request[rows]
    size = np.maximum(requests.elements_in[request], requests.elements_out[request])
    sends = _asks_for(journal, rows, Operation.SEND)
    unknown = np.full(len(rows), NO_TIME, np.int64)
    to_itself = source == target
    source = np.where(to_itself, UNKNOWN, source)
    tag = np.zeros(len(rows), np.int64)
    created = records.created[rows]
    return Ends(rows, records.group[rows], source, target, tag, size, sends, unknown, unknown, created)
