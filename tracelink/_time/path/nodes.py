"""The contracted graph of a rank: what its threads and streams did one after the other, and what each piece waited for.

A thread is divided into pieces that follow each other without gaps, except where it waited. Each kernel and copy is one
piece of its stream.
"""

from __future__ import annotations

from enum import IntEnum

from tracelink._model.columns import Int32s, KnownInt32s, Rows, Table, Times, UInt8s


class PieceKind(IntEnum):
    """What a piece of the path is."""

    COMPUTE = 0
    """A kernel that is not communication."""
    COMMUNICATION = 1
    """The transfer of a collective or a message, without the wait for other ranks."""
    COPY = 2
    HOST = 3
    """An operator on a thread, or a call of the device runtime."""
    PYTHON = 4
    """A thread between its operators."""
    DATA_LOADING = 5
    LAUNCH = 6
    """From the call that launches device work to its start."""
    SYNCHRONIZATION = 7
    """From the end of device work to the return of the call that waited for it."""
    QUEUE = 8
    """Device work that was launched, and whose predecessors had ended, but had not started."""
    HAND_OVER = 9
    """From the end of work on one thread to the start of what waited for it on another."""
    IDLE = 10
    """The cause is not recorded."""

    @property
    def label(self) -> str:
        """The name in results."""
        return self.name.lower()


class Why(IntEnum):
    """Why a piece could not start before another one had ended."""

    SEQUENCE = 0
    """The thread did one after the other."""
    STREAM = 1
    LAUNCH = 2
    STREAM_WAIT = 3
    HOST_WAIT = 4
    HAND_OVER = 5


DELAY_OF = {
    Why.SEQUENCE: PieceKind.IDLE,
    Why.STREAM: PieceKind.QUEUE,
    Why.LAUNCH: PieceKind.LAUNCH,
    Why.STREAM_WAIT: PieceKind.QUEUE,
    Why.HOST_WAIT: PieceKind.SYNCHRONIZATION,
    Why.HAND_OVER: PieceKind.HAND_OVER,
}
"""What the time between a piece and the one that it waited for is."""


class Pieces(Table, frozen=True):
    """One row for each piece, by lane and start."""

    lane: KnownInt32s
    """The track of the thread or stream."""
    kind: UInt8s
    start: Times
    end: Times
    row: Rows
    """The event; UNKNOWN between operators."""
    name: Int32s
    """The index of its name."""
    module: Int32s
    """The index of the name of its module, or UNKNOWN."""


class Causes(Table, frozen=True):
    """One row for each pair of pieces of which the second could not start before the first had ended."""

    before: Rows
    after: Rows
    why: UInt8s


class Landmarks(Table, frozen=True):
    """The pieces of events that take part in communication, by event."""

    row: Rows
    piece: Rows
