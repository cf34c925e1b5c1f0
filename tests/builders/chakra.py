"""Jobs to write as Chakra traces, in a few readable lines.

    job = TracedJob()
    step = job.op("step", 0, 100, node=node(5, "step"))
    job.work("gemm", 40, 50, by=job.call("cudaLaunchKernel", 20, 25, inside=step))

is a rank with one linked node and a kernel under it; `written` is the file made of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.execution_trace import NEWEST, Node, as_json
from builders.job import JobBuilder
from tracelink.api import write
from tracelink.model.events import EventKind, Key, Relation, Track, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.plugins import Output


@dataclass
class TracedJob(JobBuilder):
    """Ranks with an execution trace and a profile; times are microseconds."""

    unit: int = 1000
    version: str = NEWEST

    def node(self, node: Node, operator: int | None = None, *, rank: int = 0) -> int:
        """A node of the execution trace, the same as `operator`; returns its row."""
        track = self._known(Track(TrackKind.NODES, "100", str(node.thread), "", rank))
        keys: dict[Key, int | str] = {Key.NODE_ID: node.id, Key.LOGICAL_THREAD: node.thread}
        keys |= {Key.NODE_PARENT: node.parent} if node.parent != node.id else {}
        row = self.add(track, node.name, None, -1, EventKind.NODE, as_json(node, self.version), keys)
        if operator is not None:
            self.edge(row, Relation.SAME, operator)
        return row

    def op(self, *args: Any, node: Node | None = None, **more: Any) -> int:
        """Something on a thread, with its node if it has one."""
        row = super().op(*args, **more)
        if node is not None:
            self.node(node, row, rank=more.get("rank", 0))
        return row


def written(graph: EventGraph, folder: Path) -> tuple[dict[str, Any], Output]:
    """The file of a graph of one rank, and what the writer says of it."""
    (output,) = write(graph, folder / "rank.et.json", to="chakra-json", jobs=1)
    return json.loads(Path(output.path).read_bytes()), output


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The one node of this name."""
    (found,) = (node for node in document["nodes"] if node["name"] == name)
    return found
