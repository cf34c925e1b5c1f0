"""Order by tensors: each node after the last node that wrote what it reads."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.call_tree import greatest_inside
from tracelink._model.columns import UNKNOWN, Bools, Int64s, lookup
from tracelink._model.events import EventKind, Key, Relation
from tracelink._model.graph import Excerpt
from tracelink._model.trace import StorageUses
from tracelink._order.order import Order, can_follow


def tensor_order(part: Excerpt, uses: StorageUses) -> Order:
    """Each node after the last one to write what it reads, of those that were complete when it started.

    Addresses are reused, and so are the ids of storages: only the last writer counts.
    """
    nodes = part.rows(EventKind.NODE)
    before, after = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for source in np.unique(part.events.source[nodes]).tolist():
        span = _Span.of(part, nodes[part.events.source[nodes] == source])
        written, read = _last_writers(span, uses)
        before.append(written)
        after.append(read)
    written, read = np.concatenate(before), np.concatenate(after)
    allowed = _allowed(part, written, read)
    linked = np.count_nonzero(allowed)
    counts = {
        "reads": int(np.count_nonzero(~uses.writes)),
        "with_writer": int(linked),
        "writer_not_recorded": int(np.count_nonzero(~uses.writes) - len(read)),
        "contradicted_by_times": int(len(read) - linked),
    }
    return Order.of(written[allowed], read[allowed], counts)


class _Span(Struct, frozen=True):
    """When nodes of one source started and were complete, counted in starts of nodes."""

    row: Int64s
    """In the order of their ids, which is that of their starts."""
    last: Int64s
    """For each the last node that started inside it."""
    position: Int64s
    """For each row of the graph its position in `row`, or UNKNOWN."""

    @classmethod
    def of(cls, part: Excerpt, rows: Int64s) -> _Span:
        ids = part.key(Key.NODE_ID, UNKNOWN)[rows]
        order = np.argsort(ids, kind="stable")
        rows, ids = rows[order], ids[order]
        parent = lookup(ids, part.key(Key.NODE_PARENT, UNKNOWN)[rows])
        position = np.full(len(part.events), UNKNOWN, np.int64)
        position[rows] = np.arange(len(rows))
        return cls(rows, greatest_inside(parent, np.arange(len(parent))), position)


def _last_writers(span: _Span, uses: StorageUses) -> tuple[Int64s, Int64s]:
    """The rows of the last writer and of the reader, for each read with a writer."""
    position = span.position[uses.row]
    writing, reading = (
        np.flatnonzero(uses.writes & (position != UNKNOWN)),
        np.flatnonzero(~uses.writes & (position != UNKNOWN)),
    )
    number = np.unique(uses.storage, return_inverse=True)[1]
    size = len(span.row) + 1
    # of two that were complete at the same time the outer one, which comes first, was later
    moment = number[writing] * size + span.last[position[writing]]
    order = np.lexsort((-position[writing], moment))
    reached = np.searchsorted(moment[order], number[reading] * size + position[reading])
    found = reached > 0
    writer = writing[order[reached[found] - 1]] if len(writing) else writing
    reader = reading[found]
    same = uses.storage[writer] == uses.storage[reader]
    return uses.row[writer[same]], uses.row[reader[same]]


def _allowed(part: Excerpt, written: Int64s, read: Int64s) -> Bools:
    """Which pairs the times of the profiled operators do not contradict, if both are known.

    Node ids only prove what was complete within one thread.
    """
    same = part.where(Relation.SAME)
    timed = part.events.timed[same.target]
    operator = np.full(len(part.events), UNKNOWN, np.int64)
    operator[same.source[timed]] = same.target[timed]
    before, after = operator[written], operator[read]
    unknown = (before == UNKNOWN) | (after == UNKNOWN)
    allowed: Bools = unknown | can_follow(part.events, before, after)
    return allowed
