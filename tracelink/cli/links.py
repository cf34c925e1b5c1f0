"""How much was linked, rank by rank: the numbers behind the summary and behind `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelink.linking.report import LinkReport

if TYPE_CHECKING:
    from tracelink.graph import EventGraph

RELATIONS = ("launches", "calls", "backward_of", "same.et_kineto", "same.recorder_kineto")
"""Said of every rank, even where it has nothing to link."""


@dataclass(frozen=True, slots=True)
class RankLinks:
    """One rank: how many events it has, and how its relations were linked."""

    rank: int
    events: int
    links: dict[str, LinkReport]


def links_of_ranks(graph: EventGraph) -> list[RankLinks]:
    """The links of each rank."""
    numbers, counts = np.unique(graph.rank_of_events(), return_counts=True)
    events = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return [
        RankLinks(rank.rank, events.get(rank.rank, 0), _by_relation(graph.reports.get(rank.rank, ())))
        for rank in graph.ranks
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
