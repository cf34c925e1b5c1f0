"""Tables of the page: they sort and filter where scripts run, and rows say how to see them in a timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracelink.model.markup import Child, Markup, element, framed
from tracelink.model.results import ResultTable, column_text, values_of
from tracelink.pages.page import left_out

MOST_ROWS = 300
"""Rows of a table."""
WORTH_FILTERING = 12
"""Rows from which a table can be filtered."""

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
    if not len(table):
        return None
    shown = table[:most]
    texts = {name: column_text(name, shown[name], shown.units.get(name, ""), 0) for name in columns}
    kept = [name for name in columns if any(text for text in texts[name].cells)]
    header = [_header(columns[name] or texts[name].header, texts[name].header) for name in kept]
    values = {name: values_of(shown[name]) for name in kept}
    rows = []
    for number, row in enumerate(shown):
        cells = [
            _cell(texts[name].cells[number], values[name][number], right=texts[name].right) for name in kept
        ]
        if command is not None:
            cells.append(element("td", _place(command(row))))
        rows.append(element("tr", cells))
    if command is not None:
        header.append(element("th", "timeline", scope="col"))
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", header)),
        element("tbody", rows),
        class_="sortable",
    )
    return [
        _filter(caption) if len(rows) >= WORTH_FILTERING else None,
        framed(caption, whole),
        left_out(table, most, "more row"),
    ]


def _header(name: str, text: str) -> Markup:
    """The header with the unit in which the column is shown."""
    unit = text.partition("(")[2].rstrip(")")
    label = f"{name} ({unit})" if unit and "(" not in name else name
    return element("th", element("button", label.replace("_", " "), type="button"), scope="col")


def _cell(text: str, value: Any, *, right: bool) -> Markup:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return element("td", text, class_="number" if right else None, data_value=number)


def _place(command: str) -> Child:
    return element("button", "show", type="button", class_="place", data_command=command) if command else None


def _filter(caption: str) -> Markup:
    """A field that a script shows and that hides rows without its words."""
    return element(
        "label",
        "Filter ",
        element("input", type="search", class_="filter", aria_label=f"Filter: {caption}"),
        class_="filtering",
        hidden="",
    )


def plain(caption: str, header: Sequence[str], rows: Sequence[Sequence[Child]]) -> Child:
    """A short table whose rows have no values to sort by; nothing without rows."""
    if not rows:
        return None
    head = element("tr", (element("th", name, scope="col") for name in header))
    body = (element("tr", (element("td", cell) for cell in row)) for row in rows)
    parts = element("caption", caption), element("thead", head), element("tbody", body)
    return framed(caption, element("table", parts))
