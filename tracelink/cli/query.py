"""`tracelink query`: SQL on the tables of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from tracelink.cli.collectives import csv_lines
from tracelink.cli.console import Console, is_terminal, json_text
from tracelink.cli.documents import results
from tracelink.cli.main import FINE, NO
from tracelink.cli.options import (
    Words,
    collected,
    command,
    size_in_bytes,
    takes_clock,
    takes_engine,
    takes_include,
    takes_max_unpacked,
    takes_metrics,
    takes_ranks_of_files,
)
from tracelink.cli.terminal import EMPTY, Page, print_errors, watching
from tracelink.io.engine import Engine
from tracelink.io.targets import STDOUT, FileTarget, check_folder, target_of
from tracelink.model.errors import Severity, UsageError, printable
from tracelink.model.text import counted, number, shortened
from tracelink.sql.session import QueryResult
from tracelink.sql.session import query as run_query
from tracelink.sql.shipped import ShippedQuery, Value, shipped_queries, value_of

if TYPE_CHECKING:
    from tracelink.model.metrics import Metrics

TABLE, CSV, JSON, PARQUET = FORMATS = ("table", "csv", "json", "parquet")
SUFFIXES = {".csv": CSV, ".json": JSON, ".parquet": PARQUET, ".txt": TABLE}

SHOWN = 1000
"""Rows of a table for people."""
WIDEST = 60
"""Characters of a cell of it."""


class Request(Struct, frozen=True):
    """What is queried, and how."""

    paths: tuple[str, ...]
    sql: str
    name: str
    parameters: Mapping[str, Value]


def _request(
    arguments: tuple[str, ...], name: str | None, parameters: tuple[tuple[str, Value], ...], names: bool
) -> Request | None:
    """What the user wants to know; None if only the names of queries."""
    if names:
        return None
    if name:
        paths, sql = arguments, ""
    else:
        paths, sql = arguments[:-1], "".join(arguments[-1:])
    if not paths:
        missing = "a query, or --name" if arguments and not name else "an input"
        raise click.UsageError(f'Missing {missing}. Write: tracelink query SOURCE "SELECT ..."')
    return Request(paths, sql, name or "", dict(parameters))


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


takes_request = collected(
    "request",
    _request,
    (
        click.argument("arguments", nargs=-1, metavar="SOURCE... [SQL]", type=click.Path()),
        click.option(
            "-n",
            "--name",
            metavar="QUERY",
            shell_complete=_complete_name,
            help="Run a query that comes with tracelink, such as top-kernels, in place of SQL.",
        ),
        click.option(
            "-p",
            "--param",
            "parameters",
            multiple=True,
            callback=_parameters,
            metavar="NAME=VALUE",
            help="Value of a parameter $NAME, such as limit=10. Repeatable.",
        ),
        click.option("--list", "names", is_flag=True, help="List the queries that come with tracelink."),
    ),
)


@command(
    'tracelink query samples/gpu_pair "SELECT kind, count(*) AS events FROM events GROUP BY kind"',
    "tracelink query samples/gpu_pair --name top-kernels --param limit=5",
    "tracelink query --list",
    "tracelink merge samples/gpu_pair -o job.duckdb",
    'tracelink query job.duckdb "FROM breakdown ORDER BY rank, step" --format csv',
    "tracelink query job.duckdb --name slowest-collectives -o slowest.parquet",
)
@takes_request
@click.option(
    "--format",
    "form",
    type=Words(FORMATS),
    help="How rows are written. Default: by the name of the output, else table.",
)
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE|-", help="Output file: .csv, .json or .parquet."
)
@click.option(
    "--args",
    "with_arguments",
    is_flag=True,
    help="Traces: read the arguments of events, too, for the table arguments.",
)
@click.option(
    "--memory",
    callback=size_in_bytes,
    metavar="SIZE",
    help="Memory before temporary files are used, such as 4GB. Default: 80 % of all.",
)
@takes_ranks_of_files
@takes_max_unpacked
@takes_metrics
@takes_include
@takes_clock
@takes_engine
def query(
    console: Console,
    request: Request | None,
    form: str | None,
    output: str | None,
    with_arguments: bool,
    memory: int | None,
    rank_of: tuple[tuple[str, int], ...],
    max_unpacked: int | None,
    metrics: Metrics | None,
    include: tuple[str, ...],
    clock: str,
    engine: Engine,
) -> None:
    """Run SQL on the tables of a job.

    SOURCE is a DuckDB file or a dataset that `tracelink merge` wrote, or traces. SQL is one SELECT statement of DuckDB;
    docs/sql.md describes the tables. It can read these tables, and nothing else.
    """
    if request is None:
        _list(console)
        return
    written = _Written.of(form, output, console)
    with watching(console, request.paths) as watch:
        found = run_query(
            request.paths,
            request.sql,
            name=request.name,
            parameters=request.parameters,
            rank_of=dict(rank_of),
            max_unpacked=max_unpacked,
            metrics=metrics,
            include=include,
            arguments=with_arguments,
            memory=memory,
            engine=engine,
            watch=watch,
            clock=clock,
        )
    if console.json:
        console.document(query_document(found, output))
    written.write(found, console)
    print_errors(console, found.findings)
    failed = any(finding.severity is Severity.ERROR for finding in found.findings)
    click.get_current_context().exit(NO if failed else FINE)


# The rows.


class _Written(Struct, frozen=True):
    """Where rows go, and how."""

    form: str
    output: str | None

    @classmethod
    def of(cls, form: str | None, output: str | None, console: Console) -> _Written:
        """From the options; raises `UsageError` if the name of the output says nothing."""
        if output in (None, "-"):
            chosen = form or TABLE
            if chosen == PARQUET and (is_terminal() or console.json):
                raise UsageError("Parquet is not for a terminal", advice="Name a file: -o rows.parquet")
            return cls(chosen, None)
        assert output
        check_folder(output)
        known = SUFFIXES.get(Path(output).suffix)
        if not (form or known):
            raise UsageError(
                f"{output} does not say how rows are written",
                advice="Name it .csv, .json or .parquet, or use --format.",
            )
        return cls(form or known or TABLE, output)

    def write(self, found: QueryResult, console: Console) -> None:
        """Writes the rows; to standard output unless that has a document."""
        if self.output is None:
            if self.form == TABLE:
                console.info(query_page(found))
            elif not console.json:
                self._print(found, console)
            return
        target = target_of(self.output)
        assert isinstance(target, FileTarget)
        with target.file() as stream:
            stream.write(self._bytes(found))
        console.info(f"{self.output}: {counted(len(found), 'row')}")

    def _print(self, found: QueryResult, console: Console) -> None:
        if self.form == PARQUET:
            with target_of(STDOUT).file() as stream:
                stream.write(self._bytes(found))
        else:
            console.result(*self._bytes(found).decode().removesuffix("\n").split("\n"))

    def _bytes(self, found: QueryResult) -> bytes:
        match self.form:
            case "parquet":
                return _parquet(found)
            case "json":
                return _json(found)
            case "csv":
                columns = {
                    name: column.to_pylist()
                    for name, column in zip(found.columns, found.table.columns, strict=True)
                }
                return "\n".join([*csv_lines(columns), ""]).encode("utf-8", "replace")
            case _:
                return f"{query_page(found)}\n".encode()


def _parquet(found: QueryResult) -> bytes:
    import io

    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(found.table, stream, compression="zstd")
    return stream.getvalue()


def _json(found: QueryResult) -> bytes:
    rows = [dict(zip(found.columns, map(_value, row), strict=True)) for row in found.rows()]
    return f"{json_text(rows)}\n".encode()


def query_page(found: QueryResult) -> str:
    """The first rows as a table that fits the terminal."""
    page = Page()
    columns = [column.slice(0, SHOWN).to_pylist() for column in found.table.columns]
    names = [shortened(printable(name), WIDEST) for name in found.columns]
    numbers = [
        name
        for name, values in zip(names, columns, strict=True)
        if any(isinstance(value, int | float) for value in values)
    ]
    rows = [[_cell(value) for value in row] for row in zip(*columns, strict=True)]
    page.table(names, rows, numbers=numbers)
    if len(found) > SHOWN:
        page.line(f"{number(len(found) - SHOWN)} more rows: write them with -o rows.csv")
    elif not rows:
        page.line("No rows.")
    return page.text


def _cell(value: Any) -> str:
    match value:
        case None:
            return EMPTY
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case _:
            return shortened(str(value), WIDEST)


# The queries that come with tracelink.


def _list(console: Console) -> None:
    known = list(shipped_queries().values())
    if console.json:
        console.document(queries_document(known))
        return
    page = Page()
    page.table(
        ("query", "answers", "parameters"),
        [
            (each.name, each.title, " ".join(f"{one.name}={_cell(one.default)}" for one in each.parameters))
            for each in known
        ],
    )
    console.info(page.text)


# The results for `--json`.


def query_document(found: QueryResult, output: str | None) -> results.Query:
    """The result of a query; without its rows if they are in a file."""
    columns = [results.QueryColumn(column.name, str(column.type)) for column in found.table.schema]
    return results.Query(
        columns=columns,
        count=len(found),
        rows=[] if output else [[_value(value) for value in row] for row in found.rows()],
        output=output,
        findings=results.findings_of(found.findings),
    )


def _value(value: Any) -> Any:
    """A value of JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_value(item) for item in value]
        case dict():
            return {str(key): _value(item) for key, item in value.items()}
        case _:
            return str(value)


def queries_document(known: Sequence[ShippedQuery]) -> results.Queries:
    """The queries that come with tracelink."""
    return results.Queries(
        [
            results.NamedQuery(
                each.name,
                each.title,
                each.text,
                each.sql,
                [results.QueryParameter(one.name, one.default, one.text) for one in each.parameters],
            )
            for each in known
        ]
    )
