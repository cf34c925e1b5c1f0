"""Tables as CSV: unknown values are empty, and no text is a formula for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from tracelink._model.errors import printable
from tracelink._model.results import ResultTable, values_of
from tracelink._model.selection import Numbers

FORMULA = re.compile(r"[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""The first character of a text that a spreadsheet would calculate; the last four are full-width."""

NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def draw(table: ResultTable[Any]) -> str:
    """Returns a table with a line for the names of its columns."""
    columns = {name: values_of(column) for name, column in table.flat.items()}
    return csv_text([list(columns), *zip(*columns.values(), strict=True)])


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Returns the lines of rows, with their ends."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        if all(isinstance(item, int) for item in value):
            return _ranks(tuple(value))
        return _text("; ".join(map(str, value)))
    return _text(value) if isinstance(value, str) else value


@cache
def _text(text: str) -> str:
    """A text without control characters, after an apostrophe if a spreadsheet would calculate it."""
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        return "'" + printable(text)
    return printable(text)


@cache
def _ranks(numbers: tuple[int, ...]) -> str:
    return str(Numbers.of(numbers))
