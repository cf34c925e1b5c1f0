"""Sources to rank traces: which reader, which rank, one damaged file never costing the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tracelink import plugins
from tracelink.engine import Engine
from tracelink.errors import RankConflictError, UnreadableError
from tracelink.findings import Finding, Severity
from tracelink.plugins import Reader
from tracelink.ranks import resolve_rank
from tracelink.sources import Discovery, Source
from tracelink.trace import RankTrace, SourceInfo

SNIFFED = 4 << 20
"""Where a file's first bytes tell nothing, so many are looked at: headers can be long."""


@dataclass(slots=True)
class Readings:
    """The traces that could be read, by rank, and what did not fit."""

    traces: list[RankTrace] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def by_rank(self) -> dict[int, list[RankTrace]]:
        """The traces of each rank, ranks in order."""
        ranks: dict[int, list[RankTrace]] = {}
        for trace in self.traces:
            if trace.source.rank is not None:
                ranks.setdefault(trace.source.rank, []).append(trace)
        return dict(sorted(ranks.items()))


@dataclass(frozen=True, slots=True)
class _Task:
    source: Source
    reader: Reader


def read_sources(discovery: Discovery, engine: Engine) -> Readings:
    """Reads every source that a reader recognises; raises `UnreadableError` if none can be read."""
    readings = Readings(findings=list(discovery.findings))
    tasks = []
    for source in discovery.sources:
        reader = _reader_of(source, readings.findings)
        if reader:
            tasks.append(_Task(source, reader))
    sources = [task.source for task in tasks]
    together = len(tasks) >= engine.jobs
    inner = Engine(1, engine.meter) if together else engine
    outer = engine if together else Engine(1, engine.meter)
    for result in outer.map(lambda task: _read(task, inner), tasks, shared=sources):
        if isinstance(result, Finding):
            readings.findings.append(result)
        else:
            readings.traces.append(result)
    if not readings.traces:
        raise _nothing_readable(readings.findings)
    return readings


def survey_ranks(readings: Readings, sources: Sequence[Source]) -> list[SourceInfo]:
    """What is known of each source, its rank if something says it; contradictions are findings."""
    said = {source.path: source for source in sources}
    infos = []
    for trace in readings.traces:
        info, source = trace.source, said[trace.source.path]
        try:
            rank = resolve_rank(info.path, content=info.rank, name=source.rank_hint, said=source.rank)
        except RankConflictError as conflict:
            readings.findings.append(_conflict(conflict, info.path))
            rank = info.rank
        infos.append(replace(info, rank=rank))
        readings.findings += trace.findings
    try:
        _check_duplicates([info for info in infos if info.rank is not None])
    except RankConflictError as conflict:
        readings.findings.append(_conflict(conflict, ""))
    return infos


def assign_ranks(readings: Readings, sources: Sequence[Source]) -> None:
    """Gives each trace its rank; a trace whose rank nobody knows is left out, with a finding."""
    said = {source.path: source for source in sources}
    ranked, unranked = [], []
    for trace in readings.traces:
        info, source = trace.source, said[trace.source.path]
        rank = resolve_rank(info.path, content=info.rank, name=source.rank_hint, said=source.rank)
        if rank is None:
            unranked.append(trace)
        else:
            ranked.append(trace.said_to_be_of(rank))
    readings.traces = ranked
    for trace in unranked:
        _place(trace, readings, alone=len(unranked) == len({t.source.format for t in unranked}))
    readings.traces.sort(key=lambda trace: (trace.source.rank or 0, trace.source.start_ns or 0))
    _check_duplicates([trace.source for trace in readings.traces])
    readings.findings += [finding for trace in readings.traces for finding in trace.findings]


def _reader_of(source: Source, findings: list[Finding]) -> Reader | None:
    if source.format:
        return plugins.reader(source.format)
    try:
        for size in (None, SNIFFED):
            head = source.head(size) if size else source.head()
            for reader in plugins.working(plugins.readers()):
                if reader.recognises(head, source.name):
                    return reader
    except UnreadableError as error:
        error.source = error.source or source.path
        findings.append(_unreadable(source.path, str(error)))
        return None
    except OSError as error:
        findings.append(_unreadable(source.path, str(error)))
        return None
    if not head:
        findings.append(_unreadable(source.path, f"{source.path}: the file is empty. Record it again."))
    elif source.named:
        known = ", ".join(plugins.readers())
        message = f"{source.path}: no reader recognises it. Known formats: {known}."
        findings.append(_unreadable(source.path, message, "unknown_format"))
    else:
        message = f"{source.path}: passed over, it is of no known format."
        findings.append(Finding(Severity.INFO, "passed_over", message, source=source.path))
    return None


def _read(task: _Task, engine: Engine) -> RankTrace | Finding:
    try:
        return task.reader.read(task.source, engine)
    except UnreadableError as error:
        error.source = error.source or task.source.path
        return _unreadable(task.source.path, str(error))
    except OSError as error:
        return _unreadable(task.source.path, f"{task.source.path}: {error.strerror or error}.")


def _conflict(conflict: RankConflictError, path: str) -> Finding:
    return Finding(Severity.ERROR, "rank_conflict", str(conflict), source=path)


def _unreadable(path: str, message: str, reason: str = "unreadable") -> Finding:
    return Finding(Severity.ERROR, reason, message, source=path)


def _nothing_readable(findings: Sequence[Finding]) -> UnreadableError:
    errors = [finding for finding in findings if finding.severity == Severity.ERROR] or list(findings)
    if not errors:
        return UnreadableError("there is nothing to read", advice="Name at least one file or directory.")
    if len(errors) == 1:
        return UnreadableError(errors[0].message.rstrip("."))
    return UnreadableError(
        f"none of {len(errors)} files can be read; the first: {errors[0].message.rstrip('.')}",
        advice="For each of them: tracelink inspect FILE",
    )


def _place(trace: RankTrace, readings: Readings, *, alone: bool) -> None:
    """A rank for a trace that has none: that of its process, else of the only rank there is, else 0."""
    info = trace.source
    ranks = {known.source.rank for known in readings.traces if known.source.rank is not None}
    of_process = {t.source.rank for t in readings.traces if info.pid is not None and t.source.pid == info.pid}
    if len(of_process) == 1:
        rank, why = of_process.pop(), f"its process {info.pid} is that of rank"
    elif alone and len(ranks) <= 1:
        rank, why = next(iter(ranks), 0), "nothing says otherwise, so it counts as rank"
    else:
        message = f"{info.path}: neither content nor name says its rank. Say it with --rank {info.path}=N."
        readings.findings.append(Finding(Severity.ERROR, "unknown_rank", message, source=info.path))
        return
    assert rank is not None
    message = f"{info.path}: neither content nor name says its rank; {why} {rank}."
    readings.findings.append(Finding(Severity.INFO, "assumed_rank", message, source=info.path))
    readings.traces.append(trace.said_to_be_of(rank))


def _check_duplicates(sources: Sequence[SourceInfo]) -> None:
    """One rank has one file of a format, except for the windows of one profiler, one after the other."""
    for (rank, format_name), count in Counter((info.rank, info.format) for info in sources).items():
        infos = [info for info in sources if (info.rank, info.format) == (rank, format_name)]
        if count > 1 and not _successive(infos):
            paths = " and ".join(info.path for info in infos[:2])
            raise RankConflictError(
                f"rank {rank} stands twice in format {format_name}: {paths}",
                advice="Leave one out, or say which rank each is of with --rank FILE=N.",
            )


def _successive(infos: Sequence[SourceInfo]) -> bool:
    windows = sorted((info.start_ns, info.end_ns or 0) for info in infos if info.start_ns is not None)
    apart = all(before[1] <= after[0] for before, after in pairwise(windows))
    return len(windows) == len(infos) and apart and len({info.pid for info in infos}) == 1
