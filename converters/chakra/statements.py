"""What communication nodes declare, in the terms in which communication is matched across ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, StringTable
from tracelink._model.communications import (
    Communications,
    Statement,
    communications,
    number_in,
    rank_in,
    text_in,
)
from tracelink._model.operations import Operation, item_bytes, operation_of
from tracelink._model.trace import ProcessGroup
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.table import (
    NodeTable,
)

_OPERATION_OF_TYPE = {int(number): operation.value for operation, number in schema.TYPE_OF_OPERATION.items()}
_OPERATION_OF_TYPE[schema.CollectiveType.REDUCE_SCATTER_BLOCK] = Operation.REDUCE_SCATTER.value
_OPERATION_OF_NODE = {
    schema.NodeType.COMM_SEND: Operation.SEND.value,
    schema.NodeType.COMM_RECV: Operation.RECV.value,
}
_ALL_RANKS = "0"
"""The name of the group of all ranks for simulators; nodes may leave it out."""
_BYTE = "Byte"


class Groups(Struct, frozen=True):
    """The process groups in the metadata."""

    by_number: Mapping[str, ProcessGroup]
    """By the number with which nodes name them."""
    world_size: int = 0

    def name(self, number: str) -> str:
        """The name of a group; its number if it is not listed."""
        known = self.by_number.get(number or _ALL_RANKS)
        return known.name if known else number or _ALL_RANKS

    def size(self, number: str) -> int:
        """The number of ranks of a group; 0 if unknown."""
        known = self.by_number.get(number or _ALL_RANKS)
        if known and known.size:
            return known.size
        return self.world_size if number in ("", _ALL_RANKS) else 0


def communications_of(
    nodes: NodeTable, groups: Groups, rank: int | None, strings: StringTable
) -> Communications:
    """One row for each communication node."""
    communicates = nodes.of_type(*schema.COMMUNICATION)
    rows = np.flatnonzero(communicates).tolist()
    attributes: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for name in schema.Name:
        attribute = nodes.attribute(name)
        for row, value in attribute.items(np.flatnonzero(communicates[attribute.rows])):
            attributes[row][name] = value
    statements = [_statement(schema.NodeType(nodes.type[row]), attributes[row], groups, rank) for row in rows]
    return communications(rows, statements, strings)


def _statement(
    kind: schema.NodeType, attributes: Mapping[str, Any], groups: Groups, rank: int | None
) -> Statement:
    number = text_in(attributes.get(schema.Name.GROUP)).strip()
    statement = Statement(
        _operation(kind, attributes),
        group=text_in(attributes.get(schema.Name.GROUP_NAME)) or groups.name(number),
        sequence=number_in(attributes.get(schema.Name.COLLECTIVE_SEQUENCE)),
        point_to_point=kind != schema.NodeType.COMM_COLL,
        global_ranks=True,
        size=groups.size(number) or UNKNOWN,
    )
    _name_ranks(statement, kind, attributes, rank)
    _count_elements(statement, attributes)
    return statement


def _operation(kind: schema.NodeType, attributes: Mapping[str, Any]) -> str:
    if kind in _OPERATION_OF_NODE:
        return _OPERATION_OF_NODE[kind]
    if name := text_in(attributes.get(schema.Name.OPERATION)):
        return name
    number = attributes.get(schema.Name.COMM_TYPE)
    if type(number) is not int:
        return ""
    return _OPERATION_OF_TYPE.get(number, f"{schema.Name.COMM_TYPE} {number}")


def _name_ranks(
    statement: Statement, kind: schema.NodeType, attributes: Mapping[str, Any], rank: int | None
) -> None:
    own = UNKNOWN if rank is None else rank
    if kind == schema.NodeType.COMM_COLL:
        statement.source = rank_in(attributes.get(schema.Name.ROOT))
        return
    source, target = (
        rank_in(attributes.get(schema.Name.COMM_SOURCE)),
        rank_in(attributes.get(schema.Name.COMM_TARGET)),
    )
    sends = kind == schema.NodeType.COMM_SEND
    statement.source = own if sends and source == UNKNOWN else source
    statement.target = own if not sends and target == UNKNOWN else target
    statement.tag = number_in(attributes.get(schema.Name.COMM_TAG))


def _count_elements(statement: Statement, attributes: Mapping[str, Any]) -> None:
    """Counts elements of the recorded type; bytes if it is unknown."""
    bytes_in, bytes_out = (
        number_in(attributes.get(schema.Name.BYTES_IN)),
        number_in(attributes.get(schema.Name.BYTES_OUT)),
    )
    if bytes_in == bytes_out == UNKNOWN:
        bytes_in, bytes_out = _bytes_in_and_out(statement, number_in(attributes.get(schema.Name.COMM_SIZE)))
    statement.type = text_in(attributes.get(schema.Name.ELEMENT_TYPE))
    width = item_bytes(statement.type)
    sizes = max(bytes_in, 0), max(bytes_out, 0)
    if any(sizes) and (width is None or any(size % width for size in sizes)):
        statement.type, width = _BYTE, 1
    statement.elements_in, statement.elements_out = (
        count if count <= 0 or width is None else count // width for count in (bytes_in, bytes_out)
    )


def _bytes_in_and_out(statement: Statement, size: int) -> tuple[int, int]:
    """The bytes that a rank contributes and receives, from the size for simulators: what one rank contributes."""
    members = statement.size
    match operation_of(statement.operation):
        case Operation.ALL_GATHER:
            return size, size * members if UNKNOWN not in (size, members) else UNKNOWN
        case Operation.REDUCE_SCATTER:
            return size, size // members if UNKNOWN not in (size, members) else UNKNOWN
        case Operation.SCATTER:
            return UNKNOWN, size
        case Operation.GATHER:
            return size, UNKNOWN
        case Operation.BARRIER:
            return UNKNOWN, UNKNOWN
    return size, size


def groups_in(described: Any) -> dict[str, ProcessGroup]:
    """The groups in the object of the metadata: number to name, description and ranks."""
    found: dict[str, ProcessGroup] = {}
    for number, group in (described if isinstance(described, dict) else {}).items():
        if not isinstance(group, dict):
            continue
        ranks = _ranks(group.get("ranks"))
        name = text_in(group.get("name")) or text_in(number)
        found[number] = ProcessGroup(name, text_in(group.get("description")), ranks, len(ranks))
    return found


def _ranks(listed: Any) -> tuple[int, ...]:
    ranks: Sequence[int] = [rank_in(rank) for rank in listed] if isinstance(listed, list) else []
    return () if UNKNOWN in ranks else tuple(ranks)
