"""A job cut to what was selected: smaller parts, and tables whose rows are those of the smaller parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tracelink import selection as selecting
from tracelink.collectives import Collectives, Messages, Participations
from tracelink.communications import UNKNOWN
from tracelink.engine import Engine
from tracelink.events import Bools, Int64s
from tracelink.graph import EventGraph
from tracelink.job import MESSAGE_ROWS, PARTICIPATION_ROWS, Job, Part, mentioned_rows, moved
from tracelink.keeping import Keeper, Place
from tracelink.outcome import Stock, outcome
from tracelink.selection import COLLECTIVES, Selection

Table = TypeVar("Table", Collectives, Participations, Messages)


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

    def work(part: Part) -> tuple[Place[EventGraph], Int64s, Stock, int | None]:
        rows, whole = mentioned[part.rank], part.load()
        graph, kept = selecting.apply(selection, whole, first_ns, rows)
        return keeper.put(graph), _new_rows(kept, rows), Stock.of(part.rank, whole, graph), graph.span[1]

    results = engine.map(work, job.parts, shared=keeper.shared)
    new_rows = {part.rank: rows for part, (_, rows, *_) in zip(job.parts, results, strict=True)}
    stocks = [stock for _, _, stock, _ in results]
    smaller = replace(
        job,
        parts=[
            CutPart(part.rank, keeper, place) for part, (place, *_) in zip(job.parts, results, strict=True)
        ],
        participations=moved(job.participations, mentioned, new_rows),
        messages=moved(job.messages, mentioned, new_rows),
        findings=[*job.findings, *outcome(selection, stocks, job.first_ns)],
        last_ns=max((last for *_, last in results if last is not None), default=None),
        events=sum(stock.kept for stock in stocks),
    )
    return without_unseen(smaller, shown=selection.keeps(COLLECTIVES))


def without_unseen(job: Job, *, shown: bool = True) -> Job:
    """The job without the collectives and messages of which no event is left; without any, unless `shown`."""
    parts, messages = job.participations, job.messages
    left = _seen(parts, PARTICIPATION_ROWS)
    seen = np.zeros(len(job.collectives), np.bool_)
    seen[parts.collective[left & shown]] = True
    participations = _taken(parts, seen[parts.collective])
    place = np.cumsum(seen) - 1
    return replace(
        job,
        collectives=_taken(job.collectives, seen),
        participations=replace(participations, collective=place[participations.collective]),
        messages=_taken(messages, _seen(messages, MESSAGE_ROWS) & shown),
    )


def _seen(table: Participations | Messages, rows: Iterable[str]) -> Bools:
    """Of which any event is there."""
    seen: Bools = np.any([getattr(table, name) != UNKNOWN for name in rows], axis=0)
    return seen


def _taken(table: Table, rows: Bools) -> Table:
    return type(table)(*(column[rows] for column in table.columns().values()))


def _new_rows(kept: Int64s, rows: Int64s) -> Int64s:
    """Where each of `rows` stands among the kept ones, or UNKNOWN."""
    place = np.searchsorted(kept, rows)
    found = np.append(kept, UNKNOWN)[place] == rows
    return np.where(found, place, UNKNOWN)
