"""Ring, matrix of ranks, stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from tracelink.diagnosis.html.markup import Child, Markup, element, framed, table
from tracelink.diagnosis.model import Link, Stage, Standing
from tracelink.model.ranges import Numbers
from tracelink.text import counted, group_name, name_in_words, numbered, rank_list, shortened

# The ring of a deadlock, drawn: each node is ranks in a collective, each arrow means that they wait for others.


MOST_LABELLED = 6
"""Of larger rings the nodes are numbers only."""

MOST_NODES = 48
"""Larger rings are listed and not drawn."""

BOX = 200, 66
CHARACTERS = 26
"""That fit into a line of a box."""

DOT = 13
GAP = 4
"""Between an arrow and the node it leads to."""

Point = tuple[float, float]


def ring_drawing(cycle: Sequence[Link], descriptions: Mapping[str, str]) -> Markup | None:
    """The ring as a picture, or nothing where it is too large for one."""
    if not 1 < len(cycle) <= MOST_NODES:
        return None
    labelled = len(cycle) <= MOST_LABELLED
    half = (BOX[0] / 2, BOX[1] / 2) if labelled else (DOT, DOT)
    middle, centres = _places(len(cycle), half, labelled=labelled)
    nodes = [
        _node(
            number, link, group_name(link.group, descriptions.get(link.group, "")), centres[number], labelled
        )
        for number, link in enumerate(cycle)
    ]
    arrows = [_arrow(centres[start], centres[end], half) for start, end in _waits(cycle)]
    return element(
        "svg",
        element(
            "title", "The ring of the deadlock; an arrow leads from those who wait to those they wait for."
        ),
        arrows,
        nodes,
        class_="ring",
        role="img",
        viewBox=f"0 0 {2 * middle[0]:.0f} {2 * middle[1]:.0f}",
        width=f"{2 * middle[0]:.0f}",
        height=f"{2 * middle[1]:.0f}",
    )


def followers(cycle: Sequence[Link], number: int) -> list[int]:
    """The links whose ranks those of a link wait for."""
    awaited = set(cycle[number].waits_for)
    return [other for other, link in enumerate(cycle) if other != number and awaited & set(link.ranks)]


def _waits(cycle: Sequence[Link]) -> list[tuple[int, int]]:
    return [(number, other) for number in range(len(cycle)) for other in followers(cycle, number)]


def _places(count: int, half: Point, *, labelled: bool) -> tuple[Point, list[Point]]:
    """The middle of an ellipse and the nodes on it, clockwise from the left."""
    wide = max(170.0, 46.0 * count) if labelled else 6.5 * count
    high = 28.0 if count == 2 else (0.55 * wide if labelled else wide)
    middle = wide + half[0] + GAP, high + half[1] + GAP
    angles = [math.pi + 2 * math.pi * number / count for number in range(count)]
    return middle, [(middle[0] + wide * math.cos(one), middle[1] + high * math.sin(one)) for one in angles]


def _node(number: int, link: Link, group: str, centre: Point, labelled: bool) -> Markup:
    lines = [
        f"{number + 1}: rank{'s' if len(link.ranks) != 1 else ''} {rank_list(link.ranks)}",
        numbered(link.operation, link.sequence),
        group,
    ]
    title = element("title", ", ".join(lines))
    left, top = centre[0] - BOX[0] / 2, centre[1] - BOX[1] / 2
    if not labelled:
        dot = element("circle", cx=f"{centre[0]:.1f}", cy=f"{centre[1]:.1f}", r=DOT)
        label = element("text", number + 1, x=f"{centre[0]:.1f}", y=f"{centre[1] + 4:.1f}")
        return element("g", title, dot, label)
    box = element("rect", x=f"{left:.1f}", y=f"{top:.1f}", width=BOX[0], height=BOX[1], rx=6)
    texts = [
        element("text", shortened(line, CHARACTERS), x=f"{centre[0]:.1f}", y=f"{top + 20 + 19 * place:.1f}")
        for place, line in enumerate(lines)
    ]
    return element("g", title, box, texts)


def _arrow(start: Point, end: Point, half: Point) -> Markup:
    """A bow from the edge of one node to that of another, so that those there and back lie apart."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    bend = min(0.28 * length, 60.0)
    top = (start[0] + end[0]) / 2 + bend * down / length, (start[1] + end[1]) / 2 - bend * across / length
    begin, finish = _edge(start, top, half), _edge(end, top, half)
    path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{top[0]:.1f} {top[1]:.1f} {finish[0]:.1f} {finish[1]:.1f}"
    return element("path", d=path, class_="arrow", marker_end="url(#head)")


def _edge(centre: Point, towards: Point, half: Point) -> Point:
    """Where the way from the middle of a node leaves it."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    part = min(
        (half[0] + GAP) / abs(across) if across else math.inf,
        (half[1] + GAP) / abs(down) if down else math.inf,
    )
    return centre[0] + across * part, centre[1] + down * part


def arrow_head() -> Markup:
    """What every arrow ends in."""
    shape = element("path", d="M0 0L10 5L0 10Z", class_="head")
    return element(
        "marker",
        shape,
        id="head",
        viewBox="0 0 10 10",
        refX=9,
        refY=5,
        markerWidth=8,
        markerHeight=8,
        orient="auto-start-reverse",
    )


# How far a rank is in a group, as it is shown: a sign, a colour and a word, so that none stands alone.


class Look(Enum):
    """The class of the style sheet, the sign and the words."""

    NEVER = "never", "\N{MULTIPLICATION SIGN}", "never joined a collective there"
    BEHIND = "behind", "<", "finished an earlier one and did not join what others are in"
    EARLIER = "earlier", "<…", "is in an earlier one than others and has not finished"
    WAITING = "waiting", "…", "joined and has not finished"
    FINISHED = "finished", "✓", "finished the last"
    UNUSED = "unused", "-", "nobody recorded a collective there"
    UNKNOWN = "unknown", "?", "unknown: no dump, or the dump does not tell"

    def __init__(self, style: str, sign: str, words: str) -> None:
        self.style = style
        self.sign = sign
        self.words = words


@dataclass(frozen=True, slots=True)
class Place:
    """A standing and how it looks beside the others of its group."""

    standing: Standing
    look: Look


@dataclass(slots=True)
class Line:
    """Groups of one description that have no rank in common: what fits into one line of a picture."""

    description: str
    groups: list[str]
    places: dict[int, Place]

    @property
    def unused(self) -> bool:
        """Whether nobody has recorded a collective in any of its groups."""
        return all(place.standing.sequence is None for place in self.places.values())


def places_by_group(standings: Sequence[Standing]) -> list[list[Place]]:
    """The places of each group, in the order of the standings."""
    return [_places_stages(group) for same in _same_names(standings) for group in _apart(same)]


def _same_names(standings: Sequence[Standing]) -> Iterator[list[Standing]]:
    for _, same in groupby(standings, key=lambda one: (one.group, one.description)):
        yield list(same)


def _apart(standings: Sequence[Standing]) -> list[list[Standing]]:
    """Different groups can have one name; no rank stands at two places in one of them."""
    groups: list[list[Standing]] = [[]]
    seen: set[int] = set()
    for one in standings:
        if not seen.isdisjoint(one.ranks):
            groups.append([])
            seen = set()
        groups[-1].append(one)
        seen.update(one.ranks)
    return groups


def _places_stages(standings: Sequence[Standing]) -> list[Place]:
    front = max(one.sequence or 0 for one in standings)
    used = any(one.sequence is not None for one in standings)
    return [Place(one, _look(one, front) if used else _unused(one)) for one in standings]


def _unused(standing: Standing) -> Look:
    return Look.UNUSED if standing.stage is Stage.NEVER_JOINED else Look.UNKNOWN


def _look(standing: Standing, front: int) -> Look:
    behind = (standing.sequence or 0) < front
    return {
        Stage.NEVER_JOINED: Look.NEVER,
        Stage.WAITING: Look.EARLIER if behind else Look.WAITING,
        Stage.FINISHED: Look.BEHIND if behind else Look.FINISHED,
        Stage.UNKNOWN: Look.UNKNOWN,
    }[standing.stage]


def lines_of(groups: Sequence[Sequence[Place]]) -> list[Line]:
    """As few lines as hold all groups, those of one description together."""
    lines: dict[str, list[Line]] = {}
    for places in groups:
        standing = places[0].standing
        own = {rank: place for place in places for rank in place.standing.ranks}
        same = lines.setdefault(standing.description, [])
        line = next((one for one in same if one.places.keys().isdisjoint(own)), None)
        if line is None:
            line = Line(standing.description, [], {})
            same.append(line)
        line.groups.append(standing.group)
        line.places.update(own)
    return [line for same in lines.values() for line in same]


# A matrix of groups and ranks: a table where ranks are few, else a drawing in which each rank is a small cell.


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


# Who is where: each rank in each group, as a picture and in words.


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
