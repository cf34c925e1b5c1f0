"""What one rank's graph says, in tables that are small enough to be sent to the first process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.answers.model.results import RankSummary, Step
from tracelink.answers.rank.breakdown import COMMUNICATION, Breakdown, Work, breakdown_of
from tracelink.answers.rank.steps import Windows, only_steps, windows_of
from tracelink.model.columns import UNKNOWN
from tracelink.model.events import EventKind
from tracelink.model.graph import EventGraph
from tracelink.model.ranges import Numbers


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """All kernels of one name on a rank."""

    name: str
    communication: bool
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Account:
    """The answers about one rank."""

    summary: RankSummary
    kernels: Sequence[KernelTotal]
    nested_steps: int = 0


def account_of(graph: EventGraph, wanted: Numbers | None) -> Account:
    """The answers about the rank of a graph, in all steps or in the wanted ones."""
    found = windows_of(graph)
    windows = found.windows if wanted is None else only_steps(found.windows, wanted)
    breakdown, work = breakdown_of(graph)
    (rank,) = graph.ranks
    summary = RankSummary(rank.rank, rank.host, breakdown.work, _steps(windows, breakdown))
    return Account(summary, _kernels(graph, work, windows), found.nested)


def _steps(windows: Windows, breakdown: Breakdown) -> list[Step]:
    parts = breakdown.parts(windows)
    numbers = [None if number == UNKNOWN else number for number in windows.number.tolist()]
    columns = {name: values.tolist() for name, values in parts.items()}
    return [
        Step(step=number, start_ns=start, **{name: values[index] for name, values in columns.items()})
        for index, (number, start) in enumerate(zip(numbers, windows.start.tolist(), strict=True))
    ]


def _kernels(graph: EventGraph, work: Work, windows: Windows) -> list[KernelTotal]:
    """Kernels that start in a window, by name; the longest first."""
    window = np.searchsorted(windows.start, work.start, side="right") - 1
    inside = (window >= 0) & (work.start < np.append(windows.end, 0)[window])
    kernels = work.take(inside & (graph.events.kind[work.row] == EventKind.KERNEL))
    names, first, group, counts = np.unique(
        graph.events.name[kernels.row], return_index=True, return_inverse=True, return_counts=True
    )
    totals = np.zeros(len(names), np.int64)
    np.add.at(totals, group, kernels.end - kernels.start)
    communicates = kernels.part[first] == COMMUNICATION
    order = np.argsort(-totals, kind="stable")
    return [
        KernelTotal(graph.strings[name], communication, count, total)
        for name, communication, count, total in zip(
            names[order].tolist(),
            communicates[order].tolist(),
            counts[order].tolist(),
            totals[order].tolist(),
            strict=True,
        )
    ]
