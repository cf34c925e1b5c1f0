"""Writes a job as one native trace: ranks, process groups and flows between ranks, in order of time."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import BinaryIO, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.framing import VARINT, delimited, key, varint, varint_at
from tracelink._io.json_array import at_several_places
from tracelink._io.system import read_at
from tracelink._io.targets import Target, spool_folder
from tracelink._io.temporary import GzipStream
from tracelink._model.columns import SECOND, Bools, Int64s
from tracelink._model.findings import Finding
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.facts import (
    PartsByCollective,
    added_arguments,
    arrival_arguments,
    collective_arguments,
)
from tracelink.converters.perfetto.native_arguments import arguments
from tracelink.converters.perfetto.native_packets import (
    HUNG_COLOUR,
    INCOMING,
    OUTGOING,
    SEQUENCES_PER_BLOCK,
    EventOrder,
    FieldsByRow,
    PacketSequence,
    Packing,
    Tails,
    TrackEvents,
    bundle,
    bundle_time,
    event_order,
    flow_field,
    flow_fields,
    in_order,
    number_field,
    repacked,
)
from tracelink.converters.perfetto.native_rank import (
    FlowCount,
    RankPackets,
    TrackNode,
    counter_numbers,
    flow_counts,
    group_packet,
    header_packet,
    rank_packet,
    rank_sections,
    sample_packets,
    track_packets,
    track_tree,
)
from tracelink.converters.perfetto.packets.schema import (
    CLOCK_TRACK,
    FIRST_OVERVIEW,
    OVERVIEW_PROCESS,
    PACKET,
    UNIX_TIME_TRACK,
    Packet,
    Process,
    Service,
    TextTable,
    Thread,
    Track,
    Type,
)
from tracelink.converters.perfetto.timeline import schema
from tracelink.converters.perfetto.timeline.blocks import Block, Section
from tracelink.converters.perfetto.timeline.flows import (
    CrossRankEnds,
    SharedEvents,
    drawable_flows,
    flows_of,
)
from tracelink.converters.perfetto.timeline.groups import (
    GROUPS_PROCESS,
    GroupCounters,
    GroupTracks,
    collective_names,
    group_counters,
    group_tracks,
)
from tracelink.converters.perfetto.timeline.job import (
    ArgumentChoice,
    RankTimeline,
    Timeline,
    TimelineFormat,
    TimelineWriter,
)
from tracelink.converters.perfetto.timeline.layout import SUMMARY, Numbering, world_size
from tracelink.converters.perfetto.timeline.schema import LINK, SUMMARY_CATEGORY
from tracelink.converters.perfetto.timeline.summary import ALL_RANKS
from tracelink.plugins import Forecast, Output

MOST_BUNDLED_TRACKS = 1 << 14
"""Readers take bundles of at most four times as many packets."""

DENSE_SHARE = 0.8
"""Measured size of bundles that are compressed harder, compared to the default."""


class _NativeFormat(TimelineFormat, frozen=True):
    cross_rank_starts: CrossRankStarts

    @classmethod
    def of(cls, timeline: Timeline, args: ArgumentChoice) -> _NativeFormat:
        return cls(timeline, args, CrossRankStarts.of(timeline.shared_events, timeline.common))

    def opening(self) -> bytes:
        job, base = self.timeline.job, self.timeline.base
        head = header_packet(job, base or 0)
        if base is None:
            return head
        return head + clock_packets(job, base, _sequence(self.timeline, 5)) + overview_process(job)

    def rank(self, index: int, rank_timeline: RankTimeline) -> Block[Sequence[Finding]]:
        """Facts and tracks, then slices and instants with their flows, and counters."""
        layout, numbering = rank_timeline.layout, self.timeline.numbering(index)
        if not layout.processes:
            return Block(b"", (), False, ())
        counters = counter_numbers(layout, rank_timeline.threads, numbering)
        order, findings = event_order(rank_timeline), list[Finding]()
        flows, counts = self._flows(index, rank_timeline, order, findings)
        head = rank_packet(rank_timeline, counters, counts, numbering.first_flow)
        head += track_packets(track_tree(rank_timeline, counters, numbering))
        added = added_arguments(rank_timeline.graph, rank_timeline.drawing, self.timeline.job, self.args)
        categories = schema.Categories.of(rank_timeline.graph)
        has_added = {name: _marked(members, len(rank_timeline.graph)) for name, members in added.items()}
        payloads = [at_several_places(payloads) for payloads in rank_timeline.graph.payloads]
        packets = RankPackets(
            rank_timeline, order, flows, added, has_added, counters, self.args, index, categories, payloads
        )
        sections: list[Section] = [*rank_sections(packets), partial(overview_of, packets, self.timeline.job)]
        return Block(_bundled(head, len(rank_timeline.threads.tid)), sections, rank_timeline.large, findings)

    def groups(self) -> Block[list[Finding]]:
        return _group_block(self.timeline, self.args)

    def cross_rank(self, ends: CrossRankEnds) -> tuple[list[Section], list[Finding]]:
        return _cross_rank_sections(self.timeline, ends, self.args)

    def _flows(
        self, index: int, rank_timeline: RankTimeline, order: EventOrder, findings: list[Finding]
    ) -> tuple[FieldsByRow, Sequence[FlowCount]]:
        """The fields of flows by row, and the number of flows of each relation."""
        flows = flows_of(rank_timeline.graph, rank_timeline.drawing, findings)
        position = np.zeros(len(rank_timeline.graph), np.int64)
        opens = np.flatnonzero(order.type != Type.END)
        position[order.row[opens]] = opens
        backward = position[flows.source] > position[flows.target]
        counts = flow_counts(flows, backward)
        flows = flows.take(np.lexsort((backward, flows.relation)))
        first = self.timeline.numbering(index).first_flow
        rows, within = flow_fields(flows.source, flows.target, position, first)
        causes, numbers = self.cross_rank_starts.of_part(self.timeline.shared_events, index)
        between = flow_field(OUTGOING, numbers)
        return FieldsByRow.of(np.concatenate([rows, causes]), np.concatenate([within, between])), counts


class PerfettoWriter(TimelineWriter, frozen=True):
    """One trace of all ranks, exact to the nanosecond."""

    packing: Packing = Packing.BUNDLED

    name = "perfetto"
    file_name = "trace.pftrace"
    format = _NativeFormat
    sizes = schema.TypicalSizes(
        track=(55, 0),
        flow=(20, 0),
        cross_rank_flow=(40, 20),
        participating=(0, 65),
        node=(0, 36),
        collective=(22, 128),
        participation=(0, 8),
        arrival=(24, 31),
        sample=(26, 0),
    )

    @property
    def uncompressed(self) -> PerfettoWriter:
        """The same without compression."""
        return PerfettoWriter(replace(self.choices, compressed=False), Packing.PLAIN)

    def forecast(self, job: LinkedJob, engine: Engine, *, compressed: bool) -> Forecast:
        """The expected size of the trace."""
        packed = self.packing is not Packing.PLAIN
        forecast = super().forecast(job, engine, compressed=compressed or packed)
        if self.choices.compressed:
            return dataclasses.replace(forecast, bytes=round(forecast.bytes * DENSE_SHARE))
        return forecast

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job; at most one rank for each process of the engine is in memory."""
        packing = Packing.DENSE if self.choices.compressed else self.packing
        return super().write(job, TimeOrderedTarget(target, packing), engine)

    @contextmanager
    def _stream(self, plain: BinaryIO) -> Iterator[BinaryIO]:
        """The stream of the file, whose bundles are compressed."""
        yield plain


def _marked(rows: Collection[int], count: int) -> Bools:
    marks = np.zeros(count, np.bool_)
    marks[np.fromiter(rows, np.int64, len(rows))] = True
    return marks


# Tracks of process groups.


def _group_block(timeline: Timeline, args: ArgumentChoice) -> Block[list[Finding]]:
    tracks = group_tracks(timeline.job, timeline.hangs, timeline.common)
    if not tracks.tids:
        return Block(b"", [], False, tracks.findings)
    counters = group_counters(timeline.job, tracks, timeline.common)
    lanes = zip(tracks.tids, tracks.titles, strict=True)
    sampled = zip(counters.numbers, counters.names, counters.units, strict=True)
    nodes = [TrackNode(tid, title, tracks.process) for tid, title in lanes]
    nodes += [TrackNode(number, name, tracks.process, unit) for number, name, unit in sampled]
    head = group_packet(
        tracks, counters, world_size(timeline.job), summarized=bool(len(timeline.waits.of_rank(ALL_RANKS)))
    )
    head += track_packets([TrackNode(tracks.process, GROUPS_PROCESS), *nodes])
    sections: list[Section] = [
        partial(_collectives, timeline, tracks, args),
        partial(_samples, timeline, counters),
        partial(_waits, timeline, tracks),
    ]
    return Block(_bundled(head, len(nodes)), sections, False, tracks.findings)


def _bundled(head: bytes, tracks: int) -> bytes:
    """The declarations of the tracks of a block in a bundle, before all events; very many tracks as they are."""
    return bundle(0, head) if tracks < MOST_BUNDLED_TRACKS else head


def _collectives(timeline: Timeline, tracks: GroupTracks, args: ArgumentChoice) -> Iterator[bytes]:
    """The slices of collectives and the instants of last arrivals; the rows of arrivals follow those of collectives."""
    sequence = _sequence(timeline, 1)
    drawn, arrivals = tracks.drawn, tracks.arrivals
    opening = np.lexsort((drawn.start, tracks.track))
    instants = len(opening) + np.arange(len(arrivals))
    start = np.concatenate([drawn.start, arrivals.time]) - (timeline.base or 0)
    duration = np.concatenate([drawn.end - drawn.start, np.zeros(len(arrivals), np.int64)])
    order = in_order(
        np.concatenate([opening[::-1], opening, instants]),
        np.repeat([Type.END, Type.BEGIN, Type.INSTANT], [len(opening), len(opening), len(arrivals)]),
        start,
        duration,
    )
    kind = np.repeat([0, 1], [len(opening), len(arrivals)])
    categories = [schema.COLLECTIVE_CATEGORY, schema.ARRIVAL_CATEGORY]
    tids = np.array(tracks.tids, np.int64)[np.concatenate([tracks.track, tracks.track[arrivals.index]])]
    yield from sequence.packets(
        TrackEvents(
            order.time,
            order.type,
            tids[order.row],
            sequence.interned.numbers(TextTable.CATEGORIES, categories)[kind][order.row],
            _names(timeline, tracks, sequence)[order.row],
            Tails.of(_tails(timeline, tracks, sequence, args)),
            np.where(order.type == Type.END, -1, order.row),
        )
    )


def _waits(timeline: Timeline, tracks: GroupTracks) -> Iterator[bytes]:
    """The waits of any rank, on the track of the process."""
    waits = timeline.waits.of_rank(ALL_RANKS)
    start, end = waits.start - (timeline.base or 0), waits.end - (timeline.base or 0)
    names = [timeline.waits.names[index] for index in waits.name.tolist()]
    yield from summary_packets(tracks.summary, start, end, names, waits.hung, _sequence(timeline, 4))


def _names(timeline: Timeline, tracks: GroupTracks, sequence: PacketSequence) -> Int64s:
    kinds = (collective_names(timeline.job, tracks.drawn.row, timeline.hangs), tracks.arrivals.names())
    return np.concatenate(
        [sequence.interned.numbers(TextTable.NAMES, names)[which] for names, which in kinds]
    )


def _tails(
    timeline: Timeline, tracks: GroupTracks, sequence: PacketSequence, args: ArgumentChoice
) -> list[bytes]:
    """For each row its colour and arguments."""
    drawn, job = tracks.drawn, timeline.job
    tails = [b""] * (len(drawn.row) + len(tracks.arrivals))
    if args != ArgumentChoice.NONE:
        objects = collective_arguments(job, PartsByCollective.of(job), drawn.row, drawn.open_ended)
        tails = arguments(
            sequence.interned, schema.COLLECTIVE, [*objects, *arrival_arguments(tracks.arrivals)]
        )
    for index in np.flatnonzero(drawn.hung).tolist():
        tails[index] = HUNG_COLOUR + tails[index]
    return tails


def _samples(timeline: Timeline, counters: GroupCounters) -> Iterator[bytes]:
    track = np.array(counters.numbers, np.int64)[counters.counter]
    times = counters.time - (timeline.base or 0)
    yield from sample_packets(_sequence(timeline, 3), track, times, counters.value)


def _sequence(timeline: Timeline, number: int) -> PacketSequence:
    """A sequence of what belongs to no single rank."""
    return PacketSequence(timeline.common.block * SEQUENCES_PER_BLOCK + number)


# Flows between ranks.


class CrossRankStarts(Struct, frozen=True):
    """The starts of flows between ranks: they are numbered before any rank is drawn."""

    cause: Int64s
    """Indexes of shared events, sorted."""
    number: Int64s

    @classmethod
    def of(cls, shared: SharedEvents, numbering: Numbering) -> CrossRankStarts:
        """The start of every flow that may be drawn."""
        order = np.argsort(shared.cause, kind="stable")
        return cls(shared.cause[order], numbering.first_flow + order)

    def of_part(self, shared: SharedEvents, index: int) -> tuple[Int64s, Int64s]:
        """The rows of the rank at an index at which flows start, and the numbers of those flows."""
        low, high = np.searchsorted(self.cause, shared.bounds[index : index + 2]).tolist()
        return shared.row[self.cause[low:high]], self.number[low:high]


def _cross_rank_sections(
    timeline: Timeline, ends: CrossRankEnds, args: ArgumentChoice
) -> tuple[list[Section], list[Finding]]:
    """The ends of all flows between ranks: instants just before the end of the event that waited or received."""
    shared = timeline.shared_events
    bindable = np.ones(len(shared.cause), np.bool_)
    possible, findings = drawable_flows(timeline.job, ends, shared, bindable)
    flows = np.flatnonzero(possible)
    if not len(flows):
        return [], findings
    return [partial(_flow_ends, timeline, ends, shared.effect[flows], flows, args)], findings


def _flow_ends(
    timeline: Timeline, ends: CrossRankEnds, effect: Int64s, flows: Int64s, args: ArgumentChoice
) -> Iterator[bytes]:
    ties, numbering = timeline.job.ties, timeline.common
    sequence = _sequence(timeline, 2)
    order = np.argsort(ends.end[effect], kind="stable")
    effect, flows = effect[order], flows[order]
    relation = ties.relation[flows]
    category, name = np.zeros((2, len(flows)), np.int64)
    fields = FieldsByRow.of(np.arange(len(flows)), flow_field(INCOMING, numbering.first_flow + flows))
    tails, _ = fields.of_rows(np.arange(len(flows)))
    for kind, flow_name in schema.CROSS_RANK_FLOW_NAMES.items():
        mine = np.flatnonzero(relation == kind)
        instant, argument = schema.CROSS_RANK_INSTANTS[kind]
        category[mine] = sequence.interned.number(TextTable.CATEGORIES, flow_name)
        name[mine] = sequence.interned.number(TextTable.NAMES, instant)
        if args != ArgumentChoice.NONE:
            ranks = ties.cause_rank[flows[mine]].tolist()
            objects = [b'{"%s":%d}' % (argument.encode(), rank) for rank in ranks]
            causes = arguments(sequence.interned, schema.LINK, objects)
            for index, text in zip(mine.tolist(), causes, strict=True):
                tails[index] += text
    yield from sequence.packets(
        TrackEvents(
            ends.end[effect],
            np.full(len(flows), Type.INSTANT),
            ends.tid[effect],
            category,
            name,
            Tails.of(tails),
            np.arange(len(flows)),
        )
    )


# A trace in order of time: engines read it like one that is being recorded, and need less memory.


BUNDLES_PER_FLUSH = 8

HEAD_BYTES = 32
"""At least the bytes before the packets of a bundle."""


class TimeOrderedTarget(Struct, frozen=True):
    """A target for a trace that is written rank by rank: its bundles are sorted by time once all are there."""

    target: Target
    packing: Packing

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """A file for packets in any order; only those of one sequence must be in order of time."""
        directory = spool_folder(self.path(name))
        with self.target.file(name) as out, tempfile.TemporaryFile(dir=directory) as spool:
            yield cast(BinaryIO, spool)
            spool.flush()
            packing = Packing.PLAIN if isinstance(out, GzipStream) else self.packing
            _write_in_order(spool.fileno(), out, packing)

    def path(self, name: str = "") -> str:
        """The path of that file."""
        return self.target.path(name)

    def size(self, name: str = "") -> int:
        """The size of that file in bytes."""
        return self.target.size(name)


def _write_in_order(spool: int, out: BinaryIO, packing: Packing) -> None:
    """Packets without a time first, then bundles by time; bundles with equal times stay in their order."""
    bundles: list[tuple[int, int, int, int]] = []
    for begin, body, end in _packets(spool):
        time = bundle_time(read_at(spool, HEAD_BYTES, body))
        if time is None:
            out.write(read_at(spool, end - begin, begin))
        else:
            bundles.append((time, begin, body, end))
    for number, (time, begin, body, end) in enumerate(sorted(bundles)):
        if number % BUNDLES_PER_FLUSH == 0:
            out.write(_flush(time))
        if packing is Packing.BUNDLED:
            out.write(read_at(spool, end - begin, begin))
        else:
            out.write(repacked(read_at(spool, end - body, body), packing))


def _packets(spool: int) -> Iterator[tuple[int, int, int]]:
    """The offset of each packet, of its body, and of its end."""
    begin, size = 0, os.fstat(spool).st_size
    while begin < size:
        length, after = varint_at(read_at(spool, HEAD_BYTES, begin), 1)
        yield begin, begin + after, begin + after + length
        begin += after + length


def _flush(time: int) -> bytes:
    """Lets engines process, and release, everything before the previous flush.

    They do so at a read event that follows two flushes.
    """
    return b"".join(
        delimited(
            PACKET,
            key(Packet.TIME, VARINT)
            + varint(time)
            + delimited(Packet.SERVICE, key(event, VARINT) + varint(True)),
        )
        for event in (Service.FLUSHED, Service.FLUSHED, Service.READ)
    )


# Real time: a track with the time of day in UTC. Perfetto's own clock would add a group above all others.


MOST_READINGS = 12
CLOCK_NAME, UNIX_NAME = "time (UTC)", "seconds since 1970"
COLUMNS = ("time", "type", "track", "category", "name", "tail")
UNIX_TIME = "unix_ns"
"""The argument of a reading: nanoseconds since the Unix epoch."""


def clock_packets(job: LinkedJob, base: int, sequence: PacketSequence) -> bytes:
    """A track with readings of the clock over the whole job; nothing if no event has a time."""
    if job.first_ns is None or job.last_ns is None or base < 0:
        return b""
    first, last = job.first_ns, max(job.last_ns, job.first_ns + 1)
    step = _step((last - first) / MOST_READINGS)
    times = np.unique(np.array([first, *range(-(-first // step) * step, last, step)], np.int64))
    ends = np.append(times[1:], last)
    numbered = [b'{"%s":%d}' % (UNIX_TIME.encode(), time) for time in times.tolist()]
    tails = arguments(sequence.interned, LINK, numbered)
    name = sequence.interned.numbers(TextTable.NAMES, _texts(times, step))
    unix = sequence.interned.numbers(TextTable.NAMES, [f"{time / SECOND:.3f}" for time in times.tolist()])
    tracks = [
        number_field(Track.NUMBER, CLOCK_TRACK) + delimited(Track.NAME, CLOCK_NAME.encode()),
        number_field(Track.NUMBER, UNIX_TIME_TRACK)
        + number_field(Track.PARENT, CLOCK_TRACK)
        + delimited(Track.NAME, UNIX_NAME.encode()),
    ]
    readings = _slices(CLOCK_TRACK, times - base, ends - base, name, sequence, tails)
    again = _slices(UNIX_TIME_TRACK, times - base, ends - base, unix, sequence)
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


def overview_process(job: LinkedJob) -> bytes:
    """The process that contains a thread for each rank."""
    process = number_field(Process.NUMBER, world_size(job)) + delimited(
        Process.NAME, "all ranks · world size".encode()
    )
    return _declared([number_field(Track.NUMBER, OVERVIEW_PROCESS) + delimited(Track.PROCESS, process)])


def overview_of(packets: RankPackets, job: LinkedJob) -> Iterator[bytes]:
    """The thread of a rank, and on it the summary of the rank again."""
    timeline = packets.rank_timeline
    graph, drawing = timeline.graph, timeline.drawing
    tracks = [index for index, track in enumerate(graph.tracks) if track.identity == SUMMARY]
    rows = np.flatnonzero(np.isin(graph.events.track, tracks) & drawing.shown)
    if not len(rows):
        return
    rank = graph.ranks[0].rank
    thread = number_field(Thread.PROCESS, world_size(job)) + number_field(Thread.NUMBER, rank)
    thread += delimited(Thread.NAME, b"rank")
    yield _declared([number_field(Track.NUMBER, FIRST_OVERVIEW + rank) + delimited(Track.THREAD, thread)])
    names = [graph.name(row) for row in rows.tolist()]
    start, hung = drawing.start[rows], np.isin(rows, list(drawing.hung))
    sequence = PacketSequence((packets.block + 1) * SEQUENCES_PER_BLOCK)
    yield from summary_packets(
        FIRST_OVERVIEW + rank, start, start + drawing.duration[rows], names, hung, sequence
    )


# Slices of one track.


def summary_packets(
    track: int, start: Int64s, end: Int64s, names: Sequence[str], hung: Bools, sequence: PacketSequence
) -> Iterator[bytes]:
    """Slices that are nested or disjoint, by their names; those that hang have their colour."""
    name = sequence.interned.numbers(TextTable.NAMES, names)
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
        np.repeat([Type.END, Type.BEGIN], len(opening)),
        start,
        end - start,
    )
    count, category = len(order.row), sequence.interned.number(TextTable.CATEGORIES, SUMMARY_CATEGORY)
    tail = np.where((order.type == Type.END) | (tails is None), -1, order.row)
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
    return b"".join(delimited(PACKET, delimited(Packet.TRACK, track)) for track in tracks)
