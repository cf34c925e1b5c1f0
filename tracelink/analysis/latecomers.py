"""Who comes late to collectives: as a table, as problems where it is a habit that costs, and as notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.analysis.clock_doubt import by_one_clock
from tracelink.analysis.late_together import late_together
from tracelink.analysis.lateness import lateness_of
from tracelink.analysis.parts import Parts
from tracelink.analysis.rounds import Rounds, rounds_of
from tracelink.analysis.stragglers import Straggler, stragglers_of
from tracelink.analysis.wording import SECOND, collective_in_words, duration, lowered, ranks_in_words
from tracelink.diagnosis import Kind, Lateness, Problem
from tracelink.journal import Journal

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
