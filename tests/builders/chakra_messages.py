"""Arbitrary Chakra messages, and the bytes of files as inputs."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from builders.inputs import held
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from tracelink.converters.chakra.read import ChakraReader
from tracelink.engines.processes import Processes
from tracelink.io.framing import framed
from tracelink.model.trace import RankTrace

as_source = held("job.0.et")
FIELDS = {field.name: field for field in AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields}

Given = Mapping[str, tuple[str, Any]]


def attributes(given: Given) -> list[AttributeProto]:
    """Attributes by name, each `(field, value)`."""
    return [AttributeProto(name=name, **{field: value}) for name, (field, value) in given.items()]


def metadata(version: str = "1.0.0", **given: tuple[str, Any]) -> GlobalMetadata:
    """The first message of a file."""
    return GlobalMetadata(version=version, attr=attributes(given))


def node(identity: int, name: str = "op", kind: str = "COMP_NODE", /, **more: Any) -> Node:
    """A node; `(field, value)` is an attribute, everything else a field of the node."""
    given = {key: value for key, value in more.items() if isinstance(value, tuple)}
    fields = {key: value for key, value in more.items() if key not in given}
    return Node(id=identity, name=name, type=kind, attr=attributes(given), **fields)


def host(identity: int, name: str = "op", /, **more: Any) -> Node:
    """An operator."""
    return node(identity, name, **{"is_cpu_op": ("bool_val", True)} | more)


def file(*messages: GlobalMetadata | Node | bytes) -> bytes:
    """Messages, or bytes in place of one, each behind its length."""
    return b"".join(
        framed(message if isinstance(message, bytes) else message.SerializeToString()) for message in messages
    )


def read(*messages: GlobalMetadata | Node | bytes) -> RankTrace:
    """What the reader makes of a file of these messages."""
    return ChakraReader().read(as_source(file(*messages)), Processes())


def nodes_read(*nodes: Node) -> RankTrace:
    """What the reader makes of these nodes."""
    return read(metadata(), *nodes)


def _bits(bits: int, kind: str) -> float:
    value: float = struct.unpack(kind, bits.to_bytes(struct.calcsize(kind), "little"))[0]
    return value


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
    attribute = AttributeProto(name=draw(TEXTS), doc_string=draw(TEXTS))
    field = draw(st.none() | st.sampled_from(sorted(FIELDS)))
    if field is None:
        return attribute
    values = SCALARS[field.partition("_")[0]]
    if field.endswith("_list"):
        getattr(attribute, field).SetInParent()
        getattr(attribute, field).values.extend(draw(st.lists(values, max_size=3)))
    else:
        setattr(attribute, field, draw(values))
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


def bodies(messages: Iterable[GlobalMetadata | Node]) -> list[bytes]:
    """The bytes of messages."""
    return [message.SerializeToString(deterministic=True) for message in messages]
