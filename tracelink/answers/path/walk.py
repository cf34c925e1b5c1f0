"""The critical path: back from the end of the job, always to what the current piece waited for last."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from tracelink.answers.path.job import JobPieces
from tracelink.answers.path.nodes import DELAY_OF, PieceKind, Why
from tracelink.model.columns import UNKNOWN, Int32s, Int64s, KnownInt32s, Table, Times, UInt8s

LONGEST_QUEUE_NS = 100_000
"""Device work that could have started, but did not for longer, waited for what was not recorded."""


class Segments(Table, frozen=True):
    """One row for each segment of the path; each begins when the one before it ends."""

    rank: KnownInt32s
    kind: UInt8s
    """A value of `PieceKind`."""
    start: Times
    end: Times
    piece: Int64s
    """The piece of the job that it is, or that it delays."""
    step: Int32s
    """The index of the step."""


class _Trail(Struct):
    """The segments so far, the last one first."""

    floor: int
    time: int
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def back_to(self, time: int, rank: int, kind: int, piece: int) -> None:
        """Adds a segment from `time` to where the path has come."""
        time = max(time, self.floor)
        if time < self.time:
            self.rows.append((rank, kind, time, self.time, piece))
            self.time = time


def critical_path(job: JobPieces) -> Segments:
    """The segments from the begin of the first step to the end of the last one."""
    if not len(job.begin) or not len(job):
        return Segments.empty()
    trail = _Trail(int(job.begin[0]), int(job.begin[-1]))
    piece = _last_piece(job, trail)
    while piece != UNKNOWN and trail.time > trail.floor:
        piece = _step_back(job, piece, trail)
    columns = np.array(trail.rows[::-1], np.int64).reshape(-1, 5)
    return _cut(job, columns)


def _last_piece(job: JobPieces, trail: _Trail) -> int:
    """The piece that ended last, of those that started before the end of the job."""
    pieces = job.pieces
    begun = np.flatnonzero(pieces.start < trail.time)
    if not len(begun):
        return UNKNOWN
    ended = np.minimum(pieces.end[begun], trail.time)
    last = int(begun[np.lexsort((pieces.start[begun], ended))[-1]])
    trail.back_to(int(pieces.end[last]), int(job.rank[last]), PieceKind.IDLE, last)
    return last


def _step_back(job: JobPieces, piece: int, trail: _Trail) -> int:
    """Adds a piece and the delay before it; returns its cause, or UNKNOWN where the recording begins."""
    pieces = job.pieces
    rank, arrival = job.rank.item(piece), job.arrival.item(piece)
    start = piece if arrival == UNKNOWN else arrival
    trail.back_to(pieces.start.item(start), rank, pieces.kind.item(piece), piece)
    piece, rank = start, job.rank.item(start)
    cause: int = job.cause.item(piece)
    if cause == UNKNOWN:
        trail.back_to(trail.floor, rank, PieceKind.IDLE, piece)
        return UNKNOWN
    ended = pieces.end.item(cause)
    if ended < trail.time:
        trail.back_to(ended, rank, _delay(job, piece, job.why.item(piece), trail.time - ended), piece)
    return cause


def _delay(job: JobPieces, piece: int, why: int, delay: int) -> int:
    """What the time before a piece is; a thread that only communicates waits for requests."""
    if why in (Why.STREAM, Why.STREAM_WAIT) and delay > LONGEST_QUEUE_NS:
        return PieceKind.IDLE
    if why == Why.SEQUENCE and job.pieces.kind[piece] == PieceKind.COMMUNICATION:
        return PieceKind.HAND_OVER
    return DELAY_OF[Why(why)]


def _cut(job: JobPieces, columns: Int64s) -> Segments:
    """The segments, divided where steps begin."""
    rank, kind, start, end, piece = columns.T
    inner = job.begin[1:-1]
    inner = inner[(inner > job.begin[0]) & (inner < job.begin[-1])]
    times = np.unique(np.concatenate([start, inner, end[-1:]]))
    source = np.searchsorted(start, times[:-1], side="right") - 1
    step = np.searchsorted(job.begin[:-1], times[:-1], side="right") - 1
    return Segments(
        rank[source].astype(np.int32),
        kind[source].astype(np.uint8),
        times[:-1],
        times[1:],
        piece[source],
        step.astype(np.int32),
    )
