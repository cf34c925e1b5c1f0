"""Nodes of execution traces as columns: decoded by position in the usual layout, else by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import Int64s, StringTable, int64s
from tracelink._model.communications import Communications, Statement, communications
from tracelink.converters.pytorch import ATTRIBUTES_MARK, node_schema
from tracelink.converters.pytorch.node_communication import communicates, statement_of

TEXTS = msgspec.json.Decoder(list[msgspec.Raw])

Nodes = Sequence[node_schema.PositionalNode] | Sequence[node_schema.Node] | Sequence[node_schema.FlatNode]
Named = Mapping[str, Any]
"""A node, or its attributes, by name."""

ID, PARENT = "id", "parent"

_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
"""Of the numbers of 64 bits, signed or unsigned."""


class Piece(Struct):
    """The nodes of one piece; `index` is each node's number among the elements of the piece."""

    columns: dict[str, Int64s]
    names: list[str]
    index: Int64s
    elements: int
    group_nodes: list[Named] = field(default_factory=list)
    """The nodes that list process groups, as decoded JSON."""
    without_communication: int = 0
    """The number of communications that the observer could not describe."""
    statements: list[tuple[int, Statement]] = field(default_factory=list)
    """Statements of nodes on communication, by their row."""


class NodeFormat(Struct, frozen=True):
    """The decoders of nodes; a format that adds fields to nodes has types of its own."""

    by_position: msgspec.json.Decoder[Any]
    by_name: msgspec.json.Decoder[Any]
    flat: msgspec.json.Decoder[Any]
    complete: Callable[[Piece, Sequence[Any]], None] = lambda _, __: None
    """Adds the contents of additional fields to a piece."""
    loose: Callable[[Named], Any] = lambda node: node
    """The additional fields of a node that only a lenient parser could read."""


PLAIN = NodeFormat(
    msgspec.json.Decoder(list[node_schema.PositionalNode]),
    msgspec.json.Decoder(list[node_schema.Node]),
    msgspec.json.Decoder(list[node_schema.FlatNode]),
)


def decode(text: memoryview, format_: NodeFormat = PLAIN) -> Piece:
    """A piece of valid JSON; raises `ValidationError` for a node with unexpected types."""
    piece = (
        _decode_by_position(text, format_) if ATTRIBUTES_MARK.search(text) else _decode_flat(text, format_)
    )
    with_statement = {
        name for name in set(piece.names) if name == node_schema.PROCESS_GROUPS or communicates(name)
    }
    if with_statement:
        rows = [row for row, name in enumerate(piece.names) if name in with_statement]
        _add_details(piece, _nodes_at(text, rows))
    return piece


def _nodes_at(text: memoryview, rows: Iterable[int]) -> dict[int, Named]:
    """The complete nodes in these rows; the texts of all nodes are views of `text`, which end here."""
    texts = TEXTS.decode(text)
    return {row: msgspec.json.decode(texts[row]) for row in rows}


def _add_details(piece: Piece, nodes: Mapping[int, Named]) -> None:
    """Adds groups and statements of nodes, by their row."""
    for row, node in nodes.items():
        if piece.names[row] == node_schema.PROCESS_GROUPS:
            piece.group_nodes.append(node)
        else:
            piece.statements.append((row, statement_of(node, _named(node))))


def _decode_by_position(text: memoryview, format_: NodeFormat) -> Piece:
    try:
        nodes = format_.by_position.decode(text)
    except msgspec.ValidationError:
        return _decode_by_name(text, format_)
    attributes = [node.attrs for node in nodes]
    columns = {
        node_schema.RECORD_FUNCTION: int64s([each.rf_id.value for each in attributes]),
        node_schema.SEQUENCE: int64s([each.seq_id.value for each in attributes]),
        node_schema.SCOPE: int64s([each.scope.value for each in attributes]),
        node_schema.THREAD: int64s([each.tid.value for each in attributes]),
        node_schema.FORWARD_THREAD: int64s([each.fw_tid.value for each in attributes]),
    }
    piece = _piece(nodes, columns, format_)
    if node_schema.MISSING_COMMUNICATION_MARK.search(text):
        piece.without_communication = _decode_by_name(text, format_).without_communication
    return piece


def _decode_by_name(text: memoryview, format_: NodeFormat) -> Piece:
    nodes = format_.by_name.decode(text)
    attributes = [{item.name: item.value for item in node.attrs} for node in nodes]
    piece = _piece(nodes, _by_name(attributes), format_)
    piece.without_communication = _undescribed(attributes)
    return piece


def _decode_flat(text: memoryview, format_: NodeFormat) -> Piece:
    nodes = format_.flat.decode(text)
    columns = {name: int64s(list(map(attrgetter(name), nodes))) for name in node_schema.COLUMNS}
    return _piece(nodes, columns, format_)


def _piece(nodes: Nodes, columns: dict[str, Int64s], format_: NodeFormat) -> Piece:
    columns[ID] = int64s([node.id for node in nodes])
    columns[PARENT] = int64s([node.ctrl_deps or node.parent for node in nodes])
    piece = Piece(columns, [node.name for node in nodes], np.arange(len(nodes)), len(nodes))
    format_.complete(piece, nodes)
    return piece


def convert(values: list[Any], format_: NodeFormat = PLAIN) -> Piece:
    """Nodes that only a lenient parser could read; an element without an id is not a node."""
    indexes, nodes, rows, names, attributes, with_statement = [], [], [], [], [], {}
    for index, value in enumerate(values):
        number = integer_in(value.get(ID)) if isinstance(value, dict) else None
        if number is None:
            continue
        indexes.append(index)
        rows.append((number, _parent(value)))
        names.append(_text(value.get("name") or ""))
        attributes.append(_named(value))
        nodes.append(value)
        if names[-1] == node_schema.PROCESS_GROUPS or communicates(names[-1]):
            with_statement[len(names) - 1] = value
    columns = _by_name(attributes)
    columns[ID] = int64s([number for number, _ in rows])
    columns[PARENT] = int64s([parent for _, parent in rows])
    piece = Piece(columns, names, np.array(indexes, np.int64), len(values))
    piece.without_communication = _undescribed(attributes)
    format_.complete(piece, [format_.loose(node) for node in nodes])
    _add_details(piece, with_statement)
    return piece


def integer_in(value: Any) -> int | None:
    """An integer of 64 bits, also if given as a string; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if _SMALLEST <= number <= _LARGEST else None


def _by_name(attributes: Sequence[Named]) -> dict[str, Int64s]:
    columns = {}
    for name, default in node_schema.COLUMNS.items():
        numbers = [integer_in(items.get(name)) for items in attributes]
        columns[name] = int64s([default if number is None else number for number in numbers])
    return columns


def _undescribed(attributes: Iterable[Named]) -> int:
    return sum(items.get(node_schema.DEBUG) == node_schema.MISSING_COMMUNICATION for items in attributes)


def _named(value: Named) -> Named:
    attributes = value.get("attrs")
    if not isinstance(attributes, list):
        return value
    return {
        item["name"]: item.get("value")
        for item in attributes
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }


def _parent(value: Named) -> int:
    parent = value.get("ctrl_deps", value.get(PARENT))
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    return integer_in(parent) or 0


def _text(value: Any) -> str:
    """A string that can be encoded as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()


# Columns of the node array, collected piece by piece.


NAME, INDEX = "name", "index"
TABLE = (ID, PARENT, *node_schema.COLUMNS, NAME, INDEX)


class NodeColumns(Struct):
    """All nodes of a file."""

    names: StringTable = field(default_factory=StringTable)
    chunks: dict[str, list[Int64s]] = field(default_factory=lambda: {name: [] for name in TABLE})
    group_nodes: list[Mapping[str, Any]] = field(default_factory=list)
    statements: list[tuple[int, Statement]] = field(default_factory=list)
    """Statements of nodes on communication, by their row."""
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """The start of each piece in the file, and its number of elements."""
    nodes: int = 0
    elements: int = 0
    without_communication: int = 0

    def add(self, offset: int, piece: Piece) -> None:
        """Adds one piece."""
        for name, column in piece.columns.items():
            self.chunks[name].append(column)
        self.chunks[NAME].append(self.names.encode(piece.names).astype(np.int64))
        self.chunks[INDEX].append(self.elements + piece.index)
        self.group_nodes += piece.group_nodes
        self.statements += [(self.nodes + row, statement) for row, statement in piece.statements]
        self.nodes += len(piece.names)
        self.offsets.append(offset)
        self.counts.append(piece.elements)
        self.elements += piece.elements
        self.without_communication += piece.without_communication

    def communications(self) -> Communications:
        """The statements as a table."""
        rows, statements = (
            [row for row, _ in self.statements],
            [statement for _, statement in self.statements],
        )
        return communications(rows, statements, self.names)

    def table(self) -> dict[str, Int64s]:
        """The columns of the file, one row for each node."""
        empty = np.empty(0, np.int64)
        return {name: np.concatenate([empty, *chunks]) for name, chunks in self.chunks.items()}
