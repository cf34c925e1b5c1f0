"""SQLite files: keys are declared, and `.schema` shows what tables and columns mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tracelink._io.remote.addresses import shown
from tracelink._io.temporary import ANOTHER_PLACE, temporary_at
from tracelink._model.errors import TraceError
from tracelink._store.schema import LISTS, Batch, Column, Table, Type, as_texts, named

SETTINGS = ("journal_mode = OFF", "synchronous = OFF")
"""The file is new and invisible until it is complete: there is nothing to roll back to."""
TYPES = {Type.SMALL: "INTEGER", Type.INTEGER: "INTEGER", Type.BOOLEAN: "INTEGER", Type.REAL: "REAL"}
"""SQLite has no booleans: 1 and 0; lists are JSON."""


def write(tables: Collection[Table], batches: Iterable[Batch], path: str, version: int = 0) -> None:
    """Writes all rows; the file appears when it is complete. `version` is of the tables."""
    with temporary_at(path) as temporary, _with_advice(path), closing(_connect(temporary)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("BEGIN")
        for table in tables:
            connection.execute(create_statement(table))
        lists = {(table.name, c.name) for table in tables for c in table.columns if c.type in LISTS.values()}
        for batch in batches:
            cells = (
                as_texts(values) if (batch.table, name) in lists else values
                for name, values in batch.columns.items()
            )
            connection.executemany(_insert_statement(batch), zip(*cells, strict=True))
        for table in tables:
            for columns in table.indexes:
                connection.execute(_index_statement(table, columns))
        connection.execute("COMMIT")


def create_statement(table: Table) -> str:
    """The statement that creates a table, with descriptions of columns as comments."""
    lines = [(_declared(column), column.comment) for column in table.columns]
    if table.key:
        lines.append((f"PRIMARY KEY ({_names(table.key)})", ""))
    lines_with_comments = [
        f"  {line}{'' if number == len(lines) else ','}{f' -- {text}' if text else ''}\n"
        for number, (line, text) in enumerate(lines, start=1)
    ]
    without_rowid = " WITHOUT ROWID" if len(table.key) > 1 else ""
    return (
        f"CREATE TABLE {named(table.name)} ( -- {table.text}\n{''.join(lines_with_comments)}){without_rowid}"
    )


def _declared(column: Column) -> str:
    parts = [named(column.name), TYPES.get(column.type, "TEXT")]
    if column.required:
        parts.append("NOT NULL")
    if column.references:
        table, _, referenced = column.references.partition(".")
        parts.append(f"REFERENCES {named(table)} ({named(referenced)})")
    return " ".join(parts)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(named, columns))


def _insert_statement(batch: Batch) -> str:
    places = ", ".join("?" * len(batch.columns))
    return f"INSERT INTO {named(batch.table)} ({_names(batch.columns)}) VALUES ({places})"


def _index_statement(table: Table, columns: Sequence[str]) -> str:
    name = f"{table.name}_by_{'_and_'.join(columns)}"
    return f"CREATE INDEX {named(name)} ON {named(table.name)} ({_names(columns)})"


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
