"""Processes and threads of the output for the tracks of a rank: names, order, numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.columns import Float64s, Int64s
from tracelink._model.events import GPU_WORK, EventKind, Track, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.operations import COLLECTIVE_KERNEL

# Numbers of processes, threads and flows: unique over all ranks, though ranks are written independently.


IDS_PER_BLOCK = 10_000
"""Numbers of each block: more than the threads of a rank, and few enough that all stay below 2^31."""

FLOWS_PER_BLOCK = 1 << 28
"""Numbers of flows in each block."""

FIRST_SLICE_FLOW = 1 << 40
"""Flows that slices carry are numbered from here on: the engine counts the other flows from 0."""


class Numbering(Struct, frozen=True):
    """The block of numbers of one rank, or of what belongs to no single rank, among `blocks` of them."""

    block: int = 0
    blocks: int = 1
    digits: int = 1
    """Digits of the highest rank."""

    def rank(self, rank: int) -> str:
        """A rank as part of a name, with leading zeros: viewers sort names as strings."""
        return f"{rank:0{self.digits}}"

    def id_of(self, number: int) -> int:
        """The process or thread with this number (from 1 on) in its block; those that do not fit follow all blocks."""
        if number < IDS_PER_BLOCK:
            return self.block * IDS_PER_BLOCK + number
        return self.blocks * IDS_PER_BLOCK + (number - IDS_PER_BLOCK) * self.blocks + self.block

    @property
    def first_flow(self) -> int:
        """First number of flows with events of their own."""
        return self.block * FLOWS_PER_BLOCK + 1

    @property
    def first_slice_flow(self) -> int:
        """First number of flows that slices carry."""
        return FIRST_SLICE_FLOW + self.block * FLOWS_PER_BLOCK


def rank_digits(job: LinkedJob) -> int:
    """The number of digits of the highest rank of a job."""
    return len(str(max((part.rank for part in job.parts), default=0)))


def world_size(job: LinkedJob) -> int:
    """The number of ranks of a job, as far as known: more than any of its ranks."""
    sizes = (rank.world_size or 0 for rank in job.ranks)
    return max(max(sizes, default=0), max((rank.rank for rank in job.ranks), default=0) + 1)


# Roles of GPU streams, by the work that they do.


class Role(IntEnum):
    """The use of a stream; also the order of streams."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    UNKNOWN = 3
    """No work of the stream is known."""

    @property
    def label(self) -> str:
        """The role in the name of a track."""
        return "" if self is Role.UNKNOWN else self.name.lower()


WORKS = (Role.COMPUTE, Role.COMMUNICATION, Role.COPY)


def roles_of(graph: EventGraph, tracks: Sequence[int]) -> Mapping[int, Role]:
    """The role of each stream among these tracks: the kind of work that it spends most time on.

    The stream with most computation of a device is its compute stream, however long collectives on it wait.
    """
    streams = [row for row in tracks if graph.tracks[row].kind == TrackKind.STREAM]
    if not streams:
        return {}
    spent = _time_by_work(graph)[streams]
    chosen = np.where(spent.any(axis=1), spent.argmax(axis=1), Role.UNKNOWN)
    by_device: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for index, row in enumerate(streams):
        by_device[graph.tracks[row].rank, graph.tracks[row].process].append(index)
    for indexes in by_device.values():
        most = max(indexes, key=lambda index: float(spent[index, Role.COMPUTE]))
        if spent[most, Role.COMPUTE]:
            chosen[most] = Role.COMPUTE
    return {row: Role(role) for row, role in zip(streams, chosen.tolist(), strict=True)}


def _time_by_work(graph: EventGraph) -> Float64s:
    """For each track and kind of work the time spent; each event counts a nanosecond more, so that none counts 0."""
    events = graph.events
    rows = np.flatnonzero(events.of_kind(*GPU_WORK))
    copies = events.kind[rows] != EventKind.KERNEL
    names, which = np.unique(events.name[rows], return_inverse=True)
    known = [COLLECTIVE_KERNEL.search(graph.strings[name]) is not None for name in names.tolist()]
    communicates = np.array(known, np.bool_)[which]
    work = np.where(copies, Role.COPY, np.where(communicates, Role.COMMUNICATION, Role.COMPUTE))
    code = events.track[rows].astype(np.int64) * len(WORKS) + work
    lasted = np.maximum(events.duration[rows], 0) + 1
    spent = np.bincount(code, lasted, len(graph.tracks) * len(WORKS)).astype(np.float64)
    return spent.reshape(-1, len(WORKS))


# Processes and threads.


SortKey = tuple[int, int, str]


class ProcessKind(IntEnum):
    """The content of a process of the output; also the order within a rank."""

    CPU = 0
    GPU = 1
    COLLECTIVES = 2
    NODES = 3
    COUNTERS = 4


KIND_OF_PROCESS = {
    TrackKind.THREAD: ProcessKind.CPU,
    TrackKind.PROCESS: ProcessKind.CPU,
    TrackKind.STREAM: ProcessKind.GPU,
    TrackKind.COMMUNICATOR: ProcessKind.COLLECTIVES,
    TrackKind.NODES: ProcessKind.NODES,
    TrackKind.COUNTER: ProcessKind.COUNTERS,
}

LABELS = {
    ProcessKind.CPU: "CPU",
    ProcessKind.COLLECTIVES: "process groups",
    ProcessKind.NODES: "execution trace",
}


NAMED_THREAD = re.compile(r"^(thread -?\d+) \((.*)\)$")
"""Names of threads in profiles."""

DEVICE_COUNTER = re.compile(r"GPU (\d+) ")
"""Names of counters of a device that belong to no process, and of processes with counters of a device."""

SUMMARY = "steps and waits"
"""The identity of the track that shows at a glance what a rank does; it is the first of the rank."""

OVERHEAD = "-1"
"""The process of the profiler's own overhead."""


class Process(Struct, frozen=True):
    """A process of the output: the CPU side of one rank, one of its GPUs, or its process groups."""

    kind: ProcessKind
    pid: int
    name: str
    label: str
    original: str

    @property
    def is_of_no_rank(self) -> bool:
        """True if it only has counters of a host, or of a device whose rank is unknown."""
        return self.kind == ProcessKind.COUNTERS and self.name == self.label


class Thread(Struct, frozen=True):
    """A thread of the output, which has one or more lanes."""

    process: Process
    kind: TrackKind
    name: str
    original: str


class Layout(Struct, frozen=True):
    """Processes, threads, and the thread of each track (-1 without one)."""

    title: str
    """The rank and its host."""
    processes: Sequence[Process]
    threads: Sequence[Thread]
    thread_of_track: npt.NDArray[np.int64]
    process_of_counter: Mapping[int, Process]


class OutputThreads(Struct, frozen=True):
    """Threads of the output: one for each lane of each thread, at the index `first[thread] + lane`."""

    first: Int64s
    pid: Sequence[int]
    tid: Sequence[int]
    name: Sequence[str]
    thread: Sequence[Thread]


def lay_out(
    graph: EventGraph, tracks: Iterable[int], counters: Iterable[int], numbering: Numbering
) -> Layout:
    """Processes and threads for the tracks that are drawn, in the order in which they are shown."""
    used = [(row, graph.tracks[row]) for row in tracks]
    sampled = [(row, graph.tracks[row]) for row in counters]
    process_keys = _process_keys([track for _, track in used], [track for _, track in sampled])
    title = _title(graph, numbering)
    keys = sorted({process_keys[_identity(track)] for _, track in used + sampled}, key=_process_order)
    programs = {
        process_keys[_identity(track)]: track.process_label
        for _, track in used + sampled
        if track.process_label
    }
    processes = {
        key: _process(numbering.id_of(number), key, title, programs.get(key, ""))
        for number, key in enumerate(keys, 1)
    }
    positions = {key: number for number, key in enumerate(keys)}
    drawn: dict[tuple[object, ...], _DrawnTrack] = {}
    roles = roles_of(graph, [row for row, _ in used])
    for row, track in used:
        drawn.setdefault(_identity(track), _DrawnTrack(track, roles.get(row, Role.UNKNOWN)))
    ordered = sorted(drawn, key=lambda key: (positions[process_keys[key]], drawn[key].order))
    threads = _threads([(processes[process_keys[key]], drawn[key]) for key in ordered], numbering)
    number = {key: index for index, key in enumerate(ordered)}
    thread_of_track = np.full(len(graph.tracks), -1, np.int64)
    for row, track in used:
        thread_of_track[row] = number[_identity(track)]
    return Layout(
        title,
        list(processes.values()),
        threads,
        thread_of_track,
        {row: processes[process_keys[_identity(track)]] for row, track in sampled},
    )


def output_threads(layout: Layout, lanes: Int64s, numbering: Numbering) -> OutputThreads:
    """A unique number for every lane of every thread; no process has it either."""
    first = np.cumsum(lanes) - lanes
    threads = [
        thread for thread, count in zip(layout.threads, lanes.tolist(), strict=True) for _ in range(count)
    ]
    names = [
        thread.name if lane == 0 else f"{thread.name} ({lane + 1})"
        for thread, count in zip(layout.threads, lanes.tolist(), strict=True)
        for lane in range(count)
    ]
    after = len(layout.processes) + 1
    # the summary has the last number: without it, which is how one rank is written as JSON, all others are the same
    order = np.argsort([thread.original == SUMMARY for thread in threads], kind="stable")
    tids = [numbering.id_of(after + number) for number in np.argsort(order).tolist()]
    return OutputThreads(first, [thread.process.pid for thread in threads], tids, names, threads)


ProcessKey = tuple[int, ProcessKind, str]


def _identity(track: Track) -> tuple[object, ...]:
    """Tracks with equal identity are the same: two windows of a profiler contain the same thread."""
    return track.rank, track.kind, track.process, track.identity


def _process_keys(used: Sequence[Track], counters: Sequence[Track]) -> dict[tuple[object, ...], ProcessKey]:
    """The process of each track. Tracks that are not threads join the process of the threads of their rank."""
    process_keys: dict[tuple[object, ...], ProcessKey] = {}
    cpus: dict[int, list[str]] = {}
    for track in used:
        if track.kind == TrackKind.THREAD and track.identity != SUMMARY:
            cpus.setdefault(track.rank, []).append(track.process)
    devices = {(track.rank, track.process) for track in used if track.kind == TrackKind.STREAM}
    for track in (*used, *counters):
        kind, process = KIND_OF_PROCESS[track.kind], _device_of_counter(track) or track.process
        own = cpus.get(track.rank, [])
        if kind in (ProcessKind.COLLECTIVES, ProcessKind.NODES):
            process = ""
        elif track.kind == TrackKind.PROCESS and own and process not in own:
            process = min(own, key=_natural_key)
        elif kind == ProcessKind.COUNTERS and process in own:
            kind = ProcessKind.CPU
        elif kind == ProcessKind.COUNTERS and (track.rank, process) in devices:
            kind = ProcessKind.GPU
        elif kind == ProcessKind.COUNTERS:
            process = track.process
        process_keys[_identity(track)] = track.rank, kind, process
    for track in used:
        if track.identity == SUMMARY:
            del process_keys[_identity(track)]
            process_keys[_identity(track)] = min(
                process_keys.values(), key=_process_order, default=(track.rank, ProcessKind.CPU, "")
            )
    return process_keys


def _device_of_counter(track: Track) -> str:
    """The device in the name of a counter, or of its process, such as `GPU 0 Counters`."""
    match = DEVICE_COUNTER.match(track.process or track.label)
    return match[1] if match and track.kind == TrackKind.COUNTER else ""


def _title(graph: EventGraph, numbering: Numbering) -> str:
    rank = graph.ranks[0]
    return " · ".join(part for part in (f"rank {numbering.rank(rank.rank)}", rank.host) if part)


def _process(pid: int, key: ProcessKey, title: str, program: str) -> Process:
    _, kind, original = key
    if kind == ProcessKind.COUNTERS and program:
        return Process(kind, pid, program, program, original)
    label = LABELS.get(kind) or (
        f"GPU {original}".rstrip() if kind == ProcessKind.GPU else original or "counters"
    )
    own = program if kind == ProcessKind.CPU else label
    name = f"{title} · {own}" if own else title
    if kind == ProcessKind.CPU and original:
        name += f" ({original})"
    return Process(kind, pid, name, label, original)


class _DrawnTrack(Struct, frozen=True):
    """A track that is drawn."""

    track: Track
    role: Role

    @property
    def main(self) -> bool:
        """True if it is the main thread of its process."""
        track = self.track
        return track.kind == TrackKind.THREAD and track.process == track.identity

    @property
    def order(self) -> tuple[bool, bool, Role, bool, int, SortKey]:
        """The summary and main threads first, streams without work after others, tracks without a thread last."""
        track = self.track
        return (
            track.identity != SUMMARY,
            track.kind == TrackKind.PROCESS,
            self.role,
            not self.main,
            track.sort,
            _natural_key(track.identity),
        )


def _threads(tracks: Sequence[tuple[Process, _DrawnTrack]], numbering: Numbering) -> list[Thread]:
    """Threads with names that are unique within their process."""
    threads: list[Thread] = []
    used: set[tuple[int, str]] = set()
    for process, drawn in tracks:
        track = drawn.track
        name = f"rank {numbering.rank(track.rank)} {_thread_name(drawn)}"
        if (process.pid, name) in used:
            name += f" #{track.process} {track.identity}"
        used.add((process.pid, name))
        threads.append(Thread(process, track.kind, name, track.identity))
    return threads


def _thread_name(drawn: _DrawnTrack) -> str:
    track, label = drawn.track, drawn.track.label.strip()
    match track.kind:
        case TrackKind.STREAM:
            name = stream_name(track)
            return f"{name} · {drawn.role.label}" if drawn.role.label else name
        case TrackKind.THREAD if drawn.main:
            return f"main thread {track.identity}"
        case TrackKind.THREAD if track.identity == SUMMARY:
            return SUMMARY
        case TrackKind.THREAD:
            return NAMED_THREAD.sub(r"\1 \2", label) or f"thread {track.identity}"
        case TrackKind.COMMUNICATOR:
            return f"group {label or track.identity}"
        case TrackKind.PROCESS if track.process == OVERHEAD:
            return "profiler overhead"
        case TrackKind.PROCESS if not label or label.isdecimal():
            lane = f"{track.process} {track.identity}".strip()
            return f"profiler {lane}".strip()
        case _:
            return label or track.identity or track.process


def stream_name(track: Track) -> str:
    """The recorded name of a stream, or its number."""
    return track.label.strip() or f"stream {track.identity}"


def _process_order(key: ProcessKey) -> tuple[int, int, SortKey]:
    return key[0], int(key[1]), _natural_key(key[2])


def _natural_key(text: str) -> SortKey:
    """Sorts numbers by value, and before other strings."""
    number = text.removeprefix("-")
    return (0, int(text), "") if number.isascii() and number.isdigit() else (1, 0, text)
