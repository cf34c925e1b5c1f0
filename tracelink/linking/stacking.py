"""The calls of all ranks in one table with one table of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelink.collectives import RankCalls
from tracelink.communications import CALL_TEXTS, UNKNOWN, Calls
from tracelink.events import Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.coding import stable_order
from tracelink.strings import StringTable

if TYPE_CHECKING:
    from tracelink.clock import Clocks


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
