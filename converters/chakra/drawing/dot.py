"""DOT: the language of graphviz, which finds a place for each box by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tracelink.converters.chakra.drawing import colours
from tracelink.converters.chakra.drawing.labels import duration, facts, short_name, size, visible
from tracelink.converters.chakra.drawing.scene import Arrow, Box, Scene
from tracelink.converters.chakra.roles import COMMUNICATION

LONGEST_LABEL = 48

HEAD = """digraph chakra {
  rankdir=LR
  node [shape=box style="filled,rounded" fontname="Helvetica" fontsize=10 margin="0.08,0.04"]
  edge [arrowsize=0.6]
"""


def dot(scene: Scene, title: str) -> Iterator[str]:
    """The text, piece by piece."""
    yield HEAD
    yield f"  label={quoted(visible(title))} labelloc=t\n"
    for finding in scene.findings:
        yield f"  // {visible(finding.message)}\n"
    clusters: dict[tuple[int | None, str], list[Box]] = {}
    for box in scene.boxes:
        clusters.setdefault((box.rank, box.lane), []).append(box)
    for number, ((rank, lane), boxes) in enumerate(clusters.items()):
        label = lane if rank is None else f"rank {rank}, {lane}"
        yield f'  subgraph cluster_{number} {{\n    label={quoted(visible(label))} color="#c3c8d0" fontsize=10\n'
        yield from (_node(box, scene.origin_ns) for box in boxes)
        yield "  }\n"
    yield from (_edge(arrow, scene) for arrow in scene.arrows)
    yield "}\n"


def quoted(text: str) -> str:
    """A string of DOT that shows the text as it is; `&` would begin an entity and a backslash a field."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _node(box: Box, origin_ns: float) -> str:
    lines = [short_name(box)[:LONGEST_LABEL], duration(box.duration_ns)]
    if box.bytes is not None:
        lines[-1] += f", {size(box.bytes)}"
    if box.parts > 1:
        lines[-1] += f", {box.parts:,} nodes"
    said = {
        "label": "\\n".join(quoted(line)[1:-1] for line in lines),
        "tooltip": "\\n".join(quoted(line)[1:-1] for line in facts(box, origin_ns)),
        "fillcolor": colours.FILL[box.role],
        "color": colours.EDGE[box.role],
        "class": box.role.value,
    }
    thick = " penwidth=2" if box.role in COMMUNICATION else ""
    told = " ".join(f'{name}="{value}"' for name, value in said.items())
    return f"    {quoted(box.key)} [{told}{thick}]\n"


def _edge(arrow: Arrow, scene: Scene) -> str:
    cause, effect = scene.boxes[arrow.cause].key, scene.boxes[arrow.effect].key
    look = f'color="{colours.DATA}"' if arrow.data else f'color="{colours.CONTROL}" style=dashed'
    return f"  {quoted(cause)} -> {quoted(effect)} [{look}]\n"
