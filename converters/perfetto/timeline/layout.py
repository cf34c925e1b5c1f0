"""Processes, threads, names, order, numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tracelink.model.columns import Float64s, Int64s
from tracelink.model.events import GPU_WORK, EventKind, Track, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.model.operations import COLLECTIVE_KERNEL

# Numbers for processes, threads and arrows that no two ranks share, though no rank knows of the others.


STRIDE = 10_000
"""Numbers of each block: more than a rank has threads, and few enough that all stay below 2^31."""

ARROWS = 1 << 28
"""Arrows of each block."""

BINDINGS = 1 << 40
"""The engine counts other arrows from 0 and takes the numbers that slices carry for its own."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The block of one rank, or of what ranks do together, among `blocks` of them."""

    block: int = 0
    blocks: int = 1
    digits: int = 1
    """Of the highest rank."""

    def rank(self, rank: int) -> str:
        """A rank as names have it: viewers sort names as texts."""
        return f"{rank:0{self.digits}}"

    def seat(self, number: int) -> int:
        """The process or thread that is `number` (1 and up) of its block; what does not fit stands behind all."""
        if number < STRIDE:
            return self.block * STRIDE + number
        return self.blocks * STRIDE + (number - STRIDE) * self.blocks + self.block

    @property
    def first_arrow(self) -> int:
        """Arrows with ends of their own have the numbers from here on."""
        return self.block * ARROWS + 1

    @property
    def first_binding(self) -> int:
        """Arrows that slices carry have the numbers from here on."""
        return BINDINGS + self.block * ARROWS


def rank_digits(job: Job) -> int:
    """How many digits the highest rank of a job has."""
    return len(str(max((part.rank for part in job.parts), default=0)))


# What each stream of a GPU is for, by the work that it does.


class Role(IntEnum):
    """What a stream is for; also the order of streams."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    NONE = 3
    """No work of the device is known of it."""

    @property
    def label(self) -> str:
        """As names of tracks say it."""
        return "" if self is Role.NONE else self.name.lower()


WORKS = (Role.COMPUTE, Role.COMMUNICATION, Role.COPY)


def roles_of(graph: EventGraph, tracks: Sequence[int]) -> Mapping[int, Role]:
    """The role of each stream among these tracks: what it spends most time on.

    The stream with most computation of a device computes, however long collectives on it wait for other ranks.
    """
    streams = [row for row in tracks if graph.tracks[row].kind == TrackKind.STREAM]
    if not streams:
        return {}
    spent = _time_by_work(graph)[streams]
    chosen = np.where(spent.any(axis=1), spent.argmax(axis=1), Role.NONE)
    by_device: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for place, row in enumerate(streams):
        by_device[graph.tracks[row].rank, graph.tracks[row].process].append(place)
    for places in by_device.values():
        most = max(places, key=lambda place: float(spent[place, Role.COMPUTE]))
        if spent[most, Role.COMPUTE]:
            chosen[most] = Role.COMPUTE
    return {row: Role(role) for row, role in zip(streams, chosen.tolist(), strict=True)}


def _time_by_work(graph: EventGraph) -> Float64s:
    """For each track and sort of work, how long it lasted; a nanosecond more for each, so that all of it counts."""
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


# Which process and thread each track becomes, under which number and name.


Order = tuple[int, int, str]


class Place(IntEnum):
    """What a process of the output stands for; also the order within a rank."""

    CPU = 0
    GPU = 1
    COLLECTIVES = 2
    NODES = 3
    COUNTERS = 4


PLACES = {
    TrackKind.THREAD: Place.CPU,
    TrackKind.PROCESS: Place.CPU,
    TrackKind.STREAM: Place.GPU,
    TrackKind.COMMUNICATOR: Place.COLLECTIVES,
    TrackKind.NODES: Place.NODES,
    TrackKind.COUNTER: Place.COUNTERS,
}

LABELS = {Place.CPU: "CPU", Place.COLLECTIVES: "process groups", Place.NODES: "execution trace"}


LABELLED = re.compile(r"^(thread -?\d+) \((.*)\)$")
"""How profilers call threads."""

DEVICE_COUNTER = re.compile(r"GPU (\d+) ")
"""How a counter of a device is called that its source gives to no process."""

OVERHEAD = "-1"
"""The process of what a profiler needed itself."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the output: one rank's CPU side, one of its GPUs, its communicators."""

    place: Place
    pid: int
    name: str
    label: str
    original: str


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the output, before its lanes have numbers of their own."""

    process: Process
    kind: TrackKind
    name: str
    original: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Processes, threads, and the thread of each track (-1: has none)."""

    title: str
    """The rank and its host."""
    processes: Sequence[Process]
    threads: Sequence[Thread]
    thread_of_track: npt.NDArray[np.int64]
    process_of_counter: Mapping[int, Process]


@dataclass(frozen=True, slots=True)
class Seats:
    """The numbered lanes of all threads: `first[thread] + lane` is a seat."""

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
    homes = _homes([track for _, track in used], [track for _, track in sampled])
    title = _title(graph, numbering)
    keys = sorted({homes[_identity(track)] for _, track in used + sampled}, key=_process_order)
    programs = {homes[_identity(track)]: track.process_label for _, track in used if track.process_label}
    processes = {
        key: _process(numbering.seat(number), key, title, programs.get(key, ""))
        for number, key in enumerate(keys, 1)
    }
    places = {key: number for number, key in enumerate(keys)}
    shown: dict[tuple[object, ...], _Shown] = {}
    roles = roles_of(graph, [row for row, _ in used])
    for row, track in used:
        shown.setdefault(_identity(track), _Shown(track, roles.get(row, Role.NONE)))
    ordered = sorted(shown, key=lambda key: (places[homes[key]], shown[key].order))
    threads = _threads([(processes[homes[key]], shown[key]) for key in ordered], numbering)
    number = {key: index for index, key in enumerate(ordered)}
    thread_of_track = np.full(len(graph.tracks), -1, np.int64)
    for row, track in used:
        thread_of_track[row] = number[_identity(track)]
    return Layout(
        title,
        list(processes.values()),
        threads,
        thread_of_track,
        {row: processes[homes[_identity(track)]] for row, track in sampled},
    )


def seats(layout: Layout, lanes: Int64s, numbering: Numbering) -> Seats:
    """Numbers for every lane of every thread; no number is used twice, not even by a process."""
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
    tids = [numbering.seat(number) for number in range(after, after + len(threads))]
    return Seats(first, [thread.process.pid for thread in threads], tids, names, threads)


ProcessKey = tuple[int, Place, str]


def _identity(track: Track) -> tuple[object, ...]:
    """What makes two tracks one: two windows of a profiler see the same thread."""
    return track.rank, track.kind, track.process, track.identity


def _homes(used: Sequence[Track], counters: Sequence[Track]) -> dict[tuple[object, ...], ProcessKey]:
    """The process of each track. What belongs to no thread joins the process of its rank's threads."""
    homes: dict[tuple[object, ...], ProcessKey] = {}
    cpus: dict[int, list[str]] = {}
    for track in used:
        if track.kind == TrackKind.THREAD:
            cpus.setdefault(track.rank, []).append(track.process)
    devices = {(track.rank, track.process) for track in used if track.kind == TrackKind.STREAM}
    for track in (*used, *counters):
        place, process = PLACES[track.kind], track.process or _named_device(track)
        own = cpus.get(track.rank, [])
        if place in (Place.COLLECTIVES, Place.NODES):
            process = ""
        elif track.kind == TrackKind.PROCESS and own and process not in own:
            process = min(own, key=_natural)
        elif place == Place.COUNTERS and process in own:
            place = Place.CPU
        elif place == Place.COUNTERS and (track.rank, process) in devices:
            place = Place.GPU
        elif place == Place.COUNTERS:
            process = track.process
        homes[_identity(track)] = track.rank, place, process
    return homes


def _named_device(track: Track) -> str:
    """The device that the name of a counter begins with."""
    named = DEVICE_COUNTER.match(track.label)
    return named[1] if named and track.kind == TrackKind.COUNTER else ""


def _title(graph: EventGraph, numbering: Numbering) -> str:
    rank = graph.ranks[0]
    return " · ".join(part for part in (f"rank {numbering.rank(rank.rank)}", rank.host) if part)


def _process(pid: int, key: ProcessKey, title: str, program: str) -> Process:
    _, place, original = key
    label = LABELS.get(place) or (
        f"GPU {original}".rstrip() if place == Place.GPU else original or "counters"
    )
    own = program if place == Place.CPU else label
    name = f"{title} · {own}" if own else title
    if place == Place.CPU and original:
        name += f" ({original})"
    return Process(place, pid, name, label, original)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A track that is drawn."""

    track: Track
    role: Role

    @property
    def main(self) -> bool:
        """Whether it is the thread that its process began with."""
        track = self.track
        return track.kind == TrackKind.THREAD and track.process == track.identity

    @property
    def order(self) -> tuple[bool, Role, bool, int, Order]:
        """What belongs to no thread stands last, streams without work after others, a main thread first."""
        track = self.track
        return (
            track.kind == TrackKind.PROCESS,
            self.role,
            not self.main,
            track.sort,
            _natural(track.identity),
        )


def _threads(tracks: Sequence[tuple[Process, _Shown]], numbering: Numbering) -> list[Thread]:
    """Threads with names that are unique within their process."""
    threads: list[Thread] = []
    used: set[tuple[int, str]] = set()
    for process, shown in tracks:
        track = shown.track
        name = f"rank {numbering.rank(track.rank)} {_thread_name(shown)}"
        if (process.pid, name) in used:
            name += f" #{track.process} {track.identity}"
        used.add((process.pid, name))
        threads.append(Thread(process, track.kind, name, track.identity))
    return threads


def _thread_name(shown: _Shown) -> str:
    track, label = shown.track, shown.track.label.strip()
    match track.kind:
        case TrackKind.STREAM:
            name = stream_name(track)
            return f"{name} · {shown.role.label}" if shown.role.label else name
        case TrackKind.THREAD if shown.main:
            return f"main thread {track.identity}"
        case TrackKind.THREAD:
            return LABELLED.sub(r"\1 \2", label) or f"thread {track.identity}"
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
    """A stream as its source calls it, or by its number."""
    return track.label.strip() or f"stream {track.identity}"


def _process_order(key: ProcessKey) -> tuple[int, int, Order]:
    return key[0], int(key[1]), _natural(key[2])


def _natural(text: str) -> Order:
    """Numbers by value and before other texts."""
    number = text.removeprefix("-")
    return (0, int(text), "") if number.isascii() and number.isdigit() else (1, 0, text)


# What Perfetto's JSON says, as far as it is written here: the only place where its words stand.


# The category of each event: its kind, in the words of profilers.
