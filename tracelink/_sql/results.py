"""The rows of a query and the list of queries, as results that every form of output has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from typing import Annotated, Any

from msgspec import defstruct

from tracelink._model.errors import printable
from tracelink._model.fields import Count, Doc, Row, Shown, Unit
from tracelink._model.findings import Finding
from tracelink._model.results import Result, ResultTable
from tracelink._model.text import counted
from tracelink._show.document import Block, Paragraph, Report, Section, Table
from tracelink._sql.session import QueryColumn
from tracelink._sql.shipped import ShippedQuery

SHOWN = 1000
"""Rows of a table for people."""
WIDEST = 60
"""Characters of a cell of it, and of the name of a column."""


class Query(Result, frozen=True):
    """The rows of a query."""

    columns: Sequence[QueryColumn]
    count: Annotated[Count, Doc("Number of rows.")]
    rows: Annotated[Sequence[Sequence[Any]], Doc("The rows; empty if they were written to a file.")]
    output: Annotated[str | None, Doc("The file; null if there is none.")]
    findings: Sequence[Finding]

    drawn_by = "tracelink._sql.results"

    def tables(self) -> dict[str, ResultTable[Any]]:
        """Returns the rows; the types of their columns are those of DuckDB."""
        row_type = _row_type(self.columns, [_kind(column.type) for column in self.columns])
        values = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        columns = dict(zip(row_type.__struct_fields__, map(list, values), strict=True))
        return {"rows": ResultTable.of(row_type, columns, title="Rows")}


class Queries(Result, frozen=True):
    """The queries that come with tracelink."""

    queries: Sequence[ShippedQuery]

    drawn_by = "tracelink._sql.results"


class QueryRow(ShippedQuery, frozen=True):
    """A query with its parameters in one text."""

    defaults: Annotated[str, Shown("parameters")] = ""


def report_of(result: Query | Queries) -> Report:
    """The document of the rows of a query, or of all queries."""
    if isinstance(result, Query):
        blocks = list(_rows(result))
        return Report(
            "query",
            counted(result.count, "row"),
            sections=[Section("Rows", blocks)],
            findings=result.findings,
        )
    rows = [
        QueryRow(
            one.name,
            one.title,
            one.text,
            one.sql,
            defaults=" ".join(f"{each.name}={_text(each.default)}" for each in one.parameters),
        )
        for one in result.queries
    ]
    table = Table(rows, columns=("name", "title", "defaults"), thing="query")
    return Report("query", counted(len(rows), "query"), sections=[Section("Queries", [table])])


def _rows(query: Query) -> Iterator[Block]:
    """The first rows; numbers with a point are texts, because columns of a statement declare no unit."""
    if not query.rows:
        yield Paragraph("No rows.")
        return
    kinds = [int if _kind(column.type) is int else str for column in query.columns]
    numeric = [_kind(column.type) in (int, float) for column in query.columns]
    row_type = _row_type(query.columns, kinds, numeric)
    columns = [
        [value if kind is int and isinstance(value, int) else _text(value) for value in values]
        for kind, values in zip(kinds, zip(*query.rows[:SHOWN], strict=True), strict=True)
    ]
    rows = [row_type(*row) for row in zip(*columns, strict=True)]
    yield Table(rows, from_right=True, most=SHOWN)
    if query.count > SHOWN:
        yield Paragraph(f"{counted(query.count - SHOWN, 'more row')}: write them with -o rows.csv")


def _kind(name: str) -> type:
    """The type of Python for a type of DuckDB."""
    if re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?", name):
        return int
    if name in ("FLOAT", "DOUBLE") or name.startswith("DECIMAL"):
        return float
    return bool if name == "BOOLEAN" else str


def _row_type(
    columns: Sequence[QueryColumn], kinds: Sequence[type], numeric: Sequence[bool] = ()
) -> type[Any]:
    """A class of rows with a field for each column; `numeric` are those that tables align at the right."""
    names: list[str] = []
    for column in columns:
        name = re.sub(r"\W", "_", column.name).strip("_")  # Python changes names that begin with two
        name = name if name.isidentifier() and not iskeyword(name) else f"column_{name}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    fields = [
        (name, Annotated[kind | None, *_shown(column, kind, bool(numeric and numeric[index]))])
        for index, (name, column, kind) in enumerate(zip(names, columns, kinds, strict=True))
    ]
    return defstruct("QueryRow", fields, bases=(Row,), frozen=True)


def _shown(column: QueryColumn, kind: type, right: bool) -> tuple[Any, ...]:
    heading = printable(column.name)[:WIDEST] or " "
    shown = Shown(heading, longest=WIDEST, right=right)
    return (Unit.NAME, shown) if kind is int else (shown,)


def _text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)
