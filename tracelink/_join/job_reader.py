"""Sources to a job (ranks read, matched with each other, on one clock, selected), and a job to one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Paths
from tracelink._io.spool import KeptStore, Store, Stored
from tracelink._join.ranks import (
    ALL_RANKS,
    FoundTasks,
    StoredRank,
    StoredRanks,
    chosen_ranks,
    read_ranks,
)
from tracelink._join.reading import (
    Recording,
    Task,
    attempted,
    nothing_readable,
    two_jobs_findings,
)
from tracelink._match.clock import clock_choice
from tracelink._match.job import JobTables, link_ranks
from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.columns import StringTable
from tracelink._model.errors import UsageError
from tracelink._model.events import Counters, Edges, Track
from tracelink._model.findings import Finding, Severity, in_order
from tracelink._model.graph import EventGraph, Rank, source_bounds
from tracelink._model.job import LinkedJob, shifted_to_graph
from tracelink._model.selection import Numbers, Selection
from tracelink._model.trace import ProcessGroup, RankTrace, combine
from tracelink._run.reading import ReadOptions, engine_of, inputs_of, selection_of
from tracelink.plugins import Content


class Reading(Struct, frozen=True):
    """What is read, which part of it, on which clock, and where the work runs."""

    discovery: Discovery
    engine: Engine
    clock: ClockMode | Clocks = ClockMode.HOST
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def of(cls, paths: Paths, options: ReadOptions) -> Reading:
        """Returns what the keywords of a function ask for.

        Args:
            paths: Files, directories, globs and archives.
            options: The keywords of the function.

        Raises:
            UsageError: A path does not exist, or an option is invalid.
            TypeError: There is no such option.
        """
        clock = clock_choice(options.get("clock", ClockMode.HOST))
        selection = selection_of(options)
        return cls(inputs_of(paths, options), engine_of(options), clock, selection)

    @property
    def wanted(self) -> Numbers:
        """The ranks that are read; all if it is empty."""
        return self.selection.ranks or ALL_RANKS

    def with_all_steps(self) -> Reading:
        """The same without a selection of steps, for answers that take the steps themselves."""
        chosen = self.selection
        return replace(self, selection=Selection(chosen.ranks, chosen.window, None, chosen.only))


class Recorded(Struct, frozen=True):
    """What was read of the inputs: ranks before they are matched with each other, or a whole job."""

    wanted: Numbers
    store: Store
    ranks: StoredRanks | None = None
    whole: LinkedJob | None = None

    def has(self, wanted: Numbers) -> bool:
        """True if a job of these ranks can be made of it as if only they had been read."""
        if self.whole:
            return self.wanted == wanted
        return not self.wanted or bool(wanted and not wanted.without(self.wanted))

    @classmethod
    def of_graph(cls, graph: EventGraph, engine: Engine) -> Recorded:
        """A graph in memory, which is a whole job."""
        return cls(ALL_RANKS, engine.store((), in_memory=True), whole=LinkedJob.of(graph))


def read_job(
    reading: Reading,
    *,
    with_events: bool = True,
    kept: KeptStore | None = None,
    recorded: Recorded | None = None,
) -> LinkedJob:
    """Reads what is wanted of the inputs, matches ranks, puts them on one clock, and selects.

    Args:
        reading: The inputs, the part that is wanted, the clock and the engine.
        with_events: False for a job without events, which needs less memory.
        kept: Where finished ranks are kept, so that another run goes on with them.
        recorded: What was read before of the same inputs; nothing is read again.

    Raises:
        UsageError: There is no such rank.
        UnreadableError: No source can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
    """
    recorded = recorded or record(reading, with_events=with_events, kept=kept)
    engine, store, selection = reading.engine, recorded.store, reading.selection
    if recorded.whole:
        job = recorded.whole
    else:
        assert recorded.ranks
        stored = chosen_ranks(recorded.ranks, reading.wanted)
        job = _job(stored, link_ranks([rank.calls for rank in stored.ranks], engine, store, reading.clock))
    if not selection.cuts or not with_events:
        return job
    from tracelink._join.selection import cut

    return cut(job, selection, engine, store)


def record(reading: Reading, *, with_events: bool = True, kept: KeptStore | None = None) -> Recorded:
    """Reads and links each wanted rank by itself; `read_job` matches them."""
    wanted, engine = reading.wanted, reading.engine
    found, whole = separated(FoundTasks.of(reading.discovery))
    if whole:
        job = _read_whole(whole, found.findings, engine, wanted, reading.clock)
        return Recorded(wanted, engine.store((), in_memory=len(job.parts) < 2), whole=job)
    ranks = read_ranks(
        reading.discovery, engine, wanted=wanted, with_events=with_events, found=found, kept=kept
    )
    return Recorded(wanted, ranks.store, ranks=ranks)


def separated(found: FoundTasks) -> tuple[FoundTasks, Task | None]:
    """The tasks without those that contain whole jobs, and the only one of these if there is nothing else.

    Raises `UsageError` if there are several, or one next to other inputs that the user named it with.
    """
    whole = [task for task in found.tasks if task.content is Content.JOB]
    if not whole:
        return found, None
    others = [task for task in found.tasks if task not in whole]
    if len(whole) == 1 and not others:
        return FoundTasks((), found.findings), whole[0]
    paths = [task.source.path for task in whole if task.source.named or not others]
    if paths:
        rest = f" and {others[0].source.path}" if others else f" and {paths[1]}" if len(paths) > 1 else ""
        raise UsageError(
            f"{paths[0]}{rest} cannot be read together: the first contains a whole job, linked and on one clock",
            advice="Name one of them, or merge the original traces of both.",
        )
    skipped = [_skipped(task) for task in whole]
    return FoundTasks(others, [*found.findings, *skipped]), None


def _skipped(task: Task) -> Finding:
    message = (
        f"{task.source.path}: skipped, it contains a whole job, and there are traces next to it. "
        "To read it, name only it."
    )
    return Finding(Severity.INFO, "whole_job", message, source=task.source.path)


def _read_whole(
    task: Task, findings: Sequence[Finding], engine: Engine, wanted: Numbers, clock: ClockMode | Clocks
) -> LinkedJob:
    """The job of a source that contains a whole one."""
    if clock != ClockMode.HOST:
        raise UsageError(
            f"{task.source.path} is on one clock already, which cannot be changed",
            advice="Merge the original traces again with this --clock.",
        )
    job = attempted(task, lambda: task.reader.read_job(task.source, engine, wanted))
    if isinstance(job, Finding):
        raise nothing_readable([job])
    return replace(job, findings=in_order([*findings, *job.findings]))


def _job(stored: StoredRanks, tables: JobTables) -> LinkedJob:
    clock_of = tables.clocks.by_rank
    ranks = [Rank.with_clock(clock_of[rank.rank], rank.calls.world_size) for rank in stored.ranks]
    parts = [
        StoredPart(
            row,
            clock_of[row.rank],
            tables.groups,
            stored.store,
            rank.graph,
            [trace for _, trace in rank.metrics],
        )
        for row, rank in zip(ranks, stored.ranks, strict=True)
    ]
    tracks, samples = _metrics(stored, tables)
    findings = [*stored.findings, *(finding for rank in stored.ranks for finding in rank.findings)]
    if tracks:
        from tracelink._join.deviations import deviating

        findings += deviating(tracks, samples, _span_of_events(stored, tables))
    clocks = [clock_of[rank.rank] for rank in stored.ranks]
    firsts, lasts = (
        [clock.corrected_time(time) for clock, time in zip(clocks, times, strict=True) if time is not None]
        for times in (
            [rank.first_ns for rank in stored.ranks],
            [rank.last_ns for rank in stored.ranks],
        )
    )
    return LinkedJob(
        parts=parts,
        ranks=ranks,
        sources=[source for rank in stored.ranks for source in rank.all_sources],
        strings=tables.strings,
        groups=tables.groups,
        collectives=tables.collectives,
        participations=tables.participations,
        messages=tables.messages,
        findings=in_order([*findings, *tables.findings, *_job_findings(ranks, stored.ranks)]),
        reports={rank.rank: rank.reports for rank in stored.ranks},
        first_ns=min(firsts, default=None),
        last_ns=max(lasts, default=None),
        events=sum(rank.events for rank in stored.ranks),
        metrics=samples,
        metric_tracks=tracks,
    )


def _metrics(stored: StoredRanks, tables: JobTables) -> tuple[list[Track], Counters]:
    """The metrics of all ranks on the reference clock."""
    tracks: list[Track] = []
    parts = []
    clock_of = tables.clocks.by_rank
    for rank in stored.ranks:
        clock = clock_of[rank.rank]
        for _, ticket in rank.metrics:
            trace = stored.store.get(ticket)
            samples = trace.counters
            time, track = clock.corrected(samples.time), samples.track + np.int32(len(tracks))
            parts.append(replace(samples, time=time, track=track))
            tracks += trace.tracks
    return tracks, Counters.concatenate(parts)


def _span_of_events(stored: StoredRanks, tables: JobTables) -> tuple[int, int] | None:
    """The first and the last time of all sources but metrics, on the reference clock."""
    clock_of = tables.clocks.by_rank
    times = [
        clock_of[rank.rank].corrected_time(time)
        for rank in stored.ranks
        for info in rank.sources
        for time in (info.start_ns, info.end_ns)
        if time is not None
    ]
    return (min(times), max(times)) if times else None


def _job_findings(ranks: Sequence[Rank], stored: Sequence[StoredRank]) -> list[Finding]:
    return [*_missing_ranks(ranks), *two_jobs_findings(_recordings(stored), "Merge each by itself.")]


def _missing_ranks(ranks: Sequence[Rank]) -> list[Finding]:
    sizes = {rank.world_size for rank in ranks if rank.world_size}
    if len(sizes) > 1:
        message = (
            f"The sources disagree on the world size: {', '.join(map(str, sorted(sizes)))}. Is this one job?"
        )
        return [Finding(Severity.WARNING, "world_size", message, len(sizes))]
    size = max(sizes, default=0)
    present = {rank.rank for rank in ranks if rank.rank < size}
    if len(present) == size:
        return []
    missing = Numbers(((0, size - 1),)).without(present)
    some = ", ".join(str(missing).split(", ")[:8]) + (", …" if len(missing.ranges) > 8 else "")
    count = size - len(present)
    return [
        Finding(Severity.INFO, "missing_ranks", f"{count} of {size} ranks have no source: {some}.", count)
    ]


def _recordings(ranks: Sequence[StoredRank]) -> list[Recording]:
    """When each rank was recorded."""
    spans = []
    for rank in ranks:
        times = [(info.start_ns, info.end_ns) for info in rank.sources if info.start_ns and info.end_ns]
        if times:
            spans.append((min(start for start, _ in times), max(end for _, end in times), rank.rank))
    return spans


# A job to one graph.


class StoredPart(Struct, frozen=True):
    """A rank whose graph is stored on its own clock, and put on the reference clock when it is loaded."""

    row: Rank
    clock: Clock
    groups: Sequence[ProcessGroup]
    store: Store
    graph: Stored[EventGraph] | None
    metrics: Sequence[Stored[RankTrace]] = ()

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.row.rank

    @property
    def worker(self) -> str:
        """The worker of a cluster that has it; empty if it is on this machine."""
        return self.graph.worker if self.graph else ""

    def load(self) -> EventGraph:
        """The rank's graph on the reference clock."""
        if self.graph is None:
            raise ValueError("this job was read without its events")
        graph = self.store.get(self.graph)
        if self.metrics:
            graph = _with_samples(graph, [self.store.get(trace) for trace in self.metrics])
        events, counters = graph.events, graph.counters
        start = self.clock.corrected(events.start)
        if start is not events.start:
            end = self.clock.corrected(events.end)
            duration = np.where(events.timed & (events.duration >= 0), end - start, events.duration)
            events = replace(events, start=start, duration=duration)
            counters = replace(counters, time=self.clock.corrected(counters.time))
        return replace(graph, events=events, counters=counters, ranks=[self.row], groups=self.groups)


def _with_samples(graph: EventGraph, traces: Sequence[RankTrace]) -> EventGraph:
    """The graph of a rank with the counters of traces that have no events."""
    tracks, counters = list(graph.tracks), [graph.counters]
    for trace in traces:
        samples = trace.counters
        counters.append(replace(samples, track=samples.track + np.int32(len(tracks))))
        tracks += trace.tracks
    sources = [*graph.sources, *(trace.source for trace in traces)]
    return replace(
        graph,
        tracks=tracks,
        counters=Counters.concatenate(counters),
        sources=sources,
        bounds=source_bounds(graph.events.source, len(sources)),
        payloads=[*graph.payloads, *(payloads for trace in traces for payloads in trace.payloads)],
    )


def assemble(job: LinkedJob) -> EventGraph:
    """One graph of all ranks in memory: rows renumbered, edges between ranks included."""
    graphs = [part.load() for part in job.parts]
    whole = combine([_trace(graph) for graph in graphs])
    offsets = np.cumsum([0, *(len(graph) for graph in graphs)]).tolist()
    rows = {
        part.rank: slice(begin, end)
        for part, begin, end in zip(job.parts, offsets[:-1], offsets[1:], strict=True)
    }
    edges = [graph.edges.shifted(begin) for graph, begin in zip(graphs, offsets, strict=False)]
    codes = whole.strings.absorb(job.strings)
    return EventGraph(
        strings=whole.strings.texts(),
        events=whole.events,
        edges=Edges.concatenate([*edges, *_ties(job, rows)]),
        tracks=whole.tracks,
        ranks=job.ranks,
        sources=whole.sources,
        bounds=source_bounds(whole.events.source, len(whole.sources)),
        keys=whole.keys,
        counters=whole.counters,
        groups=job.groups,
        collectives=job.collectives.recoded(codes),
        participations=shifted_to_graph(job.participations.recoded(codes), rows),
        messages=shifted_to_graph(job.messages.recoded(codes), rows),
        payloads=whole.payloads,
        findings=job.findings,
        reports=job.reports,
    )


def _ties(job: LinkedJob, rows: Mapping[int, slice]) -> list[Edges]:
    """The edges between ranks: from effect to cause, like all edges that explain a wait."""
    ties = job.ties
    if not len(ties):
        return []
    first = np.zeros(max(rows) + 1, np.int64)
    for rank, span in rows.items():
        first[rank] = span.start
    source, target = ties.effect + first[ties.effect_rank], ties.cause + first[ties.cause_rank]
    return [Edges(source, target, ties.relation.astype(np.uint8))]


def _trace(graph: EventGraph) -> RankTrace:
    return RankTrace(
        sources=list(graph.sources),
        strings=StringTable.of(graph.strings),
        events=graph.events,
        tracks=list(graph.tracks),
        keys=dict(graph.keys),
        counters=graph.counters,
        payloads=list(graph.payloads),
    )
