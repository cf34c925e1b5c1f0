"""The progress bar: on a terminal, for work that lasts."""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracelink.cli.voice import Voice

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 1.0
"""Seconds before a bar appears."""

INTERVAL = 0.1
"""Seconds between two looks of the bar."""

COMPRESSED = (b"\x1f\x8b", b"PK")


@contextmanager
def watching(voice: Voice, paths: Sequence[str]) -> Iterator[Bar | None]:
    """Something to tell the bytes that are done; nothing where nobody would see them."""
    if voice.quiet or not sys.stderr.isatty() or (voice.json and sys.stdout.isatty()):
        yield None
        return
    bar = Bar(paths)
    try:
        yield bar
    finally:
        bar.end()


class Bar:
    """Shows how far the work is, of which it is told the bytes that are done."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._began = self._shown = time.monotonic()
        self._done = 0
        self._anew = False
        """Whether bytes are counted from 0 again: all is read."""
        self._reading = True
        self._read = 0
        """Bytes that were counted before anything was written."""
        self._progress: Progress | None = None

    def __call__(self, done: int) -> None:
        """Shows that so many bytes are done."""
        now = time.monotonic()
        self._anew |= done < self._done
        self._done = done
        if now - self._began < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        progress = self._progress = self._progress or self._appeared()
        (task,) = progress.tasks
        if self._anew:
            progress.reset(task.id, description="writing")
            task.total, task.start_time = None, self._began
            self._anew = False
        if task.total and done > task.total:
            task.total = None  # the sources are larger than their files
        progress.update(task.id, completed=done - self._read)
        progress.refresh()

    def _appeared(self) -> Progress:
        """A bar that draws only when told: a thread of its own would keep the engine from forking."""
        from rich import progress as parts
        from rich.console import Console

        progress = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.TaskProgressColumn(),
            parts.FileSizeColumn(),
            parts.TransferSpeedColumn(),
            parts.TimeElapsedColumn(),
            console=Console(stderr=True),
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
        """Makes room for what is to be said between reading and writing."""
        self.end()
        self._reading = False
        self._read = self._done
        self._began = time.monotonic()

    def end(self) -> None:
        """Goes, and leaves no trace."""
        if self._progress:
            self._progress.stop()
            self._progress = None


def total_bytes(paths: Sequence[str]) -> int | None:
    """How much there is to read; None where only reading would tell."""
    total = 0
    for path in paths:
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


def _plain_size(file: Path) -> int | None:
    if not file.is_file():
        return None  # to look into a pipe would be to take from it
    try:
        with file.open("rb") as stream:
            compressed = stream.read(2) in COMPRESSED
    except OSError:
        return None
    return None if compressed else file.stat().st_size
