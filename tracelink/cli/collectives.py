"""Collectives."""

from __future__ import annotations

import csv
import io
from functools import cache
from typing import Any

import click

from tracelink import api
from tracelink.cli.collectives_page import (
    Choice,
    Order,
    Table,
    collective_columns,
    collectives_document,
    collectives_page,
    message_columns,
)
from tracelink.cli.console import Console
from tracelink.cli.options import Inputs, command, takes_clock, takes_inputs, takes_jobs
from tracelink.cli.terminal import exit_code, print_errors, watching
from tracelink.errors import printable
from tracelink.ranges import Numbers

SHOWN = 20
"""Rows of a table, unless the user says how many."""


@command(
    "tracelink collectives traces/",
    "tracelink collectives traces/ --sort duration --limit 50",
    "tracelink collectives traces/ --group tp --csv > tp.csv",
    "tracelink collectives traces/ --json | jq '.collectives[] | select(.last_rank == 3)'",
)
@takes_inputs
@click.option(
    "-s",
    "--sort",
    type=click.Choice([order.value for order in Order]),
    default=Order.SKEW.value,
    help="The largest first; the lowest bandwidth, the earliest start, the worst verdict. Default: skew.",
)
@click.option(
    "-g", "--group", metavar="NAME", help="Only groups of this name or description, or a part of it."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most N rows, 0 for all. Default: {SHOWN} in a table, all as CSV and JSON.",
)
@click.option("--messages", is_flag=True, help="List messages too; with --csv, only them.")
@click.option("--csv", "as_csv", is_flag=True, help="Print rows as CSV on standard output.")
@takes_clock
@takes_jobs
def collectives(
    console: Console,
    inputs: Inputs,
    sort: str,
    group: str | None,
    limit: int | None,
    messages: bool,
    as_csv: bool,
    clock: str,
    jobs: int | None,
) -> None:
    """List what ranks did together, and who came last.

    PATHS are files, directories, globs and archives; - is standard input. Skew is from the first rank's
    entering to the last's, duration from there to the end, wait what all ranks together waited for the last.
    """
    if as_csv and console.json:
        raise click.UsageError("--csv and --json exclude each other.")
    with watching(console, inputs.named) as watch:
        job = api.collectives(**inputs.keywords(), clock=clock, jobs=jobs, watch=watch)
    choice = Choice.of(job, group, Order(sort))
    shown = None if limit == 0 else limit
    if console.json:
        console.document(collectives_document(job, choice.first(shown)))
    elif as_csv:
        wanted = choice.first(shown)
        table = (
            message_columns(job, wanted.messages) if messages else collective_columns(job, wanted.collectives)
        )
        click.echo(csv_of(table), nl=False)
        print_errors(console, job.findings)
    elif console.quiet:
        print_errors(console, job.findings)
    else:
        shown = SHOWN if limit is None else shown
        console.info(collectives_page(job, choice, shown, list_messages=messages, verbose=console.verbose))
    click.get_current_context().exit(exit_code(job.sources, job.findings))


def csv_of(table: Table) -> str:
    """A table as CSV; what is not known is empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(table)
    lines.writerows(map(_csv_cell, row) for row in zip(*table.values(), strict=True))
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        return _ranks(tuple(value))
    return printable(value) if isinstance(value, str) else value


@cache
def _ranks(numbers: tuple[int, ...]) -> str:
    return str(Numbers.of(numbers))
