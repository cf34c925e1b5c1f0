"""GraphML: for networkx, Gephi, yEd and whatever else reads graphs, with everything as typed attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tracelink.converters.chakra.drawing.labels import group_of, short_name, visible
from tracelink.converters.chakra.drawing.scene import Arrow, Box, Scene
from tracelink.converters.chakra.drawing.xml import text

LARGEST = (1 << 63) - 1
LONGEST_TEXT = 10_000
Value = str | int | bool | None

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


@dataclass(frozen=True, slots=True)
class _Field:
    """An attribute of nodes: its type and what it is for a box."""

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


def graphml(scene: Scene, title: str) -> Iterator[str]:
    """The document, piece by piece."""
    yield HEAD
    for name, field in FIELDS.items():
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{field.type}"/>\n'
    yield f'<key id="{DEPENDENCY}" for="edge" attr.name="{DEPENDENCY}" attr.type="string"/>\n'
    yield f'<graph id="{text(visible(title))}" edgedefault="directed">\n'
    yield from map(_node, scene.boxes)
    yield from (_edge(arrow, scene) for arrow in scene.arrows)
    yield "</graph>\n</graphml>\n"


def too_large(scene: Scene) -> int:
    """How many numbers are left out because no reader of GraphML could take them."""
    return sum(
        isinstance(value := field.of(box), int) and abs(value) > LARGEST
        for box in scene.boxes
        for field in FIELDS.values()
        if field.type == "long"
    )


def _micros(ns: int | None) -> str | None:
    return None if ns is None else repr(ns / 1000)


def _node(box: Box) -> str:
    data = "".join(
        f'<data key="{name}">{told}</data>'
        for name, field in FIELDS.items()
        if (told := _told(field.of(box))) is not None
    )
    return f'<node id="{text(box.key)}">{data}</node>\n'


def _told(value: Value) -> str | None:
    if isinstance(value, str):
        return text(visible(value, LONGEST_TEXT))
    return None if value is None or abs(value) > LARGEST else str(value)


def _edge(arrow: Arrow, scene: Scene) -> str:
    cause, effect = text(scene.boxes[arrow.cause].key), text(scene.boxes[arrow.effect].key)
    kinds = ", ".join(kind for kind, is_one in (("data", arrow.data), ("control", arrow.control)) if is_one)
    return f'<edge source="{cause}" target="{effect}"><data key="{DEPENDENCY}">{kinds}</data></edge>\n'
