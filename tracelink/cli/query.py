"""`tracelink query`: SQL on the tables of a job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.shell_completion import CompletionItem
from msgspec import Struct
from msgspec.structs import replace

from tracelink._api.job import Job
from tracelink._io.targets import STDOUT, Place, target_of
from tracelink._model.errors import UsageError
from tracelink._model.findings import Severity
from tracelink._model.text import counted
from tracelink._run.reading import parse_size
from tracelink._show.csv import csv_text
from tracelink._show.json import json_text
from tracelink._sql.results import SHOWN, Queries, Query
from tracelink._sql.session import Cells, QueryColumn, QueryRows, plain
from tracelink._sql.shipped import Value, shipped_queries, value_of
from tracelink._store.results import save
from tracelink.cli.answer import page_of, print_answer, print_errors, takes_output
from tracelink.cli.console import Console, is_terminal
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import Traces, Words, command, reads

if TYPE_CHECKING:
    from pyarrow import RecordBatch

TABLE, CSV, JSON, PARQUET = FORMATS = ("table", "csv", "json", "parquet")
SUFFIXES = {".csv": CSV, ".json": JSON, ".parquet": PARQUET}
"""Forms that are written while rows are found."""

STATEMENT = re.compile(r"\s*(select|from|with|describe|summarize|show|values|pivot)\s", re.IGNORECASE)
"""The beginning of a statement, as no name of an input begins."""


class Request(Struct, frozen=True):
    """A query and its inputs."""

    paths: tuple[str, ...]
    sql: str
    name: str
    parameters: Mapping[str, Value]


def _request(arguments: tuple[str, ...], name: str, parameters: Mapping[str, Value]) -> Request:
    """The query that the user asks for, and its inputs."""
    if len(arguments) > 1 and STATEMENT.match(arguments[0]) and not STATEMENT.match(arguments[-1]):
        raise click.UsageError('SQL comes last. Write: tracelink query SOURCE "SELECT ..."')
    if name and arguments and STATEMENT.match(arguments[-1]):
        raise click.UsageError("There are two queries. Give either SQL or --name.")
    if name:
        paths, sql = arguments, ""
    else:
        paths, sql = arguments[:-1], "".join(arguments[-1:])
    if not paths:
        missing = "a query, or --name" if arguments and not name else "an input"
        raise click.UsageError(f'Missing {missing}. Write: tracelink query SOURCE "SELECT ..."')
    return Request(paths, sql, name, parameters)


def _parameters(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, Value], ...]:
    found = []
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE, such as limit=10", ctx, param)
        found.append((name, value_of(text)))
    return tuple(found)


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=known.title)
        for name, known in shipped_queries().items()
        if name.startswith(incomplete)
    ]


@command(
    'tracelink query samples/gpu_pair "SELECT kind, count(*) AS events FROM events GROUP BY kind"',
    "tracelink query samples/gpu_pair --name top-kernels --param limit=5",
    "tracelink query --list",
    "tracelink merge samples/gpu_pair -o job.duckdb",
    'tracelink query job.duckdb "FROM breakdown ORDER BY rank, step" -o breakdown.csv',
    "tracelink query job.duckdb --name slowest-collectives -o slowest.parquet",
)
@click.argument("arguments", nargs=-1, metavar="SOURCE... [SQL]", type=click.Path())
@click.option(
    "--name",
    metavar="QUERY",
    shell_complete=_complete_name,
    help="Run a query that comes with tracelink, such as top-kernels, in place of SQL.",
)
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    callback=_parameters,
    metavar="NAME=VALUE",
    help="Value of a parameter $NAME, such as limit=10. Repeatable.",
)
@click.option("--list", "names", is_flag=True, help="List the queries that come with tracelink.")
@takes_output
@click.option("--format", "form", type=Words(FORMATS), help="How rows are printed. Default: table.")
@click.option(
    "--args",
    "with_arguments",
    is_flag=True,
    help="Traces: read the arguments of events, too, for the table arguments.",
)
@click.option(
    "--memory",
    callback=lambda ctx, param, text: text and parse_size(text, "--memory"),
    metavar="SIZE",
    help="Memory before temporary files are used, such as 4GB. Default: 80 % of all.",
)
@reads(paths=False)
def query(
    console: Console,
    traces: Traces,
    arguments: tuple[str, ...],
    name: str | None,
    parameters: tuple[tuple[str, Value], ...],
    names: bool,
    form: str | None,
    output: str | None,
    with_arguments: bool,
    memory: int | None,
) -> None:
    """Run SQL on the tables of a job.

    SOURCE is a DuckDB file or a dataset that `tracelink merge` wrote, or traces. SQL is one SELECT statement of DuckDB;
    docs/sql.md describes the tables. It can read these tables, and nothing else.
    """
    if names:
        print_answer(console, Queries(list(shipped_queries().values())), output)
        return
    request = _request(arguments, name or "", dict(parameters))
    destination = _Destination.of(form, output, console)
    with ExitStack() as stack:
        with traces.watched(console, *request.paths) as reading:
            job = stack.enter_context(Job(request.paths, **reading))
            rows = stack.enter_context(
                job.open_query(
                    request.sql,
                    name=request.name,
                    parameters=request.parameters,
                    arguments=with_arguments,
                    memory=memory,
                    cells=destination.cells(console),
                )
            )
        destination.write(rows, console)
    print_errors(console, rows.findings)
    failed = any(finding.severity is Severity.ERROR for finding in rows.findings)
    click.get_current_context().exit(NO if failed else FINE)


# The rows.


class _Destination(Struct, frozen=True):
    """Where rows go, and how."""

    form: str
    """Empty if they are written to a file when all are found."""
    output: str | None

    @classmethod
    def of(cls, form: str | None, output: str | None, console: Console) -> _Destination:
        """From the options."""
        if output is not None:
            if form:
                raise UsageError("--format is for rows that are printed", advice="Leave it out: -o rows.csv")
            return cls(SUFFIXES.get(Path(output).suffix.lower(), ""), output)
        if form == PARQUET and (is_terminal() or console.json):
            raise UsageError("Parquet is not for a terminal", advice="Name a file: -o rows.parquet")
        return cls(form or TABLE, None)

    def cells(self, console: Console) -> Cells:
        """The kind of values of which rows are made."""
        if self.form == PARQUET:
            return Cells.VALUES
        return Cells.JSON if self.form == JSON or (console.json and not self.output) else Cells.TEXTS

    def write(self, rows: QueryRows, console: Console) -> None:
        """Writes the rows; to standard output unless that has a document."""
        if self.form in (JSON, PARQUET):
            check_names(rows.names)
        if self.output is None:
            self._print(rows, console)
            return
        if self.form:
            target = target_of(self.output)
            if not isinstance(target, Place) or target.is_folder:
                raise UsageError(f"{target.path()} is a folder", advice="Name a file: rows.parquet")
            with target.file() as stream:
                self._write(rows, stream)
        else:
            save(_collected(rows), self.output)
        if console.json:
            console.document(Query(rows.columns, rows.count, [], self.output, rows.findings))
        console.info(f"Wrote {self.output} ({counted(rows.count, 'row')}).")

    def _print(self, rows: QueryRows, console: Console) -> None:
        if console.json:
            console.document(_collected(rows, as_json=True))
        elif self.form == TABLE:
            report = _collected(rows, most=SHOWN).report()
            console.result(page_of(console, replace(report, headline="", findings=())))
        elif self.form == PARQUET:
            with target_of(STDOUT).file() as stream:
                self._write(rows, stream)
        else:
            for text in (_csv if self.form == CSV else _json)(rows):
                console.result(*text.removesuffix("\n").split("\n"))

    def _write(self, rows: QueryRows, stream: BinaryIO) -> None:
        """Writes the rows as they are found."""
        if self.form == PARQUET:
            _write_parquet(rows, stream)
            return
        for text in (_csv if self.form == CSV else _json)(rows):
            stream.write(text.encode("utf-8", "replace"))


def _collected(rows: QueryRows, *, as_json: bool = False, most: int | None = None) -> Query:
    """The rows in memory, at most so many."""
    found: list[list[Any]] = []
    for batch in rows:
        some = batch if most is None else batch.slice(0, most - len(found))
        found += _rows(some, rows.columns, as_json=as_json)
    return Query(rows.columns, rows.count, found, None, rows.findings)


def check_names(columns: Sequence[str]) -> None:
    """Raises `UsageError` if two columns have one name, which the rows of JSON and Parquet cannot have."""
    for name in dict.fromkeys(columns):
        if columns.count(name) > 1:
            raise UsageError(
                f"{columns.count(name)} columns are named {name}", advice="Name each of them with AS."
            )


def _write_parquet(rows: QueryRows, stream: BinaryIO) -> None:
    """Writes Parquet batch by batch; sums of 128 bits are integers of 64 bits if those of the first batch fit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for field in rows.schema:
        if pa.types.is_interval(field.type):
            raise UsageError(
                f"the column {field.name} is an INTERVAL, which Parquet does not have",
                advice=f"Cast it: CAST({field.name} AS VARCHAR).",
            )
    batches = iter(rows)
    first = next(batches, None)
    start = pa.Table.from_batches([first] if first else [], rows.schema)
    schema = plain(start).schema
    try:
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            writer.write_table(start.cast(schema))
            for batch in batches:
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    except pa.ArrowException as error:
        raise UsageError(
            f"the rows do not fit into Parquet: {error}", advice="Cast the column to VARCHAR or DOUBLE."
        ) from error


def _csv(rows: QueryRows) -> Iterator[str]:
    """The texts of CSV, batch by batch."""
    yield csv_text([rows.names])
    for batch in rows:
        yield csv_text(map(_csv_values, zip(*(column.to_pylist() for column in batch.columns), strict=True)))


def _csv_values(row: Sequence[Any]) -> list[Any]:
    return [str(value).lower() if isinstance(value, bool) else value for value in row]


def _json(rows: QueryRows) -> Iterator[str]:
    """The lines of a list of objects, batch by batch."""
    waiting = ""
    for batch in filter(len, rows):
        yield f"{waiting},\n" if waiting else "[\n"
        objects = [dict(zip(rows.names, row, strict=True)) for row in _rows(batch, rows.columns)]
        waiting = json_text(objects).removeprefix("[\n").removesuffix("\n]")
    yield f"{waiting}\n]\n" if waiting else "[]\n"


def _rows(batch: RecordBatch, described: Sequence[QueryColumn], *, as_json: bool = True) -> list[list[Any]]:
    """The rows of a batch as values of JSON."""
    columns = [
        [
            json.loads(value) if as_json and one.is_nested and value is not None else _value(value)
            for value in column.to_pylist()
        ]
        for one, column in zip(described, batch.columns, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _value(value: Any) -> Any:
    """A value of JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_value(item) for item in value]
        case dict():
            return {str(key): _value(item) for key, item in value.items()}
        case Decimal() if value.as_tuple().exponent == 0:
            return int(value)
        case _:
            return str(value)
