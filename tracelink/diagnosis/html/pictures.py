"""Drawings of the page: the cycle of a deadlock, and how far each rank is in each group."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby

from msgspec import Struct

from tracelink.diagnosis.model import Link, Stage, Standing
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, group_name, name_in_words, numbered, rank_list, shortened
from tracelink.show.markup import Child, Markup, element, framed, table

MOST_LABELLED = 6
"""Nodes of larger cycles have numbers only."""
MOST_NODES = 48
"""Larger cycles are listed and not drawn."""
BOX = 200, 66
CHARACTERS = 26
"""Characters of a line in a box."""
DOT = 13
GAP = 4
"""Space between an arrow and the node it leads to."""
MOST_RANKS_IN_TABLE = 32
MOST_RUNS = 4000
"""Runs of ranks with one standing that are drawn."""
PER_ROW = 64
CELL = 14
LABEL = 46
"""Width of the label of a row: the number of its first rank."""
CAPTION = "Last collective of each rank in each group"
MARKED = " (▲ culprit)"
MOST_ROWS = 200
MOST_NAMES = 8
Point = tuple[float, float]


# How far each rank is in each group.


def standings_section(standings: Sequence[Standing], culprits: Collection[int]) -> Child:
    """The picture, its legend, and the same as a table."""
    groups = standings_by_group(standings)
    if not groups:
        return element("p", "No dump names a group.")
    lines = lines_of(groups)
    drawn = [line for line in lines if not line.unused] or lines
    ranks = sorted({rank for line in drawn for rank in line.standings})
    small = len(ranks) <= MOST_RANKS_IN_TABLE
    picture = standings_matrix(drawn, ranks, culprits) if small else standings_maps(drawn)
    return [_legend(lines), picture, _standings_table(groups)]


class Mark(Enum):
    """The style class, sign and words of a standing: readable without colours."""

    NEVER = "never", "\N{MULTIPLICATION SIGN}", "never joined a collective of this group"
    BEHIND = "behind", "<", "finished an earlier collective and did not join the one that others are in"
    EARLIER = "earlier", "<…", "is in an earlier collective than others and has not finished it"
    WAITING = "waiting", "…", "joined and has not finished"
    FINISHED = "finished", "✓", "finished the last collective"
    UNUSED = "unused", "-", "no rank recorded a collective of this group"
    UNKNOWN = "unknown", "?", "unknown: no dump, or the dump does not show it"

    def __init__(self, style: str, sign: str, words: str) -> None:
        self.style = style
        self.sign = sign
        self.words = words


def mark_badge(mark: Mark) -> Markup:
    """The sign of a mark in its colour."""
    return element("span", mark.sign, class_=f"cell {mark.style}", aria_hidden="true")


def _legend(lines: Sequence[PictureLine]) -> Markup:
    used = {marked.mark for line in lines for marked in line.standings.values()}
    shown = [element("li", mark_badge(mark), " ", mark.words) for mark in Mark if mark in used]
    return element("ul", shown, class_="legend", aria_label="Signs")


class MarkedStanding(Struct, frozen=True):
    """A standing and its mark among the others of its group."""

    standing: Standing
    mark: Mark


def standings_by_group(standings: Sequence[Standing]) -> list[list[MarkedStanding]]:
    """The marked standings of each group, in the order of the standings."""
    return [_marked(group) for same in _by_name(standings) for group in _split_by_rank(same)]


def _by_name(standings: Sequence[Standing]) -> Iterator[list[Standing]]:
    for _, same in groupby(standings, key=lambda standing: (standing.group, standing.description)):
        yield list(same)


def _split_by_rank(standings: Sequence[Standing]) -> list[list[Standing]]:
    """Different groups can have the same name; a rank has one standing in each."""
    groups: list[list[Standing]] = [[]]
    seen: set[int] = set()
    for standing in standings:
        if not seen.isdisjoint(standing.ranks):
            groups.append([])
            seen = set()
        groups[-1].append(standing)
        seen.update(standing.ranks)
    return groups


def _marked(standings: Sequence[Standing]) -> list[MarkedStanding]:
    front = max(standing.sequence or 0 for standing in standings)
    used = any(standing.sequence is not None for standing in standings)
    return [
        MarkedStanding(standing, _mark(standing, front) if used else _unused(standing))
        for standing in standings
    ]


def _unused(standing: Standing) -> Mark:
    return Mark.UNUSED if standing.stage is Stage.NEVER_JOINED else Mark.UNKNOWN


def _mark(standing: Standing, front: int) -> Mark:
    behind = (standing.sequence or 0) < front
    return {
        Stage.NEVER_JOINED: Mark.NEVER,
        Stage.ENDING: Mark.FINISHED,
        Stage.WAITING: Mark.EARLIER if behind else Mark.WAITING,
        Stage.FINISHED: Mark.BEHIND if behind else Mark.FINISHED,
        Stage.UNKNOWN: Mark.UNKNOWN,
    }[standing.stage]


class PictureLine(Struct):
    """Groups of one description without a common rank: they share one line of a picture."""

    description: str
    groups: list[str]
    standings: dict[int, MarkedStanding]

    @property
    def unused(self) -> bool:
        """Whether no rank recorded a collective in any of its groups."""
        return all(marked.standing.sequence is None for marked in self.standings.values())


def lines_of(groups: Sequence[Sequence[MarkedStanding]]) -> list[PictureLine]:
    """As few lines as possible for all groups, those of one description together."""
    lines: dict[str, list[PictureLine]] = {}
    for standings in groups:
        standing = standings[0].standing
        own = {rank: marked for marked in standings for rank in marked.standing.ranks}
        same = lines.setdefault(standing.description, [])
        line = next((candidate for candidate in same if candidate.standings.keys().isdisjoint(own)), None)
        if line is None:
            line = PictureLine(standing.description, [], {})
            same.append(line)
        line.groups.append(standing.group)
        line.standings.update(own)
    return [line for same in lines.values() for line in same]


def line_name(line: PictureLine) -> str:
    """`tp (4 groups)`."""
    if len(line.groups) == 1:
        return group_name(line.groups[0], line.description).removeprefix("group ")
    return f"{name_in_words(line.description) or 'groups'} ({counted(len(line.groups), 'group')})"


def _in_words_of(marked: MarkedStanding, group: str | None) -> str:
    standing = marked.standing
    where = f"{group_name(group, standing.description)}: " if group is not None else ""
    last = "" if standing.sequence is None else f", {numbered(standing.operation, standing.sequence)}"
    return f"{where}{marked.mark.words}{last}"


# Few ranks: a table with a column for each rank.


def standings_matrix(lines: Sequence[PictureLine], ranks: Sequence[int], culprits: Collection[int]) -> Markup:
    """A column for each rank; a cell shows the sequence number of its last collective."""
    header: list[Child] = ["group"]
    header += [element("strong", rank, " ▲", title="culprit") if rank in culprits else rank for rank in ranks]
    rows = [[line_name(line), *(_cell(line.standings.get(rank), rank) for rank in ranks)] for line in lines]
    return element(
        "div",
        table(CAPTION + (MARKED if any(rank in culprits for rank in ranks) else ""), header, rows),
        class_="places",
    )


def _cell(marked: MarkedStanding | None, rank: int) -> Child:
    if marked is None:
        return None
    last = marked.standing.sequence
    return element(
        "span",
        f"{marked.mark.sign} {'' if last is None else last}".strip(),
        class_=f"cell {marked.mark.style}",
        title=f"rank {rank}, {_in_words_of(marked, marked.standing.group)}",
    )


# Many ranks: a drawing in which each rank is a small cell.

SIGNS = {
    Mark.NEVER: "M4 4L10 10M10 4L4 10",
    Mark.BEHIND: "M9 3L5 7L9 11",
    Mark.EARLIER: "M6 3L3 7L6 11M8 7h1.5M11 7h1.5",
    Mark.WAITING: "M3 7h2M6 7h2M9 7h2",
    Mark.FINISHED: "",
    Mark.UNUSED: "M4 7h6",
    Mark.UNKNOWN: "M7 5a2 2 0 1 0 .1 0",
}
"""The shape drawn into a cell, so that nothing depends on colour."""


def standings_maps(lines: Sequence[PictureLine]) -> Child:
    """A drawing for each line, up to a limit."""
    drawn: list[Child] = []
    runs = 0
    for number, line in enumerate(lines):
        parts = list(_runs(line))
        if runs + len(parts) > MOST_RUNS:
            rest = counted(len(lines) - number, "more line")
            drawn.append(element("p", f"{rest} are not drawn; the table below has all groups."))
            break
        runs += len(parts)
        drawn += [element("h3", line_name(line)), _one_sentence(line) or _drawing(line, parts)]
    return drawn


def _one_sentence(line: PictureLine) -> Markup | None:
    """A sentence instead of a drawing in which all cells would be equal."""
    descriptions = {_in_words_of(marked, None) for marked in line.standings.values()}
    if len(descriptions) > 1:
        return None
    return element("p", f"All {counted(len(line.standings), 'rank')}: ", descriptions)


def _runs(line: PictureLine) -> Iterator[list[tuple[int, MarkedStanding]]]:
    """Consecutive ranks of a row with the same standing, in any group of the line."""
    ranks = sorted(line.standings)

    def same(rank: int) -> tuple[int, int, Mark, int | None, str]:
        marked = line.standings[rank]
        standing = marked.standing
        return rank // PER_ROW, rank - order[rank], marked.mark, standing.sequence, standing.operation

    order = {rank: number for number, rank in enumerate(ranks)}
    for _, run in groupby(ranks, key=same):
        yield [(rank, line.standings[rank]) for rank in run]


def _drawing(line: PictureLine, runs: Sequence[Sequence[tuple[int, MarkedStanding]]]) -> Markup:
    rows = {row: number for number, row in enumerate(sorted({rank // PER_ROW for rank in line.standings}))}
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


def _run(run: Sequence[tuple[int, MarkedStanding]], row: int) -> Markup:
    (first, marked), (last, _) = run[0], run[-1]
    group = marked.standing.group if len({member.standing.group for _, member in run}) == 1 else None
    who = f"rank {first}" if first == last else f"ranks {first}-{last}"
    return element(
        "rect",
        element("title", f"{who}, {_in_words_of(marked, group)}"),
        x=LABEL + first % PER_ROW * CELL,
        y=row * CELL,
        width=(last - first + 1) * CELL,
        height=CELL,
        fill=f"url(#{marked.mark.style})",
    )


def _summary(line: PictureLine) -> str:
    """What the drawing shows, for screen readers."""
    by_look: dict[Mark, list[int]] = {}
    for rank, marked in line.standings.items():
        by_look.setdefault(marked.mark, []).append(rank)
    return "; ".join(f"ranks {rank_list(ranks)}: {mark.words}" for mark, ranks in by_look.items())


def patterns() -> list[Markup]:
    """A cell for each mark, repeated over its run; it is aligned with the cells of the drawing."""
    return [
        element(
            "pattern",
            element("rect", x=0.5, y=0.5, width=CELL - 1, height=CELL - 1, rx=2, class_=f"tile {mark.style}"),
            element("path", d=sign, class_=f"sign {mark.style}") if sign else None,
            id=mark.style,
            x=LABEL % CELL,
            width=CELL,
            height=CELL,
            patternUnits="userSpaceOnUse",
        )
        for mark, sign in SIGNS.items()
    ]


# The same as a table.


def _standings_table(groups: Sequence[Sequence[MarkedStanding]]) -> Child:
    """Groups whose ranks differ come first, each by itself; then those whose ranks are all at the same collective."""
    rows = [
        _row(_one_group(marked), marked, marked.standing.ranks)
        for standings in groups
        for marked in reversed(standings)
        if len(standings) > 1
    ]
    equal: dict[tuple[str, Mark, int | None, str], list[MarkedStanding]] = {}
    for marked, *others in groups:
        if not others:
            standing = marked.standing
            key = standing.description, marked.mark, standing.sequence, standing.operation
            equal.setdefault(key, []).append(marked)
    for same in equal.values():
        ranks = [rank for marked in same for rank in marked.standing.ranks]
        rows.append(_row(_group_names(same), same[0], ranks))
    hidden = len(rows) - MOST_ROWS
    more = element("p", f"{counted(hidden, 'more row')} are not shown.") if hidden > 0 else None
    header = "group", "", "stage", "last collective", "ranks"
    return [table("Ranks by group and by how far they got", header, rows[:MOST_ROWS]), more]


def _row(group: str, marked: MarkedStanding, ranks: Sequence[int]) -> tuple[Child, ...]:
    standing = marked.standing
    last = numbered(standing.operation, standing.sequence) if standing.sequence is not None else "none"
    return group, mark_badge(marked.mark), marked.mark.words, last, rank_list(ranks)


def _one_group(marked: MarkedStanding) -> str:
    return group_name(marked.standing.group, marked.standing.description).removeprefix("group ")


def _group_names(standings: Sequence[MarkedStanding]) -> str:
    if len(standings) == 1:
        return _one_group(standings[0])
    names = [marked.standing.group for marked in standings]
    if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        listed = rank_list([int(name) for name in names]).partition(", … ")[0]
        more = len(Numbers.of(map(int, names)).ranges) > listed.count(",") + 1
    else:
        listed, more = ", ".join(map(name_in_words, names[:MOST_NAMES])), len(names) > MOST_NAMES
    listed += f", … ({counted(len(names), 'group')})" if more else ""
    description = name_in_words(standings[0].standing.description)
    return f"{listed} ({description})" if description else listed


# The cycle of a deadlock: nodes are ranks in a collective.


def ring_drawing(cycle: Sequence[Link], descriptions: Mapping[str, str]) -> Markup | None:
    """The cycle as a drawing; None if it is too large."""
    if not 1 < len(cycle) <= MOST_NODES:
        return None
    labelled = len(cycle) <= MOST_LABELLED
    half = (BOX[0] / 2, BOX[1] / 2) if labelled else (DOT, DOT)
    middle, centres = _node_positions(len(cycle), half, labelled=labelled)
    nodes = [
        _node(
            number, link, group_name(link.group, descriptions.get(link.group, "")), centres[number], labelled
        )
        for number, link in enumerate(cycle)
    ]
    arrows = [_arrow(centres[start], centres[end], half) for start, end in _arrows(cycle)]
    return element(
        "svg",
        element(
            "title",
            "The cycle of the deadlock; an arrow leads from ranks that wait to the ranks they wait for.",
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
    """The links that the ranks of a link wait for."""
    awaited = set(cycle[number].waits_for)
    return [other for other, link in enumerate(cycle) if other != number and awaited & set(link.ranks)]


def _arrows(cycle: Sequence[Link]) -> list[tuple[int, int]]:
    return [(number, other) for number in range(len(cycle)) for other in followers(cycle, number)]


def _node_positions(count: int, half: Point, *, labelled: bool) -> tuple[Point, list[Point]]:
    """The centre of an ellipse and the nodes on it, clockwise from the left."""
    wide = max(170.0, 46.0 * count) if labelled else 6.5 * count
    high = 28.0 if count == 2 else (0.55 * wide if labelled else wide)
    middle = wide + half[0] + GAP, high + half[1] + GAP
    angles = [math.pi + 2 * math.pi * number / count for number in range(count)]
    return middle, [
        (middle[0] + wide * math.cos(angle), middle[1] + high * math.sin(angle)) for angle in angles
    ]


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
        element("text", shortened(line, CHARACTERS), x=f"{centre[0]:.1f}", y=f"{top + 20 + 19 * row:.1f}")
        for row, line in enumerate(lines)
    ]
    return element("g", title, box, texts)


def _arrow(start: Point, end: Point, half: Point) -> Markup:
    """A curve from the edge of one node to that of another; opposite curves do not overlap."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    bend = min(0.28 * length, 60.0)
    top = (start[0] + end[0]) / 2 + bend * down / length, (start[1] + end[1]) / 2 - bend * across / length
    begin, finish = _edge(start, top, half), _edge(end, top, half)
    path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{top[0]:.1f} {top[1]:.1f} {finish[0]:.1f} {finish[1]:.1f}"
    return element("path", d=path, class_="arrow", marker_end="url(#head)")


def _edge(centre: Point, towards: Point, half: Point) -> Point:
    """Where the line from the centre of a node leaves it."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    part = min(
        (half[0] + GAP) / abs(across) if across else math.inf,
        (half[1] + GAP) / abs(down) if down else math.inf,
    )
    return centre[0] + across * part, centre[1] + down * part


def arrow_head() -> Markup:
    """The head of all arrows."""
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
