"""Which process and thread each track becomes, under which number and name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.roles import Role, roles_of
from tracelink.events import Int64s, Track, TrackKind
from tracelink.graph import EventGraph

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


def metadata(layout: Layout, seats: Seats) -> Iterator[dict[str, Any]]:
    """The events that give processes and threads their names and their order."""
    for process in layout.processes:
        yield named("process_name", process.pid, 0, {"name": process.name, "original pid": process.original})
        yield named("process_labels", process.pid, 0, {"labels": process.label})
        yield named("process_sort_index", process.pid, 0, {"sort_index": process.pid})
    for pid, tid, name, thread in zip(seats.pid, seats.tid, seats.name, seats.thread, strict=True):
        yield named("thread_name", pid, tid, {"name": name, "original tid": thread.original})
        yield named("thread_sort_index", pid, tid, {"sort_index": tid})


def named(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """The event that says this of a process or thread."""
    return {"ph": "M", "name": name, "pid": pid, "tid": tid or pid, "ts": 0, "args": args}


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
