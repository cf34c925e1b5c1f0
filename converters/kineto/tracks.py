"""Threads, counters, halves, arrows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.columns import Columns, Flow, Half, Named
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

# Threads, streams and counters of a Kineto trace, and what they are called.


SYNC_STREAM = 1_000_000
"""Since 2026 stream synchronisations stand on a lane of their own: the stream's number plus this."""


FARTHEST = 1 << 62
"""An order beyond this is none."""


@dataclass(slots=True)
class Names:
    """What the metadata records say; the last record of a thread wins, as in every viewer."""

    texts: Sequence[str]
    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    process_sort: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    thread_sort: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, records: Sequence[Named]) -> int:
        """Takes in metadata records; returns how many are of a kind that is not known."""
        unknown = 0
        for record in records:
            match record.what:
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
        place = TEXT_LANE - identity
        return self.texts[place] if 0 <= place < len(self.texts) else str(identity)


def tracks_of(pid: Int64s, tid: Int64s, on_device: Bools, names: Names) -> tuple[Int32s, list[Track]]:
    """The track of each event: one for each (process, thread), devices apart from processes of the same number."""
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
        values, place = np.unique(row, return_inverse=True)
        code = code * len(values) + place
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
    return value if type(value) is int and abs(value) < FARTHEST else 0


# Counters of a Kineto trace: sampled by the producer, or told by memory events.


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


# Slices recorded in two halves: begin and end on a thread, begin and end of something asynchronous.


@dataclass(frozen=True, slots=True)
class Whole:
    """A slice put together: the arguments are those of the begin."""

    cat: str
    name: str
    pid: int
    tid: int
    start: int
    duration: int
    place: int
    asynchronous: bool


@dataclass(slots=True)
class Paired:
    """Slices put together, and ends that no begin belongs to."""

    slices: list[Whole] = field(default_factory=list)
    ends_alone: int = 0


def pair(halves: Sequence[Half]) -> Paired:
    """Joins begins and ends in the order of time; a begin without an end is an unfinished slice."""
    paired = Paired()
    open_slices: dict[tuple[object, ...], list[Half]] = {}
    for half in sorted(halves, key=lambda half: half.time):
        lane = _lane(half)
        if half.ph in (BEGIN, ASYNC_BEGIN):
            open_slices.setdefault(lane, []).append(half)
        elif half.ph == ASYNC_INSTANT:
            paired.slices.append(_whole(half, 0))
        else:
            stack = open_slices.get(lane, [])
            begin = _matching(stack, half)
            if begin is None:
                paired.ends_alone += 1
            else:
                stack.remove(begin)
                paired.slices.append(_whole(begin, half.time - begin.time))
    paired.slices += [_whole(begin, UNKNOWN) for stack in open_slices.values() for begin in stack]
    return paired


def _lane(half: Half) -> tuple[object, ...]:
    if half.ph in (BEGIN, END):
        return (half.pid, half.tid)
    return (half.cat, half.identity, half.pid)


def _matching(stack: Sequence[Half], end: Half) -> Half | None:
    """The innermost open slice that this end can close: of the same name, where the end has one."""
    return next((begin for begin in reversed(stack) if not end.name or begin.name == end.name), None)


def _whole(begin: Half, duration: int) -> Whole:
    return Whole(
        begin.cat,
        begin.name,
        begin.pid,
        begin.tid,
        begin.time,
        duration,
        begin.place,
        begin.ph not in (BEGIN, END),
    )


# Arrows that the producer drew: bound to the events that they begin and end at.


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of one sort of arrow: starts and ends by id, with lane and time."""

    identity: Int64s
    pid: Int64s
    tid: Int64s
    time: Int64s


@dataclass(frozen=True, slots=True)
class Arrows:
    """The arrows of a file by what they say."""

    launches: Int64s
    """Ids of launch arrows that have both ends: correlations that the producer linked itself."""
    backward_out: Ends
    backward_in: Ends
    other_out: Ends
    other_in: Ends


def sort_flows(launch_ends: Sequence[tuple[Int64s, Int64s]], flows: Sequence[Flow], shapes: Shapes) -> Arrows:
    """Sorts the ends of all arrows by category and direction."""
    whole = _joined(flows)
    launch_shape = np.concatenate([np.empty(0, np.int64), *(shape for shape, _ in launch_ends)]).astype(
        np.int64
    )
    launch = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in launch_ends)]).astype(np.int64)
    category = [text[1:] for text in shapes.table.texts()]
    starts = _of(whole, [role == FLOW_START for role in shapes.roles])
    ends = _of(whole, [role == FLOW_END for role in shapes.roles])
    backward = _of(whole, [name in BACKWARD_FLOWS for name in category])
    other = ~backward
    return Arrows(
        in_both(
            launch[shapes.are(launch_shape, frozenset({FLOW_START}))],
            launch[shapes.are(launch_shape, frozenset({FLOW_END}))],
        ),
        _ends(whole, backward & starts),
        _ends(whole, backward & ends),
        _ends(whole, other & starts),
        _ends(whole, other & ends),
    )


def in_both(some: Int64s, others: Int64s) -> Int64s:
    """The ids in both columns, in order. Ids that count up from small numbers are looked up, not sorted."""
    if not len(some) or not len(others):
        return np.empty(0, np.int64)
    top = int(max(some.max(), others.max()))
    if min(int(some.min()), int(others.min())) < 0 or top > 8 * (len(some) + len(others)) + (1 << 20):
        return np.intersect1d(some, others)
    seen = np.zeros((2, top + 1), np.bool_)
    seen[0, some] = True
    seen[1, others] = True
    return np.flatnonzero(seen[0] & seen[1])


def bind(ends: Ends, lanes: tuple[Int64s, Int64s], start: Int64s, rows: Int64s, *, last: bool) -> KeyColumn:
    """The event, of `rows`, that each end stands on: same process, same thread, same start.

    Where several begin there, the `last` of them in the file's order or the first.
    """
    pid, tid = lanes
    code = _codes(
        np.concatenate([pid[rows], ends.pid]),
        np.concatenate([tid[rows], ends.tid]),
        np.concatenate([start[rows], ends.time]),
    )
    of_event, of_end = code[: len(rows)], code[len(rows) :]
    order = np.argsort(of_event, kind="stable")
    place = np.searchsorted(of_event[order], of_end, side="right" if last else "left") - (1 if last else 0)
    inside = (place >= 0) & (place < len(order))
    found = np.zeros(len(of_end), np.bool_)
    found[inside] = of_event[order[place[inside]]] == of_end[inside]
    return KeyColumn(rows[order[place[found]]], ends.identity[found])


def _codes(*columns: Int64s) -> Int64s:
    """One number for each row; equal numbers mean equal rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place, return_inverse=True)[1].astype(np.int64)
    return code


def _joined(flows: Sequence[Flow]) -> Flow:
    if not flows:
        empty = np.empty(0, np.int64)
        return Flow(empty, empty, empty, empty, empty)
    return Flow(
        np.concatenate([flow.shape for flow in flows]),
        np.concatenate([flow.identity for flow in flows]),
        np.concatenate([flow.pid for flow in flows]),
        np.concatenate([flow.tid for flow in flows]),
        np.concatenate([flow.time for flow in flows]),
    )


def _of(whole: Flow, marks: list[bool]) -> Bools:
    return np.array(marks, np.bool_)[whole.shape] if marks else np.zeros(len(whole.shape), np.bool_)


def _ends(whole: Flow, chosen: Bools) -> Ends:
    return Ends(whole.identity[chosen], whole.pid[chosen], whole.tid[chosen], whole.time[chosen])
