"""`tracelink compile`: what torch.compile compiled, how often and why, what it cost, and what failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import click

from tracelink.cli.compile_documents import compile_document
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import command, takes_jobs
from tracelink.cli.terminal import EMPTY, Page, exit_code, more, print_errors, show_findings, watching
from tracelink.compiling.diff import Change, CompileDiff, FunctionTime, compared
from tracelink.compiling.model import Compiled, CompileReport, Divergence, Failure, OpenPhase, Status
from tracelink.compiling.report import compile as compiled
from tracelink.model.text import (
    counted,
    duration,
    lowered,
    number,
    ranks_cell,
    ranks_in_words,
    shortened,
    time_of_day,
)


@command(
    "tracelink compile samples/compile_job",
    "tracelink compile samples/compile_job -v                      every compilation, with its stages",
    "tracelink compile samples/compile_job -q || alert-me          one line for each thing that went wrong",
    "tracelink compile before/ --diff after/                       what is new, gone, slower or faster",
    "tracelink compile samples/compile_job --json | jq '.compiles[] | select(.recompile_of != \"\")'",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--diff",
    "after",
    type=click.Path(),
    help="Logs of a later run: shows what is new, gone, slower or faster there.",
)
@takes_jobs
def compile(  # noqa: A001  its name as a command
    console: Console, paths: tuple[str, ...], after: str | None, jobs: int | None
) -> None:
    """Show what torch.compile compiled, why, at what cost, and what failed.

    PATHS are the logs that torch writes with TORCH_TRACE=DIR: files, directories, globs and archives; - is standard
    input. Files of other formats are left out.

    What the log ends in comes first, then what ranks compiled differently, failures, and functions by the time that
    their compilation took. The exit code is 1 if something failed, is open at the end of a log, or differs between
    ranks.

    With --diff it shows what changed from the run in PATHS to the run after it. Functions are matched by name and
    definition; counts and times are those of the rank with most. The exit code is 1 if something is worse: a
    recompilation, graph break, failure, difference between ranks or open work is new or more frequent, or a function
    takes more than 1 s and 20 % longer.
    """
    with watching(console, paths) as watch:
        report = compiled(paths, jobs=jobs, watch=watch)
        later = compiled([after], jobs=jobs, watch=watch) if after is not None else None
    diff = compared(report, later) if later else None
    if console.json:
        console.document(compile_document(report, diff))
    elif console.quiet:
        console.result(*(worse_in_words(diff) if diff else headlines(report)))
        print_errors(console, [*report.findings, *(later.findings if later else ())])
    else:
        console.info(
            diff_page(diff, verbose=console.verbose)
            if diff
            else compile_page(report, verbose=console.verbose)
        )
    codes = [exit_code(one.sources, one.findings) for one in (report, later) if one]
    clean = not diff.is_worse if diff else report.is_clean
    click.get_current_context().exit(next((code for code in codes if code != FINE), FINE if clean else NO))


# The page: what is open, what differs and what failed; then functions, by cost.


MOST_ROWS = 12
"""Rows of a table without -v."""
LONGEST = 100
"""Characters of a reason."""
STYLES = {Status.ERROR.value: "red", Status.OPEN.value: "bold red", Status.BREAK.value: "yellow"}


def headlines(report: CompileReport) -> list[str]:
    """A line for each thing that went wrong."""
    return [
        *(_open_in_words(phase) for phase in _outermost(report.open)),
        *(_divergence_in_words(one) for one in report.divergences),
        *_failures_in_words(report.failures),
    ]


def compile_page(report: CompileReport, *, verbose: bool) -> str:
    """The report on one screen."""
    page = Page()
    for line in headlines(report):
        page.line(line, "bold red")
    page.line(_summary(report), "" if report.failures or report.open or report.divergences else "bold green")
    most = None if verbose else MOST_ROWS
    page.gap()
    _show_functions(page, report, most)
    page.gap()
    _show_recompilations(page, report.compiles, most)
    page.gap()
    _show_graph_breaks(page, report, most)
    page.gap()
    _show_caches(page, report)
    if verbose:
        page.gap()
        _show_compilations(page, report.compiles)
        page.gap()
        _show_contents(page, report)
    page.gap()
    show_findings(page, report.findings, verbose=verbose)
    return page.text


def _summary(report: CompileReport) -> str:
    forward = [one for one in report.compiles if not one.backward]
    functions = {one.id.rpartition("/")[0] for one in forward}
    total = sum(one.duration_ns or 0 for one in report.compiles)
    recompiled = sum(bool(one.recompile_of) for one in forward)
    ranks = f" on {counted(len(report.ranks), 'rank')}" if len(report.ranks) > 1 else ""
    compiled = f"{counted(len(forward), 'compilation')} of {counted(len(functions), 'function')}{ranks}"
    return (
        f"{compiled} took {duration(total)}: "
        f"{number(recompiled)} recompiled, {counted(sum(one.count for one in report.graph_breaks), 'graph break')}, "
        f"{number(len(report.failures))} failed."
    )


def _outermost(phases: Sequence[OpenPhase]) -> list[OpenPhase]:
    """Of each rank the phase that has been open longest, and the one that began last within it."""
    of_rank: dict[int, list[OpenPhase]] = defaultdict(list)
    for phase in phases:
        of_rank[phase.rank].append(phase)
    return [max(many, key=lambda phase: phase.for_ns) for many in of_rank.values()]


def _open_in_words(phase: OpenPhase) -> str:
    what = f"{phase.function or 'a function'}{f' [{phase.id}]' if phase.id else ''}"
    return (
        f"Rank {phase.rank} was compiling {what} when its log ends: {phase.name} has been open for "
        f"{duration(phase.for_ns)}."
    )


def _divergence_in_words(one: Divergence) -> str:
    what = "compiled something else" if one.what == "compile" else f"have other {one.what}"
    if len(one.outliers) == 1 and one.what != "compile":
        what = f"has other {one.what}"
    than = "than each other" if one.tie else "than the other ranks"
    return f"{ranks_in_words(one.outliers)} {what} {than}: {one.found}, where the others have {one.expected}."


def _failures_in_words(failures: Sequence[Failure]) -> list[str]:
    """The same failure on several ranks is one line."""
    ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for one in failures:
        at = f" at {one.file.rsplit('/', 1)[-1]}:{one.line}" if one.file else ""
        name = f"{one.function} [{one.id}]" if one.function else f"[{one.id}]"
        ranks[(name, at, one.type, _first_line(one.reason))].append(one.rank)
    several = len({rank for each in ranks.values() for rank in each}) > 1
    return [
        f"{name} failed to compile{f' on {lowered(ranks_in_words(each))}' if several else ''}{at}: {kind}: {reason}."
        for (name, at, kind, reason), each in ranks.items()
    ]


def _first_line(text: str) -> str:
    return shortened(text.strip().split("\n", 1)[0].rstrip(".: "), LONGEST)


# Functions: how often each was compiled, and what that cost.


FUNCTIONS = (
    "function",
    "defined at",
    "called at",
    "ranks",
    "compiled",
    "recompiled",
    "breaks",
    "failed",
    "time",
)
RAN = "ran"
"""Shown if profiles are among the inputs."""
MOST_UNAMORTISED = 3
WORTH_SAYING_NS = 1_000_000_000
"""Compilations that took less are not worth a hint."""


@dataclass(slots=True)
class _Function:
    name: str = ""
    file: str = ""
    called_at: str = ""
    compiled: int = 0
    recompiled: int = 0
    breaks: int = 0
    failed: int = 0
    time_ns: int = 0
    runtime_ns: int | None = None
    runs: int = 0


def _show_functions(page: Page, report: CompileReport, most: int | None) -> None:
    functions: dict[str, _Function] = defaultdict(_Function)
    ranks: dict[str, set[int]] = defaultdict(set)
    for one in report.compiles:
        key = one.id.rpartition("/")[0]
        found = functions[key]
        ranks[key].add(one.rank)
        found.name = found.name or one.function
        found.file = found.file or (f"{one.file.rsplit('/', 1)[-1]}:{one.line}" if one.file else "")
        found.called_at = found.called_at or one.called_at
        found.compiled += not one.backward
        found.recompiled += bool(one.recompile_of)
        found.breaks += one.status is Status.BREAK
        found.failed += one.status is Status.ERROR
        found.time_ns += one.duration_ns or 0
        if one.runtime_ns is not None:
            found.runtime_ns = (found.runtime_ns or 0) + one.runtime_ns
            found.runs += 0 if one.backward else one.runs or 0
    ordered = sorted(functions.items(), key=lambda item: -item[1].time_ns)
    profiled = any(found.runtime_ns is not None for found in functions.values())
    rows = [
        [
            f"{found.name or EMPTY} [{key}]",
            found.file or EMPTY,
            found.called_at or EMPTY,
            ranks_cell(sorted(ranks[key])),
            number(found.compiled),
            number(found.recompiled),
            number(found.breaks),
            number(found.failed),
            duration(found.time_ns),
            *([EMPTY if found.runtime_ns is None else duration(found.runtime_ns)] if profiled else []),
        ]
        for key, found in ordered[:most]
    ]
    header = (*FUNCTIONS, RAN) if profiled else FUNCTIONS
    page.table(header, rows, numbers=header[4:], optional=("called at", "ranks", "breaks"))
    _rest(page, len(ordered), most, "function")
    _show_unamortised(page, ordered, most)


def _show_unamortised(page: Page, functions: Sequence[tuple[str, _Function]], most: int | None) -> None:
    """Functions that took longer to compile than their code then ran, in the profiled time."""
    found = [
        (key, one)
        for key, one in functions
        if one.runtime_ns is not None and WORTH_SAYING_NS <= one.time_ns > one.runtime_ns
    ]
    for key, one in found[: None if most is None else MOST_UNAMORTISED]:
        name = f"{one.name or 'A function'} [{key}]"
        if not one.runtime_ns:
            page.line(
                f"{name} took {duration(one.time_ns)} to compile, and did not run in the profiled time."
            )
            continue
        ran = f"ran {duration(one.runtime_ns)} in the profiled time ({counted(one.runs, 'run')})"
        as_many = number(one.time_ns * max(one.runs, 1) // one.runtime_ns)
        page.line(f"{name} took {duration(one.time_ns)} to compile, as long as {as_many} runs: it {ran}.")
    if most is not None and len(found) > MOST_UNAMORTISED:
        page.line(more(len(found) - MOST_UNAMORTISED, "function"), "dim")


def _rest(page: Page, count: int, most: int | None, thing: str) -> None:
    if most is not None and count > most:
        page.line(more(count - most, thing), "dim")


# Recompilations by the guard that failed.


RECOMPILATIONS = ("recompiled because", "function", "ranks", "times", "time")


def _show_recompilations(page: Page, compiles: Sequence[Compiled], most: int | None) -> None:
    costs: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in compiles:
        if one.recompile_of:
            key = (_first_line(one.reason), one.function or f"[{one.id.rpartition('/')[0]}]")
            costs[key] += one.duration_ns or 0
            times[key] += 1
            ranks[key].add(one.rank)
    rows = [
        [
            reason,
            function,
            ranks_cell(sorted(ranks[reason, function])),
            number(times[reason, function]),
            duration(cost),
        ]
        for (reason, function), cost in costs.most_common(most)
    ]
    if rows:
        page.table(RECOMPILATIONS, rows, numbers=("times", "time"), optional=("ranks",))
        _rest(page, len(costs), most, "guard")


# Graph breaks by reason.


GRAPH_BREAKS = ("graph break", "at", "ranks", "times")


def _show_graph_breaks(page: Page, report: CompileReport, most: int | None) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for one in report.graph_breaks:
        key = (_cause(one.reason), f"{one.file.rsplit('/', 1)[-1]}:{one.line}" if one.file else EMPTY)
        counts[key] += one.count
        ranks[key].add(one.rank)
    rows = [
        [reason, at, ranks_cell(sorted(ranks[reason, at])), number(count)]
        for (reason, at), count in counts.most_common(most)
    ]
    if rows:
        page.table(GRAPH_BREAKS, rows, numbers=("times",), optional=("ranks",))
        _rest(page, len(counts), most, "graph break")


def _cause(reason: str) -> str:
    """The first line that is not about where it was found."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    found = next((line for line in lines if not line.startswith("Encountered graph break")), reason)
    explained = next((line for line in lines if line.startswith("Explanation: ")), "")
    return shortened(explained.removeprefix("Explanation: ") or found, LONGEST)


# Caches, compilations one by one, and what else the logs contain.


def _show_caches(page: Page, report: CompileReport) -> None:
    counts = Counter((one.cache, one.state) for one in report.caches)
    for cache in sorted({one.cache for one in report.caches}):
        states = ", ".join(
            f"{number(counts[cache, state])} {state}"
            for state in ("hit", "miss", "bypass")
            if counts[cache, state]
        )
        page.line(f"{cache}: {states}.")


COMPILATIONS = (
    "rank",
    "id",
    "function",
    "status",
    "start (UTC)",
    "time",
    "recompile of",
    "because",
    "stages",
)


def _show_compilations(page: Page, compiles: Sequence[Compiled]) -> None:
    rows = [
        [
            str(one.rank),
            one.id or EMPTY,
            f"{'backward of ' if one.backward else ''}{one.function}".strip() or EMPTY,
            one.status.value,
            EMPTY if one.start_ns is None else time_of_day(one.start_ns, digits=3),
            EMPTY if one.duration_ns is None else duration(one.duration_ns),
            one.recompile_of or EMPTY,
            _first_line(one.reason) or EMPTY,
            ", ".join(f"{name} {duration(time)}" for name, time in one.stages.items()) or EMPTY,
        ]
        for one in compiles
    ]
    page.table(COMPILATIONS, rows, numbers=("rank", "time"), optional=("stages", "because"), styles=STYLES)


def _show_contents(page: Page, report: CompileReport) -> None:
    page.table(
        ("artifact", "count"),
        [[name, number(count)] for name, count in report.artifacts.items()],
        numbers=("count",),
    )


# Two runs: what is new or gone, and functions by the difference of their times.


def worse_in_words(diff: CompileDiff) -> list[str]:
    """A line for each thing that is worse in the run after."""
    return [
        *(
            _change_in_words(thing, one)
            for thing, changes in _things(diff)
            for one in changes
            if one.is_worse
        ),
        *(
            f"{one.function or 'A function'}{_defined(one)} compiles in {duration(one.after_ns)}: "
            f"before it took {duration(one.before_ns)}."
            for one in diff.functions
            if one.is_worse
        ),
    ]


def _things(diff: CompileDiff) -> list[tuple[str, Sequence[Change]]]:
    return [
        ("failure", diff.failures),
        ("open work", diff.open),
        ("difference between ranks", diff.divergences),
        ("graph break", diff.graph_breaks),
        ("recompilation", diff.recompiles),
    ]


def _change_in_words(thing: str, one: Change) -> str:
    what = f"{thing} of {one.function}" if one.function else thing
    return (
        f"{'More frequent' if one.before else 'New'} {what}{_defined(one)}: {_cause(one.reason).rstrip('.')} "
        f"({number(one.before)} before, {number(one.after)} after)."
    )


def _defined(one: Change | FunctionTime) -> str:
    return f" ({_place(one)})" if one.file else ""


def _place(one: Change | FunctionTime) -> str:
    return f"{one.file}:{one.line}" if one.file else EMPTY


CHANGES = ("change", "what", "function", "at", "because", "before", "after", "time before", "time after")
TIMES = ("function", "defined at", "compiled before", "after", "time before", "time after", "difference")
CHANGE_STYLES = {"new": "bold red", "more": "red", "gone": "green", "fewer": "green"}


def diff_page(diff: CompileDiff, *, verbose: bool) -> str:
    """What changed, on one screen."""
    page = Page()
    changes = [(thing, one) for thing, of_kind in _things(diff) for one in of_kind]
    page.line(_diff_summary(diff), "bold red" if diff.is_worse else "bold green")
    most = None if verbose else MOST_ROWS
    page.gap()
    ordered = sorted(changes, key=lambda item: not item[1].is_worse)
    rows = [
        [
            _direction(one),
            thing,
            one.function or EMPTY,
            _place(one),
            _cause(one.reason),
            number(one.before),
            number(one.after),
            duration(one.before_ns) if one.before_ns else EMPTY,
            duration(one.after_ns) if one.after_ns else EMPTY,
        ]
        for thing, one in ordered[:most]
    ]
    if rows:
        page.table(
            CHANGES, rows, numbers=CHANGES[5:], optional=("time before", "time after"), styles=CHANGE_STYLES
        )
        _rest(page, len(ordered), most, "change")
    page.gap()
    _show_times(page, diff.functions, most)
    return page.text


def _direction(one: Change) -> str:
    if one.is_worse:
        return "more" if one.before else "new"
    return "fewer" if one.after else "gone"


def _diff_summary(diff: CompileDiff) -> str:
    new, gone = (sum(one.is_worse is worse for one in diff.changes) for worse in (True, False))
    slower = sum(one.is_worse for one in diff.functions)
    return (
        f"Compiling took {duration(diff.after_ns)}, before {duration(diff.before_ns)}: "
        f"{number(new)} new or more frequent, {number(gone)} gone or less frequent, "
        f"{counted(slower, 'function')} slower."
    )


def _show_times(page: Page, functions: Sequence[FunctionTime], most: int | None) -> None:
    rows = [
        [
            one.function or EMPTY,
            _place(one),
            number(one.before),
            number(one.after),
            duration(one.before_ns),
            duration(one.after_ns),
            f"{'-' if one.after_ns < one.before_ns else '+'}{duration(abs(one.after_ns - one.before_ns))}",
        ]
        for one in functions[:most]
    ]
    page.table(TIMES, rows, numbers=TIMES[2:])
    _rest(page, len(functions), most, "function")
