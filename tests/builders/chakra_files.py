"""Chakra `.et` files, in a few readable lines, and what can be wrong with them.

    trace = EtFile(rank=0)
    gemm = trace.compute("gemm")
    trace.collective(ALL_REDUCE, 4096, after=[gemm])
    trace.save(folder)                   # folder/job.0.et
    gemm.data_deps.append(99)            # a fault: messages are plain protobuf messages

A file is clean unless something is done to it: it says its version and how many nodes it has. `file` makes the bytes of
any messages, and strategies make any messages.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from builders.inputs import held
from tracelink._io.framing import framed
from tracelink._model.selection import View
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.read import ChakraReader
from tracelink.converters.chakra.scene import Box, Scene, Subject, compose
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.validation.files import Groups
from tracelink.converters.chakra.validation.trace import Trace

# Messages, and files of any messages.


as_source = held("job.0.et")
Given = tuple[str, Any]
"""The field of an attribute, and its value."""


def attributes(given: Mapping[str, Given]) -> list[AttributeProto]:
    return [
        AttributeProto(name=name, **{kind: {"values": value} if kind.endswith("_list") else value})
        for name, (kind, value) in given.items()
    ]


def metadata(version: str = "1.0.0", **given: Given) -> GlobalMetadata:
    return GlobalMetadata(version=version, attr=attributes(given))


def node(identity: int, name: str = "op", kind: str | int = "COMP_NODE", /, **more: Any) -> Node:
    """A node; `(field, value)` is an attribute, everything else a field of the node."""
    given = {key: value for key, value in more.items() if isinstance(value, tuple)}
    fields = {key: value for key, value in more.items() if key not in given}
    return Node(id=identity, name=name, type=kind, attr=attributes(given), **fields)


def host(identity: int, name: str = "op", /, **more: Any) -> Node:
    return node(identity, name, **{"is_cpu_op": ("bool_val", True)} | more)


def put(node: Node, name: str, kind: str, value: Any) -> None:
    """Gives a node an attribute, in place of what it had."""
    take(node, name)
    node.attr.extend(attributes({name: (kind, value)}))


def take(node: Node, name: str) -> None:
    kept = [attribute for attribute in node.attr if attribute.name != name]
    del node.attr[:]
    node.attr.extend(kept)


def file(*messages: GlobalMetadata | Node | bytes) -> bytes:
    """Messages, or bytes in place of one, each behind its length."""
    return b"".join(
        framed(message if isinstance(message, bytes) else message.SerializeToString()) for message in messages
    )


def read(*messages: GlobalMetadata | Node | bytes) -> RankTrace:
    return ChakraReader().read(as_source(file(*messages)), Processes())


def nodes_read(*nodes: Node) -> RankTrace:
    return read(metadata(), *nodes)


# Files of ranks.


DURATION = 10
BEGIN = 1_700_000_000_000_000
"""When drawn traces begin: microseconds since 1970."""


@dataclass
class EtFile:
    """The trace of one rank."""

    rank: int = 0
    nodes: list[Node] = field(default_factory=list)
    metadata: dict[str, Given] = field(default_factory=dict)
    """Further attributes: `{"world_size": ("uint64_val", 8)}`."""
    version: str = "1.0.0"
    counted: bool = True
    """Whether the metadata say how many nodes there are."""

    def node(self, kind: NodeType, name: str, after: Iterable[Node] = (), **given: Given) -> Node:
        """A node of any type, with these attributes."""
        known = {"is_cpu_op": ("bool_val", False)} | given
        causes = [other.id for other in after]
        made = node(len(self.nodes) + 1, name, int(kind), duration_micros=DURATION, data_deps=causes, **known)
        self.nodes.append(made)
        return made

    def compute(self, name: str = "gemm", after: Iterable[Node] = ()) -> Node:
        return self.node(NodeType.COMP, name, after)

    def operator(
        self, name: str, start: int, duration: int, inside: Node | None = None, thread: int = 1
    ) -> Node:
        """Something on the host; times are microseconds after the beginning."""
        made = self.kernel(name, start, duration, inside)
        put(made, "is_cpu_op", "bool_val", True)
        put(made, "tid", "int64_val", thread)
        return made

    def kernel(
        self, name: str, start: int, duration: int, cause: Node | None = None, stream: int | None = None
    ) -> Node:
        """Something on the device, and what launched it."""
        made = self.compute(name)
        made.start_time_micros, made.duration_micros = BEGIN + start, duration
        if cause is not None:
            made.ctrl_deps.append(cause.id)
        if stream is not None:
            put(made, "stream", "int64_val", stream)
        return made

    def collective(
        self,
        kind: CollectiveType = CollectiveType.ALL_REDUCE,
        size: int = 4096,
        group: str | None = None,
        after: Iterable[Node] = (),
    ) -> Node:
        known: dict[str, Given] = {"comm_type": ("int64_val", int(kind)), "comm_size": ("int64_val", size)}
        named: dict[str, Given] = {"pg_name": ("string_val", group)} if group is not None else {}
        return self.node(NodeType.COMM_COLL, kind.name.lower(), after, **known, **named)

    def send(self, to: int, tag: int = 0, size: int = 64, after: Iterable[Node] = ()) -> Node:
        return self.node(NodeType.COMM_SEND, "send", after, **_message("comm_dst", to, tag, size))

    def receive(self, source: int, tag: int = 0, size: int = 64, after: Iterable[Node] = ()) -> Node:
        return self.node(NodeType.COMM_RECV, "receive", after, **_message("comm_src", source, tag, size))

    @property
    def messages(self) -> list[bytes]:
        """Every message behind its length, the metadata first."""
        counted: dict[str, Given] = {"nodes": ("uint64_val", len(self.nodes))} if self.counted else {}
        first = metadata(self.version, **counted | self.metadata)
        return [file(message) for message in (first, *self.nodes)]

    @property
    def content(self) -> bytes:
        return b"".join(self.messages)

    def save(self, folder: Path, content: bytes | None = None) -> Path:
        """Writes `folder/job.<rank>.et`, or other bytes in its place."""
        path = folder / f"job.{self.rank}.et"
        path.write_bytes(self.content if content is None else content)
        return path


def _message(peer: str, rank: int, tag: int, size: int) -> dict[str, Given]:
    ends = {peer: ("int32_val", rank)}
    return {**ends, "comm_tag": ("int32_val", tag), "comm_size": ("int64_val", size)}


def trace_of(file: EtFile, groups: Mapping[int, Sequence[int]]) -> Trace:
    """The trace of one rank as rules see it."""
    return Trace(f"job.{file.rank}.et", file.rank, Groups(groups), decode(io.BytesIO(file.content)))


# Files as they are drawn.


def nodes_of(trace: EtFile) -> NodeTable:
    return decode(io.BytesIO(trace.content)).nodes


def scene_of(*traces: EtFile, **view: Any) -> Scene:
    """What is drawn; of several traces, by their ranks."""
    several = len(traces) > 1
    subjects = [
        Subject(f"job.{trace.rank}.et", nodes_of(trace), trace.rank if several else None) for trace in traces
    ]
    return compose(subjects, View(**view))


def box_of(scene: Scene, name: str) -> Box:
    (box,) = [box for box in scene.boxes if box.name == name]
    return box


def arrows(scene: Scene) -> set[tuple[str, str, str]]:
    """The arrows, by the names of what they join, and their relation."""
    return {
        (
            scene.boxes[arrow.cause].name,
            scene.boxes[arrow.effect].name,
            " ".join(["data"] * arrow.data + ["control"] * arrow.control),
        )
        for arrow in scene.arrows
    }


# Arbitrary messages.


def _bits(bits: int, kind: str) -> float:
    value: float = struct.unpack(kind, bits.to_bytes(struct.calcsize(kind), "little"))[0]
    return value


FIELDS = sorted(field.name for field in AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
UINT64, UINT32 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
INT64, INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats() | UINT64.map(lambda bits: _bits(bits, "<d")),
    "float": st.floats(width=32) | UINT32.map(lambda bits: _bits(bits, "<f")),
    "bool": st.booleans(),
    "string": TEXTS,
    "bytes": st.binary(max_size=8),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), INT64 | st.just(0)),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), INT32 | st.just(0)),
    **dict.fromkeys(("uint64", "fixed64"), UINT64 | st.just(0)),
    **dict.fromkeys(("uint32", "fixed32"), UINT32 | st.just(0)),
}


@st.composite
def arbitrary_attributes(draw: st.DrawFn) -> AttributeProto:
    """An attribute of any kind, or without a value."""
    name, said = draw(TEXTS), draw(TEXTS)
    field = draw(st.none() | st.sampled_from(FIELDS))
    if field is None:
        return AttributeProto(name=name, doc_string=said)
    values = SCALARS[field.partition("_")[0]]
    value = draw(st.lists(values, max_size=3) if field.endswith("_list") else values)
    (attribute,) = attributes({name: (field, value)})
    attribute.doc_string = said
    return attribute


ATTRIBUTES = st.lists(arbitrary_attributes(), max_size=4)
TENSORS = st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys(("values", "shapes", "types"), TEXTS))
METADATA = st.builds(lambda version, attr: GlobalMetadata(version=version, attr=attr), TEXTS, ATTRIBUTES)
NODES = st.builds(
    Node,
    id=UINT64,
    name=TEXTS,
    type=INT32 | st.integers(0, 8),
    ctrl_deps=st.lists(UINT64, max_size=2),
    data_deps=st.lists(UINT64, max_size=3),
    start_time_micros=UINT64,
    duration_micros=UINT64,
    inputs=TENSORS,
    outputs=TENSORS,
    attr=ATTRIBUTES,
)
