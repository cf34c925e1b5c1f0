"""Traces as they are drawn, in a few readable lines.

trace = EtFile()
step = operator(trace, "step", 0, 100)
kernel(trace, "gemm", 40, 10, launched_by=step)
assert arrows(scene_of(trace)) == {("step", "gemm", "control")}
"""

from __future__ import annotations

import io
from typing import Any

from builders.chakra_nodes import EtFile, put
from tracelink.converters.chakra.chakra_pb2 import Node
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.drawing.rank_nodes import Box, Scene, Subject
from tracelink.converters.chakra.drawing.scene import compose
from tracelink.converters.chakra.table import NodeTable
from tracelink.model.selection import View

BEGIN = 1_700_000_000_000_000
"""When traces begin: microseconds since 1970."""


def operator(
    trace: EtFile, name: str, start: int, duration: int, inside: Node | None = None, thread: int = 1
) -> Node:
    """Something on the host; times are microseconds after the beginning."""
    node = kernel(trace, name, start, duration, inside)
    put(node, "is_cpu_op", "bool_val", True)
    put(node, "tid", "int64_val", thread)
    return node


def kernel(
    trace: EtFile,
    name: str,
    start: int,
    duration: int,
    launched_by: Node | None = None,
    stream: int | None = None,
) -> Node:
    """Something on the device."""
    node = trace.compute(name)
    node.start_time_micros, node.duration_micros = BEGIN + start, duration
    if launched_by is not None:
        node.ctrl_deps.append(launched_by.id)
    if stream is not None:
        put(node, "stream", "int64_val", stream)
    return node


def nodes_of(trace: EtFile) -> NodeTable:
    """The nodes as they are read."""
    return decode(io.BytesIO(b"".join(trace.messages))).nodes


def scene_of(*traces: EtFile, **view: Any) -> Scene:
    """What is drawn; of several traces, by their ranks."""
    several = len(traces) > 1
    subjects = [
        Subject(f"job.{trace.rank}.et", nodes_of(trace), trace.rank if several else None) for trace in traces
    ]
    return compose(subjects, View(**view))


def box_of(scene: Scene, name: str) -> Box:
    """The one box of this name."""
    (box,) = [box for box in scene.boxes if box.name == name]
    return box


def arrows(scene: Scene) -> set[tuple[str, str, str]]:
    """The arrows, by the names of what they join and what they stand for."""
    return {
        (
            scene.boxes[arrow.cause].name,
            scene.boxes[arrow.effect].name,
            " ".join(["data"] * arrow.data + ["control"] * arrow.control),
        )
        for arrow in scene.arrows
    }
