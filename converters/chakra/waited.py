"""How long operators waited for what they depend on: a replay waits again, so it is no part of how long they run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelink.analysis.ordering.order import Order
from tracelink.converters.chakra.host import Host
from tracelink.converters.chakra.orders import HAND_OVER, HOST_WAIT, RESUMPTION
from tracelink.events import EventKind, Int64s
from tracelink.excerpt import NONE, Excerpt

IN_CALLS = (HOST_WAIT,)
"""A thread waits for a device within a call."""
IDLE = (HAND_OVER, RESUMPTION)
"""A thread waits for another thread while nothing at all begins or ends on it."""


def waited(part: Excerpt, host: Host, orders: Mapping[str, Order]) -> Int64s:
    """For each node of the host how much of its own time it waited for the end of what its thread goes on after."""
    time = np.zeros(len(host), np.int64)
    place = np.full(len(part.events), NONE, np.int64)
    place[host.row] = np.arange(len(host))
    calls = part.rows(EventKind.RUNTIME)
    for name in (*IN_CALLS, *IDLE):
        order = orders.get(name)
        if order is None or not len(order):
            continue
        known = (place[order.after] != NONE) & (part.events.duration[order.before] >= 0)
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
            owner = _innermost(host, int(nodes[number - 1]) if number else NONE, end)
            if owner != NONE:
                time[owner] += end - latest.get(begin, begin)
            latest[begin] = end


def _innermost(host: Host, place: int, moment: int) -> int:
    """The innermost node that lasts longer than `moment`, from one that had begun by then."""
    for _ in range(len(host)):
        if place == NONE or host.start[place] + host.inclusive[place] >= moment:
            return place
        place = int(host.parent[place])
    return NONE
