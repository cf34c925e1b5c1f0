"""Tracks, counters, slices recorded in halves, and flows of a Kineto trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.columns import ElementColumns, FlowColumns, Half, Metadata
from tracelink.converters.kineto.elements import TEXT_LANE, Shapes
from tracelink.converters.kineto.schema import (
    ASYNC_BEGIN,
    ASYNC_INSTANT,
    BACKWARD_FLOWS,
    BEGIN,
    END,
    FLOW_END,
    FLOW_START,
    LABELS,
    NAME,
    PROCESS_LABELS,
    PROCESS_NAME,
    PROCESS_SORT,
    SORT_INDEX,
    THREAD_NAME,
    THREAD_SORT,
)
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.communications import text_in
from tracelink.model.events import BYTES, Counters, KeyColumn, Track, TrackKind

# Threads and streams, and their names.


SYNC_STREAM = 1_000_000
"""Since 2026 synchronisations of a stream have a lane of their own: the number of the stream plus this."""


LARGEST_SORT_INDEX = 1 << 62
"""Larger sort indexes are invalid."""


@dataclass(slots=True)
class Names:
    """Names and sort indexes from metadata records; the last record of a thread counts, as in every viewer."""

    texts: Sequence[str]
    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    process_sort: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    thread_sort: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, records: Sequence[Metadata]) -> int:
        """Adds metadata records; returns the number of unknown records."""
        unknown = 0
        for record in records:
            match record.kind:
                case k if k == PROCESS_NAME:
                    self.processes[record.pid] = text_in(record.arguments.get(NAME))
                case k if k == PROCESS_LABELS:
                    self.labels[record.pid] = text_in(record.arguments.get(LABELS))
                case k if k == PROCESS_SORT:
                    self.process_sort[record.pid] = _order(record.arguments.get(SORT_INDEX))
                case k if k == THREAD_NAME:
                    self.threads[record.pid, record.tid] = text_in(record.arguments.get(NAME))
                case k if k == THREAD_SORT:
                    self.thread_sort[record.pid, record.tid] = _order(record.arguments.get(SORT_INDEX))
                case _:
                    unknown += 1
        return unknown

    def text(self, identity: int) -> str:
        """A process or thread id as text."""
        index = TEXT_LANE - identity
        return self.texts[index] if 0 <= index < len(self.texts) else str(identity)


def tracks_of(pid: Int64s, tid: Int64s, on_device: Bools, names: Names) -> tuple[Int32s, list[Track]]:
    """The track of each event: one for each process and thread, and for each device and stream."""
    changes = np.flatnonzero(
        (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1]) | (on_device[1:] != on_device[:-1])
    )
    heads = np.concatenate([[0], changes + 1])[: len(pid)]
    runs = np.stack([pid[heads], tid[heads], on_device[heads].astype(np.int64)])
    lanes, of_run = _numbered(runs)
    track = np.repeat(of_run.astype(np.int32), np.diff(np.append(heads, len(pid))))
    return track, [_track(*lane, names) for lane in lanes]


def _numbered(rows: Int64s) -> tuple[list[tuple[int, int, int]], Int64s]:
    """The distinct columns of three rows, and for each column which one it is."""
    code = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        values, index = np.unique(row, return_inverse=True)
        code = code * len(values) + index
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return [tuple(column) for column in rows[:, first].T.tolist()], number


def _track(pid: int, tid: int, on_device: int, names: Names) -> Track:
    process, identity = names.text(pid), names.text(tid)
    label = names.threads.get((pid, tid), "")
    sort = names.thread_sort.get((pid, tid), tid if tid > TEXT_LANE else 0)
    if on_device:
        stream = tid - SYNC_STREAM if tid >= SYNC_STREAM else tid
        number = identity.removeprefix("stream ")
        plain = f"stream {number}" if tid < SYNC_STREAM else f"stream {stream} synchronisation"
        return Track(TrackKind.STREAM, process, identity, label.strip() or plain, sort=sort)
    if pid <= TEXT_LANE or (tid <= TEXT_LANE and not identity.isdigit()) or pid < 0:
        return Track(TrackKind.PROCESS, process, identity, label or identity, sort=sort)
    return Track(TrackKind.THREAD, process, identity, label or f"thread {identity}", sort=sort)


def _order(value: Any) -> int:
    return value if type(value) is int and abs(value) < LARGEST_SORT_INDEX else 0


# Counters: sampled by the producer, or from memory events.


DEVICE_TYPES = {0: "CPU", 1: "GPU", 20: "GPU"}
"""Names of c10 device types: CPU, CUDA, HIP."""

Series = tuple[str, str, Int64s, npt.NDArray[np.float64]]
"""(process, counter, times, values)."""


def counters_of(
    columns: ElementColumns, names: Names, base: int, first_track: int
) -> tuple[Counters, list[Track]]:
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


def _sampled(columns: ElementColumns, names: Names) -> Iterator[Series]:
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


def _memory(columns: ElementColumns) -> Iterator[Series]:
    """Allocated and reserved bytes of each device, from memory events."""
    if not columns.memory:
        return
    indexes = np.concatenate([indexes for indexes, _ in columns.memory])
    times = columns.table["start"][np.searchsorted(columns.table["index"], indexes)]
    allocated, reserved, kind, device = np.concatenate([values for _, values in columns.memory]).T
    for device_key in np.unique(np.stack([kind, device], axis=1), axis=0).tolist():
        of_device = (kind == device_key[0]) & (device == device_key[1])
        label = DEVICE_TYPES.get(device_key[0], f"device type {device_key[0]}") + (
            "" if device_key[1] < 0 else f" {device_key[1]}"
        )
        yield "", f"{label} allocated", times[of_device], allocated[of_device].astype(np.float64)
        has_reserved = of_device & (reserved >= 0)
        yield "", f"{label} reserved", times[has_reserved], reserved[has_reserved].astype(np.float64)


# Slices recorded in two halves: begin and end on a thread, or of an asynchronous operation.


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice from two halves, with the arguments of its begin."""

    cat: str
    name: str
    pid: int
    tid: int
    start: int
    duration: int
    index: int


@dataclass(slots=True)
class PairedSlices:
    """Slices from two halves, and the number of ends without a begin."""

    slices: list[Slice] = field(default_factory=list)
    unmatched_ends: int = 0


def pair(halves: Sequence[Half]) -> PairedSlices:
    """Pairs begins and ends in the order of time; a begin without an end is an unfinished slice."""
    paired = PairedSlices()
    open_slices: dict[tuple[object, ...], list[Half]] = {}
    for half in sorted(halves, key=lambda half: half.time):
        lane = _lane(half)
        if half.ph in (BEGIN, ASYNC_BEGIN):
            open_slices.setdefault(lane, []).append(half)
        elif half.ph == ASYNC_INSTANT:
            paired.slices.append(_slice(half, 0))
        else:
            stack = open_slices.get(lane, [])
            begin = _matching(stack, half)
            if begin is None:
                paired.unmatched_ends += 1
            else:
                stack.remove(begin)
                paired.slices.append(_slice(begin, half.time - begin.time))
    paired.slices += [_slice(begin, UNKNOWN) for stack in open_slices.values() for begin in stack]
    return paired


def _lane(half: Half) -> tuple[object, ...]:
    if half.ph in (BEGIN, END):
        return (half.pid, half.tid)
    return (half.cat, half.identity, half.pid)


def _matching(stack: Sequence[Half], end: Half) -> Half | None:
    """The innermost open slice that this end can close: with the same name, if the end has one."""
    return next((begin for begin in reversed(stack) if not end.name or begin.name == end.name), None)


def _slice(begin: Half, duration: int) -> Slice:
    return Slice(
        begin.cat,
        begin.name,
        begin.pid,
        begin.tid,
        begin.time,
        duration,
        begin.index,
    )


# Flows of the producer, bound to the events at their starts and ends.


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """The starts, or the ends, of one category of flows: ids, with lane and time."""

    identity: Int64s
    pid: Int64s
    tid: Int64s
    time: Int64s


@dataclass(frozen=True, slots=True)
class Flows:
    """The flows of a file by category."""

    launches: Int64s
    """Ids of complete launch flows: correlations that the producer linked itself."""
    backward_out: FlowEnds
    backward_in: FlowEnds
    other_out: FlowEnds
    other_in: FlowEnds


def flows_by_category(
    launch_ends: Sequence[tuple[Int64s, Int64s]], flows: Sequence[FlowColumns], shapes: Shapes
) -> Flows:
    """The starts and ends of all flows, by category and direction."""
    merged = _joined(flows)
    launch_shape = np.concatenate([np.empty(0, np.int64), *(shape for shape, _ in launch_ends)]).astype(
        np.int64
    )
    launch = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in launch_ends)]).astype(np.int64)
    category = [text[1:] for text in shapes.table.texts()]
    starts = _of(merged, [role == FLOW_START for role in shapes.roles])
    ends = _of(merged, [role == FLOW_END for role in shapes.roles])
    backward = _of(merged, [name in BACKWARD_FLOWS for name in category])
    other = ~backward
    return Flows(
        _in_both(
            launch[shapes.are(launch_shape, frozenset({FLOW_START}))],
            launch[shapes.are(launch_shape, frozenset({FLOW_END}))],
        ),
        _ends(merged, backward & starts),
        _ends(merged, backward & ends),
        _ends(merged, other & starts),
        _ends(merged, other & ends),
    )


def _in_both(first: Int64s, second: Int64s) -> Int64s:
    """The ids in both columns, in order. Small ids are looked up in a table, not sorted."""
    if not len(first) or not len(second):
        return np.empty(0, np.int64)
    top = int(max(first.max(), second.max()))
    if min(int(first.min()), int(second.min())) < 0 or top > 8 * (len(first) + len(second)) + (1 << 20):
        return np.intersect1d(first, second)
    seen = np.zeros((2, top + 1), np.bool_)
    seen[0, first] = True
    seen[1, second] = True
    return np.flatnonzero(seen[0] & seen[1])


def bind(
    ends: FlowEnds, lanes: tuple[Int64s, Int64s], start: Int64s, rows: Int64s, *, last: bool
) -> KeyColumn:
    """The event, of `rows`, at each flow end: same process, same thread, same start.

    Of several events the `last` in the order of the file, or the first.
    """
    pid, tid = lanes
    code = _codes(
        np.concatenate([pid[rows], ends.pid]),
        np.concatenate([tid[rows], ends.tid]),
        np.concatenate([start[rows], ends.time]),
    )
    of_event, of_end = code[: len(rows)], code[len(rows) :]
    order = np.argsort(of_event, kind="stable")
    index = np.searchsorted(of_event[order], of_end, side="right" if last else "left") - (1 if last else 0)
    inside = (index >= 0) & (index < len(order))
    found = np.zeros(len(of_end), np.bool_)
    found[inside] = of_event[order[index[inside]]] == of_end[inside]
    return KeyColumn(rows[order[index[found]]], ends.identity[found])


def _codes(*columns: Int64s) -> Int64s:
    """One number for each row; equal numbers mean equal rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + index, return_inverse=True)[1].astype(np.int64)
    return code


def _joined(flows: Sequence[FlowColumns]) -> FlowColumns:
    if not flows:
        empty = np.empty(0, np.int64)
        return FlowColumns(empty, empty, empty, empty, empty)
    return FlowColumns(
        np.concatenate([flow.shape for flow in flows]),
        np.concatenate([flow.identity for flow in flows]),
        np.concatenate([flow.pid for flow in flows]),
        np.concatenate([flow.tid for flow in flows]),
        np.concatenate([flow.time for flow in flows]),
    )


def _of(merged: FlowColumns, marks: list[bool]) -> Bools:
    return np.array(marks, np.bool_)[merged.shape] if marks else np.zeros(len(merged.shape), np.bool_)


def _ends(merged: FlowColumns, chosen: Bools) -> FlowEnds:
    return FlowEnds(merged.identity[chosen], merged.pid[chosen], merged.tid[chosen], merged.time[chosen])
