"""Kinds, relations, keys, Events, Edges, Track, Counters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np

from tracelink.model.columns import (
    NO_TIME,
    Bools,
    Codes,
    Float64s,
    Int32s,
    Int64s,
    Rows,
    Table,
    Times,
    UInt8s,
)


class EventKind(IntEnum):
    """What sort of thing happened."""

    OPERATOR = 0
    ANNOTATION = 1
    PYTHON = 2
    RUNTIME = 3
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    GPU_ANNOTATION = 7
    SYNCHRONIZATION = 8
    OVERHEAD = 9
    SPAN = 10
    INSTANT = 11
    MEMORY = 12
    NODE = 13
    """An execution-trace node."""
    RECORD = 14
    """A flight-recorder entry."""
    OTHER = 15


GPU_WORK = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
"""What a launch can lead to."""

ON_THREAD = (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.PYTHON, EventKind.RUNTIME)
"""What nests on a CPU thread."""


class Relation(IntEnum):
    """Why there is an edge: `source` <relation> `target`."""

    CALLS = 0
    LAUNCHES = 1
    SAME = 2
    BACKWARD_OF = 3
    DEPENDS_ON = 4
    WAITS_FOR = 5
    TAKES_PART_IN = 6


class Key(StrEnum):
    """A link key: what a source recorded to say which other events an event belongs to."""

    CORRELATION = "correlation"
    EXTERNAL_ID = "external_id"
    RECORD_FUNCTION = "record_function"
    SEQUENCE = "sequence"
    FORWARD_THREAD = "forward_thread"
    PYTHON_ID = "python_id"
    PYTHON_PARENT = "python_parent"
    BACKWARD_FLOW_OUT = "backward_flow_out"
    BACKWARD_FLOW_IN = "backward_flow_in"
    FLOW_OUT = "flow_out"
    FLOW_IN = "flow_in"
    NODE_ID = "node_id"
    NODE_PARENT = "node_parent"
    LOGICAL_THREAD = "logical_thread"
    SCOPE = "scope"
    GROUP = "group"
    """Interned name of the process group."""
    COLLECTIVE_SEQUENCE = "collective_sequence"
    P2P_SEQUENCE = "p2p_sequence"
    STATE = "state"
    """Interned state of a flight-recorder entry."""
    WAITED = "waited"
    """Nanoseconds that an operator did nothing but wait, where its source says so."""


@dataclass(frozen=True, slots=True)
class KeyColumn(Table):
    """The values of one link key, for those events that have it."""

    rows: Rows
    values: Int64s

    def dense(self, length: int, default: int) -> Int64s:
        """One value for each of `length` events, `default` where an event has none."""
        column = np.full(length, default, dtype=np.int64)
        column[self.rows] = self.values
        return column


@dataclass(frozen=True, slots=True)
class Events(Table):
    """One row for each thing that happened.

    `name` is a code of the string table, `track` and `source` are rows of those tables, `payload` is the
    event's place in its source: the source gives the event's own arguments back for it.
    """

    kind: UInt8s
    name: Codes
    track: Int32s
    start: Times
    duration: Int64s
    source: Int32s
    payload: Int64s

    @property
    def end(self) -> Int64s:
        """Start plus duration; an unfinished event ends where it starts."""
        return self.start + np.maximum(self.duration, 0)

    @property
    def timed(self) -> Bools:
        """Whether the event has a time."""
        return self.start != NO_TIME

    def of_kind(self, *kinds: EventKind) -> Bools:
        """Whether the event is of one of these kinds."""
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.kind]


@dataclass(frozen=True, slots=True)
class Edges(Table):
    """Why: `source[i]` stands in `relation[i]` to `target[i]`."""

    source: Rows
    target: Rows
    relation: UInt8s

    @classmethod
    def of_relation(cls, relation: Relation, source: Int64s, target: Int64s) -> Edges:
        """Edges of one relation."""
        return cls(source, target, np.full(len(source), relation, np.uint8))

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        return self.take(self.relation == relation)


BYTES, COUNT = "bytes", "count"
"""Units of counters that viewers know."""


class TrackKind(StrEnum):
    """What a track stands for."""

    THREAD = "thread"
    STREAM = "stream"
    COMMUNICATOR = "communicator"
    PROCESS = "process"
    """Something of the whole process that belongs to no thread: profiler spans, overhead, async slices."""
    NODES = "nodes"
    """Nodes of a logical thread, without a time of their own."""
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Track:
    """Where: `process` is an OS process id or, for a stream, a device; `identity` tells its tracks apart."""

    kind: TrackKind
    process: str
    identity: str
    label: str = ""
    rank: int = 0
    sort: int = 0
    process_label: str = ""
    unit: str = ""
    """What the values of a counter are in: `BYTES`, `COUNT` or anything else, where that is known."""


@dataclass(frozen=True, slots=True)
class Counters(Table):
    """Sampled values: one row for each sample; the track (of kind counter) says of what."""

    track: Int32s
    time: Int64s
    value: Float64s
