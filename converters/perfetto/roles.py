"""What each stream of a GPU is for, by the work that it does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from tracelink.converters.perfetto.text import Float64s
from tracelink.events import GPU_WORK, EventKind, TrackKind
from tracelink.graph import EventGraph
from tracelink.operations import COLLECTIVE_KERNEL


class Role(IntEnum):
    """What a stream is for; also the order of streams."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    NONE = 3
    """No work of the device is known of it."""

    @property
    def label(self) -> str:
        """As names of tracks say it."""
        return "" if self is Role.NONE else self.name.lower()


WORKS = (Role.COMPUTE, Role.COMMUNICATION, Role.COPY)


def roles_of(graph: EventGraph, tracks: Sequence[int]) -> Mapping[int, Role]:
    """The role of each stream among these tracks: what it spends most time on.

    The stream with most computation of a device computes, however long collectives on it wait for other ranks.
    """
    streams = [row for row in tracks if graph.tracks[row].kind == TrackKind.STREAM]
    if not streams:
        return {}
    spent = _time_by_work(graph)[streams]
    chosen = np.where(spent.any(axis=1), spent.argmax(axis=1), Role.NONE)
    by_device: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for place, row in enumerate(streams):
        by_device[graph.tracks[row].rank, graph.tracks[row].process].append(place)
    for places in by_device.values():
        most = max(places, key=lambda place: float(spent[place, Role.COMPUTE]))
        if spent[most, Role.COMPUTE]:
            chosen[most] = Role.COMPUTE
    return {row: Role(role) for row, role in zip(streams, chosen.tolist(), strict=True)}


def _time_by_work(graph: EventGraph) -> Float64s:
    """For each track and sort of work, how long it lasted; a nanosecond more for each, so that all of it counts."""
    events = graph.events
    rows = np.flatnonzero(events.of_kind(*GPU_WORK))
    copies = events.kind[rows] != EventKind.KERNEL
    names, which = np.unique(events.name[rows], return_inverse=True)
    known = [COLLECTIVE_KERNEL.search(graph.strings[name]) is not None for name in names.tolist()]
    communicates = np.array(known, np.bool_)[which]
    work = np.where(copies, Role.COPY, np.where(communicates, Role.COMMUNICATION, Role.COMPUTE))
    code = events.track[rows].astype(np.int64) * len(WORKS) + work
    lasted = np.maximum(events.duration[rows], 0) + 1
    spent = np.bincount(code, lasted, len(graph.tracks) * len(WORKS)).astype(np.float64)
    return spent.reshape(-1, len(WORKS))
