"""Sources to linked ranks: each rank is read and linked by one worker, and kept out of this process's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from tracelink.assembly import graph_of_rank
from tracelink.assignment import check_duplicates, placed, said_rank
from tracelink.collectives import RankCalls
from tracelink.communications import CALL_TEXTS, UNKNOWN
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.findings import Finding
from tracelink.graph import EventGraph
from tracelink.keeping import Keeper, Place
from tracelink.linking.report import LinkReport
from tracelink.linking.within import LinkedRank, link_rank
from tracelink.ranges import Numbers
from tracelink.reading import Task, by_rank, nothing_readable, read, tasks_of
from tracelink.retelling import told_once
from tracelink.sources import Discovery, Source
from tracelink.trace import RankTrace, SourceInfo, combine

BATCH_BYTES = 8 << 20
BATCH_RANKS = 32
"""Small sources are read many by one worker: a process for each would cost more than the reading."""

EVERY_RANK = Numbers()

BROKEN_OFF = frozenset({"cut_off", "truncated"})
"""Findings of readers that say that a source goes on where the file does not."""


@dataclass(frozen=True, slots=True)
class GatheredRank:
    """What this process knows of a rank whose events are kept elsewhere, still on the rank's own clock."""

    sources: Sequence[SourceInfo]
    calls: RankCalls
    graph: Place[EventGraph] | None
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
    keeper: Keeper
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class _Loose:
    """A trace that waits for others of its rank, which its worker could not know."""

    info: SourceInfo
    trace: Place[RankTrace]


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
    keeper: Keeper
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
            traces.append(result if rank is None else result.said_to_be_of(rank))
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
    keeper = Keeper(_shared(discovery, tasks), in_memory=len(groups) < 2)
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
                whole[rank] = gathering.link([trace.said_to_be_of(rank) for trace in traces])
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
    columns = [getattr(linked.calls, name) for name in CALL_TEXTS]
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
        any(finding.reason in BROKEN_OFF for finding in linked.trace.findings),
    )
