"""The calls of all ranks in one table with common codes, and the sizes that their operations imply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, stable_order
from tracelink.model.communications import Calls
from tracelink.model.errors import Finding, Severity
from tracelink.model.operations import Operation, item_bytes

if TYPE_CHECKING:
    from tracelink.model.clock import Clocks


class Stack(Struct, frozen=True):
    """The calls of all ranks, rank by rank in ascending order."""

    ranks: Sequence[RankCalls]
    strings: StringTable
    calls: Calls
    rank: Int32s
    """Of each call."""
    bounds: Int64s
    """Where each rank's calls begin, and the end."""

    def __len__(self) -> int:
        return len(self.calls)


def corrected(calls: Calls, rank: Int32s, clocks: Clocks) -> Calls:
    """The calls with times on the reference clock; `rank` is the rank of each."""
    times: dict[str, Any] = {name: getattr(calls, name) for name in ("enqueued", "start", "end")}
    adjusted = [clock for clock in clocks.clocks.values() if clock.offset_ns or clock.drift_ppm]
    if not adjusted or not len(rank):
        return calls
    by_rank = stable_order(rank)
    bounds = np.searchsorted(rank[by_rank], [(clock.rank, clock.rank + 1) for clock in adjusted])
    for name, column in times.items():
        times[name] = column.copy()
        for clock, (begin, end) in zip(adjusted, bounds.tolist(), strict=True):
            rows = by_rank[begin:end]
            times[name][rows] = clock.corrected(column[rows])
    return replace(calls, **times)


def stack(ranks: Sequence[RankCalls]) -> tuple[Stack, list[Finding]]:
    """One table of the calls of all ranks; of duplicate ranks the first is used."""
    by_rank: dict[int, RankCalls] = {}
    duplicates = [rank.rank for rank in ranks if by_rank.setdefault(rank.rank, rank) is not rank]
    ordered = [by_rank[rank] for rank in sorted(by_rank)]
    strings = StringTable()
    calls = [_recoded(rank, strings) for rank in ordered]
    lengths = np.array([len(part) for part in calls], np.int64)
    numbers = np.array([rank.rank for rank in ordered], np.int32)
    stacked = Stack(
        ordered,
        strings,
        Calls.concatenate(calls),
        np.repeat(numbers, lengths),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
    )
    return stacked, _duplicate_findings(duplicates)


def _recoded(rank: RankCalls, strings: StringTable) -> Calls:
    """The rank's calls with codes of the common table, to which only used texts are added."""
    used = np.zeros(len(rank.strings) + 1, np.bool_)
    for name in Calls.text_columns():
        used[getattr(rank.calls, name)] = True
    codes = np.full(len(rank.strings), UNKNOWN, np.int32)
    chosen = np.flatnonzero(used[:-1])
    codes[chosen] = strings.encode([rank.strings[code] for code in chosen.tolist()])
    return rank.calls.recoded(codes)


def _duplicate_findings(ranks: Sequence[int]) -> list[Finding]:
    if not ranks:
        return []
    message = (
        f"{len(ranks)} ranks are given more than once, first rank {ranks[0]}; only the first of each is used."
    )
    return [Finding(Severity.ERROR, "duplicate_rank", message, len(ranks), example=str(ranks[0]))]


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
