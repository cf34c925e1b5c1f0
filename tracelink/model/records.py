"""A recorder's entries as columns; Entry, Frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.errors import Finding
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Columns, Int32s, Int64s
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


Int8s = npt.NDArray[np.int8]


class State(IntEnum):
    """How far an entry got, as its recorder says."""

    UNKNOWN = -1
    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True)
class Requests(Columns):
    """One row for each different thing that was asked for. `operation` and the types are codes of texts."""

    operation: Int32s
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
    type_in: Int32s
    type_out: Int32s
    """Of the first tensor."""

    def __len__(self) -> int:
        return len(self.operation)

    def take(self, rows: Int64s) -> Requests:
        """Some of the rows."""
        return Requests(*(getattr(self, column.name)[rows] for column in fields(self)))


REQUEST_TEXTS = ("operation", "type_in", "type_out")
"""The columns that are codes of texts."""


@dataclass(frozen=True, slots=True)
class Records(Columns):
    """One row for each entry, in the order of recording."""

    group: Int32s
    """Code of the group's name."""
    request: Int32s
    """Row of the requests."""
    sequence: Int64s
    """The number within the group: of messages where `point_to_point`, else of collectives; or UNKNOWN."""
    point_to_point: Bools
    state: Int8s
    retired: Int8s
    """Whether it has left the list of work: 1, 0, or UNKNOWN."""
    created: Int64s
    started: Int64s
    completed: Int64s
    """Unix time in ns, or NO_TIME. The last two are when a watchdog saw it: late by design."""
    timeout_ms: Int64s
    """Or UNKNOWN."""
    place: Int64s
    """The entry's number in its dump."""

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Records:
        """`count` entries; what is not given is unknown."""
        return cls(*(_column(name, columns.get(name), count) for name in RECORD_COLUMNS))

    @classmethod
    def concatenate(cls, parts: Sequence[Records]) -> Records:
        """All entries of all parts, in order."""
        if not parts:
            return cls.of(0)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in RECORD_COLUMNS))


RECORD_COLUMNS = tuple(column.name for column in fields(Records))
TYPES: dict[str, Any] = {
    "group": np.int32,
    "request": np.int32,
    "point_to_point": np.bool_,
    "state": np.int8,
    "retired": np.int8,
}
"""Of the columns that are not whole numbers of 64 bits."""
EMPTY = {"created": NO_TIME, "started": NO_TIME, "completed": NO_TIME, "point_to_point": False}
"""What stands for unknown where that is not UNKNOWN."""


def _column(name: str, given: Any, count: int) -> Any:
    kind = TYPES.get(name, np.int64)
    return np.full(count, EMPTY.get(name, UNKNOWN), kind) if given is None else np.asarray(given, kind)


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
