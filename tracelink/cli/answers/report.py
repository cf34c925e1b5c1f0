"""`tracelink report`: where the time went as an HTML page, CSV files or Markdown."""

from __future__ import annotations

import click

from tracelink.answers.model.results import Summary
from tracelink.answers.model.tables import TABLES
from tracelink.answers.report import markdown_of
from tracelink.answers.report import report as written_report
from tracelink.cli.console import Console
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Inputs, command, takes_clock, takes_engine, takes_inputs
from tracelink.cli.terminal import watching
from tracelink.io.engine import Engine
from tracelink.io.targets import check_folder, file_target, folder_target, is_file
from tracelink.io.temporary import abandoned_files_removed
from tracelink.model.errors import UsageError
from tracelink.model.findings import Severity
from tracelink.model.ranges import Numbers
from tracelink.model.text import size
from tracelink.show import csv


@command(
    "tracelink report samples/gpu_pair -o report.html",
    "tracelink report samples/gpu_pair --csv tables/",
    "tracelink report samples/gpu_pair --md > report.md",
)
@takes_inputs
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="The HTML file. Default: report.html, unless another output is named.",
)
@click.option(
    "--csv",
    "csv_folder",
    type=click.Path(),
    metavar="DIR",
    help="Write each table of the report as a CSV file.",
)
@click.option("--md", "markdown", is_flag=True, help="Print Markdown.")
@click.option("--ranks", "only_ranks", metavar="N-M,...", help="Read only these ranks, such as 0-7,64.")
@click.option("--steps", metavar="N-M,...", help="Only these steps, such as 3-5,7.")
@click.option(
    "--what-if",
    metavar="QUESTION",
    multiple=True,
    help="How long the steps would take, as for `tracelink summary`.",
)
@takes_clock
@takes_engine
def report(
    console: Console,
    inputs: Inputs,
    output: str | None,
    csv_folder: str | None,
    markdown: bool,
    only_ranks: str | None,
    steps: str | None,
    what_if: tuple[str, ...],
    clock: str,
    engine: Engine,
) -> None:
    """Write where the time went as an HTML page, CSV files or Markdown.

    One HTML file that needs no network: the verdict, the time of each rank and step, causes, the critical path,
    collectives, kernels, memory and clocks. Tables sort and filter; rows have the command that shows them in a
    timeline. docs/answers.md defines every number.

    PATHS are files, directories, globs and archives, here or in stores such as s3://; - is standard input.
    """
    if markdown and console.json:
        raise click.UsageError("--md and --json cannot be combined.")
    if output is None and csv_folder is None and not markdown and not console.json:
        output = "report.html"
    if csv_folder is not None:
        check_folder(csv_folder)
        if is_file(csv_folder):
            raise UsageError(f"{csv_folder} is a file", advice="Name a folder for the CSV files.")
    with watching(console, inputs.named) as watch:
        result = written_report(
            **inputs.keywords(),
            output=output,
            clock=clock,
            engine=engine,
            watch=watch,
            ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
            steps=None if steps is None else Numbers.parse(steps, "--steps"),
            what_if=what_if,
        )
    _print(console, result, output, csv_folder, markdown=markdown)
    click.get_current_context().exit(NO if _errors(result) else FINE)


def _print(
    console: Console, result: Summary, output: str | None, csv_folder: str | None, *, markdown: bool
) -> None:
    written = [] if csv_folder is None else _write_csv(result, csv_folder)
    if console.json:
        console.document(result)
        return
    if markdown:
        console.result(*markdown_of(result).splitlines())
    for message in _errors(result):
        console.error(message)
    if console.quiet or markdown:
        return
    console.info(*result.verdict)
    if output is not None:
        target = file_target(output)
        console.info(f"Wrote {target.path()} ({size(target.size())}).")
    if csv_folder is not None:
        console.info(f"Wrote {len(written)} tables to {folder_target(csv_folder).path()}.")


def _errors(result: Summary) -> list[str]:
    return [note.message for note in result.notes if note.severity is Severity.ERROR]


def _write_csv(result: Summary, folder: str) -> list[str]:
    """Writes each table that has rows as `NAME.csv`; returns the names."""
    target = folder_target(folder)
    names = []
    with abandoned_files_removed(folder):
        for name in TABLES:
            table = result.table(name)
            if not len(table):
                continue
            names.append(name)
            with target.file(f"{name}.csv") as stream:
                stream.write(csv.draw(table).encode())
    return names
