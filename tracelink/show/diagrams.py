"""SVG diagrams in the style of charts: rings of nodes with arrows, and grids of cells with signs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from enum import Enum, StrEnum
from typing import Self

from msgspec import Struct

from tracelink.model.text import shortened
from tracelink.show.charts import COLORS, LETTER, TITLE, Plot, drawing, text_at
from tracelink.show.markup import Child, Markup, element

Point = tuple[float, float]

# Rings: nodes in a circle, and arrows between them


MOST_LABELLED, MOST_NODES = 6, 48
"""Nodes of larger rings have numbers only; still larger ones are better listed than drawn."""
BOX = 200, 66
DOT = 13
NODE_TEXT = 26
"""Characters of a line in a box."""
SPACE = 4
"""Between an arrow and the node it leads to."""
HEAD = 9
"""Length of the head of an arrow."""


def ring(title: str, nodes: Sequence[Sequence[str]], arrows: Iterable[tuple[int, int]]) -> Plot:
    """Draws nodes on an ellipse, clockwise from the left; many nodes are dots with numbers.

    Args:
        title: What is drawn.
        nodes: The lines of text of each node.
        arrows: Pairs of nodes by index: from which to which.
    """
    labelled = len(nodes) <= MOST_LABELLED
    half = (BOX[0] / 2, BOX[1] / 2) if labelled else (DOT, DOT)
    middle, centres = _on_ellipse(len(nodes), half, labelled=labelled)
    drawn: list[Child] = [_arrow(centres[start], centres[end], half) for start, end in arrows]
    drawn += [
        _node(number, lines, centre, labelled=labelled)
        for number, (lines, centre) in enumerate(zip(nodes, centres, strict=True), 1)
    ]
    return drawing(title, 2 * middle[1] - TITLE, drawn, "", width=2 * middle[0])


def _on_ellipse(count: int, half: Point, *, labelled: bool) -> tuple[Point, list[Point]]:
    """The centre of an ellipse below the title, and the nodes on it."""
    wide = max(170.0, 46.0 * count) if labelled else max(6.5 * count, 60.0)
    high = 28.0 if count == 2 else (0.55 * wide if labelled else wide)
    middle = wide + half[0] + SPACE, high + half[1] + SPACE + TITLE
    angles = [math.pi + 2 * math.pi * number / count for number in range(count)]
    return middle, [
        (middle[0] + wide * math.cos(angle), middle[1] + high * math.sin(angle)) for angle in angles
    ]


def _node(number: int, lines: Sequence[str], centre: Point, *, labelled: bool) -> Markup:
    x, y = centre
    tip = element("title", f"{number}: {', '.join(lines)}")
    if not labelled:
        dot = element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=DOT, class_="node")
        return element("g", tip, dot, text_at(f"{number}", x, y + 4, "middle"))
    left, top = x - BOX[0] / 2, y - BOX[1] / 2
    box = element("rect", x=f"{left:.1f}", y=f"{top:.1f}", width=BOX[0], height=BOX[1], rx=6, class_="node")
    texts = [f"{number}: {lines[0]}", *lines[1:]]
    return element(
        "g",
        tip,
        box,
        (
            text_at(shortened(text, NODE_TEXT), x, top + 20 + 19 * row, "middle")
            for row, text in enumerate(texts)
        ),
    )


def _arrow(start: Point, end: Point, half: Point) -> list[Markup]:
    """A curve from the edge of one node to that of another; opposite curves do not overlap."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = math.hypot(across, down)
    bend = min(0.28 * length, 60.0)
    top = (start[0] + end[0]) / 2 + bend * down / length, (start[1] + end[1]) / 2 - bend * across / length
    begin, finish = _edge(start, top, half), _edge(end, top, half)
    reach = math.hypot(finish[0] - top[0], finish[1] - top[1]) or 1.0
    ahead = (finish[0] - top[0]) / reach * HEAD, (finish[1] - top[1]) / reach * HEAD
    base = finish[0] - ahead[0], finish[1] - ahead[1]
    sides = [(base[0] + turn * ahead[1], base[1] - turn * ahead[0]) for turn in (0.45, -0.45)]
    path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{top[0]:.1f} {top[1]:.1f} {base[0]:.1f} {base[1]:.1f}"
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in (finish, *sides))
    return [element("path", d=path, class_="arrow"), element("polygon", points=head, class_="head")]


def _edge(centre: Point, towards: Point, half: Point) -> Point:
    """Where the line from the centre of a node leaves it."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    part = min(
        (half[0] + SPACE) / abs(across) if across else math.inf,
        (half[1] + SPACE) / abs(down) if down else math.inf,
    )
    return centre[0] + across * part, centre[1] + down * part


# Grids: a cell for each row and column, with a sign, so that nothing depends on colors


TILE, NARROWEST = 18, 14
"""The height of a cell, and its least width."""
LONGEST_HEADING = 34
"""Characters of the heading of a column or a row."""


class Look(StrEnum):
    """The color of a cell, from what matters most to what matters least."""

    WORST = "worst"
    BAD = "bad"
    LATE = "late"
    WAITING = "waiting"
    DONE = "done"
    UNKNOWN = "unknown"


class Tile(Struct, frozen=True):
    """A cell of a grid, or several equal ones next to each other."""

    sign: str
    look: Look
    tip: str = ""
    """What it says when the mouse is over it."""
    span: int = 1
    """How many columns it covers; the sign is a letter then, once in each."""


class Mark(Enum):
    """Base of what a cell can say: its look, its sign, so that nothing depends on colors, and the words of a legend."""

    def __init__(self, look: Look, sign: str, words: str) -> None:
        self.look = look
        self.sign = sign
        self.words = words

    def tile(self, tip: str = "", span: int = 1) -> Tile:
        """A cell with this mark."""
        return Tile(self.sign, self.look, tip, span)

    @classmethod
    def legend(cls, used: Collection[Self]) -> list[tuple[Tile, str]]:
        """What these marks mean, in the order of their class."""
        return [(mark.tile(), mark.words) for mark in cls if mark in used]


class Heading(Struct, frozen=True):
    """The heading of a column of a grid."""

    text: str
    tip: str = ""
    color: int | None = None
    """Columns of one color belong together."""


def grid(
    title: str,
    rows: Sequence[tuple[str, Sequence[Tile | None]]],
    columns: Sequence[Heading] = (),
    legend: Sequence[tuple[Tile, str]] = (),
) -> Plot:
    """Draws a cell for each row and column.

    Args:
        title: What is drawn.
        rows: The label and the cells of each row; None leaves a cell out.
        columns: The headings of the columns, if they have any; long ones are turned.
        legend: What cells mean.
    """
    widest = max((len(cell.sign) for _, cells in rows for cell in cells if cell), default=1)
    width = round(max(NARROWEST, 8 + LETTER * widest))
    left = 12 + LETTER * max((len(shortened(label, LONGEST_HEADING)) for label, _ in rows), default=0)
    turned = any(LETTER * len(column.text) > width for column in columns)
    longest = max((len(shortened(column.text, LONGEST_HEADING)) for column in columns), default=0)
    top = TITLE + 4 + (LETTER * longest + 8 if turned else TILE if columns else 0)
    drawn: list[Child] = [
        _heading(column, left + width * (index + 0.5), top - 5, turned=turned)
        for index, column in enumerate(columns)
    ]
    for row, (label, cells) in enumerate(rows):
        y = top + row * TILE
        drawn.append(text_at(shortened(label, LONGEST_HEADING), left - 6, y + 13, "end", tip=label))
        index = 0
        for cell in cells:
            if cell:
                drawn.append(_tile(cell, left + width * index, y, width))
            index += cell.span if cell else 1
    bottom = top + len(rows) * TILE + 8
    for row, (key, words) in enumerate(legend):
        drawn += [
            _tile(key, 8, bottom + row * TILE, 20),
            text_at(words, 36, bottom + row * TILE + 13, "start"),
        ]
    room = max((36 + LETTER * len(text) for _, text in legend), default=0)
    most = max((sum(cell.span if cell else 1 for cell in cells) for _, cells in rows), default=0)
    height = bottom + len(legend) * TILE
    return drawing(
        title, height, drawn, "", width=max(left + width * most + 8, room, LETTER * len(title) + 16)
    )


def _tile(cell: Tile, x: float, y: float, width: float) -> Markup:
    centres = " ".join(f"{x + width * (index + 0.5):.0f}" for index in range(cell.span))
    return element(
        "g",
        element("title", cell.tip) if cell.tip else None,
        element(
            "rect", x=f"{x + 0.5:.1f}", y=f"{y + 0.5:.1f}", width=f"{width * cell.span - 1:.1f}",
            height=TILE - 1, rx=2,
        ),
        element("text", cell.sign * cell.span, x=centres, y=f"{y + 13:.0f}", text_anchor="middle"),
        class_=f"tile {cell.look}",
    )  # fmt: skip


def _heading(column: Heading, x: float, y: float, *, turned: bool) -> Markup:
    color = None if column.color is None else f"c{column.color % COLORS + 1}"
    key = element("rect", x=f"{x - 6:.1f}", y=y, width=12, height=3, class_=color) if color else None
    place = f"{x + 4:.1f}" if turned else f"{x:.1f}"
    words = element(
        "text",
        shortened(column.text, LONGEST_HEADING),
        element("title", column.tip) if column.tip else None,
        x=place,
        y=f"{y - 4:.1f}",
        text_anchor="start" if turned else "middle",
        transform=f"rotate(-90 {place} {y - 4:.1f})" if turned else None,
    )
    return element("g", key, words)
