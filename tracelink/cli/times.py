"""Commands that ask where time went: `summary` and `collectives`."""

from __future__ import annotations

import click

import tracelink._api.functions as api
from tracelink._time.collectives.listing import Order, listing
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE
from tracelink.cli.options import Traces, Words, command, reads


@command(
    "tracelink summary samples/gpu_pair",
    "tracelink summary samples/gpu_pair --steps 2 -v",
    "tracelink summary samples/gpu_pair --what-if 'communication free' --what-if 'rank 1 on time'",
    "tracelink summary samples/gpu_pair -o report.html",
    "tracelink summary samples/gpu_pair --json | jq '.ranks[].steps[] | [.step, .idle_ns]'",
)
@takes_output
@click.option(
    "--what-if",
    metavar="QUESTION",
    multiple=True,
    help="How long the steps would take: 'communication free', 'kernel NAME 2x', 'operator NAME 2x', 'rank 3 on time'.",
)
@click.option("--shapes", is_flag=True, help="Also add up operators by the shapes of their inputs.")
@reads()
def summary(
    console: Console,
    traces: Traces,
    output: str | None,
    what_if: tuple[str, ...],
    shapes: bool,
) -> None:
    """Show where the time went, on every rank and step.

    A step is divided into compute, exposed communication (while nothing computes), exposed memory copies, and idle
    time; exposed and idle time by its causes. docs/answers.md defines every number.

    -o report.html writes a page that needs no network. Its tables sort and filter; rows have the command that shows
    them in a timeline.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with traces.watched(console) as reading:
        result = api.summary(traces.paths, what_if=what_if, shapes=shapes, **reading)
    click.get_current_context().exit(print_answer(console, result, output, read=traces.named))


SHOWN = 20
"""Rows of the table without --limit."""


@command(
    "tracelink collectives samples/gpu_pair",
    "tracelink collectives samples/gpu_pair --sort duration --limit 50",
    "tracelink collectives samples/gpu_pair --group tensor -o tensor_parallel.csv",
    "tracelink collectives samples/gpu_pair samples/gpu_metrics --tz UTC --map 0-1=0-1",
    "tracelink collectives samples/gpu_pair --json | jq '.collectives[] | select(.last_rank == 1)'",
)
@takes_output
@click.option(
    "-s",
    "--sort",
    type=Words([order.value for order in Order]),
    default=Order.SKEW.value,
    help="Sort order: largest first, but lowest bandwidth, earliest start and worst verdict first. Default: skew.",
)
@click.option(
    "-g", "--group", metavar="NAME", help="Only groups with this name or description, or part of it."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show at most N rows; 0 shows all. Default: {SHOWN} on the terminal, all in files and JSON.",
)
@click.option("--messages", is_flag=True, help="Also list point-to-point messages, as files and JSON do.")
@reads()
def collectives(
    console: Console,
    traces: Traces,
    output: str | None,
    sort: str,
    group: str | None,
    limit: int | None,
    messages: bool,
) -> None:
    """List collectives with skew, duration and bandwidth.

    Skew is the time from the first rank entering a collective to the last rank entering it, duration the time from
    there to the end, and wait the time that all ranks together waited for the last one.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with traces.watched(console) as reading:
        job = api.linked_job(traces.paths, **reading)
    every = console.json or output is not None
    most = (None if every else SHOWN) if limit is None else limit or None
    listed = listing(job, group=group, order=Order(sort), limit=most, messages=messages or every)
    code = print_answer(console, listed, output, read=traces.named)
    click.get_current_context().exit(code if job.sources else UNREADABLE)
