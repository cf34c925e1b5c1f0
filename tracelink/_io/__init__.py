"""Bytes in and out: sources, streams, long JSON arrays, pickles, protobuf columns, targets, the spool."""

__all__ = [
    "engine",
    "folders",
    "framing",
    "json_array",
    "kept",
    "pickles",
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
