"""SVG: a picture that opens in a browser, with nothing but itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil, floor, log10

from tracelink.converters.chakra.drawing import colours
from tracelink.converters.chakra.drawing.curves import Look, curve, look_of
from tracelink.converters.chakra.drawing.labels import duration, facts, short_name, visible
from tracelink.converters.chakra.drawing.layout import (
    BOX,
    GUTTER,
    MARGIN,
    NARROWEST,
    ROW,
    TOP,
    Lane,
    Layout,
    Place,
    layout,
)
from tracelink.converters.chakra.drawing.scene import Box, Scene
from tracelink.converters.chakra.drawing.xml import element, number, text
from tracelink.converters.chakra.roles import COMMUNICATION, Role

LETTER = 6.65
"""Width of a letter in a box."""
TICK = 120.0
"""Pixels between two marks of the scale, about."""
LABEL = 40.0
REPEATED = 1400.0
"""A lane says its name again after so many pixels."""
LEGEND = 150.0
"""Width of a word of the legend."""
LONGEST_NOTE = 170
MANY = 1000
"""More arrows than this are drawn so that one sees what is under them."""

STROKES = {Look.DATA: colours.DATA, Look.CONTROL: colours.CONTROL, Look.BACKWARDS: colours.BACKWARDS}
MEANING = {
    Look.DATA: "data dependency",
    Look.CONTROL: "control dependency",
    Look.BACKWARDS: "begins before its cause",
}

STYLE = """
text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1d2127}
.title{font-size:15px;font-weight:bold}.note{fill:#8a4b00}.dim{fill:#68707c}
.lane{fill:#f6f7f9}.again{fill:#c3c8d0}.tick{stroke:#dfe3e8}
.box:hover rect{stroke:#000;stroke-width:2}.box text{pointer-events:none}
.comm rect{stroke-width:2}.comm text{font-weight:bold}
.arrows{fill:none;pointer-events:none;stroke-opacity:.65}.many{stroke-opacity:.35}
.control{stroke-dasharray:4 3}
"""


def svg(scene: Scene, title: str) -> Iterator[str]:
    """The picture, piece by piece."""
    where = layout(scene)
    notes = [finding.message for finding in scene.findings]
    width = max(GUTTER + where.scale.width + MARGIN, NARROWEST)
    height = where.bottom + 60 + 16 * len(notes)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}"'
        f' viewBox="0 0 {number(width)} {number(height)}" role="img">\n'
        f"<title>{text(visible(title))}</title><style>{STYLE}</style>\n"
    )
    yield from _markers()
    yield element("rect", width="100%", height="100%", fill="#fff") + "\n"
    yield from _heading(scene, title, width)
    yield from (_lane(lane, width) for lane in where.lanes)
    yield from _axis(scene, where)
    for box, place in zip(scene.boxes, where.places, strict=True):
        yield _box(box, place, scene.origin_ns)
    lines = _lines(scene, where.places)
    yield from _arrows(lines)
    yield from _legend(scene, lines, where.bottom + 24)
    for line, note in enumerate(notes):
        yield _text(visible(note, LONGEST_NOTE), MARGIN, where.bottom + 58 + 16 * line, "note")
    yield "</svg>\n"


def _markers() -> Iterator[str]:
    yield "<defs>"
    for look, colour in STROKES.items():
        tip = element("path", d="M0 0L7 3L0 6z", fill=colour)
        size = {"markerWidth": 7, "markerHeight": 6, "refX": 6.5, "refY": 3}
        yield element("marker", tip, id=look, orient="auto", markerUnits="userSpaceOnUse", **size)
    yield "</defs>\n"


def _heading(scene: Scene, title: str, width: float) -> Iterator[str]:
    drawn = sum(box.parts for box in scene.boxes)
    shown = f"{len(scene.boxes):,} boxes" + (f" for {drawn:,} nodes" if drawn > len(scene.boxes) else "")
    of = f", of {scene.nodes:,} nodes in all" if drawn < scene.nodes else ""
    sense = (
        "from left to right: time"
        if scene.timed
        else "the nodes have no times: each stands as early as its dependencies let it, not to scale"
    )
    yield _text(visible(title, 200), MARGIN, 26, "title")
    told = f"{shown}{of}, {len(scene.arrows):,} dependencies; {sense}. Rest the pointer on a box to read all of it."
    yield _text(told, MARGIN, 46, "dim")


def _text(content: str, left: float, base: float, class_: str | None = None) -> str:
    return element("text", text(content), x=left, y=base, class_=class_) + "\n"


def _lane(lane: Lane, width: float) -> str:
    parts = []
    if lane.first_of_rank and lane.rank is not None:
        parts.append(_text(f"rank {lane.rank}", MARGIN, lane.top - 8, "title"))
    stripe = element("rect", x=0, y=lane.top - 2, width=width, height=lane.height + 4, class_="lane")
    base = lane.top + 14
    parts += [stripe, _text(visible(lane.name, 20), MARGIN, base)]
    again = GUTTER + REPEATED
    while again < width - REPEATED / 2:
        parts.append(_text(visible(lane.name, 20), again, base, "again"))
        again += REPEATED
    return "".join(parts)


def _axis(scene: Scene, where: Layout) -> Iterator[str]:
    if not scene.timed or not scene.boxes:
        return
    scale = where.scale
    rough = TICK * scale.per_pixel
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = ceil((scale.origin - scene.origin_ns) / step)
    for tick in range(first, first + floor(scale.width / step * scale.per_pixel) + 1):
        left = scale(scene.origin_ns + tick * step)
        if left <= GUTTER + scale.width - LABEL:
            yield element("line", x1=left, x2=left, y1=TOP - 14, y2=where.bottom, class_="tick")
            yield _text(duration(tick * step), left + 3, TOP - 8, "dim")


def _box(box: Box, place: Place, origin_ns: float) -> str:
    width = place.right - place.left
    said = element("title", text("\n".join(facts(box, origin_ns))))
    body = element(
        "rect",
        x=place.left,
        y=place.top,
        width=width,
        height=BOX,
        rx=min(3.0, width / 3),
        fill=colours.FILL[box.role],
        stroke=colours.EDGE[box.role],
    )
    letters = int((width - 6) / LETTER)
    label = ""
    if letters >= 2:
        label = _text(_label(box, letters), place.left + 4, place.top + 14).rstrip()
    return element("g", said + body + label, class_="box comm" if box.role in COMMUNICATION else "box") + "\n"


def _label(box: Box, letters: int) -> str:
    name = box.kind if box.kind and len(short_name(box)) > letters else short_name(box)
    more = f" +{box.parts - 1}" if box.parts > 1 else ""
    if len(name) + len(more) <= letters:
        return name + more
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _lines(scene: Scene, places: Sequence[Place]) -> dict[Look, list[str]]:
    """The arrows by their look; what stands right under the box that encloses it needs none to say so."""
    lines: dict[Look, list[str]] = {look: [] for look in Look}
    for arrow in scene.arrows:
        cause, effect = places[arrow.cause], places[arrow.effect]
        enclosed = scene.boxes[arrow.effect].inside == arrow.cause and effect.top == cause.top + ROW
        if arrow.data or not enclosed:
            folded = scene.boxes[arrow.effect].parts > 1
            lines[look_of(arrow, cause, effect, folded=folded)].append(curve(cause, effect, folded=folded))
    return {look: curves for look, curves in lines.items() if curves}


def _arrows(lines: Mapping[Look, Sequence[str]]) -> Iterator[str]:
    for look, curves in lines.items():
        content = "\n".join(element("path", d=line) for line in curves)
        yield (
            element("g", content, **_looks(look), class_=f"arrows {look}{' many' * (len(curves) > MANY)}")
            + "\n"
        )


def _looks(look: Look) -> dict[str, str]:
    return {"stroke": STROKES[look], "marker_end": f"url(#{look})"}


def _legend(scene: Scene, looks: Collection[Look], top: float) -> Iterator[str]:
    left = MARGIN
    counts = Counter(box.role for box in scene.boxes)
    for role in Role:
        if counts[role]:
            fill, edge = colours.FILL[role], colours.EDGE[role]
            yield element("rect", x=left, y=top, width=14, height=14, rx=3, fill=fill, stroke=edge)
            yield _text(f"{role} ({counts[role]:,})", left + 20, top + 11)
            left += LEGEND
    for look in looks:
        line = element("path", d=f"M {number(left)} {number(top + 7)} h 26", **_looks(look))
        yield element("g", line, class_=f"arrows {look}")
        yield _text(MEANING[look], left + 34, top + 11)
        left += LEGEND + 60
