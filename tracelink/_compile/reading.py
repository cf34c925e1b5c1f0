"""Compile logs of all ranks to tables: compilations, graph breaks, failures, open work, caches, divergences."""

from __future__ import annotations

import os.path
import re
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracelink._compile.divergences import Logs, divergences_of, explained, partial_hits_of
from tracelink._compile.graphs import (
    Calls,
    estimates_of,
    executions_of,
    exports_of,
    schedules_of,
    unscheduled_of,
)
from tracelink._compile.model import (
    CacheUse,
    Compiled,
    CompileReport,
    Delay,
    Failure,
    GraphBreak,
    OpenPhase,
    RunOfJob,
    Status,
    caller_in_words,
)
from tracelink._compile.runs import Run, findings_of_runs, runs_of
from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Source
from tracelink._join.reading import (
    Task,
    assigned_ranks,
    declared_rank,
    nothing_readable,
    read_each,
    tasks_of,
)
from tracelink._model.errors import RankConflictError, UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity, in_order
from tracelink._model.text import counted
from tracelink._model.trace import Source as LogSource
from tracelink._model.witnesses import Artifact, Compilation, CompileLog
from tracelink.plugins import Content

if TYPE_CHECKING:
    from tracelink._compile.runtime import RunsOfLog

GRAPH_BREAK, CACHES = "dynamo_graph_break_reason", ("fx_graph_cache_", "aotautograd_cache_")
ANSWERS = ("hit", "miss", "bypass")
BREAK_AT, BREAK_REASON = "Graph break in user code at ", "Graph Break Reason: "
ENCOUNTERED, TRACEBACK = "Graph break encountered:", "User code traceback"
FRAME_OF_BREAK = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in ([^\n]{1,1000})')
NUMBER = re.compile(r"\d{1,9}")
RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d{1,9})")
"""What goes on after a graph break: the name of the function that has it, and the line."""
RECOMPILE = re.compile(r"\s*([!\d/_]+): (.*)")
LINE_OF_GUARD = re.compile(r"# (?:[^\s:]*/)?([^\s:/]+:\d+) in \w")
"""The line of the program that a guard is about: `# if s.i == 1:  # model/train.py:16 in forward`."""
SOURCE_OF_GUARD = re.compile(r"\s+# .*", re.DOTALL)
LONG_REASON = 400
RUNS = (Status.OK, Status.BREAK, Status.UNKNOWN, Status.OPEN)
"""Compilations whose code can run."""


class Read(Struct, frozen=True):
    """Compile logs, and their tables."""

    report: CompileReport
    logs: Logs
    sources: Mapping[str, Source]
    """The file of each log, by its path: payloads are read again."""
    runs: Mapping[str, RunsOfLog]
    """What of the code of each log ran, by its path."""


def read(discovery: Discovery, engine: Engine, *, run: int | None = None) -> Read:
    """Reads compile logs, and keeps what their payloads are read again from; `Job.compile` describes `run`."""
    findings = list(discovery.findings)
    tasks = tasks_of(discovery, findings)
    starts, logs = _started(read_logs(tasks, engine, findings), run)
    if not logs:
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        raise nothing_readable(errors) if errors else _no_logs(discovery)
    runs: Mapping[str, RunsOfLog] = {}
    delays: Sequence[Delay] = ()
    world_size = None
    if any(task.content is not Content.COMPILATIONS for task in tasks):
        from tracelink._compile.delays import recorded_by  # most users name their logs only
        from tracelink._compile.runtime import runs_of_logs

        runs = runs_of_logs(logs, tasks, engine, findings)
        recorded = recorded_by(tasks, logs, discovery, engine, findings)
        delays, world_size = recorded.delays, recorded.world_size
    findings += findings_of_runs(starts, world_size, chosen=run is not None)
    report = replace(_explained(discovery, tables_of(logs, findings, runs, starts), starts), delays=delays)
    return Read(report, logs, {source.path: source for source in discovery.sources}, runs)


def read_tables(discovery: Discovery, engine: Engine, run: int | None = None) -> CompileReport | None:
    """Reads the compile logs among other sources, without what profiles say of them; None if there is no log."""
    findings: list[Finding] = []
    starts, logs = _started(read_logs(tasks_of(discovery, []), engine, findings), run)
    if not logs:
        return None
    findings += findings_of_runs(starts, None, chosen=run is not None)
    return _explained(discovery, tables_of(logs, findings, None, starts), starts)


def _explained(discovery: Discovery, report: CompileReport, starts: Sequence[Run]) -> CompileReport:
    sources = {source.path: source for source in discovery.sources}
    logs = {start.number: start.logs for start in starts}
    return replace(report, divergences=explained(report.divergences, logs, sources))


def _started(logs: Logs, run: int | None) -> tuple[Sequence[Run], Logs]:
    """The runs that these logs are of, or the wanted one with its logs."""
    if not logs:
        return [], logs
    starts = runs_of(logs)
    if run is None:
        return starts, logs
    chosen = _chosen(starts, run)
    return [chosen], chosen.logs


def _chosen(starts: Sequence[Run], number: int) -> Run:
    for start in starts:
        if start.number == number:
            return start
    raise UsageError(
        f"there is no run {number}", advice=f"The logs are of {counted(len(starts), 'run')}, from 1 on."
    )


def tables_of(
    logs: Logs,
    findings: Sequence[Finding] = (),
    runs: Mapping[str, RunsOfLog] | None = None,
    starts: Sequence[Run] | None = None,
) -> CompileReport:
    """The tables of these logs; `runs` is what of the code of each ran, and `starts` are those of the job."""
    starts = starts or [Run(1, logs)]
    every = [(rank, log) for rank, of_rank in logs.items() for log in of_rank]
    compiled = [
        row
        for rank, log in every
        for row in _with_runs(list(_compiled(rank, log)), (runs or {}).get(log.source.path))
    ]
    names = {one.id: one.function for one in compiled if one.function}
    scheduled = [
        (rank, calls, list(schedules_of(rank, log, calls)))
        for rank, log in every
        for calls in [_calls((runs or {}).get(log.source.path))]
    ]
    return CompileReport(
        ranks=list(logs),
        compiles=compiled,
        graph_breaks=[row for rank, log in every for row in _graph_breaks(rank, log)],
        failures=[row for rank, log in every for row in _failures(rank, log)],
        open=sorted(
            (row for rank, log in every for row in _open(rank, log)), key=lambda row: (-row.for_ns, row.rank)
        ),
        divergences=[
            replace(one, run=start.number) for start in starts for one in divergences_of(start.logs)
        ],
        caches=[row for rank, log in every for row in _caches(rank, log)],
        partial_hits=[
            replace(one, run=start.number) for start in starts for one in partial_hits_of(start.logs)
        ],
        artifacts=_total(Counter(artifact.name for artifact in log.artifacts) for _, log in every),
        kinds=_total(log.kinds for _, log in every),
        sources=[_source(rank, log) for rank, log in every],
        findings=in_order([*findings, *(finding for _, log in every for finding in log.findings)]),
        runs=[_run(start) for start in starts],
        schedules=[row for _, _, rows in scheduled for row in rows],
        unscheduled=[
            row
            for rank, calls, rows in scheduled
            if calls is not None
            for row in unscheduled_of(rank, rows, calls, names)
        ],
        estimates=[row for rank, log in every for row in estimates_of(rank, log)],
        executions=[row for rank, log in every for row in executions_of(rank, log)],
        delays=(),
        exports=[row for rank, log in every for row in exports_of(rank, log)],
    )


def _source(rank: int, log: CompileLog) -> LogSource:
    known = {name: getattr(log.source, name) for name in LogSource.__struct_fields__}
    return LogSource(**known | {"rank": rank})


def _calls(runs: RunsOfLog | None) -> Calls | None:
    return None if runs is None else {graph: run.calls for graph, run in runs.items()}


def _run(start: Run) -> RunOfJob:
    logs = sum(len(of_rank) for of_rank in start.logs.values())
    return RunOfJob(start.number, tuple(start.logs), start.start_ns, logs)


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total.most_common())


# Reading logs.


def read_logs(all_tasks: Sequence[Task], engine: Engine, findings: list[Finding]) -> Logs:
    """All compile logs among the sources by rank; what cannot be read is a finding."""
    tasks = [task for task in all_tasks if task.content is Content.COMPILATIONS]
    results = read_each(tasks, engine, lambda task, inner: task.reader.read_log(task.source, inner))
    read = [(task, log) for task, log in zip(tasks, results, strict=True) if isinstance(log, CompileLog)]
    findings += [result for result in results if isinstance(result, Finding)]
    logs: defaultdict[int, list[CompileLog]] = defaultdict(list)
    for rank, (_, log) in zip(_ranks_of(read, findings), read, strict=True):
        if rank is not None:
            logs[rank].append(log)
    every = [log for rank in sorted(logs) for log in logs[rank]]
    return {
        rank: sorted(
            (_with_names_of_files(log, logs[rank], every) for log in logs[rank]),
            key=lambda log: log.source.start_ns or 0,
        )
        for rank in sorted(logs)
    }


def _with_names_of_files(
    log: CompileLog, of_rank: Sequence[CompileLog], every: Sequence[CompileLog]
) -> CompileLog:
    """The log of a forked process names files by the numbers of its parent, whose log is in the same folder."""
    if not log.unnamed_files:
        return log
    folder = os.path.dirname(log.source.path)
    older = [
        other
        for others in (every, of_rank)
        for other in sorted(others, key=lambda other: other.source.start_ns or 0)
        if os.path.dirname(other.source.path) == folder
        and (other.source.start_ns or 0) <= (log.source.start_ns or 0)
    ]
    names = dict(ChainMap(*({**other.strings} for other in (log, *reversed(older)))))
    called_at = {
        key: [
            replace(frame, filename=names.get(number, frame.filename))
            for frame, number in zip(log.called_at[key], numbers, strict=True)
        ]
        for key, numbers in log.unnamed_files.items()
    }
    return replace(log, called_at={**log.called_at, **called_at})


def _ranks_of(read: Sequence[tuple[Task, CompileLog]], findings: list[Finding]) -> list[int | None]:
    """The rank of each log; a process can leave several, and so can those that it forks."""
    infos = [replace(log.source, rank=_declared(log, task, findings)) for task, log in read]
    if all(info.rank is None for info in infos):
        return [0] * len(infos)
    return assigned_ranks(infos, findings)


def _declared(log: CompileLog, task: Task, findings: list[Finding]) -> int | None:
    """The declared rank. Torch writes the same one into name and records: a name that was changed is right."""
    try:
        return declared_rank(log.source, task.source, findings)
    except RankConflictError:
        assert task.source.rank_hint
        rank, path = task.source.rank_hint.rank, log.source.path
        message = (
            f"{path}: read as rank {rank}, as its name says; its records are of rank {log.source.rank}. "
            f"--rank {path}=N sets another one."
        )
        findings.append(Finding(Severity.WARNING, "renamed_log", message, source=path))
        return rank


def _no_logs(discovery: Discovery) -> UnreadableError:
    count = len(discovery.sources)
    found = f"none of the {count} files is one" if count > 1 else "this file is something else"
    return UnreadableError(
        f"no compile log found: {found if count else 'there are no files'}",
        advice="Record logs with TORCH_TRACE=DIR in the environment of the job, and name DIR.",
    )


# Tables.


def _names(log: CompileLog) -> dict[str, str]:
    """The name of each function by its number."""
    return {_frame_of(one.compile_id): one.function for one in log.compilations if one.function}


def _compiled(rank: int, log: CompileLog) -> Iterator[Compiled]:
    names = _names(log)
    for one in log.compilations:
        recompile_of, reason = _recompile(one.recompile_reason)
        line = LINE_OF_GUARD.search(one.recompile_reason) if recompile_of else None
        yield Compiled(
            rank,
            one.compile_id,
            one.function or names.get(_frame_of(one.compile_id), ""),
            reason,
            one.file,
            one.line,
            status=_status(one),
            start_ns=one.start_ns,
            duration_ns=one.duration_ns,
            recompile_of=recompile_of,
            backward=one.backward,
            operations=one.operations,
            guards=one.guards,
            restarts=len(one.restarts),
            called_at=caller_in_words(log.called_at.get(one.compile_id, ()), one.function),
            stages=one.stages,
            guard_at=line[1] if line else "",
        )
    ended = {one.compile_id for one in log.compilations}
    began = {
        phase.compile_id: phase for phase in reversed(log.phases) if phase.end_ns is None and phase.compile_id
    }
    for id_ in dict.fromkeys([*log.called_at, *began]):
        if id_ in ended:
            continue
        phase, function, stack = began.get(id_), log.function_of(id_), log.called_at.get(id_, ())
        frame = stack[-1] if stack and stack[-1].name == function else None
        yield Compiled(
            rank,
            id_,
            function,
            status=Status.OPEN if phase else Status.UNKNOWN,
            start_ns=phase.start_ns if phase else None,
            file=frame.filename if frame else "",
            line=frame.line if frame else None,
            called_at=caller_in_words(stack, function),
        )


def _with_runs(rows: Sequence[Compiled], runs: RunsOfLog | None) -> list[Compiled]:
    """The compilations of a log with how long their code ran; None if no profile of its process was read.

    A backward graph that was compiled together with its forward graph has no row of its own, and is part of that one.
    """
    if runs is None:
        return list(rows)
    own = {(row.id, row.backward) for row in rows}
    total: defaultdict[tuple[str, bool], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (id_, backward), run in runs.items():
        key = (id_, backward) if (id_, backward) in own else (id_, False)
        duration, count = total[key]
        total[key] = (duration + run.duration_ns, count + run.count * (key[1] == backward))
    last = {(row.id, row.backward): number for number, row in enumerate(rows)}
    return [
        replace(row, runtime_ns=total[row.id, row.backward][0], runs=total[row.id, row.backward][1])
        if row.status in RUNS and last[row.id, row.backward] == number
        else row
        for number, row in enumerate(rows)
    ]


def _frame_of(compile_id: str) -> str:
    """The function of a compilation: `1` of `1/5`."""
    return compile_id.rpartition("/")[0]


def _status(one: Compilation) -> Status:
    if one.fail_type:
        return Status.ERROR
    if one.restarts:
        return Status.BREAK
    return Status.EMPTY if one.operations == 0 and not one.backward else Status.OK


def _recompile(text: str) -> tuple[str, str]:
    """`1/0: s.i == 0     # if s.i == 1:` as the id and the guard."""
    match = RECOMPILE.match(text)
    if not match:
        return "", text
    return match[1], SOURCE_OF_GUARD.sub("", match[2]).strip()


def _graph_breaks(rank: int, log: CompileLog) -> list[GraphBreak]:
    breaks = [artifact for artifact in log.artifacts if artifact.name == GRAPH_BREAK]
    if not breaks:
        return []
    counts: Counter[tuple[str, str, str, int | None]] = Counter()
    costs: Counter[tuple[str, str, str, int | None]] = Counter()
    for artifact, cost in zip(breaks, _costs_of_breaks(log, breaks), strict=True):
        key = (artifact.compile_id, *_break(artifact))
        counts[key] += 1
        costs[key] += cost
    names = _names(log)
    return [
        GraphBreak(rank, key[0], names.get(_frame_of(key[0]), ""), *key[1:], count, costs[key])
        for key, count in counts.items()
    ]


def _costs_of_breaks(log: CompileLog, breaks: Sequence[Artifact]) -> list[int]:
    """For each break the attempt that ended there, and the compilations of the function that goes on after its line."""
    costs = [0] * len(breaks)
    of_id: defaultdict[str, list[int]] = defaultdict(list)
    of_place: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, artifact in enumerate(breaks):
        of_id[artifact.compile_id].append(number)
        frames = FRAME_OF_BREAK.findall(artifact.text)
        for place in {(file, line, RESUMED.sub(r"\1", name)) for file, line, name in frames}:
            of_place[place].append(number)
    resumed: dict[str, int] = {}
    for one in log.compilations:
        many = of_id.get(one.compile_id, [])
        for number in many:
            costs[number] += one.discarded_ns // len(many)
        name = RESUMED.fullmatch(one.function)
        places = of_place.get((one.file, name[2], name[1]), []) if name else []
        start = one.start_ns or 0
        earlier = [number for number in places if breaks[number].time_ns <= start]
        if earlier:
            resumed[one.compile_id] = earlier[-1]
        if one.compile_id in resumed:
            costs[resumed[one.compile_id]] += one.duration_ns or 0
    return costs


def _break(artifact: Artifact) -> tuple[str, str, int | None]:
    """The reason, the file and the line; without patterns, which would search long texts in quadratic time."""
    place, ended, _ = artifact.text.partition(BREAK_AT)[2].partition("\n")
    file, _, line = place.rpartition(":")
    known = bool(file and ended) and NUMBER.fullmatch(line) is not None
    why, _, _ = artifact.text.partition(BREAK_REASON)[2].partition(TRACEBACK)
    reason = why.rpartition(ENCOUNTERED)[2] if why else artifact.text
    return reason.strip()[:LONG_REASON], file if known else "", int(line) if known else None


def _failures(rank: int, log: CompileLog) -> Iterator[Failure]:
    names = _names(log)
    for one in log.compilations:
        if one.fail_type:
            function = one.function or names.get(_frame_of(one.compile_id), "")
            where = one.fail_file, one.fail_line
            yield Failure(rank, one.compile_id, function, one.fail_reason, *where, type=one.fail_type)


def _open(rank: int, log: CompileLog) -> Iterator[OpenPhase]:
    """Outermost first; a phase that has begun within another one is left out."""
    for phase in log.phases:
        if phase.end_ns is None and not phase.instant:
            waited = max((log.last_ns or 0) - phase.start_ns, 0)
            function = log.function_of(phase.compile_id)
            yield OpenPhase(rank, phase.name, phase.compile_id, phase.start_ns, waited, function)


def _caches(rank: int, log: CompileLog) -> Iterator[CacheUse]:
    for artifact in log.artifacts:
        cache, _, state = artifact.name.rpartition("_")
        if artifact.name.startswith(CACHES) and state in ANSWERS:
            yield CacheUse(rank, artifact.compile_id, cache, state, artifact.text)
