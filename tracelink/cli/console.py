"""The console, the only module that prints: results to standard output, errors and progress to standard error.

Texts can contain names from traces, so every line is printed without control characters: it cannot control the
terminal, reorder the page, or look like more than one line.
"""

from __future__ import annotations

import glob
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from tracelink._io.remote.addresses import WEB, is_remote, scheme_of, shown_in, without_secrets
from tracelink._model.errors import PageText, TraceError, printable

if TYPE_CHECKING:
    import msgspec
    from rich.progress import Progress

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
        with suppress(OSError):  # standard error is full or a closed pipe: the exit code remains
            _print([f"tracelink: {' '.join(shown_in(text).split())}"], to_stderr=True)

    def traceback(self, error: BaseException) -> None:
        """Prints where an error was raised to standard error; indented, so that no line of it looks like a result."""
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


# The progress bar, on a terminal.


PATIENCE = 1.0
"""Seconds before a bar appears."""

INTERVAL = 0.1
"""Seconds between two updates of the bar."""

COMPRESSED = (b"\x1f\x8b", b"PK")
PACKED = (".gz", ".tgz", ".zip")


@contextmanager
def watching(console: Console, paths: Sequence[str]) -> Iterator[Bar | None]:
    """A bar to call with the number of bytes read or written so far; None if no one would see it."""
    if console.quiet or not is_terminal(stderr=True) or (console.json and is_terminal()):
        yield None
        return
    bar = Bar(paths)
    try:
        yield bar
    finally:
        bar.end()


class Bar:
    """A progress bar of bytes: first of reading, then of writing."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._began = self._shown = time.monotonic()
        self._done = 0
        self._restarted = False
        """True if bytes are counted from 0 again: reading is complete."""
        self._reading = True
        self._read = 0
        """Bytes that were counted before writing started."""
        self._progress: Progress | None = None

    def __call__(self, done: int) -> None:
        """Shows the number of bytes done."""
        now = time.monotonic()
        self._restarted |= done < self._done
        self._done = done
        if now - self._began < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        progress = self._progress = self._progress or self._started()
        (task,) = progress.tasks
        if self._restarted:
            progress.reset(task.id, description="writing")
            task.total, task.start_time = None, self._began
            self._restarted = False
        if task.total and done > task.total:
            task.total = None  # the sources are larger than their files
        progress.update(task.id, completed=done - self._read)
        progress.refresh()

    def _started(self) -> Progress:
        """A bar without a thread of its own, which would keep the engine from forking."""
        from rich import progress as parts
        from rich.console import Console as RichConsole

        progress = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.TaskProgressColumn(),
            parts.FileSizeColumn(),
            parts.TransferSpeedColumn(),
            parts.TimeElapsedColumn(),
            console=RichConsole(stderr=True),  # it draws no text of an input
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=time.monotonic,
        )
        if self._reading:
            task = progress.add_task("reading", total=total_bytes(self._paths))
        else:
            task = progress.add_task("writing", total=None)
        progress.tasks[task].start_time = self._began
        progress.start()
        return progress

    def now_writing(self) -> None:
        """Removes the bar of reading, so that messages can be printed before writing."""
        self.end()
        self._reading = False
        self._read = self._done
        self._began = time.monotonic()

    def end(self) -> None:
        """Removes the bar."""
        if self._progress:
            self._progress.stop()
            self._progress = None


def total_bytes(paths: Sequence[str]) -> int | None:
    """The size of the inputs; None if it is unknown before they are read."""
    total = 0
    for path in paths:
        if is_remote(path):
            found = _remote_bytes(path)
            if found is None:
                return None
            total += found
            continue
        matches = (
            [Path(path)]
            if Path(path).exists()
            else [Path(match) for match in glob.glob(path, recursive=True)]
        )
        files = [file for match in matches for file in (match.rglob("*") if match.is_dir() else [match])]
        sizes = [_plain_size(file) for file in files if not file.is_dir()]
        if not sizes or None in sizes:
            return None
        total += sum(size for size in sizes if size is not None)
    return total


def _remote_bytes(url: str) -> int | None:
    """The size of objects that are not compressed by their names; None if it is unknown without reading each."""
    from tracelink._io.remote.objects import found_at

    try:
        entries = found_at(url).entries if scheme_of(url) not in WEB else []
    except TraceError:
        return None
    if not entries or any(entry.url.endswith(PACKED) or entry.bytes < 0 for entry in entries):
        return None
    return sum(entry.bytes for entry in entries)


def _plain_size(file: Path) -> int | None:
    if not file.is_file():
        return None  # reading from a pipe would consume it
    try:
        with file.open("rb") as stream:
            compressed = stream.read(2) in COMPRESSED
    except OSError:
        return None
    return None if compressed else file.stat().st_size
