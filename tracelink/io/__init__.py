"""Bytes in and out: sources, streams, long JSON arrays, protobuf columns, targets, the spool."""

__all__ = [
    "engine",
    "framing",
    "json_array",
    "protobuf",
    "remote",
    "salvage",
    "signals",
    "sources",
    "spool",
    "streams",
    "system",
    "targets",
]
