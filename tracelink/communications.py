"""What the events of one rank say of communication, and the calls that they are parts of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np

from tracelink.events import NO_TIME, Bools, Columns, Int32s, Int64s

UNKNOWN = -1
"""Stands in every column for what a source does not say."""


@dataclass(frozen=True, slots=True)
class Communications(Columns):
    """One row for each event that says something of communication, as its reader found it.

    `operation`, `group`, `type`, `members` and `shape` are codes of the trace's string table.
    """

    row: Int64s
    """The event."""
    operation: Int32s
    """As the source spells it: `allreduce`, `nccl:send 1->2`, `c10d::allreduce_`."""
    group: Int32s
    """The group's name."""
    sequence: Int64s
    """The number within the group, of collectives or of messages.

    A message has none where the source counts it with the collectives, for then the two ends differ.
    """
    point_to_point: Bools
    """Whether `sequence` counts messages and not collectives."""
    source: Int32s
    """Rank that sends, or that is the root."""
    target: Int32s
    """Rank that receives. Most sources name only the other end, not the rank itself."""
    global_ranks: Bools
    """Whether `source` and `target` are ranks of the job and not of the group."""
    tag: Int64s
    elements_in: Int64s
    elements_out: Int64s
    """How many numbers the rank gives and gets, over all tensors; UNKNOWN for a rank that gives or gets none."""
    type: Int32s
    """Of the numbers: `Float`, `BFloat16`."""
    size: Int32s
    """How many ranks the group has."""
    members: Int32s
    """The group's ranks as a JSON list; a profile cuts it after 30 of them, with `...` at the end."""
    shape: Int32s
    """The sizes of the input tensors as text: tells alike operations apart."""

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, row: Any, **columns: Any) -> Communications:
        """Communications of these events; what is not given is unknown."""
        rows = np.asarray(row, np.int64)
        return cls(*filled(cls, len(rows), {"row": rows, **columns}))

    @classmethod
    def empty(cls) -> Communications:
        """No communications."""
        return cls.of(())

    @classmethod
    def concatenate(cls, parts: Sequence[Communications]) -> Communications:
        """All communications of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def recoded(self, codes: Int32s) -> Communications:
        """The same with texts by other codes: `codes[old]` is the new one."""
        texts: dict[str, Any] = {name: recoded(getattr(self, name), codes) for name in COMMUNICATION_TEXTS}
        return replace(self, **texts)


COMMUNICATION_COLUMNS = tuple(column.name for column in fields(Communications))[1:]
"""All but the row of the event."""
COMMUNICATION_TEXTS = ("operation", "group", "type", "members", "shape")
"""The columns that are codes of the string table."""


class Evidence(IntEnum):
    """What the start and the end of a call rest on, from the weakest to the best."""

    NONE = 0
    """There is no time but that of the enqueuing, if that."""
    RECORDER = 1
    """The recorder's watchdog saw it start or complete: late by design."""
    ANNOTATION = 2
    """The annotation around the work of a CPU backend."""
    KERNEL = 3
    """The kernels."""


@dataclass(frozen=True, slots=True)
class Calls(Columns):
    """One row for each communication of one rank, joined from everything that tells of it.

    The columns that end in a kind of event hold its row, or UNKNOWN. `operation`, `group`, `type`, `members`,
    `state` and `shape` are codes of the string table; `operation` is the name that `operation_of` gives.
    """

    operation: Int32s
    group: Int32s
    sequence: Int64s
    point_to_point: Bools
    source: Int32s
    target: Int32s
    global_ranks: Bools
    tag: Int64s
    elements_in: Int64s
    elements_out: Int64s
    type: Int32s
    size: Int32s
    members: Int32s
    shape: Int32s
    record: Int64s
    """The flight-recorder entry."""
    operator: Int64s
    """The operator that issued it: `record_param_comms`, else `c10d::…`."""
    annotation: Int64s
    """`nccl:…` or `gloo:…`."""
    node: Int64s
    """The execution-trace node that is the same as the operator."""
    kernel: Int64s
    """The first kernel."""
    enqueued: Int64s
    """When the rank asked for it: the recorder's creation time, else the operator's start. Or NO_TIME."""
    start: Int64s
    """When the rank entered it, as far as `evidence` tells. Or NO_TIME."""
    end: Int64s
    """When the rank left it, as far as `evidence` tells. Or NO_TIME."""
    evidence: Int32s
    state: Int32s
    """The recorder's word for how far it got."""

    def __len__(self) -> int:
        return len(self.operation)

    @classmethod
    def of(cls, count: int, **columns: Any) -> Calls:
        """`count` calls; what is not given is unknown."""
        return cls(*filled(cls, count, columns))

    @classmethod
    def empty(cls) -> Calls:
        """No calls."""
        return cls.of(0)

    def recoded(self, codes: Int32s) -> Calls:
        """The same with texts by other codes: `codes[old]` is the new one."""
        texts: dict[str, Any] = {name: recoded(getattr(self, name), codes) for name in CALL_TEXTS}
        return replace(self, **texts)

    def take(self, rows: Int64s | Bools) -> Calls:
        """Some of the calls."""
        return Calls(*(getattr(self, field.name)[rows] for field in fields(self)))


CALL_TEXTS = (*COMMUNICATION_TEXTS, "state")
CALL_ROWS = ("record", "operator", "annotation", "node", "kernel")
"""The columns that are rows of events."""


def recoded(column: Int32s, codes: Int32s) -> Int32s:
    """A column of text codes by other codes; what is unknown stays so."""
    return np.where(column == UNKNOWN, np.int32(UNKNOWN), np.append(codes, np.int32(UNKNOWN))[column])


TIMES = frozenset({"enqueued", "start", "end", "sent", "received"})
RATES = frozenset({"algorithm_gb_s", "bus_gb_s"})
FLAGS = frozenset({"point_to_point", "global_ranks"})
SMALL = frozenset(
    {*CALL_TEXTS, "verdict", "rank", "last_rank", "root", "source", "target", "size", "evidence"}
)
"""Columns of 32 bits; other whole numbers have 64."""


def filled(table: Any, count: int, given: Mapping[str, Any]) -> list[Any]:
    """The columns of a table with `count` rows: those given, and what stands for unknown in all others."""
    names = [column.name for column in fields(table)]
    if strange := given.keys() - set(names):
        raise TypeError(f"{table.__name__} has no columns {', '.join(sorted(strange))}")
    return [_column(name, given.get(name), count) for name in names]


def _column(name: str, given: Any, count: int) -> Any:
    kind, unknown = _kind_of(name)
    return np.full(count, unknown, kind) if given is None else np.asarray(given, kind)


def _kind_of(name: str) -> tuple[Any, Any]:
    """What a column holds, and what stands for unknown in it."""
    if name in TIMES:
        return np.int64, NO_TIME
    if name in RATES:
        return np.float64, np.nan
    if name in FLAGS:
        return np.bool_, False
    if name == "evidence":
        return np.int32, Evidence.NONE
    return (np.int32 if name in SMALL else np.int64), UNKNOWN
