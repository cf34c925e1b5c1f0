"""Profiled events: categories, arguments, what these state on communication, times, and recorded waits."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from tracelink._model.columns import UNKNOWN, int64s
from tracelink._model.communications import (
    Sizes,
    Statement,
    number_in,
    rank_in,
    sizes_in,
    stated_by,
    stated_by_inputs,
    text_in,
)
from tracelink._model.events import EventKind
from tracelink._model.graph import EventGraph, recorded_payloads
from tracelink._model.operations import Operation, item_bytes, operation_of, type_named
from tracelink._model.trace import Awaited, Synchronizations

INPUT_DIMS, INPUT_TYPES, INPUT_VALUES = "Input Dims", "Input type", "Concrete Inputs"
INPUT_DIMS_MARK = b'"%s"' % INPUT_DIMS.encode()


class OperatorInputs(msgspec.Struct):
    """The inputs in the arguments of an operator, as raw JSON."""

    values: msgspec.Raw = msgspec.field(name=INPUT_VALUES, default=msgspec.Raw(b"[]"))
    shapes: msgspec.Raw = msgspec.field(name=INPUT_DIMS, default=msgspec.Raw(b"[]"))
    types: msgspec.Raw = msgspec.field(name=INPUT_TYPES, default=msgspec.Raw(b"[]"))


# Categories.


KIND_OF_CATEGORY = {
    "cpu_op": EventKind.OPERATOR,
    "Operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "Python": EventKind.PYTHON,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "privateuse1_runtime": EventKind.RUNTIME,
    "privateuse1_driver": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "xpu_runtime": EventKind.RUNTIME,
    "xpu_driver": EventKind.RUNTIME,
    "hpu_runtime": EventKind.RUNTIME,
    "glow_runtime": EventKind.RUNTIME,
    "Runtime": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "mtia_workloadd": EventKind.KERNEL,
    "hpu_op": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "gpu_user_annotation": EventKind.GPU_ANNOTATION,
    "cuda_sync": EventKind.SYNCHRONIZATION,
    "cuda_event": EventKind.SYNCHRONIZATION,
    "overhead": EventKind.OVERHEAD,
    "Trace": EventKind.SPAN,
    "cuda_profiler_range": EventKind.SPAN,
    "cpu_instant_event": EventKind.INSTANT,
}
"""Every category from 2020 to 2026, to one set of kinds."""

CATEGORY_OF_KIND = {
    EventKind.OPERATOR: "cpu_op",
    EventKind.ANNOTATION: "user_annotation",
    EventKind.PYTHON: "python_function",
    EventKind.RUNTIME: "cuda_runtime",
    EventKind.KERNEL: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.MEMSET: "gpu_memset",
    EventKind.GPU_ANNOTATION: "gpu_user_annotation",
    EventKind.SYNCHRONIZATION: "cuda_sync",
    EventKind.OVERHEAD: "overhead",
    EventKind.SPAN: "Trace",
    EventKind.MEMORY: "cpu_instant_event",
}
"""The common category of each kind; for calls of the driver it is `DRIVER_CATEGORY`."""

DRIVER_CATEGORY = "cuda_driver"


# Names of the arguments of communication.


COLLECTIVE = "Collective name"
GROUP_NAME, GROUP_SIZE, GROUP_RANKS = "Process Group Name", "Group size", "Process Group Ranks"
NUMBER_IN_GROUP = "Seq"
ELEMENTS_IN, ELEMENTS_OUT, NUMBER_TYPE = "In msg nelems", "Out msg nelems", "dtype"
SENDER, RECEIVER = "Src Rank", "Dst Rank"
"""Ranks of the job. A sender names only the receiver, a receiver only the sender."""
PEER = "Rank"
"""Rank within the group: the rank itself, but the peer of a message and the root of a rooted operation."""
UNKNOWN_MEMBERS = "[]"


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


# Statements on communication.


def statement_of(name: str, arguments: Mapping[str, Any]) -> Statement:
    """The statement of an event, from its name and arguments."""
    if COLLECTIVE in arguments:
        return _recorded(text_in(arguments[COLLECTIVE]) or name, arguments)
    return stated_by_inputs(name, _Inputs(arguments)) if INPUT_DIMS in arguments else stated_by(name)


class StatedArguments(msgspec.Struct, gc=False):
    """The arguments that a statement depends on, if they have the usual types."""

    operation: str | msgspec.UnsetType | None = msgspec.field(name=COLLECTIVE, default=msgspec.UNSET)
    group: str | None = msgspec.field(name=GROUP_NAME, default=None)
    sequence: int | str | None = msgspec.field(name=NUMBER_IN_GROUP, default=None)
    elements_in: int | str | None = msgspec.field(name=ELEMENTS_IN, default=None)
    elements_out: int | str | None = msgspec.field(name=ELEMENTS_OUT, default=None)
    type: str | None = msgspec.field(name=NUMBER_TYPE, default=None)
    size: int | str | None = msgspec.field(name=GROUP_SIZE, default=None)
    members: str | None = msgspec.field(name=GROUP_RANKS, default=None)
    sender: int | str | None = msgspec.field(name=SENDER, default=None)
    receiver: int | str | None = msgspec.field(name=RECEIVER, default=None)
    peer: int | str | None = msgspec.field(name=PEER, default=None)
    input_values: msgspec.Raw = msgspec.field(name=INPUT_VALUES, default=msgspec.Raw(b""))
    input_dims: msgspec.Raw = msgspec.field(name=INPUT_DIMS, default=msgspec.Raw(b""))
    input_types: msgspec.Raw = msgspec.field(name=INPUT_TYPES, default=msgspec.Raw(b""))


_RECORDED = attrgetter(
    "operation",
    "group",
    "elements_in",
    "elements_out",
    "type",
    "size",
    "members",
    "sender",
    "receiver",
    "peer",
)


def statement_key(name: str, arguments: StatedArguments) -> Hashable:
    """The same for events whose statements differ in nothing but the sequence number."""
    if arguments.operation is not msgspec.UNSET:
        return name, _RECORDED(arguments)
    inputs = arguments.input_dims, arguments.input_types, arguments.input_values
    return name, *map(bytes, inputs)


def sequence_in(arguments: StatedArguments) -> int:
    """The sequence number in a statement."""
    if arguments.sequence is None or arguments.operation is msgspec.UNSET:
        return UNKNOWN
    return number_in(arguments.sequence)


def _recorded(operation: str, arguments: Mapping[str, Any]) -> Statement:
    """The statement of `record_param_comms`, or of a kernel with a copy of its arguments."""
    statement = stated_by(operation)
    statement.group = text_in(arguments.get(GROUP_NAME))
    statement.sequence = number_in(arguments.get(NUMBER_IN_GROUP))
    if operation_of(statement.operation) == Operation.WAIT:
        # the other arguments of a wait are fillers, and do not describe what it waits for
        return statement
    statement.elements_in = number_in(arguments.get(ELEMENTS_IN))
    statement.elements_out = number_in(arguments.get(ELEMENTS_OUT))
    statement.type = text_in(arguments.get(NUMBER_TYPE))
    statement.size = rank_in(arguments.get(GROUP_SIZE))
    members = text_in(arguments.get(GROUP_RANKS))
    statement.members = "" if members == UNKNOWN_MEMBERS else members
    statement.source, statement.target = rank_in(arguments.get(SENDER)), rank_in(arguments.get(RECEIVER))
    statement.global_ranks = (statement.source, statement.target) != (UNKNOWN, UNKNOWN)
    if not statement.global_ranks:
        statement.name_peer(rank_in(arguments.get(PEER)))
    return statement


class _Inputs:
    """The recorded inputs of an operator."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.dims = _list(arguments.get(INPUT_DIMS))
        self.types = _list(arguments.get(INPUT_TYPES))
        self.values = _list(arguments.get(INPUT_VALUES))

    def __len__(self) -> int:
        return len(self.dims)

    def sizes(self, index: int) -> Sizes | None:
        """The sizes of the tensors in one input; those of a list were not recorded before 2024."""
        dims = _at(self.dims, index)
        return [[]] if dims == [] and self.type(index) else sizes_in(dims)

    def type(self, index: int) -> str:
        """The element type of one input; empty for a list, which is recorded without a type."""
        name = type_named(text_in(_at(self.types, index)))
        return name if item_bytes(name) is not None else ""

    def value(self, index: int) -> Any:
        """The value of one input that is a number, as a string."""
        return _at(self.values, index)


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# Waits that profiles recorded: for streams, devices and events.


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
