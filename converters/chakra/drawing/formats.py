"""The drawings of `.et` files, and their formats DOT and GraphML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tracelink.converters.chakra.drawing import svg as colours
from tracelink.converters.chakra.drawing.rank_nodes import (
    Arrow,
    Box,
    Scene,
    facts,
    group_of,
    short_name,
    subjects_of,
    visible,
)
from tracelink.converters.chakra.drawing.scene import compose
from tracelink.converters.chakra.drawing.svg import BOX, Position, layout, number, svg
from tracelink.converters.chakra.table import COMMUNICATION
from tracelink.plugins import Output

# DOT: the language of graphviz, which finds a position for each box by itself.


LONGEST_LABEL = 48
ARRANGED = 60
"""With more boxes, their positions are written: graphviz would search for minutes."""

POINTS_PER_INCH = 72
LETTER = 8.0
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
        yield from (_node(box, position, scene.origin_ns) for box, position in boxes)
        yield "  }\n"
    yield from (_edge(arrow, scene) for arrow in scene.arrows)
    yield "}\n"


def quoted(text: str) -> str:
    """A DOT string that shows the text as it is: `&` would start an entity, and a backslash a field."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _node(box: Box, position: Position | None, origin_ns: float) -> str:
    attributes = {
        "label": _lines([short_name(box)[:LONGEST_LABEL], _measures(box)]),
        "tooltip": _lines(facts(box, origin_ns)),
        "fillcolor": colours.FILL[box.role],
        "color": colours.EDGE[box.role],
        "class": box.role.value,
    }
    if position:
        width = position.right - position.left
        attributes["label"] = _lines([short_name(box)[: int(width / LETTER)].strip()])
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


def _lines(texts: Sequence[str]) -> str:
    return "\\n".join(quoted(text)[1:-1] for text in texts)


def _edge(arrow: Arrow, scene: Scene) -> str:
    cause, effect = scene.boxes[arrow.cause].key, scene.boxes[arrow.effect].key
    look = f'color="{colours.DATA}"' if arrow.data else f'color="{colours.CONTROL}" style=dashed'
    return f"  {quoted(cause)} -> {quoted(effect)} [{look}]\n"


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
    suffix: str
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
        name = PurePath(sources[0].name).stem + self.suffix
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
    suffix = ".dot"
    _draws = staticmethod(dot)


class GraphmlDrawing(_Drawing):
    """A graph for other programs."""

    name = "graphml"
    suffix = ".graphml"
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
    suffix = ".svg"
    _draws = staticmethod(svg)


def _title(paths: Sequence[str]) -> str:
    return PurePath(paths[0]).name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
