"""Events, the edges between them, the tracks they are on, and sampled counters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Codes,
    Durations,
    Float64s,
    Int64s,
    KnownInt32s,
    KnownInt64s,
    KnownRows,
    KnownTimes,
    Table,
    Times,
    UInt8s,
)
from tracelink._model.errors import UsageError, choices
from tracelink._model.fields import Doc

Word = TypeVar("Word", bound=Enum)


def member(words: type[Word], word: Word | str, thing: str) -> Word:
    """A member of an enumeration by its name in lower case; raises `UsageError` if there is no such member."""
    if not isinstance(word, str):
        return word
    names = {each.name.lower(): each for each in words}
    if word.lower() not in names:
        raise UsageError(f"there is no {thing} {word!r}", advice=choices(word, names))
    return names[word.lower()]


class EventKind(IntEnum):
    """What kind of thing happened."""

    OPERATOR = 0
    """An operator of PyTorch on a CPU thread: `aten::mm`."""
    ANNOTATION = 1
    """A range that the program or a library named: `ProfilerStep#3`, `nccl:all_reduce`."""
    PYTHON = 2
    """A call of a Python function."""
    RUNTIME = 3
    """A call of the device runtime or driver: `cudaLaunchKernel`."""
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    GPU_ANNOTATION = 7
    """The work on a stream that was launched within an annotation."""
    SYNCHRONIZATION = 8
    """A wait for a stream, an event or a device."""
    OVERHEAD = 9
    """Time that the profiler itself took."""
    SPAN = 10
    """A range of the whole process: the profiling window, an iteration."""
    INSTANT = 11
    """Something without a duration."""
    MEMORY = 12
    """An allocation or release of memory."""
    NODE = 13
    """An execution-trace node."""
    RECORD = 14
    """A flight-recorder entry."""
    OTHER = 15
    COMPILATION = 16
    """A phase of torch.compile: `entire_frame_compile`, `inductor_compile`."""


KindName = Literal[
    "operator", "annotation", "python", "runtime", "kernel", "memcpy", "memset", "gpu_annotation",
    "synchronization", "overhead", "span", "instant", "memory", "node", "record", "other", "compilation",
]  # fmt: skip
"""The names of kinds, as editors complete them."""

GPU_WORK = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
"""Work on a device, which a runtime call launches."""

ON_THREAD = (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.PYTHON, EventKind.RUNTIME)
"""Kinds that nest on a CPU thread."""


class Relation(IntEnum):
    """The meaning of an edge: `source` <relation> `target`."""

    CALLS = 0
    LAUNCHES = 1
    SAME = 2
    BACKWARD_OF = 3
    DEPENDS_ON = 4
    WAITS_FOR = 5
    TAKES_PART_IN = 6
    COMPILES = 7
    """A phase of the compiler made the code that ran."""


RelationName = Literal[
    "calls", "launches", "same", "backward_of", "depends_on", "waits_for", "takes_part_in", "compiles"
]  # fmt: skip
"""The names of relations, as editors complete them."""


TIMED = " (dynamo_timed)"
"""How names of operators end that are phases of torch.compile."""

PHASE_DATA = "_data: "
"""Names of annotations that only state data of a phase of torch.compile: `dynamo_data: compile_id=0/0`."""


class Key(StrEnum):
    """A link key: an id that a source recorded, by which events that belong together are found."""

    CORRELATION = "correlation"
    EXTERNAL_ID = "external_id"
    RECORD_FUNCTION = "record_function"
    SEQUENCE = "sequence"
    FORWARD_THREAD = "forward_thread"
    PYTHON_ID = "python_id"
    PYTHON_PARENT = "python_parent"
    EVENT_INDEX = "event_index"
    """Number of the event in the order in which the profiler saw events begin."""
    BACKWARD_FLOW_OUT = "backward_flow_out"
    BACKWARD_FLOW_IN = "backward_flow_in"
    FLOW_OUT = "flow_out"
    FLOW_IN = "flow_in"
    NODE_ID = "node_id"
    NODE_PARENT = "node_parent"
    LOGICAL_THREAD = "logical_thread"
    SCOPE = "scope"
    GROUP = "group"
    """Code of the name of the process group."""
    COLLECTIVE_SEQUENCE = "collective_sequence"
    P2P_SEQUENCE = "p2p_sequence"
    CATEGORY = "category"
    """Code of the category in the source, if it is not the common one of the event's kind."""
    INSTANT_SCOPE = "instant_scope"
    """A value of `InstantScope`, if an instant concerns more than its thread."""
    STATE = "state"
    """Code of the state of a flight-recorder entry."""
    COMPILE_ID = "compile_id"
    """Code of the compilation that a phase of the compiler is of: `1/5`."""
    COMPILED_FUNCTION = "compiled_function"
    """Code of the function of the compiler that a phase names besides its own name."""
    CACHE_KEY = "cache_key"
    """Code of the key by which a cache has the graph that a phase compiled."""
    OUTPUT_CODE = "output_code"
    """Code of the path of a file with code that a phase generated."""
    KERNEL_SOURCES = "kernel_sources"
    """Codes of texts such as `triton_poi_fused_add_0: train.py:15 (forward)`, for phases that generate kernels."""
    KERNEL_FILES = "kernel_files"
    """Codes of texts such as `triton_poi_fused_add_0: cxyz….py`, for phases that generate kernels in own files."""
    SOURCE_LINES = "source_lines"
    """Code of the lines of the program that a generated kernel computes: `train.py:15 (forward), model.py:8 (step)`."""
    WAITED = "waited"
    """Nanoseconds that an operator only waited, if its source recorded them."""


class InstantScope(IntEnum):
    """What an instant concerns."""

    THREAD = 0
    PROCESS = 1
    ALL = 2


class KeyColumn(Table, frozen=True):
    """The values of one link key, for the events that have it."""

    rows: KnownRows
    values: KnownInt64s

    def dense(self, length: int, default: int) -> Int64s:
        """The value of each of `length` events; `default` for events without one."""
        column = np.full(length, default, dtype=np.int64)
        column[self.rows] = self.values
        return column


def known_keys(dense: Mapping[Key, npt.NDArray[Any]], missing: int = UNKNOWN) -> dict[Key, KeyColumn]:
    """The columns of link keys, given by a value for each event, `missing` without one; none for a key without any."""
    rows = {key: np.flatnonzero(values != missing) for key, values in dense.items()}
    return {
        key: KeyColumn(rows[key], dense[key][rows[key]].astype(np.int64)) for key in dense if len(rows[key])
    }


class Events(Table, frozen=True):
    """One row for each thing that happened."""

    kind: Annotated[UInt8s, EventKind, Doc("What kind of thing happened: `operator`, `kernel`, ...")]
    name: Annotated[Codes, Doc("The name that the source gives it.")]
    track: Annotated[KnownInt32s, Doc("Where it happened: the row of `tracks` of the same rank.")]
    start: Annotated[Times, Doc("When it began; null if its source has no times.")]
    duration: Annotated[Durations, Doc("How long it took; null if its end was not recorded.")]
    source: Annotated[KnownInt32s, Doc("Which input it is from: the row of `sources` of the same rank.")]
    payload: Annotated[KnownInt64s, Doc("Its number in the source, by which its arguments are found.")]

    @property
    def end(self) -> Int64s:
        """Start plus duration; the start if the end was not recorded."""
        return self.start + np.maximum(self.duration, 0)

    def end_of(self, rows: Int64s | Bools) -> Int64s:
        """The end of some events, without that of all others."""
        return self.start[rows] + np.maximum(self.duration[rows], 0)

    @property
    def timed(self) -> Bools:
        """Whether the event has a time."""
        return self.start != NO_TIME

    def of_kind(self, *kinds: EventKind | KindName) -> Bools:
        """Whether the event is of one of these kinds, such as `EventKind.KERNEL` or "kernel"."""
        found = np.zeros(len(self), np.bool_)
        for kind in kinds:
            found |= self.kind == int(member(EventKind, kind, "kind of events"))
        return found


class Edges(Table, frozen=True):
    """One row for each edge: event `source` <relation> event `target`."""

    source: Annotated[KnownRows, Doc("The event from which the edge leads.")]
    target: Annotated[KnownRows, Doc("The event to which it leads.")]
    relation: Annotated[
        UInt8s, Relation, Doc("What `source` has to do with `target`: it `calls` or `launches` it, ...")
    ]

    @classmethod
    def of_relation(cls, relation: Relation, source: Int64s, target: Int64s) -> Edges:
        """Edges of one relation."""
        return cls(source, target, np.full(len(source), relation, np.uint8))

    def where(self, relation: Relation | RelationName) -> Edges:
        """The edges of one relation, such as `Relation.LAUNCHES` or "launches"."""
        return self.take(np.flatnonzero(self.relation == member(Relation, relation, "relation")))


BYTES, COUNT = "bytes", "count"
"""Units of counters that viewers format."""


class TrackKind(StrEnum):
    """What a track represents."""

    THREAD = "thread"
    STREAM = "stream"
    COMMUNICATOR = "communicator"
    PROCESS = "process"
    """Events of the whole process that belong to no thread: profiler spans, overhead, async slices."""
    NODES = "nodes"
    """Nodes of a logical thread; they have no times."""
    COUNTER = "counter"


class Track(Struct, frozen=True):
    """Where events happen: a thread, a stream, ..."""

    kind: Annotated[TrackKind, Doc("What the track represents.")]
    process: Annotated[str, Doc("The id of the process; for a stream, the number of the device.")]
    identity: Annotated[str, Doc("Thread id, number of the stream, or name of the counter.")]
    label: Annotated[str, Doc("The name to show.")] = ""
    rank: int = 0
    sort: Annotated[int, Doc("The position that the source gives it among the tracks of the process.")] = 0
    process_label: Annotated[str, Doc("The name of the process to show.")] = ""
    unit: Annotated[str, Doc("The unit of a counter; null if unknown.")] = ""


class Counters(Table, frozen=True):
    """One row for each sampled value; its track is of kind COUNTER."""

    track: Annotated[KnownInt32s, Doc("The counter: the row of `tracks` of the same rank.")]
    time: Annotated[KnownTimes, Doc("When it was sampled.")]
    value: Annotated[Float64s, Doc("The value.")]
