"""One SQLite file: keys are declared, and `.schema` shows what each column means."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.rows import Batch
from tracelink.converters.flight_database.schema import Column, Table, Type
from tracelink.errors import TraceError
from tracelink.targets import ANOTHER_PLACE, whole_place

SETTINGS = ("journal_mode = OFF", "synchronous = OFF", f"user_version = {schema.VERSION}")
"""The file is a new one that nobody sees before it is whole: there is nothing to roll back to."""

TYPES = {Type.BOOLEAN: "INTEGER"}
"""SQLite has no truth values: 1 and 0 stand for them."""


def write_sqlite(batches: Iterable[Batch], path: Path) -> None:
    """Writes all rows; the file appears when it is complete."""
    with whole_place(path) as temporary, _explained(path), closing(_connected(temporary)) as connection:
        connection.execute("BEGIN")
        for table in schema.TABLES.values():
            connection.execute(created(table))
        for batch in batches:
            connection.executemany(_inserting(batch), zip(*batch.columns.values(), strict=True))
        for table in schema.TABLES.values():
            for columns in table.indexes:
                connection.execute(_indexing(table, columns))
        connection.execute("COMMIT")


def created(table: Table) -> str:
    """The statement that makes a table, with what its columns mean beside them."""
    lines = [(_declared(column), column.text) for column in table.columns]
    if table.key:
        lines.append((f"PRIMARY KEY ({', '.join(table.key)})", ""))
    told = [
        f"  {line}{'' if place == len(lines) else ','}{f' -- {text}' if text else ''}\n"
        for place, (line, text) in enumerate(lines, start=1)
    ]
    return f"CREATE TABLE {table.name} ( -- {table.text}\n{''.join(told)}){_storage(table)}"


def _declared(column: Column) -> str:
    parts = [column.name, TYPES.get(column.type, column.type.value)]
    if column.always:
        parts.append("NOT NULL")
    if column.references:
        table, _, referenced = column.references.partition(".")
        parts.append(f"REFERENCES {table} ({referenced})")
    return " ".join(parts)


def _storage(table: Table) -> str:
    return " WITHOUT ROWID" if len(table.key) > 1 else ""


def _inserting(batch: Batch) -> str:
    names = list(batch.columns)
    return f"INSERT INTO {batch.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _indexing(table: Table, columns: tuple[str, ...]) -> str:
    return f"CREATE INDEX {table.name}_by_{'_and_'.join(columns)} ON {table.name} ({', '.join(columns)})"


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What SQLite says of a full disk or a lost one, as an error that a user can act on."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise TraceError(f"cannot be written: {error}", source=str(path), advice=ANOTHER_PLACE) from error
