"""Lateness: which ranks arrive late at collectives, and whether the others wait for them again and again.

Measured are collectives in which every rank waits for all others, by the times at which ranks created their entries.
A clock that is ahead makes a rank late by the same time everywhere. Blamed is only what exceeds a rank's usual lag, so
that it does not depend on differences between clocks who is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.journal import Journal, mark_synchronizing
from tracelink._hang.facts.model import Category, Kind, Lateness
from tracelink._hang.facts.participation import NEVER, Parts
from tracelink._hang.facts.stalls import NEWEST, Lags, lags_of
from tracelink._hang.verdicts.base import Verdict
from tracelink._model.columns import (
    NO_TIME,
    SECOND,
    Bools,
    Float64s,
    Int64s,
    Table,
    ranges,
    starts_of,
)
from tracelink._model.text import (
    collective_in_words,
    duration,
    lowered,
    ranks_in_words,
)


class Straggling(Verdict, frozen=True, kw_only=True):
    """A rank is late again and again."""

    kind: Kind = Kind.STRAGGLER
    of: int = 0
    """At how many collectives it arrived; `count` is how often others waited long for it."""
    share: float = 0.0
    """Share of the time for which they waited."""
    usual_ns: int = 0
    """The median of the long waits; `waited_ns` is the longest."""

    usual = Category.NOT_REACHED

    def sentence(self) -> str:
        """How often it was late, and what that costs."""
        others = "the others" if len(self.waiting) > 1 else lowered(ranks_in_words(self.waiting))
        return (
            f"{self.ranks} arrived late at {self.count} of {self.of} collectives: {others} spent "
            f"{round(100 * self.share)} % of the time waiting for it, typically {duration(self.usual_ns)}."
        )

    def next_step(self) -> str:
        """Profiles."""
        return (
            f"Profile {self.example}: look for data loading, checkpoints, garbage collection, or a slow host or GPU; "
            "tracelink collectives shows from profiles where the time goes."
        )


COSTLY = 0.2
"""Share of the time for which others wait for a straggler: 57 % in fr2/slow_rank, else less than 10 %."""
EXCEPTIONS = 3
"""How many waits are no habit: with 1, ranks are stragglers that were late once or twice (fr3/exit_and_missing)."""
FEWEST_COLLECTIVES = 20
"""Fewer do not show how late a rank usually is: 8 of them or less do so by chance in fr3 (n16_2of16, fcol_stuck)."""
LONG_NS = SECOND
"""A single wait that is worth a note: 1.5 to 30 s in fr and fr2 where a rank slept, else 0.7 s at most."""
MOST_NOTES = 3
"""Ranks with a note: no job of fr, fr2 and fr3 has more than one."""


# The report: a table, problems and notes.


class LatenessReport(Struct, frozen=True):
    """Late ranks, and the problems and notes about them."""

    lateness: Sequence[Lateness]
    stragglers: Sequence[Straggling] = ()
    """The ranks that others wait for again and again."""
    notes: Sequence[str] = ()

    def of_stalled_job(self) -> LatenessReport:
        """Of a job that hangs, stragglers are only noted."""
        return LatenessReport(self.lateness, (), [*self.notes, *(one.sentence() for one in self.stragglers)])


def lateness_report(journal: Journal, parts: Parts) -> LatenessReport:
    """Who is late, by the times of creation."""
    notes = []
    arrivals = arrivals_of(journal, parts, journal.records.created, start_up=True)
    differ = do_clocks_differ(journal, parts, arrivals)
    table = lateness_of(journal, parts, arrivals)
    # a rank that was late once, and runs behind since then, is not late by its clock
    lags = lags_of(journal, NEWEST)
    created = _without_lags(journal, lags)
    arrivals = arrivals_of(journal, parts, created, start_up=False)
    if differ:
        table = lateness_of(journal, parts, arrivals)
        notes.append(
            "Clocks of ranks differ: by their times, ranks left collectives before others joined them. "
            "Lateness is measured relative to how late each rank usually is."
        )
    # ranks get to the first collective of a group from different start-up work
    later = arrivals.take(parts.sequence[arrivals.begin] > 1)
    stragglers = stragglers_of(journal, parts, later, created)
    if not stragglers:
        notes += [] if differ else note_usually_late(journal, later, lags)
        notes += _long_waits(journal, parts, later)
    return LatenessReport(table, stragglers, notes)


def _without_lags(journal: Journal, lags: Lags) -> Int64s:
    """When entries were created, as if no rank were usually later than the others."""
    lag, created = np.rint(lags.lag).astype(np.int64), journal.records.created
    return np.where(created == NO_TIME, NO_TIME, created - np.repeat(lag, np.diff(journal.bounds)))


def _long_waits(journal: Journal, parts: Parts, arrivals: Arrivals) -> list[str]:
    """For each of the latest ranks the collective at which all others waited longest for it."""
    notes: dict[int, str] = {}
    long = np.flatnonzero(arrivals.late >= LONG_NS)
    for row in long[np.argsort(-arrivals.late[long], kind="stable")].tolist():
        part = int(arrivals.last[row])
        if len(notes) == MOST_NOTES:
            break
        rank, group = int(parts.rank[part]), journal.groups[int(parts.group[part])]
        what = collective_in_words(journal.operation(int(parts.row[part])), int(parts.sequence[part]), group)
        notes.setdefault(rank, f"Rank {rank} arrived {duration(int(arrivals.late[row]))} late at {what}.")
    return list(notes.values())


def note_usually_late(journal: Journal, arrivals: Arrivals, lags: Lags) -> list[str]:
    """The ranks, at most half of all, that are late by more than all others differ: one, or those of one host."""
    comparable = np.flatnonzero(lags.component == np.bincount(lags.component).argmax())
    order = comparable[np.argsort(lags.lag[comparable], kind="stable")]
    count = int(np.count_nonzero(arrivals.size == arrivals.size.max(initial=0)))
    if len(order) < 2 or count < FEWEST_COLLECTIVES:
        return []
    steps, half = np.diff(lags.lag[order]), (len(order) + 1) // 2
    first = half + int(steps[half - 1 :].argmax())
    step, late = float(steps[first - 1]), journal.ranks[order[first:]].tolist()
    if 2 * step < np.ptp(lags.lag[order]) or step * count < COSTLY * float(np.ptp(arrivals.complete)):
        return []
    usual = float(np.median(lags.lag[order[first:]]) - np.median(lags.lag[order[:first]]))
    arrive, slow = ("arrive", "a slow host") if len(late) > 1 else ("arrives", "it is slow")
    return [
        f"{ranks_in_words(sorted(late))} usually {arrive} {duration(round(usual))} after the others: {slow}, more "
        "work, or a clock that is ahead. The dumps do not show which."
    ]


# Arrivals at collectives in which every rank waits for all others.


class Arrivals(Table, frozen=True):
    """Collectives in which every rank waits for all others, and in which all recorded ranks of the group take part."""

    begin: Int64s
    """The first part; the others follow."""
    size: Int64s
    last: Int64s
    """The part that was created last."""
    complete: Int64s
    """When the last part was created."""
    late: Int64s
    """How long after the last but one, as far as its rank did not wait for others meanwhile."""

    def parts(self) -> Int64s:
        """All parts of all these collectives, in order."""
        return ranges(self.begin, self.size)

    def starts(self) -> Int64s:
        """Where the parts of each of these collectives begin in `parts`."""
        starts: Int64s = np.cumsum(self.size) - self.size
        return starts

    def of_parts(self, column: Int64s) -> Int64s:
        """A column of these collectives, repeated for each of their parts."""
        repeated: Int64s = np.repeat(column, self.size)
        return repeated


def arrivals_of(journal: Journal, parts: Parts, created: Int64s, *, start_up: bool) -> Arrivals:
    """The arrivals at all collectives of at least two ranks.

    `created` are the times of entries, by one clock. With `start_up`, ranks worked before their first entry.
    """
    first = starts_of(parts.collective)
    size = np.diff(np.append(first, len(parts)))
    recorded = set(journal.recordings)
    members = np.array([len(recorded.intersection(group.ranks)) for group in journal.groups], np.int64)
    np.maximum.at(members, parts.group[first], size)
    chosen = (size > 1) & (size == members[parts.group[first]])
    chosen &= mark_synchronizing(journal)[journal.records.request[parts.row[first]]]
    if len(first):
        chosen &= np.minimum.reduceat(created[parts.row], first) != NO_TIME
    if not chosen.any():
        return Arrivals.empty()
    found = _timed(parts, Arrivals.of(begin=first[chosen], size=size[chosen]), created)
    return replace(found, late=_blamed(journal, parts, found, created, start_up=start_up))


def _timed(parts: Parts, found: Arrivals, created: Int64s) -> Arrivals:
    """The same with the last arrival of each."""
    part, starts = found.parts(), found.starts()
    times = created[parts.row[part]]
    complete = np.maximum.reduceat(times, starts)
    positions = np.flatnonzero(times == found.of_parts(complete))[::-1]
    last = np.empty(len(found), np.int64)
    last[found.of_parts(np.arange(len(found)))[positions]] = positions
    times[last] = NO_TIME
    late = complete - np.maximum.reduceat(times, starts)
    return replace(found, last=part[last], complete=complete, late=late)


def lateness_of(journal: Journal, parts: Parts, arrivals: Arrivals) -> list[Lateness]:
    """Every rank that arrived last at a collective, sorted by how long the others waited for it."""
    rank = parts.rank[arrivals.last]
    ranks = int(journal.ranks.max(initial=-1)) + 1
    total = np.bincount(rank, arrivals.late, ranks).astype(np.int64)
    count = np.bincount(rank[arrivals.late > 0], minlength=ranks)
    of = np.bincount(parts.rank[arrivals.parts()], minlength=ranks)
    worst = np.zeros(ranks, np.int64)
    # of those at which it arrived latest the first
    order = np.argsort(-arrivals.late, kind="stable")[::-1]
    worst[rank[order]] = order
    late = np.flatnonzero(count)
    rows = []
    for number in late[np.argsort(-total[late], kind="stable")].tolist():
        part = int(arrivals.last[worst[number]])
        rows.append(
            Lateness(
                number,
                int(count[number]),
                int(of[number]),
                int(arrivals.late[worst[number]]),
                int(total[number]),
                journal.groups[int(parts.group[part])].name,
                int(parts.sequence[part]),
            )
        )
    return rows


def do_clocks_differ(journal: Journal, parts: Parts, arrivals: Arrivals) -> bool:
    """True if recorders saw collectives completed before all ranks had joined them."""
    if not len(arrivals):
        return False
    completed = journal.records.completed[parts.last[arrivals.parts()]]
    left = np.where(completed == NO_TIME, NEVER, completed)
    return bool((np.minimum.reduceat(left, arrivals.starts()) < arrivals.complete).any())


# Stragglers: ranks that others wait for again and again.


def stragglers_of(journal: Journal, parts: Parts, arrivals: Arrivals, created: Int64s) -> list[Straggling]:
    """The ranks that others wait for again and again"""
    if not len(arrivals):
        return []
    part, rank, span = arrivals.parts(), parts.rank[arrivals.last], float(np.ptp(arrivals.complete))
    # others that continue before it arrives do not wait for it
    following, known = _following(journal, created)
    waits_until = np.where(known, following, NEVER)[parts.last[part]]
    idle = waits_until >= arrivals.of_parts(arrivals.complete)
    found = []
    for number in np.flatnonzero(np.bincount(rank, arrivals.late) > COSTLY * span).tolist():
        waited = arrivals.of_parts(np.where(rank == number, arrivals.late, 0))
        waited = waited * (idle & (parts.rank[part] != number))
        by_rank = np.bincount(parts.rank[part], waited)
        longest = np.sort(waited[parts.rank[part] == by_rank.argmax()])
        if longest[:-EXCEPTIONS].sum() > COSTLY * span:
            waits = np.maximum.reduceat(waited, arrivals.starts())
            found.append(_straggler(journal, parts, arrivals, waits, by_rank / span))
    return found


def _straggler(
    journal: Journal, parts: Parts, arrivals: Arrivals, waits: Int64s, share: Float64s
) -> Straggling:
    """`waits` are how long others waited for it in each collective, `share` is the share of the time of each rank."""
    latest, long = int(arrivals.last[waits.argmax()]), waits[waits > waits.mean()]
    rank, row = int(parts.rank[latest]), int(parts.row[latest])
    return Straggling.of_call(
        journal.groups[int(parts.group[latest])],
        int(parts.sequence[latest]),
        journal.operation(row),
        culprits=(rank,),
        waiting=np.flatnonzero(2 * share >= share.max()).tolist(),
        count=len(long),
        of=int(np.count_nonzero(parts.rank[arrivals.parts()] == rank)),
        share=float(share.max()),
        usual_ns=int(np.median(long)),
        waited_ns=int(waits.max()),
        rows={rank: row},
    )


def _blamed(journal: Journal, parts: Parts, arrivals: Arrivals, created: Int64s, *, start_up: bool) -> Int64s:
    """For how much of its lateness the last rank of each collective worked, and did not wait for others itself."""
    row, rank = parts.row[arrivals.last], np.searchsorted(journal.ranks, parts.rank[arrivals.last])
    zero = int(created[created != NO_TIME].min())
    length = int(created.max()) - zero + 1
    # one search for all ranks: the times of one rank after those of the other; in place, these are the largest columns
    keys = np.where(created == NO_TIME, 0, created - zero)
    keys += np.repeat(length * np.arange(len(journal.ranks)), np.diff(journal.bounds))
    np.maximum.accumulate(keys, out=keys)
    before = np.searchsorted(keys, created[row] - arrivals.late - zero + length * rank) - 1
    del keys
    begin = journal.bounds[rank]
    worked = _worked(journal, parts, arrivals, created)
    work = worked[row] - worked[np.clip(before, begin, row)]
    return np.minimum(arrivals.late, np.where(before < begin, arrivals.late, work) if start_up else work)


def _worked(journal: Journal, parts: Parts, arrivals: Arrivals, created: Int64s) -> Int64s:
    """For each entry how long all ranks worked until their next entries, before it; in messages it is not known."""
    worked = np.zeros(len(journal) + 1, np.int64)
    work = worked[1:]
    work[:-1] = created[1:]
    work -= created
    last, waited = parts.last[arrivals.parts()], arrivals.of_parts(arrivals.complete)
    waited -= created[last]
    work[last] -= waited
    known = (created != NO_TIME) & ~journal.records.point_to_point
    known[:-1] &= (journal.rank[1:] == journal.rank[:-1]) & (created[1:] != NO_TIME)
    known[-1:] = False
    work[~known | (work < 0)] = 0
    return np.cumsum(worked, out=worked)


def _following(journal: Journal, created: Int64s) -> tuple[Int64s, Bools]:
    """For each entry when its rank made the next one, and whether that is known."""
    following, known = np.full(len(created), NO_TIME), np.zeros(len(created), np.bool_)
    following[:-1] = created[1:]
    known[:-1] = (journal.rank[1:] == journal.rank[:-1]) & (created[1:] != NO_TIME)
    return following, known
