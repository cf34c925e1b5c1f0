"""A job reduced to a selection, with findings on dropped events and on missing steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.spool import Store, Stored
from tracelink._model.columns import SECOND, UNKNOWN, Bools, Int64s
from tracelink._model.communications import Collectives, Messages, Participations
from tracelink._model.errors import UsageError
from tracelink._model.events import Counters, Edges, EventKind, Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob, Part, referenced_rows, renumbered_events
from tracelink._model.selection import (
    COLLECTIVES,
    COUNTERS,
    KINDS,
    LATEST,
    Numbers,
    Selection,
    Spans,
    Window,
    steps_of,
)
from tracelink._model.text import moment

# Selection in the graph of one rank.

RUNNING = "started"
"""State of a recorder entry that has started and not ended; entries of gloo stay scheduled."""


def apply(
    selection: Selection, graph: EventGraph, first_ns: int, communication_rows: Int64s
) -> tuple[EventGraph, Int64s]:
    """The selected part of the graph of one rank, and the former row of each of its events.

    `first_ns` is the start of the job, `communication_rows` are the events that take part in collectives
    and messages.
    """
    if not selection.cuts:
        return graph, np.arange(len(graph))
    events, samples = _of_time(selection, graph, first_ns)
    events &= _of_kind(selection, graph, communication_rows)
    samples &= selection.keeps(COUNTERS)
    return _reduced(graph, events, samples), np.flatnonzero(events)


def _of_kind(selection: Selection, graph: EventGraph, communication_rows: Int64s) -> Bools:
    if selection.only is None:
        return np.ones(len(graph), np.bool_)
    wanted = graph.events.of_kind(*(kind for word in selection.only for kind in KINDS[word]))
    if selection.keeps(COLLECTIVES):
        wanted[communication_rows] = True
    return wanted


def _of_time(selection: Selection, graph: EventGraph, first_ns: int) -> tuple[Bools, Bools]:
    """Masks of the events and of the samples within the selected time."""
    if selection.window is None and selection.steps is None:
        return np.ones(len(graph), np.bool_), np.ones(len(graph.counters), np.bool_)
    bounds = (selection.window or Window()).after(first_ns)
    wanted = window = Spans.between(*bounds)
    if selection.steps is not None:
        wanted = steps_of(graph).spans(selection.steps).within(*bounds)
    events, end = graph.events, _end(graph)
    inside = events.timed & wanted.overlap(events.start, end)
    if selection.steps is not None:
        # work that a step launches on the GPU often runs after the step has ended on the CPU
        launched = _targets(graph, Relation.LAUNCHES, inside)
        inside |= launched & events.timed & window.overlap(events.start, end)
    vague = ~events.timed | (events.duration < 0)
    inside |= vague & (_targets(graph, Relation.SAME, inside) | _sources(graph, Relation.SAME, inside))
    times = graph.counters.time
    return inside, wanted.overlap(times, times)


def _end(graph: EventGraph) -> Int64s:
    """End of each event; LATEST if it was still running when the recording stopped."""
    events = graph.events
    marks = events.of_kind(EventKind.INSTANT, EventKind.MEMORY)
    running = events.timed & (events.duration < 0) & ~marks
    if running.any():
        records = events.of_kind(EventKind.RECORD)
        begun = np.array([*(text == RUNNING for text in graph.strings), False])
        running &= ~records | begun[graph.key(Key.STATE).dense(len(events), -1)]
    return np.where(running, LATEST, events.end)


def _targets(graph: EventGraph, relation: Relation, sources: Bools) -> Bools:
    """The events to which an edge leads from one of `sources`."""
    edges = graph.edges.where(relation)
    return _marked(len(graph), edges.target[sources[edges.source]])


def _sources(graph: EventGraph, relation: Relation, targets: Bools) -> Bools:
    edges = graph.edges.where(relation)
    return _marked(len(graph), edges.source[targets[edges.target]])


def _marked(count: int, rows: Int64s) -> Bools:
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked


def _reduced(graph: EventGraph, kept: Bools, samples: Bools) -> EventGraph:
    """The graph of these events and samples; tracks, sources and payloads stay."""
    place = np.cumsum(kept) - 1
    edges, counters = graph.edges, graph.counters
    whole = kept[edges.source] & kept[edges.target]
    keys = {key: column.take(kept[column.rows]) for key, column in graph.keys.items()}
    return replace(
        graph,
        events=graph.events.take(kept),
        edges=Edges(place[edges.source[whole]], place[edges.target[whole]], edges.relation[whole]),
        bounds=np.searchsorted(np.flatnonzero(kept), graph.bounds).tolist(),
        keys={key: replace(column, rows=place[column.rows]) for key, column in keys.items()},
        counters=Counters(counters.track[samples], counters.time[samples], counters.value[samples]),
    )


# Reporting: how much is dropped, and what is available if the selection matches nothing.


class SelectionReport(Struct, frozen=True):
    """Events of one rank before and after a selection."""

    rank: int
    events: int = 0
    kept: int = 0
    kept_samples: int = 0
    steps: Numbers = Numbers()
    first_ns: int | None = None
    last_ns: int | None = None
    """Start of the first and end of the last event; None if no event has a time."""

    @classmethod
    def of(cls, rank: int, whole: EventGraph, kept: EventGraph) -> SelectionReport:
        """From the graph of a rank, and its selected part."""
        timed = whole.events.take(whole.events.timed)
        return cls(
            rank,
            len(whole),
            len(kept),
            len(kept.counters),
            steps_of(whole).numbers,
            int(timed.start.min()) if len(timed) else None,
            int(timed.end.max()) if len(timed) else None,
        )


def selection_findings(
    selection: Selection, reports: Sequence[SelectionReport], origin_ns: int | None
) -> list[Finding]:
    """Findings on a selection of a job that starts at `origin_ns`; raises `UsageError` if it is empty."""
    empty = [report for report in reports if not (report.kept or report.kept_samples)]
    if len(empty) == len(reports):
        zero = "" if origin_ns is None else f" Times count from the first event, at {moment(origin_ns)}."
        raise UsageError(
            "the selection is empty", advice=f"Available: {_available(reports, origin_ns)}.{zero}"
        )
    findings = _absent_steps(selection, reports)
    if empty:
        message = f"Nothing is selected on {_available(empty, origin_ns)}."
        findings.append(Finding(Severity.WARNING, "nothing_selected", message, len(empty)))
    events, kept = sum(report.events for report in reports), sum(report.kept for report in reports)
    if events > kept:
        message = f"{events - kept:,} of {events:,} events are outside the selection."
        findings.append(Finding(Severity.INFO, "left_out", message, events - kept))
    return findings


def _absent_steps(selection: Selection, reports: Sequence[SelectionReport]) -> list[Finding]:
    there = _steps(reports)
    absent = selection.steps.without(there) if selection.steps else None
    if not absent:
        return []
    message = f"No rank has {absent.called('step')}; there are {there.called('step')}."
    return [Finding(Severity.WARNING, "no_such_step", message)]


def _available(reports: Sequence[SelectionReport], origin_ns: int | None) -> str:
    """Ranks 0-3 with steps 4-6, from 0.000000s to 2.500000s."""
    ranks, steps = Numbers.of(report.rank for report in reports), _steps(reports)
    marked = steps.called("step") if steps else "no annotation of a step"
    begun = [report.first_ns for report in reports if report.first_ns is not None]
    ended = [report.last_ns for report in reports if report.last_ns is not None]
    if origin_ns is None or not begun:
        return f"{ranks.called('rank')} with {marked} and no times"
    first, last = (min(begun) - origin_ns) / SECOND, (max(ended) - origin_ns) / SECOND
    return f"{ranks.called('rank')} with {marked}, from {first:.6f}s to {last:.6f}s"


def _steps(reports: Sequence[SelectionReport]) -> Numbers:
    return Numbers.of(number for report in reports for number in report.steps)


# Selection of a job: smaller parts, and tables with the rows of the smaller parts.

Table = TypeVar("Table", Collectives, Participations, Messages)


class CutPart(Struct, frozen=True):
    """The selected part of one rank, loaded on request."""

    rank: int
    store: Store
    graph: Stored[EventGraph]

    @property
    def worker(self) -> str:
        """The worker of a cluster that has it; empty if it is on this machine."""
        return self.graph.worker

    def load(self) -> EventGraph:
        """The selected graph."""
        return self.store.get(self.graph)


def cut(job: LinkedJob, selection: Selection, engine: Engine, store: Store) -> LinkedJob:
    """The selected events of every rank; what was matched stays matched."""
    referenced = referenced_rows(job)
    first_ns = job.first_ns or 0

    def work(part: Part) -> tuple[Stored[EventGraph], Int64s, SelectionReport, int | None]:
        rows, whole = referenced[part.rank], part.load()
        graph, kept = apply(selection, whole, first_ns, rows)
        return (
            store.put(graph, partial(_selected_again, selection, part, first_ns, rows)),
            _new_rows(kept, rows),
            SelectionReport.of(part.rank, whole, graph),
            graph.span[1],
        )

    results = engine.map(work, job.parts, shared=store.shared)
    new_rows = {part.rank: rows for part, (_, rows, *_) in zip(job.parts, results, strict=True)}
    reports = [report for _, _, report, _ in results]
    smaller = replace(
        job,
        parts=[
            CutPart(part.rank, store, graph) for part, (graph, *_) in zip(job.parts, results, strict=True)
        ],
        participations=renumbered_events(job.participations, referenced, new_rows),
        messages=renumbered_events(job.messages, referenced, new_rows),
        findings=[*job.findings, *selection_findings(selection, reports, job.first_ns)],
        last_ns=max((last for *_, last in results if last is not None), default=None),
        events=sum(report.kept for report in reports),
    )
    return without_unseen(smaller, shown=selection.keeps(COLLECTIVES))


def _selected_again(selection: Selection, part: Part, first_ns: int, rows: Int64s) -> EventGraph:
    """The selected part of a rank once more, because the machine that had it was lost."""
    return apply(selection, part.load(), first_ns, rows)[0]


def without_unseen(job: LinkedJob, *, shown: bool = True) -> LinkedJob:
    """The job without collectives and messages that have no event left; without all of them, unless `shown`."""
    parts, messages = job.participations, job.messages
    left = _seen(parts)
    seen = np.zeros(len(job.collectives), np.bool_)
    seen[parts.collective[left & shown]] = True
    participations = parts.take(seen[parts.collective])
    place = np.cumsum(seen) - 1
    return replace(
        job,
        collectives=job.collectives.take(seen),
        participations=replace(participations, collective=place[participations.collective]),
        messages=messages.take(_seen(messages) & shown),
    )


def _seen(table: Participations | Messages) -> Bools:
    """Mask of the rows with at least one event."""
    seen: Bools = np.any([getattr(table, name) != UNKNOWN for name in table.event_columns()], axis=0)
    return seen


def _new_rows(kept: Int64s, rows: Int64s) -> Int64s:
    """Index of each of `rows` among the kept rows, or UNKNOWN."""
    place = np.searchsorted(kept, rows)
    found = np.append(kept, UNKNOWN)[place] == rows
    return np.where(found, place, UNKNOWN)
