"""Capture files as `tracelink.capture` writes them."""

from __future__ import annotations

import json
from typing import Any

START = 1_795_000_000_000_000_000


def document(rank: int = 0, world_size: int = 2, **fields: Any) -> dict[str, Any]:
    """The fields of a capture file of a job of one group."""
    group = {"name": "0", "description": "default_pg", "size": world_size, "backend": "gloo"}
    window = {"first": 5, "last": 7, "start_ns": START, "end_ns": START + 10**8, "complete": True}
    usual: dict[str, Any] = {
        "tracelink_capture": 1,
        "tracelink": "0.1.0",
        "rank": rank,
        "rank_from": "torch.distributed",
        "world_size": world_size,
        "host": "node0",
        "pid": 1000 + rank,
        "start_ns": START,
        "end_ns": START + 10**9,
        "outcome": "finished",
        "steps": 10,
        "groups": [group | {"ranks": list(range(world_size))}],
        "versions": {"torch": "2.13.0"},
        "windows": [window],
        "readings": [{"wall_ns": START, "monotonic_ns": 10**12}],
    }
    return usual | fields


def written(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()
