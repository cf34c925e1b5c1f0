"""What the UI shows first: commands that it takes from the address and runs once a trace is loaded."""

from __future__ import annotations

import json

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.job import Job

PIN = "dev.perfetto.PinTracksByRegex"
"""One of the commands that the UI allows in an address."""

GROUP_TRACKS = "^group "
"""Tracks of process groups over all ranks; those of one rank begin with the rank."""


def startup_commands(slowest_rank: int | None = None) -> str:
    """Pins the tracks of process groups and the GPU streams and main thread of one rank, as JSON."""
    patterns = [GROUP_TRACKS]
    if slowest_rank is not None:
        patterns.append(rf"^rank {slowest_rank} (stream \d|.*\bmain\b)")
    return json.dumps([{"id": PIN, "args": [pattern]} for pattern in patterns], separators=(",", ":"))


def slowest_rank(job: Job) -> int | None:
    """The rank for which the others waited longest, all collectives together; None where nobody waited."""
    ranks, skews = job.collectives.last_rank, job.collectives.skew
    known = (skews != UNKNOWN) & (ranks != UNKNOWN)
    if not known.any():
        return None
    waited = np.bincount(ranks[known], weights=skews[known])
    return int(waited.argmax()) if waited.any() else None
