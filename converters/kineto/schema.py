"""Field names, event types and categories of Kineto traces: the only place for these names."""

from __future__ import annotations

from typing import Any

import msgspec

from tracelink._model.events import EventKind, InstantScope
from tracelink.converters.pytorch.arguments import KIND_OF_CATEGORY, StatedArguments

EVENTS = "traceEvents"
FIRST_KEYS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "args")


DISTRIBUTED = "distributedInfo"
DEVICES = "deviceProperties"
HOST = "host_name"
SCHEMA_VERSION = "schemaVersion"
KEPT_HEADER = (
    SCHEMA_VERSION,
    DEVICES,
    DISTRIBUTED,
    "displayTimeUnit",
    "with_stack",
    "record_shapes",
    "trace_id",
)
"""Keys that are kept. The others contain paths, user names and log lines of the host."""

PRODUCER_VERSIONS = ("cupti_version", "roctracer_version", "cuda_runtime_version", "hip_runtime_version")


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments that link an event to others: each one costs time for every event, so no others are here."""

    correlation: int = -1
    external_id: int = msgspec.field(name="External id", default=-1)
    record_function: int = msgspec.field(name="Record function id", default=0)
    sequence: int = msgspec.field(name="Sequence number", default=-1)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=0)
    python_id: int = msgspec.field(name="Python id", default=-1)
    python_parent: int | None = msgspec.field(name="Python parent id", default=None)
    event_index: int = msgspec.field(name="Ev Idx", default=-1)
    allocated: int = msgspec.field(name="Total Allocated", default=-1)
    reserved: int = msgspec.field(name="Total Reserved", default=-1)
    device_type: int = msgspec.field(name="Device Type", default=-1)
    device: int = msgspec.field(name="Device Id", default=-1)
    external_id_2021: int = msgspec.field(name="external id", default=-1)
    event_index_2022: int = msgspec.field(name="Profiler Event Index", default=-1)
    collective: str = msgspec.field(name="Collective name", default="")


class CommunicationArguments(StatedArguments, gc=False):
    """The arguments of an event on communication, with its ids."""

    correlation: int = -1
    external_id: int = msgspec.field(name="External id", default=-1)


NO_ARGUMENTS = Arguments()
NO_TIME_GIVEN = float("nan")


class Element(msgspec.Struct, gc=False):
    """One element of the event array, in the usual layout."""

    ph: str = "?"
    cat: str = ""
    name: str = ""
    pid: int = 0
    tid: int = 0
    ts: float = NO_TIME_GIVEN
    dur: float = -1.0
    id: int = 0
    args: Arguments = NO_ARGUMENTS


class MixedElement(msgspec.Struct, gc=False):
    """An element where process and thread ids can be strings: `Spans`, `Traces`, all threads of 2021."""

    ph: str = "?"
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = NO_TIME_GIVEN
    dur: float = -1.0
    id: int | str = 0
    args: Arguments = NO_ARGUMENTS


class ExactElement(msgspec.Struct, gc=False):
    """An element with fractions of microseconds since 1970, which only the decimal string holds."""

    ph: str = "?"
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: float = -1.0
    id: int | str = 0
    args: Arguments = NO_ARGUMENTS


class ArgumentsText(msgspec.Struct, gc=False):
    """An element decoded only for its arguments, as raw JSON."""

    args: msgspec.Raw = msgspec.Raw(b"")


class InstantScopeText(msgspec.Struct, gc=False):
    """An element decoded only for the scope of an instant."""

    s: Any = None


class FlowBinding(msgspec.Struct, gc=False):
    """An element decoded only for the slice that the end of a flow binds to."""

    bp: Any = None


class AllArguments(msgspec.Struct, gc=False):
    """An element decoded for all its arguments."""

    args: dict[str, Any] = {}


WHOLE_PIECE = msgspec.json.Decoder(list[AllArguments])

ELEMENT_ARGUMENTS = "args"
EXTERNAL_ID, CORRELATION = "External id", "correlation"

COMPLETE, BEGIN, END = "X", "B", "E"
INSTANTS = frozenset("iIR")
ASYNC_BEGIN, ASYNC_END, ASYNC_INSTANT = "b", "e", "n"
COUNTER, METADATA = "C", "M"
FLOW_START, FLOW_STEP, FLOW_END = "s", "t", "f"

ENCLOSING = "e"
"""The `bp` of a flow's end that binds to the slice around it; without it the end binds to the next slice."""
BINDING = "bp"

SCOPE = "s"
SCOPES = {"p": InstantScope.PROCESS, "g": InstantScope.ALL}
"""Scopes of instants that concern more than their thread."""

LAUNCH_FLOWS = frozenset({"ac2g", "async_cpu_to_gpu", "async"})
BACKWARD_FLOWS = frozenset({"fwdbwd"})

MEMORY_EVENT = "[memory]"
NAME, LABELS, SORT_INDEX = "name", "labels", "sort_index"
PROCESS_NAME, PROCESS_LABELS, PROCESS_SORT = "process_name", "process_labels", "process_sort_index"
THREAD_NAME, THREAD_SORT = "thread_name", "thread_sort_index"

OLD_CATEGORIES = frozenset({"Operator", "Python", "Runtime", "Kernel", "Memcpy", "Memset"})
"""Categories of 2020 and 2021, which are the common ones under other names."""

ON_DEVICE = frozenset(
    {
        EventKind.KERNEL,
        EventKind.MEMCPY,
        EventKind.MEMSET,
        EventKind.GPU_ANNOTATION,
        EventKind.SYNCHRONIZATION,
    }
)
"""Kinds whose pid is a device index and whose tid is a stream."""


SLICES = frozenset({COMPLETE, *INSTANTS})
FLOWS = frozenset({FLOW_START, FLOW_STEP, FLOW_END})
PAIRED = frozenset({BEGIN, END, ASYNC_BEGIN, ASYNC_END, ASYNC_INSTANT})
WITH_ARGUMENTS = frozenset({COUNTER, METADATA})
"""Elements that are read for their arguments."""
TIMED = SLICES | FLOWS | PAIRED | {COUNTER}


def kind_of(ph: str, cat: str, name: str = "") -> EventKind:
    """The kind of a slice or an instant."""
    if ph in INSTANTS:
        return EventKind.MEMORY if name == MEMORY_EVENT else EventKind.INSTANT
    return KIND_OF_CATEGORY.get(cat, EventKind.OTHER)
