"""A job replayed: every piece starts when all of its causes have ended, and takes as long as it was recorded to take.

Short delays after a cause (a launch, a hand-over between threads) are kept. The causes of long ones were not recorded:
the replay leaves them out, so that its length differs from the recorded one by what it cannot explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Float64s, Int64s, starts_of
from tracelink._time.path.job import JobPieces
from tracelink._time.path.nodes import PieceKind, Why

EXPLAINED_NS = {
    Why.SEQUENCE: 1_000_000,
    Why.STREAM: 100_000,
    Why.LAUNCH: 1_000_000,
    Why.STREAM_WAIT: 100_000,
    Why.HOST_WAIT: 1_000_000,
    Why.HAND_OVER: 10_000_000,
}
"""The longest delay after each cause that is taken for a property of the machine."""


class Model(Struct, frozen=True):
    """What a replay needs: how long pieces take by themselves, and how long after their causes they start."""

    job: JobPieces
    own: Int64s
    """The time of each piece, without that in which it waited for other ranks."""
    lag: Int64s
    """For each cause the time from its end to the start of the piece."""
    bounds: Int64s
    """The causes of piece `i` are `bounds[i]` to `bounds[i + 1]`."""
    order: Int64s
    """The pieces by start."""
    waits: Bools
    """Pieces that end only after others have started."""
    anchored: int
    """Pieces after the first of their lane that have no known cause: they start when they were recorded."""

    @classmethod
    def of(cls, job: JobPieces) -> Model:
        """The model of a job, until the end of its last step."""
        pieces, last = job.pieces, int(job.begin[-1])
        end = np.where(pieces.start < last, np.minimum(pieces.end, last), pieces.start)
        waited = job.arrival != UNKNOWN
        begun = np.maximum(pieces.start, np.where(waited, pieces.start[job.arrival], pieces.start))
        own = np.where(pieces.start < last, np.maximum(end - begun, 0), 0)
        bounds = np.searchsorted(job.causes.after, np.arange(len(job) + 1))
        without = np.flatnonzero(
            (job.cause == UNKNOWN) & (pieces.start > job.begin[0]) & (pieces.start < last)
        )
        waits = np.zeros(len(job), np.bool_)
        waits[job.meetings.piece[job.meetings.waits]] = True
        waits &= _consistent(job)
        order = np.argsort(pieces.start, kind="stable")
        return cls(job, own, _lags(job), bounds, order, waits, len(without))

    def recorded_ns(self) -> int:
        """The recorded length of all steps."""
        return int(self.job.begin[-1] - self.job.begin[0])


def _consistent(job: JobPieces) -> Bools:
    """Pieces that by their clocks did not end before the others had started."""
    meetings, pieces = job.meetings, job.pieces
    consistent = np.ones(len(job), np.bool_)
    if len(meetings):
        start = np.where(meetings.awaited, pieces.start[meetings.piece], np.iinfo(np.int64).min)
        first = starts_of(meetings.meeting)
        latest = np.repeat(np.maximum.reduceat(start, first), np.diff(np.append(first, len(meetings))))
        consistent[meetings.piece[latest > pieces.end[meetings.piece]]] = False
    return consistent


def _lags(job: JobPieces) -> Int64s:
    """The lag after each cause: as recorded for the last one if it is short, else the typical one of such causes."""
    causes, pieces = job.causes, job.pieces
    slack = np.maximum(pieces.start[causes.after] - pieces.end[causes.before], 0)
    binding = np.append(causes.after[1:] != causes.after[:-1], True)[: len(causes)]
    lag = np.zeros(len(causes), np.int64)
    for why, longest in EXPLAINED_NS.items():
        mine = causes.why == why
        known = slack[mine & binding & (slack <= longest)]
        typical = int(np.median(known)) if len(known) else 0
        kept = mine & binding & (slack <= longest)
        lag[mine] = np.minimum(slack[mine], 0 if why == Why.SEQUENCE else typical)
        lag[kept] = slack[kept]
    return lag


def replayed(model: Model, own: Int64s | Float64s | None = None) -> int:
    """Returns how long the steps take in a replay, in ns.

    Args:
        model: The model of the job.
        own: The time of each piece, if it is not the recorded one.
    """
    run = _Run(model, model.own if own is None else own)
    for piece in model.order.tolist():
        run.find_start(piece)
    return round(max(map(run.end, model.order.tolist()), default=0))


class _Run:
    """One replay, in time since the begin of the first step. Pieces start mostly in the order of recorded starts."""

    def __init__(self, model: Model, own: Int64s | Float64s) -> None:
        job = model.job
        self._recorded = (job.pieces.start - job.begin[0]).tolist()
        self._own: list[float] = own.tolist()
        self._before, self._lag = job.causes.before.tolist(), model.lag.tolist()
        self._bounds, self._waits = model.bounds.tolist(), model.waits.tolist()
        self._starts: list[float | None] = [None] * len(job)
        self._meetings = _meetings_of(model)
        self._members = _members(model)
        self._latest: dict[int, float] = {}

    def find_start(self, piece: int) -> None:
        """Finds when a piece starts, after the pieces that it depends on; a circle of causes is cut where it closes."""
        pending = {piece}
        stack = [piece]
        while stack:
            current = stack[-1]
            unknown = [each for each in self._unknown(current) if each not in pending]
            if unknown:
                pending.update(unknown)
                stack += unknown
                continue
            self._starts[current] = self._started(stack.pop())

    def _unknown(self, piece: int) -> Iterator[int]:
        """The pieces without a start that the start of a piece depends on."""
        if self._starts[piece] is not None:
            return
        for row in range(self._bounds[piece], self._bounds[piece + 1]):
            cause = self._before[row]
            if self._starts[cause] is None:
                yield cause
            if self._waits[cause]:
                for meeting in self._meetings[cause]:
                    yield from (each for each in self._members[meeting] if self._starts[each] is None)

    def _started(self, piece: int) -> float:
        known = self._starts[piece]
        if known is not None:
            return known
        first, last = self._bounds[piece], self._bounds[piece + 1]
        if first == last:
            return self._recorded[piece]
        return max(self.end(self._before[row]) + self._lag[row] for row in range(first, last))

    def _start(self, piece: int) -> float:
        known = self._starts[piece]
        return self._recorded[piece] if known is None else known

    def end(self, piece: int) -> float:
        """When a piece ends, whose start is known."""
        begun = self._start(piece)
        if self._waits[piece]:
            begun = max(begun, *map(self._arrived, self._meetings[piece]))
        return begun + self._own[piece]

    def _arrived(self, meeting: int) -> float:
        """When the last rank that others wait for has come."""
        known = self._latest.get(meeting)
        if known is None:
            known = self._latest[meeting] = max(map(self._start, self._members[meeting]))
        return known


def _meetings_of(model: Model) -> dict[int, list[int]]:
    """The meetings in which each piece waits."""
    found: dict[int, list[int]] = {}
    meetings = model.job.meetings
    rows = np.flatnonzero(meetings.waits)
    for piece, meeting in zip(meetings.piece[rows].tolist(), meetings.meeting[rows].tolist(), strict=True):
        found.setdefault(piece, []).append(meeting)
    return found


def _members(model: Model) -> dict[int, list[int]]:
    """The pieces that others wait for, by meeting."""
    found: dict[int, list[int]] = {}
    meetings = model.job.meetings
    for piece, meeting, awaited in zip(
        meetings.piece.tolist(), meetings.meeting.tolist(), meetings.awaited.tolist(), strict=True
    ):
        members = found.setdefault(meeting, [])
        if awaited:
            members.append(piece)
    return found


# Changed times of pieces.


WORK = (PieceKind.COMPUTE, PieceKind.COPY, PieceKind.HOST, PieceKind.PYTHON, PieceKind.DATA_LOADING)


def scaled(own: Float64s, pieces: Bools, factor: float) -> Float64s:
    """The times, in which some pieces take `factor` as long."""
    return np.where(pieces, own * factor, own)


def on_time(model: Model, own: Float64s, rank: int) -> Float64s:
    """The times, in which a rank works faster wherever it would come last, by as much as it came after all others.

    The time is taken from the pieces of the rank that led to its late arrival, in proportion to their lengths, back to
    where it last met other ranks.
    """
    job, changed = model.job, own.copy()
    meeting_pieces = np.zeros(len(job), np.bool_)
    meeting_pieces[job.meetings.piece] = True
    for piece, late in _late_arrivals(job, rank):
        chain = _own_work(job, piece, meeting_pieces)
        removed = float((own[chain] - changed[chain]).sum())
        left = float(changed[chain].sum())
        if late > removed and left > 0:
            changed[chain] *= max(1 - (late - removed) / left, 0.0)
    return changed


def _late_arrivals(job: JobPieces, rank: int) -> Sequence[tuple[int, int]]:
    """The pieces with which a rank came last to a meeting, by time, and how long after all others."""
    meetings, start = job.meetings, job.pieces.start
    rows = np.flatnonzero(meetings.awaited)
    if not len(rows):
        return []
    meeting, piece = meetings.meeting[rows], meetings.piece[rows]
    order = np.lexsort((start[piece], meeting))
    meeting, piece = meeting[order], piece[order]
    last = np.flatnonzero(np.append(meeting[1:] != meeting[:-1], True))
    last = last[np.append(UNKNOWN, last[:-1]) + 1 < last]
    own = last[job.rank[piece[last]] == rank]
    late = start[piece[own]] - start[piece[own - 1]]
    by_time = np.argsort(start[piece[own]], kind="stable")
    return list(zip(piece[own][by_time].tolist(), late[by_time].tolist(), strict=True))


def _own_work(job: JobPieces, piece: int, meeting_pieces: Bools) -> Int64s:
    """The pieces of a rank that led to the start of one of them, back to its last meeting."""
    chain: list[int] = []
    passed: set[int] = set()
    current = job.cause.item(piece)
    while current != UNKNOWN and not meeting_pieces[current] and current not in passed:
        passed.add(current)
        if job.pieces.kind.item(current) in WORK:
            chain.append(current)
        current = job.cause.item(current)
    return np.array(chain, np.int64)
