"""Tables of results for interpreters and notebooks: as text, as HTML, and as charts of their columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size
from typing import Any

from tracelink._model.errors import UsageError, choices, printable
from tracelink._model.fields import Unit, fields_of
from tracelink._model.results import ResultTable, values_of
from tracelink._model.text import counted, number
from tracelink._show.charts import MOST_SERIES, Plot, Series, bars, lines, points
from tracelink._show.document import Table
from tracelink._show.html import table as drawn
from tracelink._show.markup import element, inner
from tracelink._show.terminal import Page

ROWS = 40
"""Rows that an interpreter and a notebook show."""
WIDTH, SHORTEST = 160, 24
"""Characters and lines of a terminal of unknown size."""
MOST_STEPS = 24
"""Rows of steps that are drawn as bars; more are lines."""


# As text, and for notebooks


def text_of(table: ResultTable[Any]) -> str:
    """The first rows, in the columns that fit into a line."""
    page = Page(get_terminal_size((WIDTH, SHORTEST)).columns)
    page.blocks([_block(table)])
    lines = [f"<{_heading(table)}", *page.text.splitlines(), *_hidden(table)]
    return "\n".join(lines) + ">"


def html_of(table: ResultTable[Any]) -> str:
    """The same as a table of HTML."""
    return inner(element("div", _heading(table), drawn(_block(table), live=False), *_hidden(table)))


def _heading(table: ResultTable[Any]) -> str:
    return printable(f"{table.title or table.row_type.__name__}: {counted(len(table), 'row')}")


def _hidden(table: ResultTable[Any]) -> list[str]:
    hidden = len(table) - ROWS
    return [f"\N{HORIZONTAL ELLIPSIS} {number(hidden)} more"] if hidden > 0 else []


def _block(table: ResultTable[Any]) -> Table:
    """Durations are in one unit if those that are plotted are parts of others."""
    durations = [name for name, unit in table.units.items() if unit == Unit.DURATION]
    shown = [name for name in table.flat if not fields_of(table.row_type)[name].shown.hidden]
    together = durations if set(durations) & set(table.plotted) else ()
    return Table(list(table[:ROWS]), columns=shown, together=together, from_right=True)


# As charts


def chart_of(table: ResultTable[Any], y: Sequence[str], x: str, by: str, kind: str) -> Plot:
    """The chart of some columns of a table; see `ResultTable.plot`."""
    heights = list(y or table.plotted or _measures(table)[:1])
    units = {table.units.get(name, "") for name in heights}
    if not heights or any(table[name].dtype.kind not in "if" for name in heights):
        raise UsageError("no column of numbers to plot", advice=choices("", _measures(table)))
    if len(units) > 1:
        raise UsageError(
            f"columns of different units: {', '.join(sorted(units))}", advice="Plot those of one unit."
        )
    (unit,) = units
    kind = kind or _kind(table, x, unit)
    title = f"{table.title or table.row_type.__name__}: {', '.join(_words(table, name) for name in heights)}"
    if kind == "bars":
        parts = {_words(table, name): values_of(table[name]) for name in heights}
        return bars(title, _labels(table, x), parts, unit)
    x = x or next((name for name in table.columns if _counts_up(table, name)), "")
    texts = [name for name, column in table.flat.items() if column.dtype == object or name == "rank"]
    joined = kind in ("lines", "levels")
    keys = [by] if by else [name for name in texts if name != x] if joined else []
    series = list(_series(table, heights, x, keys))
    if kind == "levels":
        series = [_held(one) for one in series]
    draw = lines if joined else points
    upward = _words(table, heights[0]) if len(heights) == 1 else ""
    return draw(title, series, (_words(table, x) if x else "", table.units.get(x, "")), (upward, unit))


def _held(series: Series) -> Series:
    """The same where each value holds until the next one."""
    x, y = (
        [value for value in values for _ in range(2)] for values in (series.x, series.y)
    )  # each point twice
    return Series(series.name, x[1:], y[:-1])


def _kind(table: ResultTable[Any], x: str, unit: str) -> str:
    if x and table[x].dtype.kind in "if" and not _is_name(table, x) and table.units.get(x) != Unit.TIME:
        return "points"
    long = len(table) > MOST_STEPS and len(set(table.columns.get("rank", ()))) <= MOST_SERIES
    along = [x] if x else list(table.columns) if long else []
    if not any(_counts_up(table, name) for name in along):
        return "bars"
    return "levels" if unit == Unit.BYTES else "lines"


def _counts_up(table: ResultTable[Any], name: str) -> bool:
    """Whether a column is a time, or counts up with it."""
    return name == "step" or table.units.get(name) == Unit.TIME


def _measures(table: ResultTable[Any]) -> list[str]:
    """The columns of numbers that are neither ids nor times, those with units first."""
    named = [name for name, column in table.columns.items() if column.dtype.kind in "if"]
    measures = [name for name in named if not _is_name(table, name) and table.units.get(name) != Unit.TIME]
    return sorted(measures, key=lambda name: name not in table.units)


def _labels(table: ResultTable[Any], x: str) -> list[str]:
    """What the rows are called: by one column, by their first text, or by their ids."""
    texts = [name for name, column in table.flat.items() if column.dtype == object]
    names = [x] if x else texts[:1] or [name for name in table.columns if _is_name(table, name)]
    rows = zip(*(values_of(table[name]) for name in names), strict=True)
    return [
        ", ".join(
            _key(table, name, value) for name, value in zip(names, row, strict=True) if value is not None
        )
        for row in (rows if names else [()] * len(table))
    ]


def _series(table: ResultTable[Any], heights: Sequence[str], x: str, keys: Sequence[str]) -> Iterator[Series]:
    """A series for each column of heights, and for each combination of the values of the key columns."""
    rows_of: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    columns = [values_of(table[name]) for name in keys]
    for row, values in enumerate(zip(*columns, strict=True) if keys else [()] * len(table)):
        rows_of[values].append(row)
    across = values_of(table[x]) if x else list(range(len(table)))
    for name in heights:
        upward = values_of(table[name])
        for values, rows in rows_of.items():
            words = [
                _key(table, key, value) for key, value in zip(keys, values, strict=True) if value is not None
            ]
            words += [_words(table, name)] if len(heights) > 1 or not keys else []
            yield Series(", ".join(words), [across[row] for row in rows], [upward[row] for row in rows])


def _key(table: ResultTable[Any], name: str, value: object) -> str:
    """`rank 3` for a number, a text as it is."""
    return f"{name} {value}" if _is_name(table, name) else str(value)


def _is_name(table: ResultTable[Any], name: str) -> bool:
    return fields_of(table.row_type)[name].unit is Unit.NAME


def _words(table: ResultTable[Any], name: str) -> str:
    """`exposed communication` for the column `exposed_communication_ns`."""
    return fields_of(table.row_type)[name].words
