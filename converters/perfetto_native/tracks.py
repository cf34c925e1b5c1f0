"""Packets that say which tracks there are, how they are called, and in which order they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tracelink.converters.perfetto.layout import Layout, Seats
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.text import whole_text
from tracelink.converters.perfetto_native.schema import (
    BY_RANK,
    PACKET,
    ROOT_BY_RANK,
    Packet,
    Process,
    Thread,
    Track,
)
from tracelink.converters.perfetto_native.sequence import number_field
from tracelink.graph import EventGraph
from tracelink.wire import delimited


def counter_numbers(layout: Layout, seats: Seats, numbering: Numbering) -> dict[int, int]:
    """The number of the track of each counter, behind those of all processes and threads."""
    first = len(layout.processes) + len(seats.tid) + 1
    return {row: numbering.seat(number) for number, row in enumerate(layout.process_of_counter, first)}


def tracks_of(
    graph: EventGraph, layout: Layout, seats: Seats, counters: Mapping[int, int]
) -> Iterator[bytes]:
    """The tracks of one rank; `counters` are the numbers of those that are counters."""
    for process in layout.processes:
        yield process_track(process.pid, process.name)
    for pid, tid, name in zip(seats.pid, seats.tid, seats.name, strict=True):
        yield thread_track(pid, tid, name)
    for row, process in layout.process_of_counter.items():
        track = graph.tracks[row]
        yield counter_track(process.pid, counters[row], track.label or track.identity)


def root_track() -> bytes:
    """What all processes are under: it says that they have an order."""
    return (
        number_field(Track.NUMBER, 0)
        + number_field(Track.CHILD_ORDERING, BY_RANK)
        + number_field(Track.PROCESS_ORDERING, ROOT_BY_RANK)
        + number_field(Track.THREAD_ORDERING, ROOT_BY_RANK)
    )


def process_track(number: int, name: str, rank: int | None = None) -> bytes:
    """A process; its number is that of its track, and its place among all where no rank is given."""
    process = number_field(Process.NUMBER, number) + _text(Process.NAME, name)
    return (
        number_field(Track.NUMBER, number)
        + delimited(Track.PROCESS, process)
        + number_field(Track.CHILD_ORDERING, BY_RANK)
        + number_field(Track.RANK, number if rank is None else rank)
    )


def thread_track(process: int, number: int, name: str) -> bytes:
    """A thread; its number is that of its track and its place among all."""
    thread = number_field(Thread.PROCESS, process) + number_field(Thread.NUMBER, number)
    return (
        number_field(Track.NUMBER, number)
        + number_field(Track.PARENT, process)
        + delimited(Track.THREAD, thread + _text(Thread.NAME, name))
        + number_field(Track.RANK, number)
    )


def counter_track(process: int, number: int, name: str) -> bytes:
    """A counter of a process."""
    return (
        number_field(Track.NUMBER, number)
        + number_field(Track.PARENT, process)
        + _text(Track.NAME, name)
        + delimited(Track.COUNTER, b"")
        + number_field(Track.RANK, number)
    )


def _text(number: int, text: str) -> bytes:
    return delimited(number, whole_text(text).encode())


def declared(tracks: Iterable[bytes], base: int) -> bytes:
    """Packets for tracks, before all events: in their order the engine numbers processes."""
    time = number_field(Packet.TIME, base)
    return b"".join(delimited(PACKET, time + delimited(Packet.TRACK, track)) for track in tracks)
