"""Tracks, counters, slices recorded in halves, and flows of a Kineto trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import (
    LOWEST,
    MICROSECOND,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    distinct,
    previous_at_least,
    stable_order,
    starts_of,
)
from tracelink._model.communications import text_in
from tracelink._model.events import BYTES, Counters, Track, TrackKind
from tracelink.converters.kineto import schema
from tracelink.converters.kineto.columns import ElementColumns, FlowEnds, Half, Metadata, Samples
from tracelink.converters.kineto.elements import TEXT_LANE, Shapes

# Threads and streams, and their names.


SYNC_STREAM = 1_000_000
"""Since 2026 synchronisations of a stream have a lane of their own: the number of the stream plus this."""


LARGEST_SORT_INDEX = 1 << 62
"""Larger sort indexes are invalid."""


class Names(Struct):
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
                case k if k == schema.PROCESS_NAME:
                    self.processes[record.pid] = text_in(record.arguments.get(schema.NAME))
                case k if k == schema.PROCESS_LABELS:
                    self.labels[record.pid] = text_in(record.arguments.get(schema.LABELS))
                case k if k == schema.PROCESS_SORT:
                    self.process_sort[record.pid] = _order(record.arguments.get(schema.SORT_INDEX))
                case k if k == schema.THREAD_NAME:
                    self.threads[record.pid, record.tid] = text_in(record.arguments.get(schema.NAME))
                case k if k == schema.THREAD_SORT:
                    self.thread_sort[record.pid, record.tid] = _order(record.arguments.get(schema.SORT_INDEX))
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


DEVICE_TYPES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA", 20: "GPU"}
"""Names of c10 device types: CPU, CUDA, HIP, and other accelerators; 20 is any that is registered from outside."""

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
    samples = Samples.concatenate(columns.samples)
    series, first = distinct(samples.counter, samples.pid)
    rows = stable_order(series)
    texts = columns.counters.texts()
    for head, chosen in zip(first.tolist(), np.split(rows, starts_of(series[rows])[1:]), strict=False):
        process, counter = names.text(int(samples.pid[head])), texts[samples.counter[head]]
        yield process, counter, samples.time[chosen], samples.value[chosen]


def _memory(columns: ElementColumns) -> Iterator[Series]:
    """Allocated and reserved bytes of each device, from memory events."""
    if not columns.memory:
        return
    indexes = np.concatenate([indexes for indexes, _ in columns.memory])
    times = columns.table["start"][np.searchsorted(columns.table["index"], indexes)]
    allocated, reserved, kind, device = np.concatenate([values for _, values in columns.memory]).T
    numbers, first = distinct(kind, device)
    for number, (code, index) in enumerate(zip(kind[first].tolist(), device[first].tolist(), strict=True)):
        of_device = numbers == number
        label = DEVICE_TYPES.get(code, f"device type {code}") + ("" if index < 0 else f" {index}")
        yield "", f"{label} allocated", times[of_device], allocated[of_device].astype(np.float64)
        has_reserved = of_device & (reserved >= 0)
        if not reserved[has_reserved].any():
            continue  # the allocator of CPUs reserves nothing, and records 0
        yield "", f"{label} reserved", times[has_reserved], reserved[has_reserved].astype(np.float64)


# Slices recorded in two halves: begin and end on a thread, or of an asynchronous operation.


class Slice(Struct, frozen=True):
    """A slice from two halves, with the arguments of its begin."""

    cat: str
    name: str
    pid: int
    tid: int
    start: int
    duration: int
    index: int


class PairedSlices(Struct):
    """Slices from two halves, and the number of ends without a begin."""

    slices: list[Slice] = field(default_factory=list)
    unmatched_ends: int = 0


def pair(halves: Sequence[Half]) -> PairedSlices:
    """Pairs begins and ends in the order of time; a begin without an end is an unfinished slice."""
    paired = PairedSlices()
    lanes: dict[tuple[object, ...], _OpenSlices] = {}
    for half in sorted(halves, key=lambda half: half.time):
        lane = lanes.setdefault(_lane(half), _OpenSlices())
        if half.ph in (schema.BEGIN, schema.ASYNC_BEGIN):
            lane.add(half)
        elif half.ph == schema.ASYNC_INSTANT:
            paired.slices.append(_slice(half, 0))
        elif (begin := lane.closed_by(half)) is None:
            paired.unmatched_ends += 1
        else:
            paired.slices.append(_slice(begin, half.time - begin.time))
    paired.slices += [_slice(begin, UNKNOWN) for lane in lanes.values() for begin in lane.unfinished()]
    return paired


def _lane(half: Half) -> tuple[object, ...]:
    if half.ph in (schema.BEGIN, schema.END):
        return (half.pid, half.tid)
    return (half.cat, half.identity, half.pid)


class _OpenSlices(Struct):
    """The begins of a lane; those that are closed stay in the lists until they are the last."""

    begun: list[Half] = field(default_factory=list)
    named: dict[str, list[Half]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)

    def add(self, begin: Half) -> None:
        """Opens a slice."""
        self.begun.append(begin)
        self.named.setdefault(begin.name, []).append(begin)

    def closed_by(self, end: Half) -> Half | None:
        """The innermost open slice that this end can close: with the same name, if the end has one."""
        candidates = self.named.get(end.name, []) if end.name else self.begun
        while candidates and candidates[-1].index in self.closed:
            candidates.pop()
        if not candidates:
            return None
        self.closed.add(candidates[-1].index)
        return candidates.pop()

    def unfinished(self) -> list[Half]:
        """The slices that are still open."""
        return [begin for begin in self.begun if begin.index not in self.closed]


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


# Flows of the producer, by category.


class Flows(Struct, frozen=True):
    """The flows of a file by category."""

    launches: Int64s
    """Ids of complete launch flows: correlations that the producer linked itself."""
    backward_out: FlowEnds
    backward_in: FlowEnds
    other_out: FlowEnds
    other_in: FlowEnds


def flows_by_category(
    launch_ends: Sequence[tuple[Int64s, Int64s]], flows: Sequence[FlowEnds], shapes: Shapes
) -> Flows:
    """The starts and ends of all flows, by category and direction; a step ends a flow and starts the next one."""
    merged = FlowEnds.concatenate(flows)
    launch_shape = np.concatenate([np.empty(0, np.int64), *(shape for shape, _ in launch_ends)]).astype(
        np.int64
    )
    launch = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in launch_ends)]).astype(np.int64)
    backward = shapes.in_category(merged.shape, schema.BACKWARD_FLOWS)
    start, step, end = (
        shapes.are(merged.shape, frozenset({role}))
        for role in (schema.FLOW_START, schema.FLOW_STEP, schema.FLOW_END)
    )
    outs = merged.take(~backward & (start | step))
    ins = merged.take(~backward & (end | step))
    return Flows(
        _in_both(
            launch[shapes.are(launch_shape, frozenset({schema.FLOW_START}))],
            launch[shapes.are(launch_shape, frozenset({schema.FLOW_END}))],
        ),
        merged.take(backward & start),
        merged.take(backward & end),
        *_single_flows(outs, ins, shapes),
    )


def _in_both(first: Int64s, second: Int64s) -> Int64s:
    """The ids in both columns, in order. Ids close to each other are looked up in a table, not sorted."""
    if not len(first) or not len(second):
        return np.empty(0, np.int64)
    low, high = min(int(first.min()), int(second.min())), max(int(first.max()), int(second.max()))
    if high - low > 8 * (len(first) + len(second)) + (1 << 20):
        return np.intersect1d(_sorted(first), _sorted(second), assume_unique=True)
    seen = np.zeros((2, high - low + 1), np.bool_)
    seen[0, first - low] = True
    seen[1, second - low] = True
    return np.flatnonzero(seen[0] & seen[1]) + low


def _sorted(ids: Int64s) -> Int64s:
    """The distinct ids, in order; `np.unique` takes several times as long."""
    in_order = np.sort(ids)
    return in_order[starts_of(in_order)]


def _single_flows(outs: FlowEnds, ins: FlowEnds, shapes: Shapes) -> tuple[FlowEnds, FlowEnds]:
    """The same with an id of its own for each start: categories have ids of their own, and ids are used again.

    An end belongs to the last start with its id before it, or to the first one if it is before all of them.
    """
    texts = shapes.table.texts()
    names = {category: number for number, category in enumerate(sorted({text[1:] for text in texts}))}
    category = np.array([names[text[1:]] for text in texts], np.int64)
    shape = np.concatenate([outs.shape, ins.shape])
    flow, first = distinct(category[shape], np.concatenate([outs.identity, ins.identity]))
    if len(np.unique(flow[: len(outs)])) == len(outs) and len(np.unique(category[shape])) < 2:
        return outs, ins
    starts = np.arange(len(flow)) < len(outs)
    turn = np.array([_TURNS.get(text[:1], 0) for text in texts], np.int64)[shape]
    turn += starts & (turn > 0)
    order = np.lexsort((turn, np.concatenate([outs.time, ins.time]), flow))
    latest = np.maximum.accumulate(np.where(starts[order], np.arange(len(order)), UNKNOWN))
    start = np.empty(len(order), np.int64)
    start[order] = np.where(latest == UNKNOWN, UNKNOWN, order[latest])
    early = np.flatnonzero((start == UNKNOWN) | (flow[start] != flow))
    first_start = np.full(len(first), UNKNOWN, np.int64)
    only_starts = np.flatnonzero(starts & (turn == 0))[::-1]
    first_start[flow[only_starts]] = only_starts
    start[early] = first_start[flow[early]]
    identity = np.where(start == UNKNOWN, np.arange(len(start)), start)
    return replace(outs, identity=identity[: len(outs)]), replace(ins, identity=identity[len(outs) :])


_TURNS = {schema.FLOW_START: 0, schema.FLOW_STEP: 1, schema.FLOW_END: 3}
"""At the same time: starts, then steps as ends and as starts, then ends."""


# The events at which flows start and end.


class Placed(Struct, frozen=True):
    """Where and when the events of a file are, one row each."""

    pid: Int64s
    tid: Int64s
    start: Int64s
    duration: Int64s


def bind_drawn(ends: FlowEnds, events: Placed, *, starting: bool) -> Int64s:
    """The event at each end of a flow, or UNKNOWN.

    The last event that starts at the same time. Else, for the start of a flow, the innermost event that ends there, or
    one tick later. Else the innermost event around it; the next one to start, if the end binds to the next.
    """
    bound = bind_to_times(ends, events, events.start, np.arange(len(events.start)), last=True)
    left = np.flatnonzero(bound == UNKNOWN)
    if not len(left):
        return bound
    rows = _of_lanes(events, ends.take(left))
    if starting:
        closes = events.start + events.duration
        for ahead in (0, _tick(events)):
            begun = rows[events.duration[rows] >= ahead]
            bound[left] = bind_to_times(ends.take(left), events, closes - ahead, begun, last=True)
            left = np.flatnonzero(bound == UNKNOWN)
    bound[left] = _around_or_next(ends.take(left), events, rows)
    return bound


def _of_lanes(events: Placed, ends: FlowEnds) -> Int64s:
    """The events on the threads of flow ends, outer ones first."""
    size = len(events.start)
    lane, _ = distinct(np.concatenate([events.pid, ends.pid]), np.concatenate([events.tid, ends.tid]))
    wanted = np.zeros(len(lane), np.bool_)
    wanted[lane[size:]] = True
    rows = np.flatnonzero(wanted[lane[:size]])
    return rows[np.lexsort((-events.duration[rows], events.start[rows]))]


def _tick(events: Placed) -> int:
    """The resolution of times: a microsecond if no event has a fraction of one."""
    times = events.start, events.duration
    return MICROSECOND if all((time[time >= 0] % MICROSECOND == 0).all() for time in times) else 1


def _around_or_next(ends: FlowEnds, events: Placed, rows: Int64s) -> Int64s:
    """The innermost event around each flow end, or the next one to start, or UNKNOWN; `rows` are outer ones first."""
    size = len(rows)
    pid, tid = np.concatenate([events.pid[rows], ends.pid]), np.concatenate([events.tid[rows], ends.tid])
    lane, _ = distinct(pid, tid)
    start, duration = events.start[rows], events.duration[rows]
    unfinished = duration < 0
    times = np.concatenate([start, ends.time, start + duration])
    time = np.unique(times, return_inverse=True)[1].astype(np.int64)
    span = int(time.max(initial=0)) + 2
    opens, closes = lane * span + time[: len(lane)], lane[:size] * span + time[len(lane) :]
    closes[unfinished] = (lane[:size][unfinished] + 1) * span - 1
    order = np.argsort(opens, kind="stable")
    nothing = np.full(len(ends), LOWEST)
    around, _ = previous_at_least(
        np.concatenate([closes, nothing])[order],
        np.concatenate([np.full(size, LOWEST), opens[size:]])[order],
    )
    event = np.empty(len(order), np.int64)
    event[order] = np.where(around == UNKNOWN, UNKNOWN, order[around])
    found = event[size:]
    by_start = np.argsort(opens[:size], kind="stable")
    following = np.searchsorted(opens[by_start], opens[size:])
    following = np.where(following < size, np.append(by_start, UNKNOWN)[following], UNKNOWN)
    following[lane[following] != lane[size:]] = UNKNOWN
    found = np.where(ends.to_next, following, found)
    return np.where(found == UNKNOWN, UNKNOWN, np.append(rows, UNKNOWN)[found])


def bind_to_times(ends: FlowEnds, events: Placed, time: Int64s, rows: Int64s, *, last: bool) -> Int64s:
    """The event, of `rows`, at each flow end, or UNKNOWN: same process, same thread, equal `time`.

    Of several events the `last` of `rows`, or the first.
    """
    code, _ = distinct(
        np.concatenate([events.pid[rows], ends.pid]),
        np.concatenate([events.tid[rows], ends.tid]),
        np.concatenate([time[rows], ends.time]),
    )
    of_event, of_end = code[: len(rows)], code[len(rows) :]
    order = np.argsort(of_event, kind="stable")
    index = np.searchsorted(of_event[order], of_end, side="right" if last else "left") - (1 if last else 0)
    inside = (index >= 0) & (index < len(order))
    found = np.zeros(len(of_end), np.bool_)
    found[inside] = of_event[order[index[inside]]] == of_end[inside]
    bound = np.full(len(ends), UNKNOWN, np.int64)
    bound[found] = rows[order[index[found]]]
    return bound
