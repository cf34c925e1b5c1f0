"""The nodes of a rank: the events that become nodes, the order of their ids, and their dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.causes import callers, depths, exclusive_time, innermost, outside
from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table, lookup, ranges, scatter, values_at
from tracelink._model.events import GPU_WORK, EventKind, Key, Relation
from tracelink._model.graph import Excerpt
from tracelink._order.order import Lanes as Threads
from tracelink.converters.chakra.schema import FIRST_ID
from tracelink.converters.chakra.table import Links
from tracelink.converters.chakra.writing.communications import Communication, usable

TIMED = (EventKind.OPERATOR, EventKind.ANNOTATION)
_NO_ID = int(np.iinfo(np.int64).min)


class Host(Table, frozen=True):
    """The host nodes of a rank, in no order; other modules refer to them by their index here."""

    row: Int64s
    """The event: an operator or annotation, else the node of the execution trace or the entry of the recorder."""
    node: Int64s
    """The row of the same node in the execution trace, `row` itself if its source lists nodes, or UNKNOWN."""
    parent: Int64s
    """The index of the node that encloses it, or UNKNOWN."""
    lane: Int64s
    """The track of its thread."""
    start: Int64s
    """Nanoseconds; a node without a time has the start of the node before it."""
    inclusive: Int64s
    """The duration with the nodes that it encloses."""
    exclusive: Int64s
    """The duration without the nodes that it encloses, and without the time that it waited."""
    waited: Int64s
    timed: Bools
    depth: Int64s
    innermost: Int64s
    """For each event of the rank the index of the innermost node that encloses it or that it is, or UNKNOWN."""


def host_of(part: Excerpt) -> Host:
    """All operators, annotations and nodes of a rank; entries of the recorder only if there are none of these."""
    events = part.events
    timed = events.of_kind(*TIMED) & events.timed
    nodes = part.rows(EventKind.NODE)
    operator = _operators(part, timed)[nodes]
    rows = np.concatenate([np.flatnonzero(timed), nodes[operator == UNKNOWN]])
    if not len(rows):
        rows = part.rows(EventKind.RECORD)
    node = scatter(len(events), operator[operator != UNKNOWN][::-1], nodes[operator != UNKNOWN][::-1])
    node[nodes[operator == UNKNOWN]] = nodes[operator == UNKNOWN]
    listed = np.flatnonzero(timed & (node == UNKNOWN))
    listed = listed[part.key(Key.NODE_ID, _NO_ID)[listed] != _NO_ID]
    node[listed] = listed
    host = _enclosed(part, rows, node[rows])
    start = _starts(part, host)
    return replace(host, start=start, lane=_lanes(part, host), depth=depths(host.parent))


def nodes_of_host(part: Excerpt) -> Bools:
    """Events that become host nodes, themselves or as the same operator."""
    events = part.events
    found = (events.of_kind(*TIMED) & events.timed) | events.of_kind(EventKind.NODE)
    return found if found.any() else events.of_kind(EventKind.RECORD)


def positions_with_nodes(part: Excerpt, communication: Communication) -> Int64s:
    """The shared positions of the communication of a rank that is written as nodes."""
    written, _ = usable(communication.with_events(part.events))
    positions: Int64s = written.position[have_nodes(part, written)]
    return positions


def have_nodes(part: Excerpt, communication: Communication) -> Bools:
    """The communication of a rank whose events become nodes."""
    is_node = nodes_of_host(part) | (part.events.of_kind(*GPU_WORK) & part.events.timed)
    found: Bools = np.append(is_node, False)[communication.row]
    return found


def _operators(part: Excerpt, timed: Bools) -> Int64s:
    """For each event the row of the same timed operator, or UNKNOWN."""
    same = part.where(Relation.SAME)
    chosen = timed[same.target] & (part.events.kind[same.source] == EventKind.NODE)
    return scatter(len(part.events), same.source[chosen], same.target[chosen])


def _enclosed(part: Excerpt, rows: Int64s, node: Int64s) -> Host:
    """The nodes, each with the node that encloses it in the profile, else in the execution trace."""
    events, count = part.events, len(part.events)
    index = scatter(count, rows)
    caller = callers(part)
    nearest = innermost(caller, index != UNKNOWN)
    enclosing = outside(caller, nearest)[rows]
    timed = events.timed[rows]
    start, end = np.where(timed, events.start[rows], 0), np.where(timed, events.end[rows], 0)
    around = values_at(index, enclosing)
    recorded = _recorded_parents(part, node, index)
    parent = np.where(timed & (around != UNKNOWN), around, recorded)
    untimed_parent = np.append(~timed, False)[recorded]
    parent = np.where(timed & (around == UNKNOWN) & ~untimed_parent, UNKNOWN, parent)
    exclusive = exclusive_time(start, end, np.where(timed, around, UNKNOWN))
    zero = np.zeros(len(rows), np.int64)
    return Host(
        rows, node, parent, zero, start, end - start, exclusive, zero, timed, zero, values_at(index, nearest)
    )


def _recorded_parents(part: Excerpt, node: Int64s, index: Int64s) -> Int64s:
    """The index of each node's parent in its execution trace, or UNKNOWN."""
    ids, parents = part.key(Key.NODE_ID, _NO_ID), part.key(Key.NODE_PARENT, _NO_ID)
    known = np.flatnonzero(ids != _NO_ID)
    represented = index.copy()
    linked = node != UNKNOWN
    represented[node[linked]] = np.flatnonzero(linked)
    result = np.full(len(node), UNKNOWN, np.int64)
    for source in np.unique(part.events.source[known]).tolist():
        listed = known[part.events.source[known] == source]
        listed = listed[np.argsort(ids[listed], kind="stable")]
        of_source = np.flatnonzero(linked)[part.events.source[node[linked]] == source]
        wanted = parents[node[of_source]]
        found = np.minimum(np.searchsorted(ids[listed], wanted), len(listed) - 1)
        exact = (ids[listed][found] == wanted) & (wanted != ids[node[of_source]])
        result[of_source] = np.where(exact, represented[listed[found]], UNKNOWN)
    return result


def _starts(part: Excerpt, host: Host) -> Int64s:
    """The start of each node; without a time, that of the node before it, because ids are in the order of starts."""
    start = host.start.copy()
    without = ~host.timed
    if not without.any():
        return start
    ids = part.key(Key.NODE_ID, 0)
    listed = np.flatnonzero(host.node != UNKNOWN)
    sources = part.events.source[host.node[listed]]
    for source in np.unique(sources).tolist():
        nodes = listed[sources == source]
        nodes = nodes[np.argsort(ids[host.node[nodes]], kind="stable")]
        known = np.flatnonzero(host.timed[nodes])
        if not len(known):
            continue
        before = np.searchsorted(known, np.arange(len(nodes)), side="right") - 1
        filled = start[nodes][known[np.maximum(before, 0)]]
        filled[before < 0] = start[nodes][known].min()
        start[nodes] = np.where(host.timed[nodes], start[nodes], filled)
    unlisted = without & (host.node == UNKNOWN)
    rows = host.row[unlisted]
    start[unlisted] = np.where(part.events.timed[rows], part.events.start[rows], 0)
    return start


def _lanes(part: Excerpt, host: Host) -> Int64s:
    """The thread of each node; without a time, the thread on which most of its logical thread ran."""
    lane = part.events.track[host.row].astype(np.int64)
    logical = part.key(Key.LOGICAL_THREAD, UNKNOWN)
    without = np.flatnonzero(~host.timed & (host.node != UNKNOWN))
    linked = np.flatnonzero(host.timed & (host.node != UNKNOWN))
    for thread in np.unique(logical[host.node[without]]).tolist():
        ran = lane[linked[logical[host.node[linked]] == thread]]
        if len(ran):
            untimed = without[logical[host.node[without]] == thread]
            lane[untimed] = np.bincount(ran).argmax()
    return lane


# Device work and the host nodes that launched it.


class Device(Table, frozen=True):
    """Kernels, copies and memsets, including those of graphs and those without a recorded launch."""

    row: Int64s
    parent: Int64s
    """The index of the innermost host node that encloses the launch, or UNKNOWN."""
    previous: Int64s
    """If none encloses it, the index of the last host node before the launch on its thread; else UNKNOWN."""


def device_of(part: Excerpt, host: Host) -> Device:
    """All device work of a rank with a time."""
    rows = part.rows(*GPU_WORK)
    rows = rows[part.events.timed[rows]]
    launches = part.where(Relation.LAUNCHES)
    launch = scatter(len(part.events), launches.target, launches.source)
    call = launch[rows]
    parent = np.where(call == UNKNOWN, UNKNOWN, np.append(host.innermost, UNKNOWN)[call])
    not_enclosed = np.flatnonzero((parent == UNKNOWN) & (call != UNKNOWN))
    previous = scatter(len(rows), not_enclosed, _last_node_before(part, host, call[not_enclosed]))
    return Device(rows, parent, previous)


def _last_node_before(part: Excerpt, host: Host, calls: Int64s) -> Int64s:
    """For each call the index of the last node that started before it on its thread, or UNKNOWN."""
    by_start = Threads.of(np.where(host.timed, host.lane, UNKNOWN), host.start)
    return by_start.last_before(part.events.track[calls].astype(np.int64), part.events.start[calls] + 1)


# The nodes of a rank as slots, the order of their ids, and the dependencies that agree with this order.

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
    of_communication = scatter(count, slot[first], numbers[first])
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
    known = np.concatenate([row, host.node[linked]])[::-1]
    slot = np.concatenate([np.arange(len(row)), linked])[::-1]
    return values_at(slot, lookup(known, wanted))  # the first of several slots of a row


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


def share_kernels(pairs: Pairs, first: Int64s) -> Pairs:
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
        chosen = by_end[ranges(starts, length)]
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
