"""Sources to linked ranks (a worker each), ranks to a job, a job to a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UsageError, in_order
from tracelink.io.sources import Discovery, Source
from tracelink.io.spool import Store, Stored
from tracelink.linking.job import JobTables, link_ranks
from tracelink.linking.rank import LinkedRank, link_rank
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN, StringTable
from tracelink.model.communications import Calls
from tracelink.model.events import Edges
from tracelink.model.graph import EventGraph, LinkReport, Rank, source_bounds
from tracelink.model.job import Job, shifted_to_graph
from tracelink.model.ranges import Numbers
from tracelink.model.selection import Selection
from tracelink.model.trace import ProcessGroup, RankTrace, SourceInfo, combine
from tracelink.pipeline.reading import (
    Recording,
    Task,
    by_rank,
    check_duplicates,
    nothing_readable,
    placed,
    read,
    said_rank,
    tasks_of,
    two_jobs_findings,
)

# Linked ranks to graphs: of one rank, still on its own clock, and of a whole job.


def graph_of_rank(linked: LinkedRank) -> EventGraph:
    """A graph of one rank by its own clock, without anything that takes other ranks to know."""
    trace = linked.trace
    rank = next((source.rank for source in trace.sources if source.rank is not None), 0)
    host = next((source.host for source in trace.sources if source.host), "")
    world_size = next((source.world_size for source in trace.sources if source.world_size), None)
    return EventGraph(
        strings=trace.strings.texts(),
        events=trace.events,
        edges=linked.edges,
        tracks=trace.tracks,
        ranks=[Rank(rank, host, world_size)],
        sources=trace.sources,
        bounds=source_bounds(trace.events.source, len(trace.sources)),
        keys=trace.keys,
        counters=trace.counters,
        groups=trace.groups,
        payloads=trace.payloads,
        reports={rank: linked.reports},
    )


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A rank that is kept by its own clock, and put on the reference clock when it is loaded."""

    row: Rank
    clock: Clock
    groups: Sequence[ProcessGroup]
    keeper: Store
    place: Stored[EventGraph] | None

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.row.rank

    def load(self) -> EventGraph:
        """The rank's graph on the reference clock."""
        if self.place is None:
            raise ValueError("this job was read without its events")
        graph = self.keeper.get(self.place)
        events, counters = graph.events, graph.counters
        start = self.clock.corrected(events.start)
        if start is not events.start:
            end = self.clock.corrected(events.end)
            duration = np.where(events.timed & (events.duration >= 0), end - start, events.duration)
            events = replace(events, start=start, duration=duration)
            counters = replace(counters, time=self.clock.corrected(counters.time))
        return replace(graph, events=events, counters=counters, ranks=[self.row], groups=self.groups)


def assemble(job: Job) -> EventGraph:
    """One graph of all ranks in memory: rows renumbered, and what ties ranks together with them."""
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


def _ties(job: Job, rows: Mapping[int, slice]) -> list[Edges]:
    """The edges between ranks; like all edges that say why something waited, from effect to cause."""
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


# Sources that were made of others of the same rank: their events would stand twice.


def told_once(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[Finding]]:
    """The traces of a rank without those of which the origins are there too, and what to say of those."""
    formats = {source.format for trace in traces for source in trace.sources}
    findings = [
        Finding(
            Severity.INFO,
            "duplicate_source",
            f"{trace.source.path}: passed over, it was made of the {min(trace.derived_from & formats)} file of rank "
            f"{trace.source.rank}. To read it, leave that one out.",
            source=trace.source.path,
        )
        for trace in traces
        if trace.derived_from & formats
    ]
    return [trace for trace in traces if not trace.derived_from & formats], findings


# Sources to linked ranks: each rank is read and linked by one worker, and kept out of this process's memory.


BATCH_BYTES = 8 << 20
BATCH_RANKS = 32
"""Small sources are read many by one worker: a process for each would cost more than the reading."""

EVERY_RANK = Numbers()

TRUNCATED = "truncated"
"""Findings of readers that say that a source goes on where the file does not."""


@dataclass(frozen=True, slots=True)
class GatheredRank:
    """What this process knows of a rank whose events are kept elsewhere, still on the rank's own clock."""

    sources: Sequence[SourceInfo]
    calls: RankCalls
    graph: Stored[EventGraph] | None
    events: int
    first_ns: int | None
    last_ns: int | None
    findings: Sequence[Finding] = ()
    reports: Sequence[LinkReport] = ()

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.calls.rank


@dataclass(frozen=True, slots=True)
class Gathered:
    """All ranks, in order, and what did not fit."""

    ranks: Sequence[GatheredRank]
    keeper: Store
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class _Loose:
    """A trace that waits for others of its rank, which its worker could not know."""

    info: SourceInfo
    trace: Stored[RankTrace]


@dataclass(slots=True)
class _Answer:
    """What a worker has to say of sources that seemed to be of one rank: they are, or they lie loose."""

    tasks: Sequence[Task]
    rank: GatheredRank | None = None
    loose: list[_Loose] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def infos(self) -> Sequence[SourceInfo]:
        """The sources that could be read."""
        return self.rank.sources if self.rank else [loose.info for loose in self.loose]


@dataclass(frozen=True, slots=True)
class _Gathering:
    """How ranks are read: by whom, where they are kept, and whether their events are asked for at all."""

    engine: Engine
    keeper: Store
    with_events: bool

    def read_groups(self, groups: Sequence[Sequence[Task]]) -> list[_Answer]:
        """Reads and links what seems to belong together."""
        batches = _batches(groups)
        outer, inner = self.engine.split(len(batches))
        shared = [task.source for group in groups for task in group]

        def work(batch: Sequence[Sequence[Task]]) -> list[_Answer]:
            return [self._read_group(group, inner) for group in batch]

        return list(chain.from_iterable(outer.map(work, batches, shared=[*shared, *_readers(groups)])))

    def _read_group(self, tasks: Sequence[Task], engine: Engine) -> _Answer:
        answer = _Answer(tasks)
        traces: list[RankTrace] = []
        for task in tasks:
            result = read(task, engine)
            if isinstance(result, Finding):
                answer.findings.append(result)
                continue
            rank = said_rank(result.source, task.source)
            traces.append(result if rank is None else result.with_rank(rank))
        ranks = {trace.source.rank for trace in traces}
        if len(ranks) == 1 and None not in ranks:
            answer.rank = self.link(traces)
        else:
            answer.loose = [_Loose(trace.source, self.keeper.put(trace)) for trace in traces]
        return answer

    def link(self, traces: Sequence[RankTrace]) -> GatheredRank:
        """One rank out of its traces."""
        once, retold = told_once(traces)
        ordered = sorted(once, key=lambda trace: trace.source.start_ns or 0)
        linked = link_rank(combine(ordered))
        graph = graph_of_rank(linked)
        first_ns, last_ns = graph.span
        return GatheredRank(
            graph.sources,
            _calls_of(linked, graph),
            self.keeper.put(graph) if self.with_events else None,
            len(graph),
            first_ns,
            last_ns,
            [*linked.trace.findings, *linked.findings, *retold],
            linked.reports,
        )


def gather(
    discovery: Discovery, engine: Engine, *, wanted: Numbers = EVERY_RANK, with_events: bool = True
) -> Gathered:
    """Reads and links every source of the wanted ranks (all, where none are named)."""
    findings = list(discovery.findings)
    tasks = by_rank(tasks_of(discovery, findings), engine, findings)
    groups = _groups([task for task in tasks if _may_be_wanted(task, wanted)])
    keeper = Store(_shared(discovery, tasks), in_memory=len(groups) < 2)
    gathering = _Gathering(engine, keeper, with_events)
    answers = gathering.read_groups(groups)
    findings += [finding for answer in answers for finding in answer.findings]
    infos = [info for answer in answers for info in answer.infos]
    if not infos and not (wanted and tasks):
        raise nothing_readable(findings)
    ranks = placed(infos, findings)
    infos = [replace(info, rank=rank) for info, rank in zip(infos, ranks, strict=True)]
    known = sorted({info.rank for info in infos if info.rank is not None})
    chosen = [rank for rank in known if not wanted or rank in wanted]
    if missing := wanted.without(known):
        raise _no_such_rank(missing, known, tasks)
    check_duplicates([info for info in infos if info.rank in chosen])
    return Gathered(_completed(gathering, answers, infos, chosen), keeper, findings)


def _shared(discovery: Discovery, tasks: Sequence[Task]) -> list[Source]:
    """All sources, those too that files were unpacked into."""
    sources = {id(source): source for source in (*discovery.sources, *(task.source for task in tasks))}
    return list(sources.values())


def _completed(
    gathering: _Gathering, answers: Sequence[_Answer], infos: Sequence[SourceInfo], chosen: Sequence[int]
) -> list[GatheredRank]:
    """The chosen ranks; those whose sources lay in several groups are linked now that all are known."""
    rank_of = {info.path: info.rank for info in infos}
    whole: dict[int, GatheredRank] = {}
    scattered: dict[int, list[_Loose | _Answer]] = {}
    for answer in answers:
        if answer.rank:
            scattered.setdefault(answer.rank.rank, []).append(answer)
        for loose in answer.loose:
            rank = rank_of[loose.info.path]
            if rank is not None:
                scattered.setdefault(rank, []).append(loose)
    for rank in chosen:
        match scattered[rank]:
            case [_Answer(rank=GatheredRank() as linked)]:
                whole[rank] = linked
            case pieces:
                traces = list(chain.from_iterable(_traces(gathering, piece) for piece in pieces))
                whole[rank] = gathering.link([trace.with_rank(rank) for trace in traces])
    return [whole[rank] for rank in chosen]


def _traces(gathering: _Gathering, piece: _Loose | _Answer) -> Iterable[RankTrace]:
    """The traces of a piece; what was linked too early is read once more."""
    if isinstance(piece, _Loose):
        return [gathering.keeper.get(piece.trace)]
    again = [read(task, gathering.engine) for task in piece.tasks]
    return [trace for trace in again if isinstance(trace, RankTrace)]


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks that seem to be of one rank; a task of which nothing is known stands alone, or with the only rank."""
    groups: dict[int | str, list[Task]] = {}
    ranks = {task.likely_rank for task in tasks if task.likely_rank is not None}
    if len(ranks) < 2:
        formats = [task.reader.name for task in tasks]
        if len(set(formats)) == len(formats):
            return [list(tasks)] if tasks else []
    for task in tasks:
        key = task.source.path if task.likely_rank is None else task.likely_rank
        groups.setdefault(key, []).append(task)
    return list(groups.values())


def _batches(groups: Sequence[Sequence[Task]]) -> list[list[Sequence[Task]]]:
    batches: list[list[Sequence[Task]]] = []
    size = BATCH_BYTES
    for group in groups:
        if size >= BATCH_BYTES or len(batches[-1]) >= BATCH_RANKS:
            batches.append([])
            size = 0
        batches[-1].append(group)
        size += sum(task.source.bytes for task in group)
    return batches


def _readers(groups: Sequence[Sequence[Task]]) -> list[object]:
    """What tasks hold besides sources: it need not travel."""
    readers = {id(task.reader): task.reader for group in groups for task in group}
    return list(readers.values())


def _may_be_wanted(task: Task, wanted: Numbers) -> bool:
    return not wanted or task.likely_rank is None or task.likely_rank in wanted


def _no_such_rank(missing: Numbers, known: Sequence[int], tasks: Sequence[Task]) -> UsageError:
    there = Numbers.of([*known, *(task.likely_rank for task in tasks if task.likely_rank is not None)])
    return UsageError(f"there is no rank {missing}", advice=f"The inputs are of ranks {there or 'unknown'}.")


def _calls_of(linked: LinkedRank, graph: EventGraph) -> RankCalls:
    """The calls with only those texts that they use."""
    columns = [getattr(linked.calls, name) for name in Calls.text_columns()]
    used = np.unique(np.concatenate(columns)) if columns else np.empty(0, np.int32)
    used = used[used != UNKNOWN]
    codes = np.full(len(graph.strings), UNKNOWN, np.int32)
    codes[used] = np.arange(len(used))
    rank = graph.ranks[0]
    return RankCalls(
        rank.rank,
        [graph.strings[code] for code in used.tolist()],
        linked.calls.recoded(codes),
        linked.trace.groups,
        rank.host,
        rank.world_size,
        any(finding.reason == TRUNCATED for finding in linked.trace.findings),
    )


# Inputs to a job: ranks gathered, matched with each other, on one clock, and cut to what is asked for.


def read_job(
    discovery: Discovery,
    engine: Engine,
    *,
    clock: ClockMode | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
    with_events: bool = True,
) -> Job:
    """Everything that the inputs tell of one job; its events stay where the workers left them."""
    wanted = (selection.ranks if selection else None) or EVERY_RANK
    gathered = gather(discovery, engine, wanted=wanted, with_events=with_events)
    tables = link_ranks([rank.calls for rank in gathered.ranks], clock)
    job = _job(gathered, tables)
    if selection is None or not selection.cuts or not with_events:
        return job
    from tracelink.pipeline.selection import cut

    return cut(job, selection, engine, gathered.keeper)


def _job(gathered: Gathered, tables: JobTables) -> Job:
    ranks = [
        Rank.with_clock(tables.clocks.clocks[rank.rank], rank.calls.world_size) for rank in gathered.ranks
    ]
    parts = [
        KeptPart(row, tables.clocks.clocks[row.rank], tables.groups, gathered.keeper, rank.graph)
        for row, rank in zip(ranks, gathered.ranks, strict=True)
    ]
    findings = [*gathered.findings, *(finding for rank in gathered.ranks for finding in rank.findings)]
    clocks = [tables.clocks.clocks[rank.rank] for rank in gathered.ranks]
    firsts, lasts = (
        [clock.corrected_time(time) for clock, time in zip(clocks, times, strict=True) if time is not None]
        for times in (
            [rank.first_ns for rank in gathered.ranks],
            [rank.last_ns for rank in gathered.ranks],
        )
    )
    return Job(
        parts=parts,
        ranks=ranks,
        sources=[source for rank in gathered.ranks for source in rank.sources],
        strings=tables.strings,
        groups=tables.groups,
        collectives=tables.collectives,
        participations=tables.participations,
        messages=tables.messages,
        findings=in_order([*findings, *tables.findings, *_job_findings(ranks, gathered.ranks)]),
        reports={rank.rank: rank.reports for rank in gathered.ranks},
        first_ns=min(firsts, default=None),
        last_ns=max(lasts, default=None),
        events=sum(rank.events for rank in gathered.ranks),
    )


def _job_findings(ranks: Sequence[Rank], gathered: Sequence[GatheredRank]) -> list[Finding]:
    return [*_missing_ranks(ranks), *two_jobs_findings(_recordings(gathered), "Merge each by itself.")]


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


def _recordings(ranks: Sequence[GatheredRank]) -> list[Recording]:
    """When each rank was recorded."""
    spans = []
    for rank in ranks:
        times = [(info.start_ns, info.end_ns) for info in rank.sources if info.start_ns and info.end_ns]
        if times:
            spans.append((min(start for start, _ in times), max(end for _, end in times), rank.rank))
    return spans
