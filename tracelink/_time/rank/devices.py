"""Streams, launches and memory of one rank."""

from __future__ import annotations

import re

import numpy as np

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import BYTES, EventKind, TrackKind
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import covered
from tracelink._time.model.results import Launches, Memory, Stream
from tracelink._time.rank.steps import Windows
from tracelink._time.rank.tables import launch_delays, starts_inside
from tracelink._time.rank.view import COMMUNICATION, COPY, RankView, Work, matching

GRAPH_LAUNCH = re.compile(r"GraphLaunch")
POINTS = 100
"""Of each counter of memory over time, at most."""


def streams_of(view: RankView, windows: Windows) -> list[Stream]:
    """The streams on which work ran within the windows, the busiest first."""
    work, rank = view.work, view.graph.ranks[0].rank
    found = []
    for lane in np.unique(work.lane).tolist():
        mine = work.take(work.lane == lane)
        track = view.graph.tracks[lane]

        busy = [
            _busy(mine, windows),
            *(_busy(mine.take(mine.part == part), windows) for part in (COMMUNICATION, COPY)),
        ]
        count = int(np.count_nonzero(starts_inside(windows, mine.start)))
        found.append(Stream(rank, track.label or track.identity, track.process, count, *busy))
    found = [stream for stream in found if stream.count or stream.busy_ns]
    return sorted(found, key=lambda stream: -stream.busy_ns)


def _busy(work: Work, windows: Windows) -> int:
    return int(covered(Spans.of(work.start, work.end), windows.start, windows.end).sum())


def launches_of(view: RankView, windows: Windows) -> Launches | None:
    """How the work that starts in the windows was launched; None if there is none."""
    inside = starts_inside(windows, view.work.start)
    if not inside.any():
        return None
    work = view.work.take(inside)
    queue, launch = (delay[inside] for delay in launch_delays(view))
    known = work.call != UNKNOWN
    time = work.end - work.start
    calls, first, counts = np.unique(work.call[known], return_index=True, return_counts=True)
    calls_ns = view.events.duration[calls]
    graphs = view.named(calls, matching(GRAPH_LAUNCH))
    of_graph = np.isin(work.call, calls[graphs])
    kernel = view.events.kind[work.row[known][first]] == EventKind.KERNEL
    shorter = kernel & (counts == 1) & (time[known][first] < calls_ns)
    return Launches(
        view.graph.ranks[0].rank,
        count=int(np.count_nonzero(known)),
        unknown=int(np.count_nonzero(~known)),
        calls=len(calls),
        calls_ns=int(calls_ns.sum()),
        queue_p50_ns=_quantile(queue[known & ~of_graph], 0.5),
        queue_p90_ns=_quantile(queue[known & ~of_graph], 0.9),
        queue_p99_ns=_quantile(queue[known & ~of_graph], 0.99),
        launch_p50_ns=_quantile(launch[known & ~of_graph], 0.5),
        launch_p90_ns=_quantile(launch[known & ~of_graph], 0.9),
        shorter_than_launch=int(np.count_nonzero(shorter)),
        graph_launches=int(np.count_nonzero(graphs)),
        graph_work=int(np.count_nonzero(of_graph)),
        graph_ns=int(time[of_graph].sum()),
    )


def later_work(view: RankView, windows: Windows) -> int:
    """The time of the work that runs in a later step than the one that launched it."""
    work, launched = view.work, view.launched_at
    known = (work.call != UNKNOWN) & starts_inside(windows, work.start)
    if not len(windows):
        return 0
    ran, began = (
        np.searchsorted(windows.start, times[known], side="right") for times in (work.start, launched)
    )
    return int((work.end - work.start)[known][ran > began].sum())


def _quantile(values: Int64s, share: float) -> int:
    """The value below which this share of the values is; 0 without values."""
    if not len(values):
        return 0
    return int(np.partition(values, number := min(int(len(values) * share), len(values) - 1))[number])


def memory_of(view: RankView, windows: Windows) -> list[Memory]:
    """The counters of memory, with what ran at their peaks."""
    counters, tracks = view.graph.counters, view.graph.tracks
    if not len(counters) or not len(windows):
        return []
    found = []
    first, last = int(windows.start[0]), int(windows.end[-1])
    for track in np.unique(counters.track).tolist():
        if tracks[track].kind != TrackKind.COUNTER or tracks[track].unit != BYTES:
            continue
        mine = (counters.track == track) & (counters.time >= first) & (counters.time <= last)
        if not mine.any():
            continue
        order = np.argsort(counters.time[mine], kind="stable")
        time = counters.time[mine][order]
        value = np.maximum(counters.value[mine][order], 0).astype(np.int64)
        peak = int(np.argmax(value))
        found.append(
            Memory(
                view.graph.ranks[0].rank,
                tracks[track].label or tracks[track].identity,
                int(value[peak]),
                int(time[peak]),
                _running_at(view, int(time[peak])),
                int(value[0]),
                int(value[-1]),
                _over_time(time, value, first, last),
            )
        )
    return found


def _over_time(time: Int64s, value: Int64s, first: int, last: int) -> list[tuple[int, int]]:
    """The largest value in each of so many equal parts of the time that has samples."""
    part = (time - first) * POINTS // max(last - first + 1, 1)
    begins = np.flatnonzero(np.append(True, part[1:] != part[:-1]))
    return list(zip(time[begins].tolist(), np.maximum.reduceat(value, begins).tolist(), strict=True))


def _running_at(view: RankView, time: int) -> str:
    """The operator that started last of those that run at this time."""
    events = view.events
    rows = view.rows(EventKind.OPERATOR)
    rows = rows[(events.start[rows] <= time) & (events.end_of(rows) >= time)]
    return view.graph.strings[events.name[rows[np.argmax(events.start[rows])]]] if len(rows) else ""
