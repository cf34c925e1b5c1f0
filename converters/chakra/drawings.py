"""Drawings of nodes and dependencies: SVG for browsers, DOT for graphviz, GraphML for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import ceil, floor, log10
from pathlib import PurePath
from xml.sax.saxutils import escape

from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._io.targets import Target
from tracelink._model.findings import Finding, Severity
from tracelink._model.selection import View
from tracelink._model.text import counted, fine_span, size
from tracelink._show.markup import Markup, element
from tracelink.converters.chakra.scene import (
    Arrow,
    Box,
    Scene,
    compose,
    facts,
    group_of,
    short_name,
    subjects_of,
    visible,
)
from tracelink.converters.chakra.table import COMMUNICATION, Role
from tracelink.plugins import Output

COLOURS = {
    Role.HOST: ("#cfe0f5", "#6f93bd"),
    Role.IDLE: ("#f3f3f3", "#b0b0b0"),
    Role.DEVICE: ("#bfe3c0", "#5fa563"),
    Role.MEMCPY: ("#9fd8d2", "#3c9188"),
    Role.MEMSET: ("#d5eeeb", "#7fb8b2"),
    Role.COLLECTIVE: ("#ff9d5c", "#b34700"),
    Role.SEND: ("#f48fb1", "#ad1457"),
    Role.RECV: ("#ce93d8", "#6a1b9a"),
    Role.LOAD: ("#e6d690", "#8d7a1c"),
    Role.STORE: ("#d9bd7a", "#7d5a14"),
    Role.METADATA: ("#dedede", "#8c8c8c"),
    Role.UNKNOWN: ("#f2b8b5", "#b3261e"),
}
"""The inside and the edge of boxes."""


# Layout: a lane for each thread and stream, with rows for boxes that overlap.

GUTTER = 150.0
"""Space for the names of lanes."""
MARGIN = 24.0
NARROWEST, WIDEST = 1100.0, 16_000.0
SMALLEST = 2.0
"""The width of a box without duration."""
READABLE = 14.0
"""The width in pixels of at least three of four boxes, unless the drawing gets too wide."""
PER_UNIT = (8.0, 60.0)
"""The least and the largest width of a box without duration, in a drawing without times."""
ROW, BOX = 24.0, 20.0
LANE_GAP, RANK_GAP = 12.0, 26.0
TOP = 92.0
TOUCHING = 1e-6
NUMBERS = re.compile(r"(\d+)")


class Position(Struct, frozen=True):
    """The position of a box."""

    left: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        """The vertical middle of the box."""
        return self.top + BOX / 2


class Lane(Struct, frozen=True):
    """A stripe of the drawing."""

    name: str
    rank: int | None
    top: float
    height: float
    first_of_rank: bool


class Scale(Struct, frozen=True):
    """Times to pixels."""

    origin: float
    per_pixel: float
    width: float
    """The width of the whole time."""

    def __call__(self, time: float) -> float:
        """Pixels from the left."""
        return GUTTER + (time - self.origin) / self.per_pixel


class Layout(Struct, frozen=True):
    """The positions of all boxes and lanes."""

    positions: Sequence[Position]
    lanes: Sequence[Lane]
    scale: Scale
    bottom: float


def layout(scene: Scene) -> Layout:
    """A position for each box."""
    scale = _scale(scene)
    lanes: dict[tuple[int, int, str], list[int]] = {}
    for number, box in enumerate(scene.boxes):
        lanes.setdefault((-1 if box.rank is None else box.rank, _order(box), box.lane), []).append(number)
    positions: dict[int, Position] = {}
    drawn: list[Lane] = []
    top, last_rank = TOP, None
    for (rank, _, name), numbers in sorted(
        lanes.items(), key=lambda lane: (*lane[0][:2], _natural(lane[0][2]))
    ):
        first = rank != last_rank
        top += RANK_GAP if first and rank >= 0 else 0
        rows = _rows(scene.boxes, numbers, scale)
        positions |= {
            number: Position(*_extent(scene.boxes[number], scale), top + row * ROW + (ROW - BOX) / 2)
            for number, row in rows.items()
        }
        height = (max(rows.values()) + 1) * ROW
        drawn.append(Lane(name, None if rank < 0 else rank, top, height, first))
        top, last_rank = top + height + LANE_GAP, rank
    return Layout([positions[number] for number in range(len(scene.boxes))], drawn, scale, top)


def _scale(scene: Scene) -> Scale:
    span = max(scene.last - scene.first, 1)
    if scene.timed:
        seen = (min(box.end, scene.last) - max(box.begin, scene.first) for box in scene.boxes)
        durations = sorted(filter(lambda duration: duration > 0, seen)) or [span]
        width = min(max(READABLE * span / durations[len(durations) // 4], NARROWEST), WIDEST)
    else:
        least, most = PER_UNIT
        width = span * max(min(WIDEST / span, most), least)
    return Scale(scene.first, span / width, width)


def _extent(box: Box, scale: Scale) -> tuple[float, float]:
    """The left and right edges of a box."""
    left = max(scale(box.begin), GUTTER)
    return left, max(min(scale(box.end), GUTTER + scale.width), left + SMALLEST)


def _rows(boxes: Sequence[Box], numbers: Sequence[int], scale: Scale) -> Mapping[int, int]:
    """The row of each box in its lane: the first free one below the box that encloses it."""
    rows: dict[int, int] = {}
    taken_until: list[float] = []
    for number in numbers:
        box = boxes[number]
        left, right = _extent(box, scale)
        row = 0 if box.inside is None else rows.get(box.inside, -1) + 1
        while row < len(taken_until) and taken_until[row] > left + TOUCHING:
            row += 1
        taken_until += [left] * (row + 1 - len(taken_until))
        rows[number], taken_until[row] = row, right
    return rows


def _order(box: Box) -> int:
    """Threads above streams."""
    return 0 if box.lane == "host" or box.lane.startswith("thread ") else 1


def _natural(name: str) -> list[tuple[int, str]]:
    """`stream 7` before `stream 20`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]


def number(value: float) -> str:
    """A length to a tenth of a pixel, without a tail of zeros."""
    return f"{value:.1f}".removesuffix(".0")


# Arrows: they leave a box where the next one can start, and enter the next one at its start.

STEEP = 8.0
"""Boxes nearer than this, in pixels, are joined by a straight line."""
SLACK = 0.5


class Look(StrEnum):
    """The style of an arrow."""

    DATA = "data"
    CONTROL = "control"
    BACKWARDS = "backwards"
    """The arrow leads to a node that starts before its cause."""


LOOKS = {
    Look.DATA: ("#30343b", "data dependency"),
    Look.CONTROL: ("#7a8699", "control dependency"),
    Look.BACKWARDS: ("#c62828", "starts before its cause"),
}
"""The colour and the meaning of arrows."""


def look_of(arrow: Arrow, cause: Position, effect: Position, *, folded: bool) -> Look:
    """Data takes precedence over control; a folded box can start before a cause of one of its nodes."""
    if effect.left < cause.left - SLACK and not folded:
        return Look.BACKWARDS
    return Look.DATA if arrow.data else Look.CONTROL


def curve(cause: Position, effect: Position, *, folded: bool) -> str:
    """The attribute `d` of a path; it enters a folded box where the cause ends."""
    if folded and effect.left < cause.left <= effect.right and effect.top != cause.top:
        across = min(cause.right, effect.right)
        return _upright(across, across, cause, effect)
    leaves = min(max(effect.left, cause.left), cause.right)
    apart = effect.left - leaves
    if effect.top == cause.top:
        return _path("M", leaves, cause.middle, "L", effect.left, effect.middle)
    if 0 <= apart < STEEP:
        enters = min(effect.left + 3, effect.right)
        return _upright(min(enters, cause.right), enters, cause, effect)
    reach = max(STEEP, min(abs(apart) / 2, 60.0))
    points = (leaves + reach, cause.middle, effect.left - reach, effect.middle, effect.left, effect.middle)
    return _path("M", leaves, cause.middle, "C", *points)


def _upright(leaves: float, enters: float, cause: Position, effect: Position) -> str:
    """From the edge of a box to the facing edge of another one."""
    down = effect.top > cause.top
    start = cause.top + BOX if down else cause.top
    return _path("M", leaves, start, "L", enters, effect.top if down else effect.top + BOX)


def _path(*parts: str | float) -> str:
    return " ".join(part if isinstance(part, str) else number(part) for part in parts)


# The drawing.

LETTER = 6.65
"""Width of a letter in a box."""
TICK = 120.0
"""The approximate distance of marks of the scale, in pixels."""
LABEL = 40.0
REPEATED = 1400.0
"""The name of a lane is repeated after so many pixels."""
LEGEND = 150.0
"""The width of an entry of the legend."""
LONGEST_NOTE = 170
MANY = 1000
"""More arrows than this are drawn more transparent."""

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
    """The drawing, in chunks."""
    where = layout(scene)
    notes = [finding.message for finding in scene.findings]
    width = max(GUTTER + where.scale.width + MARGIN, NARROWEST)
    height = where.bottom + 60 + 16 * len(notes)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}"'
        f' viewBox="0 0 {number(width)} {number(height)}" role="img">\n'
    )
    yield from (part.text + "\n" for part in _parts(scene, title, where, width, notes))
    yield "</svg>\n"


def _parts(scene: Scene, title: str, where: Layout, width: float, notes: Sequence[str]) -> Iterator[Markup]:
    yield element("title", visible(title))
    yield element("style", Markup(STYLE))
    yield element("defs", _markers())
    yield element("rect", width="100%", height="100%", fill="#fff")
    yield from _heading(scene, title, width)
    for lane in where.lanes:
        yield from _lane(lane, width)
    yield from _axis(scene, where)
    for box, position in zip(scene.boxes, where.positions, strict=True):
        yield _box(box, position, scene.origin_ns)
    lines = _lines(scene, where.positions)
    yield from _arrows(lines)
    yield from _legend(scene, lines, where.bottom + 24)
    for line, note in enumerate(notes):
        yield _text(visible(note, LONGEST_NOTE), MARGIN, where.bottom + 58 + 16 * line, "note")


def _markers() -> Iterator[Markup]:
    for look, (colour, _) in LOOKS.items():
        tip = element("path", d="M0 0L7 3L0 6z", fill=colour)
        size = {"markerWidth": 7, "markerHeight": 6, "refX": 6.5, "refY": 3}
        yield element("marker", tip, id=look, orient="auto", markerUnits="userSpaceOnUse", **size)


def _heading(scene: Scene, title: str, width: float) -> Iterator[Markup]:
    drawn = sum(box.parts for box in scene.boxes)
    shown = f"{len(scene.boxes):,} boxes" + (f" for {drawn:,} nodes" if drawn > len(scene.boxes) else "")
    of = f", of {scene.nodes:,} nodes in all" if drawn < scene.nodes else ""
    sense = (
        "time runs from left to right"
        if scene.timed
        else "the nodes have no times: each is drawn as early as its dependencies allow, not to scale"
    )
    yield _text(visible(title, 200), MARGIN, 26, "title")
    summary = f"{shown}{of}, {len(scene.arrows):,} dependencies; {sense}. Hover over a box to read all of it."
    yield _text(summary, MARGIN, 46, "dim")


def _text(content: str, left: float, base: float, class_: str | None = None) -> Markup:
    return element("text", content, x=left, y=base, class_=class_)


def _lane(lane: Lane, width: float) -> Iterator[Markup]:
    if lane.first_of_rank and lane.rank is not None:
        yield _text(f"rank {lane.rank}", MARGIN, lane.top - 8, "title")
    yield element("rect", x=0, y=lane.top - 2, width=width, height=lane.height + 4, class_="lane")
    base = lane.top + 14
    yield _text(visible(lane.name, 20), MARGIN, base)
    again = GUTTER + REPEATED
    while again < width - REPEATED / 2:
        yield _text(visible(lane.name, 20), again, base, "again")
        again += REPEATED


def _axis(scene: Scene, where: Layout) -> Iterator[Markup]:
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
            yield _text(fine_span(round(tick * step)), left + 3, TOP - 8, "dim")


def _box(box: Box, position: Position, origin_ns: float) -> Markup:
    width, (fill, edge) = position.right - position.left, COLOURS[box.role]
    details = element("title", ([fact, Markup("\n")] for fact in facts(box, origin_ns)))
    body = element(
        "rect",
        x=position.left,
        y=position.top,
        width=width,
        height=BOX,
        rx=min(3.0, width / 3),
        fill=fill,
        stroke=edge,
    )
    letters = int((width - 6) / LETTER)
    label = _text(_label(box, letters), position.left + 4, position.top + 14) if letters >= 2 else None
    return element("g", details, body, label, class_="box comm" if box.role in COMMUNICATION else "box")


def _label(box: Box, letters: int) -> str:
    name = box.kind if box.kind and len(short_name(box)) > letters else short_name(box)
    more = f" +{box.parts - 1}" if box.parts > 1 else ""
    if len(name) + len(more) <= letters:
        return name + more
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _lines(scene: Scene, positions: Sequence[Position]) -> dict[Look, list[str]]:
    """The arrows by their look; a box directly below the box that encloses it needs no arrow."""
    lines: dict[Look, list[str]] = {look: [] for look in Look}
    for arrow in scene.arrows:
        cause, effect = positions[arrow.cause], positions[arrow.effect]
        enclosed = scene.boxes[arrow.effect].inside == arrow.cause and effect.top == cause.top + ROW
        if arrow.data or not enclosed:
            folded = scene.boxes[arrow.effect].parts > 1
            lines[look_of(arrow, cause, effect, folded=folded)].append(curve(cause, effect, folded=folded))
    return {look: curves for look, curves in lines.items() if curves}


def _arrows(lines: Mapping[Look, Sequence[str]]) -> Iterator[Markup]:
    for look, curves in lines.items():
        paths = (element("path", d=line) for line in curves)
        yield element("g", paths, **_looks(look), class_=f"arrows {look}{' many' * (len(curves) > MANY)}")


def _looks(look: Look) -> dict[str, str]:
    return {"stroke": LOOKS[look][0], "marker_end": f"url(#{look})"}


def _legend(scene: Scene, looks: Collection[Look], top: float) -> Iterator[Markup]:
    left = MARGIN
    counts = Counter(box.role for box in scene.boxes)
    for role in Role:
        if counts[role]:
            fill, edge = COLOURS[role]
            yield element("rect", x=left, y=top, width=14, height=14, rx=3, fill=fill, stroke=edge)
            yield _text(f"{role} ({counts[role]:,})", left + 20, top + 11)
            left += LEGEND
    for look in looks:
        line = element("path", d=f"M {number(left)} {number(top + 7)} h 26", **_looks(look))
        yield element("g", line, class_=f"arrows {look}")
        yield _text(LOOKS[look][1], left + 34, top + 11)
        left += LEGEND + 60


# DOT: the language of graphviz, which finds a position for each box by itself.


LONGEST_LABEL = 48
ARRANGED = 60
"""With more boxes, their positions are written: graphviz would search for minutes."""

POINTS_PER_INCH = 72
DOT_LETTER = 8.0
"""The width of the widest letters; graphviz warns of labels wider than their boxes."""

HEAD = """digraph chakra {
  rankdir=LR
  node [shape=box style="filled,rounded" fontname="Helvetica" fontsize=10 margin="0.08,0.04"]
  edge [arrowsize=0.6]
"""
PLACED = """  layout=nop splines=line // without this line graphviz places the boxes itself
  node [fixedsize=true margin=0]
"""


def dot(scene: Scene, title: str) -> Iterator[str]:
    """The text, in chunks."""
    arranged = len(scene.boxes) > ARRANGED
    positions = layout(scene).positions if arranged else [None] * len(scene.boxes)
    yield HEAD + (PLACED if arranged else "")
    yield f"  label={quoted(visible(title))} labelloc=t\n"
    for finding in scene.findings:
        yield f"  // {visible(finding.message)}\n"
    lanes: dict[tuple[int | None, str], list[tuple[Box, Position | None]]] = {}
    for box, position in zip(scene.boxes, positions, strict=True):
        lanes.setdefault((box.rank, box.lane), []).append((box, position))
    for place_of_lane, ((rank, lane), boxes) in enumerate(lanes.items()):
        label = lane if rank is None else f"rank {rank}, {lane}"
        yield f'  subgraph cluster_{place_of_lane} {{\n    label={quoted(visible(label))} color="#c3c8d0" fontsize=10\n'
        yield from (_dot_node(box, position, scene.origin_ns) for box, position in boxes)
        yield "  }\n"
    yield from (_dot_edge(arrow, scene) for arrow in scene.arrows)
    yield "}\n"


def quoted(text: str) -> str:
    """A DOT string that shows the text as it is: `&` would start an entity, and a backslash a field."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_node(box: Box, position: Position | None, origin_ns: float) -> str:
    fill, edge = COLOURS[box.role]
    attributes = {
        "label": _dot_lines([short_name(box)[:LONGEST_LABEL], _measures(box)]),
        "tooltip": _dot_lines(facts(box, origin_ns)),
        "fillcolor": fill,
        "color": edge,
        "class": box.role.value,
    }
    if position:
        width = position.right - position.left
        attributes["label"] = _dot_lines([short_name(box)[: int(width / DOT_LETTER)].strip()])
        attributes["pos"] = f"{number((position.left + position.right) / 2)},{number(-position.middle)}"
        attributes["width"], attributes["height"] = (
            f"{width / POINTS_PER_INCH:.3f}",
            f"{BOX / POINTS_PER_INCH:.3f}",
        )
    thick = " penwidth=2" if box.role in COMMUNICATION else ""
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"    {quoted(box.key)} [{written}{thick}]\n"


def _measures(box: Box) -> str:
    more = "" if box.bytes is None else f", {size(box.bytes)}"
    return fine_span(box.duration_ns) + more + (f", {box.parts:,} nodes" if box.parts > 1 else "")


def _dot_lines(texts: Sequence[str]) -> str:
    return "\\n".join(quoted(text)[1:-1] for text in texts)


def _dot_edge(arrow: Arrow, scene: Scene) -> str:
    cause, effect = scene.boxes[arrow.cause].key, scene.boxes[arrow.effect].key
    colour, _ = LOOKS[Look.DATA if arrow.data else Look.CONTROL]
    dashed = "" if arrow.data else " style=dashed"
    return f'  {quoted(cause)} -> {quoted(effect)} [color="{colour}"{dashed}]\n'


# GraphML: for networkx, Gephi, yEd and whatever else reads graphs, with everything as typed attributes.


LARGEST = (1 << 63) - 1
LONGEST_TEXT = 10_000
Value = str | int | bool | None

HEAD_GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


class _Field(Struct, frozen=True):
    """An attribute of nodes: its type, and its value for a box."""

    type: str
    of: Callable[[Box], Value]


FIELDS: Mapping[str, _Field] = {
    "label": _Field("string", short_name),
    "name": _Field("string", lambda box: box.name),
    "type": _Field("string", lambda box: box.role.value),
    "chakra_id": _Field("string", lambda box: str(box.id)),
    "rank": _Field("long", lambda box: box.rank),
    "lane": _Field("string", lambda box: box.lane),
    "start_ns": _Field("long", lambda box: box.start_ns),
    "duration_ns": _Field("long", lambda box: box.duration_ns),
    "start": _Field("double", lambda box: _micros(box.start_ns)),
    "duration": _Field("double", lambda box: _micros(box.duration_ns)),
    "comm_type": _Field("string", lambda box: box.kind or None),
    "comm_size": _Field("long", lambda box: box.bytes),
    "group": _Field("string", lambda box: group_of(box) if box.kind else None),
    "peer": _Field("long", lambda box: box.peer),
    "tag": _Field("long", lambda box: box.tag),
    "nodes": _Field("long", lambda box: box.parts),
}
"""Numbers of nanoseconds are exact; `start` and `duration` are microseconds, as in the trace."""

DEPENDENCY = "dependency"
QUOTES = {'"': "&quot;", "'": "&#39;"}


def text(content: str) -> str:
    """Escaped text of an element or an attribute, of any length: a graph is for programs."""
    return escape(content, QUOTES)


def graphml(scene: Scene, title: str) -> Iterator[str]:
    """The document, piece by piece."""
    yield HEAD_GRAPHML
    for name, field in FIELDS.items():
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{field.type}"/>\n'
    yield f'<key id="{DEPENDENCY}" for="edge" attr.name="{DEPENDENCY}" attr.type="string"/>\n'
    yield f'<graph id="{text(visible(title))}" edgedefault="directed">\n'
    yield from map(_node_graphml, scene.boxes)
    yield from (_edge_graphml(arrow, scene) for arrow in scene.arrows)
    yield "</graph>\n</graphml>\n"


def too_large(scene: Scene) -> int:
    """The number of values left out because readers of GraphML have no integers of this size."""
    return sum(
        isinstance(value := field.of(box), int) and abs(value) > LARGEST
        for box in scene.boxes
        for field in FIELDS.values()
        if field.type == "long"
    )


def _micros(ns: int | None) -> str | None:
    return None if ns is None else repr(ns / 1000)


def _node_graphml(box: Box) -> str:
    data = "".join(
        f'<data key="{name}">{written}</data>'
        for name, field in FIELDS.items()
        if (written := _written(field.of(box))) is not None
    )
    return f'<node id="{text(box.key)}">{data}</node>\n'


def _written(value: Value) -> str | None:
    if isinstance(value, str):
        return text(visible(value, LONGEST_TEXT))
    return None if value is None or abs(value) > LARGEST else str(value)


def _edge_graphml(arrow: Arrow, scene: Scene) -> str:
    cause, effect = text(scene.boxes[arrow.cause].key), text(scene.boxes[arrow.effect].key)
    kinds = ", ".join(kind for kind, is_set in (("data", arrow.data), ("control", arrow.control)) if is_set)
    return f'<edge source="{cause}" target="{effect}"><data key="{DEPENDENCY}">{kinds}</data></edge>\n'


# The drawings of `.et` files.


MOST_NODES = 2000
"""More than this a picture does not take, unless the user says so."""

_CHUNK = 1 << 16
"""Letters that are written at a time, or more."""


class _Drawing:
    """Boxes and arrows in one format."""

    name: str
    most: int | None = MOST_NODES
    _draws: Callable[[Scene, str], Iterable[str]]

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Draws one file."""
        return self.draw([source], target, engine, View())

    def draw(self, sources: Sequence[Source], target: Target, engine: Engine, view: View) -> list[Output]:
        """Draws all files in one drawing."""
        findings = list[Finding]()
        subjects = subjects_of(sources, view.ranks, engine, findings)
        scene = compose(subjects, replace(view, limit=view.limit or self.most))
        findings += [*scene.findings, *self.findings_of(scene)]
        title = _title([subject.path for subject in subjects])
        name = f"{PurePath(sources[0].name).stem}.{self.name}"
        with target.file(name) as out:
            waiting = ""
            for piece in type(self)._draws(scene, title):
                waiting += piece
                if len(waiting) > _CHUNK:
                    out.write(waiting.encode())
                    waiting = ""
            out.write(waiting.encode())
        rank = subjects[0].rank if len(subjects) == 1 else None
        return [
            Output(target.path(name), self.name, rank, target.size(name), len(scene.boxes), tuple(findings))
        ]

    def findings_of(self, scene: Scene) -> list[Finding]:
        """Values that the format cannot represent."""
        return []


class DotDrawing(_Drawing):
    """Input of graphviz."""

    name = "dot"
    _draws = staticmethod(dot)


class GraphmlDrawing(_Drawing):
    """A graph for other programs."""

    name = "graphml"
    most = None
    _draws = staticmethod(graphml)

    def findings_of(self, scene: Scene) -> list[Finding]:
        """Numbers beyond 63 bits."""
        count = too_large(scene)
        message = f"{counted(count, 'integer')} of more than 63 bits left out: GraphML has no type for them."
        return [Finding(Severity.WARNING, "number_too_large", message, count)] if count else []


class SvgDrawing(_Drawing):
    """A picture."""

    name = "svg"
    _draws = staticmethod(svg)


def _title(paths: Sequence[str]) -> str:
    return PurePath(paths[0]).name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
