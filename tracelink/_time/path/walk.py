"""The critical path: back from the end of the job, always to what the current piece waited for last."""

from __future__ import annotations

import numpy as np

from tracelink._model.columns import UNKNOWN, Int32s, Int64s, KnownInt32s, Table, Times, UInt8s
from tracelink._time.path.job import JobPieces
from tracelink._time.path.nodes import DELAY_OF, PieceKind, Why

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


def critical_path(job: JobPieces) -> Segments:
    """The segments from the begin of the first step to the end of the last one."""
    if not len(job.begin) or not len(job) or job.begin[0] >= job.begin[-1]:
        return Segments.empty()
    chain = _chain(job, int(job.begin[0]), int(job.begin[-1]))
    return _cut(job, *_segments(job, chain)) if len(chain) else Segments.empty()


def _chain(job: JobPieces, floor: int, end: int) -> Int64s:
    """The pieces on the path, the last one first; each was what the one before it waited for last."""
    pieces = job.pieces
    begun = np.flatnonzero(pieces.start < end)
    if not len(begun):
        return begun
    ended = np.minimum(pieces.end[begun], end)
    piece = int(begun[np.lexsort((pieces.start[begun], ended))[-1]])
    source = np.where(job.arrival == UNKNOWN, np.arange(len(job)), job.arrival)
    previous = np.where(pieces.start[source] <= floor, UNKNOWN, job.cause[source])
    chain: list[int] = []
    for _ in range(len(job)):
        if piece == UNKNOWN:
            break
        chain.append(piece)
        piece = previous.item(piece)
    return np.array(chain, np.int64)


def _segments(job: JobPieces, chain: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Rank, kind, start, end and piece of each segment in the order of time.

    A piece lasts until the one after it could start, and begins when its rank, or the last rank that it waited for,
    started it; before that is the delay after its cause.
    """
    pieces, floor, last = job.pieces, int(job.begin[0]), int(job.begin[-1])
    arrival = job.arrival[chain]
    source = np.where(arrival == UNKNOWN, chain, arrival)
    begins, ends = pieces.start[source], pieces.end[chain]
    # the end of the path, then the end and the begin of each piece, never later than what comes after it
    bounds = np.concatenate([[last], np.stack([ends, begins], axis=1).ravel(), [floor]])
    bounds = np.maximum(np.minimum.accumulate(bounds), floor)
    upper, lower = bounds[:-1], bounds[1:]
    count = len(chain)
    kind = np.full(2 * count + 1, int(PieceKind.IDLE), np.int64)
    piece = np.empty(2 * count + 1, np.int64)
    piece[0], piece[1::2], piece[2::2] = chain[0], chain, source
    kind[1::2] = pieces.kind[chain]
    kind[2:-1:2] = _delays(job, source[:-1], (upper - lower)[2:-1:2])
    rank = job.rank[piece].astype(np.int64)
    some = np.flatnonzero(upper > lower)[::-1]
    return rank[some], kind[some], lower[some], upper[some], piece[some]


def _delays(job: JobPieces, source: Int64s, delay: Int64s) -> Int64s:
    """What the time before each piece is; a thread that only communicates waits for requests."""
    why = job.why[source].astype(np.int64)
    kinds = np.array([DELAY_OF[each] for each in Why], np.int64)[why]
    requested = (why == Why.SEQUENCE) & (job.pieces.kind[source] == PieceKind.COMMUNICATION)
    kinds[requested] = PieceKind.HAND_OVER
    kinds[np.isin(why, (Why.STREAM, Why.STREAM_WAIT)) & (delay > LONGEST_QUEUE_NS)] = PieceKind.IDLE
    return kinds


def _cut(job: JobPieces, rank: Int64s, kind: Int64s, start: Int64s, end: Int64s, piece: Int64s) -> Segments:
    """The segments, divided where steps begin."""
    inner = job.begin[1:-1]
    inner = inner[(inner > job.begin[0]) & (inner < job.begin[-1])]
    times = np.sort(np.concatenate([start, inner, end[-1:]]))
    times = times[np.append(True, times[1:] > times[:-1])]
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
