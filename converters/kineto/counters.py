"""Counters of a Kineto trace: sampled by the producer, or told by memory events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.columns import Columns
from tracelink.converters.kineto.tracks import Names
from tracelink.events import BYTES, Counters, Int64s, Track, TrackKind

DEVICE_TYPES = {0: "CPU", 1: "GPU", 20: "GPU"}
"""c10 device types that have more than one spelling in practice: CPU, CUDA, HIP."""

Series = tuple[str, str, Int64s, npt.NDArray[np.float64]]
"""(process, counter, times, values)."""


def counters_of(columns: Columns, names: Names, base: int, first_track: int) -> tuple[Counters, list[Track]]:
    """All samples, and the tracks that they belong to, numbered from `first_track`."""
    numbers: dict[tuple[str, str, str], int] = {}
    parts = []
    for unit, series in (("", _sampled(columns, names)), (BYTES, _memory(columns))):
        for process, counter, times, values in series:
            track = numbers.setdefault((process, counter, unit), first_track + len(numbers))
            parts.append(Counters(np.full(len(times), track, np.int32), times + base, values))
    tracks = [
        Track(TrackKind.COUNTER, process, counter, counter, unit=unit) for process, counter, unit in numbers
    ]
    return Counters.concatenate(parts), tracks


def _sampled(columns: Columns, names: Names) -> Iterator[Series]:
    series: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for sample in columns.samples:
        for key, value in sample.values.items():
            name = (names.text(sample.pid), f"{sample.name} {key}".strip())
            try:
                number = float(value)
            except (TypeError, ValueError):
                columns.not_events += 1
                continue
            times, values = series.setdefault(name, ([], []))
            times.append(sample.time)
            values.append(number)
    for (process, counter), (times, values) in series.items():
        yield process, counter, np.array(times, np.int64), np.array(values, np.float64)


def _memory(columns: Columns) -> Iterator[Series]:
    """Allocated and reserved bytes of each device, as memory events tell them."""
    if not columns.memory:
        return
    places = np.concatenate([places for places, _ in columns.memory])
    times = columns.table["start"][np.searchsorted(columns.table["place"], places)]
    allocated, reserved, kind, device = np.concatenate([values for _, values in columns.memory]).T
    for where in np.unique(np.stack([kind, device], axis=1), axis=0).tolist():
        of_device = (kind == where[0]) & (device == where[1])
        label = DEVICE_TYPES.get(where[0], f"device type {where[0]}") + (
            "" if where[1] < 0 else f" {where[1]}"
        )
        yield "", f"{label} allocated", times[of_device], allocated[of_device].astype(np.float64)
        told = of_device & (reserved >= 0)
        yield "", f"{label} reserved", times[told], reserved[told].astype(np.float64)
