"""Bytes in and out: sources, streams, long JSON arrays, protobuf columns, targets, the spool."""

__all__ = [
    "engine",
    "folders",
    "framing",
    "json_array",
    "kept",
    "protobuf",
    "remote",
    "salvage",
    "signals",
    "sources",
    "spool",
    "streams",
    "system",
    "targets",
    "temporary",
]
