"""The ring of a deadlock, drawn: each node is ranks in a collective, each arrow means that they wait for others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tracelink.converters.html_report.markup import Markup, element
from tracelink.converters.html_report.texts import group_name, numbered, rank_list, shortened
from tracelink.diagnosis import Link

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
