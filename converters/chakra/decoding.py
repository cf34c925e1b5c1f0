"""The bytes of an `.et` file to columns, and what is wrong with the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, Node
from tracelink.converters.chakra.framing import Frame, FramingError, frames
from tracelink.converters.chakra.schema import Kind
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, signed
from tracelink.strings import StringTable

FIELD_OF_KIND = {kind: f"{kind.name.lower()}{'' if kind.name.endswith('_LIST') else '_val'}" for kind in Kind}
KIND_OF_FIELD = {name: kind for kind, name in FIELD_OF_KIND.items()}
LISTS = frozenset(name for name in KIND_OF_FIELD if name.endswith("_list"))
LARGEST_TYPE = 255


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes that are not as they must be."""

    reason: str
    message: str
    offset: int
    node: int | None = None
    """The id of the node, where there is one."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file: what it says of itself, its nodes, and what is wrong with its bytes."""

    metadata: GlobalMetadata
    nodes: NodeTable
    offsets: list[int]
    """Where each node's message begins in the file."""
    faults: list[Fault] = field(default_factory=list)

    def said(self, name: str) -> Any:
        """An attribute of the metadata, or None."""
        for attribute in self.metadata.attr:
            if attribute.name == name:
                return value_of(attribute)
        return None


class _Columns:
    """Collects nodes."""

    def __init__(self) -> None:
        self.names = StringTable()
        self.id: list[int] = []
        self.name: list[int] = []
        self.type: list[int] = []
        self.start: list[int] = []
        self.duration: list[int] = []
        self.data: list[list[int]] = []
        self.control: list[list[int]] = []
        self.attributes: dict[str, tuple[list[int], list[Any], list[int]]] = {}

    def add(self, node: Node) -> None:
        row = len(self.id)
        self.id.append(node.id)
        self.name.append(self.names[node.name])
        self.type.append(min(max(node.type, 0), LARGEST_TYPE))
        self.start.append(node.start_time_micros)
        self.duration.append(node.duration_micros)
        self.data.append(list(node.data_deps))
        self.control.append(list(node.ctrl_deps))
        for attribute in node.attr:
            name, field_name = attribute.name, attribute.WhichOneof("value")
            column = self.attributes.get(name) or self.attributes.setdefault(name, ([], [], []))
            column[0].append(row)
            column[1].append(_value(attribute, field_name))
            column[2].append(KIND_OF_FIELD[field_name] if field_name else Kind.NONE)

    def table(self) -> NodeTable:
        attributes = {
            name: Attribute(np.array(rows, np.int64), values, np.array(kinds, np.uint8))
            for name, (rows, values, kinds) in self.attributes.items()
        }
        return NodeTable(
            signed(self.id),
            np.array(self.name, np.int32),
            np.array(self.type, np.uint8),
            signed(self.start),
            signed(self.duration),
            Links.of(self.data),
            Links.of(self.control),
            self.names.texts(),
            attributes,
        )


def decode(stream: BinaryIO) -> Decoded:
    """A whole file. What cannot be read is a fault, and ends the reading only where no further message is found."""
    columns = _Columns()
    offsets, faults = list[int](), list[Fault]()
    messages = _frames(stream, faults)
    metadata = _metadata(next(messages, None), faults)
    for frame in messages:
        if node := _node(frame, faults):
            columns.add(node)
            offsets.append(frame.offset)
    return Decoded(metadata, columns.table(), offsets, faults)


def value_of(attribute: AttributeProto) -> Any:
    """The value of an attribute: a number, a text, bytes, or a list of them; None where it has none."""
    return _value(attribute, attribute.WhichOneof("value"))


def _value(attribute: AttributeProto, field_name: str | None) -> Any:
    if field_name is None:
        return None
    value = getattr(attribute, field_name)
    return list(value.values) if field_name in LISTS else value


def _frames(stream: BinaryIO, faults: list[Fault]) -> Iterator[Frame]:
    try:
        yield from frames(stream)
    except FramingError as error:
        faults.append(Fault("broken_off", str(error), error.offset))


def _metadata(frame: Frame | None, faults: list[Fault]) -> GlobalMetadata:
    if frame is None:
        faults.append(Fault("no_metadata", "the file has no first message, which says what it is", 0))
        return GlobalMetadata()
    try:
        return GlobalMetadata.FromString(frame.body)
    except DecodeError:
        faults.append(Fault("unreadable_metadata", "the first message is no GlobalMetadata", frame.offset))
        return GlobalMetadata()


def _node(frame: Frame, faults: list[Fault]) -> Node | None:
    if not frame.body:
        text = f"the message at byte {frame.offset:,} is empty: some readers take it for the end of the file"
        faults.append(Fault("empty_message", text, frame.offset))
        return None
    try:
        return Node.FromString(frame.body)
    except DecodeError:
        text = f"the message at byte {frame.offset:,} is no Node"
        faults.append(Fault("unreadable_node", text, frame.offset))
        return None
