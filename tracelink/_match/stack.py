"""Calls of several ranks in one table with common codes, and the sizes that their operations imply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.outlines import LATEST, Coverage
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, distinct, stable_order
from tracelink._model.communications import Calls
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import Operation, item_bytes

if TYPE_CHECKING:
    from tracelink._model.clock import Clocks


class Spans(Struct, frozen=True):
    """The first and last position of ranks in groups, in the order of group and rank."""

    group: Int64s
    rank: Int64s
    first: Int64s
    last: Int64s

    @classmethod
    def of(cls, group: Int64s, rank: Int64s, first: Int64s, last: Int64s) -> Spans:
        """The spans of all parts of each rank in each group together."""
        number, one = distinct(group, rank)
        lowest, highest = np.full(len(one), LATEST), np.full(len(one), UNKNOWN)
        np.minimum.at(lowest, number, first)
        np.maximum.at(highest, number, last)
        return cls(group[one], rank[one], lowest, highest)


class Stack(Struct, frozen=True):
    """Calls of several ranks that belong together: of each collective and each message all calls or none."""

    strings: StringTable
    coverage: Coverage
    """Of all ranks."""
    calls: Calls
    """By rank in ascending order, with codes of the common texts."""
    rank: Int32s
    """Of each call."""
    group: Int32s
    """The row of each call's group, or UNKNOWN."""
    divided: Spans
    """Of groups of which only some collectives are here."""

    def __len__(self) -> int:
        return len(self.calls)


def corrected(calls: Calls, rank: Int32s, clocks: Clocks) -> Calls:
    """The calls with times on the reference clock; `rank` is the rank of each."""
    names = ("enqueued", "start", "end")
    times = corrected_times([getattr(calls, name) for name in names], rank, clocks)
    return replace(calls, **dict(zip(names, times, strict=True)))


def corrected_times(columns: Sequence[Int64s], rank: Int32s, clocks: Clocks) -> Sequence[Int64s]:
    """Columns of times on the reference clock; `rank` is the rank of each row."""
    adjusted = [clock for clock in clocks.ranks if clock.offset_ns or clock.drift_ppm]
    if not adjusted or not len(rank):
        return columns
    by_rank = stable_order(rank)
    bounds = np.searchsorted(rank[by_rank], [(clock.rank, clock.rank + 1) for clock in adjusted])
    copies = [column.copy() for column in columns]
    for clock, (begin, end) in zip(adjusted, bounds.tolist(), strict=True):
        rows = by_rank[begin:end]
        for column in copies if len(rows) else ():
            column[rows] = clock.corrected(column[rows])
    return copies


# Sizes: which numbers of elements must be equal on all ranks of a collective, and bytes of an element.

EQUAL_OUT = (Operation.ALL_GATHER, Operation.SCATTER)
"""Every rank receives equally much; inputs may differ."""
EQUAL_IN = (Operation.REDUCE_SCATTER, Operation.GATHER)
"""Every rank sends equally much; outputs may differ."""
UNEQUAL = (Operation.ALL_TO_ALL, Operation.BARRIER, Operation.COALESCED)
"""Sizes may differ, or are unknown."""


def is_one_of(operation: Int32s, strings: StringTable, names: Sequence[str]) -> Bools:
    """Whether each operation is one of `names`."""
    return np.isin(operation, [code for name in names if (code := strings.find(name)) != UNKNOWN])


def common_size(operation: Int32s, elements_in: Int64s, elements_out: Int64s, strings: StringTable) -> Int64s:
    """The number of elements that must be equal on all ranks, or UNKNOWN if the operation requires none."""
    size = np.maximum(elements_in, elements_out)
    for names, column in ((EQUAL_OUT, elements_out), (EQUAL_IN, elements_in)):
        chosen = is_one_of(operation, strings, names)
        size[chosen] = column[chosen]
    size[is_one_of(operation, strings, UNEQUAL)] = UNKNOWN
    return size


def item_sizes(types: Int32s, strings: StringTable) -> Int64s:
    """The bytes of one element of each type, or UNKNOWN."""
    known = [item_bytes(text) for text in strings]
    table = np.array([UNKNOWN if size is None else size for size in known] + [UNKNOWN], np.int64)
    return table[types]


# Findings on all calls, of which each stack has some.


class Tally(Struct, frozen=True):
    """How many are affected, and the first of them."""

    count: int = 0
    example: str = ""

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.example or other.example)

    def finding(self, reason: str, message: str) -> list[Finding]:
        """The warning, if any are affected."""
        if not self.count:
            return []
        return [Finding(Severity.WARNING, reason, message, self.count, example=self.example)]


NOTHING = Tally()
