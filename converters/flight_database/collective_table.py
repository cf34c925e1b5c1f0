"""The table of collectives, out of every rank's part in them."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.parts import Outcome
from tracelink.communications import UNKNOWN
from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.numbering import Numbering
from tracelink.converters.flight_database.rows import Batch, clean, listed, times
from tracelink.events import NO_TIME, Int32s, Int64s
from tracelink.linking.coding import distinct
from tracelink.operations import operation_of


def collectives_table(numbering: Numbering) -> Batch:
    """Every collective."""
    journal, parts = numbering.journal, numbering.parts
    count = len(numbering.group)
    sizes = np.array([group.size or len(group.ranks) or UNKNOWN for group in journal.groups], np.int64)
    operations = [clean(journal.texts[code]) for code in _operations(numbering).tolist()]
    last_completed = np.full(count, NO_TIME, np.int64)
    np.maximum.at(last_completed, parts.round, journal.records.completed[parts.last])
    return Batch(
        schema.COLLECTIVES.name,
        {
            "id": list(range(count)),
            "group_id": numbering.group.tolist(),
            "sequence": numbering.sequence.tolist(),
            "operation": operations,
            "operation_kind": [operation_of(operation) for operation in operations],
            "expected_ranks": listed(sizes[numbering.group] if count else sizes[:0]),
            "joined_ranks": np.bincount(parts.round, minlength=count).tolist(),
            "open_ranks": np.bincount(parts.round[parts.outcome == Outcome.OPEN], minlength=count).tolist(),
            **_arrivals(numbering),
            "last_completed_ns": times(last_completed),
        },
    )


def _operations(numbering: Numbering) -> Int32s:
    """What most ranks do in each collective; of several that are as many that which comes first."""
    journal, parts = numbering.journal, numbering.parts
    operation = journal.requests.operation[journal.records.request[parts.row]]
    if not len(operation):
        return operation
    choice, first = distinct(parts.round, operation)
    votes = np.bincount(choice)
    order = np.lexsort((votes, parts.round[first]))
    last_of_round = np.append(np.diff(parts.round[first][order]) != 0, [True])
    chosen: Int32s = operation[first][order][last_of_round]
    return chosen


def _arrivals(numbering: Numbering) -> dict[str, list[int | None]]:
    """Who asked for each collective first and last, and how far apart, of those whose times are known."""
    parts, count = numbering.parts, len(numbering.group)
    timed = np.flatnonzero(parts.created != NO_TIME)
    order = timed[np.lexsort((parts.created[timed], parts.round[timed]))]
    lengths = np.bincount(parts.round[timed], minlength=count)
    ends = np.cumsum(lengths)
    some, several = lengths > 0, lengths > 1
    created = parts.created[order]

    def at(place: Int64s, where: np.ndarray, column: Int64s | Int32s, missing: int) -> Int64s:
        values = np.full(count, missing, np.int64)
        values[where] = column[place[where]]
        return values

    first, last = at(ends - lengths, some, created, NO_TIME), at(ends - 1, some, created, NO_TIME)
    before = at(ends - 2, several, created, NO_TIME)
    return {
        "first_created_ns": times(first),
        "last_created_ns": times(last),
        "last_rank": listed(at(ends - 1, some, parts.rank[order], UNKNOWN)),
        "skew_ns": listed(np.where(several, last - first, UNKNOWN)),
        "late_ns": listed(np.where(several, last - before, UNKNOWN)),
    }
