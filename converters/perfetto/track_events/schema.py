"""The names that PyTorch and rocprofv3 write into events on tracks and stages on GPUs."""

from __future__ import annotations

import re

from tracelink._model.events import EventKind, Key
from tracelink.converters.pytorch.arguments import COLLECTIVE, KIND_OF_CATEGORY

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
"""The bits that PyTorch leaves of process and thread numbers."""
