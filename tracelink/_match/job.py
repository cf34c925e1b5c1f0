"""Matching across ranks: the communication calls of all ranks in; collectives, messages and clocks out.

Few calls are matched at once, in one process; many are cut into parts, which workers match one by one. Both ways are
the same steps over the same functions: few calls are one part, and are kept in memory in place of a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.spool import InMemory, LostError, Store, Stored
from tracelink._match.clock import Crossings, RankHosts, solved_clocks
from tracelink._match.collectives import (
    Matching,
    Verdicts,
    match_collectives,
    repeated_finding,
    verdicts_of,
    wrong_findings,
)
from tracelink._match.measures import (
    crossings_of_collectives,
    crossings_of_messages,
    crossings_of_round_trips,
    measure,
)
from tracelink._match.messages import MatchedMessages, match_messages, unmatched_finding
from tracelink._match.observations import (
    ClockObservations,
    Glance,
    SomeObservations,
    glance_at,
    observe,
    share_clocks,
)
from tracelink._match.outlines import NOTHING, Outline, Tally, corrected, outlined, roster_of
from tracelink._match.parts import Piece, Plan, coded, cut, plan_of, stacked
from tracelink._model.clock import ClockMode, Clocks
from tracelink._model.columns import Lean, Table
from tracelink._model.communications import Calls, Collectives, Messages, Participations, RankCalls
from tracelink._model.findings import Finding
from tracelink._model.trace import ProcessGroup

MOST_CALLS = 1 << 18
"""Calls of one part: more are matched by several workers."""
BATCH_CALLS = 1 << 16
"""Calls of ranks that one worker cuts at once."""

TRIES = 3
"""The number of times that everything is matched, if workers are lost."""


class JobTables(Struct, frozen=True):
    """All that the ranks did together, with times on the reference clock."""

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

    @property
    def outline(self) -> Outline:
        """The outline, if it is still in memory."""
        assert isinstance(self.outlines, InMemory)
        outline: Outline = self.outlines.item[self.rank]
        return outline

    @classmethod
    def of(cls, calls: RankCalls, store: Store, again: Callable[[], RankCalls] | None = None) -> StoredCalls:
        """Puts the calls into the store; the outline stays in memory. `again` makes the calls once more."""
        outlines: Stored[Mapping[int, Outline]] = InMemory({calls.rank: outlined(calls)})
        stored = store.put(calls, again)
        return cls(calls.rank, calls.host, calls.world_size, len(calls.calls), stored, outlines)


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

    Matching comes first and uses each rank's own clock: clocks are estimated from what is matched. What a lost worker
    had matched is matched again.
    """
    if sum(rank.count for rank in ranks) <= most_calls:
        engine, kept = engine.alone, engine.store((), in_memory=True)
    else:
        kept = engine.store((), in_memory=False)
    for _ in range(TRIES - 1):
        with suppress(LostError):
            return _linked(_Steps(engine, store, kept, most_calls, batch_calls), ranks, clock)
    return _linked(_Steps(engine, store, kept, most_calls, batch_calls), ranks, clock)


def _linked(steps: _Steps, ranks: Sequence[StoredCalls], clock: ClockMode | Clocks) -> JobTables:
    planned = steps.plan(ranks)
    hosts = {rank.rank: rank.host for rank in _unique(ranks)}
    known, of_ranks = None, RankHosts.of(hosts, ClockMode.NONE if isinstance(clock, Clocks) else clock)
    if isinstance(clock, Clocks):
        known = clock.for_ranks(hosts)
    elif clock is ClockMode.NONE:
        known = of_ranks.uncorrected()
    parts = steps.match(planned, steps.cut(planned, ranks), known)
    clocks = known or steps.clocks(planned, parts, of_ranks)
    tables = steps.measured(planned, parts, clocks)
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


_Tables = tuple[Collectives, Participations, Messages]


class _Planned(Struct, frozen=True):
    """The plan as the first process knows it."""

    plan: Stored[Plan]
    round_trips: Stored[Crossings]
    strings: Sequence[str]
    groups: Sequence[ProcessGroup]
    findings: Sequence[Finding]
    parts: int


class _MatchedPart(Struct, frozen=True):
    """Collectives and messages of a part, on the clocks of their ranks."""

    matching: Matching
    calls: Lean[Calls]
    """Of the matching, which has none."""
    verdicts: Verdicts
    messages: MatchedMessages

    @classmethod
    def of(cls, matching: Matching, verdicts: Verdicts, messages: MatchedMessages) -> _MatchedPart:
        """All that was matched, without what is not needed to measure it."""
        return cls(replace(matching, calls=Calls.empty()), Lean.of(matching.calls), verdicts, messages)

    def measured(self, plan: Plan, clocks: Clocks) -> _Tables:
        """The tables on the reference clock."""
        matching = replace(self.matching, calls=self.calls.whole())
        clocked = corrected(matching.calls, matching.rank, clocks)
        tables = measure(plan.strings, plan.groups, matching, self.verdicts, clocked)
        return *tables, self.messages.clocked(clocks)


class _Part(Struct, frozen=True):
    """A part as the first process knows it."""

    tables: Stored[_Tables] | None
    """If the clocks were known."""
    matched: Stored[_MatchedPart] | None
    crossings: Sequence[Stored[Crossings]]
    """Of collectives and of messages, unless the clocks were known."""
    rows: tuple[int, int, int]
    """Collectives, participations and messages."""
    divided: Sequence[tuple[int, int]]
    """Groups that are divided, and their collectives in this part."""
    findings: Sequence[Finding]
    repeated: Tally
    mismatched: Tally
    missing: Tally
    unmatched: Tally
    unmatched_sends: int

    @property
    def worker(self) -> str:
        """The worker that has matched it; empty without a cluster."""
        return self.matched.worker if self.matched else ""


class _Steps(Struct, frozen=True):
    """The steps of matching, each on all ranks or on all parts."""

    engine: Engine
    store: Store
    """Has the calls."""
    kept: Store
    """For what one step leaves for the next."""
    most_calls: int
    batch_calls: int

    def plan(self, ranks: Sequence[StoredCalls]) -> _Planned:
        """Resolves groups, and decides which calls are matched together."""
        store, kept, most_calls = self.store, self.kept, self.most_calls

        def work(ranks: Sequence[StoredCalls]) -> _Planned:
            roster = roster_of(_outlines(ranks, store))
            plan = plan_of(roster, most_calls)
            findings = [*roster.findings, *plan.groups.findings]
            return _Planned(
                kept.put(plan),
                kept.put(crossings_of_round_trips(roster.round_trips)),
                plan.strings.texts(),
                plan.groups.rows,
                findings,
                plan.parts,
            )

        return self.engine.map(work, [ranks])[0]

    def cut(self, planned: _Planned, ranks: Sequence[StoredCalls]) -> list[list[Stored[Lean[Piece]]]]:
        """Cuts the calls of all ranks; returns the pieces of each part, by rank."""
        store, kept, ticket = self.store, self.kept, planned.plan

        def work(batch: _Batch) -> list[tuple[int, Stored[Lean[Piece]]]]:
            plan = kept.get(ticket)
            whole = Piece.concatenate([coded(store.get(rank.calls), plan) for rank in batch.ranks])
            return [(part, kept.put(Lean.of(piece))) for part, piece in cut(whole, plan)]

        pieces: list[list[Stored[Lean[Piece]]]] = [[] for _ in range(planned.parts)]
        for batch in self.engine.map(work, _batches(ranks, self.batch_calls)):
            for part, piece in batch:
                pieces[part].append(piece)
        return pieces

    def match(
        self, planned: _Planned, pieces: Sequence[Sequence[Stored[Lean[Piece]]]], clocks: Clocks | None
    ) -> list[_Part]:
        """Matches the calls of each part, and measures them if the clocks are known."""
        kept, ticket = self.kept, planned.plan

        def work(pieces: Sequence[Stored[Lean[Piece]]]) -> _Part:
            plan = kept.get(ticket)
            stack = stacked([kept.get(piece).whole() for piece in pieces], plan)
            matching = match_collectives(stack, plan.groups)
            verdicts = verdicts_of(stack, plan.groups, matching)
            messages = match_messages(stack, plan.groups)
            matched = _MatchedPart.of(matching, verdicts, messages)
            crossings: list[Stored[Crossings]] = []
            if not clocks:
                crossings = [
                    kept.put(crossings_of_collectives(stack, plan.groups, matching, verdicts)),
                    kept.put(crossings_of_messages(plan.strings, messages.messages)),
                ]
            return _Part(
                kept.put(matched.measured(plan, clocks)) if clocks else None,
                None if clocks else kept.put(matched),
                crossings,
                (len(matching), len(matching.collective), len(messages.messages)),
                _in_divided_groups(matching, plan),
                matching.findings,
                matching.repeated,
                verdicts.mismatched,
                verdicts.missing,
                messages.unmatched,
                messages.unmatched_sends,
            )

        return self.engine.map(work, pieces)

    def clocks(self, planned: _Planned, parts: Sequence[_Part], hosts: RankHosts) -> Clocks:
        """The clocks of all ranks, estimated from all parts: first which ranks share one, then how far each is off."""
        kept = self.kept
        items = [_Meetings(part.crossings[kind]) for kind in (0, 1) for part in parts if part.crossings]
        items.append(_Meetings(planned.round_trips))

        def glance(meetings: _Meetings) -> Glance:
            return glance_at(hosts.crossed(kept.get(meetings.crossings)), hosts.shared)

        shared = share_clocks(self.engine.map(glance, items), hosts.shared)

        def work(meetings: _Meetings) -> tuple[Stored[SomeObservations], int]:
            found = observe(hosts.crossed(kept.get(meetings.crossings)), shared)
            return kept.put(found), len(found.observations)

        def solved(observed: Sequence[tuple[Stored[SomeObservations], int]]) -> Clocks:
            count = sum(rows for _, rows in observed)
            some = (kept.get(observations) for observations, _ in observed)
            return solved_clocks(hosts, shared, ClockObservations.of(some, count, shared))

        return self.engine.map(solved, [self.engine.map(work, items)])[0]

    def measured(self, planned: _Planned, parts: Sequence[_Part], clocks: Clocks) -> _Tables:
        """The tables of all parts on the reference clock."""
        kept, ticket = self.kept, planned.plan

        def work(part: _Part) -> Stored[_Tables]:
            assert part.matched, "the clocks were not known"
            return kept.put(kept.get(part.matched).measured(kept.get(ticket), clocks))

        stored = [part.tables for part in parts if part.tables] or self.engine.map(work, parts)
        return kept.get(stored[0]) if len(parts) == 1 else _joined(parts, stored, kept)


def _joined(parts: Sequence[_Part], stored: Sequence[Stored[_Tables]], kept: Store) -> _Tables:
    """The tables of all parts, of which one at a time is in memory besides the whole."""
    totals = np.array([part.rows for part in parts], np.int64).sum(axis=0).tolist()
    whole = (Collectives.of(totals[0]), Participations.of(totals[1]), Messages.of(totals[2]))
    begin = [0, 0, 0]
    before: Counter[int] = Counter()
    for part, ticket in zip(parts, stored, strict=True):
        collectives, participations, messages = kept.get(ticket)
        order = collectives.order.copy()
        for group, count in part.divided:
            order[collectives.group == group] += before[group]
            before[group] += count
        _write(replace(collectives, order=order), whole[0], begin[0])
        numbers = participations.collective + begin[0]
        _write(replace(participations, collective=numbers), whole[1], begin[1])
        _write(messages, whole[2], begin[2])
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
            read[id(rank.outlines)] = _stored_outlines(rank.outlines, store)
        outline = read[id(rank.outlines)].get(rank.rank)
        found.append(outline or outlined(store.get(rank.calls)))
    return found


def _stored_outlines(outlines: Stored[Mapping[int, Outline]], store: Store) -> Mapping[int, Outline]:
    if isinstance(outlines, InMemory):
        return cast("Mapping[int, Outline]", outlines.item)
    with suppress(LostError):  # they are made again from the calls
        return store.get(outlines)
    return {}


def _unique(ranks: Sequence[StoredCalls]) -> list[StoredCalls]:
    """The ranks in ascending order, of duplicates the first one."""
    by_rank: dict[int, StoredCalls] = {}
    for rank in ranks:
        by_rank.setdefault(rank.rank, rank)
    return [by_rank[number] for number in sorted(by_rank)]


class _Meetings(Struct, frozen=True):
    """Crossings that are observed at once."""

    crossings: Stored[Crossings]

    @property
    def worker(self) -> str:
        """The worker that has them; empty without a cluster."""
        return self.crossings.worker


class _Batch(Struct, frozen=True):
    """Ranks whose calls are cut at once."""

    ranks: list[StoredCalls]

    @property
    def worker(self) -> str:
        """The worker that has the calls of the first rank; empty without a cluster."""
        return self.ranks[0].calls.worker


def _batches(ranks: Sequence[StoredCalls], most_calls: int) -> list[_Batch]:
    """Ranks in ascending order, about equally many calls in each batch."""
    batches: list[_Batch] = []
    count = most_calls
    for rank in _unique(ranks):
        if not batches or count + rank.count > most_calls:
            batches.append(_Batch([]))
            count = 0
        batches[-1].ranks.append(rank)
        count += rank.count
    return batches


def _in_divided_groups(matching: Matching, plan: Plan) -> list[tuple[int, int]]:
    """The divided groups in a part, and how many of their collectives it has."""
    return [(row, int(np.count_nonzero(matching.group == row))) for row in plan.collectives.bounds]
