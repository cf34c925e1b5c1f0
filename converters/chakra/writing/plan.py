"""One rank as it will be written: its nodes in order, and what each of them depends on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.causes import greatest_inside, innermost
from tracelink._model.columns import UNKNOWN, Int64s, scatter
from tracelink._model.events import GPU_WORK, EventKind, Events, Key, Relation
from tracelink._model.graph import Excerpt
from tracelink._order.host import hand_overs, host_waits, resumptions
from tracelink._order.order import Order, lane_of_tracks, launched_work
from tracelink._order.streams import stream_order, stream_waits
from tracelink.converters.chakra.table import Links
from tracelink.converters.chakra.writing.communications import Communication
from tracelink.converters.chakra.writing.slots import (
    DataDependencies,
    Device,
    Host,
    Lanes,
    NodeOrder,
    NodeSlots,
    Pairs,
    control_dependencies,
    data_dependencies,
    device_of,
    host_of,
    node_order,
    node_slots,
    share_kernels,
)
from tracelink.converters.pytorch.arguments import recorded_synchronizations

STREAM, STREAM_WAIT, HOST_WAIT, HAND_OVER = "stream", "stream wait", "host wait", "hand-over"
ISSUE, RESUMPTION, TENSOR = "issue", "resumption", "tensor"
"""Origins of dependencies between events."""
LAUNCH, RECORDED, GROUP, THREAD, OPERATOR = "launch", "recorded", "group", "thread", "operator"
DEVICE_TENSOR = "device tensor"
"""Origins of dependencies between nodes."""

_WAITS_IN_CALLS = (HOST_WAIT,)
"""A thread waits for a device within a call."""
_WAITS_BETWEEN_CALLS = (HAND_OVER, RESUMPTION)
"""A thread waits for another thread while nothing starts or ends on it."""
_LAST = int(np.iinfo(np.int64).max)


class Dependencies(StrEnum):
    """The content of `data_deps`."""

    TIME = "time"
    """Program order of threads and streams, launches, waits, and hand-overs between threads."""
    DATA = "data"
    """Launches, waits, hand-overs, and the producers of tensors that a node reads."""
    BOTH = "both"


class Plan(Struct, frozen=True):
    """The nodes of a rank by slot, their order and their dependencies."""

    part: Excerpt
    host: Host
    device: Device
    communication: Communication
    slots: NodeSlots
    order: NodeOrder
    stream: Int64s
    """The stream of device work, UNKNOWN on the host."""
    control: Links
    data: DataDependencies

    @property
    def rows(self) -> Int64s:
        """The event of each node, in the order of ids."""
        return self.slots.row[self.order.slot]

    @property
    def host_index(self) -> Int64s:
        """The index of the host node of each node, or UNKNOWN, in the order of ids."""
        return self.slots.host[self.order.slot]


def plan_of(
    part: Excerpt,
    communication: Communication,
    orders: Mapping[str, Order],
    dependencies: Dependencies,
    *,
    one_at_a_time: bool = False,
) -> Plan:
    """Orders the nodes of a rank; `orders` are the dependencies between events by their origin.

    `one_at_a_time` puts all communication in the shared order, for simulators that run one at a time: ranks with
    different orders would deadlock.
    """
    host = host_of(part)
    waited = np.maximum(waiting_times(part, host, orders), part.key(Key.WAITED, 0)[host.row])
    host = replace(host, exclusive=host.exclusive - waited, waited=waited)
    device = device_of(part, host)
    slots = node_slots(host, device, communication)
    stream = _streams(part, slots)
    start, tie_breakers = _sort_keys(part, host, slots, communication)
    shared = _shared_order(slots, communication, one_at_a_time=one_at_a_time)
    order = node_order(slots, start, tie_breakers, [Lanes(stream, start), shared])
    slot = _slot_of_events(part, host, slots)
    pairs = {origin: Pairs(slot[order.before], slot[order.after]) for origin, order in orders.items()}
    pairs |= {LAUNCH: _launches(slots, device), RECORDED: _recorded(part, slot), GROUP: shared.pairs()}
    pairs |= _program_order(part, host, device, slots, order, dependencies)
    if TENSOR in pairs:
        tensors = pairs[TENSOR].known()
        work = device_flow(part.events, host, device, tensors.before, tensors.after)
        pairs[DEVICE_TENSOR] = _slots_of_work(host, work)
    pairs = {origin: share_kernels(found.known(), slots.first) for origin, found in pairs.items()}
    data, control = data_dependencies(pairs, order), control_dependencies(slots.parent, order)
    return Plan(part, host, device, communication, slots, order, stream, control, data)


def _program_order(
    part: Excerpt, host: Host, device: Device, slots: NodeSlots, order: NodeOrder, dependencies: Dependencies
) -> dict[str, Pairs]:
    """The order of each thread; if only data order nodes, the order within each operator."""
    if dependencies != Dependencies.DATA:
        return {THREAD: Lanes(_threads(host, slots), order.position).pairs()}
    work = _slots_of_work(host, work_order(part.events, device))
    return {THREAD: _after_parent(slots), OPERATOR: work}


def _streams(part: Excerpt, slots: NodeSlots) -> Int64s:
    """The stream of each slot, UNKNOWN on the host."""
    if not len(slots):
        return np.empty(0, np.int64)
    lanes = lane_of_tracks(part.graph.tracks)
    return np.where(slots.on_host, UNKNOWN, lanes[part.events.track[slots.row]])


def _sort_keys(
    part: Excerpt, host: Host, slots: NodeSlots, communication: Communication
) -> tuple[Int64s, list[Int64s]]:
    """The start of each slot, and tie-breakers: node ids, depth, row, and the shared order of messages.

    A node that is not in the execution trace comes after the node of the trace that encloses it.
    """
    with_id = innermost(host.parent, host.node != UNKNOWN)
    ids = np.append(part.key(Key.NODE_ID, 0), 0)
    number = np.where(with_id == UNKNOWN, 0, ids[np.append(host.node, UNKNOWN)[with_id]])
    number = np.append(number, 0)
    host_start = np.append(host.start if host.timed.any() else number[:-1], 0)
    start = np.where(slots.on_host, host_start[slots.host], part.events.start[slots.row])
    position = np.append(communication.position, 0)[slots.communication]
    return start, [
        np.where(slots.on_host, number[slots.host], 0),
        np.where(slots.on_host, np.append(host.depth, 0)[slots.host], 0),
        slots.row,
        np.where(slots.is_first, UNKNOWN, position),
    ]


def _threads(host: Host, slots: NodeSlots) -> Int64s:
    """The thread of each host node; further messages of an operator are not in the order of the thread."""
    lane = np.append(host.lane, UNKNOWN)[slots.host]
    return np.where(slots.on_host & slots.is_first, lane, UNKNOWN)


def _slot_of_events(part: Excerpt, host: Host, slots: NodeSlots) -> Int64s:
    """The slot of each event, also of nodes of the execution trace that are the same as an operator; or UNKNOWN."""
    slot = slots.of_events(len(part.events))
    linked = np.flatnonzero(host.node != UNKNOWN)
    slot[host.node[linked]] = slot[host.row[linked]]
    return slot


def _launches(slots: NodeSlots, device: Device) -> Pairs:
    """Device work after the node that launched it, or after the last node before the launch on its thread."""
    first = np.flatnonzero(slots.is_first)
    work = first[slots.work[first] != UNKNOWN]
    parent = slots.parent[work]
    before = np.where(parent == UNKNOWN, device.previous[slots.work[work]], parent)
    return Pairs(before, work)


def _recorded(part: Excerpt, slot: Int64s) -> Pairs:
    """Dependencies and waits that are edges of the graph."""
    edges = [part.where(relation) for relation in (Relation.DEPENDS_ON, Relation.WAITS_FOR)]
    return Pairs.concatenate([Pairs(slot[edge.target], slot[edge.source]) for edge in edges])


def _slots_of_work(host: Host, work: Pairs) -> Pairs:
    return Pairs(work.before + len(host), work.after + len(host))


def _after_parent(slots: NodeSlots) -> Pairs:
    """Each host node after the node that encloses it."""
    inside = np.flatnonzero(slots.on_host & (slots.parent != UNKNOWN))
    return Pairs(slots.parent[inside], inside)


def _shared_order(slots: NodeSlots, communication: Communication, *, one_at_a_time: bool) -> Lanes:
    """The order of communication that ranks share: of each group, or of all communication."""
    communicates = slots.communication != UNKNOWN
    position = np.append(communication.position, UNKNOWN)[slots.communication]
    collective = np.append(communication.collective, UNKNOWN)[slots.communication] != UNKNOWN
    group = np.append(communication.group, UNKNOWN)[slots.communication] + 1
    if one_at_a_time:
        return Lanes(np.where(communicates, 0, UNKNOWN), position)
    return Lanes(np.where(communicates & collective, group, UNKNOWN), position)


# Event orders: dependencies between events by their origin.


def event_orders(part: Excerpt, communication: Communication, *, by_time: bool) -> Mapping[str, Order]:
    """Dependencies between events; the order of streams only if nodes are ordered by time."""
    orders = {
        **waits_for_devices(part),
        HAND_OVER: hand_overs(part),
        ISSUE: _issues(part, communication),
        RESUMPTION: _resumptions(part, communication),
    }
    return {STREAM: stream_order(part), **orders} if by_time else orders


def waits_for_devices(part: Excerpt) -> Mapping[str, Order]:
    """Waits for devices, from calls of the runtime; a linked trace has the waits themselves as edges."""
    if not len(part.rows(EventKind.RUNTIME)):
        return {}
    launched, recorded = launched_work(part), recorded_synchronizations(part.graph)
    return {
        STREAM_WAIT: stream_waits(part, launched, recorded),
        HOST_WAIT: host_waits(part, launched, recorded),
    }


def _resumptions(part: Excerpt, communication: Communication) -> Order:
    """Threads that resume after communication on another thread; waits for devices are recorded themselves."""
    on_host = np.flatnonzero(~part.events.of_kind(*GPU_WORK)[communication.row])
    return resumptions(part, communication.operator[on_host], communication.row[on_host])


def _issues(part: Excerpt, communication: Communication) -> Order:
    """Communication on another thread after the operator that requested it; work on a device has a launch."""
    requested = (communication.operator != UNKNOWN) & (communication.operator != communication.row)
    requested[requested] &= ~part.events.of_kind(*GPU_WORK)[communication.row[requested]]
    return Order.of(communication.operator[requested], communication.row[requested])


# Waiting times: a replay waits again, so the time that an operator waited is not part of its duration.


def waiting_times(part: Excerpt, host: Host, orders: Mapping[str, Order]) -> Int64s:
    """The part of its exclusive time that each host node waited for what its thread resumed after."""
    time = np.zeros(len(host), np.int64)
    index = scatter(len(part.events), host.row)
    calls = part.rows(EventKind.RUNTIME)
    for name in (*_WAITS_IN_CALLS, *_WAITS_BETWEEN_CALLS):
        order = orders.get(name)
        if order is None or not len(order):
            continue
        known = (index[order.after] != UNKNOWN) & (part.events.duration[order.before] >= 0)
        after, ended = index[order.after[known]], part.events.end[order.before[known]]
        elsewhere = part.events.track[order.before[known]] != host.lane[after]
        after, ended = after[elsewhere], ended[elsewhere]
        for lane in np.unique(host.lane[after]).tolist():
            of_lane = host.lane[after] == lane
            on_thread = calls[part.events.track[calls] == lane]
            _add_waits(
                part,
                host,
                lane,
                after[of_lane],
                ended[of_lane],
                on_thread,
                time,
                idle=name in _WAITS_BETWEEN_CALLS,
            )
    return np.minimum(time, np.maximum(host.exclusive, 0))


def _add_waits(
    part: Excerpt,
    host: Host,
    lane: int,
    after: Int64s,
    ended: Int64s,
    calls: Int64s,
    time: Int64s,
    *,
    idle: bool,
) -> None:
    """Adds the waits of one thread to the nodes that waited; of several ends in one pause the last one counts."""
    events = part.events
    nodes = np.flatnonzero((host.lane == lane) & host.timed)
    nodes = nodes[np.lexsort((-host.inclusive[nodes], host.start[nodes]))]
    starts, ends = host.start[nodes], host.start[nodes] + host.inclusive[nodes]
    begun = np.searchsorted(starts, ended, side="right")
    next_begun = np.minimum(begun, max(len(nodes) - 1, 0))
    resumes = (begun < len(nodes)) & (starts[next_begun] == host.start[after])
    if idle:
        changes = np.unique(np.concatenate([starts, ends, events.start[calls], events.end[calls]]))
        since = np.append(changes, 0)[np.searchsorted(changes, ended, side="right") - 1]
    else:
        calls = calls[np.argsort(events.start[calls], kind="stable")]
        last = np.searchsorted(events.start[calls], ended, side="right") - 1
        inside = (last >= 0) & (np.append(events.end[calls], 0)[last] >= ended)
        since = np.where(inside, np.append(events.start[calls], 0)[last], ended)
    latest: dict[int, int] = {}
    for begin, end, number in zip(
        since[resumes].tolist(), ended[resumes].tolist(), begun[resumes].tolist(), strict=True
    ):
        if end > latest.get(begin, begin):
            owner = _innermost(host, int(nodes[number - 1]) if number else UNKNOWN, end)
            if owner != UNKNOWN:
                time[owner] += end - latest.get(begin, begin)
            latest[begin] = end


def _innermost(host: Host, index: int, time: int) -> int:
    """The innermost node that lasts until `time`, from the last node that started before."""
    for _ in range(len(host)):
        if index == UNKNOWN or host.start[index] + host.inclusive[index] >= time:
            return index
        index = int(host.parent[index])
    return UNKNOWN


# Device work ordered by the operators that launched it.


def device_flow(events: Events, host: Host, device: Device, writers: Int64s, readers: Int64s) -> Pairs:
    """The first work of each reader after the last work of its writer, as indices of work.

    `writers` and `readers` are indices of host nodes. Pairs that times contradict are left out.
    """
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != UNKNOWN]
    first, last = np.full(len(host), _LAST), np.full(len(host), UNKNOWN, np.int64)
    rank = np.argsort(np.argsort(events.start[device.row], kind="stable"), kind="stable")
    np.minimum.at(first, device.parent[order], rank[order])
    np.maximum.at(last, device.parent[order], rank[order])
    first, last = -greatest_inside(host.parent, -first), greatest_inside(host.parent, last)
    before, after = last[writers], first[readers]
    known = (before != UNKNOWN) & (after != _LAST)
    by_start = np.argsort(events.start[device.row], kind="stable")
    before, after = by_start[before[known]], by_start[after[known]]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])


def work_order(events: Events, device: Device) -> Pairs:
    """The work of each operator one after the other, as indices of work."""
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != UNKNOWN]
    same = device.parent[order][1:] == device.parent[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])
