"""A recorder's entries as columns; Entry, Frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tracelink.errors import Finding
from tracelink.model.columns import Bools, Codes, Int8s, Int32s, Int64s, Table, Times
from tracelink.model.trace import NoPayloads, Payloads, ProcessGroup, SourceInfo

# Shared definitions


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a Python stack."""

    name: str
    filename: str
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a recorder, as it was recorded."""

    group: str
    description: str
    sequence: int | None
    operation: str
    input_sizes: Sequence[Sequence[int]]
    output_sizes: Sequence[Sequence[int]]
    input_types: Sequence[str]
    output_types: Sequence[str]
    state: str
    retired: bool | None
    created_ns: int | None
    timeout_ms: int | None
    frames: tuple[Frame, ...]
    """Innermost first; without those of torch itself."""


# Records: what a flight recorder holds of one process, entry by entry, as columns.


class State(IntEnum):
    """How far an entry got, as its recorder says."""

    UNKNOWN = -1
    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True)
class Requests(Table):
    """One row for each different thing that was asked for. `operation` and the types are codes of texts."""

    operation: Codes
    """As recorded: `nccl:all_reduce`, `nccl:send 1->2`."""
    source: Int32s
    target: Int32s
    """The ranks within the group that send and receive a message, or UNKNOWN."""
    elements_in: Int64s
    elements_out: Int64s
    """How many numbers go in and come out, over all tensors; UNKNOWN where no tensor is recorded."""
    shape_in: Int64s
    shape_out: Int64s
    """Stand for the sizes of all tensors: equal where these are."""
    type_in: Codes
    type_out: Codes
    """Of the first tensor."""


@dataclass(frozen=True, slots=True)
class Records(Table):
    """One row for each entry, in the order of recording."""

    group: Codes
    """Code of the group's name."""
    request: Int32s
    """Row of the requests."""
    sequence: Int64s
    """The number within the group: of messages where `point_to_point`, else of collectives; or UNKNOWN."""
    point_to_point: Bools
    state: Int8s
    retired: Int8s
    """Whether it has left the list of work: 1, 0, or UNKNOWN."""
    created: Times
    started: Times
    completed: Times
    """Unix time in ns, or NO_TIME. The last two are when a watchdog saw it: late by design."""
    timeout_ms: Int64s
    """Or UNKNOWN."""
    place: Int64s
    """The entry's number in its dump."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a process says it got in one group: numbers of collectives, -1 where there was none."""

    enqueued: int = -1
    started: int = -1
    completed: int = -1


@dataclass(frozen=True, slots=True)
class Recording:
    """One dump: its entries, the groups it names, and what is known of the entries that it lacks."""

    source: SourceInfo
    strings: Sequence[str]
    records: Records
    requests: Requests
    groups: Sequence[ProcessGroup] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """By the name of the group."""
    overwritten: int = 0
    """How many entries were recorded before the first that is kept."""
    broken_off: bool = False
    """Whether the file ends before the dump does: there may be more entries."""
    payloads: Payloads = field(default_factory=NoPayloads)
    findings: Sequence[Finding] = ()
