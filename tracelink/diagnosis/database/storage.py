"""Storage of tables: batches of rows, written to one SQLite file or to a directory of Parquet files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from tracelink.diagnosis.database import schema
from tracelink.diagnosis.database.schema import Column, Table, Type
from tracelink.io.remote.addresses import shown
from tracelink.io.targets import DirectoryTarget, RemoteFolderTarget
from tracelink.io.temporary import ANOTHER_PLACE, temporary_at
from tracelink.model.columns import NO_TIME, UNKNOWN
from tracelink.model.errors import TraceError, UsageError

if TYPE_CHECKING:
    import pyarrow

LARGEST = (1 << 63) - 1
"""The largest value of an integer column."""
SETTINGS = ("journal_mode = OFF", "synchronous = OFF", f"user_version = {schema.VERSION}")
"""The file is new and invisible until it is complete: there is nothing to roll back to."""
TYPES = {Type.BOOLEAN: "INTEGER"}
"""SQLite has no booleans: 1 and 0."""
SUFFIX = ".parquet"
MOST_ROWS = 1 << 16
MOST_BYTES = 32 << 20
"""Rows are collected up to this size: large row groups are fast to read."""
Lists = Mapping[str, list[Any]]


# Rows as lists, a list for each column, with None for unknown values.


class Batch(Struct, frozen=True):
    """Some rows of one table."""

    table: str
    columns: Lists

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def listed(column: Any, missing: int = UNKNOWN) -> list[Any]:
    """The values of a column of numbers; None for `missing`."""
    values: list[Any] = column.tolist()
    for row in np.flatnonzero(column == missing).tolist():
        values[row] = None
    return values


def times(column: Any) -> list[Any]:
    """The values of a column of times; None for unknown times."""
    return listed(column, NO_TIME)


def flags(column: Any) -> list[Any]:
    """True, False, or None if unknown."""
    return [None if value == UNKNOWN else bool(value) for value in column.tolist()]


def integer(value: object) -> int | None:
    """The value if an integer column can hold it."""
    return value if type(value) is int and -LARGEST <= value <= LARGEST else None


def clean(text: str) -> str:
    """The string with a question mark for lone surrogates, which no database stores."""
    return text.encode("utf-8", "replace").decode("utf-8")


# SQLite: keys are declared, and `.schema` shows the description of each column.


def write_sqlite(batches: Iterable[Batch], path: str) -> None:
    """Writes all rows; the file appears when it is complete."""
    with temporary_at(path) as temporary, _with_advice(path), closing(_connect(temporary)) as connection:
        connection.execute("BEGIN")
        for table in schema.TABLES.values():
            connection.execute(create_statement(table))
        for batch in batches:
            connection.executemany(_insert_statement(batch), zip(*batch.columns.values(), strict=True))
        for table in schema.TABLES.values():
            for columns in table.indexes:
                connection.execute(_index_statement(table, columns))
        connection.execute("COMMIT")


def create_statement(table: Table) -> str:
    """The statement that creates a table, with descriptions of columns as comments."""
    lines = [(_declared(column), column.text) for column in table.columns]
    if table.key:
        lines.append((f"PRIMARY KEY ({', '.join(table.key)})", ""))
    lines_with_comments = [
        f"  {line}{'' if number == len(lines) else ','}{f' -- {text}' if text else ''}\n"
        for number, (line, text) in enumerate(lines, start=1)
    ]
    return f"CREATE TABLE {table.name} ( -- {table.text}\n{''.join(lines_with_comments)}){_storage(table)}"


def _declared(column: Column) -> str:
    parts = [column.name, TYPES.get(column.type, column.type.value)]
    if column.required:
        parts.append("NOT NULL")
    if column.references:
        table, _, referenced = column.references.partition(".")
        parts.append(f"REFERENCES {table} ({referenced})")
    return " ".join(parts)


def _storage(table: Table) -> str:
    return " WITHOUT ROWID" if len(table.key) > 1 else ""


def _insert_statement(batch: Batch) -> str:
    names = list(batch.columns)
    return f"INSERT INTO {batch.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _index_statement(table: Table, columns: tuple[str, ...]) -> str:
    return f"CREATE INDEX {table.name}_by_{'_and_'.join(columns)} ON {table.name} ({', '.join(columns)})"


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def _with_advice(path: str) -> Iterator[None]:
    """Turns errors of SQLite, such as a full disk, into errors with advice."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise TraceError(f"cannot be written: {error}", source=shown(path), advice=ANOTHER_PLACE) from error


# Parquet: a file for each table; columns carry their descriptions.


def check_arrow() -> None:
    """Raises an error with installation advice if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError(
            "Parquet files need pyarrow, which is not installed",
            advice="Run: pip install 'torch-tracelink[arrow]', or write SQLite: -o flight.sqlite",
        ) from None


def write_parquet(batches: Iterable[Batch], target: DirectoryTarget | RemoteFolderTarget) -> None:
    """Writes all rows; the files appear when all of them are complete."""
    check_arrow()
    location = target.location if isinstance(target, DirectoryTarget) else None
    new = location is not None and not location.exists()
    try:
        with ExitStack() as stack:
            files = {table.name: _open(table, target, stack) for table in schema.TABLES.values()}
            for batch in batches:
                files[batch.table].add(batch)
            for file in files.values():
                file.finish()
    except BaseException:
        if location and new and location.is_dir() and not any(location.iterdir()):
            location.rmdir()
        raise


class _File(Struct):
    """A Parquet file that is being written."""

    schema: pyarrow.Schema
    writer: Any
    pending: list[pyarrow.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: Batch) -> None:
        import pyarrow

        table = pyarrow.table({name: batch.columns[name] for name in self.schema.names}, schema=self.schema)
        self.pending.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes
        if self.rows >= MOST_ROWS or self.bytes >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow

        if self.pending:
            self.writer.write_table(pyarrow.concat_tables(self.pending).combine_chunks())
        self.pending, self.rows, self.bytes = [], 0, 0

    def finish(self) -> None:
        self.flush()
        self.writer.close()


def _open(table: Table, target: DirectoryTarget | RemoteFolderTarget, stack: ExitStack) -> _File:
    import pyarrow.parquet

    stream = stack.enter_context(target.file(table.name + SUFFIX))
    fields = _fields(table)
    return _File(fields, stack.enter_context(pyarrow.parquet.ParquetWriter(stream, fields)))


def _fields(table: Table) -> pyarrow.Schema:
    import pyarrow

    types = {
        Type.INTEGER: pyarrow.int64(),
        Type.REAL: pyarrow.float64(),
        Type.TEXT: pyarrow.string(),
        Type.BOOLEAN: pyarrow.bool_(),
    }
    return pyarrow.schema(
        [
            pyarrow.field(
                column.name,
                types[column.type],
                nullable=not column.required,
                metadata={"description": column.text, "references": column.references},
            )
            for column in table.columns
        ],
        metadata={"description": table.text, "version": str(schema.VERSION)},
    )
