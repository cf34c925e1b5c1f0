"""Results as programs and notebooks use them: typed tables of rows, and overviews of graphs and reports.

The columns, their types and their units come from the class of the rows, as `model.fields` declares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Struct, field

from tracelink._model.columns import frame, not_installed
from tracelink._model.errors import UsageError, choices, printable
from tracelink._model.fields import Field, Unit, fields_of, rows_in
from tracelink._model.findings import Finding, Severity
from tracelink._model.selection import Numbers
from tracelink._model.tables import Columns
from tracelink._model.text import counted, moment, number, rank_list, shortened, span
from tracelink._model.trace import SourceInfo

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


RowType = TypeVar("RowType")
Column = npt.NDArray[Any]


class ResultTable(Columns, Generic[RowType], frozen=True, eq=False, kw_only=True):
    """Rows of one type as columns.

    `len(table)`, `for row in table`, `table[0]`, `table[:10]` and `table["duration_ns"]` do what they do for a list of
    rows and for a mapping of columns. Two tables are equal if their rows are; a table can be pickled.
    """

    row_type: type[RowType]
    """The class of the rows."""
    title: str = ""
    """What the rows are, such as `Kernels`."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit of each column that has one."""

    @classmethod
    def of(
        cls, row_type: type[RowType], columns: Mapping[str, Any], *, title: str = ""
    ) -> ResultTable[RowType]:
        """Returns a table of columns.

        Args:
            row_type: The class of the rows: a named tuple, dataclass or struct, whose fields are the columns.
            columns: Values by the name of the column, of equal length: arrays, masked arrays, or lists, in which None
                is unknown.
            title: What the rows are.

        Raises:
            ValueError: A column is missing, or is longer than another one.
        """
        fields = fields_of(row_type)
        if columns.keys() != fields.keys():
            raise ValueError(f"columns {', '.join(columns)} for rows of {', '.join(fields)}")
        arrays = {name: _array(one, columns[name]) for name, one in fields.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise ValueError("columns of different lengths")
        known = {
            name: unit.value
            for name, one in fields.items()
            if (unit := one.unit) and unit not in (Unit.NAME, Unit.RANKS)
        }
        return cls(arrays, row_type=row_type, title=title, units=known)

    @classmethod
    def of_rows(
        cls, row_type: type[RowType], rows: Iterable[RowType], *, title: str = ""
    ) -> ResultTable[RowType]:
        """Returns a table of rows; see `of`."""
        listed = list(rows)
        columns = {name: [known(getattr(row, name)) for row in listed] for name in fields_of(row_type)}
        return cls.of(row_type, columns, title=title)

    @property
    def plotted(self) -> Sequence[str]:
        """The columns that `plot` draws by default."""
        return getattr(self.row_type, "plotted", ())

    # As a sequence of rows, and as columns

    def __iter__(self) -> Iterator[RowType]:
        names = tuple(self.columns)
        rows = zip(*(values_of(column) for column in self.columns.values()), strict=True)
        return (self.row_type(**dict(zip(names, row, strict=True))) for row in rows)

    @overload
    def __getitem__(self, wanted: int) -> RowType: ...

    @overload
    def __getitem__(self, wanted: str) -> Column: ...

    @overload
    def __getitem__(self, wanted: slice) -> ResultTable[RowType]: ...

    def __getitem__(self, wanted: int | str | slice) -> RowType | Column | ResultTable[RowType]:
        if isinstance(wanted, str):
            return super().__getitem__(wanted)
        if isinstance(wanted, slice):
            return self._take(wanted)
        if not -len(self) <= wanted < len(self):
            raise IndexError(f"row {wanted} of {counted(len(self), 'row')}")
        position = wanted % len(self)
        return next(iter(self._take(slice(position, position + 1))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultTable):
            return NotImplemented
        return self.row_type is other.row_type and all(
            values_of(column) == values_of(other.columns[name]) for name, column in self.columns.items()
        )

    __hash__ = None  # type: ignore[assignment]  # columns are arrays

    def where(
        self,
        condition: Callable[[RowType], object] | npt.NDArray[np.bool_] | None = None,
        /,
        **values: object,
    ) -> ResultTable[RowType]:
        """Returns the rows that fulfil a condition: `table.where(rank=3)`, `table.where(lambda row: row.count > 5)`.

        Args:
            condition: A function of a row, or one boolean for each row, such as `table["count"] > 5`.
            **values: What columns of the rows contain.

        Raises:
            UsageError: There is no such column.
        """
        kept = np.ones(len(self), np.bool_)
        if callable(condition):
            kept &= np.fromiter((bool(condition(row)) for row in self), np.bool_, len(self))
        elif condition is not None:
            kept &= np.ma.filled(condition, False)
        for name, value in values.items():
            kept &= np.fromiter((cell == value for cell in values_of(self[name])), np.bool_, len(self))
        return self._take(kept)

    def sorted_by(self, name: str, *, descending: bool = False) -> ResultTable[RowType]:
        """Returns the rows in the order of one column; rows of one value keep their order, unknown ones come last.

        Args:
            name: The name of the column.
            descending: Whether the largest comes first.

        Raises:
            UsageError: There is no such column.
        """
        values = values_of(self[name])
        known = [row for row, value in enumerate(values) if value is not None]
        known.sort(key=values.__getitem__, reverse=descending)
        unknown = [row for row, value in enumerate(values) if value is None]
        return self._take(np.array(known + unknown, np.int64))

    def _take(self, rows: npt.NDArray[Any] | slice) -> ResultTable[RowType]:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return ResultTable(columns, row_type=self.row_type, title=self.title, units=self.units)

    @property
    def flat(self) -> dict[str, Column]:
        """The columns without those that hold rows or mappings of their own, as frames and files have them."""
        fields = fields_of(self.row_type)
        return {name: column for name, column in self.columns.items() if fields[name].is_column}

    # As frames

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a pandas frame, in which unknown values are missing; its units are in `attrs`.

        Raises:
            UsageError: pandas is not installed: install the extra `pandas`.
        """
        result = frame(self.flat)
        result.attrs["units"] = dict(self.units)
        return result

    def to_arrow(self) -> pyarrow.Table:
        """Returns the table as an Arrow table with nulls; descriptions and units are metadata of its fields.

        Raises:
            UsageError: pyarrow is not installed: install the extra `arrow`.
        """
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise not_installed("pyarrow", "arrow") from None
        table: pyarrow.Table = import_module(_STORED_BY).arrow_of(self)
        return table

    # For people

    def plot(
        self, *y: str, x: str = "", by: str = "", kind: Literal["", "bars", "lines", "levels", "points"] = ""
    ) -> Any:
        """Returns a chart of some columns, which notebooks draw: `table.plot("total_ns", x="name")`.

        Args:
            *y: The columns with the lengths of stacked bars or the heights of lines and points; by default what the
                table is about.
            x: The column with the labels of bars, or with the horizontal values; by default the names or ids of rows.
            by: The column by which rows are lines or colors of their own; by default each rank and name is a line.
            kind: "bars", "lines", "levels" (each value holds until the next one) or "points"; by default levels of
                sizes and lines of others over times and long series of steps, points over sizes and durations,
                else bars.

        Raises:
            UsageError: There is no such column, none that could be drawn, or the columns have different units.
        """
        return import_module(_DRAWN_BY).chart_of(self, y, x, by, kind)

    def __repr__(self) -> str:
        return import_module(_DRAWN_BY).text_of(self)

    def _repr_html_(self) -> str:
        return import_module(_DRAWN_BY).html_of(self)


_DRAWN_BY, _STORED_BY = "tracelink._show.frames", "tracelink._store.parquet"
"""What draws and stores a table of results; these know this module, so that they are imported when they are needed."""


def _array(field: Field, values: Any) -> Column:
    """A column of the values of a field."""
    if field.kind is int:
        try:
            numbers = values if isinstance(values, np.ndarray) else _integers(values)
            masked = np.ma.masked_array(numbers, dtype=np.int64)
            return masked if field.optional else np.asarray(numbers, np.int64)
        except OverflowError:  # sums of sizes that a damaged file states
            return np.fromiter(values, object, len(values))
    if field.kind is float:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
        return np.asarray(values, np.float64)  # None is NaN
    if field.kind is bool and not field.optional:
        return np.asarray(values, np.bool_)
    return np.fromiter(values, object, len(values))


def known(value: Any) -> Any:
    """A value, or None for one that is left out of JSON."""
    return None if value is UNSET else value


def _integers(values: Sequence[int | None]) -> Column:
    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    return np.ma.masked_array(np.array([value or 0 for value in values], np.int64), missing)


def values_of(column: Column) -> list[Any]:
    """The values of a column; None where unknown."""
    if column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    return (
        column.tolist() if isinstance(column, np.ma.MaskedArray) or column.dtype != object else list(column)
    )


# Results: what an answer is, as one object.


class Result(Struct, frozen=True):
    """Base of what the functions of the library return: a struct whose fields are declared as those of rows are."""

    drawn_by: ClassVar[str]
    """The module whose `report_of` makes the document that people see."""

    def report(self) -> Any:
        """Returns the document that people see, which `tracelink._show` draws."""
        return import_module(self.drawn_by).report_of(self)

    def table_rows(self) -> dict[str, tuple[type[Struct], Sequence[Any]]]:
        """Returns the class and the rows of each table by name."""
        return rows_of(self)

    def tables(self) -> dict[str, ResultTable[Any]]:
        """Returns the tables of the result by name."""
        return {name: _titled(name, *rows) for name, rows in self.table_rows().items()}

    def table(self, name: str) -> ResultTable[Any]:
        """Returns one table.

        Raises:
            UsageError: There is no such table.
        """
        rows = self.table_rows()
        if name not in rows:
            raise UsageError(f"there is no table {name!r}", advice=choices(name, list(rows)))
        return _titled(name, *rows[name])

    def to_pandas(self, name: str) -> pandas.DataFrame:
        """Returns one table as a pandas frame (needs the extra `pandas`)."""
        return self.table(name).to_pandas()

    def to_polars(self, name: str) -> polars.DataFrame:
        """Returns one table as a polars frame (needs polars and the extra `arrow`)."""
        return self.table(name).to_polars()

    def to_arrow(self, name: str) -> pyarrow.Table:
        """Returns one table as an Arrow table (needs the extra `arrow`)."""
        return self.table(name).to_arrow()

    def __repr__(self) -> str:
        headline = printable(self.report().headline)
        sizes = ", ".join(f"{name} {number(len(rows))}" for name, (_, rows) in self.table_rows().items())
        return f"<{type(self).__name__}: {headline}\n  tables: {sizes}>"

    def _repr_html_(self) -> str:
        return import_module("tracelink._show.html").fragment(self.report())


def rows_of(result: Struct) -> dict[str, tuple[type[Struct], Sequence[Any]]]:
    """The class and the rows of each field that lists rows."""
    kinds = {name: rows_in(one.kind) for name, one in fields_of(type(result)).items()}
    return {name: (kind, getattr(result, name)) for name, kind in kinds.items() if kind is not None}


def _titled(name: str, row_type: type[Struct], rows: Sequence[Any]) -> ResultTable[Any]:
    return ResultTable.of_rows(row_type, rows, title=name.replace("_", " ").capitalize())


# What a graph, a job or a report contains, in a few lines


LONGEST_LIST = 160
"""Characters of a line that lists names."""

SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def heading(kind: str, events: int, ranks: Sequence[int], first_ns: int | None, last_ns: int | None) -> str:
    """`EventGraph: 1,410 events of ranks 0-1, 2.9 ms from 2025-03-01 08:05:59.999602 UTC`."""
    of_ranks = (
        f" of {Numbers.of(ranks).called('rank')}" if len(ranks) == 1 else f" of ranks {rank_list(ranks)}"
    )
    text = f"{kind}: {counted(events, 'event')}{of_ranks if ranks else ''}"
    if first_ns is None or last_ns is None:
        return f"{text}, without times" if events else text
    return f"{text}, {span(last_ns - first_ns)} from {moment(first_ns)}"


def formats(sources: Sequence[SourceInfo]) -> str:
    """`2 kineto, 2 execution-trace`."""
    counts = Counter(source.format for source in sources)
    return _listed([f"{number(count)} {name}" for name, count in counts.most_common()])


def problems(findings: Sequence[Finding]) -> str:
    """`1 warning, 4 notes`."""
    counts = Counter(finding.severity for finding in findings)
    return _listed(
        [counted(counts[severity], word) for severity, word in SEVERITIES.items() if counts[severity]]
    )


def as_text(heading: str, parts: Mapping[str, str]) -> str:
    """A heading, and an indented line for each part."""
    return "\n".join([f"<{heading}", *(f"  {name}: {printable(text)}" for name, text in parts.items())]) + ">"


def as_html(heading: str, parts: Mapping[str, str]) -> str:
    """The same for notebooks."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(printable(text))}</td></tr>'
        for name, text in parts.items()
    )
    return f"<div><p>{escape(printable(heading))}</p><table>{rows}</table></div>"


def contents(
    sources: Sequence[SourceInfo], tables: Mapping[str, int], findings: Sequence[Finding]
) -> dict[str, str]:
    """The sources by format, the tables with their numbers of rows, and the findings by severity."""
    return {
        "sources": formats(sources),
        "tables": ", ".join(f"{name} {number(rows)}" for name, rows in tables.items()),
        "findings": problems(findings),
    }


def _listed(parts: Sequence[str]) -> str:
    return shortened(", ".join(parts), LONGEST_LIST) or "none"
