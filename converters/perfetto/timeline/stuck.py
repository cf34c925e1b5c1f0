"""Collectives of a job that hang, from its tables: a timeline has no journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.collectives import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER, Verdict
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s
from tracelink._model.job import Job
from tracelink._model.operations import SYNCHRONIZING

STARTED = "started"
COMPLETED = "completed"
OPEN = frozenset({"scheduled", STARTED})
"""States of unfinished entries."""
TRACKED = frozenset({STARTED, "completed"})
"""A recorder with such entries tracks what finishes; entries of gloo stay "scheduled" forever."""
FIRST = 1
"""Recorders number the collectives of a group from one."""
NEVER = int(np.iinfo(np.int64).max)


# Hanging collectives: ranks are in them, and no rank can leave.


class Hung(Struct, frozen=True):
    """The hanging collectives of a job."""

    collectives: Bools
    """Whether a collective hangs: no rank has left it."""
    causes: Bools
    """Whether it hangs for a reason of its own: the others hang because of these."""
    parts: Bools
    """Whether the rank of a participation is stuck in it."""
    since: Int64s
    """When each rank joined the first collective in which it is stuck, or NEVER."""


def hung_of(job: Job) -> Hung:
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


def missing_from(job: Job, collective: int) -> set[int]:
    """Members that have not joined; those without a source only if no other is missing."""
    parts = job.participations
    low, high = np.searchsorted(parts.collective, [collective, collective + 1]).tolist()
    absent = set(job.groups[job.collectives.group[collective]].ranks) - set(parts.rank[low:high].tolist())
    return absent & {rank.rank for rank in job.ranks} or absent


class _States(Struct, frozen=True):
    """What recorders know of each participation, and of each collective."""

    pending: Bools
    """It is unfinished, according to a recorder that tracks what finishes."""
    open_parts: Bools
    """It is pending, or its recorder does not track what finishes."""
    ended: Bools
    """Whether a rank has left the collective."""

    @classmethod
    def of(cls, job: Job) -> _States:
        parts = job.participations
        is_open = (parts.record != UNKNOWN) & (parts.end == NO_TIME) & _is_any_of(job, parts.state, OPEN)
        tracked = np.zeros(int(parts.rank.max(initial=-1)) + 1, np.bool_)
        tracked[parts.rank[_is_any_of(job, parts.state, TRACKED)]] = True
        left = (parts.end != NO_TIME) | _is_any_of(job, parts.state, {COMPLETED})
        return cls(is_open & tracked[parts.rank], is_open, _any(job, left))


def _causes(job: Job, states: _States) -> Bools:
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


def _is_left_behind(job: Job) -> Bools:
    """Whether a rank has requested something since: different dtypes need not stop any rank."""
    parts = job.participations
    newest = np.full(int(parts.rank.max(initial=-1)) + 1, NO_TIME)
    np.maximum.at(newest, parts.rank, parts.enqueued)
    return _any(job, parts.enqueued < newest[parts.rank])


def _first_pending(job: Job, states: _States) -> Bools:
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


def _proven_missing(job: Job, states: _States) -> Bools:
    """Whether a member is absent whose dump is not older than what others recorded of the group."""
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


def _members(job: Job) -> tuple[Int64s, Int64s]:
    """Group and rank of all members of all groups."""
    sizes = [len(group.ranks) for group in job.groups]
    ranks = np.array([rank for group in job.groups for rank in group.ranks], np.int64)
    return np.repeat(np.arange(len(sizes)), sizes), ranks


def _all_but_a_few_wait(job: Job, states: _States) -> Bools:
    """Whether all known ranks wait, and fewer ranks are unknown."""
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


def _too_long(job: Job, states: _States) -> Bools:
    """Whether all ranks have been in it for much longer than in anything that the group has finished."""
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


def _any(job: Job, parts: Bools) -> Bools:
    """Whether any of these participations is in each collective."""
    found = np.zeros(len(job.collectives), np.bool_)
    found[job.participations.collective[parts]] = True
    return found


def _is_any_of(job: Job, codes: Int32s, names: Collection[str]) -> Bools:
    """Whether the string of each code is one of these; unknown codes are not."""
    chosen = _marked(job.strings, names)
    matches: Bools = np.append(chosen, False)[codes]
    return matches


def _marked(strings: Sequence[str], names: Collection[str]) -> Bools:
    return np.array([name in names for name in strings], np.bool_)
