"""Outlines: what matching must know of each rank before any call is moved; and calls of several ranks in one table.

`outlined` takes the calls of one rank, where it was read; `roster_of` gives the texts of all ranks common codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Codes,
    Int32s,
    Int64s,
    StringTable,
    Table,
    distinct,
    stable_order,
)
from tracelink._model.communications import Calls, RankCalls, RoundTrips
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import Operation, item_bytes
from tracelink._model.trace import ProcessGroup

if TYPE_CHECKING:
    from tracelink._model.clock import Clocks

LATEST = int(np.iinfo(np.int64).max)

FIRST_NUMBER = 1
"""The recorder counts the collectives of a group from one."""


class References(Table, frozen=True):
    """One row for each way in which calls of a rank refer to a group; texts by their index in the outline."""

    group: Codes
    members: Codes
    size: Int32s
    named: Bools
    """True if the calls refer to a group at all: waits do not."""
    count: Int64s
    """Calls that are no messages."""
    collectives: Int64s
    """Calls that are matched as collectives."""
    first: Int64s
    """The lowest number of these; UNKNOWN if one has no number."""
    last: Int64s
    ends: Int64s
    """Sends and receives."""
    any_source: Bools
    """True if a receive names no source."""
    source: Int32s
    """The highest source that a receive names by its rank within the group."""


class Outline(Struct, frozen=True):
    """One rank without its calls."""

    rank: int
    host: str
    world_size: int | None
    groups: Sequence[ProcessGroup]
    round_trips: RoundTrips
    texts: Sequence[str]
    """That the calls use, in the order of their codes."""
    references: References
    last_call: int
    """The time when it requested or entered its last call; NO_TIME if unknown."""
    recorded: bool
    """By a flight recorder that is complete to its end."""
    from_start: bool
    """By a flight recorder that has the first call of a group."""


def outlined(rank: RankCalls) -> Outline:
    """The outline of a rank."""
    calls = rank.calls
    codes = used_codes(rank)
    texts = [rank.strings[code] for code in codes.tolist()]
    recorded = calls.record != UNKNOWN
    first = np.where(recorded & (calls.sequence != UNKNOWN) & ~calls.point_to_point, calls.sequence, LATEST)
    return Outline(
        rank.rank,
        rank.host,
        rank.world_size,
        rank.groups,
        rank.round_trips,
        texts,
        _references(calls, codes, texts),
        int(np.maximum(calls.enqueued, calls.start).max(initial=NO_TIME)),
        bool(recorded.any()) and not rank.broken_off,
        int(first.min(initial=LATEST)) <= FIRST_NUMBER,
    )


def references_of(rank: RankCalls) -> Int64s:
    """For each call the row of its reference in the outline of the rank."""
    codes = used_codes(rank)
    texts = [rank.strings[code] for code in codes.tolist()]
    return _numbered(rank.calls, _is_one_of(rank.calls, codes, texts, Operation.WAIT))[0]


def used_codes(rank: RankCalls) -> Int64s:
    """The codes of the texts in the outline of the rank: those that calls use."""
    used = np.zeros(len(rank.strings) + 1, np.bool_)
    for name in Calls.text_columns():
        used[getattr(rank.calls, name)] = True
    return np.flatnonzero(used[:-1])


def _is_one_of(calls: Calls, codes: Int64s, texts: Sequence[str], *names: str) -> Bools:
    """True for calls whose operation is one of `names`."""
    chosen = [code for code, text in zip(codes.tolist(), texts, strict=True) if text in names]
    return np.isin(calls.operation, chosen) if chosen else np.zeros(len(calls), np.bool_)


def _numbered(calls: Calls, wait: Bools) -> tuple[Int64s, Int64s]:
    """The number of each call's reference, and the first call of each."""
    columns = (np.where(wait, UNKNOWN, column) for column in (calls.group, calls.members, calls.size))
    return distinct(*columns, ~wait)


def _references(calls: Calls, codes: Int64s, texts: Sequence[str]) -> References:
    wait = _is_one_of(calls, codes, texts, Operation.WAIT)
    number, first = _numbered(calls, wait)
    receive = _is_one_of(calls, codes, texts, Operation.RECV)
    ends = receive | _is_one_of(calls, codes, texts, Operation.SEND)
    closing = _is_one_of(calls, codes, texts, Operation.COALESCED) & calls.point_to_point
    collective = ~ends & ~closing & ~wait

    def total(chosen: Bools) -> Int64s:
        return np.bincount(number[chosen], minlength=len(first))

    def most(values: Any, chosen: Bools) -> Int64s:
        largest = np.full(len(first), UNKNOWN, np.int64)
        np.maximum.at(largest, number[chosen], values[chosen])
        return largest

    def dense(column: Int32s) -> Int64s:
        values = np.where(wait[first], UNKNOWN, column[first])
        return np.where(values == UNKNOWN, UNKNOWN, np.searchsorted(codes, values))

    lowest = np.full(len(first), LATEST)
    np.minimum.at(lowest, number[collective], calls.sequence[collective])
    return References.of(
        len(first),
        group=dense(calls.group),
        members=dense(calls.members),
        size=np.where(wait[first], UNKNOWN, calls.size[first]),
        named=~wait[first],
        count=total(~ends),
        collectives=total(collective),
        first=np.where(lowest == LATEST, UNKNOWN, lowest),
        last=most(calls.sequence, collective),
        ends=total(ends),
        any_source=total(receive & (calls.source < 0)) > 0,
        source=most(calls.source, receive & ~calls.global_ranks),
    )


def with_common_texts(outlines: Sequence[Outline]) -> list[Outline]:
    """The outlines, with equal texts and equal members of groups in memory once: so they are stored once."""
    texts: dict[str, str] = {}
    members: dict[tuple[int, ...], tuple[int, ...]] = {}
    return [
        replace(
            one,
            texts=[texts.setdefault(text, text) for text in one.texts],
            groups=[
                replace(group, ranks=members.setdefault(tuple(group.ranks), tuple(group.ranks)))
                for group in one.groups
            ],
        )
        for one in outlines
    ]


# All ranks.


class Roster(Struct, frozen=True):
    """The outlines of all ranks in ascending order."""

    outlines: Sequence[Outline]
    strings: StringTable
    """The texts that calls use, by common codes."""
    codes: Sequence[Int32s]
    """For each rank the common codes of its texts."""
    findings: Sequence[Finding] = field(default_factory=list)

    @property
    def round_trips(self) -> dict[int, RoundTrips]:
        """By rank, how long rank 0 took to answer; nothing without rank 0."""
        if not any(one.rank == 0 for one in self.outlines):
            return {}
        return {one.rank: one.round_trips for one in self.outlines if one.rank and len(one.round_trips)}


def roster_of(outlines: Sequence[Outline]) -> Roster:
    """All ranks; of duplicate ranks the first is used."""
    by_rank: dict[int, Outline] = {}
    duplicates = [one.rank for one in outlines if by_rank.setdefault(one.rank, one) is not one]
    ordered = [by_rank[rank] for rank in sorted(by_rank)]
    strings = StringTable()
    codes = [strings.encode(one.texts) for one in ordered]
    return Roster(ordered, strings, codes, _duplicate_findings(duplicates))


def _duplicate_findings(ranks: Sequence[int]) -> list[Finding]:
    if not ranks:
        return []
    message = (
        f"{len(ranks)} ranks are given more than once, first rank {ranks[0]}; only the first of each is used."
    )
    return [Finding(Severity.ERROR, "duplicate_rank", message, len(ranks), example=str(ranks[0]))]


class Coverage(Struct, frozen=True):
    """The part of the job that each rank's sources contain; one row for each rank."""

    rank: Int64s
    last_call: Int64s
    recorded: Bools
    from_start: Bools

    @classmethod
    def of(cls, roster: Roster) -> Coverage:
        """The coverage of all ranks."""
        return cls(
            np.array([one.rank for one in roster.outlines], np.int64),
            np.array([one.last_call for one in roster.outlines], np.int64),
            np.array([one.recorded for one in roster.outlines], np.bool_),
            np.array([one.from_start for one in roster.outlines], np.bool_),
        )


# Calls of several ranks in one table with common codes, and the sizes that their operations imply.


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
    """True for operations that are one of `names`."""
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
    """The number of those affected, and the first of them."""

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
