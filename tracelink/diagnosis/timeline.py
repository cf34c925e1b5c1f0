"""What hangs and who came last, of a job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.diagnosis.hangs import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER
from tracelink.model.collectives import Collectives, Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Columns, Int32s, Int64s
from tracelink.model.job import Job
from tracelink.model.operations import SYNCHRONIZING

# Which collectives never end, as far as the tables of a job tell: somebody is in them, and nobody can leave.


STARTED = "started"
OPEN = frozenset({"scheduled", STARTED})
"""States of entries that are not finished."""
PROGRESS = frozenset({STARTED, "completed"})
"""A recorder in which an entry has come so far tells what is finished; gloo's entries stay "scheduled" for ever."""
DONE = "completed"
FIRST = 1
"""Recorders count the collectives of a group from one."""
NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Hung:
    """What hangs of a job."""

    collectives: Bools
    """For each collective whether it hangs: nobody has left it."""
    parts: Bools
    """For each participation whether its rank is caught in it."""
    since: Int64s
    """For each rank when it entered the first in which it is caught, or NEVER."""


def hung_of(job: Job) -> Hung:
    """What hangs for a reason of its own, and what hangs because of that."""
    told = _Told.of(job)
    parts = job.participations
    caught = told.waiting
    if caught.any():
        caught = caught & _roots(job, told)[parts.collective]
    ranks = int(parts.rank.max(initial=-1)) + 1
    while True:
        since = np.full(ranks, NEVER)
        timed = caught & (parts.enqueued != NO_TIME)
        np.minimum.at(since, parts.rank[timed], parts.enqueued[timed])
        behind = told.pending & (parts.enqueued >= since[parts.rank])
        hung = _any(job, caught | behind) & ~told.ended
        more = caught | behind | (told.waiting & hung[parts.collective])
        if not (more & ~caught).any():
            return Hung(hung, caught, since)
        caught = more


def missing_from(job: Job, collective: int) -> set[int]:
    """Who of the group has not joined; of whom there is no source is only told where nobody else is missing."""
    parts = job.participations
    low, high = np.searchsorted(parts.collective, [collective, collective + 1]).tolist()
    absent = set(job.groups[job.collectives.group[collective]].ranks) - set(parts.rank[low:high].tolist())
    return absent & {rank.rank for rank in job.ranks} or absent


@dataclass(frozen=True, slots=True)
class _Told:
    """What recorders say became of each participation, and of each collective."""

    pending: Bools
    """It is not finished, as a recorder says that tells when something is."""
    waiting: Bools
    """The same, or the recorder never says what is finished."""
    ended: Bools
    """Of a collective: somebody has left it."""

    @classmethod
    def of(cls, job: Job) -> _Told:
        parts = job.participations
        is_open = (parts.record != UNKNOWN) & (parts.end == NO_TIME) & _is_one_of(job, parts.state, OPEN)
        tells = np.zeros(int(parts.rank.max(initial=-1)) + 1, np.bool_)
        tells[parts.rank[_is_one_of(job, parts.state, PROGRESS)]] = True
        left = (parts.end != NO_TIME) | _is_one_of(job, parts.state, {DONE})
        return cls(is_open & tells[parts.rank], is_open, _any(job, left))


def _roots(job: Job, told: _Told) -> Bools:
    """What hangs for a reason of its own: ranks are missing or do different things, or it lasts far too long."""
    whole = job.collectives
    missing = _is_one_of(job, whole.verdict, {Verdict.MISSING}) & _truly_missing(job, told)
    mismatch = _is_one_of(job, whole.verdict, {Verdict.MISMATCH})
    reason = missing | mismatch | _mostly_there(job, told) | _too_long(job, told)
    stuck = _any(job, _first_pending(job, told))
    last = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(last, whole.group, whole.order)
    at_the_end = (whole.order == last[whole.group]) & _is_one_of(job, whole.operation, SYNCHRONIZING)
    silent = _any(job, told.waiting & ~told.pending) & at_the_end
    roots: Bools = ~told.ended & ((stuck & reason) | (silent & (missing | (mismatch & ~_left_behind(job)))))
    return roots


def _left_behind(job: Job) -> Bools:
    """Whether a rank has asked for anything else since: types that differ need not keep anybody."""
    parts = job.participations
    newest = np.full(int(parts.rank.max(initial=-1)) + 1, NO_TIME)
    np.maximum.at(newest, parts.rank, parts.enqueued)
    return _any(job, parts.enqueued < newest[parts.rank])


def _first_pending(job: Job, told: _Told) -> Bools:
    """What is not finished though all before it in its group is, and has started where recorders tell that.

    All else may only be queued behind it.
    """
    parts, whole = job.participations, job.collectives
    group, order = whole.group[parts.collective], whole.order[parts.collective]
    pending = np.flatnonzero(told.pending)
    first = np.full((len(job.groups), int(parts.rank.max(initial=-1)) + 1), NEVER)
    np.minimum.at(first, (group[pending], parts.rank[pending]), order[pending])
    firsts: Bools = told.pending & (order == first[group, parts.rank])
    started = firsts & _is_one_of(job, parts.state, {STARTED})
    return started if started.any() else firsts


def _truly_missing(job: Job, told: _Told) -> Bools:
    """Whether a member is absent whose dump is not older than what others tell of the same group."""
    parts, whole = job.participations, job.collectives
    group, rank = _members(job)
    width = int(max(rank.max(initial=0), parts.rank.max(initial=0))) + 1
    reached = np.full((len(job.groups), width), UNKNOWN)
    np.maximum.at(reached, (whole.group[parts.collective], parts.rank), whole.order[parts.collective])
    together = _is_one_of(job, whole.operation, SYNCHRONIZING) & told.ended
    passed = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(passed, whole.group[together], whole.order[together])
    older = np.zeros(width, np.bool_)
    older[rank[reached[group, rank] < passed[group]]] = True
    older[parts.rank[told.pending & together[parts.collective]]] = True
    whole_story = np.zeros(width, np.bool_)
    whole_story[parts.rank[whole.sequence[parts.collective] == FIRST]] = True
    absent = np.full(len(job.groups), NEVER)
    known = ~older[rank] & ((reached[group, rank] != UNKNOWN) | whole_story[rank])
    np.minimum.at(absent, group[known], reached[group[known], rank[known]])
    missing: Bools = absent[whole.group] < whole.order
    return missing


def _members(job: Job) -> tuple[Int64s, Int64s]:
    """All members of all groups, group by group."""
    sizes = [len(group.ranks) for group in job.groups]
    ranks = np.array([rank for group in job.groups for rank in group.ranks], np.int64)
    return np.repeat(np.arange(len(sizes)), sizes), ranks


def _mostly_there(job: Job, told: _Told) -> Bools:
    """Whether all wait but those of whom no call is known at all, and these are fewer."""
    group, rank = _members(job)
    heard = np.isin(rank, job.participations.rank)
    here, absent = (np.bincount(group[some], minlength=len(job.groups)) for some in (heard, ~heard))
    waiting = np.bincount(job.participations.collective[told.pending], minlength=len(job.collectives))
    of = job.collectives.group
    mostly: Bools = (absent[of] > 0) & (absent[of] < here[of]) & (waiting == here[of])
    return mostly


def _too_long(job: Job, told: _Told) -> Bools:
    """Whether everybody has been in it for much longer than in anything that the group has finished."""
    parts, group = job.participations, job.collectives.group
    took = np.where((parts.end != NO_TIME) & (parts.enqueued != NO_TIME), parts.end - parts.enqueued, UNKNOWN)
    usual = np.full(len(job.groups), UNKNOWN)
    np.maximum.at(usual, group[parts.collective], took)
    most = np.where(usual == UNKNOWN, LONG_FOR_A_FIRST_NS, np.maximum(LONG_NS, TIMES_LONGER * usual))
    newest = np.full(len(group), NO_TIME)
    np.maximum.at(newest, parts.collective[told.pending], parts.enqueued[told.pending])
    lasted: Bools = (newest != NO_TIME) & ((job.last_ns or 0) - newest >= most[group])
    return lasted


def _any(job: Job, parts: Bools) -> Bools:
    """For each collective whether any of these participations is in it."""
    found = np.zeros(len(job.collectives), np.bool_)
    found[job.participations.collective[parts]] = True
    return found


def _is_one_of(job: Job, codes: Int32s, texts: Collection[str]) -> Bools:
    """Whether each text, by its code, is one of these; what is unknown is not."""
    chosen = _marked(job.strings, texts)
    one: Bools = np.append(chosen, False)[codes]
    return one


def _marked(strings: Sequence[str], texts: Collection[str]) -> Bools:
    return np.array([text in texts for text in strings], np.bool_)


# Who comes last, and what that costs the others.


@dataclass(frozen=True, slots=True)
class Arrivals(Columns):
    """One row for each rank that takes part in a collective of which it is known who came when."""

    rank: Int32s
    collectives: Int64s
    """In how many of them it takes part."""
    last: Int64s
    """In how many it came last."""
    waited: Int64s
    """How long it waited for others in all, in ns."""
    waited_for: Int64s
    """How long others waited for it in all, in ns."""

    def __len__(self) -> int:
        return len(self.rank)


def arrivals(collectives: Collectives, participations: Participations) -> Arrivals:
    """Counts over all collectives; one in which all come at the same moment has no last rank."""
    compared = (collectives.skew > 0)[participations.collective] & (participations.wait != UNKNOWN)
    collective, wait = participations.collective[compared], participations.wait[compared]
    ranks, place = np.unique(participations.rank[compared], return_inverse=True)
    last = participations.rank[compared] == collectives.last_rank[collective]
    lost = lost_time(collectives, participations)
    waited, waited_for = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    np.add.at(waited, place, wait)
    np.add.at(waited_for, place[last], lost[collective[last]])
    return Arrivals(
        ranks,
        np.bincount(place, minlength=len(ranks)),
        np.bincount(place[last], minlength=len(ranks)),
        waited,
        waited_for,
    )


def lost_time(collectives: Collectives, participations: Participations) -> Int64s:
    """How long all ranks of each collective waited together, in ns, or UNKNOWN."""
    known = participations.wait != UNKNOWN
    lost = np.zeros(len(collectives), np.int64)
    np.add.at(lost, participations.collective[known], participations.wait[known])
    lost[np.bincount(participations.collective[known], minlength=len(collectives)) == 0] = UNKNOWN
    return lost
