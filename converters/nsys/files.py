"""The database of a source as a file on disk: SQLite reads files only.

Reports, whose format is not published, are exported by Nsight Systems; folders of Parquet files are copied into a
database, so that all exports are read in the same way.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracelink._io.sources import Source, siblings_of, too_large
from tracelink._model.errors import UnreadableError, printable
from tracelink.converters.nsys import PARQUET_MAGIC, SQLITE_MAGIC, parquet_table
from tracelink.converters.nsys.database import identifier
from tracelink.converters.nsys.schema import CAPTURE, HOST, STRINGS

if TYPE_CHECKING:
    import pyarrow

CHUNK = 1 << 20
COMMAND = "nsys export --type sqlite --ts-normalize false --ts-shift 0 -o OUT.sqlite REPORT.nsys-rep"
LONGEST_EXPORT_S = 3600
LONGEST_MESSAGE = 300

ROWS_AT_ONCE = 1 << 16
CONFIDENTIAL = frozenset({"TARGET_INFO_SYSTEM_ENV", "ProcessStreams"})
"""Tables that are not copied: the environment and the output of processes."""
RANK_VARIABLE = re.compile(r"(RANK|WORLD_SIZE)=\d{1,6}")


class LocalFile(Struct, eq=False, weakref=True):
    """A file on disk. A temporary one is removed with the last reference to it, or at the end of the program."""

    path: Path
    damage: str = ""
    """Why it has not all bytes of the source; empty if it has."""


def database_of(source: Source) -> LocalFile | None:
    """The database of a source; None for a Parquet file of which another file of its folder is the source."""
    head = source.head(len(SQLITE_MAGIC))
    if head.startswith(SQLITE_MAGIC):
        return _local_file(source)
    if head.startswith(PARQUET_MAGIC):
        return _of_folder(source)
    return _exported(source)


def _local_file(source: Source, suffix: str = ".sqlite") -> LocalFile:
    """The file of a source itself if it is an uncompressed one, else a temporary copy of its uncompressed bytes."""
    with source.open() as opened:
        if opened.plain and source.local is not None:
            return LocalFile(source.local)
        folder = Path(tempfile.mkdtemp(prefix="tracelink-"))
        file = _temporary(folder / f"copy{suffix}", folder)
        with file.path.open("wb") as copy:
            while chunk := opened.read(CHUNK):
                copy.write(chunk)
        file.damage = opened.damage
        return file


def _temporary(path: Path, folder: Path) -> LocalFile:
    """A file in a temporary folder, which is removed with this object; workers, which have a copy of it, leave it."""
    file = LocalFile(path)
    weakref.finalize(file, _remove, folder, os.getpid())
    return file


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# Reports, whose format is not published.


def _exported(source: Source) -> LocalFile:
    program = shutil.which("nsys")
    if not program:
        raise UnreadableError(
            "a report of Nsight Systems, which only nsys can export, and nsys is not on the PATH",
            advice=f"Run where it is installed: {COMMAND}",
        )
    report = source.local if source.local and source.bytes else _local_file(source, ".nsys-rep").path
    folder = Path(tempfile.mkdtemp(prefix="tracelink-"))
    output = folder / "report.sqlite"
    command = [program, "export", "--type", "sqlite", "--output", str(output), str(report)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LONGEST_EXPORT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UnreadableError(f"nsys could not export it ({error})", advice=f"Run: {COMMAND}") from error
    if done.returncode or not output.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        message = printable(" ".join((done.stderr or done.stdout).split()))[-LONGEST_MESSAGE:]
        raise UnreadableError(
            f"nsys could not export it: {message or f'exit code {done.returncode}'}", advice=f"Run: {COMMAND}"
        )
    return _temporary(output, folder)


# Folders of Parquet files, one for each table: copied into a database, so that all exports are read in the same way.


def _of_folder(source: Source) -> LocalFile | None:
    if not source.is_whole:
        raise UnreadableError(
            "a table of a Parquet export in an archive", advice="Unpack the archive, and name the folder."
        )
    tables = siblings_of(source)
    names = sorted(name for name in tables if name.endswith(".parquet") and parquet_table(name))
    if source.name != names[0]:
        return None
    try:
        import pyarrow.parquet  # noqa: F401  the extra `arrow`
    except ImportError:
        raise UnreadableError(
            "Parquet exports are read with pyarrow, which is not installed",
            advice="Run: pip install 'torch-tracelink[arrow]'",
        ) from None
    folder = Path(tempfile.mkdtemp(prefix="tracelink-"))
    copy = _temporary(folder / "export.sqlite", folder)
    files = [_table_file(source, tables[name], folder) for name in names]
    connection = sqlite3.connect(copy.path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    copy.damage = "; ".join(problem for path in files if (problem := _copied(path, connection, source)))
    connection.close()
    return copy


def _table_file(source: Source, path: str, folder: Path) -> Path:
    """A table as a file, which is a temporary copy if it is not on this machine."""
    if source.local:
        return Path(path)
    from tracelink._io.remote.objects import temporary_copy

    file = folder / path.rpartition("/")[2]
    with temporary_copy(path) as whole, file.open("wb") as copy:
        shutil.copyfileobj(whole, copy, CHUNK)
    return file


def _copied(path: Path, connection: sqlite3.Connection, source: Source) -> str:
    """Copies a table; returns why it could not be copied to its end, or an empty text."""
    import pyarrow
    import pyarrow.parquet

    table = parquet_table(path.name)
    if table in CONFIDENTIAL:
        return ""
    connection.execute("BEGIN")
    try:
        file = pyarrow.parquet.ParquetFile(path)
        names = [field.name for field in file.schema_arrow if _is_plain(field.type)]
        declared = [f"{identifier(name)} {_declared(table, name)}" for name in names]
        connection.execute(f"CREATE TABLE {identifier(table)} ({', '.join(declared)})")
        query = f"INSERT INTO {identifier(table)} VALUES ({', '.join('?' * len(names))})"
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=names):
            connection.executemany(query, _rows(table, batch))
            if (connection.execute("PRAGMA page_count").fetchone()[0] << 12) > source.limit:
                raise too_large(source.path, source.limit)
    except (pyarrow.ArrowException, sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
        return f"{table}: {printable(str(error))[:LONGEST_MESSAGE]}"
    finally:
        connection.execute("COMMIT")
    return ""


def _is_plain(kind: pyarrow.DataType) -> bool:
    import pyarrow

    types = pyarrow.types
    return any(
        test(kind)
        for test in (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )


def _declared(table: str, column: str) -> str:
    return "INTEGER PRIMARY KEY" if (table, column) == (STRINGS, "id") else ""


def _rows(table: str, batch: pyarrow.RecordBatch) -> Iterator[Sequence[Any]]:
    """The rows of a batch; of the capture only its host and the number of the rank."""
    rows: Iterator[Sequence[Any]] = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    if table != CAPTURE:
        return rows
    return (row for row in rows if HOST in row or any(RANK_VARIABLE.fullmatch(str(value)) for value in row))
