"""A few events of a rank as a job of their own, with what they recorded at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto.payload_runs import payload_runs
from tracelink.events import Counters, Edges, Int64s, Key, KeyColumn
from tracelink.graph import EventGraph
from tracelink.job import Job
from tracelink.trace import TEXT_KEYS, ListedPayloads, Payload

GAP = 1 << 11
"""So many payloads that nobody asks for are passed over and not read."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One rank, of which only some events are there."""

    rank: int
    graph: EventGraph

    def load(self) -> EventGraph:
        """Those events."""
        return self.graph


def job_of(job: Job, graph: EventGraph) -> Job:
    """The job as if this were all of it, with times as they are."""
    rank = graph.ranks[0]
    return Job(
        [Excerpt(rank.rank, graph)],
        [rank],
        (),
        first_ns=job.first_ns,
        last_ns=job.last_ns,
        events=len(graph),
    )


def with_payloads_at_hand(graph: EventGraph, rows: Int64s) -> EventGraph:
    """Only these rows, in order: without links, and with their arguments in memory."""
    chosen = _taken(graph, rows)
    payloads = [
        ListedPayloads(_texts(graph, source, chosen.events.payload[low:high]))
        for source, (low, high) in enumerate(pairwise(chosen.bounds))
    ]
    first = np.repeat(chosen.bounds[:-1], np.diff(chosen.bounds))
    places = np.arange(len(rows)) - first
    return replace(chosen, events=replace(chosen.events, payload=places), payloads=payloads)


def fewer(graph: EventGraph, rows: Int64s) -> EventGraph:
    """Only some rows of an excerpt."""
    return _taken(graph, rows)


def _taken(graph: EventGraph, rows: Int64s) -> EventGraph:
    """Only these rows, and the texts that they use."""
    keys = {key: _picked(column, rows) for key, column in graph.keys.items()}
    names = graph.events.name[rows].astype(np.int64)
    used = np.unique(np.concatenate([names, *(keys[key].values for key in TEXT_KEYS & keys.keys())]))
    used = used[used >= 0]
    events = replace(graph.events.take(rows), name=np.searchsorted(used, names).astype(np.int32))
    return replace(
        graph,
        strings=[graph.strings[code] for code in used.tolist()],
        events=events,
        edges=Edges.empty(),
        bounds=np.searchsorted(rows, graph.bounds).tolist(),
        keys={key: _recoded(key, column, used) for key, column in keys.items()},
        counters=Counters.empty(),
    )


def _picked(column: KeyColumn, rows: Int64s) -> KeyColumn:
    place = np.searchsorted(rows, column.rows)
    found = np.append(rows, -1)[place] == column.rows
    return replace(column.where(found), rows=place[found])


def _recoded(key: Key, column: KeyColumn, used: Int64s) -> KeyColumn:
    if key not in TEXT_KEYS:
        return column
    given = column.values >= 0
    return replace(column, values=np.where(given, np.searchsorted(used, column.values), column.values))


def _texts(graph: EventGraph, source: int, numbers: Int64s) -> list[Payload]:
    """What these events recorded of themselves; what stands far apart is read apart."""
    payloads = graph.payloads[source] if source < len(graph.payloads) else None
    cuts = np.flatnonzero(np.abs(np.diff(numbers)) > GAP) + 1
    return [
        bytes(text)
        for run in np.split(numbers, cuts)
        for _, texts in payload_runs(payloads, run)
        for text in texts
    ]
