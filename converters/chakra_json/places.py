"""What sort of event each node is, and on which track it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra_json import schema
from tracelink.converters.chakra_json.linked_nodes import CATEGORY, ON_CPU, START, STREAM
from tracelink.converters.execution_trace.schema import SCOPE, THREAD
from tracelink.events import NO_TIME, Bools, EventKind, Int32s, Int64s, Track, TrackKind

KINDS = np.array([*schema.READ_CATEGORIES.values(), EventKind.OTHER], np.uint8)
"""By the code of the category."""


@dataclass(frozen=True, slots=True)
class Places:
    """Kind and track of each node."""

    kind: npt.NDArray[np.uint8]
    track: Int32s
    tracks: list[Track]
    on_device: Bools


def places_of(table: Mapping[str, Int64s], process: str) -> Places:
    """Work on its stream, what has a time on its thread, all else among the nodes of its logical thread."""
    timed = table[START] != NO_TIME
    on_device = timed & (table[CATEGORY] != ON_CPU)
    annotation = table[SCOPE] == schema.USER_SCOPE
    kind = np.where(annotation, np.uint8(EventKind.ANNOTATION), np.uint8(EventKind.OPERATOR))
    kind[~timed] = EventKind.NODE
    kind[on_device] = KINDS[table[CATEGORY][on_device]]
    track = np.zeros(len(timed), np.int32)
    tracks: list[Track] = []
    for chosen, column, on, of, label in (
        (timed & ~on_device, THREAD, TrackKind.THREAD, process, "thread"),
        (on_device, STREAM, TrackKind.STREAM, "", "stream"),
        (~timed, THREAD, TrackKind.NODES, process, "logical thread"),
    ):
        numbers, number = np.unique(table[column][chosen], return_inverse=True)
        track[chosen] = len(tracks) + number
        tracks += [Track(on, of, str(identity), f"{label} {identity}") for identity in numbers.tolist()]
    return Places(kind, track, tracks, on_device)
