"""Diagnose."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypedDict

import click

from tracelink.cli.collectives import csv_of
from tracelink.cli.console import Console
from tracelink.cli.diagnosis_page import MOST_PROBLEMS, diagnosis_page, verdict
from tracelink.cli.entries import Shown, Wanted
from tracelink.cli.entries_page import entries_document, entries_page, entries_table
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.terminal import print_errors, watching
from tracelink.diagnosis.examine import Examined, examine
from tracelink.diagnosis.model import Diagnosis
from tracelink.errors import UsageError, printable
from tracelink.ranges import Numbers
from tracelink.text import size

if TYPE_CHECKING:
    from tracelink.diagnosis.database.tables import Database


# Options of `diagnose`: which dumps to read, and which entries to show.


SHOWN = 20
"""Rows of a table, unless the user says how many."""

ENTRIES = (
    click.option("--entries", is_flag=True, help="Show the last entries of all ranks side by side instead."),
    click.option(
        "--ranks", "only_ranks", metavar="N-M,...", help="With --entries: only these ranks, such as 0-7,64."
    ),
    click.option(
        "-g",
        "--group",
        "groups",
        multiple=True,
        metavar="NAME",
        help="With --entries: only groups of this name or description, or a part of it. Repeatable.",
    ),
    click.option("--stacks", is_flag=True, help="With --entries: the Python stack of each entry too."),
    click.option("--csv", "as_csv", is_flag=True, help="With --entries: a row for each entry, as CSV."),
)


DUMPS = (
    click.option(
        "-p",
        "--prefix",
        default="",
        metavar="TEXT",
        help="Read only files whose names begin so; a number that is all that follows is the rank.",
    ),
    click.option(
        "--replica-size",
        type=click.IntRange(min=1),
        metavar="N",
        help="Each N ranks are a replica, whose groups may count its ranks from 0, as with torchft.",
    ),
)


class DumpKeywords(TypedDict):
    """How `tracelink.api` calls what is said of dumps."""

    prefix: str
    replica_size: int | None


def takes_dumps(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which dumps to read and how; the function gets them as `dumps`."""

    def gathering(*args: Any, prefix: str, replica_size: int | None, **kwargs: Any) -> None:
        said = DumpKeywords(prefix=prefix, replica_size=replica_size)
        function(*args, dumps=said, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(DUMPS):
        taking = option(taking)
    return taking


def takes_entries(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that show entries; the function gets them as `entries`, None where they are not wanted."""

    def gathering(
        *args: Any,
        entries: bool,
        only_ranks: str | None,
        groups: tuple[str, ...],
        stacks: bool,
        as_csv: bool,
        **kwargs: Any,
    ) -> None:
        said = {"--ranks": only_ranks, "--group": groups, "--stacks": stacks, "--csv": as_csv}
        alone = [name for name, value in said.items() if value]
        if alone and not entries:
            raise click.UsageError(f"{alone[0]} says which entries to show: add --entries.")
        if "=" in (only_ranks or ""):
            raise click.UsageError("--ranks chooses ranks, such as 0-7; --rank FILE=N says whose a file is.")
        if as_csv and args[0].json:
            raise click.UsageError("--csv and --json exclude each other.")
        ranks = None if only_ranks is None else Numbers.parse(only_ranks, "--ranks")
        wanted = Wanted(ranks, groups, stacks, kwargs["limit"], as_csv)
        function(*args, entries=wanted if entries else None, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(ENTRIES):
        taking = option(taking)
    return taking


# `tracelink diagnose`.


@command(
    "tracelink diagnose dumps/",
    "tracelink diagnose dumps/ -v                   every group, every stack, every finding",
    "tracelink diagnose dumps/ -q || alert-me       one line for each problem, nothing if there is none",
    "tracelink diagnose dumps/ --json | jq '.problems[0] | {kind, culprits, message}'",
    "tracelink diagnose dumps/ -o flight.sqlite     every entry and stack in tables, for SQL",
    "tracelink diagnose dumps/ --html report.html   a page for the ticket",
    "tracelink diagnose dumps/ --entries            the last calls of all ranks side by side",
    "tracelink diagnose dumps/ --kineto traces/     the operators, the stack and the kernel under it",
    "tracelink diagnose 'dumps/comm_lib_trace_rank_*' --rank dumps/odd_name=3",
)
@takes_inputs
@takes_dumps
@takes_entries
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most N problems, or with --entries N rows, 0 for all. Default: {MOST_PROBLEMS} problems, "
    f"{SHOWN} rows; all as CSV and JSON.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR/",
    help="Also write all entries as a database: FILE.sqlite, or Parquet files in DIR/ or DIR.parquet.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write it as one page that opens in any browser and can be attached to a ticket.",
)
@takes_jobs
def diagnose(
    console: Console,
    inputs: Inputs,
    dumps: DumpKeywords,
    entries: Wanted | None,
    limit: int | None,
    output: str | None,
    html: str | None,
    jobs: int | None,
) -> None:
    """Say which rank, which collective and why a job hangs.

    PATHS are flight-recorder dumps, directories, globs and archives of them; - is standard input. The rank is
    taken from each file's name. Missing or damaged dumps cost only themselves. Profiles and execution traces
    among them are read for the ranks of a problem alone.

    The verdict comes first, under it what each rank was last doing, the last calls of those to blame, and what
    to look at next. The exit code is 0 if nothing is wrong, 1 if something is, 2 if the arguments make no
    sense, and 3 if nothing can be read.
    """
    if html == "-":
        raise UsageError("--html: - is no place for the page", advice="Name a file, such as report.html.")
    database = _database(output) if output else None
    with watching(console, inputs.named) as watch:
        examined = examine(**inputs.keywords(), **dumps, jobs=jobs, watch=watch)
    if database:
        database.write(examined)
    if entries:
        _show_entries(console, examined, entries)
    else:
        _show_diagnosis(console, examined.diagnosis, limit)
    if database:
        console.info(f"Wrote {printable(database.path)}: {len(examined.journal):,} entries.", to_stderr=True)
    if html:
        console.info(f"Wrote {printable(html)}: {size(_write_page(examined, html))}.", to_stderr=True)
    click.get_current_context().exit(NO if examined.diagnosis.problems else FINE)


def _database(path: str) -> Database:
    from tracelink.diagnosis.database.tables import database_at

    return database_at(path)


def _write_page(examined: Examined, path: str) -> int:
    from tracelink.diagnosis.html.page import write_page

    return write_page(examined, path)


def _show_entries(console: Console, examined: Examined, entries: Wanted) -> None:

    show_entries(console, examined, entries)


def _show_diagnosis(console: Console, diagnosis: Diagnosis, limit: int | None) -> None:
    if console.json:
        from tracelink.cli.diagnosis_documents import diagnosis_document

        console.document(diagnosis_document(diagnosis, limit))
    elif not console.quiet:
        console.info(diagnosis_page(diagnosis, verbose=console.verbose, limit=limit))
    elif diagnosis.problems:
        console.result(verdict(diagnosis, limit))


# `tracelink diagnose --entries`: as a table, as CSV, or as JSON.


def show_entries(console: Console, examined: Examined, wanted: Wanted) -> None:
    """Prints the entries that are wanted."""
    diagnosis = examined.diagnosis
    as_table = not (wanted.csv or console.json)
    if as_table and console.quiet:
        if diagnosis.problems:
            console.result(verdict(diagnosis))
        return
    shown = Shown.of(examined.journal, wanted, wanted.last(SHOWN if as_table else None))
    if console.json:
        console.document(entries_document(shown, diagnosis, stacks=wanted.stacks))
    elif wanted.csv:
        click.echo(csv_of(entries_table(shown, stacks=wanted.stacks)), nl=False)
        print_errors(console, [*diagnosis.findings, *shown.findings])
    else:
        console.info(entries_page(shown, diagnosis, verbose=console.verbose))
