"""The trace: ranks, groups, ties, in order of time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO, cast

import numpy as np

from tracelink.converters.perfetto.facts import arrival_facts, facts_of, grouped_parts, said_of
from tracelink.converters.perfetto.native.arguments import arguments
from tracelink.converters.perfetto.native.packets import (
    ARRIVES,
    HUNG_COLOUR,
    LEAVES,
    PER_BLOCK,
    Events,
    Packets,
    PacketSequence,
    Packing,
    arrow_fields,
    fields,
    joined_by_row,
    ordered,
    packed,
    packets_of,
    time_of,
    zero_of,
)
from tracelink.converters.perfetto.native.rank import (
    ArrowFact,
    Branch,
    Sheet,
    arrow_facts,
    counter_numbers,
    declared,
    group_packet,
    header_packet,
    pieces_of,
    rank_packet,
    sample_packets,
    tree_of,
)
from tracelink.converters.perfetto.native.schema import PACKET, Packet, Service, Table, Type
from tracelink.converters.perfetto.timeline.blocks import Block, Piece
from tracelink.converters.perfetto.timeline.counters import GroupCounters, group_counters
from tracelink.converters.perfetto.timeline.drawing import base_of
from tracelink.converters.perfetto.timeline.flows import Ends, Meetings, arrows_of, possible_ties
from tracelink.converters.perfetto.timeline.forecast import Typical, Way, forecast_of
from tracelink.converters.perfetto.timeline.groups import PROCESS, GroupSeats, group_seats, names_of
from tracelink.converters.perfetto.timeline.job import Choices, Sheets, Sort, Wanted, write_whole
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.rank import Picture
from tracelink.converters.perfetto.timeline.schema import (
    ARRIVAL_CATEGORY,
    COLLECTIVE,
    COLLECTIVE_CATEGORY,
    LINK,
    TIE_MARKS,
    TIE_NAMES,
)
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.io.framing import VARINT, delimited, key, varint, varint_at
from tracelink.io.targets import GzipStream
from tracelink.model.columns import Int64s
from tracelink.model.job import Job
from tracelink.plugins import Forecast, Output, Target

# What no rank has alone: the tracks of groups, and the ends of arrows between ranks.


@dataclass(frozen=True, slots=True)
class Leaving:
    """The beginnings of arrows between ranks: their numbers are known before any rank is drawn."""

    first: int
    cause: Int64s
    """Places in the meetings, in order."""
    number: Int64s

    @classmethod
    def of(cls, meetings: Meetings, numbering: Numbering) -> Leaving:
        """Every arrow that may be drawn."""
        order = np.argsort(meetings.cause, kind="stable")
        return cls(numbering.first_arrow, meetings.cause[order], numbering.first_arrow + order)

    def of_part(self, meetings: Meetings, place: int) -> tuple[Int64s, Int64s]:
        """The rows of one rank at which arrows begin, and their numbers."""
        low, high = np.searchsorted(self.cause, meetings.bounds[place : place + 2]).tolist()
        return meetings.row[self.cause[low:high]], self.number[low:high]


def group_packets(sheets: Sheets, wanted: Wanted) -> Block[list[Finding]]:
    """The tracks of groups; they stand before those of all ranks."""
    seats = group_seats(sheets.job, sheets.hangs, sheets.common)
    if not seats.tids:
        return Block(b"", [], False, seats.findings)
    lanes = zip(seats.tids, seats.titles, strict=True)
    counters = group_counters(sheets.job, seats, sheets.common)
    sampled = zip(counters.numbers, counters.names, counters.units, strict=True)
    tracks = [Branch(tid, title, seats.process) for tid, title in lanes]
    tracks += [Branch(number, name, seats.process, unit) for number, name, unit in sampled]
    head = group_packet(seats, counters)
    head += declared([Branch(seats.process, PROCESS), *tracks], zero_of(sheets.base))
    pieces = [partial(_collectives, sheets, seats, wanted), partial(_counters, sheets, counters)]
    return Block(head, pieces, False, seats.findings)


def _collectives(sheets: Sheets, seats: GroupSeats, wanted: Wanted) -> Iterator[bytes]:
    """Collectives, and behind them, by number, the last arrivals."""
    sequence = PacketSequence(sheets.common.block * PER_BLOCK + 1, zero_of(sheets.base))
    drawn, arrivals = seats.drawn, seats.arrivals
    opening = np.lexsort((drawn.start, seats.seat))
    instants = len(opening) + np.arange(len(arrivals))
    start = np.concatenate([drawn.start, arrivals.time]) - (sheets.base or 0)
    duration = np.concatenate([drawn.end - drawn.start, np.zeros(len(arrivals), np.int64)])
    packets = ordered(
        np.concatenate([opening[::-1], opening, instants]),
        np.repeat([Type.END, Type.BEGIN, Type.INSTANT], [len(opening), len(opening), len(arrivals)]),
        start,
        duration,
    )
    kind = np.repeat([0, 1], [len(opening), len(arrivals)])
    categories = [COLLECTIVE_CATEGORY, ARRIVAL_CATEGORY]
    tids = np.array(seats.tids, np.int64)[np.concatenate([seats.seat, seats.seat[arrivals.place]])]
    yield from sequence.packets(
        Events(
            packets.time,
            packets.type,
            tids[packets.row],
            sequence.texts.numbers(Table.CATEGORIES, categories)[kind][packets.row],
            _names(sheets, seats, sequence)[packets.row],
            _tails(sheets, seats, sequence, wanted),
            np.where(packets.type == Type.END, -1, packets.row),
        )
    )


def _names(sheets: Sheets, seats: GroupSeats, sequence: PacketSequence) -> Int64s:
    kinds = (names_of(sheets.job, seats.drawn.row, sheets.hangs), seats.arrivals.names())
    return np.concatenate([sequence.texts.numbers(Table.NAMES, names)[which] for names, which in kinds])


def _tails(sheets: Sheets, seats: GroupSeats, sequence: PacketSequence, wanted: Wanted) -> list[bytes]:
    drawn = seats.drawn
    tails = [b""] * (len(drawn.row) + len(seats.arrivals))
    if wanted != Wanted.NONE:
        facts = facts_of(sheets.job, grouped_parts(sheets.job), drawn.row, drawn.open_ended)
        tails = arguments(sequence.texts, COLLECTIVE, [*facts, *arrival_facts(seats.arrivals)])
    for place in np.flatnonzero(drawn.hung).tolist():
        tails[place] = HUNG_COLOUR + tails[place]
    return tails


def _counters(sheets: Sheets, counters: GroupCounters) -> Iterator[bytes]:
    sequence = PacketSequence(sheets.common.block * PER_BLOCK + 3, zero_of(sheets.base))
    track = np.array(counters.numbers, np.int64)[counters.counter]
    yield from sample_packets(sequence, track, counters.time - (sheets.base or 0), counters.value)


def tie_pieces(sheets: Sheets, ends: Ends, wanted: Wanted) -> tuple[list[Piece], list[Finding]]:
    """The ends of all arrows between ranks: instants just before the end of who waited or received."""
    meetings = sheets.meetings
    possible, findings = possible_ties(sheets.job, ends, meetings, np.ones(len(meetings.cause), np.bool_))
    some = np.flatnonzero(possible)
    if not len(some):
        return [], findings
    return [partial(_ties, sheets, ends, meetings.effect[some], some, wanted)], findings


def _ties(sheets: Sheets, ends: Ends, effect: Int64s, ties: Int64s, wanted: Wanted) -> Iterator[bytes]:
    job, numbering = sheets.job, sheets.common
    sequence = PacketSequence(numbering.block * PER_BLOCK + 2, zero_of(sheets.base))
    turn = np.argsort(ends.end[effect], kind="stable")
    effect, ties = effect[turn], ties[turn]
    relation = job.ties.relation[ties]
    category, name = np.zeros((2, len(ties)), np.int64)
    tails = joined_by_row(np.arange(len(ties)), fields(ARRIVES, numbering.first_arrow + ties))
    for kind, text in TIE_NAMES.items():
        mine = np.flatnonzero(relation == kind)
        called, argument = TIE_MARKS[kind]
        category[mine] = sequence.texts.number(Table.CATEGORIES, text)
        name[mine] = sequence.texts.number(Table.NAMES, called)
        if wanted != Wanted.NONE:
            causes = [
                b'{"%s":%d}' % (argument.encode(), rank) for rank in job.ties.cause_rank[ties[mine]].tolist()
            ]
            for place, said in zip(mine.tolist(), arguments(sequence.texts, LINK, causes), strict=True):
                tails[place] += said
    yield from sequence.packets(
        Events(
            ends.end[effect],
            np.full(len(ties), Type.INSTANT),
            ends.tid[effect],
            category,
            name,
            list(tails.values()),
            np.arange(len(ties)),
        )
    )


# A trace in the order of its times: engines then read it as they read one that is being recorded.


BETWEEN_MARKS = 8
"""Bundles."""

HEAD_BYTES = 32
"""As long as what stands before the packets of a bundle, at most."""


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A target for a trace that is written rank by rank: its bundles are put in order once all are there."""

    target: Target
    packing: Packing

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """A file for packets in any order of time; those of one sequence in theirs."""
        directory = os.path.dirname(self.path(name)) or None
        with self.target.file(name) as out, tempfile.TemporaryFile(dir=directory) as spool:
            yield cast(BinaryIO, spool)
            spool.flush()
            packing = Packing.PLAIN if isinstance(out, GzipStream) else self.packing
            _write_in_order(spool.fileno(), out, packing)

    def path(self, name: str = "") -> str:
        """How that file is called."""
        return self.target.path(name)

    def size(self, name: str = "") -> int:
        """How many bytes it has."""
        return self.target.size(name)


def _write_in_order(spool: int, out: BinaryIO, packing: Packing) -> None:
    """Tracks and whatever has no time first, then bundles by time; of equal times as they stand."""
    bundles: list[tuple[int, int, int, int]] = []
    for begin, body, end in _packets(spool):
        time = time_of(os.pread(spool, HEAD_BYTES, body))
        if time is None:
            out.write(os.pread(spool, end - begin, begin))
        else:
            bundles.append((time, begin, body, end))
    for number, (time, begin, body, end) in enumerate(sorted(bundles)):
        if number % BETWEEN_MARKS == 0:
            out.write(_marks(time))
        if packing is Packing.BUNDLED:
            out.write(os.pread(spool, end - begin, begin))
        else:
            out.write(packed(os.pread(spool, end - body, body), packing))


def _packets(spool: int) -> Iterator[tuple[int, int, int]]:
    """Where each packet, its body and the next one begin."""
    begin, size = 0, os.fstat(spool).st_size
    while begin < size:
        length, after = varint_at(os.pread(spool, HEAD_BYTES, begin), 1)
        yield begin, begin + after, begin + after + length
        begin += after + length


def _marks(time: int) -> bytes:
    """Leave to draw, and to forget, what is earlier than all that stands behind the marks before these.

    Engines take it where two flushes have been seen since they took it last, and a reading comes.
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


# Writes a job as one trace in Perfetto's own format.


FILE_NAME = "trace.pftrace"
"""The name in a directory."""

TYPICAL = Typical(
    track=55,
    arrow=20,
    tie=60,
    said=65,
    node=36,
    collective=150,
    participation=8,
    arrival=55,
    sample=26,
)
DENSER = 0.8
"""Of the bytes of bundles, as measured, where they are deflated harder."""

BARE = Typical(
    track=55,
    arrow=20,
    tie=40,
    said=0,
    node=0,
    collective=22,
    participation=0,
    arrival=24,
    sample=26,
)
"""Without arguments."""


@dataclass(frozen=True, slots=True)
class PerfettoWriter:
    """One trace of all ranks, exact to the nanosecond."""

    choices: Choices = field(default_factory=Choices)
    packing: Packing = Packing.BUNDLED

    name = "perfetto"

    def configured(self, **options: str) -> PerfettoWriter:
        """A writer of fewer arguments, events or bytes."""
        return replace(self, choices=self.choices.changed(options))

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the trace will be."""
        typical = BARE if self.choices.args == Wanted.NONE else TYPICAL
        compressed = compressed or self.choices.compressed or self.packing is not Packing.PLAIN
        plain = PerfettoWriter(replace(self.choices, compressed=False), Packing.PLAIN)
        way = Way(plain.write, typical, self.choices.args == Wanted.ALL)
        forecast = forecast_of(job, engine, way, compressed=compressed)
        return (
            replace(forecast, bytes=round(forecast.bytes * DENSER)) if self.choices.compressed else forecast
        )

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job, with as many ranks in memory as work at once."""
        sheets = Sheets.of(job, base_of(job), self.choices.left_out)
        pen = _NativePen(sheets, self.choices.args, Leaving.of(sheets.meetings, sheets.common))
        packing = Packing.DENSE if self.choices.compressed else self.packing
        return write_whole(sheets, pen, Sort(self.name, FILE_NAME), Interleaved(target, packing), engine)


@dataclass(frozen=True, slots=True)
class _NativePen:
    sheets: Sheets
    wanted: Wanted
    leaving: Leaving
    separator: bytes = b""

    def opening(self) -> bytes:
        return header_packet(self.sheets.job, zero_of(self.sheets.base))

    def closing(self, started: bool) -> bytes:
        return b""

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        layout, seats, numbering = picture.layout, picture.seats, self.sheets.numbering(place)
        if not layout.processes:
            return Block(b"", (), False, ())
        counters = counter_numbers(layout, seats, numbering)
        packets, findings = packets_of(picture), list[Finding]()
        arrows, meaning = self._arrows(place, picture, packets, findings)
        head = rank_packet(picture, counters, meaning, numbering.first_arrow)
        tree = tree_of(picture.graph, layout, seats, counters, numbering)
        head += declared(tree, zero_of(self.sheets.base))
        said = said_of(picture.graph, picture.drawing, self.sheets.job, self.wanted)
        sheet = Sheet(picture, packets, arrows, said, counters, self.wanted, place)
        return Block(head, pieces_of(sheet), picture.large, findings)

    def groups(self) -> Block[list[Finding]]:
        return group_packets(self.sheets, self.wanted)

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        return tie_pieces(self.sheets, ends, self.wanted)

    def _arrows(
        self, place: int, picture: Picture, packets: Packets, findings: list[Finding]
    ) -> tuple[Mapping[int, bytes], Sequence[ArrowFact]]:
        arrows = arrows_of(picture.graph, picture.drawing, findings)
        met = np.zeros(len(picture.graph), np.int64)
        begins = np.flatnonzero(packets.type != Type.END)
        met[packets.row[begins]] = begins
        turned = met[arrows.source] > met[arrows.target]
        meaning = arrow_facts(arrows, turned)
        arrows = arrows.where(np.lexsort((turned, arrows.relation)))
        first = self.sheets.numbering(place).first_arrow
        rows, within = arrow_fields(arrows.source, arrows.target, met, first)
        causes, numbers = self.leaving.of_part(self.sheets.meetings, place)
        return joined_by_row(
            np.concatenate([rows, causes]), np.concatenate([within, fields(LEAVES, numbers)])
        ), meaning
