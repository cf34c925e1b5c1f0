"""`tracelink diagnose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracelink.cli.diagnosis_page import MOST_PROBLEMS, diagnosis_page, verdict
from tracelink.cli.entries_options import SHOWN, DumpKeywords, takes_dumps, takes_entries
from tracelink.cli.entries_wanted import Wanted
from tracelink.cli.failures import FINE, NO
from tracelink.cli.options import Inputs, command, takes_inputs, takes_jobs
from tracelink.cli.page import size
from tracelink.cli.progress import watching
from tracelink.cli.voice import Voice, printable
from tracelink.diagnosis import Diagnosis
from tracelink.errors import UsageError
from tracelink.examining import Examined, examine

if TYPE_CHECKING:
    from tracelink.converters.flight_database import Database


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
    voice: Voice,
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
    with watching(voice, inputs.named) as watch:
        examined = examine(**inputs.keywords(), **dumps, jobs=jobs, watch=watch)
    if database:
        database.write(examined)
    if entries:
        _show_entries(voice, examined, entries)
    else:
        _show_diagnosis(voice, examined.diagnosis, limit)
    if database:
        voice.say(f"Wrote {printable(database.path)}: {len(examined.journal):,} entries.", aside=True)
    if html:
        voice.say(f"Wrote {printable(html)}: {size(_write_page(examined, html))}.", aside=True)
    click.get_current_context().exit(NO if examined.diagnosis.problems else FINE)


def _database(path: str) -> Database:
    from tracelink.converters.flight_database import database_at

    return database_at(path)


def _write_page(examined: Examined, path: str) -> int:
    from tracelink.converters.html_report import write_page

    return write_page(examined, path)


def _show_entries(voice: Voice, examined: Examined, entries: Wanted) -> None:
    from tracelink.cli.entries_output import show_entries

    show_entries(voice, examined, entries)


def _show_diagnosis(voice: Voice, diagnosis: Diagnosis, limit: int | None) -> None:
    if voice.json:
        from tracelink.cli.diagnosis_document import diagnosis_document

        voice.document(diagnosis_document(diagnosis, limit))
    elif not voice.quiet:
        voice.say(diagnosis_page(diagnosis, verbose=voice.verbose, limit=limit))
    elif diagnosis.problems:
        voice.conclude(verdict(diagnosis, limit))
