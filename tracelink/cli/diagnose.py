"""`tracelink diagnose`: why a job hangs, as a page, JSON, HTML, a database, or a table of entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import click

from tracelink.cli.console import Console
from tracelink.cli.diagnosis_page import MOST_PROBLEMS, diagnosis_page, verdict
from tracelink.cli.main import FINE, IN_FLIGHT, NO
from tracelink.cli.options import RANKS_OR_RANK, Inputs, collected, command, takes_engine, takes_inputs
from tracelink.cli.terminal import print_errors, watching
from tracelink.diagnosis.examine import Examined, examine
from tracelink.diagnosis.model import Diagnosis, Verdict
from tracelink.io.engine import Engine
from tracelink.io.remote.addresses import shown
from tracelink.model.errors import UsageError
from tracelink.model.ranges import Numbers
from tracelink.model.text import size

if TYPE_CHECKING:
    from tracelink.cli.entries import EntrySelection
    from tracelink.diagnosis.database.tables import Database


EXIT_CODES: Mapping[Verdict, int] = {"ok": FINE, "problem": NO, "in_flight": IN_FLIGHT}


# Options of `diagnose`: which dumps to read, and which entries to show.


SHOWN = 20
"""Rows of the table of entries without --limit."""


class DumpKeywords(TypedDict):
    """Arguments of `tracelink.diagnose` that select dumps."""

    before: tuple[str, ...]
    prefix: str
    replica_size: int | None
    hung: bool


def _dumps(before: tuple[str, ...], prefix: str, replica_size: int | None, hung: bool) -> DumpKeywords:
    return DumpKeywords(before=before, prefix=prefix, replica_size=replica_size, hung=hung)


takes_dumps = collected(
    "dumps",
    _dumps,
    (
        click.option(
            "-b",
            "--before",
            multiple=True,
            type=click.Path(),
            metavar="PATH",
            help="Earlier dumps of the same job: ranks that recorded nothing since then are stuck. Repeatable.",
        ),
        click.option(
            "-p",
            "--prefix",
            default="",
            metavar="TEXT",
            help="Read only files whose names start with TEXT; a number after it is the rank.",
        ),
        click.option(
            "--replica-size",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of ranks in each replica, if groups number the ranks of a replica from 0 (torchft).",
        ),
        click.option(
            "--hung", is_flag=True, help="The job is known to hang: do not leave open whether it still runs."
        ),
    ),
)
"""Adds the options that select dumps; the function gets them as `dumps`."""


def _entries(
    entries: bool, only_ranks: str | None, groups: tuple[str, ...], stacks: bool, as_csv: bool
) -> EntrySelection | None:
    options = {"--ranks": only_ranks, "--group": groups, "--stacks": stacks, "--csv": as_csv}
    given = [name for name, value in options.items() if value]
    if given and not entries:
        raise click.UsageError(f"{given[0]} needs --entries.")
    if "=" in (only_ranks or ""):
        raise click.UsageError(RANKS_OR_RANK)
    context = click.get_current_context()
    if as_csv and context.obj.json:
        raise click.UsageError("--csv and --json cannot be combined.")
    if not entries:
        return None
    from tracelink.cli.entries import EntrySelection

    ranks = None if only_ranks is None else Numbers.parse(only_ranks, "--ranks")
    return EntrySelection(ranks, groups, stacks, context.params["limit"], as_csv)


takes_entries = collected(
    "entries",
    _entries,
    (
        click.option(
            "--entries",
            is_flag=True,
            help="Show the last entries of all ranks side by side.",
        ),
        click.option(
            "--ranks",
            "only_ranks",
            metavar="N-M,...",
            help="With --entries: show only these ranks, such as 0-7,64.",
        ),
        click.option(
            "-g",
            "--group",
            "groups",
            multiple=True,
            metavar="NAME",
            help="With --entries: show only groups with this name or description, or part of it. Repeatable.",
        ),
        click.option(
            "--stacks", is_flag=True, help="With --entries: also show the Python stack of each entry."
        ),
        click.option("--csv", "as_csv", is_flag=True, help="With --entries: print a CSV row for each entry."),
    ),
)
"""Adds the options that show entries; the function gets them as `entries`, None without --entries."""


# `tracelink diagnose`.


@command(
    "tracelink diagnose samples/hung_job/dumps",
    "tracelink diagnose samples/hung_job/dumps -v                   all groups, stacks and findings",
    "tracelink diagnose samples/hung_job/dumps -q || alert-me       one line for each problem",
    "tracelink diagnose samples/hung_job/dumps --json | jq '.problems[0] | {kind, culprits, message}'",
    "tracelink diagnose samples/hung_job/dumps -o flight.sqlite     all entries and stacks, for SQL",
    "tracelink diagnose samples/hung_job/dumps --html report.html   a page for the ticket",
    "tracelink diagnose samples/hung_job/dumps --entries            the last calls of all ranks side by side",
    "tracelink diagnose samples/gpu_pair/dumps --kineto samples/gpu_pair   with the operators of profiles",
    "tracelink diagnose now/ --before earlier/",
    "tracelink diagnose bundle/                                     logs, stacks and whatever else was saved",
    "tracelink diagnose samples/hung_job/dumps --hung               what is in flight is a problem",
    "tracelink diagnose samples/hung_job/dumps --prefix comm_lib_trace_rank_",
)
@takes_inputs
@takes_dumps
@takes_entries
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show at most N problems, or with --entries at most N rows; 0 shows all. "
    f"Default: {MOST_PROBLEMS} problems, {SHOWN} rows; all in CSV and JSON.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR/",
    help="Also write all entries to a database: FILE.sqlite, or Parquet files in DIR/ or DIR.parquet.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write the diagnosis as one HTML page, to attach to a ticket.",
)
@takes_engine
def diagnose(
    console: Console,
    inputs: Inputs,
    dumps: DumpKeywords,
    entries: EntrySelection | None,
    limit: int | None,
    output: str | None,
    html: str | None,
    engine: Engine,
) -> None:
    """Find out why a job hangs: which rank, which collective.

    PATHS are flight-recorder dumps, directories, globs and archives; - is standard input. The rank of a dump comes from
    its file name. Damaged dumps are reported and do not affect the others. Profiles and execution traces among PATHS
    are read only for the ranks of a problem. Logs with watchdog lines, stacks (py-spy, faulthandler) and answers of
    NCCL's monitor (ncclras) are read next to dumps, or instead of them: name the folder with everything that was saved.

    The verdict comes first, then the last collective of each rank, the last calls of the culprits, and what to do next.
    The exit code is 0 if no problem was found, 1 if one was, 2 for wrong arguments, 3 if nothing could be read, and 4
    if ranks are in calls and the dumps do not show whether the job hangs or runs.
    """
    if html == "-":
        raise UsageError("--html cannot write to standard output", advice="Name a file, such as report.html.")
    _check_folders(output, html)
    database = _database(output) if output else None
    with watching(console, [*inputs.named, *dumps["before"]]) as watch:
        examined = examine(**inputs.keywords(), **dumps, engine=engine, watch=watch)
    if database:
        database.write(examined)
    if entries:
        show_entries(console, examined, entries)
    else:
        _show_diagnosis(console, examined.diagnosis, limit)
    if database:
        console.info(f"Wrote {shown(database.path)}: {len(examined.journal):,} entries.", to_stderr=True)
    if html:
        console.info(f"Wrote {shown(html)}: {size(_write_page(examined, html))}.", to_stderr=True)
    click.get_current_context().exit(EXIT_CODES[examined.diagnosis.verdict])


def _check_folders(*outputs: str | None) -> None:
    named = [path for path in outputs if path]
    if named:
        from tracelink.io.targets import check_folder

        for path in named:
            check_folder(path)


def _database(path: str) -> Database:
    from tracelink.diagnosis.database.tables import database_at

    return database_at(path)


def _write_page(examined: Examined, path: str) -> int:
    from tracelink.diagnosis.html.page import write_page

    return write_page(examined, path)


def _show_diagnosis(console: Console, diagnosis: Diagnosis, limit: int | None) -> None:
    if console.json:
        from tracelink.cli.documents.diagnosis import diagnosis_document

        console.document(diagnosis_document(diagnosis, limit))
    elif not console.quiet:
        console.info(diagnosis_page(diagnosis, verbose=console.verbose, limit=limit))
    else:
        if diagnosis.problems:
            console.result(*verdict(diagnosis, limit))
        elif diagnosis.blind_spot:
            console.result(f"No problem found. {diagnosis.blind_spot}")
        print_errors(console, diagnosis.findings)


# `tracelink diagnose --entries`.


def show_entries(console: Console, examined: Examined, selection: EntrySelection) -> None:
    """Prints the selected entries as a table, as CSV or as JSON."""
    from tracelink.cli.entries import Shown
    from tracelink.cli.entries_page import entries_document, entries_page, entries_table

    diagnosis = examined.diagnosis
    as_table = not (selection.csv or console.json)
    if as_table and console.quiet:
        if diagnosis.problems:
            console.result(*verdict(diagnosis))
        return
    shown = Shown.of(examined.journal, selection, selection.last(SHOWN if as_table else None))
    if console.json:
        console.document(entries_document(shown, diagnosis, stacks=selection.stacks))
    elif selection.csv:
        from tracelink.show.csv import csv_text

        table = entries_table(shown, stacks=selection.stacks)
        console.result(*csv_text([list(table), *zip(*table.values(), strict=True)]).splitlines())
        print_errors(console, [*diagnosis.findings, *shown.findings])
    else:
        console.info(entries_page(shown, diagnosis, verbose=console.verbose))
