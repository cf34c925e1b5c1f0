"""The collectives around a problem as a table of ranks and collectives, in the order of the program."""

from __future__ import annotations

from collections.abc import Iterable

from tracelink.analysis.wording import duration
from tracelink.communications import UNKNOWN
from tracelink.converters.html_report.markup import Child, Markup, element
from tracelink.converters.html_report.recent import Cell, Column, Part, Recent
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import (
    counted,
    group_name,
    moment,
    name_in_words,
    numbered,
    shortened,
)
from tracelink.events import NO_TIME
from tracelink.ranges import Numbers

HUES = 8
"""Colours of groups; more groups share them."""

LONGEST_GROUP = 14
LONGEST_OPERATION = 20
MOST_GROUPS = 8
FEW = 8
"""Culprits that are named where they are not shown."""


def recent_section(recent: Recent, present: int, culprits: Iterable[int]) -> Child:
    """The table, its legend and what it leaves out."""
    if not recent.columns:
        return element("p", "No rank of which there is a dump has an entry.")
    names = list(dict.fromkeys(_kinds(column) for column in recent.columns))
    hues = {name: place % HUES for place, name in enumerate(names)}
    header: list[Child] = ["rank", *(_heading(column, hues[_kinds(column)]) for column in recent.columns)]
    rows: list[list[Child]] = [
        [f"{rank}", *(_cell(column, rank, hues[_kinds(column)]) for column in recent.columns)]
        for rank in recent.ranks
    ]
    caption = "In the order of the program, left to right; hold the pointer over a cell for times"
    whole = element("div", table(caption, header, rows), class_="recent")
    return [_legend(recent), whole, element("p", _left_out(recent, present, culprits), class_="aside")]


def _legend(recent: Recent) -> Markup:
    used = {cell.part for column in recent.columns for cell in column.cells.values()}
    shown = [
        element(
            "li", element("span", part.sign, class_=f"cell {part.style}", aria_hidden="true"), " ", part.words
        )
        for part in Part
        if part in used
    ]
    shown.append(element("li", "empty: has no part in it"))
    return element("ul", shown, class_="legend", aria_label="Signs")


def _left_out(recent: Recent, present: int, culprits: Iterable[int]) -> str:
    absent = sorted(set(culprits) - set(recent.ranks))
    said = [f"{len(recent.ranks)} of {counted(present, 'dump')}"]
    said += [f"not among them: {Numbers.of(absent).called('rank')}"] if 0 < len(absent) <= FEW else []
    said += [f"{counted(recent.earlier, 'earlier column')} not shown"] if recent.earlier else []
    said += [f"{counted(recent.later, 'later column')} not shown"] if recent.later else []
    return "; ".join(said) + "."


def _kinds(column: Column) -> str:
    """What its groups are for."""
    name, description = column.groups[0] if column.groups else ("", "")
    return description or name


def _heading(column: Column, hue: int) -> Markup:
    group = element("span", shortened(_kinds(column), LONGEST_GROUP), class_=f"hue hue{hue}")
    if column.ends:
        what = "message " + " to ".join("?" if end == UNKNOWN else f"{end}" for end in column.ends)
    else:
        what = shortened(numbered(column.operation, None), LONGEST_OPERATION)
        what += "" if column.sequence is None else f" #{column.sequence}"
    return element("span", group, " ", what, class_="upright", title=_told(column))


def _told(column: Column) -> str:
    began = "" if column.began == NO_TIME else f", began {moment(column.began)}"
    return f"{numbered(column.operation, column.sequence)} of {_groups(column)}{began}"


def _groups(column: Column) -> str:
    if len(column.groups) == 1:
        return group_name(*column.groups[0])
    names = ", ".join(name_in_words(name) for name, _ in column.groups[:MOST_GROUPS])
    more = ", …" if len(column.groups) > MOST_GROUPS else ""
    return f"groups {names}{more}" if names else "an unknown group"


def _cell(column: Column, rank: int, hue: int) -> Child:
    cell = column.cells.get(rank)
    if cell is None:
        return None
    style = f"cell {cell.part.style} hue{hue}"
    return element("span", cell.part.sign, class_=style, title=f"rank {rank}: {_when(column, cell)}")


def _when(column: Column, cell: Cell) -> str:
    told = f"{cell.part.words}{f', {numbered(cell.operation, None)}' if cell.operation else ''}"
    if NO_TIME in (cell.created, column.began):
        return told
    return f"{told}, {duration(cell.created - column.began)} after the first"
