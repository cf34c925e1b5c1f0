"""Snapshots of torch's CUDA memory allocator: pickles of `torch.cuda.memory._dump_snapshot`."""

from __future__ import annotations

import re

from tracelink.plugins import Format, ReaderSpec

__all__ = ["MEMORY_SNAPSHOT"]

_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[\]}]", re.DOTALL)
_KEYS = (b"segments", b"device_traces", b"segment_type", b"total_size")
"""Keys of which one is near the start of every snapshot; in a pickle its length is before each."""


def is_snapshot(head: bytes, name: str) -> bool:
    """True for a pickle with a key of snapshots near its start."""
    if not _PICKLE.match(head):
        return False
    return any(bytes([len(key)]) + lead + key in head for key in _KEYS for lead in (b"\0\0\0", b""))


MEMORY_SNAPSHOT = Format(
    "memory-snapshot",
    reader=ReaderSpec(
        "CUDA memory snapshots of torch.cuda.memory._dump_snapshot (pickle)",
        is_snapshot,
        "tracelink.converters.memory_snapshot.reader:SnapshotReader",
    ),
)
