"""The collectives around a problem as a table of ranks and collectives, in the order in which they began."""

from __future__ import annotations

from tracelink.analysis.wording import duration
from tracelink.communications import UNKNOWN
from tracelink.converters.html_report.markup import Child, Markup, clipped, element
from tracelink.converters.html_report.recent import Column, Recent, unfinished
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import counted, group_name, moment, numbered, operation_name
from tracelink.events import NO_TIME
from tracelink.journal import Journal

HUES = 8
"""Colours of groups; more groups share them."""

LONGEST_HEADING = 24

SIGNS = {
    "joined": ("✓", "joined and finished"),
    "waiting": ("…", "joined and has not finished"),
    "differs": ("≠", "does something else there"),
    "absent": ("\N{MULTIPLICATION SIGN}", "is not in its dump"),
    "unknown": ("?", "its dump does not reach there"),
}


def recent_section(recent: Recent, journal: Journal, present: int) -> Child:
    """The table, its legend and what it leaves out."""
    if not recent.columns:
        return element("p", "No entry says to which collective it belongs.")
    numbers = list(dict.fromkeys(column.group for column in recent.columns))
    hues = {group: place % HUES for place, group in enumerate(numbers)}
    header = ["rank", *(_heading(column, journal, hues[column.group]) for column in recent.columns)]
    rows = [
        [f"{rank}", *(_cell(column, rank, journal, hues[column.group]) for column in recent.columns)]
        for rank in recent.ranks
    ]
    whole = table("In the order in which they began; hold the pointer over a cell for times", header, rows)
    return [_legend(), element("div", whole, class_="recent"), element("p", _left_out(recent, present))]


def _legend() -> Markup:
    shown = [
        element("li", element("span", sign, class_=f"cell {style}", aria_hidden="true"), " ", words)
        for style, (sign, words) in SIGNS.items()
    ]
    shown.append(element("li", "empty: not a member of the group"))
    return element("ul", shown, class_="legend", aria_label="Signs")


def _left_out(recent: Recent, present: int) -> str:
    said = [f"{len(recent.ranks)} of {counted(present, 'rank')}"]
    said += [f"{counted(recent.earlier, 'earlier collective')} not shown"] if recent.earlier else []
    said += [f"{counted(recent.later, 'later one')} not shown"] if recent.later else []
    return "; ".join(said) + "."


def _heading(column: Column, journal: Journal, hue: int) -> Markup:
    group = journal.groups[column.group]
    name = group_name(group.name, group.description)
    began = "" if column.began == NO_TIME else f", began {moment(column.began)}"
    label = f"{operation_name(column.operation)} #{column.sequence}"
    return element(
        "span",
        element("span", _short(group.description or group.name), class_=f"hue hue{hue}"),
        " ",
        clipped(label, LONGEST_HEADING),
        class_="upright",
        title=f"{numbered(column.operation, column.sequence)} of {name}{began}",
    )


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}…"


def _cell(column: Column, rank: int, journal: Journal, hue: int) -> Child:
    row = column.rows.get(rank)
    if row is None and rank not in column.members:
        return None
    style = _style(column, rank, row, journal)
    sign, words = SIGNS[style]
    told = f"rank {rank}: {words}{_when(column, row, journal)}"
    return element("span", sign, class_=f"cell {style} hue{hue}", title=told)


def _style(column: Column, rank: int, row: int | None, journal: Journal) -> str:
    if row is None:
        return "unknown" if _beyond(column, rank, journal) else "absent"
    if column.source == UNKNOWN and journal.operation(row) != column.operation:
        return "differs"
    return "waiting" if unfinished(journal, row) else "joined"


def _beyond(column: Column, rank: int, journal: Journal) -> bool:
    """Whether the collective lies before what a dump still holds, or behind where it breaks off."""
    recording = journal.recordings[rank]
    place = journal.ranks.tolist().index(rank)
    begin, end = journal.bounds[place : place + 2].tolist()
    if recording.broken_off or begin == end:
        return True
    return bool(recording.overwritten and column.began < journal.records.created[begin])


def _when(column: Column, row: int | None, journal: Journal) -> str:
    if row is None:
        return ""
    created = int(journal.records.created[row])
    does = f", {operation_name(journal.operation(row))}" if journal.operation(row) != column.operation else ""
    if created == NO_TIME or column.began == NO_TIME:
        return does
    return f"{does}, +{duration(created - column.began)} after the first"
