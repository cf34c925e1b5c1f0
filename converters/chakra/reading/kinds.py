"""What kind of event each node is, and the track on which it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.roles import ROLES, Role, roles_of
from tracelink.converters.chakra.schema import Category, Name
from tracelink.converters.chakra.table import NodeTable
from tracelink.events import EventKind, Int32s, Int64s, Track, TrackKind

KIND_OF_ROLE = {
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
KIND_OF_CATEGORY = {
    Category.OPERATOR: EventKind.OPERATOR,
    Category.ANNOTATION: EventKind.ANNOTATION,
    Category.NODE: EventKind.NODE,
    Category.RECORD: EventKind.RECORD,
    Category.KERNEL: EventKind.KERNEL,
    Category.MEMCPY: EventKind.MEMCPY,
    Category.MEMSET: EventKind.MEMSET,
}
TRACK_OF_KIND = {
    EventKind.NODE: TrackKind.NODES,
    EventKind.RECORD: TrackKind.COMMUNICATOR,
    EventKind.KERNEL: TrackKind.STREAM,
    EventKind.MEMCPY: TrackKind.STREAM,
    EventKind.MEMSET: TrackKind.STREAM,
}
"""Everything else is on a thread."""
TRACK_KINDS = tuple(TrackKind)
LABELS = {TrackKind.NODES: "logical thread", TrackKind.THREAD: "thread", TrackKind.STREAM: "stream"}

Kinds = npt.NDArray[np.uint8]


def kinds_of(nodes: NodeTable) -> Kinds:
    """By what a node says that it was in its source, else by its type."""
    of_role = np.array([KIND_OF_ROLE[role] for role in ROLES], np.uint8)
    kinds: Kinds = of_role[roles_of(nodes)]
    on_host = nodes.on_host() & np.isin(kinds, [EventKind.KERNEL])
    kinds[on_host] = EventKind.OPERATOR
    category = nodes.attribute(Name.CATEGORY)
    for row, word in zip(category.rows.tolist(), category.values, strict=True):
        if (kind := KIND_OF_CATEGORY.get(word)) is not None:
            kinds[row] = kind
    return kinds


def tracks_of(nodes: NodeTable, kinds: Kinds, process: str) -> tuple[Int32s, list[Track]]:
    """The track of each node; `process` is that of nodes which name none."""
    of_kind = np.full(256, TRACK_KINDS.index(TrackKind.THREAD))
    for kind, track_kind in TRACK_OF_KIND.items():
        of_kind[kind] = TRACK_KINDS.index(track_kind)
    columns = [
        of_kind[kinds],
        *_places(nodes, of_kind[kinds] == TRACK_KINDS.index(TrackKind.STREAM), process),
    ]
    names = [np.unique(column, return_inverse=True) for column in columns]
    code = np.zeros(len(nodes), np.int64)
    for values, place in names:
        code = code * len(values) + place
    _, first, track = np.unique(code, return_index=True, return_inverse=True)
    rows = ([column[row] for column in columns] for row in first.tolist())
    return track.astype(np.int32), [
        _track(TRACK_KINDS[kind], process, str(lane)) for kind, process, lane in rows
    ]


def _places(
    nodes: NodeTable, on_device: npt.NDArray[np.bool_], process: str
) -> Iterator[npt.NDArray[np.str_] | Int64s]:
    """The process or device of each node, and the thread or stream there."""
    count = len(nodes)
    processes = np.array(nodes.attribute(Name.PROCESS).texts(count, process), np.str_)
    devices = nodes.attribute(Name.DEVICE).whole_numbers(count, 0).astype(np.str_)
    yield np.where(on_device, devices, processes)
    threads = nodes.attribute(Name.THREAD).whole_numbers(count, 0)
    yield np.where(on_device, nodes.attribute(Name.STREAM).whole_numbers(count, 0), threads)


def _track(kind: TrackKind, process: str, lane: str) -> Track:
    return Track(kind, process, lane, f"{LABELS.get(kind, kind)} {lane}", sort=0)
