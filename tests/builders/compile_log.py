"""Compile logs.

log(begin("dynamo", "0/0", at=1.0), end("dynamo", "0/0", at=2.5), metrics("0/0", co_name="step"))

is the log of a process in which a function was compiled for 1.5 s. Times are in seconds after `START`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

START_US = 1_794_982_103_000_000
"""2026-11-18 06:08:23 UTC."""
PREFIX = "V{time:%m%d %H:%M:%S.%f} {pid} torch/_dynamo/utils.py:2350] "
PID = 4711


_start_us, _zone = START_US, timedelta()


@contextmanager
def local_time(start: datetime, zone: float) -> Iterator[None]:
    """Records with times after another start, in the local time of a zone, in hours."""
    global _start_us, _zone
    before = _start_us, _zone
    _start_us, _zone = round(start.timestamp() * 1_000_000), timedelta(hours=zone)
    try:
        yield
    finally:
        _start_us, _zone = before


def ids(compile_id: str, attempt: int = 0) -> dict[str, Any]:
    """The keys that name a compilation: `1/5`, `!0/1/5`, or nothing."""
    parts = compile_id.split("/")
    autograd = {"compiled_autograd_id": int(parts.pop(0)[1:])} if compile_id.startswith("!") else {}
    frame = {"frame_id": int(parts[0]), "frame_compile_id": int(parts[1])} if len(parts) > 1 else {}
    return {**autograd, **frame, **({"attempt": attempt} if compile_id else {})}


def record(
    kind: str,
    value: Any,
    payload: str | None = None,
    *,
    compile_id: str = "",
    at: float = 0.0,
    rank: int | None = None,
    attempt: int = 0,
) -> str:
    envelope = {kind: value, **({} if rank is None else {"rank": rank}), **ids(compile_id, attempt)}
    if payload is not None:
        envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    time = datetime.fromtimestamp(_start_us / 1_000_000, UTC) + timedelta(seconds=at) + _zone
    first = PREFIX.format(time=time, pid=PID)
    lines = "" if payload is None else "".join(f"\t{line}\n" for line in payload.split("\n"))
    return f"{first}{json.dumps(envelope)}\n{lines}"


def event(phase: str, name: str, compile_id: str, at: float, **arguments: Any) -> str:
    args = {"compile_id": compile_id or "None", **arguments}
    content = {"name": name, "ts": _start_us + at * 1_000_000, "args": args, "ph": phase}
    content |= {"cat": "dynamo_timed", "tid": 0, "pid": 0}
    return record("chromium_event", {}, json.dumps(content, indent=0), compile_id=compile_id, at=at)


def begin(name: str, compile_id: str = "", *, at: float, **arguments: Any) -> str:
    return event("B", name, compile_id, at, **arguments)


def end(name: str, compile_id: str = "", *, at: float, **arguments: Any) -> str:
    return event("E", name, compile_id, at, **arguments)


def instant(name: str, compile_id: str = "", *, at: float, **arguments: Any) -> str:
    return event("i", name, compile_id, at, **arguments)


def started(compile_id: str, function: str, *, at: float = 0.0) -> str:
    """The record at the start of a compilation, with the function as the innermost frame."""
    frames = [{"line": line, "name": name, "filename": 0} for line, name in ((90, "main"), (12, function))]
    return record("dynamo_start", {"stack": frames}, compile_id=compile_id, at=at)


def artifact(
    name: str, payload: str, compile_id: str = "", *, at: float = 0.0, encoding: str = "string"
) -> str:
    return record("artifact", {"name": name, "encoding": encoding}, payload, compile_id=compile_id, at=at)


def metrics(
    compile_id: str, *, start: float = 0.0, seconds: float = 1.0, backward: bool = False, **fields: Any
) -> str:
    """What is known at the end of a compilation."""
    begun, lasted = START_US + round(start * 1_000_000), round(seconds * 1_000_000)
    content = {"compile_id": compile_id, "start_time_us": begun, "duration_us": lasted, **fields}
    kind = "bwd_compilation_metrics" if backward else "compilation_metrics"
    return record(kind, content, compile_id=compile_id, at=start + seconds)


def log(*records: str) -> bytes:
    return "".join(records).encode()
