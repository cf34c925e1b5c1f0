"""Collectives whose last rank came late because it compiled: profiles and dumps of the ranks next to their logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._compile.divergences import Logs
from tracelink._compile.model import Delay
from tracelink._compile.runtime import Compiling
from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery
from tracelink._join.job_reader import Reading, read_job
from tracelink._join.reading import Task
from tracelink._model.clock import Clock
from tracelink._model.columns import MILLISECOND, NO_TIME, UNKNOWN, Int64s
from tracelink._model.errors import RankConflictError, UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import Rank
from tracelink._model.job import LinkedJob
from tracelink._model.text import operation_in_words
from tracelink._model.witnesses import CompileLog
from tracelink.plugins import Content

RECORDINGS = (Content.PROFILE, Content.RECORDS)
SHORTEST_NS = 10 * MILLISECOND
"""Delays that are not worth a row."""
LEAST_SHARE = 0.1
"""Of the time until the last rank enters: if it compiled for less, it was late for another reason."""


class Recorded(Struct, frozen=True):
    """What the other inputs say about the job."""

    delays: Sequence[Delay] = ()
    world_size: int | None = None


def recorded_by(
    tasks: Sequence[Task], logs: Logs, discovery: Discovery, engine: Engine, findings: list[Finding]
) -> Recorded:
    """The delays in the profiles and dumps among `tasks`, and the number of ranks; nothing without such files."""
    sources = [task.source for task in tasks if task.content in RECORDINGS]
    if not sources:
        return Recorded()
    try:
        job = read_job(Reading(replace(discovery, sources=sources, findings=[]), engine), with_events=False)
    except (RankConflictError, UnreadableError) as error:
        message = f"delays of collectives are unknown: {error}"
        findings.append(Finding(Severity.WARNING, "no_collectives", message))
        return Recorded()
    known = {finding.source for finding in findings}
    findings += [
        replace(finding, severity=Severity.WARNING)
        for finding in job.findings
        if finding.severity is Severity.ERROR and finding.source not in known
    ]
    sizes = {rank.world_size for rank in job.ranks if rank.world_size}
    return Recorded(delays_of(job, logs), sizes.pop() if len(sizes) == 1 else None)


def delays_of(job: LinkedJob, logs: Logs) -> list[Delay]:
    """Collectives that waited for a rank while it compiled, the longest first."""
    clocks = {rank.rank: _clock(rank) for rank in job.ranks}
    found = [
        delay
        for rank, of_rank in logs.items()
        if rank in clocks
        for delay in _delays_by(job, rank, _phases(of_rank, clocks[rank]))
    ]
    return sorted(found, key=lambda one: -one.delay_ns)


def _clock(rank: Rank) -> Clock:
    return Clock(
        rank.rank,
        offset_ns=rank.clock_offset_ns,
        drift_ppm=rank.clock_drift_ppm,
        reference_ns=rank.clock_reference_ns,
    )


class _Phases(Struct, frozen=True):
    """The compilations of a rank on the reference clock, a row for each of their phases."""

    start: Int64s
    end: Int64s
    ids: Sequence[str]
    functions: dict[str, str]


def _phases(of_rank: Sequence[CompileLog], clock: Clock) -> _Phases:
    rows = [
        (phase.start_ns, phase.end_ns or log.last_ns or phase.start_ns, phase.compile_id, log)
        for log in of_rank
        for phase in log.phases
        if phase.compile_id and not phase.instant
    ]
    functions = {id_: log for _, _, id_, log in rows}
    return _Phases(
        clock.corrected(np.array([row[0] for row in rows], np.int64)),
        clock.corrected(np.array([row[1] for row in rows], np.int64)),
        [row[2] for row in rows],
        {id_: log.function_of(id_) for id_, log in functions.items()},
    )


def _delays_by(job: LinkedJob, rank: int, phases: _Phases) -> Iterator[Delay]:
    """Collectives that this rank entered last."""
    table = job.collectives
    begun = _begun(job)
    late = np.flatnonzero((table.last_rank == rank) & (table.skew >= SHORTEST_NS) & (begun != NO_TIME))
    first, last = begun[late], begun[late] + table.skew[late]
    compiling = Compiling.merged(list(zip(phases.start.tolist(), phases.end.tolist(), strict=True)))
    busy = compiling.until(last) - compiling.until(first)
    worth = (busy >= SHORTEST_NS) & (busy >= LEAST_SHARE * table.skew[late])
    for row, begin, end, delay in zip(
        *(column[worth].tolist() for column in (late, first, last, busy)), strict=True
    ):
        overlap = np.minimum(phases.end, end) - np.maximum(phases.start, begin)
        ids = dict.fromkeys(phases.ids[number] for number in np.flatnonzero(overlap > 0).tolist())
        longest = phases.ids[int(np.argmax(overlap))]
        group, sequence = job.groups[int(table.group[row])], int(table.sequence[row])
        yield Delay(
            group.name,
            int(table.order[row]) if sequence == UNKNOWN else sequence,
            operation_in_words(job.strings[int(table.operation[row])]),
            rank,
            tuple(ids),
            phases.functions.get(longest, ""),
            begin,
            delay,
            _waiting(job, row, rank),
        )


def _begun(job: LinkedJob) -> Int64s:
    """When the first rank entered each collective; where only recorders know it, when the call was enqueued."""
    parts = job.participations
    timed = parts.enqueued != NO_TIME
    enqueued = np.full(len(job.collectives), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(enqueued, parts.collective[timed], parts.enqueued[timed])
    enqueued[enqueued == np.iinfo(np.int64).max] = NO_TIME
    return np.where(job.collectives.start != NO_TIME, job.collectives.start, enqueued)


def _waiting(job: LinkedJob, collective: int, rank: int) -> tuple[int, ...]:
    parts = job.participations
    rows = (parts.collective == collective) & (parts.rank != rank) & (parts.wait > 0)
    return tuple(sorted(set(parts.rank[rows].tolist())))
