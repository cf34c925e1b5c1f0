"""Tables of the page: they sort and filter where scripts run, and rows say how to see them in a timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracelink.model.results import ResultTable
from tracelink.show import html
from tracelink.show.document import Table
from tracelink.show.markup import Child, element, framed

MOST_ROWS = 300
"""Rows of a table."""

Command = Callable[[Any], str]
"""The command that shows the place of a row."""


def sortable(
    caption: str,
    table: ResultTable[Any],
    columns: Mapping[str, str],
    *,
    command: Command | None = None,
    most: int = MOST_ROWS,
) -> Child:
    """A table of some columns under these headers, without those that are empty in every row.

    Args:
        caption: What the rows are.
        table: The rows, in the order in which they are shown at first.
        columns: The header of each column; "" takes the name of the column.
        command: The command that shows a row in a timeline, if there is one.
        most: The number of rows that are shown.
    """
    headings = {name: heading for name, heading in columns.items() if heading}
    return html.table(
        Table(list(table), caption, columns=list(columns), headings=headings, place=command, most=most)
    )


def plain(caption: str, header: Sequence[str], rows: Sequence[Sequence[Child]]) -> Child:
    """A short table whose rows have no values to sort by; nothing without rows."""
    if not rows:
        return None
    head = element("tr", (element("th", name, scope="col") for name in header))
    body = (element("tr", (element("td", cell) for cell in row)) for row in rows)
    parts = element("caption", caption), element("thead", head), element("tbody", body)
    return framed(caption, element("table", parts))
