"""Where the database of a source is on disk: SQLite reads files only."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracelink.io.sources import Source

CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class LocalFile:
    """A file on disk. A temporary one is removed with the last reference to it, or at the end of the program."""

    path: Path
    damage: str = ""
    """Why it has not all bytes of the source; empty if it has."""


def local_file(source: Source) -> LocalFile:
    """The file of a source itself if it is an uncompressed one, else a temporary copy of its uncompressed bytes."""
    with source.open() as opened:
        if opened.plain and source.local is not None:
            return LocalFile(source.local)
        handle, name = tempfile.mkstemp(prefix="tracelink-", suffix=".sqlite")
        with os.fdopen(handle, "wb") as copy:
            file = temporary(Path(name))
            while chunk := opened.read(CHUNK):
                copy.write(chunk)
        return LocalFile(file.path, opened.damage) if opened.damage else file


def temporary(path: Path) -> LocalFile:
    """A file that is removed with this object; workers, which have a copy of the object, leave it."""
    file = LocalFile(path)
    weakref.finalize(file, _remove, path, os.getpid())
    return file


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        with suppress(OSError):
            path.unlink()
