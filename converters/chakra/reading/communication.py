"""What nodes say of communication, in the terms in which it is matched across ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN, Communications
from tracelink.converters.chakra.schema import (
    COMMUNICATION,
    TYPE_OF_OPERATION,
    CollectiveType,
    Name,
    NodeType,
)
from tracelink.converters.chakra.table import NodeTable
from tracelink.dtypes import item_bytes
from tracelink.operations import Operation, operation_of
from tracelink.statements import Statement, communications, number_in, rank_in, text_in
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup

OPERATION_OF_TYPE = {int(number): operation.value for operation, number in TYPE_OF_OPERATION.items()}
OPERATION_OF_TYPE[CollectiveType.REDUCE_SCATTER_BLOCK] = Operation.REDUCE_SCATTER.value
OPERATION_OF_NODE = {NodeType.COMM_SEND: Operation.SEND.value, NodeType.COMM_RECV: Operation.RECV.value}
EVERYBODY = "0"
"""How simulators call the group of all ranks, which nodes need not name."""
BYTE = "Byte"


@dataclass(frozen=True, slots=True)
class Groups:
    """The process groups that the metadata list, by the number that nodes name them by."""

    by_number: Mapping[str, ProcessGroup]
    world_size: int = 0

    def named(self, number: str) -> str:
        """The name of a group."""
        known = self.by_number.get(number or EVERYBODY)
        return known.name if known else number or EVERYBODY

    def size(self, number: str) -> int:
        """How many ranks a group has; 0 where nobody says it."""
        known = self.by_number.get(number or EVERYBODY)
        if known and known.size:
            return known.size
        return self.world_size if number in ("", EVERYBODY) else 0


def communications_of(
    nodes: NodeTable, groups: Groups, rank: int | None, strings: StringTable
) -> Communications:
    """One row for each node of communication."""
    communicates = nodes.of_type(*COMMUNICATION)
    rows = np.flatnonzero(communicates).tolist()
    said: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for name in Name:
        attribute = nodes.attribute(name)
        for row, value in attribute.told(np.flatnonzero(communicates[attribute.rows])):
            said[row][name] = value
    statements = [_statement(NodeType(nodes.type[row]), said[row], groups, rank) for row in rows]
    return communications(rows, statements, strings)


def _statement(kind: NodeType, said: Mapping[str, Any], groups: Groups, rank: int | None) -> Statement:
    number = text_in(said.get(Name.GROUP)).strip()
    statement = Statement(
        _operation(kind, said),
        group=text_in(said.get(Name.GROUP_NAME)) or groups.named(number),
        sequence=number_in(said.get(Name.COLLECTIVE_SEQUENCE)),
        point_to_point=kind != NodeType.COMM_COLL,
        global_ranks=True,
        size=groups.size(number) or UNKNOWN,
    )
    _name_ranks(statement, kind, said, rank)
    _count_elements(statement, said)
    return statement


def _operation(kind: NodeType, said: Mapping[str, Any]) -> str:
    if kind in OPERATION_OF_NODE:
        return OPERATION_OF_NODE[kind]
    if told := text_in(said.get(Name.OPERATION)):
        return told
    number = said.get(Name.COMM_TYPE)
    if type(number) is not int:
        return ""
    return OPERATION_OF_TYPE.get(number, f"{Name.COMM_TYPE} {number}")


def _name_ranks(statement: Statement, kind: NodeType, said: Mapping[str, Any], rank: int | None) -> None:
    own = UNKNOWN if rank is None else rank
    if kind == NodeType.COMM_COLL:
        statement.source = rank_in(said.get(Name.ROOT))
        return
    source, target = rank_in(said.get(Name.COMM_SOURCE)), rank_in(said.get(Name.COMM_TARGET))
    sends = kind == NodeType.COMM_SEND
    statement.source = own if sends and source == UNKNOWN else source
    statement.target = own if not sends and target == UNKNOWN else target
    statement.tag = number_in(said.get(Name.COMM_TAG))


def _count_elements(statement: Statement, said: Mapping[str, Any]) -> None:
    """Elements of the type that is told; where none is, every byte is one."""
    given, gotten = number_in(said.get(Name.BYTES_IN)), number_in(said.get(Name.BYTES_OUT))
    if given == gotten == UNKNOWN:
        given, gotten = _parts(statement, number_in(said.get(Name.COMM_SIZE)))
    statement.type = text_in(said.get(Name.ELEMENT_TYPE))
    width = item_bytes(statement.type)
    if max(given, gotten) > 0 and (width is None or max(given, 0) % width or max(gotten, 0) % width):
        statement.type, width = BYTE, 1
    statement.elements_in, statement.elements_out = (
        count if count <= 0 or width is None else count // width for count in (given, gotten)
    )


def _parts(statement: Statement, size: int) -> tuple[int, int]:
    """What a rank gives and gets, where `size` is what simulators take: what one rank puts in."""
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
    """The groups in the metadata's object: number to name, description and ranks."""
    found: dict[str, ProcessGroup] = {}
    for number, told in (described if isinstance(described, dict) else {}).items():
        if not isinstance(told, dict):
            continue
        ranks = _ranks(told.get("ranks"))
        name = text_in(told.get("name")) or text_in(number)
        found[number] = ProcessGroup(name, text_in(told.get("description")), ranks, len(ranks))
    return found


def _ranks(told: Any) -> tuple[int, ...]:
    ranks: Sequence[int] = [rank_in(rank) for rank in told] if isinstance(told, list) else []
    return () if UNKNOWN in ranks else tuple(ranks)
