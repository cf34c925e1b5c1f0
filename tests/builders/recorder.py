"""Flight-recorder dumps.

    dump(collective("gloo:all_reduce", 1), collective("gloo:broadcast", 2, group=("1", "tp")))

is the content of a dump of the newest version; `pickled` makes it the bytes that torch would write, `as_json`
those of its JSON variant, `as_source` an input for a reader.
"""

from __future__ import annotations

import io
from typing import Any

import orjson

from generators.flight_recorder import pickled
from tracelink.io.sources import Source

__all__ = ["as_json", "as_source", "collective", "dump", "frame", "pickled", "process_group"]

CREATED = 1_794_983_359_603_435_457
WORLD = ("0", "default_pg")
JSON_HAS_NO_NONE = ("time_discovered_started_ns", "time_discovered_completed_ns")


def collective(
    name: str = "gloo:all_reduce",
    sequence: int = 1,
    *,
    group: tuple[str, str] = WORLD,
    created: int = CREATED,
    completed: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """One entry of version 2.10."""
    return {
        "record_id": sequence - 1,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": created,
        "input_sizes": [[64, 16]],
        "input_dtypes": ["Float"],
        "output_sizes": [[64, 16]],
        "output_dtypes": ["Float"],
        "state": "completed" if completed else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": completed,
        "retired": completed is not None,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | fields


def frame(name: str, filename: str = "train.py", line: int = 1) -> dict[str, Any]:
    """One stack frame; entries that hold the same object share it in the file."""
    return {"name": name, "filename": filename, "line": line}


def process_group(name: str, ranks: list[int], description: str = "") -> dict[str, dict[str, str]]:
    """One group of `pg_config`, as versions since 2.1 write it."""
    return {name: {"name": name, "desc": description, "ranks": str(ranks)}}


def dump(*entries: Any, **top_level: Any) -> dict[str, Any]:
    """A whole dump; name what should differ."""
    content = {
        "version": "2.10",
        "pg_config": process_group("0", [0, 1]),
        "comm_lib_version": "",
        "pg_status": {},
    }
    return content | top_level | {"entries": list(entries)}


def as_json(content: dict[str, Any]) -> bytes:
    """The JSON variant: sorted keys, absent times 0, no entries when empty."""
    entries = [
        entry | {field: entry[field] or 0 for field in JSON_HAS_NO_NONE if field in entry}
        for entry in content["entries"]
    ]
    status = {
        group: {event: str(last) for event, last in events.items()}
        for group, events in content["pg_status"].items()
    }
    whole = content | {"pg_status": status, "nccl_comm_state": {}}
    del whole["entries"]
    return orjson.dumps(whole | ({"entries": entries} if entries else {}), option=orjson.OPT_SORT_KEYS)


def as_source(data: bytes, name: str = "comm_lib_trace_rank_0") -> Source:
    """An input that holds `data`."""
    return Source(name, lambda: io.BytesIO(data), len(data))
