"""Kinds, relations, keys, Events, Edges, Track, Counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from tracelink.model.columns import NO_TIME, Bools, Columns, Int32s, Int64s


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
class KeyColumn(Columns):
    """The values of one link key, for those events that have it."""

    rows: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def empty(cls) -> KeyColumn:
        """A key that no event has."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, rows: Iterable[int], values: Iterable[int]) -> KeyColumn:
        """A key column from plain numbers."""
        return cls(np.array(list(rows), dtype=np.int64), np.array(list(values), dtype=np.int64))

    def dense(self, length: int, default: int) -> Int64s:
        """One value for each of `length` events, `default` where an event has none."""
        column = np.full(length, default, dtype=np.int64)
        column[self.rows] = self.values
        return column

    def where(self, keep: Bools) -> KeyColumn:
        """Only the entries that `keep` marks."""
        return KeyColumn(self.rows[keep], self.values[keep])

    def shifted(self, offset: int) -> KeyColumn:
        """The same column for events that moved down by `offset` rows."""
        return KeyColumn(self.rows + offset, self.values)


@dataclass(frozen=True, slots=True)
class Events(Columns):
    """One row for each thing that happened.

    `name` is a code of the string table, `track` and `source` are rows of those tables, `payload` is the
    event's place in its source: the source gives the event's own arguments back for it.
    """

    kind: npt.NDArray[np.uint8]
    name: Int32s
    track: Int32s
    start: Int64s
    duration: Int64s
    source: Int32s
    payload: Int64s

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def empty(cls) -> Events:
        """No events."""
        return cls.of()

    @classmethod
    def of(
        cls,
        *,
        kind: Sequence[int] = (),
        name: Sequence[int] = (),
        track: Sequence[int] = (),
        start: Sequence[int] = (),
        duration: Sequence[int] = (),
        source: Sequence[int] = (),
        payload: Sequence[int] = (),
    ) -> Events:
        """Events from plain numbers."""
        return cls(
            np.asarray(kind, np.uint8),
            np.asarray(name, np.int32),
            np.asarray(track, np.int32),
            np.asarray(start, np.int64),
            np.asarray(duration, np.int64),
            np.asarray(source, np.int32),
            np.asarray(payload, np.int64),
        )

    @property
    def end(self) -> Int64s:
        """Start plus duration; an unfinished event ends where it starts."""
        return self.start + np.maximum(self.duration, 0)

    @property
    def timed(self) -> Bools:
        """Whether the event has a time."""
        timed: Bools = self.start != NO_TIME
        return timed

    def of_kind(self, *kinds: EventKind) -> Bools:
        """Whether the event is of one of these kinds."""
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        chosen: Bools = wanted[self.kind]
        return chosen

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Events:
        """The events at `rows`."""
        return Events(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Events]) -> Events:
        """All events of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass(frozen=True, slots=True)
class Edges(Columns):
    """Why: `source[i]` stands in `relation[i]` to `target[i]`."""

    source: Int64s
    target: Int64s
    relation: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def empty(cls) -> Edges:
        """No edges."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))

    @classmethod
    def of(cls, relation: Relation, source: Int64s, target: Int64s) -> Edges:
        """Edges of one relation."""
        return cls(source, target, np.full(len(source), relation, np.uint8))

    @classmethod
    def concatenate(cls, parts: Sequence[Edges]) -> Edges:
        """All edges of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        keep = self.relation == relation
        return Edges(self.source[keep], self.target[keep], self.relation[keep])

    def shifted(self, offset: int) -> Edges:
        """The same edges between events that moved down by `offset` rows."""
        return Edges(self.source + offset, self.target + offset, self.relation)


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
class Counters(Columns):
    """Sampled values: one row for each sample; the track (of kind counter) says of what."""

    track: Int32s
    time: Int64s
    value: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.track)

    @classmethod
    def empty(cls) -> Counters:
        """No samples."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float64))

    @classmethod
    def concatenate(cls, parts: Sequence[Counters]) -> Counters:
        """All samples of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))
