"""The nodes of one rank as columns, with their roles and exact times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink.converters.chakra.schema import INTEGERS, Category, Kind, Name, NodeType

UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF
"""The largest unsigned 64-bit number."""

_INTEGER_KINDS = np.array([*INTEGERS, Kind.BOOL], np.uint8)


class Links(Struct, frozen=True):
    """Ids that nodes list: those of node `i` are `ids[bounds[i]:bounds[i + 1]]`."""

    bounds: Int64s
    ids: Int64s
    """Unsigned 64-bit ids as signed numbers with the same bits."""

    @classmethod
    def of(cls, lists: Sequence[Iterable[int]]) -> Links:
        """Links from Python integers."""
        rows = [list(ids) for ids in lists]
        return cls(
            np.cumsum([0, *map(len, rows)], dtype=np.int64),
            signed([number for row in rows for number in row]),
        )

    @property
    def owners(self) -> Int64s:
        """The row of the node that lists each id."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def __getitem__(self, row: int) -> list[int]:
        """The ids that one node lists."""
        ids: list[int] = (self.ids[self.bounds[row] : self.bounds[row + 1]].view(np.uint64)).tolist()
        return ids


class Attribute(Struct, frozen=True):
    """The values of one attribute; a node with a duplicate attribute has two rows."""

    rows: Int64s
    values: Sequence[Any] | npt.NDArray[Any]
    """Numbers, strings, bytes, or lists of them, according to `kinds`."""
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, kind: Kind, rows: Int64s, values: Sequence[Any] | npt.NDArray[Any]) -> Attribute:
        """An attribute with the same kind in all nodes."""
        return cls(rows, values, np.full(len(rows), kind, np.uint8))

    def __len__(self) -> int:
        return len(self.rows)

    def items(self, indices: Int64s) -> Iterator[tuple[int, Any]]:
        """The node and the Python value at some indices."""
        values = chosen(self.values, indices)
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        return zip(self.rows[indices].tolist(), plain, strict=True)

    def integers(self, length: int, default: int) -> Int64s:
        """One integer for each of `length` nodes; `default` for nodes without one."""
        column = np.full(length, default, np.int64)
        integer = np.isin(self.kinds, _INTEGER_KINDS)
        values = self.values if integer.all() else chosen(self.values, np.flatnonzero(integer))
        try:
            column[self.rows[integer]] = np.asarray(values, np.int64)
        except OverflowError:
            column[self.rows[integer]] = signed(values)
        return column

    def strings(self, length: int, default: str = "") -> list[str]:
        """One string for each of `length` nodes; `default` for nodes without one."""
        column = [default] * length
        for row, value in zip(self.rows.tolist(), self.values, strict=True):
            if isinstance(value, str):
                column[row] = value
        return column


class NodeTable(Table, frozen=True):
    """One row for each node, in the order of the file."""

    id: Int64s
    """Unsigned 64-bit ids as signed numbers with the same bits."""
    name: Int32s
    """Codes of `strings`."""
    type: npt.NDArray[np.uint8]
    start: Int64s
    """Microseconds."""
    duration: Int64s
    data: Links
    """Data dependencies: nodes that must have ended before this one starts."""
    control: Links
    """Control dependencies: the node that encloses or launched this one."""
    strings: Sequence[str]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def attribute(self, name: str) -> Attribute:
        """An attribute; empty if no node has it."""
        return self.attributes.get(name) or Attribute(np.empty(0, np.int64), [], np.empty(0, np.uint8))

    def text(self, row: int) -> str:
        """The name of a node."""
        return self.strings[int(self.name[row])]

    def of_type(self, *types: NodeType) -> Bools:
        """Nodes of these types."""
        chosen: Bools = np.isin(self.type, np.array(types, np.uint8))
        return chosen

    def on_host(self) -> Bools:
        """Nodes marked as operators of the host."""
        marked: Bools = self.attribute(Name.IS_CPU_OP).integers(len(self), 0) != 0
        return marked

    def rows_of(self, links: Links) -> Int64s:
        """The row of the node with each id of `links`, or UNKNOWN; the first of nodes with a duplicate id."""
        order = np.argsort(self.id, kind="stable")
        index = np.searchsorted(self.id[order], links.ids)
        index = np.minimum(index, max(len(order) - 1, 0))
        if not len(order):
            return np.full(len(links.ids), UNKNOWN, np.int64)
        found = self.id[order][index] == links.ids
        return np.where(found, order[index], UNKNOWN)


def chosen(values: Sequence[Any] | npt.NDArray[Any], indices: Int64s) -> Sequence[Any] | npt.NDArray[Any]:
    """The values of an attribute at some indices."""
    return (
        values[indices] if isinstance(values, np.ndarray) else [values[index] for index in indices.tolist()]
    )


def signed(numbers: Sequence[int] | npt.NDArray[Any]) -> Int64s:
    """Unsigned 64-bit numbers as signed ones with the same bits, so that columns need only one type."""
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.int64)
    return np.array([number & UNSIGNED for number in numbers], np.uint64).view(np.int64)


def unsigned(number: int) -> int:
    """A signed number as the unsigned 64-bit number with the same bits."""
    return int(number) & UNSIGNED


# The role of each node, from its type and, where the type alone is not enough, from its attributes.

Roles = npt.NDArray[np.uint8]


class Role(StrEnum):
    """What a node is in counts and drawings."""

    HOST = "host"
    """Computation on the host."""
    IDLE = "idle"
    """A gap between operators of a thread."""
    DEVICE = "device"
    """Computation on a device."""
    MEMCPY = "memcpy"
    MEMSET = "memset"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    LOAD = "load"
    STORE = "store"
    METADATA = "metadata"
    UNKNOWN = "unknown"
    """Of an unknown type."""


ROLES = tuple(Role)
COMMUNICATION = (Role.COLLECTIVE, Role.SEND, Role.RECV)
ON_DEVICE = (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.LOAD, Role.STORE, *COMMUNICATION)
"""Roles of nodes that run on a device, unless they are marked as operators of the host."""

_ROLE_OF_TYPE = {
    NodeType.METADATA: Role.METADATA,
    NodeType.MEM_LOAD: Role.LOAD,
    NodeType.MEM_STORE: Role.STORE,
    NodeType.COMM_SEND: Role.SEND,
    NodeType.COMM_RECV: Role.RECV,
    NodeType.COMM_COLL: Role.COLLECTIVE,
}
_ROLE_OF_CATEGORY = {
    Category.IDLE: Role.IDLE,
    Category.MEMCPY: Role.MEMCPY,
    Category.MEMSET: Role.MEMSET,
}
_ROLE_OF_NAME = {"Memcpy": Role.MEMCPY, "Memset": Role.MEMSET}
"""Prefixes of the profiler's names, for traces whose nodes have no category."""


def roles_of(nodes: NodeTable) -> Roles:
    """The index in `ROLES` of each node."""
    roles = np.full(len(nodes), ROLES.index(Role.UNKNOWN), np.uint8)
    for node_type, role in _ROLE_OF_TYPE.items():
        roles[nodes.type == node_type] = ROLES.index(role)
    computing, host = nodes.of_type(NodeType.COMP), nodes.on_host()
    roles[computing] = np.where(host[computing], ROLES.index(Role.HOST), ROLES.index(Role.DEVICE))
    for prefix, role in _ROLE_OF_NAME.items():
        codes = [code for code, name in enumerate(nodes.strings) if name.startswith(prefix)]
        roles[computing & ~host & np.isin(nodes.name, codes)] = ROLES.index(role)
    category = nodes.attribute(Name.CATEGORY)
    for name, role in _ROLE_OF_CATEGORY.items():
        roles[_rows_with(category, name, len(nodes)) & computing] = ROLES.index(role)
    return roles


def has_role(roles: Roles, *wanted: Role) -> Bools:
    """Nodes with one of these roles."""
    found: Bools = np.isin(roles, np.array([ROLES.index(role) for role in wanted], np.uint8))
    return found


def _rows_with(attribute: Attribute, value: str, length: int) -> Bools:
    rows = np.zeros(length, np.bool_)
    rows[attribute.rows[np.array([found == value for found in attribute.values], np.bool_)]] = True
    return rows


# Exact times: nanoseconds from attributes, microseconds from the fields that simulators read.


def starts_ns(nodes: NodeTable) -> list[int]:
    """The start of each node; 0 if unknown."""
    return _exact(nodes, nodes.start, Name.START)


def durations_ns(nodes: NodeTable) -> list[int]:
    """The duration of each node, without the nodes that it encloses."""
    return _exact(nodes, nodes.duration, Name.DURATION)


def inclusive_ns(nodes: NodeTable) -> list[int]:
    """The duration of each node with the nodes that it encloses, if recorded; else its own duration."""
    recorded = nodes.attribute(Name.INCLUSIVE).integers(len(nodes), UNKNOWN).tolist()
    return [max(pair) for pair in zip(recorded, durations_ns(nodes), strict=True)]


def _exact(nodes: NodeTable, micros: Int64s, name: Name) -> list[int]:
    """The attribute `name` if it agrees with the field to the microsecond, else the field."""
    exact: Sequence[int] = nodes.attribute(name).integers(len(nodes), UNKNOWN).tolist()
    coarse = [(number & UNSIGNED) * MICROSECOND for number in micros.tolist()]
    return [
        fine if fine >= 0 and abs(fine - rough) <= MICROSECOND else rough
        for fine, rough in zip(exact, coarse, strict=True)
    ]
