"""Field numbers of Perfetto's messages, and the names that PyTorch and rocprofv3 write into them."""

from __future__ import annotations

import re
from enum import IntEnum

from tracelink._model.events import EventKind, Key
from tracelink.converters.pytorch.arguments import COLLECTIVE, KIND_OF_CATEGORY


class Packet(IntEnum):
    """Fields of a packet."""

    CLOCKS = 6
    TIME = 8
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED = 12
    FLAGS = 13
    CLEARED = 41
    """The flag as a field of its own, in old traces."""
    COMPRESSED = 50
    GPU_COUNTERS = 52
    GPU_STAGE = 53
    CLOCK = 58
    DEFAULTS = 59
    TRACK = 60
    COMPRESSED_BY_ZSTD = 133


IS_CLEARED, NEEDS_STATE = 1, 2
"""Flags of a packet."""


class Event(IntEnum):
    """Fields of an event on a track."""

    CATEGORY = 3
    ANNOTATION = 4
    TYPE = 9
    NAME = 10
    TRACK = 11
    EXTRA_VALUE = 12
    CATEGORY_TEXT = 22
    NAME_TEXT = 23
    VALUE = 30
    OLD_FLOW = 36
    OLD_LAST_OF_FLOW = 42
    DOUBLE_VALUE = 44
    EXTRA_DOUBLE_VALUE = 46
    FLOW = 47
    LAST_OF_FLOW = 48
    GPU = 3000
    """The stages on a GPU that the event submitted."""


BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of events."""


class Table(IntEnum):
    """Tables of interned texts; the numbers of each are its own."""

    CATEGORIES = 1
    NAMES = 2
    ANNOTATIONS = 3
    STAGES = 24
    STRINGS = 29
    COUNTERS = 47
    KERNELS = 1000
    ARGUMENTS = 1001


TEXT_OF = {Table.KERNELS: (3, 2)}
"""The fields with the text of an entry, the best first; others have it in field 2."""


class Annotation(IntEnum):
    """Fields of an annotation."""

    NAME = 1
    BOOL = 2
    UNSIGNED = 3
    INTEGER = 4
    DOUBLE = 5
    STRING = 6
    POINTER = 7
    NESTED = 8
    JSON = 9
    NAME_TEXT = 10
    ENTRIES = 11
    VALUES = 12
    STRING_NUMBER = 17


class Stage(IntEnum):
    """Fields of a stage on a GPU."""

    NUMBER = 1
    DURATION = 2
    QUEUE_BEFORE_2020 = 3
    CONTEXT = 5
    EXTRA = 6
    GPU = 11
    QUEUE = 13
    STAGE = 14
    NAME_TEXT = 17
    WAITS_FOR = 18
    KERNEL = 19
    NAME = 20
    LAUNCH = 21


class Track(IntEnum):
    """Fields of a track."""

    NUMBER = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT = 5
    COUNTER = 8
    STATIC_NAME = 10
    ATRACE_NAME = 13


REALTIME, BOOTTIME = 1, 6
"""Clocks; packets without one are of BOOTTIME."""
FIRST_LOCAL, LAST_LOCAL = 64, 127
"""Clocks of one sequence only."""

UNITS = {1: "ns", 2: "count", 3: "bytes"}
"""Units of counters."""

# What PyTorch and rocprofv3 write.

ROCPROF_KINDS = {
    "hip_api": EventKind.RUNTIME,
    "hsa_api": EventKind.RUNTIME,
    "rocdecode_api": EventKind.RUNTIME,
    "rocjpeg_api": EventKind.RUNTIME,
    "rccl_api": EventKind.RUNTIME,
    "marker_api": EventKind.ANNOTATION,
    "kernel_dispatch": EventKind.KERNEL,
    "memory_copy": EventKind.MEMCPY,
}
"""Categories of rocprofv3."""
KINDS = KIND_OF_CATEGORY | ROCPROF_KINDS

STAGE_KINDS = {
    "Memcpy": EventKind.MEMCPY,
    "Memset": EventKind.MEMSET,
    "Annotation": EventKind.GPU_ANNOTATION,
    "EventRecord": EventKind.OTHER,
    "HostNode": EventKind.OTHER,
}
"""Stages of PyTorch that are not kernels; stages of other programs are work on a GPU, too."""

STAGE_CATEGORIES = {"EventRecord": "graph_event_node", "HostNode": "graph_host_node"}
"""Categories of such stages in JSON."""

CORRELATION, DEVICE, STREAM, THREAD = "correlation", "device", "stream", "tid"
SYNCHRONIZATION, CALLBACK, PYTHON_ID, EXTERNAL_ID = "cuda_sync_kind", "cbid", "Python id", "External id"
GRID, BYTES = "grid", "bytes"

LINKS: dict[str, Key | None] = {
    CORRELATION: Key.CORRELATION,
    "corr_id": Key.CORRELATION,
    EXTERNAL_ID: Key.EXTERNAL_ID,
    "Record function id": Key.RECORD_FUNCTION,
    "Sequence number": Key.SEQUENCE,
    "Fwd thread id": Key.FORWARD_THREAD,
    PYTHON_ID: Key.PYTHON_ID,
    "Python parent id": Key.PYTHON_PARENT,
    "Ev Idx": Key.EVENT_INDEX,
    DEVICE: None,
    STREAM: None,
    THREAD: None,
    SYNCHRONIZATION: None,
    CALLBACK: None,
    GRID: None,
    BYTES: None,
    COLLECTIVE: None,
}
"""Annotations that are read with every event: those that link it to others, or show what it is."""

STAGE_LINKS = {
    "correlation": CORRELATION,
    "device id": DEVICE,
    "stream id": STREAM,
    "External id": EXTERNAL_ID,
    COLLECTIVE: COLLECTIVE,
}
"""The same in the extra data of stages, whose values are texts."""

LARGEST_UNKNOWN = {Key.SEQUENCE: -1, Key.PYTHON_ID: -1, Key.PYTHON_PARENT: -1, Key.EVENT_INDEX: -1}
"""Values up to this one mean that the event has no such key; 0 for other keys."""

STREAM_NAME = re.compile(r"(?:\[\d+\] )?stream (-?\d+)\s*$")
"""Names of queues of PyTorch; graphs can have queues with other names."""
QUEUE_NUMBER = re.compile(r"\[(\d+)\]")

AGENT_TRACK = re.compile(
    r"(?:COMPUTE|COPY to) [\w -]+? \[(?P<device>\d{1,9})\] (?:STREAM|QUEUE|THREAD) \[(?P<number>\d{1,18})\]"
)
"""Tracks of rocprofv3 for work on a device."""

OVERHEAD = "Overhead"
"""The process of PyTorch for time that the profiler took itself."""
MASK = 0x7FFFFFFF
"""What PyTorch leaves of process and thread numbers."""
