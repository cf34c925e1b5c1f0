"""The places of the tables of a job: Parquet files of a dataset, or a DuckDB file; reading from both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

import tracelink.converters.tables.schema as schema
from tracelink._io.remote.addresses import shown
from tracelink._io.remote.objects import as_file
from tracelink._io.sources import Source
from tracelink._io.targets import Target
from tracelink._io.temporary import scratch_folder_for
from tracelink._model import MANIFEST
from tracelink._model.errors import UnreadableError, did_you_mean, printable
from tracelink._model.text import shortened
from tracelink._store.duckdb import check_installed, connected, create, created, locked, pattern
from tracelink._store.parquet import arrow_type
from tracelink._store.schema import Column, Type, named, quoted
from tracelink.converters.tables.schema import Manifest, Table

if TYPE_CHECKING:
    import duckdb

# A dataset: a manifest, and a file for each table and rank.


def write_manifest(target: Target, manifest: Manifest) -> int:
    """Writes the manifest, after all files."""
    with target.file(MANIFEST) as stream:
        stream.write(msgspec.json.encode(manifest))
    return target.size(MANIFEST)


LONGEST_MANIFEST = 1 << 26
MOST_ROWS_OF_BYTE = 1024
"""Rows for each byte of a file: more have no times that differ."""
FEW_ROWS = 1 << 20
"""Rows that any file can have, such as samples of a value that never changes."""

AGAIN = "Write the dataset again: tracelink merge TRACES -o job.parquet/"


def manifest_of(source: Source) -> Manifest:
    """The manifest of a dataset; raises `UnreadableError` if this version cannot read it."""
    with source.open() as stream:
        return decoded_manifest(stream.read_all(LONGEST_MANIFEST), source.path)


def decoded_manifest(text: bytes, path: str) -> Manifest:
    """A manifest from its JSON."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"the manifest is invalid: {error}", source=path, advice=AGAIN) from error
    if manifest.schema != schema.VERSION:
        raise UnreadableError(
            f"its tables are of version {manifest.schema}, and this version of tracelink reads {schema.VERSION}",
            source=path,
            advice=f"It was written by tracelink {manifest.tracelink}. {AGAIN}",
        )
    ranks = manifest.ranks
    lengths = {len(set(ranks)), len(ranks), len(manifest.events), len(manifest.spans)}
    if len(lengths) > 1 or any(rank < 0 for rank in ranks):
        raise UnreadableError("the manifest is invalid: its ranks are", source=path, advice=AGAIN)
    return manifest


def read_file(path: Path, table: schema.Table) -> pa.Table:
    """The rows of a file; raises `UnreadableError` if it is not a file of this table."""
    with refused(path.as_posix()), pq.ParquetFile(path) as file:
        metadata = file.metadata
        if metadata.num_rows > FEW_ROWS + MOST_ROWS_OF_BYTE * path.stat().st_size:
            raise UnreadableError(f"it states {metadata.num_rows:,} rows, for which it is too small")
        check_columns(file.schema_arrow, table)
        rows = file.read([column.name for column in table.restored], use_threads=False)
        rows.validate(full=True)
        return rows.unify_dictionaries().combine_chunks()


def check_columns(found: pa.Schema, table: schema.Table) -> None:
    """Raises `UnreadableError` if a column is missing or of another type."""
    for column in table.restored:
        index = found.get_field_index(column.name)
        if index < 0:
            raise UnreadableError(
                f"the table {table.name} has no column {column.name}",
                advice=f"{did_you_mean(column.name, found.names)} {AGAIN}".strip(),
            )
        if found.field(index).type != arrow_type(column.type):
            raise UnreadableError(
                f"the column {column.name} of {table.name} is {found.field(index).type}, not {arrow_type(column.type)}",
                advice=AGAIN,
            )


@contextmanager
def refused(path: str) -> Iterator[None]:
    """Errors of the libraries as `UnreadableError`s about this file."""
    try:
        yield
    except UnreadableError as error:
        error.source = error.source or path
        raise
    except FileNotFoundError as error:
        raise UnreadableError("the file is missing", source=path, advice=AGAIN) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:300]
        raise UnreadableError(f"it is damaged: {text}", source=path, advice=AGAIN) from error


class DatasetTables(Struct, frozen=True):
    """The files of a dataset."""

    path: str
    folder: str
    """Its path, or its address with everything that opens it."""
    manifest: Manifest

    def read(self, table: schema.Table, rank: int | None = None) -> pa.Table:
        """The rows of one file."""
        name = schema.file_of(table.name) if rank is None else schema.partition(table.name, rank)
        with refused(f"{shown(self.folder)}/{name}"), as_file(f"{self.folder}/{name}") as file:
            return read_file(file, table)


# A DuckDB file: tables, and views made of them.


VIEWS = Path(__file__).with_name("views")
"""A file with a view each, after a comment that says what it shows."""

LONGEST = 80
"""Characters of names in an error."""


# Tables and views.


def views() -> dict[str, str]:
    """The statement of each view, by name, in an order in which each only needs those before it."""
    return {path.stem.partition("_")[2]: path.read_text("utf-8") for path in sorted(VIEWS.glob("*.sql"))}


def add_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes the views."""
    for statement in views().values():
        connection.execute(statement)


def add_dataset(
    connection: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest, *, copied: bool
) -> None:
    """Makes the tables of a dataset: with its rows if they are copied, else as views of its files."""
    connection.execute(f"CREATE TABLE {schema.DATASET} (manifest VARCHAR)")
    connection.execute(f"INSERT INTO {schema.DATASET} VALUES (?)", [msgspec.json.encode(manifest).decode()])
    for table in schema.TABLES.values():
        rows = _rows_of(table, folder, manifest)
        if copied or not rows:
            create(connection, table.in_database)
            if rows:
                connection.execute(f"INSERT INTO {table.name} {rows}")
        else:
            connection.execute(f"CREATE VIEW {table.name} AS {rows}")


def _rows_of(table: Table, folder: Path, manifest: Manifest) -> str:
    """The query of the rows of a table; empty if the dataset has no file of it."""
    if table.name not in manifest.tables or not (manifest.ranks or not table.by_rank):
        return ""
    place = pattern(folder.resolve().as_posix())
    names = (
        [schema.partition(table.name, rank) for rank in manifest.ranks]
        if table.by_rank
        else [schema.file_of(table.name)]
    )
    files = ", ".join(quoted(f"{place}/{name}") for name in names)
    hive = (
        "hive_partitioning = true, hive_types = {'rank': INTEGER}"
        if table.by_rank
        else "hive_partitioning = false"
    )
    columns = ", ".join(named(column.name) for column in table.in_database.columns)
    return f"SELECT {columns} FROM read_parquet([{files}], {hive})"


def make_database(dataset: Path, database: Path, scratch: Path, called: str) -> None:
    """Writes a DuckDB file with the tables of a dataset, and views; `called` is its name in errors."""
    manifest = decoded_manifest((dataset / MANIFEST).read_bytes(), str(dataset))
    with created(database, scratch, sum(manifest.tables.values()), called) as connection:
        add_dataset(connection, dataset, manifest, copied=True)
        add_views(connection)


# Tables read back.


class DatabaseTables(Struct, frozen=True):
    """The tables of a DuckDB file."""

    path: str
    location: Path
    manifest: Manifest

    @classmethod
    def of(cls, path: str, location: Path) -> DatabaseTables:
        """Those of a file that tracelink wrote."""
        with opened(path, location) as connection:
            _check_functions(connection)
            found = connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE table_name = ?", [schema.DATASET]
            ).fetchall()
            if not found:
                raise UnreadableError(
                    "a DuckDB file that tracelink did not write", advice="Open it with duckdb instead."
                )
            rows = connection.execute(f"SELECT manifest FROM {schema.DATASET}").fetchall()
            if len(rows) != 1 or not isinstance(rows[0][0], str):
                raise UnreadableError("it has no manifest", advice="Write it again.")
            return cls(path, location, decoded_manifest(rows[0][0].encode(), path))

    def read(self, table: Table, rank: int | None = None) -> pa.Table:
        """The rows of a table of the job, or those of one rank."""
        columns = ", ".join(named(column.name) for column in table.restored)
        chosen = "" if rank is None else f" WHERE rank = {rank:d}"
        with opened(self.path, self.location) as connection:
            self._check(connection, table, chosen)
            rows = connection.sql(f"SELECT {columns} FROM {table.name}{chosen}").to_arrow_table()
        return pa.Table.from_arrays(
            [_fitting(rows.column(column.name), column) for column in table.restored],
            names=[column.name for column in table.restored],
        )

    def _check(self, connection: duckdb.DuckDBPyConnection, table: Table, chosen: str) -> None:
        """Raises `UnreadableError` if it is no table, or cannot have as many rows as it states."""
        found = connection.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [table.name]
        ).fetchall()
        if found != [(1,)]:
            raise UnreadableError(f"it has no table {table.name}", advice=AGAIN)
        ((count,),) = connection.execute(f"SELECT count(*) FROM {table.name}{chosen}").fetchall()
        if count > FEW_ROWS + MOST_ROWS_OF_BYTE * self.location.stat().st_size:
            raise UnreadableError(f"{table.name} has {count:,} rows, for which the file is too small")


def _check_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """Raises `UnreadableError` if the file has other macros than ours, which could replace functions."""
    listed = connection.execute("SELECT function_name, internal FROM system.main.duckdb_functions()")
    if added := sorted({str(name) for name, internal in listed.fetchall() if not internal} - views().keys()):
        raise UnreadableError(
            f"it has macros, which tracelink does not write: {shortened(printable(', '.join(added)), LONGEST)}",
            advice=f"They can change results. {AGAIN}",
        )


@contextmanager
def opened(path: str, location: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reaches nothing but this file; errors of DuckDB are errors on the file."""
    check_installed()
    with (
        refused(path),
        scratch_folder_for(None) as scratch,
        damage_reported(path),
        closing(connected(location, scratch=scratch)) as connection,
    ):
        locked(connection)
        yield connection


@contextmanager
def damage_reported(path: str) -> Iterator[None]:
    """Errors of DuckDB as `UnreadableError`s about this file."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = " ".join(str(error).partition("\n\nLINE ")[0].split())[:300]
        raise UnreadableError(f"DuckDB cannot read it: {text}", source=path, advice=AGAIN) from error


def _fitting(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """The values of a column of a DuckDB file with the type of the table."""
    found = values.type
    types = pa.types
    if column.type == Type.SHARED and types.is_dictionary(found):
        return values
    if column.type in (Type.SHARED, Type.TEXT):
        fits = types.is_string(found) or types.is_large_string(found) or types.is_string_view(found)
        wanted = pa.string()
    else:
        wanted = arrow_type(column.type)
        fits = types.is_integer(found) == types.is_integer(wanted)
    if not fits:
        raise UnreadableError(f"the column {column.name} is {found}", advice=AGAIN)
    return values.cast(wanted)
