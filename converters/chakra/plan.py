"""One rank as it will be written: its nodes in order, and what each waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.analysis.ordering.order import Order
from tracelink.converters.chakra.communications import Communicating
from tracelink.converters.chakra.device import Device, device_of
from tracelink.converters.chakra.device_flow import device_flow, one_after_the_other
from tracelink.converters.chakra.host import Host, host_of
from tracelink.converters.chakra.nodes_of_events import Spots, spots_of
from tracelink.converters.chakra.orders import TENSOR
from tracelink.converters.chakra.program import (
    Lane,
    Pairs,
    Turns,
    Waiting,
    control_links,
    spread,
    turns_of,
    waiting,
)
from tracelink.converters.chakra.table import Links
from tracelink.converters.chakra.waited import waited
from tracelink.enclosing import innermost
from tracelink.events import Int64s, Key, Relation
from tracelink.excerpt import NONE, Excerpt


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
    """The lane of device work, NONE on the host."""
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
    """The stream of each spot, NONE on the host."""
    if not len(spots):
        return np.empty(0, np.int64)
    lanes = lane_of_tracks(part.graph.tracks)
    return np.where(spots.on_host, NONE, lanes[part.events.track[spots.row]])


def _sorting(
    part: Excerpt, host: Host, spots: Spots, communications: Communicating
) -> tuple[Int64s, list[Int64s]]:
    """By what nodes are put in order: when they began, then numbers of nodes, then how deep they lie.

    What is no node of the execution trace stands behind the node that encloses it.
    """
    numbered = innermost(host.parent, host.node != NONE)
    ids = np.append(part.key(Key.NODE_ID, 0), 0)
    number = np.append(np.where(numbered == NONE, 0, ids[np.append(host.node, NONE)[numbered]]), 0)
    began = np.append(host.start if host.timed.any() else number[:-1], 0)
    start = np.where(spots.on_host, began[spots.place], part.events.start[spots.row])
    others = spots.further != np.arange(len(spots))
    turn = np.append(communications.turn, 0)[spots.communication]
    return start, [
        np.where(spots.on_host, number[spots.place], 0),
        np.where(spots.on_host, np.append(host.depth, 0)[spots.place], 0),
        spots.row,
        np.where(others, turn, NONE),
    ]


def _threads(host: Host, spots: Spots) -> Int64s:
    """The thread of each node of the host; further messages of one operator stand beside it."""
    first = spots.further == np.arange(len(spots))
    return np.where(spots.on_host & first, np.append(host.lane, NONE)[spots.place], NONE)


def _spot_of_events(part: Excerpt, host: Host, spots: Spots) -> Int64s:
    """For each event the spot that it is, be it an operator or the node of the execution trace; or NONE."""
    spot = spots.of_events(len(part.events))
    linked = np.flatnonzero(host.node != NONE)
    spot[host.node[linked]] = spot[host.row[linked]]
    return spot


def _launches(spots: Spots, device: Device) -> Pairs:
    """Work after what launched it, or after what came before the launch on its thread."""
    first = np.flatnonzero(spots.further == np.arange(len(spots)))
    work = first[spots.work[first] != NONE]
    parent = spots.parent[work]
    before = np.where(parent == NONE, device.after[spots.work[work]], parent)
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
    inside = np.flatnonzero(spots.on_host & (spots.parent != NONE))
    return Pairs(spots.parent[inside], inside)


def _together(spots: Spots, communications: Communicating, *, one_at_a_time: bool) -> Lane:
    """The order of communication that all members share: of each group, or of all groups together."""
    talks = spots.communication != NONE
    turn = np.append(communications.turn, NONE)[spots.communication]
    collective = np.append(communications.collective, NONE)[spots.communication] != NONE
    group = np.append(communications.group, NONE)[spots.communication] + 1
    lane = np.where(talks, 0, NONE) if one_at_a_time else np.where(talks & collective, group, NONE)
    return Lane(lane, turn)
