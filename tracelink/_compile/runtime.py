"""How long compiled code ran: profiles of the ranks that have compile logs, by process and compile id."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._join.reading import Task, declared_rank, read
from tracelink._link.compilation import CompiledCode, Ran
from tracelink._link.nesting import link_calls
from tracelink._model.columns import UNKNOWN, Int64s, StringTable
from tracelink._model.errors import RankConflictError
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import RankTrace
from tracelink._model.witnesses import CompileLog
from tracelink.plugins import Content

CALL = re.compile(r"_c10d_functional::(\w+)")
"""Operators of collectives that compiled code calls; the dispatcher can call them within themselves again."""


class Run(Struct, frozen=True):
    """How long the code of one compilation ran, and how often."""

    duration_ns: int = 0
    """Without the time in which its process compiled."""
    count: int = 0
    calls: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """How often it called these collectives, in this order."""


CompiledGraph = tuple[str, bool]
"""A compile id, and whether its backward graph is meant."""
RunsOfLog = Mapping[CompiledGraph, Run]


class Profiled(Struct, frozen=True):
    """The compiled regions and backward passes of a profile, one row for each."""

    rank: int | None
    processes: Sequence[str]
    """With events of Python or operators, by number."""
    ids: Sequence[str]
    """Compile ids by number; the last one, -1, is unknown."""
    process: Int64s
    id: Int64s
    backward: Int64s
    start: Int64s
    end: Int64s
    findings: Sequence[Finding] = ()
    called: Sequence[tuple[int, int, str]] = ()
    """Collectives that a region or a backward pass, by its row, called: when, and which."""


def runs_of_logs(
    logs: Mapping[int, Sequence[CompileLog]],
    tasks: Sequence[Task],
    engine: Engine,
    findings: list[Finding],
) -> dict[str, RunsOfLog]:
    """For each log, by path, what of its code ran in the profiles among `tasks`; only logs with a profile are in it."""
    wanted = [
        task
        for task in tasks
        if task.content is Content.PROFILE
        and not task.spec.unpacks
        and (task.likely_rank is None or task.likely_rank in logs)
    ]
    outer, inner = engine.split(len(wanted))
    results = outer.map(lambda task: _profiled(task, inner), wanted, shared=wanted)
    findings += [result for result in results if isinstance(result, Finding)]
    profiles = [result for result in results if isinstance(result, Profiled)]
    findings += [finding for profile in profiles for finding in profile.findings]
    return {
        log.source.path: _runs(log, _successor(log, of_rank), shown)
        for rank, of_rank in logs.items()
        for log in of_rank
        if (
            shown := [
                one for one in profiles if one.rank in (None, rank) and str(log.source.pid) in one.processes
            ]
        )
    }


def _profiled(task: Task, engine: Engine) -> Profiled | Finding:
    result = read(task, engine)
    if isinstance(result, Finding):
        message = f"a profile is not used: {result.message}"
        return replace(result, severity=Severity.WARNING, reason="profile_unreadable", message=message)
    try:
        rank = declared_rank(result.source, task.source, [])
    except RankConflictError:
        rank = result.source.rank
    return profiled(result, rank)


def profiled(trace: RankTrace, rank: int | None) -> Profiled:
    """The regions and the backward passes of one profile."""
    compiled = CompiledCode(trace, link_calls(trace).edges)
    rows = np.concatenate([compiled.rows(Ran.REGION), compiled.rows(Ran.BACKWARD)])
    rows = rows[trace.events.timed[rows] & (trace.events.duration[rows] >= 0)]
    ids, backward = compiled.id_of_run
    rows = rows[ids[rows] != UNKNOWN]
    processes = StringTable.of(track.process for track in trace.tracks)
    of_track = processes.encode(track.process for track in trace.tracks)
    return Profiled(
        rank,
        processes.texts(),
        compiled.texts.texts(),
        of_track[trace.events.track[rows]].astype(np.int64),
        ids[rows],
        backward[rows].astype(np.int64),
        trace.events.start[rows],
        trace.events.end[rows],
        [finding for finding in trace.findings if finding.severity is not Severity.INFO],
        _called(compiled, rows),
    )


def _called(compiled: CompiledCode, runs: Int64s) -> list[tuple[int, int, str]]:
    """The collectives within each of these regions and backward passes; those within other ones are left out."""
    events, names = compiled.events, compiled.trace.strings.texts()
    calls = {number: match[1] for number, name in enumerate(names) if (match := CALL.fullmatch(name))}
    if not calls:
        return []
    found = np.flatnonzero(np.isin(events.name, list(calls)) & events.of_kind(EventKind.OPERATOR))
    around = compiled.around(found, Ran.REGION, Ran.BACKWARD)
    number_of = dict(zip(runs.tolist(), range(len(runs)), strict=True))
    columns = (
        column.tolist() for column in (around, events.start[found], -events.end[found], events.name[found])
    )
    outermost: list[tuple[int, int, str]] = []
    last_row, last_end = UNKNOWN, 0
    for row, start, negative_end, name in sorted(zip(*columns, strict=True)):
        if row in number_of and (row != last_row or start >= last_end):
            outermost.append((number_of[row], start, calls[name]))
            last_row, last_end = row, -negative_end
    return outermost


def _successor(log: CompileLog, of_rank: Sequence[CompileLog]) -> int:
    """When the next log of a process with the same number begins: restarted containers use the same ones again."""
    begin = log.source.start_ns or 0
    later = [
        other.source.start_ns or 0
        for other in of_rank
        if other.source.pid == log.source.pid and (other.source.start_ns or 0) > begin
    ]
    return min(later, default=np.iinfo(np.int64).max)


def _runs(log: CompileLog, until_ns: int, profiles: Sequence[Profiled]) -> dict[CompiledGraph, Run]:
    """What of the code of one log ran, in its process and before the next log of such a process."""
    compiling = Compiling.of(log)
    found: dict[CompiledGraph, Run] = {}
    for profile in profiles:
        number = profile.processes.index(str(log.source.pid))
        of_log = (profile.process == number) & (profile.start >= (log.source.start_ns or 0))
        of_log &= profile.start < until_ns
        start, end = profile.start[of_log], profile.end[of_log]
        duration = end - start - (compiling.until(end) - compiling.until(start))
        graph = profile.id[of_log] * 2 + profile.backward[of_log]
        sequences = _sequences(profile, compiling)
        for each in np.unique(graph).tolist():
            key = (profile.ids[each // 2], bool(each % 2))
            chosen = graph == each
            before = found.get(key, Run())
            calls = Counter(sequences.get(row, ()) for row in np.flatnonzero(of_log)[chosen].tolist())
            found[key] = Run(
                before.duration_ns + int(duration[chosen].sum()),
                before.count + int(np.count_nonzero(chosen)),
                Counter(before.calls) + calls,
            )
    return found


def _sequences(profile: Profiled, compiling: Compiling) -> dict[int, tuple[str, ...]]:
    """What each run called in order, by its row; the compiler calls operators, too, on tensors without data."""
    starts = np.array([start for _, start, _ in profile.called], np.int64)
    idle = compiling.until(starts + 1) == compiling.until(starts)
    sequences: defaultdict[int, list[str]] = defaultdict(list)
    for (row, _, name), is_run in zip(profile.called, idle.tolist(), strict=True):
        if is_run:
            sequences[row].append(name)
    return {row: tuple(names) for row, names in sequences.items()}


class Compiling(Struct, frozen=True):
    """The times in which a process compiled; they do not overlap."""

    start: Int64s
    end: Int64s

    @classmethod
    def of(cls, log: CompileLog) -> Compiling:
        """Those of one log."""
        return cls.merged(
            [(one.start_ns, one.end_ns or log.last_ns or 0) for one in log.phases if not one.instant]
        )

    @classmethod
    def merged(cls, times: Sequence[tuple[int, int]]) -> Compiling:
        """The union of such times."""
        merged: list[list[int]] = []
        for start, end in sorted(times):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        columns = np.array(merged, np.int64).reshape(-1, 2)
        return cls(columns[:, 0], columns[:, 1])

    def until(self, times: Int64s) -> Int64s:
        """How long it had compiled at each time."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        index = np.searchsorted(self.start, times, side="right")
        over = np.maximum(self.end[index - 1] - times, 0)
        return np.where(index > 0, before[index] - over, 0)
