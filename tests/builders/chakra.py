"""Jobs to write as Chakra traces, in a few readable lines.

    job = Job()
    step = job.operator("step", 0, 100, node(5, "step"))
    job.kernel("gemm", 40, 10, job.runtime("cudaLaunchKernel", 20, 5, caller=step))

is a rank with one linked node and a kernel under it; `written` is the file made of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builders.execution_trace import NEWEST, Node, as_json
from builders.graph import GraphBuilder
from tracelink.api import write
from tracelink.model.events import EventKind, Key, Relation, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.plugins import Output

US = 1000


class Job:
    """Ranks with an execution trace and a profile; times are microseconds."""

    def __init__(self, version: str = NEWEST, **header: Any) -> None:
        self.version = version
        self.builder = GraphBuilder(header=header)
        self.tracks: dict[tuple[TrackKind, int, str], int] = {}

    def node(self, node: Node, operator: int | None = None, *, rank: int = 0) -> int:
        """A node of the execution trace, the same as `operator`; returns its row."""
        track = self._track(TrackKind.NODES, rank, str(node.thread))
        keys = {Key.NODE_ID: node.id, Key.LOGICAL_THREAD: node.thread}
        keys |= {Key.NODE_PARENT: node.parent} if node.parent != node.id else {}
        row = self.builder.add(
            track, node.name, None, -1, EventKind.NODE, as_json(node, self.version), dict(keys)
        )
        if operator is not None:
            self.builder.edge(row, Relation.SAME, operator)
        return row

    def operator(
        self,
        name: str,
        start: float,
        duration: float,
        node: Node | None = None,
        *,
        caller: int | None = None,
        thread: str = "main",
        rank: int = 0,
        kind: EventKind = EventKind.OPERATOR,
    ) -> int:
        """Something on a thread, with its node if it has one; returns its row."""
        track = self._track(TrackKind.THREAD, rank, thread)
        row = self.builder.add(track, name, round(start * US), round(duration * US), kind)
        if caller is not None:
            self.builder.edge(caller, Relation.CALLS, row)
        if node is not None:
            self.node(node, row, rank=rank)
        return row

    def runtime(self, name: str, start: float, duration: float = 1, **more: Any) -> int:
        """A call of the runtime; returns its row."""
        return self.operator(name, start, duration, kind=EventKind.RUNTIME, **more)

    def kernel(
        self,
        name: str,
        start: float,
        duration: float,
        launch: int | None,
        *,
        kind: EventKind = EventKind.KERNEL,
        stream: str = "7",
        rank: int = 0,
        **args: Any,
    ) -> int:
        """Work on a device; returns its row."""
        track = self._track(TrackKind.STREAM, rank, stream)
        row = self.builder.add(track, name, round(start * US), round(duration * US), kind, args or None)
        if launch is not None:
            self.builder.edge(launch, Relation.LAUNCHES, row)
        return row

    def edge(self, source: int, relation: Relation, target: int) -> None:
        """Any other edge."""
        self.builder.edge(source, relation, target)

    def build(self) -> EventGraph:
        """The graph."""
        return self.builder.build()

    def _track(self, kind: TrackKind, rank: int, identity: str) -> int:
        key = (kind, rank, identity)
        if key not in self.tracks:
            self.tracks[key] = self.builder.track(kind, rank, identity=identity)
        return self.tracks[key]


def written(graph: EventGraph, folder: Path) -> tuple[dict[str, Any], Output]:
    """The file of a graph of one rank, and what the writer says of it."""
    (output,) = write(graph, folder / "rank.et.json", to="chakra-json", jobs=1)
    return json.loads(Path(output.path).read_bytes()), output


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The one node of this name."""
    (found,) = (node for node in document["nodes"] if node["name"] == name)
    return found
