"""A few events of a rank as a job of their own, with what they recorded at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tracelink.events import Counters, Edges, Int64s, Key, KeyColumn, Track, TrackKind
from tracelink.graph import EventGraph
from tracelink.job import Job
from tracelink.trace import TEXT_KEYS, ListedPayloads, Payload, Payloads, SparsePayloads


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One rank, of which only some events are there."""

    rank: int
    graph: EventGraph

    def load(self) -> EventGraph:
        """Those events."""
        return self.graph


def job_of(job: Job, graph: EventGraph, before: int) -> Job:
    """The job as if this were all of it, behind so many ranks without events."""
    rank = graph.ranks[0]
    nothing = fewer(graph, np.empty(0, np.int64)) if before else graph
    return Job(
        [Excerpt(rank.rank, nothing)] * before + [Excerpt(rank.rank, graph)],
        [rank],
        (),
        first_ns=job.first_ns,
        last_ns=job.last_ns,
        events=len(graph),
    )


def excerpt_of(graph: EventGraph, rows: Int64s, *, arguments: bool) -> EventGraph:
    """Only these rows, in order: without links, and with their arguments in memory, if any."""
    chosen = fewer(graph, rows)
    if not arguments:
        return replace(chosen, payloads=[])
    payloads = [
        ListedPayloads(_texts(graph, source, chosen.events.payload[low:high]))
        for source, (low, high) in enumerate(pairwise(chosen.bounds))
    ]
    first = np.repeat(chosen.bounds[:-1], np.diff(chosen.bounds))
    places = np.arange(len(rows)) - first
    return replace(chosen, events=replace(chosen.events, payload=places), payloads=payloads)


def fewer(graph: EventGraph, rows: Int64s) -> EventGraph:
    """Only these rows, and the texts that they use."""
    keys = {key: _picked(column, rows) for key, column in graph.keys.items()}
    names = graph.events.name[rows].astype(np.int64)
    used = np.unique(np.concatenate([names, *(keys[key].values for key in TEXT_KEYS & keys.keys())]))
    used = used[used >= 0]
    events = replace(graph.events.take(rows), name=np.searchsorted(used, names).astype(np.int32))
    return replace(
        graph,
        strings=[graph.strings[code] for code in used.tolist()],
        tracks=[_underived(track) for track in graph.tracks],
        events=events,
        edges=Edges.empty(),
        bounds=np.searchsorted(rows, graph.bounds).tolist(),
        keys={key: _recoded(key, column, used) for key, column in keys.items()},
        counters=Counters.empty(),
    )


def _underived(track: Track) -> Track:
    """A stream as a thread: nothing is derived from what it has been given to do."""
    return replace(track, kind=TrackKind.THREAD) if track.kind == TrackKind.STREAM else track


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
    """What these events recorded of themselves."""
    wanted, texts = np.unique(numbers[numbers >= 0]), dict[int, Payload]()
    for first, run in _runs(graph.payloads[source], wanted) if source < len(graph.payloads) else ():
        low, high = np.searchsorted(wanted, [first, first + len(run)]).tolist()
        texts |= {number: bytes(run[number - first]) for number in wanted[low:high].tolist()}
    return [texts.get(number, b"") for number in numbers.tolist()]


def _runs(payloads: Payloads, wanted: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
    if isinstance(payloads, SparsePayloads):
        return payloads.near(wanted)
    return payloads.batches(int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else iter(())
