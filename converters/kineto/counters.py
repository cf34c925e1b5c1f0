"""Counters of a Kineto trace: sampled by the producer, or told by memory events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracelink.converters.kineto.columns import Columns
from tracelink.converters.kineto.tracks import Names
from tracelink.events import Counters, Track, TrackKind

DEVICE_TYPES = {0: "CPU", 1: "GPU", 20: "GPU"}
"""c10 device types that have more than one spelling in practice: CPU, CUDA, HIP."""

Row = tuple[str, str, int, float]
"""(process, counter, time, value)."""


def counters_of(columns: Columns, names: Names, base: int, first_track: int) -> tuple[Counters, list[Track]]:
    """All samples, and the tracks that they belong to, numbered from `first_track`."""
    tracks: dict[tuple[str, str], int] = {}
    track: list[int] = []
    time: list[int] = []
    value: list[float] = []
    for process, counter, at, number in (*_sampled(columns, names), *_memory(columns)):
        track.append(tracks.setdefault((process, counter), first_track + len(tracks)))
        time.append(at + base)
        value.append(number)
    counters = Counters(np.array(track, np.int32), np.array(time, np.int64), np.array(value, np.float64))
    return counters, [Track(TrackKind.COUNTER, *key, key[1]) for key in tracks]


def _sampled(columns: Columns, names: Names) -> Iterator[Row]:
    for sample in columns.samples:
        for series, value in sample.values.items():
            name = f"{sample.name} {series}".strip()
            try:
                yield names.text(sample.pid), name, sample.time, float(value)
            except (TypeError, ValueError):
                columns.not_events += 1


def _memory(columns: Columns) -> Iterator[Row]:
    """Allocated and reserved bytes of each device, as memory events tell them."""
    if not columns.memory:
        return
    places = np.concatenate([places for places, _ in columns.memory])
    rows = np.searchsorted(columns.table["place"], places)
    times = columns.table["start"][rows].tolist()
    values = np.concatenate([values for _, values in columns.memory]).tolist()
    for time, (allocated, reserved, kind, device) in zip(times, values, strict=True):
        where = DEVICE_TYPES.get(kind, f"device type {kind}") + ("" if device < 0 else f" {device}")
        yield "", f"{where} allocated", time, float(allocated)
        if reserved >= 0:
            yield "", f"{where} reserved", time, float(reserved)
