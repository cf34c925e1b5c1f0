"""Averages of clocks, power and temperature of a GPU while something ran on its rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracelink._join.quantities import Quantity, gauges_of
from tracelink._model.columns import NO_TIME, Float64s, Int32s, Int64s
from tracelink._model.events import Counters, Track
from tracelink._model.graph import EventGraph

HELD = 2
"""A sample holds until the next one, the last one this many usual intervals."""


def sampled_during(graph: EventGraph, rows: Int64s) -> dict[str, Float64s]:
    """Returns the averages of the GPU's metrics while events ran.

    Args:
        graph: What `load` returns for traces and metrics.
        rows: Rows of events, such as `np.flatnonzero(graph.events.of_kind("kernel"))`.

    Returns:
        For each row, by column: "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c" and
        "utilization_percent", as far as they were sampled; NaN where there is no sample of the rank at that time.
    """
    rows = np.asarray(rows, np.int64)
    events = graph.events
    return averages(
        (graph.tracks, graph.counters), graph.rank_of_events()[rows], events.start[rows], events.end[rows]
    )


def averages(
    metrics: tuple[Sequence[Track], Counters], ranks: Int32s, start: Int64s, end: Int64s
) -> dict[str, Float64s]:
    """For each span of a rank the average of each quantity that was sampled, NaN if it is unknown."""
    tracks, counters = metrics
    found: dict[str, Float64s] = {}
    timed = (start != NO_TIME) & (end != NO_TIME)
    for gauges in gauges_of(tracks):
        mine = np.flatnonzero(timed & (ranks == gauges.rank))
        for quantity, track in gauges.tracks.items():
            column = found.setdefault(quantity.value, np.full(len(ranks), np.nan))
            if len(mine):
                column[mine] = _averages(counters.take(counters.track == track), start[mine], end[mine])
    return {quantity.value: found[quantity.value] for quantity in Quantity if quantity.value in found}


def _averages(samples: Counters, start: Int64s, end: Int64s) -> Float64s:
    """The averages of one counter, whose samples hold until the next one."""
    order = np.argsort(samples.time, kind="stable")
    times, values = samples.time[order], samples.value[order]
    if not len(times):
        return np.full(len(start), np.nan)
    usual = int(np.median(np.diff(times))) if len(times) > 1 else 0
    ends = np.append(times[1:], times[-1] + HELD * usual)
    total = np.append(0.0, np.cumsum(values * (ends - times)))

    def until(moment: Int64s) -> Float64s:
        """The integral from the first sample to a moment."""
        index = np.clip(np.searchsorted(times, moment, side="right") - 1, 0, None)
        inside = np.clip(moment, times[index], ends[index]) - times[index]
        result: Float64s = total[index] + values[index] * inside
        return result

    first, last = np.clip(start, times[0], ends[-1]), np.clip(end, times[0], ends[-1])
    length = last - first
    with np.errstate(invalid="ignore", divide="ignore"):
        average = (until(last) - until(first)) / length
    at = np.clip(np.searchsorted(times, start, side="right") - 1, 0, None)
    result: Float64s = np.where(length > 0, average, values[at])
    return np.where((end < times[0]) | (start > ends[-1]), np.nan, result)


def columns_in_json(columns: Mapping[str, Float64s]) -> dict[str, list[float | None]]:
    """The columns with None for NaN, rounded to what programs sample."""
    return {
        name: [None if np.isnan(value) else round(value, 1) for value in column.tolist()]
        for name, column in columns.items()
    }
