"""The time between operators of a thread, as nodes: what Python did there is part of how long a step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.program import FIRST_ID
from tracelink.converters.chakra.schema import KINDS, Category, Kind, Name, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable
from tracelink.events import Bools, Int64s

IDLE = "idle"
MICROSECOND = 1000


@dataclass(frozen=True, slots=True)
class Gaps:
    """Pauses of threads: each lies between two nodes, which are places in a table."""

    before: Int64s
    """The last node of the thread before the pause."""
    after: Int64s
    start: Int64s
    length: Int64s
    """Nanoseconds."""
    thread: Int64s

    def __len__(self) -> int:
        return len(self.after)


def gaps_of(lane: Int64s, thread: Int64s, outermost: Bools, start: Int64s, end: Int64s) -> Gaps:
    """The pauses of a microsecond and more; columns are by node, `lane` is negative for what is on no thread."""
    order = np.flatnonzero(lane >= 0)
    order = order[np.argsort(lane[order], kind="stable")]
    same = np.append(False, lane[order][1:] == lane[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    ended = _latest_end(lane[order], end[order])
    before = np.concatenate([ended[:1], ended[:-1]])
    pause = start[order] - before
    found = np.flatnonzero(same & outermost[order] & (pause >= MICROSECOND))
    return Gaps(order[found - 1], order[found], before[found], pause[found], thread[order[found]])


def with_gaps(nodes: NodeTable, gaps: Gaps) -> NodeTable:
    """The nodes with one more for each pause: it follows what came before, and what comes after follows it."""
    count = len(nodes)
    where = np.argsort(gaps.after, kind="stable")
    place = np.arange(count) + np.searchsorted(gaps.after[where], np.arange(count), side="right")
    own = gaps.after[where] + np.arange(len(gaps))
    total = count + len(gaps)
    data = _linked(nodes.data, place, total, own, place[gaps.before[where]], place[gaps.after[where]])
    none = np.empty(0, np.int64)
    # What a pause follows can be shown later than it began.
    start = np.maximum(gaps.start[where] // MICROSECOND, nodes.start[gaps.before[where]])
    length = gaps.length[where]

    def merged(old: npt.NDArray[Any], new: int | Int64s) -> npt.NDArray[Any]:
        column = np.empty(total, old.dtype)
        column[place], column[own] = old, new
        return column

    return replace(
        nodes,
        id=np.arange(total) + FIRST_ID,
        name=merged(nodes.name, len(nodes.strings)),
        type=merged(nodes.type, NodeType.COMP),
        start=merged(nodes.start, start),
        duration=merged(nodes.duration, (length + MICROSECOND // 2) // MICROSECOND),
        data=data,
        control=_linked(nodes.control, place, total, none, none, none),
        strings=[*nodes.strings, IDLE],
        attributes=_attributes(nodes, gaps, where, place, own),
    )


def one_idle_node() -> NodeTable:
    """What stands for a rank of which nothing is a node: simulators need a node to begin with."""
    first, nothing = np.zeros(1, np.int64), Links.of([[]])
    said: dict[Name, Sequence[str] | Int64s] = {
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
        nothing,
        nothing,
        [IDLE],
        {str(name): Attribute.of(KINDS[name], first, values) for name, values in said.items()},
    )


def _latest_end(lane: Int64s, end: Int64s) -> Int64s:
    """For each node the latest end among it and those before it in its lane."""
    times, rank = np.unique(end, return_inverse=True)
    number = lane * (len(times) + 1) + rank
    latest = np.maximum.accumulate(number) if len(number) else number
    return times[latest % (len(times) + 1)] if len(times) else end


def _linked(links: Links, place: Int64s, total: int, own: Int64s, before: Int64s, after: Int64s) -> Links:
    """The links by new places, with those from each pause to both sides."""
    owner = np.concatenate([place[links.owners], own, after])
    ids = np.concatenate([place[links.ids - FIRST_ID], before, own])
    order = np.lexsort((ids, owner))
    return Links(np.searchsorted(owner[order], np.arange(total + 1)), ids[order] + FIRST_ID)


def _attributes(
    nodes: NodeTable, gaps: Gaps, where: Int64s, place: Int64s, own: Int64s
) -> dict[str, Attribute]:
    told = {name: replace(column, rows=place[column.rows]) for name, column in nodes.attributes.items()}
    added: dict[Name, Sequence[Any] | Int64s] = {
        Name.IS_CPU_OP: np.ones(len(gaps), np.int64),
        Name.THREAD: gaps.thread[where],
        Name.STREAM: np.zeros(len(gaps), np.int64),
        Name.CATEGORY: [str(Category.IDLE)] * len(gaps),
        Name.START: gaps.start[where],
        Name.DURATION: gaps.length[where],
    }
    for name, values in added.items():
        kind: Kind = KINDS[name]
        old = told.get(name, Attribute.of(kind, np.empty(0, np.int64), []))
        rows = np.concatenate([old.rows, own])
        order = np.argsort(rows, kind="stable")
        every = [*old.values, *values]
        told[str(name)] = Attribute.of(kind, rows[order], [every[number] for number in order.tolist()])
    return told
