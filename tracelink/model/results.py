"""Results as programs and notebooks use them: typed tables of rows, and overviews of graphs and reports.

The columns and their types come from the class of the rows (a named tuple, dataclass or struct). The end of a name says
the unit: `_ns` nanoseconds, `start_ns` and `end_ns` Unix time, `_bytes`, `_gb_s`, `share` (of 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from itertools import accumulate
from shutil import get_terminal_size
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_type_hints,
    overload,
)

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink.model.columns import MICROSECOND, MILLISECOND, SECOND, arrow_table, frame
from tracelink.model.errors import Finding, Severity, UsageError, choices, printable
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, date_and_time, moment, number, rank_list, shortened, span
from tracelink.model.trace import SourceInfo

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from tracelink.model.charts import Plot

RowType = TypeVar("RowType")
Column = npt.NDArray[Any]

TIME, DURATION, BYTES, RATE, SHARE = "unix ns", "ns", "bytes", "GB/s", "share"
"""Units of columns that are shown in other units: Unix time, durations, sizes, bandwidths, parts of 1."""
MOMENTS = ("start_ns", "end_ns", "time_ns", "at_ns")
"""Names, and ends of names, of columns with Unix time."""
SUFFIXES = {"_ns": DURATION, "bytes": BYTES, "gb_s": RATE, "share": SHARE, "_ppm": "ppm", "_percent": "%"}
IDENTIFIERS = frozenset(
    {"rank", "step", "row", "stream", "device", "group", "sequence", "line", "pid", "index"}
)
"""Columns of numbers that are names: shown without separators."""

FIRST_ROWS, LAST_ROWS = 30, 10
"""Rows that an interpreter and a notebook show."""
SHOWN_TEXT, NARROW = 72, 40
"""Characters of a text in a cell, and where that leaves no room for other columns."""
WIDTH, SHORTEST = 160, 24
"""Characters and lines of a terminal of unknown size."""


def unit_of(name: str) -> str:
    """The unit of a column with this name; empty for texts, ids and counts."""
    if any(name == moment or name.endswith(f"_{moment}") for moment in MOMENTS):
        return TIME
    return next((unit for suffix, unit in SUFFIXES.items() if name.endswith(suffix)), "")


_SCALES: Mapping[str, Sequence[tuple[float, tuple[float, str]]]] = {
    DURATION: (
        (10 * SECOND, (SECOND, "s")),
        (MILLISECOND, (MILLISECOND, "ms")),
        (0, (MICROSECOND, "\N{MICRO SIGN}s")),
    ),
    BYTES: ((10**9, (10**9, "GB")), (10**6, (10**6, "MB")), (10**3, (10**3, "kB")), (0, (1, "B"))),
    SHARE: ((0, (0.01, "%")),),
}
"""For each unit that is shown in others: from which size on in which one, and what that is in the unit."""
_DIGITS = {"s": 3, "ms": 3, "\N{MICRO SIGN}s": 3, "GB": 1, "MB": 1, "kB": 1, "%": 1}
"""Digits after the point in cells."""


def in_unit(unit: str, most: float) -> tuple[float, str]:
    """The unit in which values up to `most` are shown: how much of `unit` that is, and its name."""
    scales = _SCALES.get(DURATION if unit == TIME else unit, ((0, (1, unit)),))
    return next(shown for least, shown in scales if most >= least)


class ResultTable(Struct, Generic[RowType], frozen=True, eq=False):
    """Rows of one type as columns.

    `len(table)`, `for row in table`, `table[0]`, `table[:10]` and `table["duration_ns"]` do what they do for a list of
    rows and for a mapping of columns. Two tables are equal if their rows are; a table can be pickled.
    """

    row_type: type[RowType]
    """The class of the rows."""
    columns: Mapping[str, Column]
    """The columns by name: integers (masked where unknown), floats (NaN where unknown), booleans, or objects."""
    title: str = ""
    """What the rows are, such as `Kernels`."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit of each column that has one."""
    plotted: Sequence[str] = ()
    """The columns that `plot` draws by default."""

    @classmethod
    def of(
        cls,
        row_type: type[RowType],
        columns: Mapping[str, Any],
        *,
        title: str = "",
        units: Mapping[str, str] | None = None,
        plotted: Sequence[str] = (),
    ) -> ResultTable[RowType]:
        """Returns a table of columns.

        Args:
            row_type: The class of the rows: a named tuple, dataclass or struct, whose fields are the columns.
            columns: Values by the name of the column, of equal length: arrays, masked arrays, or lists, in which None
                is unknown.
            title: What the rows are.
            units: Units that do not follow from the names of columns.
            plotted: The columns that `plot` draws by default, such as the parts of a whole.

        Raises:
            ValueError: A column is missing, or is longer than another one.
        """
        types = _types_of(row_type)
        if columns.keys() != types.keys():
            raise ValueError(f"columns {', '.join(columns)} for rows of {', '.join(types)}")
        arrays = {name: _array(kind, columns[name]) for name, kind in types.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            raise ValueError("columns of different lengths")
        known = {name: unit for name in types if (unit := unit_of(name))}
        return cls(row_type, arrays, title, {**known, **(units or {})}, plotted)

    @classmethod
    def of_rows(
        cls,
        row_type: type[RowType],
        rows: Iterable[RowType],
        *,
        title: str = "",
        units: Mapping[str, str] | None = None,
        plotted: Sequence[str] = (),
    ) -> ResultTable[RowType]:
        """Returns a table of rows.

        Args:
            row_type: The class of the rows: a named tuple, dataclass or struct, whose fields are the columns.
            rows: The rows.
            title: What the rows are.
            units: Units that do not follow from the names of columns.
            plotted: The columns that `plot` draws by default, such as the parts of a whole.
        """
        listed = list(rows)
        columns = {name: [getattr(row, name) for row in listed] for name in _types_of(row_type)}
        return cls.of(row_type, columns, title=title, units=units, plotted=plotted)

    # As a sequence of rows, and as columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[RowType]:
        return map(self.row_type, *(values_of(column) for column in self.columns.values()))

    @overload
    def __getitem__(self, wanted: int) -> RowType: ...

    @overload
    def __getitem__(self, wanted: str) -> Column: ...

    @overload
    def __getitem__(self, wanted: slice) -> ResultTable[RowType]: ...

    def __getitem__(self, wanted: int | str | slice) -> RowType | Column | ResultTable[RowType]:
        if isinstance(wanted, str):
            return self._column(wanted)
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
            kept &= np.fromiter(
                (cell == value for cell in values_of(self._column(name))), np.bool_, len(self)
            )
        return self._take(kept)

    def sorted_by(self, name: str, *, descending: bool = False) -> ResultTable[RowType]:
        """Returns the rows in the order of one column; rows of one value keep their order, unknown ones come last.

        Args:
            name: The name of the column.
            descending: Whether the largest comes first.

        Raises:
            UsageError: There is no such column.
        """
        values = values_of(self._column(name))
        known = [row for row, value in enumerate(values) if value is not None]
        known.sort(key=values.__getitem__, reverse=descending)
        unknown = [row for row, value in enumerate(values) if value is None]
        return self._take(np.array(known + unknown, np.int64))

    def _column(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            raise UsageError(
                f"there is no column {name!r}", advice=choices(name, list(self.columns))
            ) from None

    def _take(self, rows: npt.NDArray[Any] | slice) -> ResultTable[RowType]:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return ResultTable(self.row_type, columns, self.title, self.units, self.plotted)

    # As frames

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a pandas frame, in which unknown values are missing; its units are in `attrs`.

        Raises:
            UsageError: pandas is not installed: install the extra `pandas`.
        """
        result = frame(self.columns)
        result.attrs["units"] = dict(self.units)
        return result

    def to_arrow(self) -> pyarrow.Table:
        """Returns the table as an Arrow table, in which unknown values are null; units are metadata of its fields.

        Raises:
            UsageError: pyarrow is not installed: install the extra `arrow`.
        """
        columns = {
            name: values_of(column) if column.dtype == object else column
            for name, column in self.columns.items()
        }
        result = arrow_table(columns)
        from pyarrow import schema

        described = (
            one.with_metadata({"unit": self.units[one.name]}) if one.name in self.units else one
            for one in result.schema
        )
        return result.cast(schema(list(described)))

    # For people

    def plot(
        self, *y: str, x: str = "", by: str = "", kind: Literal["", "bars", "lines", "levels", "points"] = ""
    ) -> Plot:
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
        from tracelink.model.charts import chart_of

        return chart_of(self, y, x, by, kind)

    def __repr__(self) -> str:
        every = self._shown()
        columns = _fitting(every, get_terminal_size((WIDTH, SHORTEST)).columns)
        lines = [
            "  ".join(line).rstrip() for line in zip(*(column.aligned() for column in columns), strict=True)
        ]
        if hidden := self._hidden():
            lines.insert(1 + FIRST_ROWS, hidden)
        if len(columns) < len(every):
            names = list(self.columns)[len(columns) :]
            lines.append(f"{counted(len(names), 'more column')}: {', '.join(names)}")
        return "\n".join([f"<{self._heading()}", *lines]) + ">"

    def _repr_html_(self) -> str:
        from tracelink.model.markup import element, inner

        columns = self._shown()
        styles = [f"text-align:{'right' if column.right else 'left'};padding:1px 8px" for column in columns]
        head = (
            element("th", column.header, style=style) for column, style in zip(columns, styles, strict=True)
        )
        body = [
            element(
                "tr", (element("td", cell, style=style) for cell, style in zip(cells, styles, strict=True))
            )
            for cells in zip(*(column.cells for column in columns), strict=True)
        ]
        if hidden := self._hidden():
            body.insert(
                FIRST_ROWS, element("tr", element("td", hidden, colspan=len(columns), style=styles[0]))
            )
        table = element(
            "table",
            element("caption", self._heading(), style="text-align:left;caption-side:top"),
            element("thead", element("tr", head)),
            element("tbody", body),
            style="font-variant-numeric:tabular-nums;white-space:nowrap",
        )
        return inner(element("div", table, style="overflow-x:auto"))

    def _heading(self) -> str:
        return printable(f"{self.title or self.row_type.__name__}: {counted(len(self), 'row')}")

    def _hidden(self) -> str:
        hidden = len(self) - FIRST_ROWS - LAST_ROWS
        return f"\N{HORIZONTAL ELLIPSIS} {number(hidden)} more \N{HORIZONTAL ELLIPSIS}" if hidden > 0 else ""

    def _shown(self) -> list[ColumnText]:
        rows = np.arange(len(self))
        if self._hidden():
            rows = np.concatenate([rows[:FIRST_ROWS], rows[-LAST_ROWS:]])
        common = max((_most(self.columns[name]) for name in self._of_one_unit()), default=0)
        return [
            column_text(
                name, column[rows], self.units.get(name, ""), common if name in self._of_one_unit() else 0
            )
            for name, column in self.columns.items()
        ]

    def _of_one_unit(self) -> Collection[str]:
        """Durations, if those that are plotted are parts of others: they are shown in one unit."""
        durations = [name for name, unit in self.units.items() if unit == DURATION]
        return durations if set(durations) & set(self.plotted) else ()


def _most(column: Column) -> float:
    """The largest of the values, whatever their sign."""
    return max((abs(value) for value in values_of(column) if value is not None), default=0)


def _types_of(row_type: Any) -> dict[str, Any]:
    """The type of each column of rows of this class."""
    names = getattr(row_type, "_fields", None) or getattr(row_type, "__struct_fields__", None)
    types = get_type_hints(row_type)
    return {name: types[name] for name in names or (one.name for one in fields(row_type))}


def _array(kind: Any, values: Any) -> Column:
    """A column of values of this type."""
    optional = type(None) in get_args(kind)
    (kind,) = [one for one in get_args(kind) if one is not type(None)] if optional else [kind]
    if kind is int:
        try:
            numbers = values if isinstance(values, np.ndarray) else _integers(values)
            return np.ma.masked_array(numbers, dtype=np.int64) if optional else np.asarray(numbers, np.int64)
        except OverflowError:  # sums of sizes that a damaged file states
            return np.fromiter(values, object, len(values))
    if kind is float:
        return np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
    if kind is bool and not optional:
        return np.asarray(values, np.bool_)
    return np.fromiter(values, object, len(values))


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


# Columns in words


class ColumnText(NamedTuple):
    """A column as people see it."""

    header: str
    cells: Sequence[str]
    right: bool
    """Whether its cells are aligned at the right, as numbers are."""

    @property
    def width(self) -> int:
        """Characters of the longest text."""
        return max(map(len, (self.header, *self.cells)))

    def shortened(self) -> ColumnText:
        """The same with texts that leave room for other columns."""
        return self if self.right else self._replace(cells=[both_ends(text, NARROW) for text in self.cells])

    def aligned(self) -> list[str]:
        """The header and the cells in equal width."""
        width = self.width
        return [text.rjust(width) if self.right else text.ljust(width) for text in (self.header, *self.cells)]


def _fitting(columns: Sequence[ColumnText], width: int) -> Sequence[ColumnText]:
    """The first columns that fit into a line, with long texts shortened if that lets more columns fit."""
    if sum(column.width + 2 for column in columns) > width + 2:
        columns = [column.shortened() for column in columns]
    ends = accumulate(column.width + 2 for column in columns)
    return columns[: max(sum(end <= width + 2 for end in ends), 1)]


def column_text(name: str, column: Column, unit: str, most: float) -> ColumnText:
    """The column as people see it, in the unit of its largest value, or of `most` if that is larger."""
    values = values_of(column)
    numeric = column.dtype.kind in "if"
    words, write = _scale(name, unit, max(most, _most(column)) if numeric else 0, column.dtype.kind)
    title = without_unit(name)
    header = f"{title} ({words})" if words and words != title else title
    return ColumnText(header, ["" if value is None else write(value) for value in values], numeric)


def both_ends(text: str, most: int) -> str:
    """The text, or its start and its end in `most` characters."""
    end = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}\N{HORIZONTAL ELLIPSIS}{text[-end:]}"


def without_unit(name: str) -> str:
    """`compute` for the column `compute_ns`."""
    return next((name.removesuffix(end) for end in ("_ns", "_gb_s", "_bytes") if name.endswith(end)), name)


def _scale(name: str, unit: str, most: float, kind: str) -> tuple[str, Callable[[Any], str]]:
    """The unit in which a column is shown, and how its values are written."""
    if unit == TIME:
        return "UTC", date_and_time
    divisor, words = in_unit(unit, most / 10 if unit == BYTES else most)  # sizes differ more than durations
    if digits := _DIGITS.get(words):
        return words, lambda value: f"{value / divisor:,.{digits}f}"
    if kind == "f":
        return words, lambda value: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return words, number if kind == "i" and name not in IDENTIFIERS else cell


def cell(value: object) -> str:
    """A value as people read it, in one short line."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return shortened(printable(text), SHOWN_TEXT)


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
