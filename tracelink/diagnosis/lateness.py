"""Lateness: which ranks arrive late at collectives, and whether that is a habit, a slow host, or a clock that is ahead.

Measured are collectives in which every rank waits for all others, by the times at which ranks created their entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.clocks import lags_of
from tracelink.diagnosis.journal import Journal, synchronizing_requests
from tracelink.diagnosis.model import Kind, Lateness, Problem
from tracelink.diagnosis.participation import Parts
from tracelink.model.columns import NO_TIME, SECOND, Bools, Float64s, Int32s, Int64s, Table, starts_of
from tracelink.model.text import collective_in_words, duration, lowered, ranks_in_words

FEWEST_COLLECTIVES = 20
MOST_COLLECTIVES = 1000
"""How many of the newest collectives of a group are used."""
NOTICEABLE_NS = 1_000_000
COSTLY = 0.2
"""Share of the time that the others wait for late ranks."""
FEWEST_TIMES = 4
"""How often others must have waited for it."""
MOST = 2 / 3
"""The rank's share of all lateness in its groups."""
EXCEPTIONS = 1
"""How many of the longest waits are ignored: a habit shows without them."""
MOST_CANDIDATES = 4
TOLERANCE_NS = 100_000
RARELY = 0.1
"""What is seen in fewer collectives is an exception, and not a property of a clock."""
OFTEN = 0.25
RUN_AHEAD_NS = 10_000_000
"""Ranks may continue before a collective is complete; if that seems so often and by this much, clocks differ."""
ONE_POLL_NS = 1_000_000
"""Work that a watchdog sees completed within this time was seen by one poll."""
FEWEST_POLLS = 20
"""How many polls the median of completion times needs."""
PROMPT_NS = 20_000_000
PROMPT = 0.1
"""If others continue this soon after it arrived, relative to how late it was, they waited for it."""
NOTEWORTHY = 0.05
"""Share of the time for which all ranks wait once."""
MOST_NOTES = 3
HABIT = 2 / 3
"""A rank that is late by habit arrives last at this share of at least FEWEST_FOR_A_HABIT collectives."""
FEWEST_FOR_A_HABIT = 20
HABITUAL_NS = 1_000_000
NEVER = np.iinfo(np.int64).max


# The report: a table, problems and notes.


class LatenessReport(Struct, frozen=True):
    """Late ranks, and the problems and notes about them."""

    lateness: Sequence[Lateness]
    problems: Sequence[Problem] = ()
    """The stragglers that others wait for again and again."""
    notes: Sequence[str] = ()

    def of_stalled_job(self) -> LatenessReport:
        """Of a job that hangs, stragglers are only noted."""
        return LatenessReport(
            self.lateness, (), [*self.notes, *(problem.message for problem in self.problems)]
        )


def lateness_report(journal: Journal, parts: Parts) -> LatenessReport:
    """Who is late, by the times of creation."""
    created, notes = parts.created, []
    collectives = synchronizing_collectives(journal, parts, created)
    corrected = times_by_one_clock(journal, parts, collectives)
    if corrected is not None:
        created, collectives = corrected, synchronizing_collectives(journal, parts, corrected)
        notes.append(
            "Clocks of ranks differ: by their times, ranks left collectives before others joined them. "
            "Lateness is measured relative to how late each rank usually is."
        )
    lateness = lateness_of(journal, parts, collectives)
    settled = _without_first(parts, collectives)
    stragglers = stragglers_of(journal, parts, settled, created)
    if corrected is not None:
        # of two ranks with different clocks it is unknown which one is late
        stragglers = [straggler for straggler in stragglers if len(straggler.waiting) > 1]
    by_rank = {late.rank: late for late in lateness}
    problems = [
        _straggler_problem(journal, parts, straggler, by_rank[straggler.rank])
        for straggler in stragglers
        if straggler.certain
    ]
    notes += [
        _uncertain_straggler(straggler, by_rank[straggler.rank])
        for straggler in stragglers
        if not straggler.certain
    ]
    if not stragglers:
        notes += _long_waits(journal, parts, settled)
    if not stragglers and corrected is None:
        notes += _late_together(journal, parts, settled)
    return LatenessReport(lateness, problems, notes)


def habits_of(lateness: Sequence[Lateness]) -> dict[int, Lateness]:
    """The ranks that are late by habit."""
    return {late.rank: late for late in lateness if _is_habit(late)}


def with_late_history(problems: Sequence[Problem], history: Mapping[int, Lateness]) -> list[Problem]:
    """Adds to the message of a rank that never joined that it was always late before."""
    return [
        replace(
            problem,
            message=f"{problem.message} Before, it arrived last at {_count_in_words(history[problem.culprits[0]])}.",
        )
        if problem.kind in (Kind.NEVER_JOINED, Kind.LAGGING, Kind.IN_FLIGHT)
        and len(problem.culprits) == 1
        and problem.culprits[0] in history
        else problem
        for problem in problems
    ]


def _is_habit(late: Lateness) -> bool:
    often = late.of >= FEWEST_FOR_A_HABIT and late.collectives >= HABIT * late.of
    return often and late.total_ns >= HABITUAL_NS * late.collectives


def _without_first(parts: Parts, collectives: SynchronizingCollectives) -> SynchronizingCollectives:
    """Without the first collective of each group: ranks get there from different start-up work."""
    later = parts.sequence[collectives.begin] > 1
    return SynchronizingCollectives(*(column[later] for column in collectives.columns().values()))


def _straggler_problem(journal: Journal, parts: Parts, straggler: Straggler, lateness: Lateness) -> Problem:
    row = int(parts.row[straggler.latest])
    waiting = straggler.waiting
    others = "the others" if len(waiting) > 1 else lowered(ranks_in_words(waiting))
    return Problem.at(
        Kind.STRAGGLER,
        journal.groups[int(parts.group[straggler.latest])],
        int(parts.sequence[straggler.latest]),
        journal.operation(row),
        culprits=(straggler.rank,),
        waiting=waiting,
        message=f"Rank {straggler.rank} arrived last at {_count_in_words(lateness)}: {others} spent "
        f"{round(100 * straggler.share)} % of the time waiting for it, typically {duration(straggler.usual_ns)}.",
        count=lateness.collectives,
        rows={straggler.rank: row},
    )


def _uncertain_straggler(straggler: Straggler, lateness: Lateness) -> str:
    return (
        f"Rank {straggler.rank} arrived last at {_count_in_words(lateness)}, always by about "
        f"{duration(straggler.usual_ns)}: it is slow, or its clock is ahead. The dumps do not show which."
    )


def _count_in_words(lateness: Lateness) -> str:
    return f"{lateness.collectives} of {lateness.of} collectives"


def _long_waits(journal: Journal, parts: Parts, collectives: SynchronizingCollectives) -> list[str]:
    """Collectives in which all ranks waited long for one."""
    if not len(collectives):
        return []
    least = max(SECOND, NOTEWORTHY * float(np.ptp(collectives.complete)))
    longest = np.argsort(-collectives.late, kind="stable")
    found = longest[collectives.late[longest] >= least][:MOST_NOTES]
    notes = []
    for late, part in zip(collectives.late[found].tolist(), collectives.last[found].tolist(), strict=True):
        what = collective_in_words(
            journal.operation(int(parts.row[part])),
            int(parts.sequence[part]),
            journal.groups[int(parts.group[part])],
        )
        notes.append(f"Rank {parts.rank[part]} arrived {duration(late)} late at {what}.")
    return notes


def _late_together(journal: Journal, parts: Parts, collectives: SynchronizingCollectives) -> list[str]:
    """Ranks that are late together, such as those of one host."""
    found = ranks_late_together(journal, parts, collectives)
    if not found:
        return []
    return [
        f"{ranks_in_words(found.ranks)} usually arrive {duration(found.lag_ns)} after the others: a slow host, "
        "more work, or a clock that is ahead. The dumps do not show which."
    ]


# Arrivals at collectives in which every rank waits for all others.


class SynchronizingCollectives(Table, frozen=True):
    """Collectives in which every rank waits for all others, and in which all recorded ranks of the group take part."""

    begin: Int64s
    """The first part; the others follow."""
    size: Int64s
    last: Int64s
    """The part that was created last."""
    complete: Int64s
    """When the last part was created."""
    late: Int64s
    """How long after the last but one."""

    def collective_of_parts(self) -> Int64s:
        """For all parts of all these collectives, in order, the row of their collective."""
        return np.repeat(np.arange(len(self)), self.size)

    def parts(self) -> Int64s:
        """All parts of all these collectives, in order."""
        before = np.cumsum(self.size) - self.size
        rows: Int64s = np.arange(int(self.size.sum())) + np.repeat(self.begin - before, self.size)
        return rows


def synchronizing_collectives(journal: Journal, parts: Parts, created: Int64s) -> SynchronizingCollectives:
    """Those of at least two ranks; `created` are the creation times of parts, by one clock."""
    first = starts_of(parts.collective)
    size = np.diff(np.append(first, len(parts)))
    chosen = (size > 1) & (size == _recorded_members(journal, parts, first, size)[parts.group[first]])
    chosen &= synchronizing_requests(journal)[journal.records.request[parts.row[first]]]
    if len(first):
        chosen &= np.minimum.reduceat(created, first) != NO_TIME
    first, size = first[chosen], size[chosen]
    empty = np.empty(0, np.int64)
    collectives = SynchronizingCollectives(first, size, empty, empty, empty)
    return _with_times(collectives, created) if len(first) else collectives


def _recorded_members(journal: Journal, parts: Parts, first: Int64s, size: Int64s) -> Int64s:
    """For each group how many of its members have a recording."""
    recorded = set(journal.recordings)
    described = [len(recorded.intersection(group.ranks)) for group in journal.groups]
    most = np.array(described, np.int64)
    np.maximum.at(most, parts.group[first], size)
    return most


def _with_times(collectives: SynchronizingCollectives, created: Int64s) -> SynchronizingCollectives:
    part, own = collectives.parts(), collectives.collective_of_parts()
    first = np.cumsum(collectives.size) - collectives.size
    times = created[part]
    complete = np.maximum.reduceat(times, first)
    positions = np.flatnonzero(times == complete[own])[::-1]
    last = np.empty(len(collectives), np.int64)
    last[own[positions]] = positions
    times[last] = NO_TIME
    late = complete - np.maximum.reduceat(times, first)
    return SynchronizingCollectives(collectives.begin, collectives.size, part[last], complete, late)


def lateness_of(journal: Journal, parts: Parts, collectives: SynchronizingCollectives) -> list[Lateness]:
    """Every rank that arrived last at a collective, sorted by how long the others waited for it."""
    rank = parts.rank[collectives.last]
    ranks = int(journal.ranks.max(initial=-1)) + 1
    total = np.zeros(ranks, np.int64)
    np.add.at(total, rank, collectives.late)
    count = np.bincount(rank[collectives.late > 0], minlength=ranks)
    of = np.bincount(parts.rank[collectives.parts()], minlength=ranks)
    worst = _worst(rank, collectives.late, ranks)
    late = np.flatnonzero(count)
    by_cost = late[np.argsort(-total[late], kind="stable")].tolist()
    return [
        _lateness(
            journal,
            parts,
            collectives,
            int(worst[number]),
            (int(count[number]), int(of[number]), int(total[number])),
        )
        for number in by_cost
    ]


def _worst(rank: Int32s, late: Int64s, ranks: int) -> Int64s:
    """For each rank the first of the collectives at which it arrived latest."""
    worst = np.zeros(ranks, np.int64)
    order = np.argsort(late, kind="stable")[::-1]
    worst[rank[order][::-1]] = order[::-1]
    return worst


def _lateness(
    journal: Journal,
    parts: Parts,
    collectives: SynchronizingCollectives,
    worst: int,
    counts: tuple[int, int, int],
) -> Lateness:
    part = int(collectives.last[worst])
    group = journal.groups[int(parts.group[part])]
    came_last, of, total = counts
    return Lateness(
        int(parts.rank[part]),
        came_last,
        of,
        int(collectives.late[worst]),
        total,
        group.name,
        int(parts.sequence[part]),
    )


# Ranks that are late together, such as those of a slow host.


class LateRanks(Struct, frozen=True):
    """Ranks that usually arrive late together, and by how much."""

    ranks: tuple[int, ...]
    lag_ns: int


def ranks_late_together(
    journal: Journal, parts: Parts, collectives: SynchronizingCollectives
) -> LateRanks | None:
    """The ranks, at most half of all, that the others wait for in the largest group."""
    largest = collectives.size == collectives.size.max(initial=0)
    if np.count_nonzero(largest) < FEWEST_COLLECTIVES:
        return None
    span, count = int(np.ptp(collectives.complete)), int(np.count_nonzero(largest))
    if _spread(parts, collectives)[largest].sum() < COSTLY * span:
        return None
    lags = lags_of(journal)
    comparable = np.flatnonzero(lags.component == np.bincount(lags.component).argmax())
    order = comparable[np.argsort(lags.lag[comparable])]
    steps = np.diff(lags.lag[order])
    # all ranks of a host are equally late: one step is as high as all others together
    first = len(order) // 2 + int(steps[len(order) // 2 - 1 :].argmax()) if len(order) > 3 else len(order)
    late, others = order[first:], order[:first]
    if len(late) < 2 or len(others) < len(late):
        return None
    step = float(lags.lag[late].min() - lags.lag[others].max())
    if step < NOTICEABLE_NS or 2 * step < np.ptp(lags.lag[order]) or step * count < COSTLY * span:
        return None
    usual = float(np.median(lags.lag[late]) - np.median(lags.lag[others]))
    return LateRanks(tuple(sorted(journal.ranks[late].tolist())), round(usual))


def _spread(parts: Parts, collectives: SynchronizingCollectives) -> Int64s:
    """Time between the first and the last arrival at each collective."""
    first = np.cumsum(collectives.size) - collectives.size
    spread: Int64s = collectives.complete - np.minimum.reduceat(parts.created[collectives.parts()], first)
    return spread


# Stragglers: ranks that others wait for again and again.


class Straggler(Struct, frozen=True):
    """A rank that others wait for."""

    rank: int
    certain: bool
    """Whether a clock that is ahead cannot explain it."""
    share: float
    """Share of the time that others waited for it."""
    usual_ns: int
    """The median of these waits."""
    latest: int
    """Its part in the collective at which it arrived latest."""
    waiting: tuple[int, ...]
    """The ranks that waited for it."""


def stragglers_of(
    journal: Journal, parts: Parts, collectives: SynchronizingCollectives, created: Int64s
) -> list[Straggler]:
    """The ranks that others wait for, the most expensive first."""
    span = float(np.ptp(collectives.complete)) if len(collectives) else 0.0
    if span <= 0:
        return []
    late = np.zeros(int(journal.ranks.max()) + 1)
    np.add.at(late, parts.rank[collectives.last], collectives.late)
    candidates = np.flatnonzero(late >= COSTLY * span)
    candidates = candidates[np.argsort(-late[candidates], kind="stable")][:MOST_CANDIDATES]
    stragglers = [
        _straggler(journal, parts, arrival_times(journal, parts, collectives, created, rank), rank, span)
        for rank in candidates.tolist()
    ]
    return sorted(
        (straggler for straggler in stragglers if straggler), key=lambda straggler: -straggler.share
    )


def _straggler(
    journal: Journal, parts: Parts, groups: Sequence[ArrivalTimes], rank: int, span: float
) -> Straggler | None:
    part = np.concatenate([group.part for group in groups])
    late = np.concatenate([group.late for group in groups])
    blame = np.where(_delayed_by_others(journal, parts, part, late), 0.0, np.maximum(late, 0.0))
    all_late = np.concatenate([_late_of_last(group) for group in groups])
    if len(part) < FEWEST_COLLECTIVES or blame.sum() < MOST * all_late.sum():
        return None
    clocks = [possible_clock_lead(group) for group in groups]
    sizes = [len(group.part) for group in groups]
    ahead = np.repeat([ahead for ahead, _ in clocks], sizes)
    surely = np.repeat([ahead * sure for ahead, sure in clocks], sizes)
    for lead in (ahead, surely):
        certain = np.maximum(blame - lead, 0.0)
        waited = _Waited.of(groups, certain)
        if waited.is_habit(span):
            latest = int(part[certain.argmax()])
            share = waited.longest / span
            return Straggler(rank, lead is ahead, share, waited.usual, latest, waited.ranks)
    return None


def _late_of_last(group: ArrivalTimes) -> Float64s:
    """How long the last rank arrived after all others, whichever rank it is."""
    times = np.sort(np.column_stack([group.own, group.arrived]), axis=1)
    late: Float64s = times[:, -1] - times[:, -2]
    return late


class _Waited(Struct, frozen=True):
    """How long other ranks did nothing until a rank arrived."""

    by_rank: dict[int, float]
    by_round: Float64s
    """The mean of the other ranks, for each collective."""

    @classmethod
    def of(cls, groups: Sequence[ArrivalTimes], blame: Float64s) -> _Waited:
        """`blame` is for how much of the time of each collective the rank is to blame."""
        by_rank: dict[int, float] = {}
        by_round = []
        start = 0
        for group in groups:
            end = start + len(group.part)
            waited = (group.next >= group.own[:, None]) * blame[start:end, None]
            by_round.append(waited.mean(axis=1))
            for rank, time in zip(group.others.tolist(), waited.sum(axis=0).tolist(), strict=True):
                by_rank[rank] = by_rank.get(rank, 0.0) + time
            start = end
        return cls(by_rank, np.concatenate(by_round))

    @property
    def longest(self) -> float:
        """Total time of the rank that waited longest."""
        return max(self.by_rank.values(), default=0.0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that waited long."""
        return tuple(sorted(rank for rank, time in self.by_rank.items() if time >= self.longest / 2))

    @property
    def usual(self) -> int:
        """Median wait, where the wait was noticeable."""
        return int(np.median(self._noticed)) if len(self._noticed) else 0

    @property
    def _noticed(self) -> Float64s:
        noticed: Float64s = self.by_round[self.by_round > self.by_round.max(initial=0.0) / 10]
        return noticed

    def is_habit(self, span: float) -> bool:
        """Whether they waited often, and for a large share of the time even without the longest waits."""
        exceptions = float(np.sort(self.by_round)[-EXCEPTIONS:].sum())
        often = len(self._noticed) >= FEWEST_TIMES and self.usual >= NOTICEABLE_NS
        return often and self.longest - exceptions >= COSTLY * span


def _delayed_by_others(journal: Journal, parts: Parts, part: Int64s, late: Float64s) -> Bools:
    """Whether the rank was late because it had just waited for other ranks, or for messages."""
    index_of = {row: index for index, row in enumerate(parts.last[part].tolist())}
    created = journal.records.created
    delayed = np.zeros(len(part), np.bool_)
    for index in np.argsort(parts.row[part], kind="stable").tolist():
        row, half = int(parts.row[part[index]]), late[index] / 2
        previous = _previous_entry(journal, row, half)
        if late[index] <= 0 or previous is None:
            continue
        if journal.records.point_to_point[previous]:
            delayed[index] = True
        elif previous in index_of:
            earlier = index_of[previous]
            since = created[row] - created[parts.row[part[earlier]]]
            held_up = -late[earlier] >= half and since >= -late[earlier]
            # in its own group all ranks were level again once it had arrived
            carried_on = since < half or parts.group[part[earlier]] != parts.group[part[index]]
            delayed[index] = held_up or (delayed[earlier] and late[earlier] >= half and carried_on)
    return delayed


def _previous_entry(journal: Journal, row: int, held_ns: float) -> int | None:
    """The entry before, skipping messages that cannot have delayed the rank this long."""
    records = journal.records
    previous = row - 1
    while previous >= 0 and journal.rank[previous] == journal.rank[row]:
        if (
            not records.point_to_point[previous]
            or records.created[row] - records.created[previous] >= held_ns
        ):
            return previous
        previous -= 1
    return None


# Clocks: how much of a rank's lateness a clock that is ahead may explain.


class ArrivalTimes(Struct, frozen=True):
    """Times in the collectives of one group, a row for each; a column for each other rank; in ns from one zero."""

    part: Int64s
    """The rank's own part."""
    others: Int32s
    """The other ranks."""
    own: Float64s
    """When the rank arrived."""
    arrived: Float64s
    """When each of the other ranks arrived."""
    next: Float64s
    """When each of the other ranks created its next entry, in any group; inf if there is none."""
    own_completed: Float64s
    completed: Float64s
    """When its recorder saw the collective completed, or NaN."""

    @property
    def late(self) -> Float64s:
        """How long after all others the rank arrived; negative if it was not the last."""
        late: Float64s = self.own - self.arrived.max(axis=1)
        return late


def arrival_times(
    journal: Journal, parts: Parts, collectives: SynchronizingCollectives, created: Int64s, rank: int
) -> list[ArrivalTimes]:
    """The arrival times in each group of a rank; `created` are the creation times of parts, by one clock."""
    rows, collective_of = collectives.parts(), collectives.collective_of_parts()
    own = np.flatnonzero(parts.rank[rows] == rank)
    groups = parts.group[rows[own]]
    zero = int(created[rows].min(initial=np.iinfo(np.int64).max))
    times_by_group = []
    for group in np.unique(groups).tolist():
        chosen = own[groups == group][-MOST_COLLECTIVES:]
        begin, size = (
            collectives.begin[collective_of[chosen]],
            int(collectives.size[collective_of[chosen[0]]]),
        )
        table = begin[:, None] + np.arange(size)
        column = int(rows[chosen[0]] - begin[0])
        others = np.delete(table, column, axis=1)
        times = _Times(journal, parts, created, zero)
        times_by_group.append(
            ArrivalTimes(
                rows[chosen],
                parts.rank[others[0]],
                times.created(rows[chosen]),
                times.created(others),
                times.following(others),
                times.completed(rows[chosen]),
                times.completed(others),
            )
        )
    return times_by_group


class _Times(Struct, frozen=True):
    """Times of parts by one clock, from one zero."""

    journal: Journal
    parts: Parts
    clock: Int64s
    zero: int

    def created(self, part: Int64s) -> Float64s:
        return (self.clock[part] - self.zero).astype(np.float64)

    def following(self, part: Int64s) -> Float64s:
        last = self.parts.last[part]
        after = np.minimum(last + 1, len(self.journal) - 1)
        exists = (after > last) & (self.journal.rank[after] == self.parts.rank[part])
        time = np.where(exists, self.journal.records.created[after], NO_TIME)
        return self._by_clock(part, time, np.inf)

    def completed(self, part: Int64s) -> Float64s:
        return self._by_clock(part, self.journal.records.completed[self.parts.last[part]], np.nan)

    def _by_clock(self, part: Int64s, time: Int64s, unknown: float) -> Float64s:
        known = time != NO_TIME
        shift = self.clock[part] - self.parts.created[part] - self.zero
        return np.where(known, (np.where(known, time, 0) + shift).astype(np.float64), unknown)


def times_by_one_clock(
    journal: Journal, parts: Parts, collectives: SynchronizingCollectives
) -> Int64s | None:
    """Corrected creation times of parts if clocks differ: all ranks are then equally late on average.

    None if, by their own clocks, ranks may have left all collectives after all had joined.
    """
    if not len(collectives):
        return None
    part = collectives.parts()
    left, tolerated = _leave_times(journal, parts, part)
    early = _left_early(collectives, parts.created[part], left)
    if np.mean(early) <= tolerated:
        return None
    lag = lags_of(journal).lag
    if tolerated and np.ptp(lag) < RUN_AHEAD_NS:
        return None
    lags = np.rint(lag).astype(np.int64)[np.searchsorted(journal.ranks, parts.rank)]
    times = parts.created[part] - lags[part]
    corrected = _left_early(collectives, times, np.where(left == NEVER, NEVER, left - lags[part]))
    if np.count_nonzero(corrected) > np.count_nonzero(early) / 2:
        return None
    return np.where(parts.created == NO_TIME, NO_TIME, parts.created - lags)


def _leave_times(journal: Journal, parts: Parts, rows: Int64s) -> tuple[Int64s, float]:
    """When each part had certainly been left, and the share of collectives for which that may be wrong.

    It is when the recorder saw it completed; for recorders that do not, when the rank created its next entry.
    """
    last = parts.last[rows]
    completed = journal.records.completed[last]
    if (completed != NO_TIME).any():
        return np.where(completed == NO_TIME, NEVER, completed), 0.0
    next_row = np.minimum(last + 1, len(journal) - 1)
    next_created = journal.records.created[next_row]
    known = (next_row > last) & (journal.rank[next_row] == parts.rank[rows]) & (next_created != NO_TIME)
    return np.where(known, next_created, NEVER), OFTEN


def _left_early(collectives: SynchronizingCollectives, arrived: Int64s, left: Int64s) -> Bools:
    """Whether a rank left a collective before all had joined it."""
    first = np.cumsum(collectives.size) - collectives.size
    early: Bools = np.minimum.reduceat(left, first) < np.maximum.reduceat(arrived, first) - TOLERANCE_NS
    return early


def possible_clock_lead(times: ArrivalTimes) -> tuple[float, bool]:
    """By how much a rank's clock may be ahead of the others of a group, in ns; and whether it certainly is."""
    always = _nearly_always(times.own - np.median(times.arrived, axis=1))
    if always <= 0:
        return 0.0, False
    ends = _lead_by_completion(times)
    ahead = max(0.0, min(always, ends, _lead_by_prompt_start(times, always)))
    return ahead, bool(np.isfinite(ends))


def _nearly_always(values: Float64s) -> float:
    """A lower bound of nearly all values."""
    known = values[np.isfinite(values)]
    return float(np.quantile(known, RARELY)) if len(known) else np.inf


def _lead_by_completion(times: ArrivalTimes) -> float:
    """All ranks leave together and watchdogs poll equally often: if a rank sees it later, its clock is ahead."""
    later = times.own_completed - np.median(times.completed, axis=1)
    later = later[np.isfinite(later)]
    seen_over = np.sort(times.own_completed[np.isfinite(times.own_completed)])
    looks = 1 + int(np.count_nonzero(np.diff(seen_over) > ONE_POLL_NS))
    if min(len(later), looks) < FEWEST_POLLS:
        return np.inf
    middle = float(np.median(later))
    deviation = 1.4826 * float(np.median(np.abs(later - middle)))
    # three standard errors of a median
    return middle + 3 * 1.2533 * deviation / float(np.sqrt(looks))


def _lead_by_prompt_start(times: ArrivalTimes, always: float) -> float:
    """That others continue right after a rank arrived is hardly a coincidence."""
    soon = _nearly_always(times.next.min(axis=1) - times.own)
    return soon if always >= PROMPT_NS and 0 <= soon <= PROMPT * always else np.inf
