"""Which database a path means, and writing it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tracelink.converters.flight_database.parquet import SUFFIX, check_arrow, write_parquet
from tracelink.converters.flight_database.sqlite import write_sqlite
from tracelink.converters.flight_database.tables import tables_of
from tracelink.errors import UsageError
from tracelink.examining import Examined
from tracelink.targets import DirectoryTarget

SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")


@dataclass(frozen=True, slots=True)
class Database:
    """A place for a database: a file for SQLite, a directory for Parquet files."""

    path: str
    directory: bool

    def write(self, examined: Examined) -> None:
        """Writes everything that was examined; the output appears whole or not at all."""
        batches = tables_of(examined)
        if self.directory:
            write_parquet(batches, DirectoryTarget(Path(self.path)))
        else:
            write_sqlite(batches, Path(self.path))


def database_at(path: str) -> Database:
    """What a path means by its name; raises `UsageError` where that is nothing, or cannot be written here."""
    place = Path(path)
    if place.suffix in SQLITE_SUFFIXES and not path.endswith(os.sep):
        return Database(path, directory=False)
    if place.suffix == SUFFIX or path.endswith(os.sep) or place.is_dir():
        check_arrow()
        return Database(path, directory=True)
    raise UsageError(
        f"{path!r} does not say what to write",
        advice="Name a file .sqlite for SQLite, or a directory (flight/ or flight.parquet) for Parquet files.",
    )
