"""The events of a rank that become nodes: operators and annotations of the host, and device work."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tracelink._model.call_tree import callers, depths, exclusive_time, innermost, outside
from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table, values_at
from tracelink._model.events import GPU_WORK, EventKind, Key, Relation
from tracelink._model.graph import Excerpt

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
    node = np.full(len(events), UNKNOWN, np.int64)
    node[operator[operator != UNKNOWN][::-1]] = nodes[operator != UNKNOWN][::-1]
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


def _operators(part: Excerpt, timed: Bools) -> Int64s:
    """For each event the row of the same timed operator, or UNKNOWN."""
    same = part.where(Relation.SAME)
    chosen = timed[same.target] & (part.events.kind[same.source] == EventKind.NODE)
    operator = np.full(len(part.events), UNKNOWN, np.int64)
    operator[same.source[chosen]] = same.target[chosen]
    return operator


def _enclosed(part: Excerpt, rows: Int64s, node: Int64s) -> Host:
    """The nodes, each with the node that encloses it in the profile, else in the execution trace."""
    events, count = part.events, len(part.events)
    index = np.full(count, UNKNOWN, np.int64)
    index[rows] = np.arange(len(rows))
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
    launch = np.full(len(part.events), UNKNOWN, np.int64)
    launch[launches.target] = launches.source
    call = launch[rows]
    parent = np.where(call == UNKNOWN, UNKNOWN, np.append(host.innermost, UNKNOWN)[call])
    not_enclosed = np.flatnonzero((parent == UNKNOWN) & (call != UNKNOWN))
    previous = np.full(len(rows), UNKNOWN, np.int64)
    previous[not_enclosed] = _last_node_before(part, host, call[not_enclosed])
    return Device(rows, parent, previous)


def _last_node_before(part: Excerpt, host: Host, calls: Int64s) -> Int64s:
    """For each call the index of the last node that started before it on its thread, or UNKNOWN."""
    events = part.events
    track, time = events.track[calls].astype(np.int64), events.start[calls]
    found = np.full(len(calls), UNKNOWN, np.int64)
    for lane in np.unique(track).tolist():
        nodes = np.flatnonzero((host.lane == lane) & host.timed)
        nodes = nodes[np.argsort(host.start[nodes], kind="stable")]
        of_lane = np.flatnonzero(track == lane)
        before = np.searchsorted(host.start[nodes], time[of_lane], side="right") - 1
        if len(nodes):
            found[of_lane] = np.where(before < 0, UNKNOWN, nodes[before])
    return found
