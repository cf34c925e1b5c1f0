"""The content of snapshots: the only place with their field names."""

from __future__ import annotations

SEGMENTS, TRACES, SETTINGS = "segments", "device_traces", "allocator_settings"

# Segments: memory of the device that the allocator holds, and the blocks that it is cut into.

DEVICE, TOTAL, ADDRESS, BLOCKS = "device", "total_size", "address", "blocks"
STATE, SIZE, REQUESTED = "state", "size", "requested_size"
IN_USE = "active_allocated"
HISTORY, REAL_SIZE = "history", "real_size"
"""In torch 2.0, the allocations of a block with their stacks."""

# Traces: what the allocator did, one list for each device.

ACTION, AT, TIME, DEVICE_FREE, FRAMES = "action", "addr", "time_us", "device_free", "frames"

ALLOC, FREE_REQUESTED, FREE_COMPLETED = "alloc", "free_requested", "free_completed"
OUT_OF_MEMORY, SNAPSHOT = "oom", "snapshot"
SEGMENT_GROWS = frozenset({"segment_alloc", "segment_map"})
SEGMENT_SHRINKS = frozenset({"segment_free", "segment_unmap"})

# Frames of stacks.

FILE, LINE, NAME = "filename", "line", "name"
