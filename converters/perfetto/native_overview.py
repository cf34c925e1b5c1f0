"""What a viewer shows of a native trace before anything is opened: real time, and all ranks in its overview strip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from tracelink._io.framing import delimited
from tracelink._model.columns import SECOND, Bools, Int64s
from tracelink._model.job import Job
from tracelink.converters.perfetto.native_arguments import arguments
from tracelink.converters.perfetto.native_packets import (
    HUNG_COLOUR,
    SEQUENCES_PER_BLOCK,
    PacketSequence,
    Tails,
    TrackEvents,
    in_order,
    number_field,
)
from tracelink.converters.perfetto.native_rank import RankPackets
from tracelink.converters.perfetto.packets import schema
from tracelink.converters.perfetto.timeline.layout import SUMMARY, world_size
from tracelink.converters.perfetto.timeline.schema import LINK, SUMMARY_CATEGORY

# Real time: a track with the time of day in UTC. Perfetto's own clock would add a group above all others.


MOST_READINGS = 12
CLOCK_NAME, UNIX_NAME = "time (UTC)", "seconds since 1970"
COLUMNS = ("time", "type", "track", "category", "name", "tail")
UNIX_TIME = "unix_ns"
"""The argument of a reading: nanoseconds since the Unix epoch."""


def clock_packets(job: Job, base: int, sequence: PacketSequence) -> bytes:
    """A track with readings of the clock over the whole job; nothing if no event has a time."""
    if job.first_ns is None or job.last_ns is None or base < 0:
        return b""
    first, last = job.first_ns, max(job.last_ns, job.first_ns + 1)
    step = _step((last - first) / MOST_READINGS)
    times = np.unique(np.array([first, *range(-(-first // step) * step, last, step)], np.int64))
    ends = np.append(times[1:], last)
    numbered = [b'{"%s":%d}' % (UNIX_TIME.encode(), time) for time in times.tolist()]
    tails = arguments(sequence.interned, LINK, numbered)
    name = sequence.interned.numbers(schema.TextTable.NAMES, _texts(times, step))
    unix = sequence.interned.numbers(
        schema.TextTable.NAMES, [f"{time / SECOND:.3f}" for time in times.tolist()]
    )
    tracks = [
        number_field(schema.Track.NUMBER, schema.CLOCK_TRACK)
        + delimited(schema.Track.NAME, CLOCK_NAME.encode()),
        number_field(schema.Track.NUMBER, schema.UNIX_TIME_TRACK)
        + number_field(schema.Track.PARENT, schema.CLOCK_TRACK)
        + delimited(schema.Track.NAME, UNIX_NAME.encode()),
    ]
    readings = _slices(schema.CLOCK_TRACK, times - base, ends - base, name, sequence, tails)
    again = _slices(schema.UNIX_TIME_TRACK, times - base, ends - base, unix, sequence)
    both = [np.concatenate([getattr(one, name) for one in (readings, again)]) for name in COLUMNS]
    order = np.argsort(both[0], kind="stable")
    time, type_, track, category, name, tail = (column[order] for column in both)
    events = TrackEvents(time, type_, track, category, name, Tails.of(tails), tail)
    return _declared(tracks) + b"".join(sequence.packets(events))


ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Times between readings that end on round times of day."""


def _step(least: float) -> int:
    """The first round number of nanoseconds that is not shorter."""
    parts = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    steps = [*parts, *(seconds * SECOND for seconds in ROUND_SECONDS)]
    return next((step for step in steps if step >= least), math.ceil(least / steps[-1]) * steps[-1])


def _texts(times: Int64s, step: int) -> list[str]:
    """Times of day, with as many digits as they need; the first with its date."""
    digits = max(0, 9 - len(str(step)) + 1) if step < SECOND else 0
    texts = []
    for number, time in enumerate(times.tolist()):
        seconds, rest = divmod(time, SECOND)
        text = datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S" if number else "%Y-%m-%d %H:%M:%S")
        shown = digits if number else max(digits, 3)
        texts.append(text + (f".{rest:09d}"[: shown + 1] if shown else ""))
    return texts


# All ranks: viewers draw the overview strip from threads of processes, not from tracks of the tree.


def overview_process(job: Job) -> bytes:
    """The process that contains a thread for each rank."""
    process = number_field(schema.Process.NUMBER, world_size(job)) + delimited(
        schema.Process.NAME, "all ranks · world size".encode()
    )
    return _declared(
        [
            number_field(schema.Track.NUMBER, schema.OVERVIEW_PROCESS)
            + delimited(schema.Track.PROCESS, process)
        ]
    )


def overview_of(packets: RankPackets, job: Job) -> Iterator[bytes]:
    """The thread of a rank, and on it the summary of the rank again."""
    timeline = packets.rank_timeline
    graph, drawing = timeline.graph, timeline.drawing
    tracks = [index for index, track in enumerate(graph.tracks) if track.identity == SUMMARY]
    rows = np.flatnonzero(np.isin(graph.events.track, tracks) & drawing.shown)
    if not len(rows):
        return
    rank = graph.ranks[0].rank
    thread = number_field(schema.Thread.PROCESS, world_size(job)) + number_field(schema.Thread.NUMBER, rank)
    thread += delimited(schema.Thread.NAME, b"rank")
    yield _declared(
        [
            number_field(schema.Track.NUMBER, schema.FIRST_OVERVIEW + rank)
            + delimited(schema.Track.THREAD, thread)
        ]
    )
    names = [graph.name(row) for row in rows.tolist()]
    start, hung = drawing.start[rows], np.isin(rows, list(drawing.hung))
    sequence = PacketSequence((packets.block + 1) * SEQUENCES_PER_BLOCK)
    yield from summary_packets(
        schema.FIRST_OVERVIEW + rank, start, start + drawing.duration[rows], names, hung, sequence
    )


# Slices of one track.


def summary_packets(
    track: int, start: Int64s, end: Int64s, names: Sequence[str], hung: Bools, sequence: PacketSequence
) -> Iterator[bytes]:
    """Slices that are nested or disjoint, by their names; those that hang have their colour."""
    name = sequence.interned.numbers(schema.TextTable.NAMES, names)
    tails = [HUNG_COLOUR if one else b"" for one in hung.tolist()]
    yield from sequence.packets(_slices(track, start, end, name, sequence, tails))


def _slices(
    track: int,
    start: Int64s,
    end: Int64s,
    name: Int64s,
    sequence: PacketSequence,
    tails: list[bytes] | None = None,
) -> TrackEvents:
    """Slices of one track that are nested or disjoint."""
    opening = np.lexsort((-end, start))
    order = in_order(
        np.concatenate([opening[::-1], opening]),
        np.repeat([schema.Type.END, schema.Type.BEGIN], len(opening)),
        start,
        end - start,
    )
    count, category = len(order.row), sequence.interned.number(schema.TextTable.CATEGORIES, SUMMARY_CATEGORY)
    tail = np.where((order.type == schema.Type.END) | (tails is None), -1, order.row)
    return TrackEvents(
        order.time,
        order.type,
        np.full(count, track),
        np.full(count, category),
        name[order.row],
        Tails.of(tails or []),
        tail,
    )


def _declared(tracks: list[bytes]) -> bytes:
    return b"".join(delimited(schema.PACKET, delimited(schema.Packet.TRACK, track)) for track in tracks)
