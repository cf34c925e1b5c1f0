"""Who is where: each rank in each group, as a picture and in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracelink.converters.html_report.markup import Child, Markup, element
from tracelink.converters.html_report.picture import MOST_RANKS_IN_TABLE, map_of, places_table
from tracelink.converters.html_report.stages import Line, Look, Place, lines_of, places_by_group
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import (
    counted,
    group_name,
    name_in_words,
    numbered,
    rank_list,
)
from tracelink.diagnosis import Standing
from tracelink.ranges import Numbers

MOST_ROWS = 200
MOST_NAMES = 8


def standings_section(standings: Sequence[Standing], culprits: Collection[int]) -> Child:
    """The picture, its legend, and the same in words."""
    groups = places_by_group(standings)
    if not groups:
        return element("p", "No dump names a group.")
    lines = lines_of(groups)
    drawn = [line for line in lines if not line.unused] or lines
    ranks = sorted({rank for line in drawn for rank in line.places})
    small = len(ranks) <= MOST_RANKS_IN_TABLE
    picture = places_table(drawn, ranks, culprits) if small else map_of(drawn)
    return [_legend(lines), picture, _in_words(groups)]


def badge(look: Look) -> Markup:
    """The sign of a stage in its colour."""
    return element("span", look.sign, class_=f"cell {look.style}", aria_hidden="true")


def _legend(lines: Sequence[Line]) -> Markup:
    used = {place.look for line in lines for place in line.places.values()}
    shown = [element("li", badge(look), " ", look.words) for look in Look if look in used]
    return element("ul", shown, class_="legend", aria_label="Signs")


def _in_words(groups: Sequence[Sequence[Place]]) -> Child:
    """Groups whose ranks are apart first, each by itself; then those whose ranks are all at the same place."""
    apart = [places for places in groups if len(places) > 1]
    rows = [
        _row(_group(place), place, place.standing.ranks) for places in apart for place in reversed(places)
    ]
    alike: dict[tuple[str, Look, int | None, str], list[Place]] = {}
    for place, *others in groups:
        if not others:
            one = place.standing
            alike.setdefault((one.description, place.look, one.sequence, one.operation), []).append(place)
    rows += [
        _row(_groups(same), same[0], [rank for place in same for rank in place.standing.ranks])
        for same in alike.values()
    ]
    hidden = len(rows) - MOST_ROWS
    more = element("p", f"{counted(hidden, 'more row')} are not shown.") if hidden > 0 else None
    header = "group", "", "stage", "last collective", "ranks"
    return [table("Ranks by group and by how far they are", header, rows[:MOST_ROWS]), more]


def _row(group: str, place: Place, ranks: Sequence[int]) -> tuple[Child, ...]:
    one = place.standing
    last = numbered(one.operation, one.sequence) if one.sequence is not None else "none"
    return group, badge(place.look), place.look.words, last, rank_list(ranks)


def _group(place: Place) -> str:
    return group_name(place.standing.group, place.standing.description).removeprefix("group ")


def _groups(places: Sequence[Place]) -> str:
    if len(places) == 1:
        return _group(places[0])
    names = [place.standing.group for place in places]
    if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        listed = rank_list([int(name) for name in names]).partition(", … ")[0]
        more = len(Numbers.of(map(int, names)).ranges) > listed.count(",") + 1
    else:
        listed, more = ", ".join(map(name_in_words, names[:MOST_NAMES])), len(names) > MOST_NAMES
    listed += f", … ({counted(len(names), 'group')})" if more else ""
    description = name_in_words(places[0].standing.description)
    return f"{listed} ({description})" if description else listed
