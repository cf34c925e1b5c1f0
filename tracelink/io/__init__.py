"""Bytes in and out: sources, streams, long JSON arrays, protobuf columns, targets, the spool."""

__all__ = [
    "datasets",
    "engine",
    "framing",
    "json_array",
    "protobuf",
    "salvage",
    "signals",
    "sources",
    "spool",
    "streams",
    "system",
    "targets",
]
