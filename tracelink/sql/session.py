"""Queries of the tables of a job: of a DuckDB file, of a dataset, or of traces that are read for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracelink.clock.clock import clock_choice
from tracelink.converters.tables import DUCKDB
from tracelink.engines import EngineChoice, Watch, engine_for
from tracelink.io.engine import Engine
from tracelink.io.sources import Discovery, Paths, again, discover_inputs
from tracelink.io.targets import DirectoryTarget, scratch_folder_for
from tracelink.model import MANIFEST
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.columns import frame_of_arrow, not_installed
from tracelink.model.errors import Finding, UnreadableError, UsageError, choices
from tracelink.pipeline.job_reader import read_job, separated
from tracelink.pipeline.ranks import FoundTasks
from tracelink.pipeline.reading import Task
from tracelink.sql.shipped import Value, shipped_query

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

    from tracelink.model.metrics import Metrics

SQL_EXTRA = "sql"
FILES = "job.parquet"
"""The dataset that is written of traces, in a temporary folder."""


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
        try:
            import polars
        except ImportError:
            raise UsageError("polars is not installed", advice="Run: pip install polars") from None
        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """What other libraries take in place of an Arrow table."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<QueryResult: {len(self):,} rows of {', '.join(self.columns)}>"


def query(
    paths: Paths,
    sql: str = "",
    *,
    name: str = "",
    parameters: Mapping[str, Value] | None = None,
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    arguments: bool = False,
    memory: int | None = None,
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
) -> QueryResult:
    """Runs SQL on the tables of a job; docs/sql.md describes these.

    Args:
        paths: A DuckDB file or a dataset that tracelink wrote; or traces, which are read and written to a temporary
            dataset.
        sql: One statement that selects, in the SQL of DuckDB. It can read the tables of the job, and nothing else.
        name: A query that comes with tracelink, such as "top-kernels", in place of `sql`.
        parameters: Values of the parameters `$name` of the statement or the query.
        rank_of: The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems).
        arguments: Whether traces are read with the arguments of events, for the table `arguments`.
        memory: Bytes of memory that the query can use before it writes temporary files; by default 80 % of all.
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        clock: How the clocks of ranks are corrected, if traces are read.

    Returns:
        The rows.

    Raises:
        UsageError: The statement is invalid, a path does not exist, or duckdb is not installed.
        UnreadableError: No source can be read.

    Example:
        tracelink.query("job.duckdb", "SELECT name, count(*) FROM events GROUP BY name").to_pandas()
    """
    statement, values = _statement(sql, name, parameters or {})
    discovery = discover_inputs(
        paths, rank_of=rank_of, max_unpacked=max_unpacked, metrics=metrics, include=include
    )
    reading = _Reading(clock_choice(clock), arguments, engine_for(jobs, watch, engine))
    settings = {"threads": reading.engine.jobs} | ({"memory_limit": f"{memory >> 20}MiB"} if memory else {})
    findings: list[Finding] = []
    with _session(discovery, reading, settings, findings) as connection:
        return QueryResult(_selected(connection, statement, values), findings)


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


class _Reading(Struct, frozen=True):
    """How traces are read."""

    clock: ClockMode | Clocks
    arguments: bool
    engine: Engine


@contextmanager
def _session(
    discovery: Discovery, reading: _Reading, settings: Mapping[str, Any], findings: list[Finding]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the tables of the inputs, which reaches nothing else."""
    try:
        import duckdb  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise not_installed(error.name or "duckdb", SQL_EXTRA) from None
    _, whole = separated(FoundTasks.of(discovery))
    with scratch_folder_for(None) as scratch:
        if whole and whole.source.is_whole and whole.reader.name == DUCKDB.name:
            with _of_database(whole, scratch, settings) as connection:
                yield connection
            return
        if whole and whole.source.local:
            folder = whole.source.local.parent
        elif whole and whole.source.is_whole:
            folder = scratch / FILES
            from tracelink.io.remote.objects import copy_folder

            copy_folder(again(whole.source).rpartition("/")[0], folder)
        else:
            folder = scratch / FILES
            findings += _write_dataset(discovery, reading, folder)
        with _of_dataset(folder, scratch, settings) as connection:
            yield connection


@contextmanager
def _of_database(
    task: Task, scratch: Path, settings: Mapping[str, Any]
) -> Iterator[duckdb.DuckDBPyConnection]:
    from tracelink.converters.tables.database import DatabaseTables, connected, locked
    from tracelink.io.remote.objects import copy_into

    location = task.source.local or copy_into(again(task.source), scratch)
    tables = DatabaseTables.of(task.source.path, location)
    with closing(connected(tables.location, scratch=scratch, **settings)) as connection:
        locked(connection)
        yield connection


@contextmanager
def _of_dataset(
    folder: Path, scratch: Path, settings: Mapping[str, Any]
) -> Iterator[duckdb.DuckDBPyConnection]:
    from tracelink.converters.tables.database import (
        add_dataset,
        add_views,
        connected,
        damage_reported,
        locked,
    )
    from tracelink.converters.tables.files import decoded_manifest, refused

    with closing(connected(scratch=scratch, **settings)) as connection:
        with refused(str(folder)), damage_reported(str(folder)):
            manifest = decoded_manifest((folder / MANIFEST).read_bytes(), str(folder))
            add_dataset(connection, folder, manifest, copied=False)
            add_views(connection)
            locked(connection, folder)
        yield connection


def _write_dataset(discovery: Discovery, reading: _Reading, folder: Path) -> Sequence[Finding]:
    """Writes the dataset of the traces."""
    from tracelink.converters.tables.writer import ALL, NONE, DatasetWriter

    job = read_job(discovery, reading.engine, clock=reading.clock)
    writer = DatasetWriter(ALL if reading.arguments else NONE)
    writer.write(job, DirectoryTarget(folder), reading.engine.for_events(job.events))
    return job.findings


# The statement.


def _selected(
    connection: duckdb.DuckDBPyConnection, statement: str, values: Mapping[str, Value]
) -> pyarrow.Table:
    """The rows of a statement; raises `UsageError` if it is not one that selects, or if it is wrong."""
    import duckdb
    import pyarrow

    try:
        found = connection.extract_statements(statement)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise UsageError(
                "this is not one statement that selects",
                advice="Write one SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or SHOW statement.",
            )
        relation = connection.sql(statement, params=dict(values)) if values else connection.sql(statement)
        return _plain(relation.to_arrow_table())
    except (duckdb.FatalException, duckdb.InternalException, duckdb.IOException) as error:
        raise UnreadableError(f"DuckDB cannot read the tables: {_problem(error)}") from error
    except duckdb.Error as error:
        raise UsageError(_problem(error), advice=_advice(connection, error)) from error
    except (pyarrow.ArrowException, MemoryError) as error:
        raise UsageError(f"the rows do not fit into memory: {error}", advice="Select fewer rows.") from error


def _plain(table: pyarrow.Table) -> pyarrow.Table:
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


def _problem(error: duckdb.Error) -> str:
    """The message of DuckDB on one line, with the line of SQL that it is about."""
    paragraphs = str(error).split("\n\n")
    message = " ".join(paragraphs[0].split())
    line = next((part for part in paragraphs[1:] if part.startswith("LINE ")), "")
    return f"{message} ({line.splitlines()[0]})" if line else message


def _advice(connection: duckdb.DuckDBPyConnection, error: duckdb.Error) -> str:
    import duckdb

    if isinstance(error, duckdb.PermissionException):
        return "A query can only read the tables of the job."
    if isinstance(error, duckdb.CatalogException):
        rows = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        return choices("", [name for (name,) in rows])
    return "docs/sql.md describes tables and columns; DESCRIBE events lists those of a table."
