"""The changes between two runs of a job, with causes that add up to the change of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracelink._compile.diff import compared
from tracelink._compile.model import CompileDiff, CompileReport
from tracelink._compile.reading import read_tables
from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery
from tracelink._join.reading import tasks_of
from tracelink._model.columns import Float64s
from tracelink._model.errors import UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, rank_list, ranks_in_words, size, subject
from tracelink._time.compare.confidence import LEAST_STEPS, change_interval
from tracelink._time.compare.gates import Limit, gates_of
from tracelink._time.compare.model import (
    CauseChange,
    Change,
    Comparison,
    KernelChange,
    PartChange,
    Status,
    StepChange,
    UncertainChange,
)
from tracelink._time.compare.side import Series, Side, What, side_of
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.costs import StepPart
from tracelink.plugins import Content

SAME_BYTES = 0.1
"""Two runs move the same bytes if they differ by less than this share."""
SAME_COUNT = 0.01
COUNTED = (StepPart.COMPUTE, StepPart.EXPOSED_COPY)
"""Parts whose costs are of whole calls; those of others are of reasons."""
INCOMPLETE = {Truncated.reason, "unreadable"}
"""Reasons of findings on sources of which events are missing."""
MOST_STEPS = 4
"""Ranges of steps, and ranks with different steps, that an error lists."""
MOST_KERNELS = 20
"""Kernels that are listed of one cause."""


MOST_PATHS = 2
"""Paths of a run that errors name."""


class Run(Struct, frozen=True):
    """One of the two runs: its files, which are read when they are needed, or its graph."""

    job: Callable[[], LinkedJob]
    """Reads the traces."""
    engine: Engine
    sources: Discovery | None
    """The files; None for a graph in memory."""
    path: str = ""
    """What errors call it."""

    def compile_report(self, start: int | None = None) -> CompileReport | None:
        """The tables of the logs of torch.compile; None if there is none."""
        return read_tables(self.sources, self.engine, start) if self.sources else None

    def has_more_than_logs(self) -> bool:
        """True if there are files other than logs of torch.compile."""
        tasks = tasks_of(self.sources, []) if self.sources else []
        return not all(task.content is Content.COMPILATIONS for task in tasks)


def compare_runs(
    before: Run,
    after: Run,
    *,
    limits: Sequence[Limit] = (),
    anyway: bool = False,
    steps: Numbers | None = None,
    start: int | None = None,
) -> Comparison:
    """Compares two runs of a job: how much longer a step takes, and what takes the time.

    If both runs have logs of torch.compile, it also compares what was compiled, and how long that took.

    Args:
        before: The first run.
        after: The second run.
        limits: The gates.
        anyway: Decide the gates also if the runs are not comparable.
        steps: Only these steps of both runs.
        start: If the compile logs of the first run are of several starts of the job, the one to compare.

    Raises:
        UsageError: A run has none of the steps, or a gate is for something that neither run has.
        UnreadableError: A run has no breakdown, or its ranks have no step in common.
    """
    first, second = before.compile_report(start), after.compile_report()
    compiled = compared(first, second) if first and second else None
    of_logs = [*first.findings, *second.findings] if first and second else []
    runs = {"first": before, "second": after}
    if compiled and not any(run.has_more_than_logs() for run in runs.values()):
        return _of_logs(compiled, of_logs, limits)
    sides = []
    for which, run in runs.items():
        side = side_of(run.job(), run.engine, steps)
        if not side.steps and not (compiled and not side.recorded):
            raise _nothing_to_compare(side, which, run.path, steps)
        sides.append(side)
    if compiled and not any(side.recorded for side in sides):
        return _of_logs(compiled, of_logs, limits)
    for (which, run), side in zip(runs.items(), sides, strict=True):
        if not side.steps:
            raise _nothing_to_compare(side, which, run.path, steps)
    comparison = comparison_of(sides[0], sides[1], limits, anyway=anyway, steps=steps)
    return replace(comparison, compile=compiled) if compiled else comparison


def _of_logs(diff: CompileDiff, findings: Sequence[Finding], limits: Sequence[Limit]) -> Comparison:
    """The comparison of two runs that recorded nothing but their compilations."""
    if limits:
        raise UsageError(
            f"the gate {limits[0].text!r} is for the time of steps, and there are only logs of torch.compile",
            advice="Name folders with profiles too, or leave the gate out: the exit code is 1 if compiling is worse.",
        )
    step = StepChange(0, 0, before_ns=0, after_ns=0, delta_ns=0)
    return Comparison(
        comparable=True, why_not=[], step=step, parts=[], causes=[], gates=[], findings=findings, compile=diff
    )


def limits_of(gates: object) -> list[Limit]:
    """Returns the limits in gates such as `step_time > +5%`, or in a single one; raises `UsageError` for others."""
    texts: list[Any] = [gates] if isinstance(gates, str) or not isinstance(gates, Iterable) else list(gates)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(
                f"gates: {text!r} is not a limit", advice='Write, for example, "step_time > +5%".'
            )
    return [Limit.parsed(text) for text in texts]


def _nothing_to_compare(
    side: Side, which: str, path: str, wanted: Numbers | None
) -> UsageError | UnreadableError:
    """The error if no step of a run can be compared."""
    if not side.recorded:
        return UnreadableError(
            f"the {which} run has no breakdown of time on any rank",
            source=path,
            advice="Record a profile of each rank with torch.profiler; tracelink inspect shows what the files contain.",
        )
    present = Numbers.of(step for steps in side.recorded.values() for step in steps)
    if wanted is not None and wanted.without(present) == wanted:
        have = f"Its recordings have {_steps_in_words(present)}."
        return UsageError(
            f"the {which} run has no {wanted.called('step')} on any rank", source=path, advice=have
        )
    ranks: dict[Numbers, list[int]] = defaultdict(list)
    for rank, steps in side.recorded.items():
        ranks[steps].append(rank)
    have = "; ".join(
        f"{ranks_in_words(same)} {'has' if len(same) == 1 else 'have'} {_steps_in_words(steps)}"
        for steps, same in list(ranks.items())[:MOST_STEPS]
    )
    return UnreadableError(
        f"the ranks of the {which} run have no step in common",
        source=path,
        advice=f"{have}. Choose ranks that recorded the same steps.",
    )


def _steps_in_words(steps: Numbers) -> str:
    if not steps:
        return "no steps (ProfilerStep#N)"
    return Numbers(steps.ranges[:MOST_STEPS]).called("step") + (
        ", …" if len(steps.ranges) > MOST_STEPS else ""
    )


def comparison_of(
    before: Side,
    after: Side,
    limits: Sequence[Limit] = (),
    *,
    anyway: bool = False,
    steps: Numbers | None = None,
) -> Comparison:
    """The comparison of two runs, of which these steps were wanted."""
    step = _step(before, after)
    causes = _causes(before, after, step)
    parts = _parts(causes)
    why_not = list(_differences(before, after))
    changed = sorted((cause for cause in causes if cause.delta_ns), key=lambda cause: -abs(cause.delta_ns))
    return Comparison(
        comparable=not why_not,
        why_not=why_not,
        step=step,
        parts=parts,
        causes=changed,
        gates=gates_of(
            limits,
            step,
            parts,
            causes,
            _families(limits, causes, before, after),
            decided=anyway or not why_not,
        ),
        findings=list(_findings(before, after, steps)),
    )


def _step(before: Side, after: Side) -> StepChange:
    first, second = (round(float(side.duration.mean())) for side in (before, after))
    return StepChange(
        len(before.steps),
        len(after.steps),
        before.whole_recordings and after.whole_recordings,
        before_ns=first,
        after_ns=second,
        delta_ns=second - first,
        **_bounds(before.duration, after.duration),
    )


def _bounds(before: Float64s, after: Float64s) -> dict[str, int]:
    """The fields of an `UncertainChange` that are bounds; empty with too few steps."""
    found = change_interval(before, after)
    return {} if found is None else {"low_ns": round(found[0]), "high_ns": round(found[1])}


# Causes: costs of both runs, aligned by operator or family of kernels.


def _causes(before: Side, after: Side, step: StepChange) -> list[CauseChange]:
    """All costs of both sides; averages are rounded so that they add up to the durations."""
    keys = list(dict.fromkeys([*before.costs, *after.costs]))
    firsts, seconds = (
        _apportioned([_mean(side.costs.get(key)) for key in keys], total)
        for side, total in ((before, step.before_ns), (after, step.after_ns))
    )
    members: dict[tuple[StepPart, str], list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        members[key.part, key.what].append(index)
    return [
        _cause(
            part, what, [keys[at] for at in mine], [(firsts[at], seconds[at]) for at in mine], before, after
        )
        for (part, what), mine in members.items()
    ]


def _mean(series: Series | None) -> float:
    return 0.0 if series is None else float(series.ns.mean())


def _apportioned(values: Sequence[float], total: int) -> list[int]:
    """Whole numbers near the values that add up to the total: the largest fractions are rounded up."""
    exact = np.array(values, np.float64)
    whole = np.floor(exact).astype(np.int64)
    missing = total - int(whole.sum())
    order = np.argsort(-(exact - whole), kind="stable")
    if len(order):
        share, more = divmod(missing, len(order))
        whole += share
        whole[order[:more]] += 1
    result: list[int] = whole.tolist()
    return result


def _cause(
    part: StepPart,
    what: str,
    keys: Sequence[What],
    times: Sequence[tuple[int, int]],
    before: Side,
    after: Side,
) -> CauseChange:
    first, second = sum(time for time, _ in times), sum(time for _, time in times)
    together = [
        _together([side.costs[key] for key in keys if key in side.costs], side) for side in (before, after)
    ]
    change = UncertainChange(
        before_ns=max(first, 0),
        after_ns=max(second, 0),
        delta_ns=second - first,
        **_bounds(together[0].ns, together[1].ns),
    )
    counts = [float(series.count.mean()) for series in together]
    return CauseChange(
        what,
        part,
        _status(first, second, counts, within_variation=change.within_variation),
        counts[0] if part in COUNTED else None,
        counts[1] if part in COUNTED else None,
        [] if part is StepPart.IDLE else _kernels(what, keys, times, before, after),
        **asdict(change),
    )


def _together(series: Sequence[Series], side: Side) -> Series:
    steps = len(side.steps)
    ns = sum((each.ns for each in series), np.zeros(steps))
    return Series(ns, sum((each.count for each in series), np.zeros(steps)))


def _status(first: int, second: int, counts: Sequence[float], *, within_variation: bool) -> Status:
    before, after = counts
    if not first and not before:
        return Status.NEW
    if not second and not after:
        return Status.GONE
    if within_variation:
        return Status.SAME
    if abs(after - before) > SAME_COUNT * before and (after > before) == (second > first):
        return Status.MORE if after > before else Status.FEWER
    return Status.SLOWER if second > first else Status.FASTER


def _kernels(
    what: str, keys: Sequence[What], times: Sequence[tuple[int, int]], before: Side, after: Side
) -> list[KernelChange]:
    rows = [
        KernelChange(
            key.name,
            what,
            _count(before, key),
            _count(after, key),
            before_ns=max(first, 0),
            after_ns=max(second, 0),
            delta_ns=max(second, 0) - max(first, 0),
        )
        for key, (first, second) in zip(keys, times, strict=True)
    ]
    return sorted(rows, key=lambda row: -abs(row.delta_ns))[:MOST_KERNELS]


def _count(side: Side, key: What) -> float:
    series = side.costs.get(key)
    return 0.0 if series is None else float(series.count.mean())


def _parts(causes: Sequence[CauseChange]) -> list[PartChange]:
    result = []
    for part in StepPart:
        mine = [cause for cause in causes if cause.part is part]
        first, second = sum(cause.before_ns for cause in mine), sum(cause.after_ns for cause in mine)
        result.append(PartChange(part, before_ns=first, after_ns=second, delta_ns=second - first))
    return result


def _families(
    limits: Sequence[Limit], causes: Sequence[CauseChange], before: Side, after: Side
) -> dict[str, Change]:
    """The sums of the causes `NAME: …`, for the limits of `NAME`."""
    found: dict[str, Change] = {}
    for limit in limits:
        prefix = f"{limit.what}: "
        mine = [cause for cause in causes if cause.what.startswith(prefix)]
        if mine:
            first, second = (
                _together([series for key, series in side.costs.items() if key.what.startswith(prefix)], side)
                for side in (before, after)
            )
            found[limit.what] = UncertainChange(
                before_ns=sum(cause.before_ns for cause in mine),
                after_ns=sum(cause.after_ns for cause in mine),
                delta_ns=sum(cause.after_ns - cause.before_ns for cause in mine),
                **_bounds(first.ns, second.ns),
            )
    return found


# Whether the runs can be compared.


def _differences(before: Side, after: Side) -> Iterable[str]:
    """Why a step of one run is not comparable with a step of the other."""
    for which, side in (("first", before), ("second", after)):
        damaged = {finding.source for finding in side.findings if finding.reason in INCOMPLETE}
        if damaged:
            files = subject(len(damaged), "file", "are")
            yield f"the {which} run is incomplete: {files} truncated or unreadable"
    if len(before.ranks) != len(after.ranks):
        yield f"the first run has {counted(len(before.ranks), 'rank')}, the second one {len(after.ranks)}"
    if before.world_size and after.world_size and before.world_size != after.world_size:
        yield f"the world size was {before.world_size} and is {after.world_size}"
    if before.work != after.work:
        yield f"steps of the first run are times of {_works(before)}, those of the second one of {_works(after)}"
    if before.whole_recordings != after.whole_recordings:
        which = "first" if before.whole_recordings else "second"
        yield f"the {which} run has no steps (ProfilerStep#N): all of its recording is compared with single steps"
    for operation, first, second in _moved_differently(before.moved, after.moved):
        unit = "recording" if before.whole_recordings and after.whole_recordings else "step"
        yield f"{operation} moves {size(round(first))} per rank and {unit} before, {size(round(second))} after"


def _works(side: Side) -> str:
    return " and ".join(sorted(WorkIn(work).value for work in side.work))


def _moved_differently(
    before: Mapping[str, float], after: Mapping[str, float]
) -> Iterable[tuple[str, float, float]]:
    for operation in sorted(before.keys() & after.keys()):
        first, second = before[operation], after[operation]
        if abs(second - first) > SAME_BYTES * max(first, second):
            yield operation, first, second


def _findings(before: Side, after: Side, steps: Numbers | None) -> Iterable[Finding]:
    for which, side in (("First", before), ("Second", after)):
        yield from (replace(one, message=f"{which} run: {one.message}") for one in side.findings)
        compared = Numbers.of(number for number, _ in side.steps if number is not None)
        missing = steps.without(compared) if steps is not None else None
        if missing:
            message = (
                f"{which} run: most ranks have no {_steps_in_words(missing)}; only {_steps_in_words(compared)} "
                f"{'is' if len(side.steps) == 1 else 'are'} compared."
            )
            yield Finding(Severity.WARNING, "no_such_step", message)
    for name in sorted(before.versions.keys() | after.versions.keys()):
        first, second = (
            ", ".join(sorted(side.versions.get(name, ()))) or "unknown" for side in (before, after)
        )
        if first != second:
            yield Finding(Severity.INFO, "other_version", f"{name}: version {first} before, {second} after.")
    for which, side in (("first", before), ("second", after)):
        if side.skipped:
            message = (
                f"Rank{'' if len(side.skipped) == 1 else 's'} {rank_list(side.skipped)} of the {which} run: no "
                "breakdown, or other steps than most ranks; not compared."
            )
            yield Finding(Severity.WARNING, "ranks_not_compared", message)
    if before.whole_recordings and after.whole_recordings:
        message = (
            "Neither run has steps (ProfilerStep#N): whole recordings are compared, with as many iterations as each "
            "contains. Call profiler.step() after each step."
        )
        yield Finding(Severity.WARNING, "whole_recordings", message)
    elif min(len(before.steps), len(after.steps)) < LEAST_STEPS:
        message = (
            f"With {counted(len(before.steps), 'step')} before and {len(after.steps)} after, the variation between "
            f"steps is unknown: record at least {LEAST_STEPS} steps to know which changes are noise."
        )
        yield Finding(Severity.WARNING, "few_steps", message)
