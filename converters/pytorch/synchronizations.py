"""Waits that profiles recorded: for streams, devices and events."""

from __future__ import annotations

import msgspec
import numpy as np

from tracelink._model.columns import int64s
from tracelink._model.events import EventKind
from tracelink._model.graph import EventGraph, recorded_payloads
from tracelink._model.trace import Awaited, Synchronizations


class Synchronization(msgspec.Struct, gc=False):
    """Streams and events in the record of a wait; -1 is unknown."""

    device: int = -1
    stream: int = -1
    wait_on_stream: int = -1
    wait_on_cuda_event_record_corr_id: int = -1


STREAM_WAITED_FOR, DEVICE_WAITED_FOR = "Stream Sync", "Context Sync"
EVENT_WAITED_FOR, EVENT_WAITED_FOR_BY_STREAM = "Event Sync", "Stream Wait Event"

SYNCHRONIZATION = msgspec.json.Decoder(Synchronization)
NO_ARGUMENTS = Synchronization()
AWAITED = {
    STREAM_WAITED_FOR: Awaited.STREAM,
    DEVICE_WAITED_FOR: Awaited.DEVICE,
    EVENT_WAITED_FOR: Awaited.EVENT,
    EVENT_WAITED_FOR_BY_STREAM: Awaited.EVENT_BY_STREAM,
}


def recorded_synchronizations(graph: EventGraph) -> Synchronizations:
    """All waits that profiles of one rank recorded; reads only their arguments."""
    events = graph.events
    meaning = np.array([AWAITED.get(text, -1) for text in graph.strings], np.int64)
    rows = np.flatnonzero(events.of_kind(EventKind.SYNCHRONIZATION) & events.timed)
    rows = rows[meaning[events.name[rows]] >= 0] if len(rows) else rows
    if not len(rows):
        return Synchronizations.empty()
    arguments = {row: _decoded(text) for row, text in recorded_payloads(graph, rows)}
    waits = [arguments.get(row, NO_ARGUMENTS) for row in rows.tolist()]
    return Synchronizations(
        rows,
        meaning[events.name[rows]],
        int64s([wait.device for wait in waits]),
        int64s([wait.stream for wait in waits]),
        int64s([wait.wait_on_stream for wait in waits]),
        int64s([wait.wait_on_cuda_event_record_corr_id for wait in waits]),
    )


def _decoded(text: bytes | memoryview) -> Synchronization:
    try:
        return SYNCHRONIZATION.decode(text)
    except msgspec.DecodeError:
        return NO_ARGUMENTS
