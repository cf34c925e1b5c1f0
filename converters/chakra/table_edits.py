"""Edits of node tables: pauses added as nodes, nodes of the host contracted away, attributes for models of devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int64s, Table
from tracelink.converters.chakra.node_order import FIRST_ID
from tracelink.converters.chakra.schema import KINDS, Category, Kind, Name, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable

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


def with_gaps(nodes: NodeTable, gaps: Gaps) -> NodeTable:
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
    attributes: dict[Name, Sequence[str] | Int64s] = {
        Name.IS_CPU_OP: first,
        Name.STREAM: first,
        Name.CATEGORY: [str(Category.IDLE)],
    }
    return NodeTable(
        first + FIRST_ID,
        np.zeros(1, np.int32),
        np.full(1, NodeType.COMP, np.uint8),
        first,
        first,
        no_links,
        no_links,
        [IDLE],
        {str(name): Attribute.of(KINDS[name], first, values) for name, values in attributes.items()},
    )


def with_work(nodes: NodeTable) -> NodeTable:
    """Adds what ASTRA-sim's models of local memory and of devices (`track-local-mem`, `roofline-enabled`) need.

    Sources have neither tensors nor operations of kernels. So the lists of tensors are empty, and computation moves as
    many bytes as an H100 does in the recorded time: with the memory of an H100 it takes this time.
    """
    everything = np.arange(len(nodes))
    computes = np.flatnonzero(nodes.of_type(NodeType.COMP) & ~nodes.on_host())
    micros = nodes.duration[computes]
    exact = nodes.attribute(Name.DURATION).integers(len(nodes), UNKNOWN)[computes]
    time = np.where(exact == UNKNOWN, micros * MICROSECOND, exact)
    values: dict[Name, tuple[Int64s, Sequence[Any] | Int64s]] = {
        Name.READ_TENSORS: (everything, [()] * len(nodes)),
        Name.WRITTEN_TENSORS: (everything, [()] * len(nodes)),
        Name.OPERATIONS: (computes, np.ones(len(computes), np.int64)),
        Name.TENSOR_SIZE: (computes, np.maximum(time, 1) * H100_BYTES_PER_NANOSECOND),
    }
    added = {
        str(name): Attribute.of(KINDS[name], rows, column)
        for name, (rows, column) in values.items()
        if len(rows)
    }
    return replace(nodes, attributes={**nodes.attributes, **added})


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
        kind: Kind = KINDS[name]
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
    chosen = np.flatnonzero(keep[column.rows])
    values = (
        column.values[chosen]
        if isinstance(column.values, np.ndarray)
        else [column.values[index] for index in chosen.tolist()]
    )
    return Attribute((np.cumsum(keep) - 1)[column.rows[chosen]], values, column.kinds[chosen])


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
    """What several nodes together wait for."""
    if len(before) == 1:
        return through[before[0]]
    reached: _Reached = {}
    for node in before:
        for chain, last in through[node].items():
            if last > reached.get(chain, UNKNOWN):
                reached[chain] = last
    return reached
