"""Pieces of the node array as columns: by position where nodes are as usual, else by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.execution_trace.schema import (
    ATTRIBUTES_MARK,
    COLUMNS,
    COMMUNICATION,
    DEBUG,
    MISSING_COMMUNICATION,
    PROCESS_GROUPS,
    USUAL_PLACES,
    Attribute,
    FlatNode,
    Node,
)
from tracelink.events import Int64s

USUAL = msgspec.json.Decoder(list[Node])
FLAT = msgspec.json.Decoder(list[FlatNode])
TEXTS = msgspec.json.Decoder(list[msgspec.Raw])

ID, PARENT = "id", "parent"


@dataclass(slots=True)
class Piece:
    """The nodes of one piece; `place` is each node's number among the elements of the piece."""

    columns: dict[str, Int64s]
    names: list[str]
    place: Int64s
    elements: int
    group_nodes: list[Mapping[str, Any]] = field(default_factory=list)
    """The nodes that list process groups, as they stand in the file."""
    without_communication: int = 0
    """Communications that the observer could not describe."""


def decode(text: memoryview) -> Piece:
    """A piece that is valid JSON; raises `ValidationError` where a node is not as it should be."""
    piece = _decode_usual(text) if ATTRIBUTES_MARK.search(text) else _decode_flat(text)
    if PROCESS_GROUPS in piece.names:
        texts = TEXTS.decode(bytes(text))
        places = [place for place, name in enumerate(piece.names) if name == PROCESS_GROUPS]
        piece.group_nodes = [msgspec.json.decode(texts[place]) for place in places]
    return piece


def _decode_usual(text: memoryview) -> Piece:
    nodes = USUAL.decode(text)
    names = [node.name for node in nodes]
    piece = _piece(nodes, names, _attributes([node.attributes for node in nodes]))
    if COMMUNICATION in names:
        communications = compress(nodes, [name == COMMUNICATION for name in names])
        piece.without_communication = _undescribed(_as_mapping(node.attributes) for node in communications)
    return piece


def _decode_flat(text: memoryview) -> Piece:
    nodes = FLAT.decode(text)
    columns = {name: int64s(list(map(attrgetter(name), nodes))) for name in COLUMNS}
    return _piece(nodes, [node.name for node in nodes], columns)


def _piece(nodes: Sequence[Node] | Sequence[FlatNode], names: list[str], columns: dict[str, Int64s]) -> Piece:
    columns[ID] = int64s([node.id for node in nodes])
    columns[PARENT] = int64s([node.parent for node in nodes])
    return Piece(columns, names, np.arange(len(names)), len(names))


def convert(values: list[Any]) -> Piece:
    """Nodes that only a lenient parser could read; what has no id is no node."""
    places, rows, names, attributes, groups = [], [], [], [], []
    for place, value in enumerate(values):
        number = whole(value.get(ID)) if isinstance(value, dict) else None
        if number is None:
            continue
        places.append(place)
        rows.append((number, _parent(value)))
        names.append(_text(value.get("name") or ""))
        attributes.append(_named(value))
        if names[-1] == PROCESS_GROUPS:
            groups.append(value)
    columns = _by_name(attributes)
    columns[ID] = int64s([number for number, _ in rows])
    columns[PARENT] = int64s([parent for _, parent in rows])
    return Piece(columns, names, np.array(places, np.int64), len(values), groups, _undescribed(attributes))


def int64s(numbers: Sequence[Any]) -> Int64s:
    """A column of ids; ids of 64 unsigned bits wrap, so that they stay distinct."""
    try:
        return np.fromiter(numbers, np.int64, len(numbers))
    except OverflowError:
        wrapped = [int(number) & 0xFFFF_FFFF_FFFF_FFFF for number in numbers]
        return np.array(wrapped, np.uint64).astype(np.int64)


def whole(value: Any) -> int | None:
    """A whole number, also where it is given as text."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _attributes(attributes: Sequence[Sequence[Attribute]]) -> dict[str, Int64s]:
    try:
        columns = _by_place(attributes)
    except (IndexError, TypeError, ValueError):
        columns = None
    return columns or _by_name([_as_mapping(items) for items in attributes])


def _as_mapping(attributes: Iterable[Attribute]) -> dict[str, Any]:
    return {item.name: item.value for item in attributes}


def _by_place(attributes: Sequence[Sequence[Attribute]]) -> dict[str, Int64s] | None:
    columns = {}
    for name, place in USUAL_PLACES.items():
        items = [items[place] for items in attributes]
        if [item.name for item in items].count(name) != len(items):
            return None
        columns[name] = int64s([item.value for item in items])
    return columns


def _by_name(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Int64s]:
    columns = {}
    for name, default in COLUMNS.items():
        numbers = [whole(items.get(name)) for items in attributes]
        columns[name] = int64s([default if number is None else number for number in numbers])
    return columns


def _undescribed(attributes: Iterable[Mapping[str, Any]]) -> int:
    return sum(items.get(DEBUG) == MISSING_COMMUNICATION for items in attributes)


def _named(value: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes = value.get("attrs")
    if not isinstance(attributes, list):
        return value
    return {
        item["name"]: item.get("value")
        for item in attributes
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }


def _parent(value: Mapping[str, Any]) -> int:
    parent = value.get("ctrl_deps", value.get(PARENT))
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    return whole(parent) or 0


def _text(value: Any) -> str:
    """A text that can be written as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()
