"""Compile logs next to dumps: whether the compiler kept a culprit busy while other ranks waited for it.

Only logs of culprits are read. Times of the log and of the dump of a rank are by the same clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from tracelink._compile.divergences import Logs
from tracelink._compile.reading import read_logs
from tracelink._hang.facts.recordings import find_compile_logs
from tracelink._io.engine import Engine
from tracelink._join.reading import Task
from tracelink._model.columns import SECOND
from tracelink._model.errors import TraceError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.witnesses import CompileLog, Compiling, Phase

SHORTEST = SECOND // 10
"""Compilations of less time delay no rank."""
LONGEST_BEFORE = 1800 * SECOND
"""How long before the others wait a log may end, if no call shows that it is of the same run."""
SETTLED = 10 * SECOND
"""A rank that has not joined this long after its compilation is not late because of it."""


class Delay(Struct, frozen=True):
    """When other ranks waited for a culprit."""

    start_ns: int | None
    """When the first of them began to wait."""
    end_ns: int
    """When the culprit joined, else the latest time in all dumps."""
    last_call_ns: int | None
    """When the culprit made its last call."""
    joined: bool
    has_dump: bool
    """True if its process was there when dumps were written."""


def logs_of(ranks: Collection[int], tasks: Sequence[Task], engine: Engine) -> tuple[Logs, list[Finding]]:
    """The logs of these ranks; a log whose rank is unknown is of no rank."""
    wanted = [
        task for task in find_compile_logs(tasks) if task.likely_rank is None or task.likely_rank in ranks
    ]
    if not ranks or not wanted:
        return {}, []
    findings: list[Finding] = []
    try:
        logs = read_logs(wanted, engine, findings)
    except TraceError as error:
        message = f"compile logs are not used: {error}"
        return {}, [Finding(Severity.WARNING, "compile_logs_unreadable", message, source=error.source)]
    named = {task.source.path for task in wanted if task.likely_rank is not None}
    known = {
        rank: [log for log in own if log.source.rank is not None or log.source.path in named]
        for rank, own in logs.items()
        if rank in ranks
    }
    unreadable = [
        finding for finding in findings if finding.severity is Severity.ERROR and finding.source in named
    ]
    return known, unreadable


def compilation_of(rank: int, logs: Sequence[CompileLog], wait: Delay) -> Compiling | None:
    """What is open at the end of its logs, else what took most of the time in which others waited."""
    if not wait.joined:
        newest = [log for log in logs if not _is_of_earlier_process(log, logs)]
        still_open = [one for log in newest if (one := _open_at_the_end(rank, log, logs, wait))]
        if still_open:
            return max(still_open, key=lambda one: one.since_ns)
    return _while_others_waited(rank, logs, wait)


def _is_of_earlier_process(log: CompileLog, logs: Sequence[CompileLog]) -> bool:
    """True if another process of the rank began its log after the end of this one."""
    return any(
        other.source.pid != log.source.pid and (other.source.start_ns or 0) > (log.last_ns or 0)
        for other in logs
    )


def _open_at_the_end(rank: int, log: CompileLog, logs: Sequence[CompileLog], wait: Delay) -> Compiling | None:
    phases = [phase for phase in log.phases if phase.end_ns is None and not phase.instant]
    if not phases or not _is_of_this_wait(phases[-1], log, wait):
        return None
    compile_id = next((phase.compile_id for phase in reversed(phases) if phase.compile_id), "")
    first = next((place for place, phase in enumerate(phases) if phase.compile_id == compile_id), 0)
    return _made(rank, compile_id, phases[first:], _last_sign(log, wait), logs, log)


def _last_sign(log: CompileLog, wait: Delay) -> int:
    """Until when it compiled at least: an incomplete log, and one without a dump, counts only to its end."""
    complete = wait.has_dump and not any(finding.reason == Truncated.reason for finding in log.findings)
    return max(wait.end_ns if complete else 0, log.last_ns or 0)


def _is_of_this_wait(innermost: Phase, log: CompileLog, wait: Delay) -> bool:
    """A rank that made a call after that does not compile any more, or the log is of an earlier run."""
    if wait.last_call_ns is not None:
        return innermost.start_ns > wait.last_call_ns
    return wait.start_ns is None or (log.last_ns or 0) > wait.start_ns - LONGEST_BEFORE


def _while_others_waited(rank: int, logs: Sequence[CompileLog], wait: Delay) -> Compiling | None:
    """The longest phase, if the compiler worked for at least half of the time."""
    if wait.start_ns is None:
        return None
    start = wait.start_ns
    end = wait.end_ns if wait.joined else max(wait.end_ns, *(log.last_ns or 0 for log in logs), start)
    parts = [
        (max(phase.start_ns, start), min(phase.end_ns, end), phase, log)
        for log in logs
        for phase in log.phases
        if phase.end_ns is not None and not phase.instant and phase.end_ns > start and phase.start_ns < end
    ]
    covered = _covered([(first, last) for first, last, _, _ in parts])
    if covered < SHORTEST or 2 * covered < end - start:
        return None
    if not wait.joined and wait.end_ns - max(last for _, last, _, _ in parts) > SETTLED:
        return None
    _, _, longest, log = max(
        parts, key=lambda part: (part[1] - part[0], (part[2].end_ns or 0) - part[2].start_ns)
    )
    length = _length(longest)
    nested = [
        phase
        for phase in log.phases
        if phase.compile_id == longest.compile_id
        and longest.start_ns <= phase.start_ns
        and 2 * _length(phase) > length
        and (phase.end_ns or 0) <= (longest.end_ns or 0)
    ]
    nested.sort(key=lambda phase: (phase.start_ns, -_length(phase)))
    return _made(rank, longest.compile_id, nested, longest.end_ns or 0, logs, log)


def _length(phase: Phase) -> int:
    return 0 if phase.end_ns is None else phase.end_ns - phase.start_ns


def _covered(parts: Sequence[tuple[int, int]]) -> int:
    """The length of all parts together, where they overlap only once."""
    total, until = 0, 0
    for start, end in sorted(parts):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


def _made(
    rank: int,
    compile_id: str,
    phases: Sequence[Phase],
    end_ns: int,
    logs: Sequence[CompileLog],
    log: CompileLog,
) -> Compiling:
    since = phases[0].start_ns
    guard = log.failed_guard(compile_id)
    return Compiling(
        rank,
        compile_id,
        log.function_of(compile_id),
        tuple(phase.name for phase in phases),
        since,
        max(end_ns - since, 0),
        phases[0].end_ns is None,
        _is_cold(compile_id, logs),
        (log.source.path,),
        guard.text if guard else "",
        guard.frame if guard else None,
    )


def _frame_of(compile_id: str) -> str:
    """The function of a compilation: `1` of `1/5`."""
    return compile_id.rpartition("/")[0]


def _is_cold(compile_id: str, logs: Sequence[CompileLog]) -> bool | None:
    """True if the function was not compiled before; None if the function is unknown."""
    frame, _, number = compile_id.rpartition("/")
    if not frame:
        return None
    before = any(
        one.compile_id != compile_id and _frame_of(one.compile_id) == frame
        for log in logs
        for one in log.compilations
    )
    return number == "0" and not before
