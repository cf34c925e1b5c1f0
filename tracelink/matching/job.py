"""Matching across ranks: the communication calls of all ranks in; collectives, messages and clocks out.

Few calls are matched at once, in one process; many are cut into parts, which workers match one by one. Both ways are
the same steps over the same functions: few calls are one part, and are kept in memory in place of a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink.clock.clock import estimate_clocks
from tracelink.io.engine import Engine
from tracelink.io.spool import InMemory, Store, Stored
from tracelink.matching.collectives import (
    Matching,
    Verdicts,
    match_collectives,
    repeated_finding,
    verdicts_of,
    wrong_findings,
)
from tracelink.matching.measures import Crossed, all_crossings, crossed, measure
from tracelink.matching.messages import MatchedMessages, match_messages, unmatched_finding
from tracelink.matching.outlines import Outline, outlined, roster_of
from tracelink.matching.parts import Piece, Plan, coded, cut, plan_of, stacked
from tracelink.matching.stack import NOTHING, Tally, corrected
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.collectives import Collectives, Messages, Participations, RankCalls
from tracelink.model.columns import Table
from tracelink.model.errors import Finding
from tracelink.model.trace import ProcessGroup

MOST_CALLS = 1 << 18
"""Calls of one part: more are matched by several workers."""
BATCH_CALLS = 1 << 16
"""Calls of ranks that one worker cuts at once."""


class JobTables(Struct, frozen=True):
    """What all ranks did together, with times on the reference clock."""

    strings: Sequence[str]
    """Texts by the codes in the tables."""
    groups: Sequence[ProcessGroup]
    collectives: Collectives
    participations: Participations
    messages: Messages
    clocks: Clocks
    findings: Sequence[Finding] = field(default_factory=list)


class StoredCalls(Struct, frozen=True):
    """The calls of one rank, in a store."""

    rank: int
    host: str
    world_size: int | None
    count: int
    calls: Stored[RankCalls]
    outlines: Stored[Mapping[int, Outline]]
    """By rank, of this one and of those that were read together with it."""

    @classmethod
    def of(cls, calls: RankCalls, store: Store) -> StoredCalls:
        """Puts the calls into the store; the outline stays in memory."""
        outlines: InMemory[Mapping[int, Outline]] = InMemory({calls.rank: outlined(calls)})
        return cls(calls.rank, calls.host, calls.world_size, len(calls.calls), store.put(calls), outlines)


def link_ranks(
    ranks: Sequence[StoredCalls],
    engine: Engine,
    store: Store,
    clock: ClockMode | Clocks = ClockMode.HOST,
    *,
    most_calls: int = MOST_CALLS,
    batch_calls: int = BATCH_CALLS,
) -> JobTables:
    """Resolves groups, matches calls, estimates clocks (or uses those given), and measures the collectives.

    Matching comes first and uses each rank's own clock: clocks are estimated from what is matched.
    """
    if sum(rank.count for rank in ranks) <= most_calls:
        matcher = _Matcher(
            ranks, engine.alone, store, engine.store((), in_memory=True), most_calls, batch_calls
        )
    else:
        matcher = _Matcher(ranks, engine, store, store, most_calls, batch_calls)
    planned = matcher.plan()
    parts = matcher.match(planned, matcher.cut(planned))
    clocks = matcher.clocks(planned, parts, clock)
    tables = matcher.measured(planned, parts, clocks)
    repeated, mismatched, missing, unmatched = (
        sum((getattr(part, name) for part in parts), NOTHING)
        for name in ("repeated", "mismatched", "missing", "unmatched")
    )
    findings = [
        *planned.findings,
        *(finding for part in parts for finding in part.findings),
        *repeated_finding(repeated),
        *wrong_findings(mismatched, missing),
        *unmatched_finding(unmatched, sum(part.unmatched_sends for part in parts)),
        *clocks.findings,
    ]
    return JobTables(planned.strings, planned.groups, *tables, clocks, findings)


class _Planned(Struct, frozen=True):
    """What the first process knows of the plan."""

    plan: Stored[Plan]
    strings: Sequence[str]
    groups: Sequence[ProcessGroup]
    findings: Sequence[Finding]
    parts: int


class _MatchedPart(Struct, frozen=True):
    """Collectives and messages of a part, on the clocks of their ranks."""

    matching: Matching
    verdicts: Verdicts
    messages: MatchedMessages


class _Part(Struct, frozen=True):
    """What the first process knows of a part."""

    matched: Stored[_MatchedPart]
    crossed: Stored[Crossed]
    collectives: int
    crossings: int
    """Messages among the crossings."""
    rows: tuple[int, int, int]
    """Collectives, participations and messages."""
    groups: Sequence[tuple[int, int]]
    """Groups that are divided, and their collectives in this part."""
    findings: Sequence[Finding]
    repeated: Tally
    mismatched: Tally
    missing: Tally
    unmatched: Tally
    unmatched_sends: int


_Tables = tuple[Collectives, Participations, Messages]


class _Matcher(Struct, frozen=True):
    """The steps of matching, each on all ranks or all parts."""

    ranks: Sequence[StoredCalls]
    engine: Engine
    store: Store
    """Has the calls."""
    kept: Store
    """For what one step leaves for the next."""
    most_calls: int
    batch_calls: int

    def plan(self) -> _Planned:
        """Resolves groups, and decides which calls are matched together."""

        def work(ranks: Sequence[StoredCalls]) -> _Planned:
            roster = roster_of(_outlines(ranks, self.store))
            plan = plan_of(roster, self.most_calls)
            findings = [*roster.findings, *plan.groups.findings]
            return _Planned(self.kept.put(plan), plan.strings.texts(), plan.groups.rows, findings, plan.parts)

        return self.engine.map(work, [self.ranks])[0]

    def cut(self, planned: _Planned) -> list[list[Stored[Piece]]]:
        """Cuts the calls of all ranks; returns the pieces of each part, by rank."""

        def work(batch: Sequence[StoredCalls]) -> list[tuple[int, Stored[Piece]]]:
            plan = self.kept.get(planned.plan)
            whole = Piece.concatenate([coded(self.store.get(rank.calls), plan) for rank in batch])
            return [(part, self.kept.put(piece)) for part, piece in cut(whole, plan)]

        pieces: list[list[Stored[Piece]]] = [[] for _ in range(planned.parts)]
        for batch in self.engine.map(work, _batches(self.ranks, self.batch_calls)):
            for part, piece in batch:
                pieces[part].append(piece)
        return pieces

    def match(self, planned: _Planned, pieces: Sequence[Sequence[Stored[Piece]]]) -> list[_Part]:
        """Matches the calls of each part."""

        def work(pieces: Sequence[Stored[Piece]]) -> _Part:
            plan = self.kept.get(planned.plan)
            stack = stacked([self.kept.get(piece) for piece in pieces], plan)
            matching = match_collectives(stack, plan.groups)
            verdicts = verdicts_of(stack, plan.groups, matching)
            matched = match_messages(stack, plan.groups)
            crossings = crossed(stack, plan.groups, matching, verdicts, matched.messages)
            return _Part(
                self.kept.put(_MatchedPart(matching, verdicts, matched)),
                self.kept.put(crossings),
                len(matching),
                len(crossings.sends),
                (len(matching), len(matching.collective), len(matched.messages)),
                _in_divided_groups(matching, plan),
                matching.findings,
                matching.repeated,
                verdicts.mismatched,
                verdicts.missing,
                matched.unmatched,
                matched.unmatched_sends,
            )

        return self.engine.map(work, pieces)

    def clocks(self, planned: _Planned, parts: Sequence[_Part], clock: ClockMode | Clocks) -> Clocks:
        """The clocks of all ranks: those given, or estimated from all parts."""
        if isinstance(clock, Clocks):
            return clock.for_ranks({rank.rank: rank.host for rank in _unique(self.ranks)})

        def work(mode: ClockMode) -> Clocks:
            plan = self.kept.get(planned.plan)
            collective, message, crossings = 0, 0, []
            for part in parts:
                crossings.append(self.kept.get(part.crossed).at(collective, message))
                collective, message = collective + part.collectives, message + part.crossings
            found = all_crossings(crossings, collective, plan.round_trips)
            return estimate_clocks(found, plan.hosts, mode)

        return self.engine.map(work, [clock])[0]

    def measured(self, planned: _Planned, parts: Sequence[_Part], clocks: Clocks) -> _Tables:
        """The tables of all parts on the reference clock."""

        def work(part: _Part) -> Stored[_Tables]:
            plan, found = self.kept.get(planned.plan), self.kept.get(part.matched)
            clocked = corrected(found.matching.calls, found.matching.rank, clocks)
            tables = measure(plan.strings, plan.groups, found.matching, found.verdicts, clocked)
            return self.kept.put((*tables, found.messages.clocked(clocks)))

        stored = self.engine.map(work, parts)
        if len(parts) == 1:
            return self.kept.get(stored[0])
        return self._joined(parts, stored)

    def _joined(self, parts: Sequence[_Part], stored: Sequence[Stored[_Tables]]) -> _Tables:
        """One part in memory at a time besides the whole tables."""
        totals = np.array([part.rows for part in parts], np.int64).sum(axis=0).tolist()
        whole = (Collectives.of(totals[0]), Participations.of(totals[1]), Messages.of(totals[2]))
        begin = [0, 0, 0]
        before: dict[int, int] = {}
        for part, ticket in zip(parts, stored, strict=True):
            collectives, participations, messages = self.kept.get(ticket)
            order = collectives.order.copy()
            for group, count in part.groups:
                order[collectives.group == group] += before.get(group, 0)
                before[group] = before.get(group, 0) + count
            own = (
                replace(collectives, order=order),
                replace(participations, collective=participations.collective + begin[0]),
                messages,
            )
            for table, target, first in zip(own, whole, begin, strict=True):
                _write(table, target, first)
            begin = [first + count for first, count in zip(begin, part.rows, strict=True)]
        return whole


AnyTable = TypeVar("AnyTable", bound=Table)


def _write(table: AnyTable, target: AnyTable, first: int) -> None:
    for name, column in table.columns().items():
        getattr(target, name)[first : first + len(column)] = column


def _outlines(ranks: Sequence[StoredCalls], store: Store) -> list[Outline]:
    """The outline of each rank; those that were stored together are read once."""
    read: dict[int, Mapping[int, Outline]] = {}
    found = []
    for rank in ranks:
        if id(rank.outlines) not in read:
            read[id(rank.outlines)] = store.get(rank.outlines)
        found.append(read[id(rank.outlines)][rank.rank])
    return found


def _unique(ranks: Sequence[StoredCalls]) -> list[StoredCalls]:
    """The ranks in ascending order, of duplicates the first one."""
    by_rank: dict[int, StoredCalls] = {}
    for rank in ranks:
        by_rank.setdefault(rank.rank, rank)
    return [by_rank[number] for number in sorted(by_rank)]


def _batches(ranks: Sequence[StoredCalls], most_calls: int) -> list[list[StoredCalls]]:
    """Ranks in ascending order, about equally many calls in each batch."""
    batches: list[list[StoredCalls]] = [[]]
    count = 0
    for rank in _unique(ranks):
        if count and count + rank.count > most_calls:
            batches.append([])
            count = 0
        batches[-1].append(rank)
        count += rank.count
    return batches


def _in_divided_groups(matching: Matching, plan: Plan) -> list[tuple[int, int]]:
    """The divided groups in a part, and how many of their collectives it has."""
    return [(row, int(np.count_nonzero(matching.group == row))) for row in plan.collectives.bounds]
