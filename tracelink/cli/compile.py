"""`tracelink compile`: what torch.compile compiled, how often and why, what it cost, and what failed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tracelink.cli.console import Console
from tracelink.cli.documents.compile import compile_document
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import command, takes_engine, takes_ranks_of_files
from tracelink.cli.terminal import EMPTY, Page, exit_code, more, print_errors, show_findings, watching
from tracelink.compiling.diff import Change, CompileDiff, FunctionTime, compared
from tracelink.compiling.graphs import estimated_graphs
from tracelink.compiling.model import Compiled, CompileReport, Status
from tracelink.compiling.report import Read, read
from tracelink.compiling.summary import (
    LONGEST,
    breaks_of,
    caches_in_words,
    cause,
    delayed,
    first_line,
    functions_of,
    guards_of,
    headlines,
    summary,
    unamortised,
)
from tracelink.io.engine import Engine
from tracelink.io.remote.addresses import shown
from tracelink.model.errors import UsageError
from tracelink.model.text import (
    counted,
    duration,
    number,
    ranks_cell,
    shortened,
    size,
    time_of_day,
)


@command(
    "tracelink compile samples/compile_job",
    "tracelink compile samples/compile_job -v                      every compilation, with its stages",
    "tracelink compile samples/compile_job -q || alert-me          one line for each thing that went wrong",
    "tracelink compile samples/compile_job --html report.html      a page with graphs, guards and generated code",
    "tracelink compile before/ --diff after/                       what is new, gone, slower or faster",
    "tracelink compile samples/compile_job --json | jq '.compiles[] | select(.recompile_of != \"\")'",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@takes_ranks_of_files
@click.option(
    "--diff",
    "after",
    type=click.Path(),
    help="Logs of a later run: shows what is new, gone, slower or faster there.",
)
@click.option(
    "--run",
    type=click.IntRange(min=1),
    help="If the logs are of several runs, read this one only: 1 is the first one.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    help="Also write a page of all of it, with graphs, guards and generated code.",
)
@click.option(
    "--artifacts",
    type=click.Path(file_okay=False),
    help="Also write all artifacts to a new folder, by rank and compile id.",
)
@takes_engine
def compile(  # noqa: A001  its name as a command
    console: Console,
    paths: tuple[str, ...],
    rank_of: tuple[tuple[str, int], ...],
    after: str | None,
    run: int | None,
    html: str | None,
    artifacts: str | None,
    engine: Engine,
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
    if "-" in (html, artifacts):
        raise UsageError("files cannot be written to standard output", advice="Name a file, or a folder.")
    with watching(console, paths) as watch:
        logs = read(paths, rank_of=dict(rank_of), engine=engine, watch=watch, run=run)
        later = read([after], engine=engine, watch=watch).report if after is not None else None
    report = logs.report
    _write(console, logs, html, artifacts)
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


def _write(console: Console, logs: Read, html: str | None, artifacts: str | None) -> None:
    if artifacts:
        from tracelink.compiling.payloads import write_artifacts

        count, written = write_artifacts(logs, artifacts)
        console.info(
            f"Wrote {shown(artifacts)}: {counted(count, 'artifact')}, {size(written)}.", to_stderr=True
        )
    if html:
        from tracelink.compiling.html.page import write_page

        console.info(f"Wrote {shown(html)}: {size(write_page(logs, html))}.", to_stderr=True)


# The page: what is open, what differs and what failed; then functions, by cost.


MOST_ROWS = 12
"""Rows of a table without -v."""
NARROW, NARROW_NAME, WIDE_NAME = 100, 24, 60
"""Columns of a narrow terminal, and characters of the name of a function in it, and elsewhere."""
STYLES = {Status.ERROR.value: "red", Status.OPEN.value: "bold red", Status.BREAK.value: "yellow"}


def compile_page(report: CompileReport, *, verbose: bool) -> str:
    """The report on one screen."""
    page = Page()
    lines = headlines(report)
    most = None if verbose else MOST_ROWS
    for line in lines[:most]:
        page.line(line, "bold red")
    _rest(page, len(lines), most, "problem")
    page.line(summary(report), "" if report.failures or report.open or report.divergences else "bold green")
    for show in SHOWN:
        page.gap()
        show(page, report, most)
    if verbose:
        page.gap()
        _show_divergences(page, report)
        page.gap()
        _show_compilations(page, report.compiles)
        page.gap()
        _show_contents(page, report)
    page.gap()
    show_findings(page, report.findings, verbose=verbose)
    return page.text


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


def _show_functions(page: Page, report: CompileReport, most: int | None) -> None:
    functions = functions_of(report)
    if not functions:
        return
    profiled = any(one.runtime_ns is not None for one in functions)
    rows = [
        [
            f"{shortened(one.name, _longest_name(page)) or EMPTY}{f' [{one.frame}]' if one.frame else ''}",
            one.file or EMPTY,
            one.called_at or EMPTY,
            ranks_cell(sorted(one.ranks)),
            number(one.compiled),
            number(one.recompiled),
            number(one.breaks),
            number(one.failed),
            duration(one.time_ns) if one.time_ns else EMPTY,
            *([EMPTY if one.runtime_ns is None else duration(one.runtime_ns)] if profiled else []),
        ]
        for one in functions[:most]
    ]
    header = (*FUNCTIONS, RAN) if profiled else FUNCTIONS
    page.table(header, rows, numbers=header[4:], optional=("called at", "ranks", "breaks", "defined at"))
    _rest(page, len(functions), most, "function")
    found = unamortised(functions)
    for line in found[: None if most is None else MOST_UNAMORTISED]:
        page.line(line)
    if most is not None and len(found) > MOST_UNAMORTISED:
        page.line(more(len(found) - MOST_UNAMORTISED, "function"), "dim")


def _longest_name(page: Page) -> int:
    """Characters of the name of a function: in a narrow terminal the numbers next to it count more."""
    return NARROW_NAME if page.width < NARROW else WIDE_NAME


def _rest(page: Page, count: int, most: int | None, thing: str) -> None:
    if most is not None and count > most:
        page.line(more(count - most, thing), "dim")


# Recompilations by the guard that failed.


RECOMPILATIONS = ("recompiled because", "at", "function", "ranks", "times", "time")


def _show_recompilations(page: Page, report: CompileReport, most: int | None) -> None:
    guards = guards_of(report.compiles)
    rows = [
        [
            one.reason,
            one.line or EMPTY,
            shortened(one.at, _longest_name(page)),
            ranks_cell(sorted(one.ranks)),
            number(one.times),
            duration(one.time_ns),
        ]
        for one in guards[:most]
    ]
    if rows:
        page.table(RECOMPILATIONS, rows, numbers=("times", "time"), optional=("ranks",))
        _rest(page, len(guards), most, "guard")


# Collectives that waited for a compilation, or that no schedule has.


DELAYS = ("collective that waited for a compilation", "for", "late rank", "compiled", "ranks that waited")
UNSCHEDULED = ("ran other collectives than scheduled", "id", "rank", "runs", "called")


def _show_delays(page: Page, report: CompileReport, most: int | None) -> None:
    rows = [
        [
            delayed(one),
            duration(one.delay_ns),
            str(one.rank),
            f"{one.function or EMPTY} [{', '.join(one.ids)}]",
            ranks_cell(one.waiting),
        ]
        for one in report.delays[:most]
    ]
    if rows:
        page.table(DELAYS, rows, numbers=("for", "late rank"), optional=("ranks that waited",))
        _rest(page, len(report.delays), most, "collective")


def _show_unscheduled(page: Page, report: CompileReport, most: int | None) -> None:
    names = {one.id: one.function for one in report.compiles if one.function}
    rows = [
        [
            f"{'backward of ' if one.backward else ''}{names.get(one.id, EMPTY)}",
            one.id,
            str(one.rank),
            number(one.runs),
            shortened(", ".join(one.operations), LONGEST) or "none",
        ]
        for one in report.unscheduled[:most]
    ]
    if rows:
        page.table(UNSCHEDULED, rows, numbers=("rank", "runs"))
        _rest(page, len(report.unscheduled), most, "graph")


# Graphs whose estimates differ between ranks, and what draft export met.


ESTIMATES = ("estimated time differs", "graph", "fastest", "slowest", "slowest rank", "ranks")
EXPORTS = ("draft export", "about", "at", "times")


def _show_estimates(page: Page, report: CompileReport, most: int | None) -> None:
    graphs = [one for one in estimated_graphs(report) if one.delta_ns or (most is None and one.slowest_ns)]
    rows = [
        [
            one.id,
            str(one.graph),
            duration(one.fastest_ns),
            duration(one.slowest_ns),
            str(one.slowest),
            ranks_cell(one.ranks),
        ]
        for one in graphs[:most]
    ]
    if rows:
        page.table(ESTIMATES, rows, numbers=ESTIMATES[1:5], optional=("ranks",))
        _rest(page, len(graphs), most, "graph")


def _show_exports(page: Page, report: CompileReport, most: int | None) -> None:
    rows = [
        [
            one.what,
            shortened(f"{one.about}: {one.reason}" if one.reason else one.about, LONGEST),
            f"{one.file.rsplit('/', 1)[-1]}:{one.line}" if one.file else EMPTY,
            number(one.count),
        ]
        for one in report.exports[:most]
    ]
    if rows:
        page.table(EXPORTS, rows, numbers=("times",))
        _rest(page, len(report.exports), most, "note")


# Caches that hit on some ranks only.


PARTIAL_HITS = ("hit on some ranks only", "id", "function", "hit on ranks", "not on ranks")


def _show_caches(page: Page, report: CompileReport, most: int | None) -> None:
    for line in caches_in_words(report):
        page.line(line)
    found = report.partial_hits
    rows = [
        [one.cache, one.id, one.function or EMPTY, ranks_cell(one.hit), ranks_cell(one.missed)]
        for one in found[:most]
    ]
    if rows:
        page.gap()
        page.table(PARTIAL_HITS, rows)
        _rest(page, len(found), most, "graph")


# Graph breaks by reason.


GRAPH_BREAKS = ("graph break", "at", "ranks", "times", "time")


def _show_graph_breaks(page: Page, report: CompileReport, most: int | None) -> None:
    breaks = breaks_of(report)
    rows = [
        [
            one.reason,
            one.at or EMPTY,
            ranks_cell(sorted(one.ranks)),
            number(one.times),
            duration(one.time_ns) if one.time_ns else EMPTY,
        ]
        for one in breaks[:most]
    ]
    if rows:
        page.table(GRAPH_BREAKS, rows, numbers=("times", "time"), optional=("ranks",))
        _rest(page, len(breaks), most, "graph break")


SHOWN = (
    _show_functions,
    _show_recompilations,
    _show_delays,
    _show_graph_breaks,
    _show_unscheduled,
    _show_estimates,
    _show_caches,
    _show_exports,
)
"""The tables, in the order of what to act on."""

# Compilations one by one, and what else the logs contain.


DIVERGENCES = ("ranks that differ", "in what", "first at", "found there", "on the other ranks")


def _show_divergences(page: Page, report: CompileReport) -> None:
    rows = [
        [ranks_cell(one.outliers), one.what, one.id, one.found, one.expected] for one in report.divergences
    ]
    if rows:
        page.table(DIVERGENCES, rows)


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
            first_line(one.reason) or EMPTY,
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
        f"{'More frequent' if one.before else 'New'} {what}{_defined(one)}: {cause(one.reason).rstrip('.')} "
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
            cause(one.reason),
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
        f"Compiling took {duration(diff.after_ns)} on the rank with most, before {duration(diff.before_ns)}: "
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
            duration(one.before_ns) if one.before else EMPTY,
            duration(one.after_ns) if one.after else EMPTY,
            f"{'-' if one.after_ns < one.before_ns else '+'}{duration(abs(one.after_ns - one.before_ns))}"
            if one.after_ns != one.before_ns
            else EMPTY,
        ]
        for one in functions[:most]
    ]
    page.table(TIMES, rows, numbers=TIMES[2:])
    _rest(page, len(functions), most, "function")
