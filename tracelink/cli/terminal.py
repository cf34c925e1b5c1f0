"""The progress bar of commands, on a terminal."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracelink._io.remote.addresses import WEB, is_remote, scheme_of
from tracelink._model.errors import TraceError
from tracelink.cli.console import Console, is_terminal, progress_canvas

if TYPE_CHECKING:
    from rich.progress import Progress

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

        progress = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.TaskProgressColumn(),
            parts.FileSizeColumn(),
            parts.TransferSpeedColumn(),
            parts.TimeElapsedColumn(),
            console=progress_canvas(),
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
