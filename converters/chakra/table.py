"""The nodes of one rank as columns, their roles and exact times, and edits of them: pauses, contraction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int32s, Int64s, Table, lookup
from tracelink.converters.chakra.schema import FIRST_ID, INTEGERS, Category, Kind, Name, NodeType

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


Column = tuple[Name, Int64s, Sequence[Any] | npt.NDArray[Any]]
"""The name of an attribute, the nodes that have it, and their values."""


def attributes_by_name(columns: Iterable[Column]) -> dict[str, Attribute]:
    """Attributes of the kinds that both feeders read; those that no node has are left out."""
    return {str(name): Attribute.of(name.kind, rows, values) for name, rows, values in columns if len(rows)}


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
        from_end = lookup(self.id[::-1], links.ids)
        return np.where(from_end == UNKNOWN, UNKNOWN, len(self) - 1 - from_end)


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


def cycles_in(following: Mapping[int, int]) -> list[list[int]]:
    """The cycles found by following each key to its value, each from where the first walk entered it."""
    seen: dict[int, int] = {}
    cycles = []
    for start in following:
        at, walk = start, list[int]()
        while at in following and at not in seen:
            seen[at] = start
            walk.append(at)
            at = following[at]
        if walk and seen.get(at) == start:
            cycles.append(walk[walk.index(at) :])
    return cycles


# The role of each node, from its type and, where the type alone is not enough, from its attributes.

Roles = npt.NDArray[np.uint8]


class Role(StrEnum):
    """The kind of a node in counts and drawings."""

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


# Edits of node tables: pauses added as nodes, nodes of the host contracted away, attributes for models of devices.

IDLE = "idle"
"""The name of nodes for pauses."""
H100_BYTES_PER_NANOSECOND = 3350
"""`local-mem-bw` of the system files for H100 that ASTRA-sim ships."""

# Pauses between operators of a thread: the time of Python code is part of the duration of a step.


class Gaps(Table, frozen=True):
    """Pauses of threads, each between two nodes of a table."""

    before: Int64s
    """The row of the last node of the thread before the pause."""
    after: Int64s
    """The row of the next node of the thread."""
    start: Int64s
    length: Int64s
    """Nanoseconds, likewise `start`."""
    thread: Int64s


def gaps_of(lane: Int64s, thread: Int64s, outermost: Bools, start: Int64s, end: Int64s) -> Gaps:
    """The pauses of a microsecond or more. Columns have a value for each node; `lane` is negative without a thread."""
    order = np.flatnonzero(lane >= 0)
    order = order[np.argsort(lane[order], kind="stable")]
    same = np.append(False, lane[order][1:] == lane[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    latest = _latest_end(lane[order], end[order])
    before = np.concatenate([latest[:1], latest[:-1]])
    pause = start[order] - before
    found = np.flatnonzero(same & outermost[order] & (pause >= MICROSECOND))
    return Gaps(order[found - 1], order[found], before[found], pause[found], thread[order[found]])


def add_gaps(nodes: NodeTable, gaps: Gaps) -> NodeTable:
    """The nodes with one more for each pause, which depends on the node before it and precedes the node after it."""
    count = len(nodes)
    order = np.argsort(gaps.after, kind="stable")
    node_row = np.arange(count) + np.searchsorted(gaps.after[order], np.arange(count), side="right")
    gap_row = gaps.after[order] + np.arange(len(gaps))
    total = count + len(gaps)
    before, after = node_row[gaps.before[order]], node_row[gaps.after[order]]
    none = np.empty(0, np.int64)
    # The node before a pause can have a start that was delayed.
    start = np.maximum(gaps.start[order] // MICROSECOND, nodes.start[gaps.before[order]])
    length = gaps.length[order]

    def merged(old: npt.NDArray[Any], new: int | Int64s) -> npt.NDArray[Any]:
        column = np.empty(total, old.dtype)
        column[node_row], column[gap_row] = old, new
        return column

    return replace(
        nodes,
        id=np.arange(total) + FIRST_ID,
        name=merged(nodes.name, len(nodes.strings)),
        type=merged(nodes.type, NodeType.COMP),
        start=merged(nodes.start, start),
        duration=merged(nodes.duration, (length + MICROSECOND // 2) // MICROSECOND),
        data=_linked(nodes.data, node_row, total, gap_row, before, after),
        control=_linked(nodes.control, node_row, total, none, none, none),
        strings=[*nodes.strings, IDLE],
        attributes=_attributes(nodes, gaps, order, node_row, gap_row),
    )


def one_idle_node() -> NodeTable:
    """The table of a rank without nodes: simulators need a node to start with."""
    first, no_links = np.zeros(1, np.int64), Links.of([[]])
    attributes: list[Column] = [
        (Name.IS_CPU_OP, first, first),
        (Name.STREAM, first, first),
        (Name.CATEGORY, first, [str(Category.IDLE)]),
    ]
    return NodeTable(
        first + FIRST_ID,
        np.zeros(1, np.int32),
        np.full(1, NodeType.COMP, np.uint8),
        first,
        first,
        no_links,
        no_links,
        [IDLE],
        attributes_by_name(attributes),
    )


def add_work(nodes: NodeTable) -> NodeTable:
    """Adds what ASTRA-sim's models of local memory and of devices (`track-local-mem`, `roofline-enabled`) need.

    Sources have neither tensors nor operations of kernels. So the lists of tensors are empty, and computation moves as
    many bytes as an H100 does in the recorded time: with the memory of an H100 it takes this time.
    """
    everything = np.arange(len(nodes))
    computes = np.flatnonzero(nodes.of_type(NodeType.COMP) & ~nodes.on_host())
    micros = nodes.duration[computes]
    exact = nodes.attribute(Name.DURATION).integers(len(nodes), UNKNOWN)[computes]
    time = np.where(exact == UNKNOWN, micros * MICROSECOND, exact)
    added: list[Column] = [
        (Name.READ_TENSORS, everything, [()] * len(nodes)),
        (Name.WRITTEN_TENSORS, everything, [()] * len(nodes)),
        (Name.OPERATIONS, computes, np.ones(len(computes), np.int64)),
        (Name.TENSOR_SIZE, computes, np.maximum(time, 1) * H100_BYTES_PER_NANOSECOND),
    ]
    return replace(nodes, attributes={**nodes.attributes, **attributes_by_name(added)})


def _latest_end(lane: Int64s, end: Int64s) -> Int64s:
    """The latest end of each node and the nodes before it in its lane."""
    times, rank = np.unique(end, return_inverse=True)
    number = lane * (len(times) + 1) + rank
    latest = np.maximum.accumulate(number) if len(number) else number
    return times[latest % (len(times) + 1)] if len(times) else end


def _linked(
    links: Links, node_row: Int64s, total: int, gap_row: Int64s, before: Int64s, after: Int64s
) -> Links:
    """The links by new rows, with those of each pause to the nodes before and after it."""
    owner = np.concatenate([node_row[links.owners], gap_row, after])
    ids = np.concatenate([node_row[links.ids - FIRST_ID], before, gap_row])
    order = np.lexsort((ids, owner))
    return Links(np.searchsorted(owner[order], np.arange(total + 1)), ids[order] + FIRST_ID)


def _attributes(
    nodes: NodeTable, gaps: Gaps, order: Int64s, node_row: Int64s, gap_row: Int64s
) -> dict[str, Attribute]:
    merged = {name: replace(column, rows=node_row[column.rows]) for name, column in nodes.attributes.items()}
    added: dict[Name, Sequence[Any] | Int64s] = {
        Name.IS_CPU_OP: np.ones(len(gaps), np.int64),
        Name.THREAD: gaps.thread[order],
        Name.STREAM: np.zeros(len(gaps), np.int64),
        Name.CATEGORY: [str(Category.IDLE)] * len(gaps),
        Name.START: gaps.start[order],
        Name.DURATION: gaps.length[order],
    }
    for name, values in added.items():
        kind: Kind = name.kind
        old = merged.get(name, Attribute.of(kind, np.empty(0, np.int64), []))
        rows = np.concatenate([old.rows, gap_row])
        by_row = np.argsort(rows, kind="stable")
        joined = [*old.values, *values]
        merged[str(name)] = Attribute.of(kind, rows[by_row], [joined[index] for index in by_row.tolist()])
    return merged


# Contraction: nodes are removed, and dependencies through them become dependencies between the others.

_Reached = dict[int, int]
"""For each chain of nodes the last one in it that had to end before."""


def contracted(nodes: NodeTable, keep: Bools, lane: Int64s) -> NodeTable:
    """The nodes to keep, in the same order, with new ids and without control dependencies.

    Nodes must depend on earlier ones only. Nodes with the same `lane` usually run one after the other.
    """
    dependencies = list(_dependencies(nodes.rows_of(nodes.data), nodes.data.bounds, keep, lane))
    rows = np.flatnonzero(keep)
    new_row = np.cumsum(keep) - 1
    links = Links.of([(new_row[ids] + FIRST_ID).tolist() if len(ids) else [] for ids in dependencies])
    return replace(
        nodes,
        id=np.arange(len(rows)) + FIRST_ID,
        name=nodes.name[rows],
        type=nodes.type[rows],
        start=nodes.start[rows],
        duration=nodes.duration[rows],
        data=links,
        control=Links.of([[]] * len(rows)),
        attributes={
            name: kept
            for name, column in nodes.attributes.items()
            if len(kept := kept_attribute(column, keep))
        },
    )


def kept_attribute(column: Attribute, keep: Bools) -> Attribute:
    """The attribute of the nodes to keep, by their new rows."""
    kept = np.flatnonzero(keep[column.rows])
    return Attribute(
        (np.cumsum(keep) - 1)[column.rows[kept]], chosen(column.values, kept), column.kinds[kept]
    )


class _Chains:
    """Chains of kept nodes, each of which waits for the previous one: waiting for the last waits for all.

    The nodes of a lane usually form a chain; a node that does not wait for the previous one starts another chain.
    """

    def __init__(self) -> None:
        self._of_lane: dict[int, int] = {}
        self._last: list[int] = []
        self._known: list[_Reached] = []

    def add(self, node: int, lane: int, reached: _Reached) -> tuple[int, Sequence[int]]:
        """The chain of a node, and what it waits for in addition to the previous node of the chain."""
        chain = self._chain_of(lane, reached)
        self._of_lane[lane] = chain
        known = self._known[chain]
        added = {number: last for number, last in reached.items() if last > known.get(number, UNKNOWN)}
        known.update(added)
        self._last[chain] = node
        return chain, sorted(added.values())

    def _chain_of(self, lane: int, reached: _Reached) -> int:
        previous = self._of_lane.get(lane, UNKNOWN)
        if previous != UNKNOWN and reached.get(previous) == self._last[previous]:
            return previous
        for chain, last in reached.items():
            if last == self._last[chain]:
                return chain
        self._last.append(UNKNOWN)
        self._known.append({})
        return len(self._last) - 1


def _dependencies(rows: Int64s, bounds: Int64s, keep: Bools, lane: Int64s) -> Iterator[Sequence[int]]:
    """For each kept node the kept nodes that it waits for, directly or through removed ones."""
    waited_for, ends = rows.tolist(), bounds.tolist()
    lanes, chains = lane.tolist(), _Chains()
    through: list[_Reached] = []
    for node, kept in enumerate(keep.tolist()):
        reached = _reached(waited_for[ends[node] : ends[node + 1]], through)
        if not kept:
            through.append(reached)
            continue
        chain, dependencies = chains.add(node, lanes[node], reached)
        through.append({chain: node})
        yield dependencies


def _reached(before: Sequence[int], through: Sequence[_Reached]) -> _Reached:
    """All that several nodes together wait for."""
    if len(before) == 1:
        return through[before[0]]
    reached: _Reached = {}
    for node in before:
        for chain, last in through[node].items():
            if last > reached.get(chain, UNKNOWN):
                reached[chain] = last
    return reached
