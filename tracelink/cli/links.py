"""How much was linked, rank by rank: the numbers behind the summary and behind `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelink.linking.report import LinkReport

if TYPE_CHECKING:
    from tracelink.job import Job

RELATIONS = ("launches", "calls", "backward_of", "same.et_kineto", "same.recorder_kineto")
"""Said of every rank, even where it has nothing to link."""


@dataclass(frozen=True, slots=True)
class RankLinks:
    """One rank: how many events it has, and how its relations were linked."""

    rank: int
    events: int
    links: dict[str, LinkReport]


def links_of_ranks(job: Job) -> list[RankLinks]:
    """The links of each rank."""
    events: Counter[int | None] = Counter()
    for source in job.sources:
        events[source.rank] += source.events
    return [
        RankLinks(rank.rank, events[rank.rank], _by_relation(job.reports.get(rank.rank, ())))
        for rank in job.ranks
    ]


def summed(reports: Iterable[LinkReport]) -> LinkReport:
    """One report on the same relation of several ranks."""
    relation, linked, candidates = "", 0, 0
    unlinked: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for report in reports:
        relation = report.relation
        linked += report.linked
        candidates += report.candidates
        unlinked.update(report.unlinked)
        notes.update(report.notes)
    return LinkReport(relation, linked, candidates, unlinked, notes)


def _by_relation(reports: Iterable[LinkReport]) -> dict[str, LinkReport]:
    known = {relation: LinkReport(relation, 0, 0) for relation in RELATIONS}
    return known | {report.relation: report for report in reports}
