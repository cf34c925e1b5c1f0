"""Sources to linked ranks: each rank is read and linked by one worker, and its graph is stored outside of memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Source
from tracelink._io.spool import KeptStore, Store, Stored
from tracelink._join.reading import (
    Task,
    assigned_ranks,
    by_rank,
    check_duplicates,
    declared_rank,
    import_readers,
    nothing_readable,
    read,
    tasks_of,
)
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._match.groups import names_by_backend, with_suffix
from tracelink._match.job import StoredCalls
from tracelink._match.outlines import with_common_texts
from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Calls, RankCalls
from tracelink._model.errors import UnreadableError, UsageError
from tracelink._model.events import Key, KeyColumn
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.graph import EventGraph, LinkReport, Rank, source_bounds
from tracelink._model.selection import Numbers
from tracelink._model.trace import RankTrace, SourceInfo, combine
from tracelink._run.processes import Processes
from tracelink.plugins import Content

if TYPE_CHECKING:
    from tracelink._model.metrics import Metrics

BATCH_BYTES = 8 << 20
BATCH_RANKS = 32
"""Small sources are read many by one worker: a process for each would cost more than the reading."""

ALL_RANKS = Numbers()


class StoredRank(Struct, frozen=True):
    """A rank whose graph is in the store, on the clock of the rank."""

    sources: Sequence[SourceInfo]
    calls: StoredCalls
    graph: Stored[EventGraph] | None
    events: int
    first_ns: int | None
    last_ns: int | None
    findings: Sequence[Finding] = ()
    reports: Sequence[LinkReport] = ()
    devices: frozenset[str] = frozenset()
    """Numbers of the GPUs on which it ran kernels."""
    metrics: Sequence[tuple[SourceInfo, Stored[RankTrace]]] = ()
    """Sampled metrics of the rank, whose graph is without them."""

    @property
    def rank(self) -> int:
        """The number of the rank."""
        return self.calls.rank

    @property
    def all_sources(self) -> list[SourceInfo]:
        """Its sources, then those of its metrics."""
        return [*self.sources, *(info for info, _ in self.metrics)]


class StoredRanks(Struct, frozen=True):
    """All ranks, sorted, and what did not fit."""

    ranks: Sequence[StoredRank]
    store: Store
    findings: Sequence[Finding]


class _Unassigned(Struct, frozen=True):
    """A trace whose rank is not known before all sources are read."""

    info: SourceInfo
    trace: Stored[RankTrace]
    task: Task

    @property
    def tasks(self) -> Sequence[Task]:
        """The task of its source."""
        return [self.task]


class _Group(Struct):
    """The result of a worker for sources that seemed to be of one rank: the rank if they are, else their traces."""

    tasks: Sequence[Task]
    rank: StoredRank | None = None
    unassigned: list[_Unassigned] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    reused: bool = False
    """Whether an earlier run had read them."""

    @property
    def infos(self) -> Sequence[SourceInfo]:
        """The sources that could be read."""
        return self.rank.sources if self.rank else [trace.info for trace in self.unassigned]


class _RankReader(Struct, frozen=True):
    """Reads and links ranks, and stores their graphs if their events are requested."""

    engine: Engine
    store: Store
    with_events: bool
    kept: KeptStore | None = None
    """The same store, if finished ranks are kept."""

    def read_groups(self, groups: Sequence[Sequence[Task]]) -> list[_Group]:
        """Reads and links groups of sources that seem to be of one rank."""
        batches = _batches(groups)
        outer, inner = self.engine.split(len(batches))
        shared = [task.source for group in groups for task in group]
        import_readers(list(chain.from_iterable(groups)))

        def work(batch: Sequence[Sequence[Task]]) -> list[_Group]:
            if not self.kept:
                return self._read_batch(batch, inner)
            groups, reused = self.kept.once(_key_of(batch, self), partial(self._read_batch, batch, inner))
            return [replace(group, reused=reused) for group in groups]

        return list(chain.from_iterable(outer.map(work, batches, shared=shared)))

    def _read_batch(self, batch: Sequence[Sequence[Task]], engine: Engine) -> list[_Group]:
        return self._outlines_stored([self._read_group(group, engine) for group in batch])

    def _read_group(self, tasks: Sequence[Task], engine: Engine) -> _Group:
        group = _Group(tasks)
        traces: list[RankTrace] = []
        read_tasks: list[Task] = []
        for task in tasks:
            result = read(task, engine)
            if isinstance(result, Finding):
                group.findings.append(result)
                continue
            rank = declared_rank(result.source, task.source, group.findings)
            traces.append(result if rank is None else result.with_rank(rank))
            read_tasks.append(task)
        ranks = {trace.source.rank for trace in traces}
        if len(ranks) == 1 and None not in ranks:
            group.rank = self.link(traces, tasks)
        else:
            group.unassigned = [
                _Unassigned(trace.source, self.store.put(trace, partial(_read_again, task)), task)
                for trace, task in zip(traces, read_tasks, strict=True)
            ]
        return group

    def _outlines_stored(self, groups: Sequence[_Group]) -> list[_Group]:
        """The groups, with the outlines of their ranks stored together: ranks have many texts in common."""
        outlines = with_common_texts([group.rank.calls.outline for group in groups if group.rank])
        ticket = self.store.put({outline.rank: outline for outline in outlines})
        return [
            replace(group, rank=replace(group.rank, calls=replace(group.rank.calls, outlines=ticket)))
            if group.rank
            else group
            for group in groups
        ]

    def link(self, traces: Sequence[RankTrace], tasks: Sequence[Task] = ()) -> StoredRank:
        """Links the traces of one rank, which were read from these sources."""
        linked, findings = _linked(traces)
        graph = graph_of_rank(linked)
        rank = graph.ranks[0].rank
        first_ns, last_ns = graph.span
        return StoredRank(
            graph.sources,
            StoredCalls.of(_calls_of(linked, graph), self.store, partial(_calls_again, tasks, rank)),
            self.store.put(graph, partial(_graph_again, tasks, rank)) if self.with_events else None,
            len(graph),
            first_ns,
            last_ns,
            [*linked.trace.findings, *linked.findings, *findings],
            linked.reports,
            linked.trace.devices,
        )

    def without_events(self, info: SourceInfo) -> StoredRank:
        """A rank of which there are only metrics."""
        rank = self.link([RankTrace([info])])
        graph = rank.graph and self.store.put(replace(self.store.get(rank.graph), sources=[], bounds=[0]))
        return replace(rank, sources=(), graph=graph)


def _key_of(batch: Sequence[Sequence[Task]], rank_reader: _RankReader) -> str:
    """What finished work on sources is kept under: the same only for the same files, read in the same way."""
    read: list[object] = [rank_reader.with_events]
    for group in batch:
        for task in group:
            source = task.source
            given = (source.format, source.rank, source.prefix_rank, source.limit, sorted(source.include))
            stamp = source.stamp or os.urandom(16)  # standard input is another one each time
            read.append((task.format, task.likely_rank, source.path, source.bytes, given, stamp))
        read.append("")
    return hashlib.blake2b(repr(read).encode(), digest_size=16).hexdigest()


def _linked(traces: Sequence[RankTrace]) -> tuple[LinkedRank, list[Finding]]:
    """The traces of one rank, linked, without those that are derived from others of them."""
    originals, findings = without_derived(traces)
    if sum(bool(trace.source.recorder) for trace in originals) > 1:
        originals = _with_groups_of_recorders(originals)
    ordered = sorted(originals, key=lambda trace: trace.source.start_ns or 0)
    return link_rank(combine(ordered)), findings


def _read_again(task: Task) -> RankTrace:
    """The trace of a source once more, because the machine that had read it was lost."""
    trace = read(task, Processes(1))
    if isinstance(trace, Finding):
        raise UnreadableError(trace.message.rstrip("."), advice="Run the command again.")
    return trace


def _graph_again(tasks: Sequence[Task], rank: int) -> EventGraph:
    """The graph of a rank once more."""
    return graph_of_rank(_linked_again(tasks, rank))


def _calls_again(tasks: Sequence[Task], rank: int) -> RankCalls:
    """The calls of a rank once more."""
    linked = _linked_again(tasks, rank)
    return _calls_of(linked, graph_of_rank(linked))


def _linked_again(tasks: Sequence[Task], rank: int) -> LinkedRank:
    traces = [trace for task in tasks if isinstance(trace := read(task, Processes(1)), RankTrace)]
    return _linked([trace.with_rank(rank) for trace in traces])[0]


class FoundTasks(Struct, frozen=True):
    """The tasks of a discovery, and findings on its other sources."""

    tasks: Sequence[Task]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, discovery: Discovery) -> FoundTasks:
        """The reader of each source."""
        findings = list(discovery.findings)
        return cls(tasks_of(discovery, findings), findings)


def read_ranks(
    discovery: Discovery,
    engine: Engine,
    *,
    wanted: Numbers = ALL_RANKS,
    with_events: bool = True,
    found: FoundTasks | None = None,
    kept: KeptStore | None = None,
) -> StoredRanks:
    """Reads and links all sources of the wanted ranks (all ranks if it is empty).

    `found` are the tasks if known; finished ranks are kept in `kept`, and those that it has are not read again.
    """
    found = found or FoundTasks.of(discovery)
    findings = list(found.findings)
    tasks = by_rank(found.tasks, engine, findings)
    sampled = [task for task in tasks if task.content is Content.METRICS]
    groups = _groups([task for task in tasks if task not in sampled and _is_selected(task, wanted)])
    shared = _shared(discovery, tasks)
    of_ranks = kept.of(shared) if kept else None
    store = of_ranks or engine.store(shared, in_memory=len(groups) < 2)
    rank_reader = _RankReader(engine, store, with_events, of_ranks)
    read_groups = rank_reader.read_groups(groups)
    if kept:
        kept.reused = sum(group.reused for group in read_groups)
    findings += [finding for group in read_groups for finding in group.findings]
    infos = [info for group in read_groups for info in group.infos]
    if not infos and not sampled and not (wanted and tasks):
        raise nothing_readable(findings, discovery.paths)
    ranks = assigned_ranks(infos, findings)
    infos = [replace(info, rank=rank) for info, rank in zip(infos, ranks, strict=True)]
    known = sorted({info.rank for info in infos if info.rank is not None})
    chosen = [rank for rank in known if not wanted or rank in wanted]
    check_duplicates([info for info in infos if info.rank in chosen])
    completed = _completed(rank_reader, read_groups, infos, chosen)
    if sampled:
        completed = _with_metrics(completed, sampled, rank_reader, discovery.metrics, findings)
        completed = [rank for rank in completed if not wanted or rank.rank in wanted]
        if not completed and not wanted:
            raise nothing_readable(findings, discovery.paths)
        known = sorted({*known, *(rank.rank for rank in completed)})
    if missing := wanted.without(known):
        raise _unknown_rank(missing, known, tasks)
    return StoredRanks(completed, store, findings)


def chosen_ranks(stored: StoredRanks, wanted: Numbers) -> StoredRanks:
    """The wanted ones of ranks that were read, all if it is empty; raises `UsageError` if one is missing."""
    if not wanted:
        return stored
    known = [rank.rank for rank in stored.ranks]
    if missing := wanted.without(known):
        raise _unknown_rank(missing, known, ())
    ranks = [rank for rank in stored.ranks if rank.rank in wanted]
    return StoredRanks(ranks, stored.store, stored.findings)


def _with_metrics(
    ranks: Sequence[StoredRank],
    tasks: Sequence[Task],
    rank_reader: _RankReader,
    options: Metrics | None,
    findings: list[Finding],
) -> list[StoredRank]:
    """The ranks with their metrics, and ranks that only have metrics."""
    from tracelink._join.metric_times import Witness
    from tracelink._join.metrics import placed, read_metrics

    witnesses = [
        Witness.of(rank.rank, rank.sources, rank.devices, rank.first_ns, rank.last_ns) for rank in ranks
    ]
    traces, found = placed(read_metrics(tasks, rank_reader.engine, findings), witnesses, options)
    findings += found
    by_rank = {rank.rank: rank for rank in ranks}
    for trace in traces:
        info = trace.source
        number = info.rank or 0
        rank = by_rank.get(number) or rank_reader.without_events(info)
        firsts, lasts = (
            [time for time in times if time is not None]
            for times in ((rank.first_ns, info.start_ns), (rank.last_ns, info.end_ns))
        )
        by_rank[number] = replace(
            rank,
            first_ns=min(firsts, default=None),
            last_ns=max(lasts, default=None),
            metrics=[*rank.metrics, (info, rank_reader.store.put(trace))],
        )
    return [by_rank[number] for number in sorted(by_rank)]


def _shared(discovery: Discovery, tasks: Sequence[Task]) -> list[Source]:
    """All sources, including those that files were unpacked into."""
    sources = {id(source): source for source in (*discovery.sources, *(task.source for task in tasks))}
    return list(sources.values())


def _completed(
    rank_reader: _RankReader, groups: Sequence[_Group], infos: Sequence[SourceInfo], chosen: Sequence[int]
) -> list[StoredRank]:
    """The chosen ranks; those with sources in several groups are linked now that all ranks are known."""
    rank_of = {info.path: info.rank for info in infos}
    parts_of_rank: dict[int, list[_Unassigned | _Group]] = {}
    for group in groups:
        if group.rank:
            parts_of_rank.setdefault(group.rank.rank, []).append(group)
        for trace in group.unassigned:
            rank = rank_of[trace.info.path]
            if rank is not None:
                parts_of_rank.setdefault(rank, []).append(trace)
    completed = []
    for rank in chosen:
        match parts_of_rank[rank]:
            case [_Group(rank=StoredRank() as linked)]:
                completed.append(linked)
            case parts:
                traces = list(chain.from_iterable(_traces(rank_reader, part) for part in parts))
                tasks = [task for part in parts for task in part.tasks]
                completed.append(rank_reader.link([trace.with_rank(rank) for trace in traces], tasks))
    return completed


def _traces(rank_reader: _RankReader, part: _Unassigned | _Group) -> Iterable[RankTrace]:
    """The traces of a part of a rank; a group that was linked too early is read again."""
    if isinstance(part, _Unassigned):
        return [rank_reader.store.get(part.trace)]
    again = [read(task, rank_reader.engine) for task in part.tasks]
    return [trace for trace in again if isinstance(trace, RankTrace)]


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Tasks by the rank that they seem to be of; a task without a likely rank is alone, or with the only rank."""
    groups: dict[int | str, list[Task]] = {}
    ranks = {task.likely_rank for task in tasks if task.likely_rank is not None}
    if len(ranks) < 2:
        formats = [task.format for task in tasks]
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


def _is_selected(task: Task, wanted: Numbers) -> bool:
    return not wanted or task.likely_rank is None or task.likely_rank in wanted


def _unknown_rank(missing: Numbers, known: Sequence[int], tasks: Sequence[Task]) -> UsageError:
    there = Numbers.of([*known, *(task.likely_rank for task in tasks if task.likely_rank is not None)])
    return UsageError(
        f"there is no rank {missing}",
        advice=f"The inputs are of {there.called('rank') if there else 'unknown ranks'}.",
    )


def _calls_of(linked: LinkedRank, graph: EventGraph) -> RankCalls:
    """The calls, with only the strings that they use."""
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
        any(finding.reason == Truncated.reason for finding in linked.trace.findings),
        linked.trace.round_trips,
    )


def without_derived(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[Finding]]:
    """The traces of a rank without those that are derived from others of them, which would be duplicates."""
    formats = {source.format for trace in traces for source in trace.sources}
    findings = [
        Finding(
            Severity.INFO,
            "duplicate_source",
            f"{trace.source.path}: skipped, the {min(trace.derived_from & formats)} file of rank {trace.source.rank} "
            "has the same events. To read this one, leave that one out.",
            source=trace.source.path,
        )
        for trace in traces
        if trace.derived_from & formats
    ]
    return [trace for trace in traces if not trace.derived_from & formats], findings


# Several recorders of one rank: their groups are different, even if they have the same name.


def _with_groups_of_recorders(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """The traces of one rank; a group that several backends use is a group for each backend."""
    suffixes = names_by_backend(trace.source.recorder for trace in traces)
    return [
        _renamed(
            trace,
            {
                group.partition(":")[2]: suffixes[group]
                for group in trace.source.recorder
                if group in suffixes
            },
        )
        for trace in traces
    ]


def _renamed(trace: RankTrace, added: Mapping[str, str]) -> RankTrace:
    if not added:
        return trace
    codes = np.arange(len(trace.strings) + 1, dtype=np.int32)
    codes[-1] = UNKNOWN
    for name, suffix in added.items():
        if (code := trace.strings.find(name)) != UNKNOWN:
            codes[code] = trace.strings[f"{name}{suffix}"]
    group = trace.key(Key.GROUP)
    return replace(
        trace,
        keys=trace.keys | {Key.GROUP: KeyColumn(group.rows, codes[group.values].astype(np.int64))},
        communications=replace(trace.communications, group=codes[trace.communications.group]),
        groups=[with_suffix(group, added.get(group.name, "")) for group in trace.groups],
        tracks=[
            replace(
                track,
                identity=f"{track.identity}{added.get(track.identity, '')}",
                label=f"{track.label}{added.get(track.identity, '')}",
            )
            for track in trace.tracks
        ],
    )


def graph_of_rank(linked: LinkedRank) -> EventGraph:
    """The graph of one rank on its own clock, without what depends on other ranks."""
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
