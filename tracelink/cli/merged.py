"""What `merge`, `convert` and `demo` print: the estimated size, the result, and the files."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

import tracelink._api as api
from tracelink._model.findings import Severity
from tracelink._model.text import about, counted, size
from tracelink.cli.answer import print_errors, show
from tracelink.cli.console import Console, is_terminal
from tracelink.cli.main import FINE, NO, UNREADABLE

if TYPE_CHECKING:
    from tracelink._api import Written
    from tracelink._join.forecast import OnForecast, OutputForecast
    from tracelink._show.document import Report
    from tracelink.cli.terminal import Bar
    from tracelink.plugins.outputs import Output

STDOUT = "-"

SHOWN = "perfetto"
"""Prefix of the formats that Perfetto's UI opens."""

FILES = 4
"""More outputs than this share one line."""


def writes_to_stdout(console: Console, output: str | None) -> bool:
    """True if the trace goes to standard output, so that every message must go to standard error."""
    if output != STDOUT:
        return False
    if console.json:
        raise click.UsageError("--json and an output of - both use standard output: name an output file.")
    if is_terminal():
        raise click.UsageError(
            "an output of - would print the trace to the terminal: pipe it into a command, or name an output file."
        )
    return True


def announcing(console: Console, bar: Bar | None, *, to_stderr: bool) -> OnForecast | None:
    """A function that prints the estimated size of an output before it is written; None if nothing is printed."""
    if console.silent:
        return None

    def announce(output: OutputForecast) -> None:
        if bar:
            bar.now_writing()
        from tracelink._show.document import Paragraph, Report

        report = Report("merge", summary=[Paragraph(_estimate(output))], findings=output.findings)
        show(console, report, to_stderr=to_stderr)

    return announce


def _estimate(output: OutputForecast) -> str:
    forecast = output.forecast
    unpacked = f" ({about(forecast.unpacked)} uncompressed)" if forecast.unpacked != forecast.bytes else ""
    return f"Writing {output_name(output.path)}: about {about(forecast.bytes)}{unpacked}"


def print_written(
    console: Console, written: Written, *, to_stderr: bool = False, opening: bool = False
) -> int:
    """Prints what a merge or a conversion did; returns the exit code.

    Args:
        console: Where it is printed.
        written: The result.
        to_stderr: Whether standard output has the trace.
        opening: Whether the output is opened: then the command for that is left out.
    """
    merged = written if isinstance(written, api.Merged) else None
    if console.json:
        console.document(merged.document() if merged else written)
    elif console.quiet:
        print_errors(console, written.findings)
    else:
        show(console, written.report(), to_stderr=to_stderr)
        show(console, _files(written.outputs), to_stderr=to_stderr)
        if lines := [] if opening else _how_to_open(written.outputs):
            console.info(*lines, to_stderr=to_stderr)
    if merged and not merged.job.sources:
        return UNREADABLE
    return NO if any(finding.severity is Severity.ERROR for finding in written.findings) else FINE


def _how_to_open(outputs: Sequence[Output]) -> list[str]:
    """The line with the command that opens the only output, if the UI shows it."""
    shown = [output.path for output in outputs if output.format.startswith(SHOWN)]
    if len(outputs) != 1 or not shown or shown[0] == STDOUT:
        return []
    return [f"Open it: {own_command('open', shown[0])}"]


def own_command(*words: str) -> str:
    """A command line that runs tracelink as it was run now: by its path if the shell would not find it."""
    program, name = sys.argv[0], "tracelink"
    if os.path.basename(program) == name and os.path.exists(program) and shutil.which(name) is None:
        inside = os.path.relpath(program)
        name = os.path.abspath(program) if inside.startswith(os.pardir) else inside
    return shlex.join([name, *words])


def _files(outputs: Sequence[Output]) -> Report:
    """A line for each file that was written; one line for many."""
    from tracelink._show.document import Paragraph, Report, Tone

    if len(outputs) > FILES:
        from tracelink._io.targets import common_folder

        folder = common_folder([output.path for output in outputs])
        lines = [(f"{counted(len(outputs), 'file')} to {folder}", outputs, folder)]
    else:
        lines = [(output_name(output.path), [output], output.path) for output in outputs]
    texts = [Paragraph(f"Wrote {what} ({_extent(some)}).", Tone.STRONG, path) for what, some, path in lines]
    return Report("merge", summary=texts)


def output_name(path: str) -> str:
    """The path of an output, or `standard output`."""
    return "standard output" if path == STDOUT else path


def _extent(outputs: Sequence[Output]) -> str:
    events = sum(output.events for output in outputs)
    bytes_written = size(sum(output.bytes for output in outputs))
    return f"{bytes_written}, {counted(events, 'event')}" if events else bytes_written
