"""DOT: the language of graphviz, which finds a place for each box by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.converters.chakra.drawing import colours
from tracelink.converters.chakra.drawing.labels import duration, facts, short_name, size, visible
from tracelink.converters.chakra.drawing.layout import BOX, Place, layout
from tracelink.converters.chakra.drawing.scene import Arrow, Box, Scene
from tracelink.converters.chakra.drawing.xml import number
from tracelink.converters.chakra.roles import COMMUNICATION

LONGEST_LABEL = 48
ARRANGED = 60
"""More boxes than this get a place from us: graphviz would look for one for minutes."""

POINTS_PER_INCH = 72
LETTER = 8.0
"""The widest letters are as wide; graphviz complains of labels that are wider than their boxes."""

HEAD = """digraph chakra {
  rankdir=LR
  node [shape=box style="filled,rounded" fontname="Helvetica" fontsize=10 margin="0.08,0.04"]
  edge [arrowsize=0.6]
"""
PLACED = """  layout=nop splines=line // without this line graphviz places the boxes itself
  node [fixedsize=true margin=0]
"""


def dot(scene: Scene, title: str) -> Iterator[str]:
    """The text, piece by piece."""
    arranged = len(scene.boxes) > ARRANGED
    places = layout(scene).places if arranged else [None] * len(scene.boxes)
    yield HEAD + (PLACED if arranged else "")
    yield f"  label={quoted(visible(title))} labelloc=t\n"
    for finding in scene.findings:
        yield f"  // {visible(finding.message)}\n"
    lanes: dict[tuple[int | None, str], list[tuple[Box, Place | None]]] = {}
    for box, place in zip(scene.boxes, places, strict=True):
        lanes.setdefault((box.rank, box.lane), []).append((box, place))
    for place_of_lane, ((rank, lane), boxes) in enumerate(lanes.items()):
        label = lane if rank is None else f"rank {rank}, {lane}"
        yield f'  subgraph cluster_{place_of_lane} {{\n    label={quoted(visible(label))} color="#c3c8d0" fontsize=10\n'
        yield from (_node(box, place, scene.origin_ns) for box, place in boxes)
        yield "  }\n"
    yield from (_edge(arrow, scene) for arrow in scene.arrows)
    yield "}\n"


def quoted(text: str) -> str:
    """A string of DOT that shows the text as it is; `&` would begin an entity and a backslash a field."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _node(box: Box, place: Place | None, origin_ns: float) -> str:
    said = {
        "label": _lines([short_name(box)[:LONGEST_LABEL], _measures(box)]),
        "tooltip": _lines(facts(box, origin_ns)),
        "fillcolor": colours.FILL[box.role],
        "color": colours.EDGE[box.role],
        "class": box.role.value,
    }
    if place:
        width = place.right - place.left
        said["label"] = _lines([short_name(box)[: int(width / LETTER)].strip()])
        said["pos"] = f"{number((place.left + place.right) / 2)},{number(-place.middle)}"
        said["width"], said["height"] = f"{width / POINTS_PER_INCH:.3f}", f"{BOX / POINTS_PER_INCH:.3f}"
    thick = " penwidth=2" if box.role in COMMUNICATION else ""
    told = " ".join(f'{name}="{value}"' for name, value in said.items())
    return f"    {quoted(box.key)} [{told}{thick}]\n"


def _measures(box: Box) -> str:
    more = "" if box.bytes is None else f", {size(box.bytes)}"
    return duration(box.duration_ns) + more + (f", {box.parts:,} nodes" if box.parts > 1 else "")


def _lines(texts: Sequence[str]) -> str:
    return "\\n".join(quoted(text)[1:-1] for text in texts)


def _edge(arrow: Arrow, scene: Scene) -> str:
    cause, effect = scene.boxes[arrow.cause].key, scene.boxes[arrow.effect].key
    look = f'color="{colours.DATA}"' if arrow.data else f'color="{colours.CONTROL}" style=dashed'
    return f"  {quoted(cause)} -> {quoted(effect)} [{look}]\n"
