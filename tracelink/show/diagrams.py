"""SVG diagrams in the style of charts: rings of nodes with arrows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tracelink.model.text import shortened
from tracelink.show.charts import TITLE, Plot, drawing, text_at
from tracelink.show.markup import Child, Markup, element

Point = tuple[float, float]

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
