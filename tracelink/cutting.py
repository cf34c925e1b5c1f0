"""A job cut to what was selected: smaller parts, and tables whose rows are those of the smaller parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracelink import selection as selecting
from tracelink.communications import UNKNOWN
from tracelink.engine import Engine
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph
from tracelink.job import Job, Part, mentioned_rows, moved
from tracelink.keeping import Keeper, Place
from tracelink.selection import Selection


@dataclass(frozen=True, slots=True)
class CutPart:
    """What was selected of one rank."""

    rank: int
    keeper: Keeper
    place: Place[EventGraph]

    def load(self) -> EventGraph:
        """The graph of what was selected."""
        return self.keeper.get(self.place)


def cut(job: Job, selection: Selection, engine: Engine, keeper: Keeper) -> Job:
    """The selected events of every rank; what was matched stays matched."""
    mentioned = mentioned_rows(job)
    first_ns = job.first_ns or 0

    def work(part: Part) -> tuple[Place[EventGraph], Int64s, int]:
        rows = mentioned[part.rank]
        graph, kept = selecting.apply(selection, part.load(), first_ns, rows)
        return keeper.put(graph), _new_rows(kept, rows), len(graph)

    results = engine.map(work, job.parts, shared=keeper.shared)
    new_rows = {part.rank: rows for part, (_, rows, _) in zip(job.parts, results, strict=True)}
    left = sum(count for _, _, count in results)
    return replace(
        job,
        parts=[
            CutPart(part.rank, keeper, place) for part, (place, _, _) in zip(job.parts, results, strict=True)
        ],
        participations=moved(job.participations, mentioned, new_rows),
        messages=moved(job.messages, mentioned, new_rows),
        findings=[*job.findings, *_left_out(job.events, left)],
        events=left,
    )


def _new_rows(kept: Int64s, rows: Int64s) -> Int64s:
    """Where each of `rows` stands among the kept ones, or UNKNOWN."""
    place = np.searchsorted(kept, rows)
    found = np.append(kept, UNKNOWN)[place] == rows
    return np.where(found, place, UNKNOWN)


def _left_out(before: int, after: int) -> list[Finding]:
    if before == after:
        return []
    message = f"{before - after} of {before} events are outside what was selected."
    return [Finding(Severity.INFO, "left_out", message, before - after)]
