"""Nodes and attributes that only protobuf understands: newer fields, rare kinds, and what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.batch_attributes import Part
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, Node
from tracelink.converters.chakra.schema import Kind
from tracelink.converters.chakra.values import kind_and_value
from tracelink.wire import varint

ATTRIBUTE_TAG = b"\x52"

Said = tuple[str, Kind, Any]


@dataclass(slots=True)
class JudgedAttributes:
    """Attributes by name and kind."""

    _columns: dict[tuple[str, Kind], tuple[list[int], list[int], list[Any]]] = field(default_factory=dict)
    _known: dict[bytes, Said | None] = field(default_factory=dict)

    def read(self, row: int, place: int, body: bytes) -> bool:
        """Keeps an attribute of a node, and says whether it is one."""
        if body not in self._known:
            node = message_of(ATTRIBUTE_TAG + varint(len(body)) + body)
            self._known[body] = _said(node.attr[0]) if node else None
        if not (said := self._known[body]):
            return False
        self._keep(row, place, said)
        return True

    def keep(self, row: int, place: int, attribute: AttributeProto) -> None:
        """Keeps an attribute of a node; `place` is its order among those of the node."""
        self._keep(row, place, _said(attribute))

    def parts(self) -> list[Part]:
        """What was kept."""
        return [
            Part(name, kind, np.array(rows, np.int64), np.array(places, np.int64), values)
            for (name, kind), (rows, places, values) in self._columns.items()
        ]

    def _keep(self, row: int, place: int, said: Said) -> None:
        name, kind, value = said
        column = self._columns.setdefault((name, kind), ([], [], []))
        for values, one in zip(column, (row, place, value), strict=True):
            values.append(one)


@dataclass(slots=True)
class JudgedNodes:
    """Nodes, one row each."""

    rows: list[int] = field(default_factory=list)
    messages: list[Node] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    attributes: JudgedAttributes = field(default_factory=JudgedAttributes)

    def read(self, row: int, place: int, body: bytes) -> None:
        """Reads the message that is row `row`; its attributes are in order behind `place`."""
        if not (node := message_of(body)) or not body:
            self.failed.append(row)
            return
        self.rows.append(row)
        self.messages.append(node)
        for number, attribute in enumerate(node.attr):
            self.attributes.keep(row, place + number, attribute)


def message_of(body: bytes) -> Node | None:
    """The bytes as a node, where they are one."""
    try:
        return Node.FromString(body)
    except DecodeError:
        return None


def _said(attribute: AttributeProto) -> Said:
    return attribute.name, *kind_and_value(attribute)
