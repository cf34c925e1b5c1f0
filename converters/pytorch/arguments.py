"""Arguments of profiled events that writers need: recorded waits and inputs of operators."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from tracelink.model.dependencies import Awaited, Synchronizations
from tracelink.model.events import EventKind
from tracelink.model.graph import EventGraph, recorded_payloads

INPUT_DIMS, INPUT_TYPES, INPUT_VALUES = "Input Dims", "Input type", "Concrete Inputs"
INPUT_DIMS_MARK = b'"%s"' % INPUT_DIMS.encode()


class OperatorInputs(msgspec.Struct):
    """The inputs in the arguments of an operator, as raw JSON."""

    values: msgspec.Raw = msgspec.field(name=INPUT_VALUES, default=msgspec.Raw(b"[]"))
    shapes: msgspec.Raw = msgspec.field(name=INPUT_DIMS, default=msgspec.Raw(b"[]"))
    types: msgspec.Raw = msgspec.field(name=INPUT_TYPES, default=msgspec.Raw(b"[]"))


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
    columns = [
        (wait.device, wait.stream, wait.wait_on_stream, wait.wait_on_cuda_event_record_corr_id)
        for wait in waits
    ]
    device, stream, event_stream, event_record = np.array(columns, np.int64).T
    return Synchronizations(rows, meaning[events.name[rows]], device, stream, event_stream, event_record)


def _decoded(text: bytes | memoryview) -> Synchronization:
    try:
        return SYNCHRONIZATION.decode(text)
    except msgspec.DecodeError:
        return NO_ARGUMENTS


# Times: decimal microseconds, counted from a base in the header.

BASE_TIME = "baseTimeNanoseconds"
"""Key of the header."""

LATEST_US = 4e15
"""Later times (after the year 2096) are invalid, and would not fit the column as nanoseconds."""


def base_time(header: Mapping[str, Any]) -> int | None:
    """Nanoseconds to add to every time of the file; None if the value in the header is invalid."""
    if isinstance(header.get(BASE_TIME), bool):
        return None
    try:
        base = int(header.get(BASE_TIME, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return base if abs(base) <= LATEST_US * 1000 else None


def decimal_nanoseconds(text: Any) -> int:
    """Nanoseconds of a decimal number of microseconds, as string or number; `ValueError` if it is invalid."""
    try:
        if isinstance(text, bool):
            raise ValueError
        number = Decimal(text)
        if not number.copy_abs() <= LATEST_US:
            raise ValueError
        return int((number * 1000).to_integral_value())
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        raise ValueError(f"{text!r} is not a valid time") from None
