"""A matrix of groups and ranks: a table where ranks are few, else a drawing in which each rank is a small cell."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from tracelink.converters.html_report.markup import Child, Markup, element
from tracelink.converters.html_report.stages import Line, Look, Place
from tracelink.converters.html_report.tables import framed, table
from tracelink.converters.html_report.texts import counted, group_name, name_in_words, numbered, rank_list

MOST_RANKS_IN_TABLE = 32
MOST_RUNS = 4000
"""Runs of ranks at one place that are drawn."""

PER_ROW = 64
CELL = 14
LABEL = 46
"""Room for the number of the first rank of a row."""

CAPTION = "Last collective of each rank in each group"
MARKED = " (▲ culprit)"

SIGNS = {
    Look.NEVER: "M4 4L10 10M10 4L4 10",
    Look.BEHIND: "M9 3L5 7L9 11",
    Look.EARLIER: "M6 3L3 7L6 11M8 7h1.5M11 7h1.5",
    Look.WAITING: "M3 7h2M6 7h2M9 7h2",
    Look.FINISHED: "",
    Look.UNUSED: "M4 7h6",
    Look.UNKNOWN: "M7 5a2 2 0 1 0 .1 0",
}
"""What is drawn into a cell, so that nothing depends on its colour."""


def places_table(lines: Sequence[Line], ranks: Sequence[int], culprits: Collection[int]) -> Markup:
    """One column for each rank; a cell says the number of the rank's last collective."""
    header: list[Child] = ["group"]
    header += [element("strong", rank, " ▲", title="culprit") if rank in culprits else rank for rank in ranks]
    rows = [[line_name(line), *(_cell(line.places.get(rank), rank) for rank in ranks)] for line in lines]
    return element(
        "div",
        table(CAPTION + (MARKED if any(rank in culprits for rank in ranks) else ""), header, rows),
        class_="places",
    )


def line_name(line: Line) -> str:
    """`tp (4 groups)`."""
    if len(line.groups) == 1:
        return group_name(line.groups[0], line.description).removeprefix("group ")
    return f"{name_in_words(line.description) or 'groups'} ({counted(len(line.groups), 'group')})"


def _cell(place: Place | None, rank: int) -> Child:
    if place is None:
        return None
    last = place.standing.sequence
    return element(
        "span",
        f"{place.look.sign} {'' if last is None else last}".strip(),
        class_=f"cell {place.look.style}",
        title=f"rank {rank}, {_told(place, place.standing.group)}",
    )


def _told(place: Place, group: str | None) -> str:
    one = place.standing
    where = f"{group_name(group, one.description)}: " if group is not None else ""
    last = "" if one.sequence is None else f", {numbered(one.operation, one.sequence)}"
    return f"{where}{place.look.words}{last}"


def map_of(lines: Sequence[Line]) -> Child:
    """A drawing for each line; those that no longer fit are counted."""
    drawn: list[Child] = []
    runs = 0
    for number, line in enumerate(lines):
        parts = list(_runs(line))
        if runs + len(parts) > MOST_RUNS:
            rest = counted(len(lines) - number, "more line")
            drawn.append(element("p", f"{rest} of the picture are left out; the table below has all groups."))
            break
        runs += len(parts)
        drawn += [element("h3", line_name(line)), _uniform(line) or _drawing(line, parts)]
    return drawn


def _uniform(line: Line) -> Markup | None:
    """A sentence in place of a drawing in which all cells would be alike."""
    told = {_told(place, None) for place in line.places.values()}
    if len(told) > 1:
        return None
    return element("p", f"All {counted(len(line.places), 'rank')}: ", told)


def _runs(line: Line) -> Iterator[list[tuple[int, Place]]]:
    """Neighbours in one row of the drawing that are at the same place, in whatever group of the line."""
    ranks = sorted(line.places)

    def same(rank: int) -> tuple[int, int, Look, int | None, str]:
        place = line.places[rank]
        one = place.standing
        return rank // PER_ROW, rank - order[rank], place.look, one.sequence, one.operation

    order = {rank: number for number, rank in enumerate(ranks)}
    for _, run in groupby(ranks, key=same):
        yield [(rank, line.places[rank]) for rank in run]


def _drawing(line: Line, runs: Sequence[Sequence[tuple[int, Place]]]) -> Markup:
    rows = {row: number for number, row in enumerate(sorted({rank // PER_ROW for rank in line.places}))}
    labels = [
        element("text", row * PER_ROW, x=LABEL - 6, y=number * CELL + CELL - 3)
        for row, number in rows.items()
    ]
    width, height = LABEL + PER_ROW * CELL, len(rows) * CELL
    drawing = element(
        "svg",
        labels,
        (_run(run, rows[run[0][0] // PER_ROW]) for run in runs),
        class_="map",
        role="img",
        aria_label=f"{line_name(line)}: {_summary(line)}",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
    )
    return framed(line_name(line), drawing)


def _run(run: Sequence[tuple[int, Place]], row: int) -> Markup:
    (first, place), (last, _) = run[0], run[-1]
    group = place.standing.group if len({one.standing.group for _, one in run}) == 1 else None
    who = f"rank {first}" if first == last else f"ranks {first}-{last}"
    return element(
        "rect",
        element("title", f"{who}, {_told(place, group)}"),
        x=LABEL + first % PER_ROW * CELL,
        y=row * CELL,
        width=(last - first + 1) * CELL,
        height=CELL,
        fill=f"url(#{place.look.style})",
    )


def _summary(line: Line) -> str:
    """What the drawing shows, for those who cannot see it."""
    by_look: dict[Look, list[int]] = {}
    for rank, place in line.places.items():
        by_look.setdefault(place.look, []).append(rank)
    return "; ".join(f"ranks {rank_list(ranks)}: {look.words}" for look, ranks in by_look.items())


def patterns() -> list[Markup]:
    """A cell of each look, repeated over its run; it begins where the drawing's cells do."""
    return [
        element(
            "pattern",
            element("rect", x=0.5, y=0.5, width=CELL - 1, height=CELL - 1, rx=2, class_=f"tile {look.style}"),
            element("path", d=sign, class_=f"sign {look.style}") if sign else None,
            id=look.style,
            x=LABEL % CELL,
            width=CELL,
            height=CELL,
            patternUnits="userSpaceOnUse",
        )
        for look, sign in SIGNS.items()
    ]
