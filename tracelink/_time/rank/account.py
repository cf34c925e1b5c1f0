"""The costs and tables of one rank, small enough to be sent to the first process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import ON_THREAD
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers, Spans
from tracelink._time.model.intervals import covered, intersection
from tracelink._time.model.results import Portion, RankSummary, Step, WorkIn
from tracelink._time.rank.breakdown import Breakdown, breakdown_of
from tracelink._time.rank.costs import Causes, Cost, costs_of
from tracelink._time.rank.devices import later_work, launches_of, memory_of, streams_of
from tracelink._time.rank.exposure import explained_communication, explained_copies, waits_of
from tracelink._time.rank.host import HostActivity, activity_of
from tracelink._time.rank.idle import Explained, Reason, explained_idle, explained_pauses
from tracelink._time.rank.steps import Windows, only_steps, windows_of
from tracelink._time.rank.tables import Tables, tables_of
from tracelink._time.rank.view import RankView

MOST_THREADS = 16
"""Threads whose activity explains idle time: those that launch most work."""


class Account(Struct, frozen=True):
    """The answers about one rank."""

    summary: RankSummary
    tables: Tables
    nested_steps: int = 0


class RankCosts(Struct, frozen=True):
    """The steps of one rank, and what each of them was spent on."""

    rank: int
    work: WorkIn
    steps: Sequence[Step]
    costs: Sequence[Cost]


def account_of(
    graph: EventGraph, job: LinkedJob, wanted: Numbers | None, *, with_shapes: bool = False
) -> Account:
    """The answers about the rank of a graph of a job, in all steps or in the wanted ones."""
    divided = _divided(graph, job, wanted)
    view, windows = divided.view, divided.windows
    (rank,) = graph.ranks
    summary = RankSummary(
        rank.rank,
        rank.host,
        divided.breakdown.work,
        _steps(rank.rank, windows, divided.breakdown, divided.causes),
        next(iter(_steps(rank.rank, _recording(divided.breakdown), divided.breakdown, {})), None),
        streams_of(view, windows),
        launches_of(view, windows),
        memory_of(view, windows),
        later_work(view, windows),
    )
    waits = divided.activity.waits
    tables = tables_of(view, windows, divided.explained, waits, with_shapes=with_shapes)
    return Account(summary, tables, divided.nested)


def rank_costs_of(graph: EventGraph, job: LinkedJob, wanted: Numbers | None) -> RankCosts:
    """The costs of the rank of a graph of a job, in all steps or in the wanted ones."""
    divided = _divided(graph, job, wanted)
    breakdown, windows = divided.breakdown, divided.windows
    (rank,) = graph.ranks
    costs = costs_of(divided.view, breakdown, windows, divided.causes)
    steps = _steps(rank.rank, windows, breakdown, divided.causes)
    return RankCosts(rank.rank, breakdown.work, steps, costs)


class _Divided(Struct, frozen=True):
    """The windows of a rank with their parts and the causes of these."""

    view: RankView
    windows: Windows
    breakdown: Breakdown
    activity: HostActivity
    explained: Explained
    causes: Causes
    nested: int


def _divided(graph: EventGraph, job: LinkedJob, wanted: Numbers | None) -> _Divided:
    view = RankView(graph)
    found = windows_of(graph)
    windows = found.windows if wanted is None else only_steps(found.windows, wanted)
    breakdown = breakdown_of(view)
    activity = activity_of(view, _busiest_threads(view), with_operators=len(view.work) > 0)
    explained = _explained_idle(view, breakdown, windows, activity)
    causes = {"idle": explained.parts, **_causes(view, job, breakdown, windows, activity)}
    return _Divided(view, windows, breakdown, activity, explained, causes, found.nested)


def _busiest_threads(view: RankView) -> Int64s:
    """The threads that launch most work; those with most events if there is no device work."""
    launching = view.launching_lane
    if not len(view.work):
        launching = view.lane[view.events.track[view.rows(*ON_THREAD)]] if len(view.lane) else launching
    lanes, counts = np.unique(launching[launching != UNKNOWN], return_counts=True)
    return lanes[np.argsort(-counts, kind="stable")][:MOST_THREADS]


def _explained_idle(
    view: RankView, breakdown: Breakdown, windows: Windows, activity: HostActivity
) -> Explained:
    idle = breakdown.idle(windows)
    return explained_idle(view, idle, activity) if len(view.work) else explained_pauses(idle, activity)


def _recording(breakdown: Breakdown) -> Windows:
    """The window from the first to the last work; none if there is no work."""
    busy = breakdown.busy
    if not len(busy):
        return Windows.empty()
    return Windows.of(number=[UNKNOWN], start=busy.starts[:1], end=busy.ends[-1:], own_end=busy.ends[-1:])


def _causes(
    view: RankView, job: LinkedJob, breakdown: Breakdown, windows: Windows, activity: HostActivity
) -> Causes:
    inside = Spans.of(windows.start, windows.end)
    exposed = intersection(breakdown.exposed_communication, inside)
    copies = intersection(breakdown.exposed_copies, inside)
    return {
        "exposed_communication": explained_communication(view, exposed, waits_of(job, view), activity),
        "exposed_copies": explained_copies(view, copies),
    }


def _steps(rank: int, windows: Windows, breakdown: Breakdown, causes: Causes) -> list[Step]:
    parts = breakdown.parts(windows)
    numbers = [None if number == UNKNOWN else number for number in windows.number.tolist()]
    columns: dict[str, list[Any]] = {name: values.tolist() for name, values in parts.items()}
    for name, reasons in causes.items():
        columns[name] = _portions(windows, reasons)
    return [
        Step(rank, number, start, **{name: values[index] for name, values in columns.items()})
        for index, (number, start) in enumerate(zip(numbers, windows.start.tolist(), strict=True))
    ]


def _portions(windows: Windows, reasons: Sequence[tuple[Reason, Spans]]) -> list[list[Portion]]:
    """For each window its reasons, the largest first."""
    found: list[list[Portion]] = [[] for _ in range(len(windows))]
    for (cause, rank, during), spans in reasons:
        for portions, ns in zip(found, covered(spans, windows.start, windows.end).tolist(), strict=True):
            if ns:
                portions.append(Portion(cause, ns, rank, during))
    for portions in found:
        portions.sort(key=lambda portion: -portion.ns)
    return found
