"""A job: what writers and the diagnosis of late ranks get. Its ranks are loaded one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import (
    NO_TIME,
    SECOND,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    Table,
)
from tracelink._model.communications import Evidence, Messages, Participations
from tracelink._model.events import Counters, Relation, Track
from tracelink._model.fields import Doc
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, JobTables, source_bounds

EventTable = TypeVar("EventTable", Participations, Messages)


class Part(Protocol):
    """The events of one rank, on the reference clock; `load` reads them from memory or from a temporary file."""

    @property
    def rank(self) -> int:
        """The rank."""
        ...

    def load(self) -> EventGraph:
        """A graph of this rank alone: its events, edges, tracks, sources, counters and payloads."""
        ...


class Ties(Table, frozen=True):
    """Edges between ranks: an event of one rank that another rank's event had to wait for.

    Events are rows within the parts of their ranks.
    """

    cause_rank: Annotated[Int32s, Doc("The rank of the cause.")]
    cause: Annotated[Int64s, Doc("The cause: a row of `events` of that rank.")]
    effect_rank: Annotated[Int32s, Doc("The rank of the effect.")]
    effect: Annotated[Int64s, Doc("The effect: a row of `events` of that rank.")]
    relation: Annotated[
        Int32s, Relation, Doc("The effect `waits_for` the cause, or `depends_on` it if it is a message.")
    ]


class LinkedJob(JobTables, frozen=True, dict=True, kw_only=True):
    """All ranks, one at a time, and the tables that connect them.

    In `participations` and `messages`, events are rows within the part of their rank.
    """

    parts: Sequence[Part]
    """The events, rank by rank."""
    first_ns: int | None = None
    """The time of the first event or sample; None if nothing has a time."""
    last_ns: int | None = None
    """The end of the last event or sample."""
    events: int = 0
    """Number of events of all ranks."""
    metrics: Counters = field(default_factory=Counters.empty)
    """Metrics that other programs sampled, of all ranks; their tracks are indexes of `metric_tracks`."""
    metric_tracks: Sequence[Track] = ()
    """What each of `metrics` measures, and of which rank."""
    all_arguments: bool = True
    """False for a dataset that was written without the arguments of most events."""

    @property
    def missing_arguments(self) -> list[Finding]:
        """The finding for what shows or writes the arguments of all events; none if all are there."""
        if self.all_arguments:
            return []
        message = (
            "The dataset was written without the arguments of most events: shapes and other arguments are missing. "
            "Write it again from the traces with --args all."
        )
        return [Finding(Severity.WARNING, "arguments", message)]

    @classmethod
    def of(cls, graph: EventGraph) -> LinkedJob:
        """Returns a graph in memory as a job whose parts are views of the graph.

        Args:
            graph: What `load` returns.
        """
        rows = {rank.rank: rank_rows(graph, rank.rank) for rank in graph.ranks}
        first_ns, last_ns = graph.span
        return cls(
            **{name: getattr(graph, name) for name in JobTables.__struct_fields__}
            | {
                "participations": shifted_to_graph(graph.participations, rows, -1),
                "messages": shifted_to_graph(graph.messages, rows, -1),
            },
            parts=[GraphPart(graph, rank.rank) for rank in graph.ranks],
            first_ns=first_ns,
            last_ns=last_ns,
            events=len(graph),
            metrics=graph.counters,
            metric_tracks=graph.tracks,
        )

    @property
    def base_ns(self) -> int | None:
        """The second before the first event, from which times in outputs count; None if nothing has a time."""
        return None if self.first_ns is None else self.first_ns // SECOND * SECOND

    @cached_property
    def ties(self) -> Ties:
        """The edges between ranks whose two ends both have an event."""
        parts = self.participations
        last = _first_of(parts.collective, parts.rank == self.collectives.last_rank[parts.collective])
        event = event_of(parts)
        cause = last[parts.collective]
        tied = (cause != UNKNOWN) & (cause != np.arange(len(parts))) & (event != UNKNOWN)
        tied &= np.where(cause == UNKNOWN, UNKNOWN, np.append(event, UNKNOWN)[cause]) != UNKNOWN
        tied[tied] &= _waited(parts, np.flatnonzero(tied), cause[tied])
        cause, effect = cause[tied], np.flatnonzero(tied)
        sent = self.messages
        matched = (sent.send != UNKNOWN) & (sent.receive != UNKNOWN)
        return Ties(
            np.concatenate([parts.rank[cause], sent.source[matched]]).astype(np.int32),
            np.concatenate([event[cause], sent.send[matched]]),
            np.concatenate([parts.rank[effect], sent.target[matched]]).astype(np.int32),
            np.concatenate([event[effect], sent.receive[matched]]),
            np.where(
                np.arange(len(effect) + np.count_nonzero(matched)) < len(effect),
                Relation.WAITS_FOR,
                Relation.DEPENDS_ON,
            ).astype(np.int32),
        )

    def _heading(self) -> str:
        from tracelink._model import results

        ranks = [rank.rank for rank in self.ranks]
        return results.heading("Job", self.events, ranks, self.first_ns, self.last_ns)


class GraphPart(Struct, frozen=True):
    """One rank of a graph in memory."""

    graph: EventGraph
    rank: int

    def load(self) -> EventGraph:
        """The graph of this rank alone, of views of its rows."""
        graph = self.graph
        (rank,) = (rank for rank in graph.ranks if rank.rank == self.rank)
        if len(graph.ranks) == 1:
            return graph
        rows = rank_rows(graph, self.rank)
        sources = [number for number, source in enumerate(graph.sources) if source.rank == self.rank]
        first = sources[0] if sources else 0
        events = graph.events.take(np.arange(rows.start, rows.stop))
        events = replace(events, source=events.source - np.int32(first))
        edges = graph.edges
        inside = (edges.source >= rows.start) & (edges.source < rows.stop)
        inside &= (edges.target >= rows.start) & (edges.target < rows.stop)
        mine = np.array([track.rank == self.rank for track in graph.tracks], np.bool_)
        samples = mine[graph.counters.track] if len(graph.counters) else np.empty(0, np.bool_)
        return EventGraph(
            strings=graph.strings,
            events=events,
            edges=edges.take(inside).shifted(-rows.start),
            tracks=graph.tracks,
            ranks=[rank],
            sources=[graph.sources[number] for number in sources],
            bounds=source_bounds(events.source, len(sources)),
            keys={
                key: column.take((column.rows >= rows.start) & (column.rows < rows.stop)).shifted(-rows.start)
                for key, column in graph.keys.items()
            },
            counters=graph.counters.take(samples),
            groups=graph.groups,
            payloads=[graph.payloads[number] for number in sources if number < len(graph.payloads)],
            reports={self.rank: graph.reports.get(self.rank, ())},
        )


def rank_rows(graph: EventGraph, rank: int) -> slice:
    """The rows of one rank, which are consecutive."""
    numbers = [number for number, source in enumerate(graph.sources) if source.rank == rank]
    if not numbers:
        return slice(0, len(graph)) if len(graph.ranks) == 1 else slice(0, 0)
    return slice(int(graph.bounds[numbers[0]]), int(graph.bounds[numbers[-1] + 1]))


def _waited(parts: Participations, effect: Int64s, cause: Int64s) -> Bools:
    """Whether each left after the last one had entered; the root of a broadcast, for example, need not."""
    return (parts.end[effect] == NO_TIME) | (parts.end[effect] >= parts.start[cause])


def event_of(participations: Participations) -> Int64s:
    """The event that represents each participation: the kernel, else annotation, operator or record.

    An operator may only enqueue the work: if the times are those of the recorder, its entry is preferred.
    """
    recorded = (participations.evidence == Evidence.RECORDER) & (participations.record != UNKNOWN)
    event = np.where(
        recorded | (participations.operator == UNKNOWN), participations.record, participations.operator
    )
    for better in (participations.annotation, participations.kernel):
        event = np.where(better != UNKNOWN, better, event)
    return event


def shifted_to_graph(table: EventTable, rows: Mapping[int, slice], sign: int = 1) -> EventTable:
    """Participations or messages with rows of the graph instead of rows within parts; `sign=-1` reverses that."""
    first = _by_rank({rank: sign * span.start for rank, span in rows.items()})
    return _changed(table, lambda ranks, events: events + first[ranks])


def referenced_rows(job: LinkedJob) -> dict[int, Int64s]:
    """The sorted rows of each rank's events to which participations or messages refer."""
    ranks: list[Int64s] = [np.empty(0, np.int64)]
    rows: list[Int64s] = [np.empty(0, np.int64)]
    for table in (job.participations, job.messages):
        for name, owner in table.event_columns().items():
            given = getattr(table, name) != UNKNOWN
            rows.append(getattr(table, name)[given])
            ranks.append(getattr(table, owner)[given].astype(np.int64))
    named = np.unique(np.stack([np.concatenate(ranks), np.concatenate(rows)]), axis=1)
    numbers = [part.rank for part in job.parts]
    begins = np.searchsorted(named[0], numbers).tolist()
    ends = np.searchsorted(named[0], numbers, side="right").tolist()
    return {number: named[1, begin:end] for number, begin, end in zip(numbers, begins, ends, strict=True)}


def renumbered_events(table: EventTable, old: Mapping[int, Int64s], new: Mapping[int, Int64s]) -> EventTable:
    """The table after event `old[rank][i]` became `new[rank][i]`."""
    ordered: list[int] = sorted(old)
    begins = dict(zip(ordered, np.cumsum([0, *(len(old[rank]) for rank in ordered)]).tolist(), strict=False))
    first = _by_rank(begins)
    every_new = np.concatenate([np.empty(0, np.int64), *(new[rank] for rank in ordered)])

    def renumbered(owners: Int32s, events: Int64s) -> Int64s:
        index = np.empty(len(events), np.int64)
        for rank in np.unique(owners).tolist():
            mine = owners == rank
            index[mine] = first[rank] + np.searchsorted(old[rank], events[mine])
        return every_new[index]

    return _changed(table, renumbered)


def _changed(table: EventTable, change: Callable[[Int32s, Int64s], Int64s]) -> EventTable:
    """The table with every event replaced by `change(rank, row)`."""
    changed: dict[str, Any] = {}
    for name, owner in table.event_columns().items():
        events = getattr(table, name).copy()
        given = events != UNKNOWN
        events[given] = change(getattr(table, owner)[given], events[given])
        changed[name] = events
    return replace(table, **changed)


def _by_rank(numbers: Mapping[int, int]) -> Int64s:
    column = np.zeros(max(numbers, default=0) + 1, np.int64)
    for rank, number in numbers.items():
        column[rank] = number
    return column


def _first_of(group: Int64s, chosen: Bools) -> Int64s:
    """The first chosen row of each group, or UNKNOWN."""
    result = np.full(int(group.max()) + 1 if len(group) else 0, UNKNOWN, np.int64)
    rows = np.flatnonzero(chosen)[::-1]
    result[group[rows]] = rows
    return result
