"""One rank in order: what each node waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from tracelink.converters.chakra.communications import Communicating
from tracelink.converters.chakra.host import Device, Host, device_of, host_of
from tracelink.converters.chakra.table import Links
from tracelink.converters.pytorch.arguments import recorded_synchronizations
from tracelink.model.call_tree import greatest_inside, innermost
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.events import GPU_WORK, EventKind, Events, Key, Relation
from tracelink.model.graph import Excerpt
from tracelink.ordering.host import host_waits
from tracelink.ordering.order import Order, lane_of_tracks, launched_work
from tracelink.ordering.streams import stream_order, stream_waits
from tracelink.ordering.threads import hand_overs, resumptions

# Events to nodes: usually one each, but several messages that share a kernel are a node each.


@dataclass(frozen=True, slots=True)
class Spots:
    """The nodes of a rank before they are put in order: those of the host, those of devices, then further ones."""

    row: Int64s
    """The event of each."""
    place: Int64s
    """The place on the host, or UNKNOWN."""
    work: Int64s
    """The place among the device work, or UNKNOWN."""
    parent: Int64s
    """The spot of what encloses or launched it, or UNKNOWN."""
    communication: Int64s
    """The row of the rank's communications that it is, or UNKNOWN."""
    further: Int64s
    """Of which spot it is another message; itself where it is the first."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def on_host(self) -> Bools:
        """Which are on the host."""
        found: Bools = self.place != UNKNOWN
        return found

    def of_events(self, events: int) -> Int64s:
        """For each event the spot that it is first of all, or UNKNOWN."""
        spot = np.full(events, UNKNOWN, np.int64)
        first = np.flatnonzero(self.further == np.arange(len(self)))
        spot[self.row[first]] = first
        return spot


def spots_of(host: Host, device: Device, communications: Communicating) -> Spots:
    """All nodes of a rank; communication whose event is no node is not among them."""
    count = len(host) + len(device)
    row = np.concatenate([host.row, device.row])
    place = np.concatenate([np.arange(len(host)), np.full(len(device), UNKNOWN)])
    work = np.concatenate([np.full(len(host), UNKNOWN), np.arange(len(device))])
    parent = np.concatenate([host.parent, device.parent])
    spot = _spots_at(host, row, communications.row)
    numbers = np.flatnonzero(spot != UNKNOWN)
    numbers = numbers[np.argsort(spot[numbers], kind="stable")]
    spot = spot[numbers]
    first = np.ones(len(spot), np.bool_)
    first[1:] = spot[1:] != spot[:-1]
    communication = np.full(count, UNKNOWN, np.int64)
    communication[spot[first]] = numbers[first]
    more = spot[~first]
    return Spots(
        np.append(row, row[more]),
        np.append(place, place[more]),
        np.append(work, work[more]),
        np.append(parent, parent[more]),
        np.append(communication, numbers[~first]),
        np.append(np.arange(count), more),
    )


def _spots_at(host: Host, row: Int64s, wanted: Int64s) -> Int64s:
    """The spot at each row, which may be that of the operator or of its node in the execution trace; or UNKNOWN."""
    linked = np.flatnonzero(host.node != UNKNOWN)
    known = np.concatenate([row, host.node[linked]])
    spot = np.concatenate([np.arange(len(row)), linked])
    order = np.argsort(known, kind="stable")
    if not len(order):
        return np.full(len(wanted), UNKNOWN, np.int64)
    found = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where(known[found] == wanted, spot[found], UNKNOWN)


# In which order the nodes of a rank come, and what each had to wait for.


ROUNDS = 16
"""Lanes push each other; where that does not end, dependencies against the order are left out."""

FIRST_ID = 1
"""A number of 0 is not written by protobuf, and some readers take what is not there for missing."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """`after[i]` could not begin before `before[i]`; both are spots."""

    before: Int64s
    after: Int64s

    def __len__(self) -> int:
        return len(self.before)

    @classmethod
    def concatenate(cls, parts: Sequence[Pairs]) -> Pairs:
        """All pairs of all parts."""
        empty = np.empty(0, np.int64)
        return cls(
            np.concatenate([empty, *(part.before for part in parts)]),
            np.concatenate([empty, *(part.after for part in parts)]),
        )

    def known(self) -> Pairs:
        """Those of which both ends are nodes, and two."""
        known = (self.before != UNKNOWN) & (self.after != UNKNOWN) & (self.before != self.after)
        return Pairs(self.before[known], self.after[known])


@dataclass(frozen=True, slots=True)
class Turns:
    """The nodes in the order of their ids: none depends on a later one, so there is no circle."""

    spot: Int64s
    turn: Int64s
    """The place of each spot in that order."""
    time: Int64s
    """Nanoseconds of each spot; for none earlier than for what put it on a device or stands before it in a stream."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What runs one after the other, whatever times say: each spot's lane, or UNKNOWN, and its place in it."""

    lane: Int64s
    place: Int64s

    def pairs(self) -> Pairs:
        """Each spot after the one before it in its lane."""
        mine = self._in_order()
        same = self.lane[mine][1:] == self.lane[mine][:-1]
        return Pairs(mine[:-1][same], mine[1:][same])

    def pushed(self, time: Int64s) -> Int64s:
        """Times that grow along every lane."""
        mine = self._in_order()
        lanes, begin = np.unique(self.lane[mine], return_index=True)
        pushed = time.copy()
        for spots in np.split(mine, begin[1:]) if len(lanes) else []:
            step = np.arange(len(spots))
            pushed[spots] = np.maximum.accumulate(pushed[spots] - step) + step
        return pushed

    def _in_order(self) -> Int64s:
        mine = np.flatnonzero(self.lane != UNKNOWN)
        return mine[np.lexsort((mine, self.place[mine], self.lane[mine]))]


def turns_of(spots: Spots, start: Int64s, ties: Sequence[Int64s], lanes: Sequence[Lane]) -> Turns:
    """Nodes by time, and a launch before the work, whatever clocks say; `ties` tell in turn what equal times do not."""
    time = start.copy()
    launched = np.flatnonzero((spots.work != UNKNOWN) & (spots.parent != UNKNOWN))
    time[launched] = np.maximum(time[launched], time[spots.parent[launched]])
    for _ in range(ROUNDS):
        before = time
        for lane in lanes:
            time = lane.pushed(time)
        if np.array_equal(time, before):
            break
    device = spots.work != UNKNOWN
    order = np.lexsort((*reversed(ties), device, time))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order))
    return Turns(order, turn, time)


def spread(pairs: Pairs, further: Int64s) -> Pairs:
    """The pairs, for every other message that shares an end too."""
    others = np.flatnonzero(further != np.arange(len(further)))
    if not len(others):
        return pairs
    parts = [pairs]
    for ends in ("before", "after"):
        joined = Pairs.concatenate(parts)
        column = getattr(joined, ends)
        by_end = np.argsort(column, kind="stable")
        begin = np.searchsorted(column[by_end], further[others])
        end = np.searchsorted(column[by_end], further[others], side="right")
        length = end - begin
        chosen = by_end[_ranges(begin, length)]
        owner = np.repeat(others, length)
        before, after = joined.before[chosen], joined.after[chosen]
        parts = [joined, Pairs(owner, after) if ends == "before" else Pairs(before, owner)]
    return Pairs.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What nodes wait for, and how much could not be kept."""

    links: Links
    against_order: Mapping[str, int]
    """Pairs by where they are from, left out because times contradict them."""


def waiting(named: Mapping[str, Pairs], turns: Turns) -> Waiting:
    """All pairs as ids by node; each once, none against the order."""
    against: dict[str, int] = {}
    kept: list[Pairs] = []
    for name, pairs in named.items():
        forward = turns.turn[pairs.before] < turns.turn[pairs.after]
        if lost := len(pairs) - int(np.count_nonzero(forward)):
            against[name] = lost
        kept.append(Pairs(pairs.before[forward], pairs.after[forward]))
    every = Pairs.concatenate(kept)
    count = len(turns.spot)
    joined = np.unique(turns.turn[every.after] * count + turns.turn[every.before])
    after, before = np.divmod(joined, max(count, 1))
    bounds = np.searchsorted(after, np.arange(count + 1))
    return Waiting(Links(bounds, before + FIRST_ID), against)


def control_links(parent: Int64s, turns: Turns) -> Links:
    """The id of the parent of each node that has one before it."""
    above = parent[turns.spot]
    place = np.where(above == UNKNOWN, UNKNOWN, np.append(turns.turn, UNKNOWN)[above])
    place = np.where(place < np.arange(len(place)), place, UNKNOWN)
    has = place != UNKNOWN
    return Links(np.concatenate([[0], np.cumsum(has)]), place[has] + FIRST_ID)


def _ranges(begin: Int64s, length: Int64s) -> Int64s:
    """`begin[i], begin[i] + 1, …` of each length, one after the other."""
    total = int(length.sum())
    offset: Int64s = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    return offset + np.arange(total)


# Which work on a device needs what other work made: operators say it of tensors, and work runs for operators.


NOBODY = int(np.iinfo(np.int64).max)


def device_flow(events: Events, host: Host, device: Device, writers: Int64s, readers: Int64s) -> Pairs:
    """The first work of each reader after the last work of its writer, as places of work.

    `writers` and `readers` are places of the host. Times must confirm a pair.
    """
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != UNKNOWN]
    first, last = np.full(len(host), NOBODY), np.full(len(host), UNKNOWN, np.int64)
    rank = np.argsort(np.argsort(events.start[device.row], kind="stable"), kind="stable")
    np.minimum.at(first, device.parent[order], rank[order])
    np.maximum.at(last, device.parent[order], rank[order])
    first, last = -greatest_inside(host.parent, -first), greatest_inside(host.parent, last)
    before, after = last[writers], first[readers]
    known = (before != UNKNOWN) & (after != NOBODY)
    by_start = np.argsort(events.start[device.row], kind="stable")
    before, after = by_start[before[known]], by_start[after[known]]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])


def one_after_the_other(events: Events, device: Device) -> Pairs:
    """The works of one operator in their order, as places of work."""
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != UNKNOWN]
    same = device.parent[order][1:] == device.parent[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])


# Every order that is known of a rank's events, by the name of the question that told it.


STREAM, STREAM_WAIT, HOST_WAIT, HAND_OVER = "stream", "stream wait", "host wait", "hand-over"
ISSUE, RESUMPTION, TENSOR = "issue", "resumption", "tensor"


def orders_of(part: Excerpt, told: Communicating, *, by_time: bool) -> Mapping[str, Order]:
    """What had to wait for what; the order of streams only where order in time counts."""
    orders = {
        **waits_for_devices(part),
        HAND_OVER: hand_overs(part),
        ISSUE: _issues(part, told),
        RESUMPTION: _resumptions(part, told),
    }
    return {STREAM: stream_order(part), **orders} if by_time else orders


def waits_for_devices(part: Excerpt) -> Mapping[str, Order]:
    """Waits for devices; what was written as linked nodes has none of the calls that tell of them, but the waits."""
    if not len(part.rows(EventKind.RUNTIME)):
        return {}
    launched, recorded = launched_work(part), recorded_synchronizations(part.graph)
    return {
        STREAM_WAIT: stream_waits(part, launched, recorded),
        HOST_WAIT: host_waits(part, launched, recorded),
    }


def _resumptions(part: Excerpt, told: Communicating) -> Order:
    """What threads do after communication that ran on other threads; for what is on a device they say if they wait."""
    on_host = np.flatnonzero(~part.events.of_kind(*GPU_WORK)[told.row])
    return resumptions(part, told.operator[on_host], told.row[on_host])


def _issues(part: Excerpt, told: Communicating) -> Order:
    """Communication on a thread of its own after the operator that asked for it; what is on a device is launched."""
    asked = (told.operator != UNKNOWN) & (told.operator != told.row)
    asked[asked] &= ~part.events.of_kind(*GPU_WORK)[told.row[asked]]
    return Order.of(told.operator[asked], told.row[asked])


# How long operators waited for what they depend on: a replay waits again, so it is no part of how long they run.


IN_CALLS = (HOST_WAIT,)
"""A thread waits for a device within a call."""
IDLE = (HAND_OVER, RESUMPTION)
"""A thread waits for another thread while nothing at all begins or ends on it."""


def waited(part: Excerpt, host: Host, orders: Mapping[str, Order]) -> Int64s:
    """For each node of the host how much of its own time it waited for the end of what its thread goes on after."""
    time = np.zeros(len(host), np.int64)
    place = np.full(len(part.events), UNKNOWN, np.int64)
    place[host.row] = np.arange(len(host))
    calls = part.rows(EventKind.RUNTIME)
    for name in (*IN_CALLS, *IDLE):
        order = orders.get(name)
        if order is None or not len(order):
            continue
        known = (place[order.after] != UNKNOWN) & (part.events.duration[order.before] >= 0)
        after, ended = place[order.after[known]], part.events.end[order.before[known]]
        other = part.events.track[order.before[known]] != host.lane[after]
        after, ended = after[other], ended[other]
        for lane in np.unique(host.lane[after]).tolist():
            mine = host.lane[after] == lane
            on_thread = calls[part.events.track[calls] == lane]
            _add_waits(part, host, lane, after[mine], ended[mine], on_thread, time, idle=name in IDLE)
    return np.minimum(time, np.maximum(host.own, 0))


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
    """Adds the waits of one thread to those who waited; of several ends in one pause the last counts."""
    events = part.events
    nodes = np.flatnonzero((host.lane == lane) & host.timed)
    nodes = nodes[np.lexsort((-host.inclusive[nodes], host.start[nodes]))]
    starts, ends = host.start[nodes], host.start[nodes] + host.inclusive[nodes]
    begun = np.searchsorted(starts, ended, side="right")
    next_begun = np.minimum(begun, max(len(nodes) - 1, 0))
    goes_on = (begun < len(nodes)) & (starts[next_begun] == host.start[after])
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
        since[goes_on].tolist(), ended[goes_on].tolist(), begun[goes_on].tolist(), strict=True
    ):
        if end > latest.get(begin, begin):
            owner = _innermost(host, int(nodes[number - 1]) if number else UNKNOWN, end)
            if owner != UNKNOWN:
                time[owner] += end - latest.get(begin, begin)
            latest[begin] = end


def _innermost(host: Host, place: int, moment: int) -> int:
    """The innermost node that lasts longer than `moment`, from one that had begun by then."""
    for _ in range(len(host)):
        if place == UNKNOWN or host.start[place] + host.inclusive[place] >= moment:
            return place
        place = int(host.parent[place])
    return UNKNOWN


# One rank as it will be written: its nodes in order, and what each waits for.


class Dependencies(StrEnum):
    """What nodes wait for."""

    TIME = "time"
    """What ran before on the same thread or stream, launches, waits and hand-overs between threads."""
    DATA = "data"
    """Launches, waits, hand-overs, and what made the tensors that a node reads."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes of a rank by spot, and their order."""

    part: Excerpt
    host: Host
    device: Device
    communications: Communicating
    spots: Spots
    turns: Turns
    stream: Int64s
    """The lane of device work, UNKNOWN on the host."""
    control: Links
    waiting: Waiting


def plan_of(
    part: Excerpt,
    communications: Communicating,
    orders: Mapping[str, Order],
    dependencies: Dependencies,
    *,
    one_at_a_time: bool = False,
) -> Plan:
    """Puts a rank in order; `orders` are pairs of events that other questions about it gave.

    `one_at_a_time` puts all communication in one order, for who has room for one at a time: in an order that
    ranks do not share they would wait for each other for ever.
    """
    host = host_of(part)
    waits = np.maximum(waited(part, host, orders), part.key(Key.WAITED, 0)[host.row])
    host = replace(host, own=host.own - waits, waited=waits)
    device = device_of(part, host)
    spots = spots_of(host, device, communications)
    stream = _streams(part, spots)
    start, ties = _sorting(part, host, spots, communications)
    together = _together(spots, communications, one_at_a_time=one_at_a_time)
    turns = turns_of(spots, start, ties, [Lane(stream, start), together])
    spot = _spot_of_events(part, host, spots)
    named = {name: Pairs(spot[order.before], spot[order.after]) for name, order in orders.items()}
    named |= {"launch": _launches(spots, device), "said": _said(part, spot), "group": together.pairs()}
    named |= _program(part, host, device, spots, turns, dependencies)
    if TENSOR in named:
        named["device tensor"] = _device_flow(part, host, device, named[TENSOR].known())
    found = waiting({name: spread(pairs.known(), spots.further) for name, pairs in named.items()}, turns)
    control = control_links(spots.parent, turns)
    return Plan(part, host, device, communications, spots, turns, stream, control, found)


def _program(
    part: Excerpt, host: Host, device: Device, spots: Spots, turns: Turns, dependencies: Dependencies
) -> dict[str, Pairs]:
    """What program order says: of whole threads, or, where data order them, of what lies inside one operator."""
    if dependencies != Dependencies.DATA:
        return {"thread": Lane(_threads(host, spots), turns.turn).pairs()}
    works = _work_as_spots(host, one_after_the_other(part.events, device))
    return {"thread": _first_inside(spots), "operator": works}


def _streams(part: Excerpt, spots: Spots) -> Int64s:
    """The stream of each spot, UNKNOWN on the host."""
    if not len(spots):
        return np.empty(0, np.int64)
    lanes = lane_of_tracks(part.graph.tracks)
    return np.where(spots.on_host, UNKNOWN, lanes[part.events.track[spots.row]])


def _sorting(
    part: Excerpt, host: Host, spots: Spots, communications: Communicating
) -> tuple[Int64s, list[Int64s]]:
    """By what nodes are put in order: when they began, then numbers of nodes, then how deep they lie.

    What is no node of the execution trace stands behind the node that encloses it.
    """
    numbered = innermost(host.parent, host.node != UNKNOWN)
    ids = np.append(part.key(Key.NODE_ID, 0), 0)
    number = np.append(np.where(numbered == UNKNOWN, 0, ids[np.append(host.node, UNKNOWN)[numbered]]), 0)
    began = np.append(host.start if host.timed.any() else number[:-1], 0)
    start = np.where(spots.on_host, began[spots.place], part.events.start[spots.row])
    others = spots.further != np.arange(len(spots))
    turn = np.append(communications.turn, 0)[spots.communication]
    return start, [
        np.where(spots.on_host, number[spots.place], 0),
        np.where(spots.on_host, np.append(host.depth, 0)[spots.place], 0),
        spots.row,
        np.where(others, turn, UNKNOWN),
    ]


def _threads(host: Host, spots: Spots) -> Int64s:
    """The thread of each node of the host; further messages of one operator stand beside it."""
    first = spots.further == np.arange(len(spots))
    return np.where(spots.on_host & first, np.append(host.lane, UNKNOWN)[spots.place], UNKNOWN)


def _spot_of_events(part: Excerpt, host: Host, spots: Spots) -> Int64s:
    """For each event the spot that it is, be it an operator or the node of the execution trace; or UNKNOWN."""
    spot = spots.of_events(len(part.events))
    linked = np.flatnonzero(host.node != UNKNOWN)
    spot[host.node[linked]] = spot[host.row[linked]]
    return spot


def _launches(spots: Spots, device: Device) -> Pairs:
    """Work after what launched it, or after what came before the launch on its thread."""
    first = np.flatnonzero(spots.further == np.arange(len(spots)))
    work = first[spots.work[first] != UNKNOWN]
    parent = spots.parent[work]
    before = np.where(parent == UNKNOWN, device.after[spots.work[work]], parent)
    return Pairs(before, work)


def _said(part: Excerpt, spot: Int64s) -> Pairs:
    """What a producer or a linker says that an event depends on or waits for."""
    edges = [part.where(relation) for relation in (Relation.DEPENDS_ON, Relation.WAITS_FOR)]
    return Pairs.concatenate([Pairs(spot[edge.target], spot[edge.source]) for edge in edges])


def _device_flow(part: Excerpt, host: Host, device: Device, tensors: Pairs) -> Pairs:
    """What tensors say of operators, for their work; spots of the host are their places."""
    return _work_as_spots(host, device_flow(part.events, host, device, tensors.before, tensors.after))


def _work_as_spots(host: Host, works: Pairs) -> Pairs:
    return Pairs(works.before + len(host), works.after + len(host))


def _first_inside(spots: Spots) -> Pairs:
    """What is inside an operator after it."""
    inside = np.flatnonzero(spots.on_host & (spots.parent != UNKNOWN))
    return Pairs(spots.parent[inside], inside)


def _together(spots: Spots, communications: Communicating, *, one_at_a_time: bool) -> Lane:
    """The order of communication that all members share: of each group, or of all groups together."""
    talks = spots.communication != UNKNOWN
    turn = np.append(communications.turn, UNKNOWN)[spots.communication]
    collective = np.append(communications.collective, UNKNOWN)[spots.communication] != UNKNOWN
    group = np.append(communications.group, UNKNOWN)[spots.communication] + 1
    lane = np.where(talks, 0, UNKNOWN) if one_at_a_time else np.where(talks & collective, group, UNKNOWN)
    return Lane(lane, turn)
