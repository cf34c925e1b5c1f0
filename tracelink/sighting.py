"""Problems to sightings: of the ranks that a problem is about, and of no others, the profiles are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tracelink.analysis.evidence import MOST_CULPRITS
from tracelink.analysis.sightings import Asked, Profile, sighting
from tracelink.beside import sources_of, unranked
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Diagnosis, Kind, Problem, Role, Sighting
from tracelink.engine import Engine
from tracelink.errors import TraceError
from tracelink.events import NO_TIME
from tracelink.findings import Finding, Severity
from tracelink.gathering import gather
from tracelink.journal import Journal
from tracelink.reading import Task
from tracelink.sources import Discovery, Source

MOST_PROBLEMS = 3
ABSENT = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.STRAGGLER})
"""Problems in which it matters what the culprits did instead."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was seen of one rank, by the number of the problem."""

    seen: Sequence[tuple[int, Sighting]]
    findings: Sequence[Finding] = ()


def with_sightings(
    diagnosis: Diagnosis, journal: Journal, tasks: Sequence[Task], engine: Engine
) -> Diagnosis:
    """The same, with what profiles show of the ranks that its worst problems are about."""
    asked: dict[int, list[Asked]] = {}
    for number, problem in enumerate(diagnosis.problems[:MOST_PROBLEMS]):
        for one in _asked(number, problem, journal):
            asked.setdefault(one.rank, []).append(one)
    sources = sources_of(asked, tasks, journal)
    outer, inner = engine.split(len(sources))

    def work(rank: int) -> _Answer:
        return _of_rank(rank, asked[rank], sources[rank], inner)

    answers = outer.map(work, sorted(sources))
    seen = list(chain.from_iterable(answer.seen for answer in answers))
    problems = [
        replace(problem, sightings=_in_order(problem, [one for of, one in seen if of == number]))
        for number, problem in enumerate(diagnosis.problems)
    ]
    found = [*unranked(tasks), *chain.from_iterable(answer.findings for answer in answers)]
    return replace(diagnosis, problems=problems, findings=[*diagnosis.findings, *found])


def _asked(number: int, problem: Problem, journal: Journal) -> list[Asked]:
    """The culprits first."""
    others = [rank for rank in problem.rows if rank not in problem.culprits]
    return [
        _asked_of(number, problem, journal, rank, Role.CULPRIT if rank in problem.culprits else Role.WAITING)
        for rank in [*problem.culprits[:MOST_CULPRITS], *others]
    ]


def _asked_of(number: int, problem: Problem, journal: Journal, rank: int, role: Role) -> Asked:
    followed = role is Role.CULPRIT and problem.kind in ABSENT
    row = problem.rows.get(rank)
    if row is None:
        return Asked(
            number, rank, role, problem.group, problem.operation, problem.sequence, followed=followed
        )
    records = journal.records
    names = {of: name for (who, name), of in journal.group_rows.items() if who == rank}
    sequence, created = int(records.sequence[row]), int(records.created[row])
    end = int(journal.bounds[int(journal.ranks.searchsorted(rank)) + 1])
    return Asked(
        number,
        rank,
        role,
        names.get(int(records.group[row]), problem.group),
        journal.operation(row),
        None if sequence == UNKNOWN else sequence,
        bool(records.point_to_point[row]),
        int(records.place[row]),
        None if created == NO_TIME else created,
        followed and row == end - 1,
    )


def _of_rank(rank: int, asked: Sequence[Asked], sources: Sequence[Source], engine: Engine) -> _Answer:
    """A profile that cannot be read, or that is not what its name says, costs only what it would have shown."""
    try:
        gathered = gather(Discovery(list(sources)), engine)
    except TraceError as error:
        message = f"what the profiles of rank {rank} show is left out: {error}"
        return _Answer((), [Finding(Severity.WARNING, "profile_unreadable", message, source=error.source)])
    (one,) = gathered.ranks
    assert one.graph, "events were asked for"
    profile = Profile(gathered.keeper.get(one.graph), one.calls)
    serious = [
        finding for finding in [*gathered.findings, *one.findings] if finding.severity is Severity.ERROR
    ]
    seen = [(each.problem, sighting(profile, each)) for each in asked]
    return _Answer([(of, shown) for of, shown in seen if shown.call or shown.end_ns is not None], serious)


def _in_order(problem: Problem, sightings: Sequence[Sighting]) -> tuple[Sighting, ...]:
    """The culprits first, as in the evidence."""
    return tuple(sorted(sightings, key=lambda one: (one.role is not Role.CULPRIT, one.rank)))
