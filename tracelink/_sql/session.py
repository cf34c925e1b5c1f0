"""Queries of the tables of a job: of a DuckDB file, of a dataset, or of traces that are read for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Struct

from tracelink._io.sources import again
from tracelink._io.system import cores
from tracelink._io.targets import folder_target
from tracelink._io.temporary import scratch_folder_for
from tracelink._join.job_reader import Reading, separated
from tracelink._join.ranks import FoundTasks
from tracelink._join.reading import Task
from tracelink._model import MANIFEST
from tracelink._model.columns import frame_of_arrow, not_installed, polars_frame
from tracelink._model.errors import UnreadableError, UsageError, choices
from tracelink._model.fields import Doc, Row, Text
from tracelink._model.findings import Finding
from tracelink._model.job import LinkedJob
from tracelink._sql.shipped import Value, shipped_query
from tracelink.converters.tables import DUCKDB

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow


Result = TypeVar("Result")

SQL_EXTRA = "sql"
FILES, FILES_WITH_ARGUMENTS = "job.parquet", "arguments.parquet"
"""The datasets that are written of traces, in a temporary folder."""


class QueryResult(Struct, frozen=True):
    """The rows that a query returns, as an Arrow table; frames of pandas and polars share its memory where they can."""

    table: Any
    """A `pyarrow.Table`."""
    findings: Sequence[Finding] = ()
    """Findings of reading the inputs; none if they are a dataset or a DuckDB file."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.table.column_names
        return names

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self) -> list[tuple[Any, ...]]:
        """Returns the rows as values of Python."""
        columns = [column.to_pylist() for column in self.table.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def to_arrow(self) -> pyarrow.Table:
        """Returns the rows as an Arrow table, without a copy."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas frame of Arrow columns, without a copy (needs pandas)."""
        return frame_of_arrow(self.table)

    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a polars frame, without a copy of numbers (needs polars)."""
        return polars_frame(self.table)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream that other libraries take in place of an Arrow table."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<QueryResult: {len(self):,} rows of {', '.join(self.columns)}>"


class Cells(Enum):
    """Kinds of values of which rows are made."""

    VALUES = "values"
    """Values of Arrow of any type."""
    TEXTS = "texts"
    """Numbers, booleans and texts; other values as DuckDB writes them."""
    JSON = "json"
    """The same, with lists, structs and maps as JSON."""


@contextmanager
def open_query(
    tables: Tables,
    sql: str = "",
    *,
    name: str = "",
    parameters: Mapping[str, Value] | None = None,
    arguments: bool = False,
    memory: int | None = None,
    cells: Cells = Cells.VALUES,
) -> Iterator[QueryRows]:
    """The rows of a query, which are found while they are iterated; `Job.query` describes the arguments.

    `cells` is what the rows are made of.
    """
    statement, values = _statement(sql, name, parameters or {})
    with tables.connected(arguments, memory) as connection, ThreadPoolExecutor(1) as thread:
        yield QueryRows(_Statement(connection, thread, statement, values), cells, tables.findings)


def _statement(sql: str, name: str, parameters: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    if bool(sql.strip()) == bool(name):
        problem = "there are two queries" if name else "there is no query"
        raise UsageError(
            problem, advice="Give either a SELECT statement or the name of a query that comes with tracelink."
        )
    if not name:
        return sql, dict(parameters)
    shipped = shipped_query(name)
    return shipped.sql, shipped.values(parameters)


# Where the tables are.


class Tables:
    """The tables of the inputs: a DuckDB file, a dataset, or traces, which are written to a temporary dataset once."""

    def __init__(self, reading: Reading, job: Callable[[], LinkedJob]) -> None:
        """`job` reads the inputs."""
        self.findings: Sequence[Finding] = ()
        self._reading, self._job = reading, job
        self._kept = ExitStack()

    def close(self) -> None:
        """Removes the temporary files."""
        self._kept.close()
        self.__dict__.pop("_scratch", None)

    @contextmanager
    def connected(self, arguments: bool, memory: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to the tables, which reaches nothing else."""
        try:
            import duckdb  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise not_installed(error.name or "duckdb", SQL_EXTRA) from None
        engine = self._reading.engine
        threads = engine.jobs if engine.shares_files else cores()  # a query runs on this machine
        settings = {"threads": threads} | ({"memory_limit": f"{memory >> 20}MiB"} if memory else {})
        whole = self._whole
        if whole and whole.source.is_whole and whole.format == DUCKDB.name:
            connection = _of_database(whole, self._scratch, settings)
        else:
            connection = _of_dataset(self._dataset(whole, arguments), self._scratch, settings)
        with connection as tables:
            yield tables

    @cached_property
    def _scratch(self) -> Path:
        return self._kept.enter_context(scratch_folder_for(None))

    @property
    def _whole(self) -> Task | None:
        """The dataset or database that is asked as it is."""
        chosen = self._reading.selection
        if chosen.cuts or chosen.ranks:
            return None
        return separated(FoundTasks.of(self._reading.discovery))[1]

    def _dataset(self, whole: Task | None, arguments: bool) -> Path:
        if whole and whole.source.local:
            return whole.source.local.parent
        folder = self._scratch / (FILES_WITH_ARGUMENTS if arguments else FILES)
        if folder.exists():
            return folder
        if whole and whole.source.is_whole:
            from tracelink._io.remote.objects import copy_folder

            copy_folder(again(whole.source).rpartition("/")[0], folder)
            return folder
        from tracelink.converters.tables.writer import ALL, NONE, DatasetWriter

        job = self._job()
        writer = DatasetWriter(ALL if arguments else NONE)
        writer.write(job, folder_target(folder), self._reading.engine.for_events(job.events))
        self.findings = job.findings
        return folder


@contextmanager
def _of_database(
    task: Task, scratch: Path, settings: Mapping[str, Any]
) -> Iterator[duckdb.DuckDBPyConnection]:
    from tracelink._io.remote.objects import copy_into
    from tracelink._store.duckdb import connected, locked
    from tracelink.converters.tables.storage import DatabaseTables

    location = task.source.local or copy_into(again(task.source), scratch)
    tables = DatabaseTables.of(task.source.path, location)
    with closing(connected(tables.location, scratch=scratch, **settings)) as connection:
        locked(connection)
        yield connection


@contextmanager
def _of_dataset(
    folder: Path, scratch: Path, settings: Mapping[str, Any]
) -> Iterator[duckdb.DuckDBPyConnection]:
    from tracelink._store.duckdb import connected, locked
    from tracelink.converters.tables.storage import (
        add_dataset,
        add_views,
        damage_reported,
        decoded_manifest,
        refused,
    )

    with closing(connected(scratch=scratch, **settings)) as connection:
        with refused(str(folder)), damage_reported(str(folder)):
            manifest = decoded_manifest((folder / MANIFEST).read_bytes(), str(folder))
            add_dataset(connection, folder, manifest, copied=False)
            add_views(connection)
            locked(connection, folder)
        yield connection


# The statement.


PLAIN = {
    *("boolean", "varchar", "enum", "float", "double", "decimal"),
    *("tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
}
NESTED = {"list", "array", "struct", "map", "union"}

ROWS_OF_BATCH = 1 << 15

INTERRUPTED = 0.1
"""Seconds after which a query is interrupted again."""


class QueryColumn(Row, frozen=True):
    """A column of the rows."""

    name: str
    type: Annotated[Text, Doc("The type in DuckDB.")]

    @property
    def is_nested(self) -> bool:
        """True if its values are lists, structs or maps: texts of JSON, if rows are made of these."""
        return self.type.endswith("]") or self.type.partition("(")[0].lower() in NESTED


class _Statement(Struct, frozen=True):
    """A statement on a connection; it runs in a thread, so that a signal can interrupt it."""

    connection: duckdb.DuckDBPyConnection
    thread: ThreadPoolExecutor
    sql: str
    values: Mapping[str, Value]

    def relation(self, cells: Cells) -> tuple[duckdb.DuckDBPyRelation, list[QueryColumn]]:
        """The rows and their columns."""
        found = self._relation(self.sql)
        names, kinds = list(found.columns), [kind.id for kind in found.types]
        described = list(map(QueryColumn, names, map(str, found.types)))
        if cells is Cells.VALUES or PLAIN.issuperset(kinds):
            return found, described
        nested = [cells is Cells.JSON and kind in NESTED for kind in kinds]
        columns = [f"c{number}" for number in range(len(names))]
        chosen = ", ".join(
            f"to_json({column})::VARCHAR" if is_nested else column if kind in PLAIN else f"{column}::VARCHAR"
            for column, kind, is_nested in zip(columns, kinds, nested, strict=True)
        )
        inner = f"SELECT {chosen} FROM (\n{self._unended()}\n) AS found({', '.join(columns)})"
        return self._relation(inner), described

    def _relation(self, sql: str) -> duckdb.DuckDBPyRelation:
        if self.values:
            return self.connection.sql(sql, params=dict(self.values))
        return self.connection.sql(sql)

    def _unended(self) -> str:
        """The statement without a semicolon at its end, and without comments after it."""
        import duckdb

        text = self.sql.encode()
        for offset, kind in reversed(duckdb.tokenize(self.sql)):
            if kind != duckdb.token_type.comment and text[offset : offset + 1] != b";":
                break
            text = text[:offset]
        return text.decode()

    def check(self) -> None:
        """Raises `UsageError` unless it is one statement that selects."""
        import duckdb

        found = self.connection.extract_statements(self.sql)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise UsageError(
                "this is not one statement that selects",
                advice="Write one SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or SHOW statement.",
            )

    def run(self, work: Callable[[], Result]) -> Result:
        """The result of work on the connection; an exception of this thread, such as that of a signal, ends it."""
        future = self.thread.submit(work)
        try:
            return future.result()
        except BaseException:
            while not future.done():
                self.connection.interrupt()
                wait([future], INTERRUPTED)
            raise

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Errors of DuckDB as errors of the statement or of the tables."""
        import duckdb
        import pyarrow

        try:
            yield
        except (duckdb.FatalException, duckdb.InternalException, duckdb.IOException) as error:
            raise UnreadableError(f"DuckDB cannot read the tables: {_problem(error, self.sql)}") from error
        except duckdb.Error as error:
            raise UsageError(_problem(error, self.sql), advice=_advice(self.connection, error)) from error
        except (pyarrow.ArrowException, MemoryError) as error:
            raise UsageError(
                f"the rows do not fit into memory: {error}", advice="Select fewer rows."
            ) from error


class QueryRows:
    """The rows of a query, in batches, as DuckDB finds them."""

    def __init__(self, statement: _Statement, cells: Cells, findings: Sequence[Finding]) -> None:
        self._statement = statement
        self.findings = findings
        self.count = 0
        with statement.reported():
            statement.check()
            relation, self.columns = statement.run(lambda: statement.relation(cells))
            self._reader = statement.run(lambda: relation.arrow(ROWS_OF_BATCH))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        import pyarrow

        types = self._reader.schema.types
        return pyarrow.schema(list(zip(self.names, types, strict=True)))

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pyarrow.RecordBatch | None:
        import pyarrow

        with self._statement.reported():
            batch = self._statement.run(lambda: next(self._reader, None))
        if batch is None:
            return None
        self.count += len(batch)
        return pyarrow.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def table(self) -> QueryResult:
        """All rows in memory."""
        import pyarrow

        with self._statement.reported():
            return QueryResult(plain(pyarrow.Table.from_batches(self, self.schema)), self.findings)


def plain(table: pyarrow.Table) -> pyarrow.Table:
    """The table with 64-bit integers in place of sums of 128 bits that fit."""
    import pyarrow as pa

    columns = []
    for column in table.columns:
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            with suppress(pa.ArrowInvalid):
                columns.append(column.cast(pa.int64()))
                continue
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def _problem(error: duckdb.Error, statement: str) -> str:
    """The message of DuckDB on one line, with the line of the statement that it is about."""
    paragraphs = str(error).split("\n\n")
    message = " ".join(paragraphs[0].split())
    line = next((part for part in paragraphs[1:] if part.startswith("LINE ")), "")
    first = line.partition("\n")[0]
    written = first.partition(": ")[2].strip().strip(".").strip()
    return f"{message} ({first})" if written and written in statement else message


def _advice(connection: duckdb.DuckDBPyConnection, error: duckdb.Error) -> str:
    import duckdb

    if isinstance(error, duckdb.PermissionException):
        return "A query can only read the tables of the job."
    if isinstance(error, duckdb.CatalogException):
        rows = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        return choices("", [name for (name,) in rows])
    return "docs/sql.md describes tables and columns; DESCRIBE events lists those of a table."
