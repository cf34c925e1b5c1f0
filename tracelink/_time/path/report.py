"""The critical path in numbers: by kind, rank, module and step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s, distinct
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._time.model.results import CriticalPath, PathPart, PathStep
from tracelink._time.path.job import JobPieces, joined
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.rank import RankPieces
from tracelink._time.path.times import unusable_times
from tracelink._time.path.walk import Segments, critical_path

MOST_PARTS = 50


class PathOfJob(Struct, frozen=True):
    """The contracted graph of a job, and the path through it."""

    pieces: JobPieces
    segments: Segments
    """Of the wanted steps."""
    uncertainty_ns: int | None
    """The largest possible error of a clock of a rank on the path; None if unbounded."""


def path_of(parts: Sequence[RankPieces], job: LinkedJob, steps: Numbers | None = None) -> PathOfJob | None:
    """Returns the critical path of a job; None if no rank has a profile, or times are wrong.

    Args:
        parts: The contracted graph of each rank.
        job: The job; its events are not read.
        steps: Only these steps; all if ranks recorded different ones.
    """
    if unusable_times(parts, job):
        return None
    pieces = joined(parts, job)
    segments = critical_path(pieces)
    if steps is not None and (pieces.steps != UNKNOWN).all():
        segments = segments.take(steps.mark(pieces.steps)[segments.step])
    if not len(segments):
        return None
    ranks = set(np.unique(segments.rank).tolist())
    bounds = [rank.clock_uncertainty_ns for rank in job.ranks if rank.rank in ranks]
    known = [bound for bound in bounds if bound is not None]
    return PathOfJob(pieces, segments, max(known, default=0) if len(known) == len(bounds) else None)


def totals_of(path: PathOfJob) -> CriticalPath:
    """The path in numbers."""
    segments, pieces = path.segments, path.pieces
    length = segments.end - segments.start
    module = pieces.pieces.module[segments.piece]
    by_module = sorted(_sums(module.astype(np.int64), length).items(), key=lambda item: -item[1])
    return CriticalPath(
        int(length.sum()),
        _by_kind(segments),
        _by_rank(segments),
        {"" if code == UNKNOWN else pieces.names[code]: total for code, total in by_module},
        [_step(pieces, segments, step) for step in np.unique(segments.step).tolist()],
        _longest(path, length),
        path.uncertainty_ns,
        pieces.contradicted,
    )


def _by_kind(segments: Segments) -> dict[str, int]:
    sums = _sums(segments.kind.astype(np.int64), segments.end - segments.start)
    return {PieceKind(kind).label: total for kind, total in sorted(sums.items(), key=lambda item: -item[1])}


def _by_rank(segments: Segments) -> dict[str, int]:
    sums = _sums(segments.rank.astype(np.int64), segments.end - segments.start)
    return {str(rank): total for rank, total in sorted(sums.items())}


def _sums(values: Int64s, length: Int64s) -> dict[int, int]:
    which, first = distinct(values)
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, which, length)
    return dict(zip(values[first].tolist(), sums.tolist(), strict=True))


def _step(pieces: JobPieces, segments: Segments, step: int) -> PathStep:
    mine = segments.take(segments.step == step)
    number = int(pieces.steps[step])
    start = int(mine.start[0])
    return PathStep(
        None if number == UNKNOWN else number,
        start,
        int(mine.end[-1]) - start,
        _by_kind(mine),
        _by_rank(mine),
    )


def _longest(path: PathOfJob, length: Int64s) -> list[PathPart]:
    """What the path consists of, by kind and name, the longest first."""
    segments, pieces = path.segments, path.pieces
    name = pieces.pieces.name[segments.piece]
    numbers, first = distinct(segments.kind, name)
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, numbers, length)
    counts = np.bincount(numbers, minlength=len(first))
    order = np.argsort(-sums, kind="stable")[:MOST_PARTS]
    return [
        PathPart(
            PieceKind(segments.kind[first[row]]).label,
            "" if name[first[row]] == UNKNOWN else pieces.names[name[first[row]]],
            int(sums[row]),
            int(counts[row]),
        )
        for row in order.tolist()
    ]
