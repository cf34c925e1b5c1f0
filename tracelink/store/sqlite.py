"""SQLite files: `.schema` shows what tables and columns mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec.json import encode

from tracelink.io.remote.addresses import shown
from tracelink.io.temporary import ANOTHER_PLACE, temporary_at
from tracelink.model.errors import TraceError
from tracelink.store.schema import Batch, Column, Table, Type, named

SETTINGS = ("journal_mode = OFF", "synchronous = OFF")
"""The file is new and invisible until it is complete: there is nothing to roll back to."""
TYPES = {Type.INTEGER: "INTEGER", Type.BOOLEAN: "INTEGER", Type.REAL: "REAL"}
"""SQLite has no booleans: 1 and 0; lists are JSON."""


def write(tables: Iterable[Table], batches: Iterable[Batch], path: str) -> None:
    """Writes all rows; the file appears when it is complete."""
    with temporary_at(path) as temporary, _with_advice(path), closing(_connect(temporary)) as connection:
        connection.execute("BEGIN")
        for table in tables:
            connection.execute(create_statement(table))
        for batch in batches:
            connection.executemany(
                _insert_statement(batch), zip(*map(_cells, batch.columns.values()), strict=True)
            )
        connection.execute("COMMIT")


def create_statement(table: Table) -> str:
    """The statement that creates a table, with descriptions as comments."""
    last = len(table.columns) - 1
    lines = [
        f"  {_declared(column)}{'' if number == last else ','}{f' -- {column.comment}' if column.comment else ''}\n"
        for number, column in enumerate(table.columns)
    ]
    return f"CREATE TABLE {named(table.name)} ( -- {table.text}\n{''.join(lines)})"


def _declared(column: Column) -> str:
    return f"{named(column.name)} {TYPES.get(column.type, 'TEXT')}{' NOT NULL' if column.required else ''}"


def _insert_statement(batch: Batch) -> str:
    names = ", ".join(map(named, batch.columns))
    return f"INSERT INTO {named(batch.table)} ({names}) VALUES ({', '.join('?' * len(batch.columns))})"


def _cells(values: Sequence[object]) -> Sequence[object]:
    """The values of a column; lists as JSON."""
    if not any(isinstance(value, list) for value in values):
        return values
    return [encode(value).decode() if isinstance(value, list) else value for value in values]


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
