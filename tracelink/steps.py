"""Training steps: the annotations that say where each begins and ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracelink.events import EventKind, Int64s
from tracelink.graph import EventGraph
from tracelink.ranges import Numbers
from tracelink.spans import LATEST, Spans

STEP_NAMES = (
    re.compile(r"ProfilerStep\s*#\s*(\d{1,18})"),
    re.compile(
        r"[#\s]*(?:train(?:ing)?[\s_]*)?(?:step|iter(?:ation)?)[\s_:#=]*(\d{1,18})[#\s]*", re.IGNORECASE
    ),
)
"""How steps are named, the surest first: of one rank, only names of the first sort that it has count."""


@dataclass(frozen=True, slots=True)
class Steps:
    """One row for each annotation of a step."""

    number: Int64s
    start: Int64s
    end: Int64s

    @property
    def numbers(self) -> Numbers:
        """Which steps there are."""
        return Numbers.of(np.unique(self.number).tolist())

    def spans(self, wanted: Numbers) -> Spans:
        """When the wanted steps ran."""
        chosen = wanted.mark(self.number)
        return Spans.of(self.start[chosen], self.end[chosen])


def steps_of(graph: EventGraph) -> Steps:
    """The steps of one rank; one whose end was not recorded lasts for ever."""
    events = graph.events
    step_of_name = _step_of_name(graph)
    # profiles of before 2022 list annotations among the operators
    marks = events.of_kind(EventKind.ANNOTATION, EventKind.OPERATOR) & events.timed
    rows = np.flatnonzero(marks & (step_of_name[events.name] >= 0))
    end = np.where(events.duration[rows] < 0, LATEST, events.end[rows])
    return Steps(step_of_name[events.name[rows]], events.start[rows], end)


def _step_of_name(graph: EventGraph) -> Int64s:
    """The step that each text of the table names, or -1."""
    used = np.zeros(len(graph.strings) + 1, np.bool_)
    used[graph.events.name[graph.events.of_kind(EventKind.ANNOTATION, EventKind.OPERATOR)]] = True
    names = [(code, graph.strings[code]) for code in np.flatnonzero(used).tolist()]
    result = np.full(len(used), -1, np.int64)
    for pattern in STEP_NAMES:
        found = [(code, match) for code, name in names if (match := pattern.fullmatch(name))]
        for code, match in found:
            result[code] = int(match[1])
        if found:
            break
    return result
