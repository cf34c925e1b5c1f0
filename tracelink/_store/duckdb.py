"""DuckDB: files with tables and their comments, and connections that reach nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelink._io.remote.addresses import shown
from tracelink._io.system import cores
from tracelink._io.temporary import ANOTHER_PLACE, scratch_folder_for, temporary_at
from tracelink._model.columns import not_installed
from tracelink._model.errors import TraceError
from tracelink._store.parquet import arrow_table
from tracelink._store.schema import Batch, Table, named, quoted

if TYPE_CHECKING:
    import duckdb

STORAGE = "v1.4.0"
"""The oldest version of DuckDB that can read what is written."""

LARGE_BLOCK = 1 << 18
SMALL_BLOCK = 1 << 14
"""Bytes of a block: each column of each table has at least one, so the files of small jobs have small ones."""
FEW_ROWS_OF_BLOCKS = 1_000_000


def check_installed() -> None:
    """Raises `UsageError` if duckdb or pyarrow, by which it gets rows, is not installed."""
    try:
        import duckdb  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise not_installed(error.name or "duckdb", "sql") from None


def connected(path: Path | None = None, *, scratch: Path, **settings: Any) -> duckdb.DuckDBPyConnection:
    """A connection to a database that is only read, or to none; it loads no extension."""
    check_installed()
    import duckdb

    return duckdb.connect(
        str(path) if path else ":memory:",
        read_only=path is not None,
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "temp_directory": str(scratch),
            "threads": cores(),
            **settings,
        },
    )


def locked(connection: duckdb.DuckDBPyConnection, folder: Path | None = None) -> None:
    """From here on the connection reaches no file but those in the folder, and cannot be changed back."""
    if folder:
        place = folder.resolve().as_posix()
        allowed = ", ".join(quoted(f"{path}/") for path in (place, pattern(place)))
        connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def pattern(path: str) -> str:
    """A path as a pattern that only fits to it."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


@contextmanager
def written_as(path: str) -> Iterator[None]:
    """Errors of DuckDB, such as that of a full disk, as a `TraceError` about the file that is written."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = " ".join(str(error).split())[:300]
        raise TraceError(f"cannot be written: {text}", source=path, advice=ANOTHER_PLACE) from error


@contextmanager
def created(database: Path, scratch: Path, rows: int, called: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a new file for about so many rows; `called` is its name in errors."""
    database.unlink(missing_ok=True)
    block = SMALL_BLOCK if rows < FEW_ROWS_OF_BLOCKS else LARGE_BLOCK
    options = f"STORAGE_VERSION {quoted(STORAGE)}, BLOCK_SIZE {block}"
    with closing(connected(scratch=scratch / "spill")) as connection, written_as(called):
        connection.execute(f"ATTACH {quoted(str(database))} AS job ({options})")
        connection.execute("USE job")
        connection.execute("BEGIN")  # a transaction for each comment would take half of the time
        yield connection
        connection.execute("COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH job")


def create(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Makes a table with comments."""
    columns = ", ".join(
        f"{named(column.name)} {column.sql_type}{' NOT NULL' if column.required else ''}"
        for column in table.columns
    )
    connection.execute(f"CREATE TABLE {named(table.name)} ({columns})")
    connection.execute(f"COMMENT ON TABLE {named(table.name)} IS {quoted(table.text)}")
    for column in table.columns:
        name = f"{named(table.name)}.{named(column.name)}"
        connection.execute(f"COMMENT ON COLUMN {name} IS {quoted(column.comment)}")


def write(tables: Collection[Table], batches: Iterable[Batch], path: str, rows: int = 0) -> None:
    """Writes all rows; the file appears when it is complete. About so many `rows` decide the size of blocks."""
    by_name = {table.name: table for table in tables}
    with (
        temporary_at(path) as temporary,
        scratch_folder_for(None) as scratch,
        created(temporary, scratch, rows, shown(path)) as connection,
    ):
        for table in tables:
            create(connection, table)
        for batch in batches:
            connection.register("batch", arrow_table(by_name[batch.table], batch))
            connection.execute(f"INSERT INTO {named(batch.table)} SELECT * FROM batch")
            connection.unregister("batch")
