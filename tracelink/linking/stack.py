"""Calls of all ranks in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN, Bools, Float64s, Int32s, Int64s, StringTable, stable_order
from tracelink.model.communications import CALL_TEXTS, Calls
from tracelink.model.operations import Operation, item_bytes

if TYPE_CHECKING:
    from tracelink.model.clock import Clocks


# The calls of all ranks in one table with one table of texts.


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls of all ranks, rank by rank in ascending order."""

    ranks: Sequence[RankCalls]
    strings: StringTable
    calls: Calls
    rank: Int32s
    """The rank of each call."""
    bounds: Int64s
    """Where each rank's calls begin; one more entry for the end."""

    def __len__(self) -> int:
        return len(self.calls)


def corrected(calls: Calls, rank: Int32s, clocks: Clocks) -> Calls:
    """Calls of these ranks with times on the reference clock."""
    times: dict[str, Any] = {name: getattr(calls, name) for name in ("enqueued", "start", "end")}
    moved = [clock for clock in clocks.clocks.values() if clock.offset_ns or clock.drift_ppm]
    if not moved or not len(rank):
        return calls
    by_rank = stable_order(rank)
    bounds = np.searchsorted(rank[by_rank], [(clock.rank, clock.rank + 1) for clock in moved])
    for name, column in times.items():
        times[name] = column.copy()
        for clock, (begin, end) in zip(moved, bounds.tolist(), strict=True):
            rows = by_rank[begin:end]
            times[name][rows] = clock.corrected(column[rows])
    return replace(calls, **times)


def stack(ranks: Sequence[RankCalls]) -> tuple[Stack, list[Finding]]:
    """One table of the calls of all ranks; of a rank that is there twice the first is taken."""
    by_rank: dict[int, RankCalls] = {}
    twice = [rank.rank for rank in ranks if by_rank.setdefault(rank.rank, rank) is not rank]
    ordered = [by_rank[rank] for rank in sorted(by_rank)]
    strings = StringTable()
    calls = [_recoded(rank, strings) for rank in ordered]
    lengths = np.array([len(part) for part in calls], np.int64)
    numbers = np.array([rank.rank for rank in ordered], np.int32)
    whole = Stack(
        ordered,
        strings,
        _concatenated(calls),
        np.repeat(numbers, lengths),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
    )
    return whole, _said_twice(twice)


def _recoded(rank: RankCalls, strings: StringTable) -> Calls:
    """The rank's calls by codes of the common table, to which only texts that are used are added."""
    used = np.zeros(len(rank.strings) + 1, np.bool_)
    for name in CALL_TEXTS:
        used[getattr(rank.calls, name)] = True
    codes = np.full(len(rank.strings), UNKNOWN, np.int32)
    chosen = np.flatnonzero(used[:-1])
    codes[chosen] = strings.encode([rank.strings[code] for code in chosen.tolist()])
    return rank.calls.recoded(codes)


def _concatenated(parts: Sequence[Calls]) -> Calls:
    if not parts:
        return Calls.empty()
    return Calls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Calls)))


def _said_twice(ranks: Sequence[int]) -> list[Finding]:
    if not ranks:
        return []
    message = f"{len(ranks)} ranks are there twice, rank {ranks[0]} for one: only the first of each is used."
    return [Finding(Severity.ERROR, "rank_twice", message, len(ranks), example=str(ranks[0]))]


# Which numbers of elements must be equal on all ranks of a collective, and how many bytes it moves.

EQUAL_OUT = (Operation.ALL_GATHER, Operation.SCATTER)
"""Every rank gets equally much; what each gives may differ."""
EQUAL_IN = (Operation.REDUCE_SCATTER, Operation.GATHER)
"""Every rank gives equally much; what each gets may differ."""
UNEQUAL = (Operation.ALL_TO_ALL, Operation.BARRIER, Operation.COALESCED)
"""Nothing need be equal, or nothing is known."""


def is_one_of(operation: Int32s, strings: StringTable, names: Sequence[str]) -> Bools:
    """Whether each operation is one of these."""
    return np.isin(operation, [code for name in names if (code := strings.find(name)) != UNKNOWN])


def common_size(operation: Int32s, given: Int64s, gotten: Int64s, strings: StringTable) -> Int64s:
    """The number of elements that is equal on all ranks, where the operation demands one; else UNKNOWN."""
    size = np.maximum(given, gotten)
    for names, column in ((EQUAL_OUT, gotten), (EQUAL_IN, given)):
        chosen = is_one_of(operation, strings, names)
        size[chosen] = column[chosen]
    size[is_one_of(operation, strings, UNEQUAL)] = UNKNOWN
    return size


def item_sizes(types: Int32s, strings: StringTable) -> Int64s:
    """The bytes of one number of each type, or UNKNOWN."""
    known = [item_bytes(text) for text in strings]
    table = np.array([UNKNOWN if size is None else size for size in known] + [UNKNOWN], np.int64)
    return table[types]


def elements_moved(
    operation: Int32s, given: Int64s, gotten: Int64s, size: Int64s, strings: StringTable
) -> Int64s:
    """How many elements nccl-tests takes for the size of each collective, or UNKNOWN.

    `given` and `gotten` are those of a rank as most have it, `size` is how many members there are. Of all-to-all
    it is what one rank gives to all; of gathering, scattering and the like the parts of all ranks together.
    """
    moved = np.maximum(given, gotten)
    whole = np.where(size > 0, size, 1)
    sized = size > 0
    for names, total, part in (
        ((Operation.ALL_GATHER,), gotten, given),
        ((Operation.REDUCE_SCATTER,), given, gotten),
        ((Operation.GATHER,), np.full_like(given, UNKNOWN), given),
        ((Operation.SCATTER,), np.full_like(given, UNKNOWN), gotten),
    ):
        chosen = is_one_of(operation, strings, names)
        parts = np.where((part >= 0) & sized, part * whole, UNKNOWN)
        moved[chosen] = np.where(total >= 0, total, parts)[chosen]
    chosen = is_one_of(operation, strings, (Operation.ALL_TO_ALL,))
    moved[chosen] = given[chosen]
    moved[is_one_of(operation, strings, (Operation.BARRIER,))] = 0
    return moved


def bus_factor(operation: Int32s, size: Int64s, strings: StringTable) -> Float64s:
    """By what nccl-tests multiplies the algorithm bandwidth to get that of the bus."""
    members = size.astype(np.float64)
    members[members <= 0] = np.nan
    part = (members - 1) / members
    factor = np.ones(len(operation))
    doubled = is_one_of(operation, strings, (Operation.ALL_REDUCE,))
    factor[doubled] = 2 * part[doubled]
    shared = is_one_of(
        operation,
        strings,
        (
            Operation.ALL_GATHER,
            Operation.REDUCE_SCATTER,
            Operation.ALL_TO_ALL,
            Operation.GATHER,
            Operation.SCATTER,
        ),
    )
    factor[shared] = part[shared]
    return factor
