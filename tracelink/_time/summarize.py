"""Answers on a job: its `Summary`, and what-if questions. Each rank is looked at by the worker that loads it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from msgspec import structs

from tracelink._io.engine import Engine
from tracelink._model.causes import callers, innermost, outside
from tracelink._model.columns import UNKNOWN
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import Excerpt
from tracelink._model.job import LinkedJob, Part
from tracelink._model.selection import Numbers
from tracelink._run.processes import Processes
from tracelink._time.collectives.exchanges import Splits, splits_of
from tracelink._time.collectives.report import collectives_of
from tracelink._time.model.results import (
    OWN,
    GapRow,
    KernelRow,
    KernelTotal,
    LineRow,
    Metric,
    ModuleRow,
    OperatorRow,
    RankSummary,
    ShapeRow,
    StepTime,
    Summary,
    WaitRow,
    WhatIf,
)
from tracelink._time.notes import lost_data, notes_on
from tracelink._time.path.job import joined
from tracelink._time.path.questions import EXAMPLES, answered, asked, not_answered
from tracelink._time.path.rank import RankPieces, contracted
from tracelink._time.path.report import path_of, totals_of
from tracelink._time.path.times import unusable_times
from tracelink._time.rank.account import Account, account_of
from tracelink._time.rank.tables import Rows, Tables, Texts
from tracelink._time.verdict import MOST_SENTENCES, verdict_on


def summary_of(
    job: LinkedJob,
    engine: Engine | None = None,
    steps: Numbers | None = None,
    what_if: Sequence[str] = (),
    *,
    with_shapes: bool = False,
) -> Summary:
    """The summary of a job that was read; of some of its steps only if `steps` names any."""

    def work(part: Part) -> tuple[Account, Splits, RankPieces]:
        graph = part.load()
        account = account_of(graph, job, steps, with_shapes=with_shapes)
        return account, splits_of(graph, job, part.rank), contracted(graph, job, part.rank)

    answered = (engine or Processes()).map(work, job.parts)
    accounts = [account for account, _, _ in answered]
    report = collectives_of(job, [splits for _, splits, _ in answered])
    ranks_in_pieces = [pieces for _, _, pieces in answered]
    path = path_of(ranks_in_pieces, job, steps)
    missing = _missing_steps(ranks_in_pieces, steps) if steps is not None else []
    ranks = [account.summary for account in accounts]
    tables = [account.tables for account in accounts]
    summary = Summary(
        verdict=(),
        ranks=ranks,
        step_time=_step_time(ranks),
        kernels=_kernels(tables),
        operators=_rows(OperatorRow, ("name",), CALLS, (table.operators for table in tables), "self_ns"),
        modules=_rows(
            ModuleRow,
            ("name",),
            (*CALLS, "backward_device_ns"),
            (table.modules for table in tables),
            "total_ns",
        ),
        lines=_rows(LineRow, ("name",), CALLS, (table.lines for table in tables), "self_ns"),
        gaps=_rows(
            GapRow,
            ("operator", "within", "line"),
            ("count", "idle_ns"),
            (table.gaps for table in tables),
            "idle_ns",
        ),
        waits=_rows(
            WaitRow,
            ("call", "operator", "line"),
            ("count", "host_ns", "idle_ns"),
            (table.waits for table in tables),
            "host_ns",
        ),
        shapes=_rows(ShapeRow, ("name", "shapes"), CALLS, (table.shapes for table in tables), "device_ns"),
        collectives=report.collectives,
        communication=report.communication,
        critical_path=None if path is None else totals_of(path),
        what_if=answers_of_ranks(ranks_in_pieces, job, what_if),
        findings=[
            *missing,
            *notes_on(accounts, job),
            *(Finding(Severity.INFO, f"{OWN}collectives", text) for text in report.notes),
            *job.findings,
            *(job.missing_arguments if with_shapes else ()),
        ],
        sources=len(job.sources),
        start_ns=job.first_ns,
        clocks=[rank.clock for rank in job.ranks],
        metrics=_metrics(job, ranks),
    )
    reason = unusable_times(ranks_in_pieces, job)
    sentences = [reason] if reason else verdict_on(summary)
    lost = lost_data(job) if sentences else []
    return structs.replace(summary, verdict=[*sentences[: MOST_SENTENCES - len(lost)], *lost])


def answers_of(job: LinkedJob, questions: Sequence[str], engine: Engine) -> list[WhatIf]:
    """The answers of a job that was read; raises `UsageError` if there is no question."""
    if not asked(questions):
        raise UsageError("no what-if question", advice=f"Ask, for example, {EXAMPLES}.")

    def work(part: Part) -> RankPieces:
        return contracted(part.load(), job, part.rank)

    return answers_of_ranks(engine.map(work, job.parts), job, questions)


def _missing_steps(parts: Sequence[RankPieces], wanted: Numbers) -> list[Finding]:
    """A warning on wanted steps that no rank has; an error if it has none of them."""
    there = sorted({step for part in parts for step in part.steps.tolist() if step != UNKNOWN})
    missing = wanted.without(there)
    if not missing:
        return []
    known = f"There are steps {Numbers.of(there)}." if there else "No rank has recorded steps."
    if not any(step in wanted for step in there):
        raise UsageError(f"there is no {wanted.called('step')} on any rank", advice=f"{known} {WITHOUT}")
    return [
        Finding(
            Severity.WARNING,
            f"{OWN}missing_steps",
            f"There is no {missing.called('step')} on any rank. {known}",
        )
    ]


WITHOUT = "Without --steps, all steps are shown."


def _step_time(ranks: Sequence[RankSummary]) -> StepTime:
    """Of each step the duration on its slowest rank."""
    slowest: dict[tuple[int | None, int], int] = defaultdict(int)
    for rank in ranks:
        seen: dict[int | None, int] = defaultdict(int)
        for step in rank.steps:
            occurrence = step.step, seen[step.step]
            seen[step.step] += 1
            slowest[occurrence] = max(slowest[occurrence], step.duration_ns)
    if not slowest:
        return StepTime(0)
    times = np.sort(np.array(list(slowest.values()), np.int64))
    p90 = int(times[-(-9 * len(times) // 10) - 1])
    return StepTime(len(times), int(times.mean()), int(np.median(times)), p90, int(times[0]), int(times[-1]))


def _kernels(tables: Sequence[Tables]) -> list[KernelRow]:
    """Kernels of all ranks by name, the longest first."""
    by_name: dict[str, list[KernelTotal]] = {}
    for table in tables:
        for kernel in table.kernels:
            by_name.setdefault(kernel.name, []).append(kernel)
    totals = {name: sum(kernel.total_ns for kernel in some) for name, some in by_name.items()}
    whole = sum(totals.values()) or 1
    rows = []
    for name in sorted(totals, key=lambda name: (-totals[name], name)):
        some = by_name[name]
        most = max(some, key=lambda kernel: kernel.total_ns)
        row = KernelRow(
            name=name,
            count=sum(kernel.count for kernel in some),
            total_ns=totals[name],
            mean_ns=totals[name] // sum(kernel.count for kernel in some),
            ranks=len(some),
            share=totals[name] / whole,
            low_ns=min(kernel.low_ns for kernel in some),
            high_ns=max(kernel.high_ns for kernel in some),
            communication=most.communication,
            queue_ns=sum(kernel.queue_ns for kernel in some),
            launch_ns=sum(kernel.launch_ns for kernel in some),
            operator=most.operator,
            module=most.module,
            line=most.line,
            source_lines=most.source_lines,
            stack=most.stack,
        )
        rows.append(row)
    return rows


RowType = TypeVar("RowType")

CALLS = ("count", "total_ns", "self_ns", "device_ns")
"""Numbers of calls, in the order of `Tables`."""


def _rows(
    row_type: Callable[..., RowType],
    texts: Sequence[str],
    numbers: Sequence[str],
    tables: Iterable[Rows],
    order: str,
) -> list[RowType]:
    """Rows of all ranks with equal texts as one, sorted by a number, the largest first."""
    sums: dict[Texts, list[int]] = {}
    for table in tables:
        for key, values in table.items():
            known = sums.get(key)
            if known is None:
                sums[key] = [*values, 1]
            else:
                sums[key] = [total + added for total, added in zip(known, [*values, 1], strict=True)]
    column = numbers.index(order)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][column], item[0]))
    names = (*texts, *numbers, "ranks")
    return [row_type(**dict(zip(names, (*key, *values), strict=True))) for key, values in ordered]


MOST_SAMPLES = 400
"""Samples of a metric: as many as a chart can show."""


def _metrics(job: LinkedJob, ranks: Sequence[RankSummary]) -> list[Metric]:
    """The gauges of ranks and devices, without the memory that ranks have already."""
    counters, found = job.metrics, []
    memory = {(one.rank, one.counter) for rank in ranks for one in rank.memory}
    for index in np.unique(counters.track).tolist():
        track, rows = job.metric_tracks[index], np.flatnonzero(counters.track == index)
        if (track.rank, track.label or track.identity) in memory:
            continue
        rows = rows[:: max(1, len(rows) // MOST_SAMPLES)]
        samples = zip(counters.time[rows].tolist(), counters.value[rows].tolist(), strict=True)
        found.append(Metric(track.rank, track.process, track.label, track.unit, list(samples)))
    return found


# What-if questions.


def answers_of_ranks(parts: Sequence[RankPieces], job: LinkedJob, questions: Sequence[str]) -> list[WhatIf]:
    """The answers of the contracted graphs of all ranks."""
    if not questions:
        return []
    if reason := unusable_times(parts, job):
        return not_answered(questions, reason)
    pieces = joined(parts, job)
    if not len(pieces.begin) or pieces.begin[-1] <= pieces.begin[0]:
        raise UsageError("no rank has a profile, so nothing can be replayed")
    return answered(pieces, questions, lambda name: _operators_around(job, name))


def _operators_around(job: LinkedJob, name: str) -> list[str]:
    """The outermost operators around those of a name, in full or as a part of it; the most frequent first."""
    counts: Counter[str] = Counter()
    for part in job.parts:
        graph = part.load()
        operator = graph.events.of_kind(EventKind.OPERATOR)
        names = {code for code, text in enumerate(graph.strings) if name.lower() in text.lower()}
        caller = callers(Excerpt(graph))
        outer = outside(caller, innermost(caller, operator))
        row = np.flatnonzero(operator & np.isin(graph.events.name, list(names)) & (outer != UNKNOWN))
        while len(row):
            top = row[outer[row] == UNKNOWN]
            counts.update(graph.strings[code] for code in graph.events.name[top].tolist())
            row = outer[row[outer[row] != UNKNOWN]]
    return [text for text, _ in counts.most_common()]
