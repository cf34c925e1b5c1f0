"""Compile logs of the ranks whose dumps `builders.dumps` makes, on the same clock.

    compile_log(folder, 2, *compiling("0/0", 2.5), alive(600))

is the log of rank 2, which compiles from 2.5 s on and is still doing that when the log ends.
"""

from __future__ import annotations

from pathlib import Path

from builders.compile_log import START_US, artifact, begin, end, log, metrics, record, started
from builders.dumps import SECOND
from builders.recorder import CREATED

ZERO = CREATED / SECOND - START_US / 1e6
"""When dumps begin, in seconds after the beginning of compile logs: the third all-reduce is 3 s later."""


def compile_log(folder: Path, rank: int, *records: str, name: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"dedicated_log_torch_trace_rank_{rank}_abc.log")
    path.write_bytes(log(*records))
    return path


def compiling(id_: str, since: float, until: float | None = None, name: str = "train_step") -> list[str]:
    """A compilation that waits for its workers, in seconds of the dumps; `until` is None if it has no end."""
    start = ZERO + since
    begun = [
        started(id_, name, at=start),
        begin("entire_frame_compile", id_, at=start, fn_name="_compile.compile_inner"),
        begin("async_compile.wait", id_, at=start + 0.25),
    ]
    if until is None:
        return begun
    stop = ZERO + until
    ends = [
        end("async_compile.wait", id_, at=stop - 0.25),
        end("entire_frame_compile", id_, at=stop),
        metrics(id_, start=start, seconds=stop - start, co_name=name),
    ]
    return [*begun, *ends]


def recompiled(id_: str, because: str, since: float) -> str:
    """Why a function is compiled again."""
    return artifact("recompile_reasons", because, id_, at=ZERO + since)


def alive(at: float) -> str:
    """A record without meaning that shows that the process was alive."""
    return record("artifact", {"name": "x", "encoding": "string"}, "x", at=ZERO + at)


def near(ns: int, seconds: float) -> bool:
    """Times of compile logs have microseconds."""
    return abs(ns - CREATED - seconds * SECOND) <= 2000
