"""Field names of dumps by version, and the decoded dump: the only place for these names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tracelink.converters import flight_recorder

VERSION = "version"
ENTRIES = "entries"
GROUP_CONFIG = "pg_config"
GROUP_STATUS = "pg_status"
LIBRARY_VERSION = "comm_lib_version"
LIBRARY_VERSION_BEFORE_2_10 = "nccl_version"
COMMUNICATORS = "nccl_comm_state"

TOP_LEVEL = tuple(name.decode() for name in flight_recorder.TOP_LEVEL)

GROUP_NAME = "name"
GROUP_DESCRIPTION = "desc"
GROUP_RANKS = "ranks"
DEFAULT_GROUP = ("0", "default_pg")
"""Name and description of the group of all ranks."""
"""A list as a string, `"[0, 1]"`; in version 1.4, the item of a group is the list itself."""

FRAME_NAME = "name"
FRAME_FILE = "filename"
FRAME_LINE = "line"

LAST_ENQUEUED = "last_enqueued_collective"
LAST_STARTED = "last_started_collective"
LAST_COMPLETED = "last_completed_collective"

NEWEST_VERSION = (2, 10)
BARE_LIST_VERSION = "none (bare list of torch 2.2)"


class Layout(Struct, frozen=True):
    """The names of the fields of entries in one generation; empty for a missing field."""

    name: str = "profiling_name"
    created: str = "time_created_ns"
    created_unit_ns: int = 1
    completed: str = "time_discovered_completed_ns"
    """None while unknown; 0 in the JSON variant."""
    started: str = "time_discovered_started_ns"
    retired: str = "retired"
    timeout: str = "timeout_ms"
    group: str = "process_group"
    """(name, description)."""
    group_id: str = "pg_id"
    collective_sequence: str = "collective_seq_id"
    p2p_sequence: str = "p2p_seq_id"
    operation_number: str = "op_id"
    """Also counts operations that the backend does not record."""
    state: str = "state"
    record: str = "record_id"
    input_sizes: str = "input_sizes"
    output_sizes: str = "output_sizes"
    """One list for each tensor; empty for a barrier on gloo, and for the entry that closes a coalesced batch."""
    input_types: str = "input_dtypes"
    output_types: str = "output_dtypes"
    is_message: str = "is_p2p"
    frames: str = "frames"
    """Innermost first; missing if stacks were not requested."""
    duration: str = "duration_ms"
    """Only if the time on the device was measured."""


CURRENT = Layout()
TORCH_2_3 = Layout(group="", collective_sequence="seq_id", p2p_sequence="")
"""One number counts collectives and messages, so the number of a message is not significant."""
TORCH_2_2 = Layout(
    created="time_created_us",
    created_unit_ns=1000,
    completed="",
    started="",
    group="",
    collective_sequence="seq_id",
    p2p_sequence="",
    operation_number="",
    record="",
)


class Dump(Struct, frozen=True):
    """A decoded dump: its entries, and all other top-level values."""

    version: str
    layout: Layout
    entries: Sequence[Any]
    header: Mapping[str, Any]


def dump_of(content: Any) -> Dump | None:
    """The dump in decoded content; None if it is not a dump."""
    if type(content) is list:
        return Dump(BARE_LIST_VERSION, TORCH_2_2, content, {})
    if type(content) is not dict:
        return None
    entries = content.get(ENTRIES, [])
    version = content.get(VERSION, "")
    if type(entries) is not list or type(version) is not str:
        return None
    header = {key: content[key] for key in TOP_LEVEL if key in content and key != ENTRIES}
    if not header and ENTRIES not in content:
        return None
    return Dump(version, TORCH_2_3 if version.startswith("1.") else CURRENT, entries, header)


def is_newer(version: str) -> bool:
    """True if a version is unknown here; compared by number: 2.10 follows 2.9."""
    if version == BARE_LIST_VERSION:
        return False
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})*", version, re.ASCII):
        return True
    return tuple(map(int, version.split("."))) > NEWEST_VERSION
