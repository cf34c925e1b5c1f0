"""The waits that a profiler recorded, where it was told to."""

from __future__ import annotations

import msgspec
import numpy as np

from tracelink.analysis.ordering.synchronizations import Awaited, Synchronizations
from tracelink.converters.kineto.schema import (
    DEVICE_WAITED_FOR,
    EVENT_WAITED_FOR,
    EVENT_WAITED_FOR_BY_STREAM,
    STREAM_WAITED_FOR,
    Synchronization,
)
from tracelink.events import EventKind
from tracelink.excerpt import texts_of
from tracelink.graph import EventGraph

ARGUMENTS = msgspec.json.Decoder(Synchronization)
NOTHING_SAID = Synchronization()
AWAITED = {
    STREAM_WAITED_FOR: Awaited.STREAM,
    DEVICE_WAITED_FOR: Awaited.DEVICE,
    EVENT_WAITED_FOR: Awaited.EVENT,
    EVENT_WAITED_FOR_BY_STREAM: Awaited.EVENT_BY_STREAM,
}


def recorded_synchronizations(graph: EventGraph) -> Synchronizations:
    """All waits that profiles of one rank recorded, by row; reads only the arguments of those."""
    events = graph.events
    meaning = np.array([AWAITED.get(text, -1) for text in graph.strings], np.int64)
    rows = np.flatnonzero(events.of_kind(EventKind.SYNCHRONIZATION) & events.timed)
    rows = rows[meaning[events.name[rows]] >= 0] if len(rows) else rows
    if not len(rows):
        return Synchronizations.empty()
    said = {row: _decoded(text) for row, text in texts_of(graph, rows)}
    columns = [
        (one.device, one.stream, one.wait_on_stream, one.wait_on_cuda_event_record_corr_id)
        for one in (said.get(row, NOTHING_SAID) for row in rows.tolist())
    ]
    device, stream, event_stream, event_record = np.array(columns, np.int64).T
    return Synchronizations(rows, meaning[events.name[rows]], device, stream, event_stream, event_record)


def _decoded(text: bytes | memoryview) -> Synchronization:
    try:
        return ARGUMENTS.decode(text)
    except msgspec.DecodeError:
        return NOTHING_SAID
