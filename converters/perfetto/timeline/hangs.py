"""Collectives that hang, from the tables of a job, and how they are drawn; last arrivals in collectives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink._model.communications import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER, Verdict
from tracelink._model.events import EventKind, Key
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.operations import SYNCHRONIZING
from tracelink._model.selection import Numbers
from tracelink.converters.perfetto.timeline.schema import HUNG_PREFIX

STARTED = "started"
COMPLETED = "completed"
OPEN = frozenset({"scheduled", STARTED})
"""States of unfinished entries."""
TRACKED = frozenset({STARTED, "completed"})
"""A recorder with such entries tracks what finishes; entries of gloo stay "scheduled" forever."""
FIRST = 1
"""Recorders number the collectives of a group from one."""
NEVER = int(np.iinfo(np.int64).max)


# Collectives that hang: ranks are in them, and no rank can leave.


class Hung(Struct, frozen=True):
    """The hanging collectives of a job."""

    collectives: Bools
    """True if a collective hangs: no rank has left it."""
    causes: Bools
    """True if it hangs for a reason of its own: the others hang because of these."""
    parts: Bools
    """True if the rank of a participation is stuck in it."""
    since: Int64s
    """The time at which each rank joined the first collective in which it is stuck, or NEVER."""


def hung_of(job: LinkedJob) -> Hung:
    """Collectives that hang for a reason of their own, and those that hang because of them."""
    states = _States.of(job)
    parts = job.participations
    stuck = states.open_parts
    causes = _causes(job, states) if stuck.any() else np.zeros(len(job.collectives), np.bool_)
    stuck = stuck & causes[parts.collective]
    ranks = int(parts.rank.max(initial=-1)) + 1
    while True:
        since = np.full(ranks, NEVER)
        timed = stuck & (parts.enqueued != NO_TIME)
        np.minimum.at(since, parts.rank[timed], parts.enqueued[timed])
        queued_behind = states.pending & (parts.enqueued >= since[parts.rank])
        hung = _any(job, stuck | queued_behind) & ~states.ended
        all_stuck = stuck | queued_behind | (states.open_parts & hung[parts.collective])
        if not (all_stuck & ~stuck).any():
            return Hung(hung, hung & causes, stuck, since)
        stuck = all_stuck


def missing_from(job: LinkedJob, collective: int) -> set[int]:
    """Members that have not joined; those without a source only if no other is missing."""
    parts = job.participations
    low, high = np.searchsorted(parts.collective, [collective, collective + 1]).tolist()
    absent = set(job.groups[job.collectives.group[collective]].ranks) - set(parts.rank[low:high].tolist())
    return absent & {rank.rank for rank in job.ranks} or absent


class _States(Struct, frozen=True):
    """The states in recorders of each participation, and of each collective."""

    pending: Bools
    """It is unfinished, according to a recorder that tracks what finishes."""
    open_parts: Bools
    """It is pending, or its recorder does not track what finishes."""
    ended: Bools
    """True if a rank has left the collective."""

    @classmethod
    def of(cls, job: LinkedJob) -> _States:
        parts = job.participations
        is_open = (parts.record != UNKNOWN) & (parts.end == NO_TIME) & _is_any_of(job, parts.state, OPEN)
        tracked = np.zeros(int(parts.rank.max(initial=-1)) + 1, np.bool_)
        tracked[parts.rank[_is_any_of(job, parts.state, TRACKED)]] = True
        left = (parts.end != NO_TIME) | _is_any_of(job, parts.state, {COMPLETED})
        return cls(is_open & tracked[parts.rank], is_open, _any(job, left))


def _causes(job: LinkedJob, states: _States) -> Bools:
    """Collectives that hang for a reason of their own: ranks are missing, do different things, or take far too long."""
    collectives = job.collectives
    missing = _is_any_of(job, collectives.verdict, {Verdict.MISSING}) & _proven_missing(job, states)
    mismatch = _is_any_of(job, collectives.verdict, {Verdict.MISMATCH})
    reason = missing | mismatch | _all_but_a_few_wait(job, states) | _too_long(job, states)
    first = _any(job, _first_pending(job, states))
    last = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(last, collectives.group, collectives.order)
    is_last = (collectives.order == last[collectives.group]) & _is_any_of(
        job, collectives.operation, SYNCHRONIZING
    )
    untracked = _any(job, states.open_parts & ~states.pending) & is_last
    causes: Bools = ~states.ended & (
        (first & reason) | (untracked & (missing | (mismatch & ~_is_left_behind(job))))
    )
    return causes


def _is_left_behind(job: LinkedJob) -> Bools:
    """True if a rank has requested something since: different dtypes need not stop any rank."""
    parts = job.participations
    newest = np.full(int(parts.rank.max(initial=-1)) + 1, NO_TIME)
    np.maximum.at(newest, parts.rank, parts.enqueued)
    return _any(job, parts.enqueued < newest[parts.rank])


def _first_pending(job: LinkedJob, states: _States) -> Bools:
    """The first unfinished participation of each rank and group; where recorders track it, only if started.

    All others may only be queued behind it.
    """
    parts, collectives = job.participations, job.collectives
    group, order = collectives.group[parts.collective], collectives.order[parts.collective]
    pending = np.flatnonzero(states.pending)
    first = np.full((len(job.groups), int(parts.rank.max(initial=-1)) + 1), NEVER)
    np.minimum.at(first, (group[pending], parts.rank[pending]), order[pending])
    firsts: Bools = states.pending & (order == first[group, parts.rank])
    started = firsts & _is_any_of(job, parts.state, {STARTED})
    return started if started.any() else firsts


def _proven_missing(job: LinkedJob, states: _States) -> Bools:
    """True if a member is absent whose dump is not older than what others recorded of the group."""
    parts, collectives = job.participations, job.collectives
    group, rank = _members(job)
    width = int(max(rank.max(initial=0), parts.rank.max(initial=0))) + 1
    reached = np.full((len(job.groups), width), UNKNOWN)
    np.maximum.at(
        reached, (collectives.group[parts.collective], parts.rank), collectives.order[parts.collective]
    )
    synchronized = _is_any_of(job, collectives.operation, SYNCHRONIZING) & states.ended
    passed = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(passed, collectives.group[synchronized], collectives.order[synchronized])
    older = np.zeros(width, np.bool_)
    older[rank[reached[group, rank] < passed[group]]] = True
    older[parts.rank[states.pending & synchronized[parts.collective]]] = True
    complete = np.zeros(width, np.bool_)
    complete[parts.rank[collectives.sequence[parts.collective] == FIRST]] = True
    last_of_absent = np.full(len(job.groups), NEVER)
    known = ~older[rank] & ((reached[group, rank] != UNKNOWN) | complete[rank])
    np.minimum.at(last_of_absent, group[known], reached[group[known], rank[known]])
    missing: Bools = last_of_absent[collectives.group] < collectives.order
    return missing


def _members(job: LinkedJob) -> tuple[Int64s, Int64s]:
    """Group and rank of all members of all groups."""
    sizes = [len(group.ranks) for group in job.groups]
    ranks = np.array([rank for group in job.groups for rank in group.ranks], np.int64)
    return np.repeat(np.arange(len(sizes)), sizes), ranks


def _all_but_a_few_wait(job: LinkedJob, states: _States) -> Bools:
    """True if all known ranks wait, and fewer ranks are unknown."""
    group, rank = _members(job)
    known_rank = np.isin(rank, job.participations.rank)
    present, absent = (
        np.bincount(group[chosen], minlength=len(job.groups)) for chosen in (known_rank, ~known_rank)
    )
    open_parts = np.bincount(job.participations.collective[states.pending], minlength=len(job.collectives))
    group_of = job.collectives.group
    mostly: Bools = (
        (absent[group_of] > 0) & (absent[group_of] < present[group_of]) & (open_parts == present[group_of])
    )
    return mostly


def _too_long(job: LinkedJob, states: _States) -> Bools:
    """True if all ranks have been in it for much longer than in anything that the group has finished."""
    parts, group = job.participations, job.collectives.group
    durations = np.where(
        (parts.end != NO_TIME) & (parts.enqueued != NO_TIME), parts.end - parts.enqueued, UNKNOWN
    )
    longest = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(longest, group[parts.collective], durations)
    limit = np.where(longest == UNKNOWN, LONG_FOR_A_FIRST_NS, np.maximum(LONG_NS, TIMES_LONGER * longest))
    newest = np.full(len(group), NO_TIME)
    np.maximum.at(newest, parts.collective[states.pending], parts.enqueued[states.pending])
    too_long: Bools = (newest != NO_TIME) & ((job.last_ns or 0) - newest >= limit[group])
    return too_long


def _any(job: LinkedJob, parts: Bools) -> Bools:
    """True if any of these participations is in each collective."""
    found = np.zeros(len(job.collectives), np.bool_)
    found[job.participations.collective[parts]] = True
    return found


def _is_any_of(job: LinkedJob, codes: Int32s, names: Collection[str]) -> Bools:
    """True if the string of each code is one of these; unknown codes are not."""
    chosen = _marked(job.strings, names)
    matches: Bools = np.append(chosen, False)[codes]
    return matches


def _marked(strings: Sequence[str], names: Collection[str]) -> Bools:
    return np.array([name in names for name in strings], np.bool_)


# How they are drawn: to the end of the trace, in one colour, with a prefix in their names.


LEAST_PART = 10
"""A collective that hangs lasts at least a tenth of the trace, to be visible even if it starts last."""


MAX_LIST = 24
"""Longest list of missing ranks in a name, in characters."""


class RankHang(Struct, frozen=True):
    """The entries of one rank that hang."""

    records: Int64s
    """The recorder's entries of collectives that hang."""
    since: int
    """The time at which the rank entered the first of them, or NEVER; what it requested since then hangs as well."""
    end: int
    """The end of the slices that hang."""


NO_HANG = RankHang(np.empty(0, np.int64), NEVER, 0)


class HungWait(Struct, frozen=True):
    """The first collective that hangs in which a rank is, or which it never joined although others wait there."""

    rank: int
    collective: int
    since: int
    joined: bool


class Hangs(Struct, frozen=True):
    """Everything that hangs in a job."""

    collectives: Bools
    causes: Bools
    """Of the collectives that wait for the same ranks, the one that was entered first."""
    missing: Mapping[int, Numbers]
    """For each collective that hangs, the ranks of its group that have not joined."""
    by_rank: Mapping[int, RankHang]
    """The ranks that wait in such a collective."""
    first_waits: Sequence[HungWait]
    """At most one for each rank."""
    end: int
    """The end of the trace: all that hangs is drawn up to it, on all ranks."""

    @classmethod
    def of(cls, job: LinkedJob) -> Hangs:
        """The hangs of a job."""
        hung, parts = hung_of(job), job.participations
        newest = int(parts.enqueued[hung.parts].max(initial=NO_TIME))
        first, last = job.first_ns or 0, job.last_ns or 0
        end = max(last, newest + (last - first) // LEAST_PART)
        rows = np.flatnonzero(hung.parts)
        by_rank = {
            rank: RankHang(parts.record[rows[parts.rank[rows] == rank]], int(hung.since[rank]), end)
            for rank in np.unique(parts.rank[rows]).tolist()
        }
        missing = {
            row: Numbers.of(missing_from(job, row)) for row in np.flatnonzero(hung.collectives).tolist()
        }
        causes = _first_causes(job, hung, missing)
        return cls(hung.collectives, causes, missing, by_rank, _first_waits(job, hung, causes, missing), end)

    def of_rank(self, rank: int) -> RankHang:
        """The entries of a rank that hang."""
        return self.by_rank.get(rank, replace(NO_HANG, end=self.end))

    def hung_name(self, name: str, collective: int) -> str:
        """The name of a collective that hangs, with the missing ranks."""
        missing = self.missing[collective]
        ranks = missing.called("rank")
        if len(ranks) > MAX_LIST:
            ranks = f"{sum(1 for _ in missing)} ranks"
        return f"{HUNG_PREFIX}{name}{f': {ranks} missing' if missing else ''}"


def _first_causes(job: LinkedJob, hung: Hung, missing: Mapping[int, Numbers]) -> Bools:
    """The first collective, by its first entry, for each set of missing ranks."""
    parts = job.participations
    entered = np.where(parts.enqueued == NO_TIME, NEVER, parts.enqueued)
    first = np.full(len(job.collectives), NEVER)
    np.minimum.at(first, parts.collective, entered)
    rows = np.flatnonzero(hung.causes)
    chosen: dict[str, int] = {}
    for collective in rows[np.argsort(first[rows], kind="stable")].tolist():
        chosen.setdefault(str(missing[collective]), collective)
    causes = np.zeros(len(job.collectives), np.bool_)
    causes[list(chosen.values())] = True
    return causes


def _first_waits(
    job: LinkedJob, hung: Hung, causes: Bools, missing: Mapping[int, Numbers]
) -> Sequence[HungWait]:
    parts, waits = job.participations, dict[int, HungWait]()
    for collective in np.flatnonzero(causes).tolist():
        entered = parts.enqueued[parts.collective == collective]
        since = int(entered.max(initial=NO_TIME))
        for rank in missing[collective] if since != NO_TIME else ():
            if rank not in waits or since < waits[rank].since:
                waits[rank] = HungWait(rank, collective, since, joined=False)
    rows = np.flatnonzero(hung.parts & (parts.enqueued != NO_TIME))
    for row in rows[np.argsort(parts.enqueued[rows], kind="stable")].tolist():
        rank = int(parts.rank[row])
        waits.setdefault(
            rank, HungWait(rank, int(parts.collective[row]), int(parts.enqueued[row]), joined=True)
        )
    return list(waits.values())


def hung_rows(graph: EventGraph, hang: RankHang) -> Int64s:
    """The recorder entries of a rank that hang: those of collectives that hang, and all later unfinished ones."""
    events = graph.events
    unfinished = events.of_kind(EventKind.RECORD) & events.timed & (events.duration == UNKNOWN)
    if not unfinished.any():
        return np.empty(0, np.int64)
    pending = unfinished & _pending(graph)
    since = np.where(pending & (hang.end - events.start >= LONG_FOR_A_FIRST_NS), events.start, NEVER).min()
    hung = pending & (events.start >= min(int(since), hang.since))
    hung[hang.records] |= unfinished[hang.records]
    return np.flatnonzero(hung)


def with_hung_names(graph: EventGraph, rows: Int64s) -> EventGraph:
    """The graph with a prefix in the names of these rows."""
    if not len(rows):
        return graph
    codes, which = np.unique(graph.events.name[rows], return_inverse=True)
    names = graph.events.name.copy()
    names[rows] = (len(graph.strings) + which).astype(names.dtype)
    strings = [*graph.strings, *(HUNG_PREFIX + graph.strings[code] for code in codes.tolist())]
    return replace(graph, strings=strings, events=replace(graph.events, name=names))


def _pending(graph: EventGraph) -> Bools:
    """Unfinished entries of groups whose recorder reports progress, unless their batch is finished."""
    events = graph.events
    states = graph.key(Key.STATE).dense(len(events), -1)
    open_states, progress = (
        np.array([*(text in texts for text in graph.strings), False]) for texts in (OPEN, TRACKED)
    )
    reports_progress = np.zeros(len(graph.tracks), np.bool_)
    reports_progress[events.track[progress[states]]] = True
    pending: Bools = open_states[states] & reports_progress[events.track] & ~_closed(graph)
    return pending


def _closed(graph: EventGraph) -> Bools:
    """Entries with the numbers of a finished one: of a batch, only the entry that closes it is marked as finished."""
    events = graph.events
    messages, collectives = (
        graph.key(key).dense(len(events), 0) for key in (Key.P2P_SEQUENCE, Key.COLLECTIVE_SEQUENCE)
    )
    rows = np.flatnonzero(events.of_kind(EventKind.RECORD))
    finished = events.duration[rows] != UNKNOWN
    _, batch = np.unique(
        np.stack([events.track[rows], messages[rows], collectives[rows]]), axis=1, return_inverse=True
    )
    closed = np.zeros(len(events), np.bool_)
    closed[rows] = np.isin(batch.ravel(), batch.ravel()[finished])
    return closed


# The last arrival of each collective: an instant within its slice, if its ranks did not enter at the same time.


class LastArrivals(Table, frozen=True):
    """The last arrivals, in the order of their collectives."""

    index: Int64s
    """Index of the collective among those that are drawn."""
    time: Int64s
    rank: Int64s
    skew: Int64s

    def within(self, low: int, high: int) -> LastArrivals:
        """The arrivals of the drawn collectives from `low` to `high`."""
        some = slice(*np.searchsorted(self.index, [low, high]).tolist())
        return LastArrivals(self.index[some], self.time[some], self.rank[some], self.skew[some])

    def names(self) -> tuple[list[str], Int64s]:
        """The distinct names, and the index of each arrival's name."""
        ranks, which = np.unique(self.rank, return_inverse=True)
        return [f"rank {rank} arrived last" for rank in ranks.tolist()], which


def last_arrivals_of(job: LinkedJob, row: Int64s, start: Int64s, end: Int64s, awaited: Bools) -> LastArrivals:
    """The last arrivals of collectives drawn from `start` to `end`, except those that still await ranks."""
    skew, rank = job.collectives.skew[row], job.collectives.last_rank[row].astype(np.int64)
    index = np.flatnonzero((skew > 0) & (rank != UNKNOWN) & ~awaited & (end > start))
    time = np.minimum(start[index] + skew[index], end[index] - 1)
    return LastArrivals(index, time, rank[index], skew[index])
