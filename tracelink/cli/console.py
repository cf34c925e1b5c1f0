"""The console: the only module that prints. Results go to standard output, errors to standard error; text or JSON.

Texts can contain names from traces, so every line is printed without control characters: it cannot control the
terminal, reorder the page, or look like more than one line.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from tracelink._model.errors import PageText, printable

if TYPE_CHECKING:
    import msgspec
    from rich.console import Console as RichConsole

STYLE = re.compile("(\x1b\\[[0-9;]*m)")
"""Colors and weights of a terminal: the only control sequence of a page."""


@dataclass(slots=True)
class Console:
    """Prints results and errors as the options -v, -q and --json require."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False

    @property
    def silent(self) -> bool:
        """True if no human-readable result is printed (--quiet or --json)."""
        return self.quiet or self.json

    def document(self, result: msgspec.Struct) -> None:
        """Prints a result as JSON."""
        from tracelink._show.json import document_text

        click.echo(document_text(result))

    def info(self, *lines: str, to_stderr: bool = False) -> None:
        """Prints lines or a page, unless --quiet or --json; to standard error if standard output is for data."""
        if not self.silent:
            _print(lines, to_stderr=to_stderr)

    def result(self, *lines: str) -> None:
        """Prints lines even with --quiet, unless --json."""
        if not self.json:
            _print(lines)

    def error(self, text: str) -> None:
        """Prints an error as one line to standard error, always."""
        from tracelink._io.remote.addresses import shown_in

        with suppress(OSError):  # standard error is full or a closed pipe: the exit code remains
            _print([f"tracelink: {' '.join(shown_in(text).split())}"], to_stderr=True)

    def traceback(self, error: BaseException) -> None:
        """Prints where an error was raised to standard error; indented, so that no line of it looks like a result."""
        from tracelink._io.remote.addresses import without_secrets

        text = without_secrets("".join(traceback.format_exception(error)))
        with suppress(OSError):
            _print([f"  {line}" for line in text.splitlines()], to_stderr=True)


def _print(lines: tuple[str, ...] | list[str], *, to_stderr: bool = False) -> None:
    stream = sys.stderr if to_stderr else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "\n".join(_page(line) if isinstance(line, PageText) else printable(line) for line in lines)
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=to_stderr)


def _page(text: str) -> str:
    """The lines of a page without any control character except those of styles."""
    return "\n".join(
        "".join(part if STYLE.fullmatch(part) else printable(part) for part in STYLE.split(line))
        for line in text.split("\n")
    )


# The standard streams: whether people read them, and what draws on them.


def shows(text: str) -> bool:
    """True if standard output is a terminal that has all characters of the text."""
    if not is_terminal():
        return False
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_terminal(*, stderr: bool = False) -> bool:
    """True if standard output, or standard error, is a terminal."""
    stream: TextIO | None = sys.stderr if stderr else sys.stdout
    return stream is not None and stream.isatty()


def progress_canvas() -> RichConsole:
    """Returns the console that draws a progress bar, without any text of an input, on standard error."""
    from rich.console import Console as RichConsole

    return RichConsole(stderr=True)


def open_missing_streams() -> None:
    """Opens the null device in place of standard streams that are closed: no file must get their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


def drop_output() -> None:
    """Drops what is left in the buffer of standard output if it is closed or full, so that exiting does not raise."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
