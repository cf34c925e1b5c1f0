"""Dumps of the flight recorders of c10d and torchcomms."""

from __future__ import annotations

import re

from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["FLIGHT_RECORDER", "schema"]

TOP_LEVEL = (
    b"version", b"pg_config", b"comm_lib_version", b"nccl_version", b"pg_status", b"nccl_comm_state",
    b"entries",
)  # fmt: skip
TYPICAL_KEYS = (
    b"pg_config", b"pg_status", b"comm_lib_version", b"nccl_comm_state", b"profiling_name",
    b"collective_seq_id",
)  # fmt: skip
"""Keys of which one is near the start of every dump, and of no other file."""

_DUMP_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[\]}]", re.DOTALL)
_ANY_PICKLE = re.compile(rb"\x80[\x00-\x05]|[(\]}]|c[A-Za-z_][\w.]*\n")
_DUMP_JSON = re.compile(rb'\s*\{\s*"(?:%s)"\s*:' % b"|".join(TOP_LEVEL))
_FILE_NAME = re.compile(r"(?:comm_lib|nccl)_trace_rank_|torchcomm_fr_trace_")
"""Part of the default file names of torch and torchcomms."""


def is_dump(head: bytes, name: str) -> bool:
    """True if a key of dumps is near the start, or for any pickle, even a damaged one, with the name of a dump."""
    if _DUMP_PICKLE.match(head):
        return _FILE_NAME.search(name) is not None or any(
            bytes([len(key)]) + lead + key in head for key in TYPICAL_KEYS for lead in (b"\0\0\0", b"")
        )
    if _DUMP_JSON.match(head):
        return any(b'"%s"' % key in head for key in TYPICAL_KEYS)
    return _FILE_NAME.search(name) is not None and _ANY_PICKLE.match(head) is not None


FLIGHT_RECORDER = Format(
    "flight-recorder",
    reader=ReaderSpec(
        "PyTorch flight-recorder dumps (pickle of torch 2.2 and later, or JSON), also of torchcomms",
        is_dump,
        "tracelink.converters.flight_recorder.reader:FlightRecorderReader",
        content=Content.RECORDS,
    ),
)
