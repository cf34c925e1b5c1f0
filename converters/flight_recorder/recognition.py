"""Is a file a dump of the flight recorder: by its first bytes and its name alone."""

from __future__ import annotations

import re

TOP_LEVEL = (
    b"version",
    b"pg_config",
    b"comm_lib_version",
    b"nccl_version",
    b"pg_status",
    b"nccl_comm_state",
    b"entries",
)
TELLING = (
    b"pg_config",
    b"pg_status",
    b"comm_lib_version",
    b"nccl_comm_state",
    b"profiling_name",
    b"collective_seq_id",
)
"""Keys that are near the start of every dump and of no other file."""

PICKLE_OF_A_DUMP = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[\]}]", re.DOTALL)
ANY_PICKLE = re.compile(rb"\x80[\x00-\x05]|[(\]}]|c[A-Za-z_][\w.]*\n")
JSON_OF_A_DUMP = re.compile(rb'\s*\{\s*"(?:%s)"\s*:' % b"|".join(TOP_LEVEL))
FILE_NAME = re.compile(r"(?:comm_lib|nccl)_trace_rank_")
"""Part of the names that torch gives the files by default."""


def is_dump(head: bytes, name: str) -> bool:
    """True if such keys are near the start; a pickle with the name of a dump is one, however damaged."""
    if PICKLE_OF_A_DUMP.match(head):
        return FILE_NAME.search(name) is not None or any(
            bytes([len(key)]) + lead + key in head for key in TELLING for lead in (b"\0\0\0", b"")
        )
    if JSON_OF_A_DUMP.match(head):
        return any(b'"%s"' % key in head for key in TELLING)
    return FILE_NAME.search(name) is not None and ANY_PICKLE.match(head) is not None
