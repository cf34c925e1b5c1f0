"""`tracelink collectives`: skew, duration, wait and bandwidth of collectives, as a table, CSV or JSON."""

from __future__ import annotations

import click

import tracelink.api as api
from tracelink.cli.collectives_page import (
    CollectiveRows,
    Order,
    collective_columns,
    collectives_document,
    collectives_page,
    message_columns,
)
from tracelink.cli.console import Console
from tracelink.cli.options import Inputs, Words, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import exit_code, print_errors, watching
from tracelink.io.engine import Engine
from tracelink.show.csv import csv_text

SHOWN = 20
"""Rows of the table without --limit."""


@command(
    "tracelink collectives samples/gpu_pair",
    "tracelink collectives samples/gpu_pair --sort duration --limit 50",
    "tracelink collectives samples/gpu_pair --group tensor --csv > tensor_parallel.csv",
    "tracelink collectives samples/gpu_pair samples/gpu_metrics --tz UTC --map 0-1=0-1",
    "tracelink collectives samples/gpu_pair --json | jq '.collectives[] | select(.last_rank == 1)'",
)
@takes_inputs
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
    help=f"Show at most N rows; 0 shows all. Default: {SHOWN} in the table, all in CSV and JSON.",
)
@click.option("--messages", is_flag=True, help="Also list point-to-point messages; with --csv, only these.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
@takes_clock
@takes_engine
def collectives(
    console: Console,
    inputs: Inputs,
    sort: str,
    group: str | None,
    limit: int | None,
    messages: bool,
    as_csv: bool,
    clock: str,
    engine: Engine,
) -> None:
    """List collectives with skew, duration and bandwidth.

    Skew is the time from the first rank entering a collective to the last rank entering it, duration the time from
    there to the end, and wait the time that all ranks together waited for the last one.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    if as_csv and console.json:
        raise click.UsageError("--csv and --json cannot be combined.")
    with watching(console, inputs.named) as watch:
        job = api.collectives(**inputs.keywords(), clock=clock, engine=engine, watch=watch)
    selected = CollectiveRows.of(job, group, Order(sort))
    shown = None if limit == 0 else limit
    if console.json:
        console.document(collectives_document(job, selected.first(shown)))
    elif as_csv:
        rows = selected.first(shown)
        table = message_columns(job, rows.messages) if messages else collective_columns(job, rows.collectives)
        console.result(*csv_text([list(table), *zip(*table.values(), strict=True)]).splitlines())
        print_errors(console, job.findings)
    elif console.quiet:
        print_errors(console, job.findings)
    else:
        shown = SHOWN if limit is None else shown
        console.info(collectives_page(job, selected, shown, list_messages=messages, verbose=console.verbose))
    click.get_current_context().exit(exit_code(job.sources, job.findings))
