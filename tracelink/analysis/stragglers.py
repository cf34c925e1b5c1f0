"""Ranks for which others wait over and over, for a good part of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.attendance import Attendance, attendances
from tracelink.analysis.clock_doubt import possibly_ahead
from tracelink.analysis.parts import Parts
from tracelink.analysis.rounds import Rounds
from tracelink.clocks.segments import Floats
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal

FEWEST_ROUNDS = 20
FEWEST_TIMES = 4
"""So often others must have waited for it: not once or twice, and not only where a job begins."""
NOTICEABLE_NS = 1_000_000
COSTLY = 0.2
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
