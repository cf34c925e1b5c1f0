"""Jobs to write as Chakra traces, in a few readable lines.

    job = TracedJob()
    step = job.op("step", 0, 100, node=node(5, "step"))
    job.work("gemm", 40, 50, by=job.call("cudaLaunchKernel", 20, 25, inside=step))

is a rank with one linked node and a kernel under it; `written` is the file made of it, and

    trace = only(job.build(), tmp_path, variant="astra-sim")
    trace.waits("gemm")      # names of what it waits for, in the order of the file
    trace.inside("gemm")     # what encloses it, or put it on a device
    trace.attributes_of("gemm")       # its attributes

what `--to chakra` wrote, read again: nodes by their names, and checked for what must hold of every file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.execution_trace import NEWEST, Node, as_json
from builders.inputs import reasons
from builders.job import JobBuilder
from tracelink._api.functions import merge
from tracelink._model.events import EventKind, Key, Relation, Track, TrackKind
from tracelink._model.graph import EventGraph
from tracelink.converters.chakra.decode import Decoded, decode
from tracelink.converters.chakra.schema import COMMUNICATION, Kind, NodeType
from tracelink.converters.chakra.table import Links
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
    (output,) = merge(graph, folder / "rank.et.json", to="chakra-json", jobs=1).outputs
    return json.loads(Path(output.path).read_bytes()), output


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (node for node in document["nodes"] if node["name"] == name)
    return found


# Files that were written, read again.


INTEGERS = ("comm_type", "comm_size", "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "stream")
KINDS_OF_FEEDERS = {
    **dict.fromkeys(INTEGERS, "INT64"),
    **dict.fromkeys(("comm_src", "comm_dst", "comm_tag"), "INT32"),
    **dict.fromkeys(("pg_name", "op_schema"), "STRING"),
    "is_cpu_op": "BOOL",
}
"""What both generations of feeders read."""


@dataclass(frozen=True)
class EtTrace:
    """A file."""

    decoded: Decoded
    output: Output | None = None

    @classmethod
    def read(cls, path: str | Path, output: Output | None = None) -> EtTrace:
        """A file, decoded and checked for what must hold of every one."""
        trace = cls(decode(io.BytesIO(Path(path).read_bytes())), output)
        trace.check()
        return trace

    @property
    def names(self) -> list[str]:
        """The names of all nodes, in the order of the file."""
        return [self.decoded.nodes.text(row) for row in range(len(self.decoded.nodes))]

    @property
    def reasons(self) -> dict[str, int]:
        """What the writer says of the file."""
        return reasons(self.output)

    def waits(self, name: str) -> list[str]:
        """Data dependencies of the one node of this name, by name."""
        return self._named(self.decoded.nodes.data, name)

    def inside(self, name: str) -> list[str]:
        """Control dependencies of that node."""
        return self._named(self.decoded.nodes.control, name)

    def attributes_of(self, name: str) -> dict[str, Any]:
        return self.attributes(self.row(name))

    def attributes(self, row: int) -> dict[str, Any]:
        found = {}
        for attribute, column in self.decoded.nodes.attributes.items():
            for owner, value in zip(column.rows.tolist(), column.values, strict=True):
                if owner == row:
                    found[attribute] = value
        return found

    def type(self, name: str) -> NodeType:
        return NodeType(int(self.decoded.nodes.type[self.row(name)]))

    def times(self, name: str) -> tuple[int, int]:
        """Start and duration of that node, in microseconds."""
        row = self.row(name)
        return int(self.decoded.nodes.start[row]), int(self.decoded.nodes.duration[row])

    def row(self, name: str) -> int:
        (found,) = (row for row, text in enumerate(self.names) if text == name)
        return found

    def communication(self) -> list[tuple[str, int, int, str]]:
        """Type, kind, bytes and group of every communication, in the order of the file."""
        nodes = self.decoded.nodes
        rows = [row for row in range(len(nodes)) if nodes.type[row] in COMMUNICATION]
        kinds, sizes = (nodes.attribute(name).integers(len(nodes), -1) for name in ("comm_type", "comm_size"))
        groups = nodes.attribute("pg_name").strings(len(nodes))
        return [
            (NodeType(int(nodes.type[row])).name, int(kinds[row]), int(sizes[row]), groups[row])
            for row in rows
        ]

    def check(self) -> None:
        """What must hold of every file."""
        nodes, count = self.decoded.nodes, len(self.decoded.nodes)
        assert self.decoded.faults == []
        assert self.decoded.metadata_value("nodes") == count
        assert nodes.id.tolist() == list(range(1, count + 1))
        assert all(self.names)
        for links in (nodes.data, nodes.control):
            lists = [links[row] for row in range(count)]
            assert all(number < row + 1 for row, numbers in enumerate(lists) for number in numbers)
            assert all(numbers == sorted(set(numbers)) for numbers in lists)
            assert all(
                nodes.start[number - 1] <= nodes.start[row]
                for row, numbers in enumerate(lists)
                for number in numbers
            )
        assert set(nodes.type.tolist()) <= {NodeType.COMP, *COMMUNICATION}
        host = nodes.on_host()
        assert not host[nodes.of_type(*COMMUNICATION)].any()
        assert len(nodes.attribute("is_cpu_op")) == count
        for name, kind in KINDS_OF_FEEDERS.items():
            kinds = nodes.attribute(name).kinds
            assert {Kind(number).name for number in kinds.tolist()} <= {kind}, name

    def _named(self, links: Links, name: str) -> list[str]:
        return [self.names[number - 1] for number in links[self.row(name)]]


def traces(graph: EventGraph, folder: Path, **options: str) -> dict[int, EtTrace]:
    outputs = merge(graph, folder / "job", to="chakra", options=options, jobs=1).outputs
    return {output.rank: EtTrace.read(output.path, output) for output in outputs if output.rank is not None}


def only(graph: EventGraph, folder: Path, **options: str) -> EtTrace:
    (trace,) = traces(graph, folder, **options).values()
    return trace


def groups(folder: Path) -> Mapping[str, list[int]]:
    """The process groups, which are in a file next to the traces."""
    found: Mapping[str, list[int]] = json.loads((folder / "job.groups.json").read_bytes())
    return found
