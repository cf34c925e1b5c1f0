"""Each rank's part in each collective, out of the entries that tell of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct, stable_order, starts_of
from tracelink.records import Int8s, State

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
