"""`tracelink summary`: where the time went, on every rank and step."""

from __future__ import annotations

import click

from tracelink.answers.model.results import Summary
from tracelink.answers.summarize import summarize
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Inputs, command, takes_clock, takes_inputs, takes_jobs
from tracelink.cli.terminal import Page, watching
from tracelink.model.errors import Severity
from tracelink.model.ranges import Numbers
from tracelink.model.text import number, shortened, span

SHOWN = 10
"""Rows of a table without -v."""

LONGEST_NAME = 60


@command(
    "tracelink summary samples/gpu_pair",
    "tracelink summary samples/gpu_pair --steps 2",
    "tracelink summary samples/gpu_pair --json | jq '.ranks[].steps[] | [.step, .idle_ns]'",
)
@takes_inputs
@click.option("--ranks", "only_ranks", metavar="N-M,...", help="Read only these ranks, such as 0-7,64.")
@click.option("--steps", metavar="N-M,...", help="Only these steps, such as 3-5,7.")
@takes_clock
@takes_jobs
def summary(
    console: Console,
    inputs: Inputs,
    only_ranks: str | None,
    steps: str | None,
    clock: str,
    jobs: int | None,
) -> None:
    """Show where the time went, on every rank and step.

    A step is divided into compute, exposed communication (while nothing computes), exposed memory copies, and idle
    time.

    PATHS are files, directories, globs and archives; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        result = summarize(
            **inputs.keywords(),
            clock=clock,
            jobs=jobs,
            watch=watch,
            ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
            steps=None if steps is None else Numbers.parse(steps, "--steps"),
        )
    errors = [note for note in result.notes if note.severity is Severity.ERROR]
    if console.json:
        console.document(result)
    elif console.quiet:
        for note in errors:
            console.error(note.message)
    else:
        console.info(summary_page(result, verbose=console.verbose))
    click.get_current_context().exit(NO if errors else FINE)


def summary_page(result: Summary, *, verbose: bool) -> str:
    """The page for people."""
    page = Page()
    _show_ranks(page, result)
    _show_kernels(page, result, None if verbose else SHOWN)
    for note in result.notes:
        if verbose or note.severity is not Severity.INFO:
            page.line(f"{note.severity}: {note.message}")
    return page.text


def _show_ranks(page: Page, result: Summary) -> None:
    header = ("rank", "steps", "time", "compute", "exposed comm.", "exposed copies", "idle")
    rows = []
    for rank in result.ranks:
        total = sum(step.duration_ns for step in rank.steps)
        parts = (
            [step.compute_ns for step in rank.steps],
            [step.exposed_communication_ns for step in rank.steps],
            [step.exposed_copy_ns for step in rank.steps],
            [step.idle_ns for step in rank.steps],
        )
        shares = [f"{sum(part) / (total or 1):.1%}" for part in parts]
        rows.append([str(rank.rank), number(len(rank.steps)), span(total), *shares])
    page.table(header, rows, numbers=header)
    page.gap()


def _show_kernels(page: Page, result: Summary, shown: int | None) -> None:
    header = ("kernel", "count", "total", "share", "ranks")
    rows = [
        [
            shortened(kernel.name, LONGEST_NAME),
            number(kernel.count),
            span(kernel.total_ns),
            f"{kernel.share:.1%}",
            number(kernel.ranks),
        ]
        for kernel in result.kernels[:shown]
    ]
    if rows:
        page.table(header, rows, numbers=header[1:])
        page.gap()
