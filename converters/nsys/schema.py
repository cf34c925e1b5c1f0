"""Names of tables and columns, numbers of event types and other words of Nsight Systems exports."""

from __future__ import annotations

from tracelink._model.events import EventKind

# Tables.

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""Launches of CUDA graphs as a whole, if their nodes were not traced."""
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RANGES = "NVTX_EVENTS"
SYSTEM_CALLS = "OSRT_API"

STRINGS = "StringIds"
PROCESSES = "PROCESSES"
THREADS = "ThreadNames"
SESSION = "TARGET_INFO_SESSION_START_TIME"
EXPORT = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""The second is its name until 2022."""
CAPTURE = "META_DATA_CAPTURE"
MPI_RANKS = "MPI_RANKS"

# Rows of META_DATA_EXPORT and META_DATA_CAPTURE.

VERSION, SCHEMA_VERSION = "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"
NORMALIZED = "EXPORT_PARAM_TIME_NORMALIZE"
SHIFTS = ("EXPORT_PARAM_TIME_SHIFT", "EXPORT_CONFIG_TIME_SHIFT")
HOST = "DEVICE_DISPLAY_NAME"

# Types of NVTX events.

CATEGORY_NAME, MARK, THREAD_NAME, PUSH_POP, START_END, DOMAIN = 33, 34, 39, 59, 60, 75

# Names of device work and waits that have none of their own.

COPY_KINDS = {
    0: "Memcpy",
    1: "Memcpy HtoD",
    2: "Memcpy DtoH",
    3: "Memcpy HtoA",
    4: "Memcpy AtoH",
    5: "Memcpy AtoA",
    6: "Memcpy AtoD",
    7: "Memcpy DtoA",
    8: "Memcpy DtoD",
    9: "Memcpy HtoH",
    10: "Memcpy PtoP",
}
FILL = "Memset"
GRAPH = "CUDA graph"
WAIT_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""As Kineto names them."""

DEVICE_TABLES = {
    KERNELS: EventKind.KERNEL,
    COPIES: EventKind.MEMCPY,
    FILLS: EventKind.MEMSET,
    GRAPHS: EventKind.KERNEL,
    WAITS: EventKind.SYNCHRONIZATION,
}

LONGEST_NS = 10 * 366 * 86400 * 10**9
"""No session is longer."""

# Ids of threads and processes: hardware (8 bits), virtual machine (8), process (24), thread (24).

PID_BITS, TID_BITS = 24, 24
PID_MASK, TID_MASK = (1 << PID_BITS) - 1, (1 << TID_BITS) - 1
