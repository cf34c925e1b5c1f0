"""Nodes as events: kinds, tracks, dependencies as edges, recorded times, and estimated ones for nodes without."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.causes import innermost
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, scatter
from tracelink._model.events import (
    GPU_WORK,
    Edges,
    EventKind,
    Relation,
    Track,
    TrackKind,
)
from tracelink.converters.chakra.schema import KIND_OF_CATEGORY, Name
from tracelink.converters.chakra.table import (
    ROLES,
    NodeTable,
    Role,
    inclusive_ns,
    roles_of,
    starts_ns,
)

_LATEST = 1 << 62
"""Starts beyond this are invalid."""
_LONGEST = 10**16
"""Durations beyond this (116 days) are invalid."""
_KIND_OF_ROLE = {
    Role.HOST: EventKind.OPERATOR,
    Role.IDLE: EventKind.OTHER,
    Role.DEVICE: EventKind.KERNEL,
    Role.MEMCPY: EventKind.MEMCPY,
    Role.MEMSET: EventKind.MEMSET,
    Role.COLLECTIVE: EventKind.KERNEL,
    Role.SEND: EventKind.KERNEL,
    Role.RECV: EventKind.KERNEL,
    Role.LOAD: EventKind.MEMCPY,
    Role.STORE: EventKind.MEMCPY,
    Role.METADATA: EventKind.NODE,
    Role.UNKNOWN: EventKind.OTHER,
}
_TRACK_OF_KIND = {
    EventKind.NODE: TrackKind.NODES,
    EventKind.RECORD: TrackKind.COMMUNICATOR,
    EventKind.KERNEL: TrackKind.STREAM,
    EventKind.MEMCPY: TrackKind.STREAM,
    EventKind.MEMSET: TrackKind.STREAM,
}
"""All other events are on a thread."""
_TRACK_KINDS = tuple(TrackKind)
_LABELS = {TrackKind.NODES: "logical thread", TrackKind.THREAD: "thread", TrackKind.STREAM: "stream"}

_DOWN = (Relation.CALLS, Relation.LAUNCHES)
"""Relations from cause to effect; the others are from effect to cause."""

Kinds = npt.NDArray[np.uint8]

# Kinds and tracks.


def kinds_of(nodes: NodeTable) -> Kinds:
    """The kind of each node: from its category if present, else from its type."""
    of_role = np.array([_KIND_OF_ROLE[role] for role in ROLES], np.uint8)
    kinds: Kinds = of_role[roles_of(nodes)]
    on_host = nodes.on_host() & np.isin(kinds, [EventKind.KERNEL])
    kinds[on_host] = EventKind.OPERATOR
    category = nodes.attribute(Name.CATEGORY)
    for row, word in zip(category.rows.tolist(), category.values, strict=True):
        if (kind := KIND_OF_CATEGORY.get(word)) is not None:
            kinds[row] = kind
    return kinds


def tracks_of(nodes: NodeTable, kinds: Kinds, process: str) -> tuple[Int32s, list[Track]]:
    """The track of each node; `process` is the default process."""
    of_kind = np.full(256, _TRACK_KINDS.index(TrackKind.THREAD))
    for kind, track_kind in _TRACK_OF_KIND.items():
        of_kind[kind] = _TRACK_KINDS.index(track_kind)
    columns = [
        of_kind[kinds],
        *_process_and_lane(nodes, of_kind[kinds] == _TRACK_KINDS.index(TrackKind.STREAM), process),
    ]
    names = [np.unique(column, return_inverse=True) for column in columns]
    code = np.zeros(len(nodes), np.int64)
    for values, index in names:
        code = code * len(values) + index
    _, first, track = np.unique(code, return_index=True, return_inverse=True)
    rows = ([column[row] for column in columns] for row in first.tolist())
    return track.astype(np.int32), [
        _track(_TRACK_KINDS[kind], str(process), str(lane)) for kind, process, lane in rows
    ]


def _process_and_lane(
    nodes: NodeTable, on_device: npt.NDArray[np.bool_], process: str
) -> Iterator[npt.NDArray[np.str_] | Int64s]:
    """The process or device of each node, and its thread or stream."""
    count = len(nodes)
    processes = np.array(nodes.attribute(Name.PROCESS).strings(count, process), np.str_)
    devices = nodes.attribute(Name.DEVICE).integers(count, 0).astype(np.str_)
    yield np.where(on_device, devices, processes)
    threads = nodes.attribute(Name.THREAD).integers(count, 0)
    yield np.where(on_device, nodes.attribute(Name.STREAM).integers(count, 0), threads)


def _track(kind: TrackKind, process: str, lane: str) -> Track:
    return Track(kind, process, lane, f"{_LABELS.get(kind, kind)} {lane}", sort=0)


# Dependencies as edges.


class Dependencies(Struct, frozen=True):
    """Edges, and the dependencies that cannot be an edge."""

    edges: Edges
    parent: Int64s
    """The row of the node that encloses or launched each node, or UNKNOWN."""
    missing: Int64s
    """Rows of nodes, one for each dependency on a node that is not in the file."""
    on_itself: Int64s
    """Rows of nodes that depend on themselves."""


def dependencies_of(nodes: NodeTable, kinds: Kinds) -> Dependencies:
    """The first control dependency is the caller or the launch; all others are dependencies."""
    after, before, control, missing, on_itself = _pairs(nodes)
    on_device = np.isin(kinds, np.array(GPU_WORK, np.uint8))
    first = _first_of_each(after, control & ~on_device[before], len(nodes))
    parent = scatter(len(nodes), after[first], before[first])
    in_cycle = innermost(parent, parent == UNKNOWN) == UNKNOWN
    first = first[~in_cycle[after[first]]]
    parent[in_cycle] = UNKNOWN
    relation = np.full(len(after), Relation.DEPENDS_ON, np.uint8)
    relation[first] = np.where(on_device[after[first]], Relation.LAUNCHES, Relation.CALLS)
    down = relation != Relation.DEPENDS_ON
    edges = Edges(np.where(down, before, after), np.where(down, after, before), relation)
    return Dependencies(edges, parent, missing, on_itself)


def _pairs(nodes: NodeTable) -> tuple[Int64s, Int64s, Bools, Int64s, Int64s]:
    """Rows of dependent nodes and of what they depend on, whether by control, and the rows of wrong dependencies."""
    owners = np.concatenate([nodes.control.owners, nodes.data.owners])
    targets = np.concatenate([nodes.rows_of(nodes.control), nodes.rows_of(nodes.data)])
    control = np.arange(len(owners)) < len(nodes.control.ids)
    known, itself = targets != UNKNOWN, targets == owners
    usable = known & ~itself
    return owners[usable], targets[usable], control[usable], owners[~known], owners[known & itself]


def _first_of_each(owner: Int64s, chosen: Bools, count: int) -> Int64s:
    """The index of the first chosen row of each owner."""
    first = np.full(count, UNKNOWN, np.int64)
    rows = np.flatnonzero(chosen)[::-1]
    first[owner[rows]] = rows
    found: Int64s = first[first != UNKNOWN]
    return found


# Recorded times.


class Times(Struct, frozen=True):
    """Starts and durations in nanoseconds."""

    start: Int64s
    duration: Int64s
    unusable: Int64s
    """Rows of nodes with an invalid time."""

    def span(self) -> tuple[int | None, int | None]:
        """The start of the first node and the end of the last one; None without times."""
        timed = self.start != NO_TIME
        if not timed.any():
            return None, None
        end = self.start[timed] + np.maximum(self.duration[timed], 0)
        return int(self.start[timed].min()), int(end.max())


def times_of(nodes: NodeTable, kinds: Kinds) -> Times:
    """The times of nodes. Nodes of an execution trace have none: their field is only for simulators to sort by."""
    start, late = _below(starts_ns(nodes), _LATEST, NO_TIME)
    duration, long = _below(inclusive_ns(nodes), _LONGEST, UNKNOWN)
    untimed = ~_has_start(nodes) | (kinds == EventKind.NODE)
    start[untimed] = NO_TIME
    duration[kinds == EventKind.NODE] = UNKNOWN
    if (start != NO_TIME).any():
        duration[start == NO_TIME] = UNKNOWN  # without any start, starts are estimated from durations
    return Times(start, duration, np.flatnonzero(late | long))


def _has_start(nodes: NodeTable) -> Bools:
    """Nodes with a start; 0 is a start only if another node starts later."""
    recorded = np.zeros(len(nodes), np.bool_)
    recorded[nodes.attribute(Name.START).rows] = True
    if recorded.any():
        return recorded
    return np.full(len(nodes), (nodes.start != 0).any())


def _below(numbers: list[int], limit: int, default: int) -> tuple[Int64s, Bools]:
    """The numbers as a column, `default` for those from the limit on, and which these are."""
    beyond = np.array([number >= limit for number in numbers], np.bool_)
    column = np.array([min(number, limit) for number in numbers], np.int64)
    column[beyond] = default
    return column, beyond


# Estimated times: a node starts when its dependencies have ended and its thread or stream is free.


def estimated_starts(edges: Edges, duration: Int64s, track: Int32s) -> Int64s:
    """The start of each node, counted from the first; NO_TIME for nodes in a dependency cycle or behind one."""
    count = len(duration)
    down = np.isin(edges.relation, np.array(_DOWN, np.uint8))
    before = np.where(down, edges.source, edges.target)
    after = np.where(down, edges.target, edges.source)
    order = np.argsort(before, kind="stable")
    bounds = np.searchsorted(before[order], np.arange(count + 1)).tolist()
    followers = after[order].tolist()
    waiting = np.bincount(after, minlength=count).tolist()
    start, lengths, tracks = [NO_TIME] * count, duration.tolist(), track.tolist()
    ready, free = [0] * count, [0] * (max(tracks, default=-1) + 1)
    heap = [(0, row) for row in range(count) if not waiting[row]]
    heapify(heap)
    while heap:
        time, row = heappop(heap)
        begin = max(time, free[tracks[row]])
        start[row], end = begin, min(begin + lengths[row], _LATEST)
        free[tracks[row]] = end
        for follower in followers[bounds[row] : bounds[row + 1]]:
            ready[follower] = max(ready[follower], end)
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(heap, (ready[follower], follower))
    return np.array(start, np.int64)
