"""Bytes in and out: sources, streams, long JSON arrays, pickles, protobuf columns, targets, the spool."""

__all__ = [
    "engine",
    "framing",
    "json_array",
    "names",
    "pickles",
    "protobuf",
    "remote",
    "salvage",
    "sources",
    "spool",
    "streams",
    "system",
    "targets",
    "temporary",
]
