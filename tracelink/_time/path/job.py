"""The contracted graphs of all ranks as one, with the collectives and messages at which ranks wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import (
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    StringTable,
    Table,
    UInt8s,
    lookup,
    starts_of,
)
from tracelink._model.communications import Evidence, Messages, Participations
from tracelink._model.job import LinkedJob, event_of
from tracelink._model.operations import Operation
from tracelink._time.path.nodes import Causes, PieceKind, Pieces
from tracelink._time.path.rank import RankPieces

FROM_ROOT = (Operation.BROADCAST, Operation.SCATTER)
TO_ROOT = (Operation.REDUCE, Operation.GATHER)


class Meetings(Table, frozen=True):
    """One row for each piece in a collective or a message, by meeting."""

    meeting: Int64s
    piece: Int64s
    waits: Bools
    """Whether it cannot end before the others have started."""
    awaited: Bools
    """Whether others cannot end before it has started."""


class JobPieces(Struct, frozen=True):
    """The pieces of all ranks, and why each started when it did."""

    ranks: Sequence[int]
    pieces: Pieces
    rank: Int32s
    """The rank of each piece."""
    causes: Causes
    """By the later piece, and of each piece by time."""
    cause: Int64s
    """What each piece waited for last, or UNKNOWN."""
    why: UInt8s
    """Why it did: a value of `Why`."""
    meetings: Meetings
    arrival: Int64s
    """The piece of another rank that each piece had to wait for last while it ran, or UNKNOWN."""
    contradicted: int
    """Pieces that ended before another rank had started: clocks differ, or they need not wait for it."""
    names: Sequence[str]
    begin: Int64s
    """When each step began on the first rank to begin it, and when the last one ended."""
    steps: Int64s
    """The number of each step, or UNKNOWN."""

    def __len__(self) -> int:
        return len(self.pieces)


def joined(parts: Sequence[RankPieces], job: LinkedJob) -> JobPieces:
    """All ranks together."""
    names = StringTable()
    first = np.cumsum([0, *(len(part.pieces) for part in parts)]).tolist()
    pieces = Pieces.concatenate([_with_names(part, names) for part in parts])
    causes = Causes.concatenate(
        [part.causes.shifted(begin) for part, begin in zip(parts, first, strict=False)]
    )
    order = np.lexsort((pieces.start[causes.before], pieces.end[causes.before], causes.after))
    causes = causes.take(order)
    last = np.flatnonzero(np.append(causes.after[1:] != causes.after[:-1], True)[: len(causes)])
    cause, why = np.full(len(pieces), UNKNOWN, np.int64), np.zeros(len(pieces), np.uint8)
    cause[causes.after[last]], why[causes.after[last]] = causes.before[last], causes.why[last]
    meetings = _meetings(parts, first, job, pieces)
    arrival, contradicted = _arrivals(meetings, pieces)
    steps, begin = _steps(parts)
    return JobPieces(
        [part.rank for part in parts],
        pieces,
        np.repeat([part.rank for part in parts], [len(part.pieces) for part in parts]).astype(np.int32),
        causes,
        cause,
        why,
        meetings,
        arrival,
        contradicted,
        names.texts(),
        begin,
        steps,
    )


def _with_names(part: RankPieces, names: StringTable) -> Pieces:
    """The pieces with the numbers of names that all ranks share."""
    codes = np.append(names.absorb(part.names), np.int32(UNKNOWN)).astype(np.int32)
    columns = part.pieces.columns()
    return Pieces.of(**{**columns, "name": codes[part.pieces.name], "module": codes[part.pieces.module]})


def _steps(parts: Sequence[RankPieces]) -> tuple[Int64s, Int64s]:
    """The numbers of the steps, and the times between them: a step begins when the first rank begins it.

    Ranks without steps do not count if others have some. If the numbers of a rank do not ascend, all is one step.
    """
    recorded = [part for part in parts if len(part.steps) and (part.steps != UNKNOWN).all()]
    recorded = recorded or [part for part in parts if len(part.steps)]
    if not recorded:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    number = np.concatenate([part.steps for part in recorded])
    start = np.concatenate([part.step_start for part in recorded])
    end = max(int(part.step_end.max()) for part in recorded)
    numbers, which = np.unique(number, return_inverse=True)
    begins = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(begins, which, start)
    ascending = all((np.diff(part.steps) > 0).all() for part in recorded)
    if not ascending or (np.diff(begins) <= 0).any():
        return np.array([UNKNOWN], np.int64), np.array([int(start.min()), end], np.int64)
    return numbers, np.append(begins, end)


# Where ranks meet.


def _meetings(parts: Sequence[RankPieces], first: Sequence[int], job: LinkedJob, pieces: Pieces) -> Meetings:
    """The meetings of at least two pieces."""
    placed = _PiecesOfEvents(parts, first)
    found = Meetings.concatenate([_of_collectives(job, placed), _of_messages(job, placed, pieces)])
    order = np.argsort(found.meeting, kind="stable")
    found = found.take(order)
    count = np.diff(np.append(starts_of(found.meeting), len(found)))
    return found.take(np.repeat(count > 1, count))


class _PiecesOfEvents:
    """The piece of each event that takes part in communication."""

    def __init__(self, parts: Sequence[RankPieces], first: Sequence[int]) -> None:
        self._parts = {part.rank: (part.landmarks, begin) for part, begin in zip(parts, first, strict=False)}

    def of(self, ranks: Int32s, rows: Int64s) -> Int64s:
        """The piece of each event, or UNKNOWN."""
        found = np.full(len(rows), UNKNOWN, np.int64)
        for rank, (landmarks, begin) in self._parts.items():
            mine = np.flatnonzero((ranks == rank) & (rows != UNKNOWN))
            index = lookup(landmarks.row, rows[mine])
            piece = np.append(landmarks.piece, UNKNOWN)[index]
            found[mine] = np.where(piece == UNKNOWN, UNKNOWN, piece + begin)
        return found


def _of_collectives(job: LinkedJob, placed: _PiecesOfEvents) -> Meetings:
    table = job.participations
    usable = np.flatnonzero(table.evidence >= Evidence.ANNOTATION)
    parts = table.take(usable)
    piece = placed.of(parts.rank, event_of(parts))
    waits, awaited = _roles(job, parts)
    known = (piece != UNKNOWN) & (waits | awaited)
    return Meetings(parts.collective[known], piece[known], waits[known], awaited[known])


def _roles(job: LinkedJob, parts: Participations) -> tuple[Bools, Bools]:
    """Which participations wait for others, and which are waited for; the root of a broadcast does not wait."""
    operation, root = job.collectives.operation[parts.collective], job.collectives.root[parts.collective]
    known, is_root = root != UNKNOWN, parts.rank == root
    from_root = known & np.isin(operation, _codes(job, FROM_ROOT))
    to_root = known & np.isin(operation, _codes(job, TO_ROOT))
    return ~((from_root & is_root) | (to_root & ~is_root)), ~((from_root & ~is_root) | (to_root & is_root))


def _codes(job: LinkedJob, operations: Sequence[Operation]) -> list[int]:
    return [code for code, text in enumerate(job.strings) if text in operations]


def _of_messages(job: LinkedJob, placed: _PiecesOfEvents, pieces: Pieces) -> Meetings:
    """A send ends with its message only if it is a transfer itself, and not a request for one."""
    messages: Messages = job.messages
    send, receive = placed.of(messages.source, messages.send), placed.of(messages.target, messages.receive)
    known = np.flatnonzero((send != UNKNOWN) & (receive != UNKNOWN))
    number = len(job.collectives) + known
    transfers = pieces.kind == PieceKind.COMMUNICATION
    send, receive = send[known], receive[known]
    yes = np.ones(len(known), np.bool_)
    return Meetings(
        np.concatenate([number, number]),
        np.concatenate([send, receive]),
        np.concatenate([transfers[send], transfers[receive]]),
        np.concatenate([yes, transfers[send]]),
    )


def _arrivals(meetings: Meetings, pieces: Pieces) -> tuple[Int64s, int]:
    """The last other piece that each piece waited for, and how many ended before it started."""
    arrival = np.full(len(pieces), UNKNOWN, np.int64)
    if not len(meetings):
        return arrival, 0
    start = np.where(meetings.awaited, pieces.start[meetings.piece], np.iinfo(np.int64).min)
    first = starts_of(meetings.meeting)
    count = np.diff(np.append(first, len(meetings)))
    meeting = np.repeat(np.arange(len(first)), count)
    order = np.lexsort((start, meeting))
    last = meetings.piece[order[first + count - 1]][meeting]
    awaited = np.maximum.reduceat(start, first)[meeting]
    waiting = meetings.waits & (awaited > pieces.start[meetings.piece])
    possible = waiting & (awaited <= pieces.end[meetings.piece])
    rows = np.flatnonzero(possible)
    rows = rows[np.argsort(awaited[rows], kind="stable")]
    arrival[meetings.piece[rows]] = last[rows]
    return arrival, int(np.count_nonzero(waiting & ~possible))
