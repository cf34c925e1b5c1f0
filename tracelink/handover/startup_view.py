"""What the UI shows first: commands that it takes from the address and runs once a trace is loaded."""

from __future__ import annotations

import json

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.job import Job

PIN = "dev.perfetto.PinTracksByRegex"
"""One of the commands that the UI allows in an address."""

GROUP_TRACKS = "^group "
"""Tracks of process groups over all ranks; the names of those of one rank begin with the rank."""

NO_LANE = r"(?!.*\(\d+\))"
"""Not the further lanes of a track, which hold what overlaps."""


def startup_commands(job: Job | None = None) -> str:
    """Pins what the slowest rank of a job does, and the tracks of process groups, as JSON.

    The groups come last: the UI gives what is pinned little room, and scrolls to its end.
    """
    patterns = [GROUP_TRACKS]
    if job and (rank := slowest_rank(job)) is not None:
        patterns.insert(0, _work_of(job, rank))
    return json.dumps([{"id": PIN, "args": [pattern]} for pattern in patterns], separators=(",", ":"))


def slowest_rank(job: Job) -> int | None:
    """The rank for which the others waited longest, all collectives together; None where nobody waited."""
    ranks, skews = job.collectives.last_rank, job.collectives.skew
    known = (skews != UNKNOWN) & (ranks != UNKNOWN)
    if not known.any():
        return None
    waited = np.bincount(ranks[known], weights=skews[known])
    return int(waited.argmax()) if waited.any() else None


def _work_of(job: Job, rank: int) -> str:
    """The names of the GPU streams of a rank; where it has none that is known, of its main thread."""
    parts = job.participations
    on_device = (parts.kernel[parts.rank == rank] != UNKNOWN).any()
    work = r"stream \d+" if on_device else "main thread"
    return rf"^rank 0*{rank} {work}\b{NO_LANE}"
