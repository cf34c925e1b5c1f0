"""The first view of a timeline: pinned tracks, an open rank, a window. The header of the timeline has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.timeline.hangs import hung_of, missing_from

GROUP_TRACKS = "^group "
"""Tracks of process groups over all ranks; the names of those of one rank start with the rank."""

HUNG_TRACKS = (r"^group .* HUNG \(cause\)", r"^group .* HUNG(?! \(cause)")
"""Tracks of process groups on which everything hangs: the cause first."""

NO_LANE = r"(?!.*\(\d+\))"
"""Excludes further lanes of a track, which contain overlapping slices."""

MARGIN = 0.02
"""Time that is shown before and after the work, as a part of it."""

WORTH = 0.5
"""A window longer than this part of the trace is not worth it."""


class StartupView(Struct, frozen=True):
    """Patterns of track names, and the first and last nanosecond to show, after the base of the job."""

    pinned: Sequence[str] = (GROUP_TRACKS,)
    expanded: Sequence[str] = ()
    window: tuple[int, int] | None = None

    def as_header(self) -> dict[str, Any]:
        """The view as a part of the header of a timeline."""
        window = {} if self.window is None else {"window": self.window}
        return {"pinned": self.pinned, "expanded": self.expanded} | window


def startup_view(job: LinkedJob) -> StartupView:
    """Pins the work of the slowest rank and the tracks of process groups, from the start of profiled work.

    The groups come last, because the UI scrolls to the end of the pinned tracks. In a job that hangs, the tracks
    that hang are pinned, and the rank that is missing is expanded.
    """
    hung, slowest = hung_collectives(job), slowest_rank(job)
    shown = awaited_rank(job, hung) if hung else slowest
    if shown is None:
        shown = min((rank.rank for rank in job.ranks), default=None)
    expanded = () if shown is None else (rf"(?:^|· )rank 0*{shown}(?: ·|$)",)
    if hung:
        return StartupView(HUNG_TRACKS, expanded)
    pinned = (GROUP_TRACKS,) if slowest is None else (_work_of(job, slowest), GROUP_TRACKS)
    return StartupView(pinned, expanded, _profiled(job))


def hung_collectives(job: LinkedJob) -> Sequence[int]:
    """The collectives that hang."""
    rows: Sequence[int] = np.flatnonzero(hung_of(job).collectives).tolist()
    return rows


def awaited_rank(job: LinkedJob, hung: Sequence[int]) -> int | None:
    """The rank of the job that is missing from most of these collectives; None if none is missing."""
    there = {rank.rank for rank in job.ranks}
    missing = Counter(rank for collective in hung for rank in missing_from(job, collective) & there)
    return max(missing, key=lambda rank: (missing[rank], -rank), default=None)


def slowest_rank(job: LinkedJob) -> int | None:
    """The rank for which the other ranks waited longest in total; None if no rank waited."""
    ranks, skews = job.collectives.last_rank, job.collectives.skew
    known = (skews != UNKNOWN) & (ranks != UNKNOWN)
    if not known.any():
        return None
    waited = np.bincount(ranks[known], weights=skews[known])
    return int(waited.argmax()) if waited.any() else None


def _work_of(job: LinkedJob, rank: int) -> str:
    """A pattern for the GPU streams of a rank, else for its recorder tracks, else for its main thread."""
    parts = job.participations
    mine = parts.rank == rank
    if (parts.kernel[mine] != UNKNOWN).any():
        work = r"stream \d+\b"
    else:
        work = "group " if (parts.record[mine] != UNKNOWN).any() else r"main thread\b"
    return rf"^rank 0*{rank} {work}{NO_LANE}"


def _profiled(job: LinkedJob) -> tuple[int, int] | None:
    """The time of profiled collectives, if it is a small part of the job: recorders look further back."""
    parts = job.participations
    seen = (parts.kernel != UNKNOWN) | (parts.annotation != UNKNOWN) | (parts.operator != UNKNOWN)
    seen &= (parts.start != NO_TIME) & (parts.end != NO_TIME)
    if not seen.any() or job.first_ns is None or job.last_ns is None:
        return None
    first, last = int(parts.start[seen].min()), int(parts.end[seen].max())
    margin = int(MARGIN * (last - first))
    if last - first > WORTH * (job.last_ns - job.first_ns):
        return None
    base = job.base_ns or 0
    return max(first - margin, job.first_ns) - base, min(last + margin, job.last_ns) - base
