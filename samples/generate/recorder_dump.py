"""A recording as the flight recorder of torch 2.6 on NCCL would dump it."""

from __future__ import annotations

from functools import cache
from typing import Any

from tracelink.samples.generate.host_clock import HostClock
from tracelink.samples.generate.job import Job
from tracelink.samples.generate.recording import Participation, Recording

VERSION = "2.4"
WATCHDOG_NS = 100_000
"""The recorder learns of starts and ends when its watchdog looks."""

TIMEOUT_MS = 600_000
CALLERS = {
    "all_reduce": ("all_reduce", "distributed_c10d.py", 2770),
    "_all_gather_base": ("all_gather_into_tensor", "distributed_c10d.py", 3706),
}


def recorder_dump(job: Job, recording: Recording) -> dict[str, Any]:
    """The whole dump."""
    clock = job.clock(recording.rank)
    groups = job.groups(recording.rank)
    return {
        "version": VERSION,
        "pg_config": {
            group.name: {
                "name": group.name,
                "desc": group.description,
                "ranks": str(list(group.ranks)),
            }
            for group in groups
        },
        "pg_status": {str(group.number): status(recording, group.name) for group in groups},
        "entries": [entry(part, clock) for part in recording.participations],
    }


def status(recording: Recording, group: str) -> dict[str, int]:
    """How far a group has come: everything was finished."""
    numbers = [part.sequence for part in recording.participations if part.group.name == group]
    last = numbers[-1] if numbers else -1
    return {
        "last_enqueued_collective": last,
        "last_started_collective": last,
        "last_completed_collective": last,
    }


def entry(part: Participation, clock: HostClock) -> dict[str, Any]:
    """One entry, in the order of the recorder's writer."""
    shapes = [[list(shape)] for shape in part.shapes] or [[], []]
    types = ["Float"] * len(part.shapes[:1])
    return {
        "frames": frames(part),
        "record_id": part.record,
        "pg_id": part.group.number,
        "process_group": (part.group.name, part.group.description),
        "collective_seq_id": part.sequences[0],
        "p2p_seq_id": part.sequences[1],
        "op_id": part.order,
        "profiling_name": f"nccl:{part.operation}",
        "time_created_ns": clock.shown(part.enqueued),
        **duration(part, clock),
        "input_sizes": shapes[0],
        "input_dtypes": types,
        "output_sizes": shapes[1],
        "output_dtypes": types,
        **progress(part, clock),
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": part.point_to_point,
    }


def duration(part: Participation, clock: HostClock) -> dict[str, float]:
    """How long it ran; the recorder is not told of the members of a batch."""
    if part.batched:
        return {}
    return {"duration_ms": (clock.shown(part.finished) - clock.shown(part.started)) / 1e6}


def progress(part: Participation, clock: HostClock) -> dict[str, Any]:
    """How far it came; the members of a batch stay scheduled for ever."""
    seen = [
        None if part.batched else seen_by_watchdog(clock.shown(time))
        for time in (part.started, part.finished)
    ]
    return {
        "state": "scheduled" if part.batched else "completed",
        "time_discovered_started_ns": seen[0],
        "time_discovered_completed_ns": seen[1],
        "retired": not part.batched,
    }


def seen_by_watchdog(time: int) -> int:
    """When the watchdog next looks."""
    return -(-time // WATCHDOG_NS) * WATCHDOG_NS


def frames(part: Participation) -> list[dict[str, Any]]:
    """Where the program asked for it, innermost first."""
    verb = part.operation.split()[0]
    name, file, line = CALLERS.get(verb, (verb, "distributed_c10d.py", 2370))
    return [
        frame(name, f"/srv/job/lib/torch/distributed/{file}", line),
        frame("train_step", "/srv/job/train.py", 41),
        frame("main", "/srv/job/train.py", 80),
    ]


@cache
def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """A frame; entries share it, and so does what is pickled."""
    return {"name": name, "filename": file, "line": line}
