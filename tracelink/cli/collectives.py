"""`tracelink collectives`: skew, duration, wait and bandwidth of collectives."""

from __future__ import annotations

import click

import tracelink._api as api
from tracelink._io.engine import Engine
from tracelink._time.collectives.listing import Order, listing
from tracelink.cli.answer import print_answer, takes_output
from tracelink.cli.console import Console
from tracelink.cli.main import UNREADABLE
from tracelink.cli.options import Inputs, Words, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import watching

SHOWN = 20
"""Rows of the table without --limit."""


@command(
    "tracelink collectives samples/gpu_pair",
    "tracelink collectives samples/gpu_pair --sort duration --limit 50",
    "tracelink collectives samples/gpu_pair --group tensor -o tensor_parallel.csv",
    "tracelink collectives samples/gpu_pair samples/gpu_metrics --tz UTC --map 0-1=0-1",
    "tracelink collectives samples/gpu_pair --json | jq '.collectives[] | select(.last_rank == 1)'",
)
@takes_inputs
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
@takes_clock
@takes_engine
def collectives(
    console: Console,
    inputs: Inputs,
    output: str | None,
    sort: str,
    group: str | None,
    limit: int | None,
    messages: bool,
    clock: str,
    engine: Engine,
) -> None:
    """List collectives with skew, duration and bandwidth.

    Skew is the time from the first rank entering a collective to the last rank entering it, duration the time from
    there to the end, and wait the time that all ranks together waited for the last one.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    with watching(console, inputs.named) as watch:
        job = api.collectives(**inputs.keywords(), clock=clock, engine=engine, watch=watch)
    every = console.json or output is not None
    most = (None if every else SHOWN) if limit is None else limit or None
    listed = listing(job, group=group, order=Order(sort), limit=most, messages=messages or every)
    code = print_answer(console, listed, output, read=inputs.named)
    click.get_current_context().exit(code if job.sources else UNREADABLE)
