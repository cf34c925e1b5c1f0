"""The nodes of a rank as slots, the order of their ids, and the dependencies that agree with this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table
from tracelink.converters.chakra.communications import Communication
from tracelink.converters.chakra.host import Device, Host
from tracelink.converters.chakra.table import Links

FIRST_ID = 1
"""Protobuf does not write a 0, and some readers treat a missing id as an error."""

_ROUNDS = 16
"""The most rounds in which lanes delay each other; dependencies against the order are dropped after them."""

# Slots: one node for each event, except that several messages that share a kernel are a node each.


class NodeSlots(Table, frozen=True):
    """The nodes of a rank before they are ordered: host nodes, device work, then further messages."""

    row: Int64s
    """The event."""
    host: Int64s
    """The index of the host node, or UNKNOWN."""
    work: Int64s
    """The index of the device work, or UNKNOWN."""
    parent: Int64s
    """The slot of the node that encloses or launched it, or UNKNOWN."""
    communication: Int64s
    """The row of the rank's communication, or UNKNOWN."""
    first: Int64s
    """The slot of the first message that shares the kernel; itself if it is the first or the only one."""

    @property
    def on_host(self) -> Bools:
        """Slots of host nodes."""
        found: Bools = self.host != UNKNOWN
        return found

    @property
    def is_first(self) -> Bools:
        """Slots that are the first of their event."""
        found: Bools = self.first == np.arange(len(self))
        return found

    def of_events(self, events: int) -> Int64s:
        """The first slot of each event, or UNKNOWN."""
        slot = np.full(events, UNKNOWN, np.int64)
        first = np.flatnonzero(self.is_first)
        slot[self.row[first]] = first
        return slot


def node_slots(host: Host, device: Device, communication: Communication) -> NodeSlots:
    """All nodes of a rank; communication without an event that is a node has no slot."""
    count = len(host) + len(device)
    row = np.concatenate([host.row, device.row])
    on_host = np.concatenate([np.arange(len(host)), np.full(len(device), UNKNOWN)])
    work = np.concatenate([np.full(len(host), UNKNOWN), np.arange(len(device))])
    parent = np.concatenate([host.parent, device.parent])
    slot = _slots_of(host, row, communication.row)
    numbers = np.flatnonzero(slot != UNKNOWN)
    numbers = numbers[np.argsort(slot[numbers], kind="stable")]
    slot = slot[numbers]
    first = np.ones(len(slot), np.bool_)
    first[1:] = slot[1:] != slot[:-1]
    of_communication = np.full(count, UNKNOWN, np.int64)
    of_communication[slot[first]] = numbers[first]
    further = slot[~first]
    return NodeSlots(
        np.append(row, row[further]),
        np.append(on_host, on_host[further]),
        np.append(work, work[further]),
        np.append(parent, parent[further]),
        np.append(of_communication, numbers[~first]),
        np.append(np.arange(count), further),
    )


def _slots_of(host: Host, row: Int64s, wanted: Int64s) -> Int64s:
    """The slot of each wanted row, which is an event or its node in the execution trace; or UNKNOWN."""
    linked = np.flatnonzero(host.node != UNKNOWN)
    known = np.concatenate([row, host.node[linked]])
    slot = np.concatenate([np.arange(len(row)), linked])
    order = np.argsort(known, kind="stable")
    if not len(order):
        return np.full(len(wanted), UNKNOWN, np.int64)
    found = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where(known[found] == wanted, slot[found], UNKNOWN)


# Node order: the order of ids, by start time and by what must come first.


class Pairs(Table, frozen=True):
    """Dependencies between slots: `after[i]` could not start before `before[i]` ended."""

    before: Int64s
    after: Int64s

    def known(self) -> Pairs:
        """The pairs of two different nodes."""
        known = (self.before != UNKNOWN) & (self.after != UNKNOWN) & (self.before != self.after)
        return Pairs(self.before[known], self.after[known])


class NodeOrder(Struct, frozen=True):
    """The nodes in the order of their ids: no node depends on a later one, so there are no cycles."""

    slot: Int64s
    """The slot of each node."""
    position: Int64s
    """The position of each slot in this order."""
    time: Int64s
    """The start of each slot in nanoseconds, not before its launch nor before what precedes it in its stream."""


class Lanes(Struct, frozen=True):
    """Slots that run one after the other whatever their times: those of a stream, a thread or a process group."""

    lane: Int64s
    """The lane of each slot, or UNKNOWN."""
    key: Int64s
    """By which the slots of a lane are sorted."""

    def pairs(self) -> Pairs:
        """Each slot after the previous one of its lane."""
        slots = self._sorted()
        same = self.lane[slots][1:] == self.lane[slots][:-1]
        return Pairs(slots[:-1][same], slots[1:][same])

    def delayed(self, time: Int64s) -> Int64s:
        """Times that increase along every lane."""
        sorted_slots = self._sorted()
        lanes, begin = np.unique(self.lane[sorted_slots], return_index=True)
        delayed = time.copy()
        for slots in np.split(sorted_slots, begin[1:]) if len(lanes) else []:
            step = np.arange(len(slots))
            delayed[slots] = np.maximum.accumulate(delayed[slots] - step) + step
        return delayed

    def _sorted(self) -> Int64s:
        slots = np.flatnonzero(self.lane != UNKNOWN)
        return slots[np.lexsort((slots, self.key[slots], self.lane[slots]))]


def node_order(
    slots: NodeSlots, start: Int64s, tie_breakers: Sequence[Int64s], lanes: Sequence[Lanes]
) -> NodeOrder:
    """Nodes by start time, with launches before their work; `tie_breakers` order nodes with equal times."""
    time = start.copy()
    launched = np.flatnonzero((slots.work != UNKNOWN) & (slots.parent != UNKNOWN))
    time[launched] = np.maximum(time[launched], time[slots.parent[launched]])
    for _ in range(_ROUNDS):
        before = time
        for lane in lanes:
            time = lane.delayed(time)
        if np.array_equal(time, before):
            break
    on_device = slots.work != UNKNOWN
    order = np.lexsort((*reversed(tie_breakers), on_device, time))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return NodeOrder(order, position, time)


# Dependencies between nodes.


def with_shared_kernels(pairs: Pairs, first: Int64s) -> Pairs:
    """The pairs, with one more for every further message that shares the kernel of either end."""
    further = np.flatnonzero(first != np.arange(len(first)))
    if not len(further):
        return pairs
    parts = [pairs]
    for end in ("before", "after"):
        joined = Pairs.concatenate(parts)
        column = getattr(joined, end)
        by_end = np.argsort(column, kind="stable")
        starts = np.searchsorted(column[by_end], first[further])
        ends = np.searchsorted(column[by_end], first[further], side="right")
        length = ends - starts
        chosen = by_end[_ranges(starts, length)]
        owner = np.repeat(further, length)
        before, after = joined.before[chosen], joined.after[chosen]
        parts = [joined, Pairs(owner, after) if end == "before" else Pairs(before, owner)]
    return Pairs.concatenate(parts)


class DataDependencies(Struct, frozen=True):
    """The ids that each node depends on."""

    links: Links
    against_order: Mapping[str, int]
    """The number of dropped pairs, whose times contradict the order of starts, by their origin."""


def data_dependencies(pairs_by_origin: Mapping[str, Pairs], order: NodeOrder) -> DataDependencies:
    """All pairs that agree with the order, without duplicates, as ids by node."""
    dropped: dict[str, int] = {}
    kept: list[Pairs] = []
    for origin, pairs in pairs_by_origin.items():
        forward = order.position[pairs.before] < order.position[pairs.after]
        if count := len(pairs) - int(np.count_nonzero(forward)):
            dropped[origin] = count
        kept.append(Pairs(pairs.before[forward], pairs.after[forward]))
    every = Pairs.concatenate(kept)
    count = len(order.slot)
    joined = np.unique(order.position[every.after] * count + order.position[every.before])
    after, before = np.divmod(joined, max(count, 1))
    bounds = np.searchsorted(after, np.arange(count + 1))
    return DataDependencies(Links(bounds, before + FIRST_ID), dropped)


def control_dependencies(parent: Int64s, order: NodeOrder) -> Links:
    """The id of the parent of each node, if the parent comes before it."""
    slot = parent[order.slot]
    position = np.where(slot == UNKNOWN, UNKNOWN, np.append(order.position, UNKNOWN)[slot])
    position = np.where(position < np.arange(len(position)), position, UNKNOWN)
    has = position != UNKNOWN
    return Links(np.concatenate([[0], np.cumsum(has)]), position[has] + FIRST_ID)


def _ranges(begin: Int64s, length: Int64s) -> Int64s:
    """`begin[i], begin[i] + 1, …` of each length, one after the other."""
    total = int(length.sum())
    offset: Int64s = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    return offset + np.arange(total)
