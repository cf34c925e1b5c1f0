"""Answers of commands: `-o FILE`, `--json`, and the report on the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import click

from tracelink._io.targets import file_target
from tracelink._model.fields import Doc, Row
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import size
from tracelink.cli.console import Console, is_terminal, shows
from tracelink.cli.main import FINE, NO

if TYPE_CHECKING:
    from tracelink._model.errors import PageText
    from tracelink._model.results import Result
    from tracelink._show.document import Report

FORMS = ".html, .md, .csv, .json, .parquet, .sqlite or .duckdb"


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The output; an error before anything is read if nothing can be written there."""
    if value is not None:
        from tracelink._store.results import check_output

        check_output(value)
    return value


def takes_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option that writes the answer to a file."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FILE",
        callback=_checked,
        help=f"Write the answer to FILE, whose suffix says the form: {FORMS}.",
    )(function)


def print_answer(
    console: Console,
    result: Result,
    output: str | None = None,
    *,
    read: Sequence[str] = (),
    report: Report | None = None,
) -> int:
    """Prints a result as the options require, and writes it to the output if there is one.

    Args:
        console: Where it is printed.
        result: The result of the command.
        output: The file of `-o`.
        read: The files that were read, which are not overwritten.
        report: What people see, if it is more than `result.report()`.

    Returns:
        The exit code.
    """
    report = report or result.report()
    written: list[str] = []
    if output is not None:
        from tracelink._store.results import check_output, save

        check_output(output, read)
        written = save(result, output, report)
    if console.json:
        console.document(result)
    elif console.quiet:
        print_errors(console, report.findings)
    elif written:
        console.info(
            report.headline, *(f"Wrote {path} ({size(file_target(path).size())})." for path in written)
        )
    else:
        show(console, report)
    return NO if any(finding.severity is Severity.ERROR for finding in report.findings) else FINE


def show(console: Console, report: Report, *, to_stderr: bool = False) -> None:
    """Prints a report for people, unless --quiet."""
    console.info(page_of(console, report, to_stderr=to_stderr), to_stderr=to_stderr)


def page_of(console: Console, report: Report, *, to_stderr: bool = False) -> PageText:
    """A report for people as text: fitted to the terminal, plain and unwrapped elsewhere."""
    from tracelink._show.cells import BLOCKS
    from tracelink._show.terminal import UNWRAPPED, draw

    terminal = is_terminal(stderr=to_stderr)
    width = shutil.get_terminal_size().columns if terminal else UNWRAPPED
    blocks = terminal and shows(BLOCKS)
    return draw(report, width=width, styled=terminal, verbose=console.verbose, blocks=blocks)


def print_errors(console: Console, findings: Sequence[Finding]) -> None:
    """Prints the errors among the findings to standard error, even with --quiet."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        from tracelink._show.terminal import paragraph

        for finding in errors:
            console.error(paragraph(finding))


# Failures.


class Failure(Row, frozen=True):
    """Why a command failed."""

    message: str
    source: Annotated[str, Doc("Path of the file; empty if it is about none.")]
    position: Annotated[str, Doc("Where in the file: byte, line or event; empty if not known.")]
    advice: Annotated[str, Doc("What to do next.")]


class Failed(Row, frozen=True):
    """The document that every command prints with --json if it fails."""

    error: Failure
