"""Operators and device work as nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.converters.chakra.communications import Communicating, GroupNumbers, usable
from tracelink.converters.chakra.schema import NodeType
from tracelink.model.call_tree import callers, depths, exclusive_time, innermost, outside
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.events import GPU_WORK, EventKind, Key, Relation
from tracelink.model.graph import Excerpt

# Which operators and nodes of a rank become nodes of the host, what encloses each, and when it began.


TIMED = (EventKind.OPERATOR, EventKind.ANNOTATION)
NO_ID = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class Host:
    """The nodes of the host. Their places here are how other modules know them; they are in no order."""

    row: Int64s
    """The event: an operator or annotation, else the node of the execution trace or the entry itself."""
    node: Int64s
    """The row of the node of the execution trace that is the same, itself where its source lists nodes, or UNKNOWN."""
    parent: Int64s
    """The place of what encloses it, or UNKNOWN."""
    lane: Int64s
    """What runs one after the other: a thread."""
    start: Int64s
    """Nanoseconds; where there is no time of its own, that of what began before it."""
    inclusive: Int64s
    own: Int64s
    """How long it ran without what it encloses, and without the time that it waited."""
    waited: Int64s
    timed: Bools
    depth: Int64s
    around: Int64s
    """For each event of the rank the place of the innermost node around it, itself included, or UNKNOWN."""

    def __len__(self) -> int:
        return len(self.row)


def host_of(part: Excerpt) -> Host:
    """All operators, annotations and nodes of a rank; entries of the recorder only where there is nothing else."""
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
    listed = listed[part.key(Key.NODE_ID, NO_ID)[listed] != NO_ID]
    node[listed] = listed
    host = _enclosed(part, rows, node[rows])
    start = _started(part, host)
    return replace(host, start=start, lane=_lanes(part, host), depth=depths(host.parent))


def nodes_of_host(part: Excerpt) -> Bools:
    """Which events become nodes of the host, themselves or as the operator that is the same."""
    events = part.events
    found = (events.of_kind(*TIMED) & events.timed) | events.of_kind(EventKind.NODE)
    return found if found.any() else events.of_kind(EventKind.RECORD)


def _operators(part: Excerpt, timed: Bools) -> Int64s:
    """For each event the timed operator that it is the same as, or UNKNOWN."""
    same = part.where(Relation.SAME)
    chosen = timed[same.target] & (part.events.kind[same.source] == EventKind.NODE)
    operator = np.full(len(part.events), UNKNOWN, np.int64)
    operator[same.source[chosen]] = same.target[chosen]
    return operator


def _enclosed(part: Excerpt, rows: Int64s, node: Int64s) -> Host:
    """The nodes with what encloses them in the profile, else in the execution trace."""
    events, count = part.events, len(part.events)
    place = np.full(count, UNKNOWN, np.int64)
    place[rows] = np.arange(len(rows))
    caller = callers(part)
    nearest = innermost(caller, place != UNKNOWN)
    enclosing = outside(caller, nearest)[rows]
    timed = events.timed[rows]
    start, end = np.where(timed, events.start[rows], 0), np.where(timed, events.end[rows], 0)
    around = _at(place, enclosing)
    recorded = _recorded_parents(part, node, place)
    parent = np.where(timed & (around != UNKNOWN), around, recorded)
    untimed_parent = np.append(~timed, False)[recorded]
    parent = np.where(timed & (around == UNKNOWN) & ~untimed_parent, UNKNOWN, parent)
    own = exclusive_time(start, end, np.where(timed, around, UNKNOWN))
    nothing = np.zeros(len(rows), np.int64)
    inside = _at(place, nearest)
    return Host(rows, node, parent, nothing, start, end - start, own, nothing, timed, nothing, inside)


def _recorded_parents(part: Excerpt, node: Int64s, place: Int64s) -> Int64s:
    """The place of each node's parent in its execution trace, or UNKNOWN."""
    ids, parents = part.key(Key.NODE_ID, NO_ID), part.key(Key.NODE_PARENT, NO_ID)
    known = np.flatnonzero(ids != NO_ID)
    represented = place.copy()
    linked = node != UNKNOWN
    represented[node[linked]] = np.flatnonzero(linked)
    result = np.full(len(node), UNKNOWN, np.int64)
    for source in np.unique(part.events.source[known]).tolist():
        listed = known[part.events.source[known] == source]
        listed = listed[np.argsort(ids[listed], kind="stable")]
        mine = np.flatnonzero(linked)[part.events.source[node[linked]] == source]
        wanted = parents[node[mine]]
        found = np.minimum(np.searchsorted(ids[listed], wanted), len(listed) - 1)
        exact = (ids[listed][found] == wanted) & (wanted != ids[node[mine]])
        result[mine] = np.where(exact, represented[listed[found]], UNKNOWN)
    return result


def _started(part: Excerpt, host: Host) -> Int64s:
    """When each began: a node without a time when the node before it did, for ids are given in order of starts."""
    start = host.start.copy()
    without = ~host.timed
    if not without.any():
        return start
    ids = part.key(Key.NODE_ID, 0)
    listed = np.flatnonzero(host.node != UNKNOWN)
    sources = part.events.source[host.node[listed]]
    for source in np.unique(sources).tolist():
        mine = listed[sources == source]
        mine = mine[np.argsort(ids[host.node[mine]], kind="stable")]
        known = np.flatnonzero(host.timed[mine])
        if not len(known):
            continue
        before = np.searchsorted(known, np.arange(len(mine)), side="right") - 1
        filled = start[mine][known[np.maximum(before, 0)]]
        filled[before < 0] = start[mine][known].min()
        start[mine] = np.where(host.timed[mine], start[mine], filled)
    others = without & (host.node == UNKNOWN)
    start[others] = np.where(part.events.timed[host.row[others]], part.events.start[host.row[others]], 0)
    return start


def _lanes(part: Excerpt, host: Host) -> Int64s:
    """The thread of each; a node without a time is on the thread where most of its logical thread ran."""
    lane = part.events.track[host.row].astype(np.int64)
    logical = part.key(Key.LOGICAL_THREAD, UNKNOWN)
    without = np.flatnonzero(~host.timed & (host.node != UNKNOWN))
    linked = np.flatnonzero(host.timed & (host.node != UNKNOWN))
    for thread in np.unique(logical[host.node[without]]).tolist():
        ran = lane[linked[logical[host.node[linked]] == thread]]
        if len(ran):
            mine = without[logical[host.node[without]] == thread]
            lane[mine] = np.bincount(ran).argmax()
    return lane


def _at(values: Int64s, rows: Int64s) -> Int64s:
    """`values[rows]`, UNKNOWN where the row is UNKNOWN."""
    return np.where(rows == UNKNOWN, UNKNOWN, np.append(values, UNKNOWN)[rows])


# Work on devices, and which node of the host put it there.


@dataclass(frozen=True, slots=True)
class Device:
    """Kernels, copies and memsets, those of graphs and those without a recorded launch too."""

    row: Int64s
    parent: Int64s
    """The place on the host of the innermost node around the launch, or UNKNOWN."""
    after: Int64s
    """The place of the last node that began before the launch on the same thread, where none is around it."""

    def __len__(self) -> int:
        return len(self.row)


def device_of(part: Excerpt, host: Host) -> Device:
    """All work of a rank that has a time."""
    rows = part.rows(*GPU_WORK)
    rows = rows[part.events.timed[rows]]
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(part.events), UNKNOWN, np.int64)
    launch[launches.target] = launches.source
    call = launch[rows]
    parent = np.where(call == UNKNOWN, UNKNOWN, np.append(host.around, UNKNOWN)[call])
    outside = np.flatnonzero((parent == UNKNOWN) & (call != UNKNOWN))
    after = np.full(len(rows), UNKNOWN, np.int64)
    after[outside] = last_before(part, host, call[outside])
    return Device(rows, parent, after)


def last_before(part: Excerpt, host: Host, calls: Int64s) -> Int64s:
    """For each call the place of the last node of its thread that began before it, or UNKNOWN."""
    events = part.events
    track, time = events.track[calls].astype(np.int64), events.start[calls]
    found = np.full(len(calls), UNKNOWN, np.int64)
    for lane in np.unique(track).tolist():
        places = np.flatnonzero((host.lane == lane) & host.timed)
        places = places[np.argsort(host.start[places], kind="stable")]
        mine = np.flatnonzero(track == lane)
        before = np.searchsorted(host.start[places], time[mine], side="right") - 1
        if len(places):
            found[mine] = np.where(before < 0, UNKNOWN, places[before])
    return found


# What of a communication those who are written have of it: a simulator waits for all of them, for the same bytes.


def turns_with_nodes(part: Excerpt, told: Communicating) -> Int64s:
    """The turns of those communications of a rank that become nodes."""
    usable_ones, _ = usable(told.settled(part.events))
    written = nodes_of_host(part) | (part.events.of_kind(*GPU_WORK) & part.events.timed)
    turns: Int64s = usable_ones.turn[np.append(written, False)[usable_ones.row]]
    return turns


def compared(
    told: Communicating, groups: GroupNumbers, ranks: Sequence[int], taking_part: Sequence[Int64s]
) -> Communicating:
    """The communications with how many of `ranks` they lack, and the largest size that any of these tells.

    `taking_part` are the turns of each of these ranks.
    """
    count = int(told.turn.max(initial=-1)) + 1
    seen = np.bincount(np.concatenate([np.empty(0, np.int64), *taking_part]), minlength=count)
    written = np.array(sorted(ranks), np.int64)
    members = [len(np.intersect1d(written, np.array(group, np.int64))) for group in groups.members]
    expected = np.array([*members, len(written)], np.int64)[told.group]
    ends = np.isin(told.source, written).astype(np.int64) + np.isin(told.target, written)
    expected = np.where(told.type == NodeType.COMM_COLL, expected, ends)
    most = np.full(count, told.size.min(initial=0), np.int64)
    np.maximum.at(most, told.turn, told.size)
    return replace(told, most=most[told.turn], lacking=np.maximum(expected - seen[told.turn], 0))
