"""The database of a source: any SQLite file, of which no code runs, and of which damage costs one table.

Reports are exported first; a folder of Parquet files is copied into a database.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from msgspec import Struct, field

from tracelink._io.sources import Source, siblings_of, too_large
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import UnreadableError, printable
from tracelink.converters.nsys import PARQUET_MAGIC, SQLITE_MAGIC, parquet_table
from tracelink.converters.nsys.schema import CAPTURE, HOST, STRINGS

if TYPE_CHECKING:
    import pyarrow


ROWS_AT_ONCE = 1 << 16
IDS_AT_ONCE = 1 << 12
NOT_TEXT = "Could not decode to UTF-8"
LONGEST_VALUE = 16 << 20
"""Bytes of a value; a row with a longer one ends the reading of its table."""
SMALLEST_ROW = 4
"""Bytes: a table with more rows than fit into the file refers to its pages more than once."""
STEPS, STEPS_PER_BYTE, STEPS_AT_ONCE = 200_000_000, 100, 1_000_000
"""Steps of SQLite's machine for all queries: pages that refer to each other in circles would take any number."""
FETCHED_AT_ONCE = 16
LARGEST_TEXTS, GROWTH = 64 << 20, 4
"""Bytes of the texts of a query: so many, or so many times the bytes of the file (numbers are longer as texts)."""
REPEATED = "its texts are larger than the file"
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
HIDDEN = 6
"""The column of `PRAGMA table_xinfo` that is not 0 for computed columns."""
PRAGMAS = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY")


def known(column: str, unknown: int = UNKNOWN) -> str:
    """SQL of a column, with a value for NULL."""
    return f"ifnull({identifier(column)}, {unknown})"


def identifier(name: str) -> str:
    """SQL of the name of a table or a column."""
    return '"' + name.replace('"', '""') + '"'


class Database(Struct):
    """A database that is only read."""

    connection: sqlite3.Connection
    size: int
    """Bytes of the file."""
    tables: Mapping[str, Sequence[str]]
    """The columns of each table; views, virtual tables and tables that compute columns are not listed."""
    damage: dict[str, str] = field(default_factory=dict)
    """Why tables could not be read, or only in part."""

    @classmethod
    def open(cls, path: Path) -> Database:
        """Opens a file; raises `UnreadableError` if it has no readable list of tables."""
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        try:
            size = path.stat().st_size
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            connection.set_progress_handler(_stops_after(STEPS + STEPS_PER_BYTE * size), STEPS_AT_ONCE)
            for limit, value in LIMITS.items():
                connection.setlimit(limit, value)
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            return cls(connection, size, *_tables(connection))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise UnreadableError(
                f"the database is damaged ({error})",
                advice="Export the report again, or copy the file again.",
            ) from error

    def has(self, table: str, *columns: str) -> bool:
        """True if a table is there and has these columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def rows(self, table: str, *columns: str, where: str = "", most: int = 1 << 20) -> list[tuple[Any, ...]]:
        """The values of columns in all rows of a small table; NULL for columns that it does not have."""
        if table not in self.tables:
            return []
        known = self.tables[table]
        chosen = ", ".join(identifier(name) if name in known else "NULL" for name in columns)
        return self.select(table, f"SELECT {chosen} FROM {identifier(table)} {where} LIMIT {most}")

    def count(self, table: str) -> int:
        """About the number of rows of a table, by the numbers of its first and last row: counting reads all pages."""
        if table not in self.tables:
            return 0
        name = identifier(table)
        rows = self.select(
            table, f"SELECT (SELECT max(rowid) FROM {name}) - (SELECT min(rowid) FROM {name}) + 1"
        )
        count = rows[0][0] if rows else 0
        return min(max(count, 0), self.size // SMALLEST_ROW) if isinstance(count, int) else 0

    def select(self, table: str, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query on a table that has few of them."""
        found: list[tuple[Any, ...]] = []
        for block in self._fetched(table, query):
            found += block
        return found

    def blocks(self, table: str, columns: Sequence[str]) -> Iterator[list[Int64s]]:
        """Columns of integers, which are given in SQL, in blocks of rows; the first one has the numbers of the rows."""
        left, last = self.size // SMALLEST_ROW, None
        for given in (columns, [f"ifnull(CAST({column} AS INTEGER), {UNKNOWN})" for column in columns]):
            where = "" if last is None else f"WHERE rowid > {last}"
            query = f"SELECT rowid, {', '.join(given)} FROM {identifier(table)} NOT INDEXED {where}"
            try:
                for block in self._numbers(query, 1 + len(columns)):
                    left -= len(block[0])
                    if left < 0:
                        self.damage[table] = "it has more rows than the file can contain"
                        return
                    last = int(block[0][-1])
                    yield block
                return
            except (TypeError, ValueError, OverflowError):
                continue  # a value is not an integer: SQLite converts the values of all rows that are left
            except sqlite3.Error as error:
                self.damage[table] = _reason(error)
                return

    def _numbers(self, query: str, columns: int) -> Iterator[list[Int64s]]:
        """The rows of a query that returns integers, in blocks."""
        values = chain.from_iterable(self.connection.execute(query))
        while len(block := np.fromiter(islice(values, ROWS_AT_ONCE * columns), np.int64)):
            yield list(np.ascontiguousarray(block.reshape(-1, columns).T))

    def joined(self, table: str, column: str, rows: Int64s, separator: bytes) -> bytes:
        """The texts in a column of successive rows, with separators between them."""
        name, between = identifier(column), f"rowid BETWEEN {rows[0]} AND {rows[-1]} ORDER BY rowid"
        source = f"SELECT ifnull(CAST({name} AS TEXT), '') AS text FROM {identifier(table)} NOT INDEXED WHERE {between}"
        try:
            self.connection.text_factory = bytes
            query = f"SELECT group_concat(text, char({separator[0]})) FROM ({source})"
            (whole,) = self.connection.execute(query).fetchone()
            if whole is not None and whole.count(separator) == len(rows) - 1:
                return bytes(whole)
            texts = self._texts(table, source)
        except sqlite3.DataError:  # together they are too long for a value
            texts = self._texts(table, source)
        except sqlite3.Error as error:
            self.damage[table] = _reason(error)
            texts = []
        texts += [b""] * (len(rows) - len(texts))
        return separator.join(text.replace(separator, b" ") for text in texts)

    def _texts(self, table: str, query: str) -> list[bytes]:
        """The texts that a query returns, as long as they fit into the file: rows can share their pages."""
        found, left = [], self._most_bytes
        for (text,) in self.connection.execute(query):
            left -= len(text)
            if left < 0:
                self.damage[table] = REPEATED
                break
            found.append(text)
        return found

    @property
    def _most_bytes(self) -> int:
        """Bytes of all texts that a query can return, unless rows share pages."""
        return max(LARGEST_TEXTS, GROWTH * self.size)

    def strings(self, table: str, ids: Int64s) -> dict[int, str]:
        """The strings with these ids."""
        found: dict[int, str] = {}
        if not self.has(table, "id", "value"):
            return found
        for first in range(0, len(ids), IDS_AT_ONCE):
            listed = ",".join(map(str, ids[first : first + IDS_AT_ONCE].tolist()))
            rows = self.rows(table, "id", "value", where=f"WHERE id IN ({listed})")
            found |= {number: text for number, text in rows if isinstance(text, str)}
        return found

    def _fetched(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query; damage ends them. Texts that are not UTF-8 are decoded as far as possible."""
        done, left = 0, self._most_bytes
        for factory in (str, _decoded):
            self.connection.text_factory = factory
            try:
                cursor = self.connection.execute(query)
                for _ in islice(cursor, done):
                    pass
                while rows := cursor.fetchmany(FETCHED_AT_ONCE):
                    done += len(rows)
                    left -= sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
                    if left < 0:
                        self.damage[table] = REPEATED
                        return
                    yield rows
                return
            except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
                if factory is _decoded or NOT_TEXT not in str(error):
                    self.damage[table] = _reason(error)
                    return


def _reason(error: Exception) -> str:
    """Why a query ended, in words."""
    text = str(error)
    return "it takes more steps than a file of this size should" if text == "interrupted" else text


def _stops_after(steps: int) -> Callable[[], bool]:
    """Tells SQLite to stop after so many steps."""
    left = iter(range(steps // STEPS_AT_ONCE))
    return lambda: next(left, None) is None


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _tables(connection: sqlite3.Connection) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The columns of tables, and why tables are not read."""
    found, refused = {}, {}
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
    for (name,) in connection.execute(query).fetchall():
        if isinstance(name, str):
            columns = connection.execute(f"PRAGMA table_xinfo({identifier(name)})").fetchall()
            if any(column[HIDDEN] or str(column[1]).lower() == "rowid" for column in columns):
                refused[name] = "it computes columns, or has one with the name rowid"
            else:
                found[name] = [column[1] for column in columns]
    return found, refused


# The database of a source as a file on disk: SQLite reads files only.

CHUNK = 1 << 20
COMMAND = "nsys export --type sqlite --ts-normalize false --ts-shift 0 -o OUT.sqlite REPORT.nsys-rep"
LONGEST_EXPORT_S = 3600
LONGEST_MESSAGE = 300
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
