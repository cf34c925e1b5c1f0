"""Chakra `.et` files, in a few readable lines, and what can be wrong with them.

    trace = EtFile(rank=0)
    gemm = trace.compute("gemm")
    trace.collective(ALL_REDUCE, 4096, after=[gemm])
    trace.save(folder)                   # folder/job.0.et
    gemm.data_deps.append(99)            # a fault: messages are plain protobuf messages

A file is clean unless something is done to it: it says its version and how many nodes it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.io.framing import framed

DURATION = 10


@dataclass
class EtFile:
    """The trace of one rank."""

    rank: int = 0
    nodes: list[Node] = field(default_factory=list)
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further attributes: `{"world_size": {"uint64_val": 8}}`."""
    version: str = "1.0.0"
    counted: bool = True
    """Whether the metadata say how many nodes there are."""

    def node(self, kind: NodeType, name: str, after: Iterable[Node] = (), **attributes: Any) -> Node:
        """A node of any type; an attribute is `name=(field, value)`."""
        node = Node(id=len(self.nodes) + 1, name=name, type=int(kind), duration_micros=DURATION)
        node.data_deps.extend(other.id for other in after)
        for attribute, (kind_of_value, value) in ({"is_cpu_op": ("bool_val", False)} | attributes).items():
            put(node, attribute, kind_of_value, value)
        self.nodes.append(node)
        return node

    def compute(self, name: str = "gemm", after: Iterable[Node] = ()) -> Node:
        """A kernel."""
        return self.node(NodeType.COMP, name, after)

    def collective(
        self,
        kind: CollectiveType = CollectiveType.ALL_REDUCE,
        size: int = 4096,
        group: str | None = None,
        after: Iterable[Node] = (),
    ) -> Node:
        """A collective of a group, or of all ranks."""
        told = {"comm_type": ("int64_val", int(kind)), "comm_size": ("int64_val", size)}
        named = {"pg_name": ("string_val", group)} if group is not None else {}
        return self.node(NodeType.COMM_COLL, kind.name.lower(), after, **told, **named)

    def send(self, to: int, tag: int = 0, size: int = 64, after: Iterable[Node] = ()) -> Node:
        """A message to a rank."""
        return self.node(NodeType.COMM_SEND, "send", after, **_message(comm_dst=to, tag=tag, size=size))

    def receive(self, source: int, tag: int = 0, size: int = 64, after: Iterable[Node] = ()) -> Node:
        """A message from a rank."""
        return self.node(
            NodeType.COMM_RECV, "receive", after, **_message(comm_src=source, tag=tag, size=size)
        )

    @property
    def messages(self) -> list[bytes]:
        """Every message behind its length, the metadata first."""
        counted = {"nodes": {"uint64_val": len(self.nodes)}} if self.counted else {}
        said = [AttributeProto(name=name, **value) for name, value in (counted | self.metadata).items()]
        metadata = GlobalMetadata(version=self.version, attr=said)
        return [framed(message.SerializeToString()) for message in (metadata, *self.nodes)]

    def save(self, folder: Path, content: bytes | None = None) -> Path:
        """Writes `folder/job.<rank>.et`, or other bytes in its place."""
        path = folder / f"job.{self.rank}.et"
        path.write_bytes(b"".join(self.messages) if content is None else content)
        return path


def put(node: Node, name: str, kind: str, value: Any) -> None:
    """Gives a node an attribute, in place of what it had."""
    take(node, name)
    lists = kind.endswith("_list")
    attribute = node.attr.add(name=name, **({} if lists else {kind: value}))
    if lists:
        getattr(attribute, kind).values.extend(value)
        getattr(attribute, kind).SetInParent()


def take(node: Node, name: str) -> None:
    """Takes an attribute from a node."""
    kept = [attribute for attribute in node.attr if attribute.name != name]
    del node.attr[:]
    node.attr.extend(kept)


def _message(tag: int, size: int, **peer: int) -> dict[str, tuple[str, int]]:
    ends = {name: ("int32_val", rank) for name, rank in peer.items()}
    return {**ends, "comm_tag": ("int32_val", tag), "comm_size": ("int64_val", size)}
