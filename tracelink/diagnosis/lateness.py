"""Who comes late: habit, host or clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.clock.observations import Floats
from tracelink.diagnosis.clocks import lags_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Kind, Lateness, Problem
from tracelink.diagnosis.participation import Parts
from tracelink.model.columns import NO_TIME, SECOND, Bools, Columns, Int32s, Int64s, starts_of
from tracelink.model.operations import SYNCHRONIZING, operation_of
from tracelink.text import collective_in_words, duration, lowered, ranks_in_words

# Rounds: collectives in which all wait for all, and of which it is known when each rank asked for them.


@dataclass(frozen=True, slots=True)
class Rounds(Columns):
    """One row for each round in which all ranks of the group that have a dump take part."""

    begin: Int64s
    """Its first part; the others follow."""
    size: Int64s
    last: Int64s
    """The part that was created last."""
    came: Int64s
    """When that was."""
    late: Int64s
    """How long after the last but one."""

    def __len__(self) -> int:
        return len(self.begin)

    def of_parts(self) -> Int64s:
        """For all parts of all rounds, in order, the row of their round."""
        return np.repeat(np.arange(len(self)), self.size)

    def parts(self) -> Int64s:
        """All parts of all rounds, in order."""
        before = np.cumsum(self.size) - self.size
        rows: Int64s = np.arange(int(self.size.sum())) + np.repeat(self.begin - before, self.size)
        return rows


def rounds_of(journal: Journal, parts: Parts, created: Int64s) -> Rounds:
    """All rounds of two ranks and more; `created` is when each part was, by one clock."""
    begin = starts_of(parts.round)
    size = np.diff(np.append(begin, len(parts)))
    kept = (size > 1) & (size == _present(journal, parts, begin, size)[parts.group[begin]])
    kept &= _synchronizing(journal)[journal.records.request[parts.row[begin]]]
    if len(begin):
        kept &= np.minimum.reduceat(created, begin) != NO_TIME
    begin, size = begin[kept], size[kept]
    none = np.empty(0, np.int64)
    rounds = Rounds(begin, size, none, none, none)
    return _timed(rounds, created) if len(begin) else rounds


def _present(journal: Journal, parts: Parts, begin: Int64s, size: Int64s) -> Int64s:
    """For each group how many of its members can tell when they came."""
    here = set(journal.recordings)
    described = [len(here.intersection(group.ranks)) for group in journal.groups]
    most = np.array(described, np.int64)
    np.maximum.at(most, parts.group[begin], size)
    return most


def _synchronizing(journal: Journal) -> Bools:
    """For each request whether nobody leaves it before the last has entered."""
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    return np.array([name in SYNCHRONIZING for name in names], np.bool_)


def _timed(rounds: Rounds, created: Int64s) -> Rounds:
    rows, own = rounds.parts(), rounds.of_parts()
    first = np.cumsum(rounds.size) - rounds.size
    times = created[rows]
    came = np.maximum.reduceat(times, first)
    places = np.flatnonzero(times == came[own])[::-1]
    last = np.empty(len(rounds), np.int64)
    last[own[places]] = places
    times[last] = NO_TIME
    late = came - np.maximum.reduceat(times, first)
    return Rounds(rounds.begin, rounds.size, rows[last], came, late)


# Who came late to which collective, and by how much.


def lateness_of(journal: Journal, parts: Parts, rounds: Rounds) -> list[Lateness]:
    """Every rank that came last to anything, the one that others waited for longest first."""
    rank = parts.rank[rounds.last]
    ranks = int(journal.ranks.max(initial=-1)) + 1
    total = np.zeros(ranks, np.int64)
    np.add.at(total, rank, rounds.late)
    count = np.bincount(rank[rounds.late > 0], minlength=ranks)
    of = np.bincount(parts.rank[rounds.parts()], minlength=ranks)
    worst = _worst(rank, rounds.late, ranks)
    late = np.flatnonzero(count)
    return [
        _lateness(journal, parts, rounds, int(worst[one]), (int(count[one]), int(of[one]), int(total[one])))
        for one in late[np.argsort(-total[late], kind="stable")].tolist()
    ]


def _worst(rank: Int32s, late: Int64s, ranks: int) -> Int64s:
    """For each rank the round to which it came latest; the first of these."""
    worst = np.zeros(ranks, np.int64)
    order = np.argsort(late, kind="stable")[::-1]
    worst[rank[order][::-1]] = order[::-1]
    return worst


def _lateness(
    journal: Journal, parts: Parts, rounds: Rounds, worst: int, counts: tuple[int, int, int]
) -> Lateness:
    part = int(rounds.last[worst])
    group = journal.groups[int(parts.group[part])]
    came_last, of, total = counts
    return Lateness(
        int(parts.rank[part]),
        came_last,
        of,
        int(rounds.late[worst]),
        total,
        group.name,
        int(parts.sequence[part]),
    )


# Ranks that usually come late together, as those of one slow host do.


FEWEST_ROUNDS = 20
NOTICEABLE_NS = 1_000_000
COSTLY = 0.2
"""The share of the time that others wait for them."""


@dataclass(frozen=True, slots=True)
class LateTogether:
    """Some ranks, and how much later than the others they usually come."""

    ranks: tuple[int, ...]
    lag_ns: int


def late_together(journal: Journal, parts: Parts, rounds: Rounds) -> LateTogether | None:
    """The ranks, no more than half of all, that others have to wait for in the largest group."""
    largest = rounds.size == rounds.size.max(initial=0)
    if np.count_nonzero(largest) < FEWEST_ROUNDS:
        return None
    span, count = int(np.ptp(rounds.came)), int(np.count_nonzero(largest))
    if _spread(parts, rounds)[largest].sum() < COSTLY * span:
        return None
    lags = lags_of(journal)
    comparable = np.flatnonzero(lags.union == np.bincount(lags.union).argmax())
    order = comparable[np.argsort(lags.lag[comparable])]
    steps = np.diff(lags.lag[order])
    # of a host all ranks are late alike: one step is as high as all others together
    first = len(order) // 2 + int(steps[len(order) // 2 - 1 :].argmax()) if len(order) > 3 else len(order)
    late, others = order[first:], order[:first]
    if len(late) < 2 or len(others) < len(late):
        return None
    step = float(lags.lag[late].min() - lags.lag[others].max())
    if step < NOTICEABLE_NS or 2 * step < np.ptp(lags.lag[order]) or step * count < COSTLY * span:
        return None
    usual = float(np.median(lags.lag[late]) - np.median(lags.lag[others]))
    return LateTogether(tuple(sorted(journal.ranks[late].tolist())), round(usual))


def _spread(parts: Parts, rounds: Rounds) -> Int64s:
    """How long the last of each round came after the first."""
    first = np.cumsum(rounds.size) - rounds.size
    spread: Int64s = rounds.came - np.minimum.reduceat(parts.created[rounds.parts()], first)
    return spread


# When one rank, and when all others, came to the collectives that wait for it.


MOST_ROUNDS = 1000
"""So many of the newest rounds of a group are looked at."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """The rounds of one group: a row for each; of times of others a column for each, in ns from one zero."""

    part: Int64s
    """The rank's own."""
    others: Int32s
    """The other ranks."""
    own: Floats
    came: Floats
    """When each of the others came."""
    next: Floats
    """When each of the others did the next thing, in any group; inf where nothing follows."""
    own_over: Floats
    over: Floats
    """When its recorder saw that the collective was over, or NaN."""

    @property
    def late(self) -> Floats:
        """How long after all others the rank came; below 0 where it was not the last."""
        late: Floats = self.own - self.came.max(axis=1)
        return late


def attendances(
    journal: Journal, parts: Parts, rounds: Rounds, created: Int64s, rank: int
) -> list[Attendance]:
    """One for each group of the rank; `created` is when each part was, by one clock."""
    rows, round_of = rounds.parts(), rounds.of_parts()
    own = np.flatnonzero(parts.rank[rows] == rank)
    groups = parts.group[rows[own]]
    zero = int(created[rows].min(initial=np.iinfo(np.int64).max))
    found = []
    for group in np.unique(groups).tolist():
        mine = own[groups == group][-MOST_ROUNDS:]
        begin, size = rounds.begin[round_of[mine]], int(rounds.size[round_of[mine[0]]])
        table = begin[:, None] + np.arange(size)
        column = int(rows[mine[0]] - begin[0])
        others = np.delete(table, column, axis=1)
        times = _Times(journal, parts, created, zero)
        found.append(
            Attendance(
                rows[mine],
                parts.rank[others[0]],
                times.created(rows[mine]),
                times.created(others),
                times.following(others),
                times.over(rows[mine]),
                times.over(others),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Times:
    """Times of parts, all from the same zero and by the same clock."""

    journal: Journal
    parts: Parts
    clock: Int64s
    zero: int

    def created(self, part: Int64s) -> Floats:
        return (self.clock[part] - self.zero).astype(np.float64)

    def following(self, part: Int64s) -> Floats:
        last = self.parts.last[part]
        after = np.minimum(last + 1, len(self.journal) - 1)
        exists = (after > last) & (self.journal.rank[after] == self.parts.rank[part])
        time = np.where(exists, self.journal.records.created[after], NO_TIME)
        return self._by_clock(part, time, np.inf)

    def over(self, part: Int64s) -> Floats:
        return self._by_clock(part, self.journal.records.completed[self.parts.last[part]], np.nan)

    def _by_clock(self, part: Int64s, time: Int64s, unknown: float) -> Floats:
        known = time != NO_TIME
        shift = self.clock[part] - self.parts.created[part] - self.zero
        return np.where(known, (np.where(known, time, 0) + shift).astype(np.float64), unknown)


# How much of what looks like being late may be a clock that is ahead.


TOLERANCE_NS = 100_000
SELDOM = 0.1
"""What is so in fewer rounds is an exception, and no property of a clock."""
OFTEN = 0.25
RUN_AHEAD_NS = 10_000_000
"""Ranks may go on before a collective is over; if it seems so this often and by so much, it is rather their clocks."""

ONE_LOOK_NS = 1_000_000
"""What a watchdog sees to be over within this time it has seen at one look."""
FEWEST_LOOKS = 20
"""So many make an average of when it sees what is over."""
NEVER = np.iinfo(np.int64).max
PROMPT_NS = 20_000_000
PROMPT = 0.1
"""Where others go on so soon after it came, as a share of how late it was, they waited for it."""


def by_one_clock(journal: Journal, parts: Parts, rounds: Rounds) -> Int64s | None:
    """When each part was created, if clocks differ: all ranks then come equally late on average.

    None where ranks may well have left all rounds after everybody came, by the clocks they have.
    """
    if not len(rounds):
        return None
    rows = rounds.parts()
    left, most = _left(journal, parts, rows)
    early = _early(rounds, parts.created[rows], left)
    if np.mean(early) <= most:
        return None
    lag = lags_of(journal).lag
    if most and np.ptp(lag) < RUN_AHEAD_NS:
        return None
    lags = np.rint(lag).astype(np.int64)[np.searchsorted(journal.ranks, parts.rank)]
    times = parts.created[rows] - lags[rows]
    corrected = _early(rounds, times, np.where(left == NEVER, NEVER, left - lags[rows]))
    if np.count_nonzero(corrected) > np.count_nonzero(early) / 2:
        return None
    return np.where(parts.created == NO_TIME, NO_TIME, parts.created - lags)


def _left(journal: Journal, parts: Parts, rows: Int64s) -> tuple[Int64s, float]:
    """When each part had certainly been left; and of how many rounds that may be untrue.

    It is what the recorder saw. Of recorders that see nothing, the next thing that the rank did.
    """
    last = parts.last[rows]
    over = journal.records.completed[last]
    if (over != NO_TIME).any():
        return np.where(over == NO_TIME, NEVER, over), 0.0
    after = np.minimum(last + 1, len(journal) - 1)
    following = journal.records.created[after]
    known = (after > last) & (journal.rank[after] == parts.rank[rows]) & (following != NO_TIME)
    return np.where(known, following, NEVER), OFTEN


def _early(rounds: Rounds, came: Int64s, left: Int64s) -> Bools:
    """Whether somebody left a round before everybody had come."""
    first = np.cumsum(rounds.size) - rounds.size
    early: Bools = np.minimum.reduceat(left, first) < np.maximum.reduceat(came, first) - TOLERANCE_NS
    return early


def possibly_ahead(seen: Attendance) -> tuple[float, bool]:
    """By how much the rank's clock may be ahead of those of the others in a group, in ns; and whether it surely is."""
    always = _usual(seen.own - np.median(seen.came, axis=1))
    if always <= 0:
        return 0.0, False
    ends = _by_ends(seen)
    ahead = max(0.0, min(always, ends, _prompt(seen, always)))
    return ahead, bool(np.isfinite(ends))


def _usual(values: Floats) -> float:
    """What nearly all are above."""
    known = values[np.isfinite(values)]
    return float(np.quantile(known, SELDOM)) if len(known) else np.inf


def _by_ends(seen: Attendance) -> float:
    """All leave together, and watchdogs look equally often: what one sees later, its clock is ahead."""
    later = seen.own_over - np.median(seen.over, axis=1)
    later = later[np.isfinite(later)]
    seen_over = np.sort(seen.own_over[np.isfinite(seen.own_over)])
    looks = 1 + int(np.count_nonzero(np.diff(seen_over) > ONE_LOOK_NS))
    if min(len(later), looks) < FEWEST_LOOKS:
        return np.inf
    middle = float(np.median(later))
    deviation = 1.4826 * float(np.median(np.abs(later - middle)))
    # three standard errors of a median
    return middle + 3 * 1.2533 * deviation / float(np.sqrt(looks))


def _prompt(seen: Attendance, always: float) -> float:
    """Others go on right after it came: by chance that is hardly so."""
    soon = _usual(seen.next.min(axis=1) - seen.own)
    return soon if always >= PROMPT_NS and 0 <= soon <= PROMPT * always else np.inf


# Ranks for which others wait over and over, for a good part of the time.


FEWEST_TIMES = 4
"""So often others must have waited for it: not once or twice, and not only where a job begins."""
"""The share of the time for which others wait for it."""
MOST = 2 / 3
"""Of all lateness where it takes part, the share that is its own."""
EXCEPTIONS = 1
"""So many of the longest waits are left out of account: without them a habit is still one."""
MOST_CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank for which others wait."""

    rank: int
    certain: bool
    """Whether its clock cannot make it look so."""
    share: float
    """Of the time that the others waited for it."""
    usual_ns: int
    """How long others waited where they did: the median."""
    latest: int
    """Its part in the round to which it came latest."""
    waiting: tuple[int, ...]
    """The others, who waited for it."""


def stragglers_of(journal: Journal, parts: Parts, rounds: Rounds, created: Int64s) -> list[Straggler]:
    """Who costs others most of their time first."""
    span = float(np.ptp(rounds.came)) if len(rounds) else 0.0
    if span <= 0:
        return []
    late = np.zeros(int(journal.ranks.max()) + 1)
    np.add.at(late, parts.rank[rounds.last], rounds.late)
    candidates = np.flatnonzero(late >= COSTLY * span)
    candidates = candidates[np.argsort(-late[candidates], kind="stable")][:MOST_CANDIDATES]
    judged = [
        _judged(journal, parts, attendances(journal, parts, rounds, created, rank), rank, span)
        for rank in candidates.tolist()
    ]
    return sorted((one for one in judged if one), key=lambda one: -one.share)


def _judged(
    journal: Journal, parts: Parts, groups: Sequence[Attendance], rank: int, span: float
) -> Straggler | None:
    part = np.concatenate([one.part for one in groups])
    late = np.concatenate([one.late for one in groups])
    blame = np.where(_inherited(journal, parts, part, late), 0.0, np.maximum(late, 0.0))
    all_late = np.concatenate([_late_of_last(one) for one in groups])
    if len(part) < FEWEST_ROUNDS or blame.sum() < MOST * all_late.sum():
        return None
    clocks = [possibly_ahead(one) for one in groups]
    sizes = [len(one.part) for one in groups]
    ahead = np.repeat([ahead for ahead, _ in clocks], sizes)
    surely = np.repeat([ahead * sure for ahead, sure in clocks], sizes)
    for doubt in (ahead, surely):
        certain = np.maximum(blame - doubt, 0.0)
        waited = _Waited.of(groups, certain)
        if waited.is_habit(span):
            latest = int(part[certain.argmax()])
            share = waited.longest / span
            return Straggler(rank, doubt is ahead, share, waited.usual, latest, waited.ranks)
    return None


def _late_of_last(group: Attendance) -> Floats:
    """How much later than all others the last came, whoever that is."""
    times = np.sort(np.column_stack([group.own, group.came]), axis=1)
    late: Floats = times[:, -1] - times[:, -2]
    return late


@dataclass(frozen=True, slots=True)
class _Waited:
    """How long others did nothing else until a rank came."""

    by_rank: dict[int, float]
    by_round: Floats
    """The mean of the others."""

    @classmethod
    def of(cls, groups: Sequence[Attendance], blame: Floats) -> _Waited:
        """`blame` is for how much of the time of each round the rank is to blame."""
        by_rank: dict[int, float] = {}
        by_round = []
        begin = 0
        for one in groups:
            end = begin + len(one.part)
            waited = (one.next >= one.own[:, None]) * blame[begin:end, None]
            by_round.append(waited.mean(axis=1))
            for other, time in zip(one.others.tolist(), waited.sum(axis=0).tolist(), strict=True):
                by_rank[other] = by_rank.get(other, 0.0) + time
            begin = end
        return cls(by_rank, np.concatenate(by_round))

    @property
    def longest(self) -> float:
        """How long the one waited that waited longest."""
        return max(self.by_rank.values(), default=0.0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who waited for long."""
        return tuple(sorted(rank for rank, time in self.by_rank.items() if time >= self.longest / 2))

    @property
    def usual(self) -> int:
        """For how long others usually waited, where they did."""
        return int(np.median(self._noticed)) if len(self._noticed) else 0

    @property
    def _noticed(self) -> Floats:
        noticed: Floats = self.by_round[self.by_round > self.by_round.max(initial=0.0) / 10]
        return noticed

    def is_habit(self, span: float) -> bool:
        """Whether they waited often, and for a good part of the time even without the greatest exceptions."""
        exceptions = float(np.sort(self.by_round)[-EXCEPTIONS:].sum())
        often = len(self._noticed) >= FEWEST_TIMES and self.usual >= NOTICEABLE_NS
        return often and self.longest - exceptions >= COSTLY * span


def _inherited(journal: Journal, parts: Parts, part: Int64s, late: Floats) -> Bools:
    """Whether the rank was late because it had waited for others just before, or for messages."""
    place = {row: number for number, row in enumerate(parts.last[part].tolist())}
    created = journal.records.created
    inherited = np.zeros(len(part), np.bool_)
    for number in np.argsort(parts.row[part], kind="stable").tolist():
        row, half = int(parts.row[part[number]]), late[number] / 2
        before = _before_messages(journal, row, half)
        if late[number] <= 0 or before is None:
            continue
        if journal.records.point_to_point[before]:
            inherited[number] = True
        elif before in place:
            earlier = place[before]
            since = created[row] - created[parts.row[part[earlier]]]
            held = -late[earlier] >= half and since >= -late[earlier]
            # in its own group all were level again once it had come
            carried = since < half or parts.group[part[earlier]] != parts.group[part[number]]
            inherited[number] = held or (inherited[earlier] and late[earlier] >= half and carried)
    return inherited


def _before_messages(journal: Journal, row: int, held_ns: float) -> int | None:
    """The entry before, leaving out messages that cannot have held the rank up for so long."""
    records = journal.records
    before = row - 1
    while before >= 0 and journal.rank[before] == journal.rank[row]:
        if not records.point_to_point[before] or records.created[row] - records.created[before] >= held_ns:
            return before
        before -= 1
    return None


# Who comes late to collectives: as a table, as problems where it is a habit that costs, and as notes.


NOTEWORTHY = 0.05
"""The share of the time for which all wait once."""
MOST_NOTES = 3
HABIT = 2 / 3
"""Of at least so many collectives a rank came last, if it does so by habit."""
HABITUAL_NS = 1_000_000
FEWEST_FOR_A_HABIT = 20


@dataclass(frozen=True, slots=True)
class Latecomers:
    """Who came late."""

    lateness: Sequence[Lateness]
    problems: Sequence[Problem] = ()
    """Those for whom others wait over and over."""
    notes: Sequence[str] = ()


def latecomers_of(journal: Journal, parts: Parts, *, stalled: bool = False) -> Latecomers:
    """All that times of creation tell; of a job that is `stalled` anyway, lateness is no problem of its own."""
    rounds, created, notes = rounds_of(journal, parts, parts.created), parts.created, []
    corrected = by_one_clock(journal, parts, rounds)
    if corrected is not None:
        rounds, created = rounds_of(journal, parts, corrected), corrected
        notes.append(
            "By their clocks, ranks left collectives before others came: the clocks differ. "
            "How late a rank came is counted from how late it usually comes."
        )
    lateness = lateness_of(journal, parts, rounds)
    settled = _without_first(parts, rounds)
    stragglers = stragglers_of(journal, parts, settled, created)
    if corrected is not None:
        # of two with different clocks nothing tells which of them is late
        stragglers = [one for one in stragglers if len(one.waiting) > 1]
    counted = {one.rank: one for one in lateness}
    problems = [_problem(journal, parts, one, counted[one.rank]) for one in stragglers if one.certain]
    notes += [_doubt(one, counted[one.rank]) for one in stragglers if not one.certain]
    if not stragglers:
        notes += _exceptions(journal, parts, settled)
    if not stragglers and corrected is None:
        notes += _together(journal, parts, settled)
    if stalled:
        return Latecomers(lateness, (), [*notes, *(one.message for one in problems)])
    return Latecomers(lateness, problems, notes)


def with_habits(problems: Sequence[Problem], lateness: Sequence[Lateness]) -> list[Problem]:
    """Of one rank that does not come at all, whether it always came late before."""
    habits = {one.rank: one for one in lateness if _is_habit(one)}
    return [
        replace(one, message=f"{one.message} Before, it came last to {_counted(habits[one.culprits[0]])}.")
        if one.kind in (Kind.NEVER_JOINED, Kind.LAGGING)
        and len(one.culprits) == 1
        and one.culprits[0] in habits
        else one
        for one in problems
    ]


def _is_habit(one: Lateness) -> bool:
    often = one.of >= FEWEST_FOR_A_HABIT and one.collectives >= HABIT * one.of
    return often and one.total_ns >= HABITUAL_NS * one.collectives


def _without_first(parts: Parts, rounds: Rounds) -> Rounds:
    """The rounds without the first of each group: to that ranks come from wherever they were started."""
    later = parts.sequence[rounds.begin] > 1
    return Rounds(*(column[later] for column in rounds.columns().values()))


def _problem(journal: Journal, parts: Parts, one: Straggler, lateness: Lateness) -> Problem:
    row = int(parts.row[one.latest])
    group = journal.groups[int(parts.group[one.latest])]
    others = "the others" if len(one.waiting) > 1 else lowered(ranks_in_words(one.waiting))
    return Problem(
        Kind.STRAGGLER,
        group.name,
        group.description,
        int(parts.sequence[one.latest]),
        journal.operation(row),
        (one.rank,),
        one.waiting,
        f"Rank {one.rank} came last to {_counted(lateness)}: {others} waited {round(100 * one.share)} % of the "
        f"time for it, usually {duration(one.usual_ns)}.",
        count=lateness.collectives,
        rows={one.rank: row},
    )


def _doubt(one: Straggler, lateness: Lateness) -> str:
    return (
        f"Rank {one.rank} came last to {_counted(lateness)}, always by about {duration(one.usual_ns)}: "
        "it is slow, or its clock is ahead; the dumps do not tell."
    )


def _counted(lateness: Lateness) -> str:
    return f"{lateness.collectives} of {lateness.of} collectives"


def _together(journal: Journal, parts: Parts, rounds: Rounds) -> list[str]:
    """Ranks that come late together, as those of one host do."""
    found = late_together(journal, parts, rounds)
    if not found:
        return []
    return [
        f"{ranks_in_words(found.ranks)} usually come {duration(found.lag_ns)} after the others: a slow host, "
        "more work, or a clock that is ahead; the dumps do not tell."
    ]


def _exceptions(journal: Journal, parts: Parts, rounds: Rounds) -> list[str]:
    """Rounds in which all waited for one rank for long."""
    if not len(rounds):
        return []
    least = max(SECOND, NOTEWORTHY * float(np.ptp(rounds.came)))
    longest = np.argsort(-rounds.late, kind="stable")
    found = longest[rounds.late[longest] >= least][:MOST_NOTES]
    notes = []
    for late, part in zip(rounds.late[found].tolist(), rounds.last[found].tolist(), strict=True):
        what = collective_in_words(
            journal.operation(int(parts.row[part])),
            int(parts.sequence[part]),
            journal.groups[int(parts.group[part])],
        )
        notes.append(f"Rank {parts.rank[part]} came {duration(late)} late to {what}.")
    return notes
