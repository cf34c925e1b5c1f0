"""`tracelink diagnose`: why a job hangs, as a report, a database, or a table of entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.examine import Examined, examine
from tracelink._hang.facts.model import Diagnosis, Verdict
from tracelink._hang.report import MOST_PROBLEMS, report_of, verdict_of
from tracelink._io.remote.addresses import shown
from tracelink._model.errors import UsageError
from tracelink._model.selection import Numbers
from tracelink._run.reading import parse_ranks
from tracelink.cli.answer import print_answer
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, IN_FLIGHT, NO
from tracelink.cli.options import WHOLE, Traces, command, reads

if TYPE_CHECKING:
    from tracelink._hang.facts.journal import Journal
    from tracelink._hang.report.database import Database
    from tracelink._model.columns import Bools
    from tracelink._model.results import Result
    from tracelink._show.document import Report


EXIT_CODES: Mapping[Verdict, int] = {"ok": FINE, "problem": NO, "in_flight": IN_FLIGHT}


# The selection of entries.


SHOWN, ON_PAGE = 20, 500
"""Rows of the table of entries without --limit: in a terminal, and in a file for people."""
ANSWERS = (".html", ".md", ".csv", ".json")
"""Suffixes of files with the answer; all others are databases of entries."""


class EntrySelection(Struct, frozen=True):
    """The entries that the options select."""

    ranks: Numbers | None
    groups: Sequence[str]
    stacks: bool


def _entries(
    entries: bool, only_ranks: str | None, groups: tuple[str, ...], stacks: bool
) -> EntrySelection | None:
    options = {"--ranks": only_ranks, "--group": groups, "--stacks": stacks}
    given = [name for name, value in options.items() if value]
    if given and not entries:
        raise click.UsageError(f"{given[0]} needs --entries: add it, or leave {given[0]} out.")
    if not entries:
        return None
    return EntrySelection(None if only_ranks is None else parse_ranks(only_ranks, "--ranks"), groups, stacks)


# `tracelink diagnose`.


@command(
    "tracelink diagnose samples/hung_job/dumps",
    "tracelink diagnose samples/hung_job/dumps -v                   all groups, stacks and findings",
    "tracelink diagnose samples/hung_job/dumps -q || alert-me       one line for each problem",
    "tracelink diagnose samples/hung_job/dumps --json | jq '.problems[0] | {kind, culprits, message}'",
    "tracelink diagnose samples/hung_job/dumps -o flight.sqlite     all entries and stacks, for SQL",
    "tracelink diagnose samples/hung_job/dumps -o report.html       a page for the ticket",
    "tracelink diagnose samples/hung_job/dumps --entries            the last calls of all ranks side by side",
    "tracelink diagnose samples/gpu_pair/dumps --kineto samples/gpu_pair   with the operators of profiles",
    "tracelink diagnose now/ --before earlier/",
    "tracelink diagnose bundle/                                     logs, stacks and whatever else was saved",
    "tracelink diagnose samples/hung_job/dumps --hung               what is in flight is a problem",
    "tracelink diagnose samples/hung_job/dumps --prefix comm_lib_trace_rank_",
)
@click.option(
    "-b",
    "--before",
    multiple=True,
    type=click.Path(),
    metavar="PATH",
    help="Earlier dumps of the same job: ranks that recorded nothing since then are stuck. Repeatable.",
)
@click.option(
    "--prefix",
    default="",
    metavar="TEXT",
    help="Read only files whose names start with TEXT; a number after it is the rank.",
)
@click.option(
    "--replica-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of ranks in each replica, if groups number the ranks of a replica from 0 (torchft).",
)
@click.option(
    "--hung", is_flag=True, help="The job is known to hang: do not leave open whether it still runs."
)
@click.option(
    "--entries",
    is_flag=True,
    help="Show the last entries of all ranks side by side.",
)
@click.option(
    "--ranks",
    "only_ranks",
    metavar="N-M,...",
    help="With --entries: show only these ranks, such as 0-7,64.",
)
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="With --entries: show only groups with this name or description, or part of it. Repeatable.",
)
@click.option("--stacks", is_flag=True, help="With --entries: also show the Python stack of each entry.")
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
    help="Write the answer to FILE.html, .md, .csv or .json; or all entries to a database: FILE.sqlite, "
    "FILE.duckdb, or Parquet files in DIR/ or DIR.parquet.",
)
@reads(without=WHOLE)
def diagnose(
    console: Console,
    traces: Traces,
    before: tuple[str, ...],
    prefix: str,
    replica_size: int | None,
    hung: bool,
    entries: bool,
    only_ranks: str | None,
    groups: tuple[str, ...],
    stacks: bool,
    limit: int | None,
    output: str | None,
) -> None:
    """Find out why a job hangs: which rank, which collective.

    PATHS are flight-recorder dumps, directories, globs and archives; - is standard input. The rank of a dump comes from
    its file name. Damaged dumps are reported and do not affect the others. Profiles and execution traces among PATHS
    are read only for the ranks of a problem. Logs with watchdog lines, stacks (py-spy, faulthandler) and answers of
    NCCL's monitor (ncclras) are read next to dumps, or instead of them: name the folder with everything that was saved.

    The verdict comes first, then the last collective of each rank, the last calls of the culprits, and what to do next.
    The exit code is 0 if no problem was found, 1 if the job hangs or failed, 2 for wrong arguments, 3 if nothing could
    be read, and 4 if ranks are in calls, late or without a dump, and nothing shows whether the job hangs or runs.
    """
    selection = _entries(entries, only_ranks, groups, stacks)
    database = _database_at(output)
    with traces.watched(console, *before) as reading:
        examined = examine(
            traces.paths,
            **reading,
            before=before,
            prefix=prefix,
            replica_size=replica_size,
            hung=hung,
        )
    diagnosis = examined.diagnosis
    if examined.others and (database or entries):
        jobs = ", ".join([diagnosis.job, *(other.job for other in diagnosis.other_jobs)])
        raise UsageError(
            f"these are dumps of {len(examined.others) + 1} jobs: {jobs}",
            advice="For a table of entries name the files of one job, or choose them with --prefix.",
        )
    if database:
        database.write(examined)
    result, report = (
        _diagnosis(examined, limit)
        if selection is None
        else _entries_of(console, examined, selection, limit, output)
    )
    if console.quiet and not console.json:
        if lines := _verdict(diagnosis, limit):
            console.result(*lines)
        report = replace(report, findings=diagnosis.findings)
    print_answer(console, result, None if database else output, read=traces.named, report=report)
    if database:
        console.info(f"Wrote {shown(database.path)}: {len(examined.journal):,} entries.", to_stderr=True)
    click.get_current_context().exit(EXIT_CODES[diagnosis.verdict])


def _suffix(output: str | None) -> str:
    return PurePath(output or "").suffix.lower()


def _database_at(output: str | None) -> Database | None:
    """The database of all entries that the output names; None if it is the answer."""
    if output is None:
        return None
    if _suffix(output) in ANSWERS:
        from tracelink._store.results import check_output

        check_output(output)
        return None
    from tracelink._hang.report.database import database_at
    from tracelink._io.targets import check_folder

    check_folder(output)
    return database_at(output)


def _diagnosis(examined: Examined, limit: int | None) -> tuple[Result, Report]:
    diagnosis = examined.diagnosis.limited(limit)
    journals = [other.journal for other in examined.others]
    return diagnosis, report_of(
        diagnosis, examined.journal, limited=limit is not None, of_other_jobs=journals
    )


def _verdict(diagnosis: Diagnosis, limit: int | None) -> list[str]:
    """A line for each problem, or what may not be seen; of all jobs."""
    others = [line for other in diagnosis.other_jobs for line in _verdict(other, limit)]
    if diagnosis.problems:
        return [*verdict_of(diagnosis.limited(MOST_PROBLEMS if limit is None else limit)), *others]
    return [f"No problem found. {diagnosis.blind_spot}", *others] if diagnosis.blind_spot else others


# `tracelink diagnose --entries`.


def _entries_of(
    console: Console, examined: Examined, selection: EntrySelection, limit: int | None, output: str | None
) -> tuple[Result, Report]:
    """The selected entries as rows, and side by side."""
    from tracelink._hang.report.entries import Shown, entries_of, show_side_by_side
    from tracelink._hang.report.matrix import matrix_of

    journal, ranks, default = examined.journal, selection.ranks, ON_PAGE if output else SHOWN
    every = console.json or _suffix(output) in (".csv", ".json")
    kept = journal.ranks if ranks is None else journal.ranks[ranks.mark(journal.ranks.astype(np.int64))]
    if not len(journal.ranks):
        raise UsageError("--entries: there is no dump", advice="Lines of logs are shown with -v.")
    if not len(kept):
        raise UsageError(
            f"--ranks: no dump of {ranks.called('rank') if ranks else 'any rank'}",
            advice=f"Dumps were read of {Numbers.of(journal.ranks.tolist()).called('rank')}.",
        )
    last = (None if every else default) if limit is None else limit or None
    matrix = matrix_of(journal, _of_groups(journal, selection.groups), kept, last)
    shown = Shown.of(journal, matrix, stacks=selection.stacks)
    return entries_of(shown, examined.diagnosis), show_side_by_side(shown, examined.diagnosis)


def _of_groups(journal: Journal, names: Sequence[str]) -> Bools:
    """The entries of any of these groups; of all groups if none is given."""
    if not names:
        return np.ones(len(journal), np.bool_)
    from tracelink._time.collectives.listing import groups_named

    named = np.zeros(len(journal.groups) + 1, np.bool_)
    for name in names:
        named[:-1] |= groups_named(journal.groups, name)
    entries: Bools = named[journal.records.group]
    return entries
