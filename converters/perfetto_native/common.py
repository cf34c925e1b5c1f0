"""What no rank has alone: the tracks of groups, and the ends of arrows between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracelink.converters.perfetto.derived.groups import GroupCounters, group_counters
from tracelink.converters.perfetto.group_facts import facts_of, grouped_parts, names_of
from tracelink.converters.perfetto.group_tracks import PROCESS, GroupSeats, group_seats
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Block, Piece
from tracelink.converters.perfetto.schema import (
    ARRIVAL_CATEGORY,
    COLLECTIVE,
    COLLECTIVE_CATEGORY,
    LINK,
    TIE_MARKS,
    TIE_NAMES,
)
from tracelink.converters.perfetto.ties import Ends, Meetings, possible_ties
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.converters.perfetto.whole import Sheets
from tracelink.converters.perfetto_native.arguments import arguments
from tracelink.converters.perfetto_native.arrows import ARRIVES, fields, joined_by_row
from tracelink.converters.perfetto_native.facts import group_packet
from tracelink.converters.perfetto_native.order import ordered
from tracelink.converters.perfetto_native.rank_packets import sample_packets
from tracelink.converters.perfetto_native.schema import Table, Type
from tracelink.converters.perfetto_native.sequence import HUNG_COLOUR, PER_BLOCK, Events, PacketSequence
from tracelink.converters.perfetto_native.tracks import declared
from tracelink.converters.perfetto_native.tree import Branch
from tracelink.converters.perfetto_native.zero import zero_of
from tracelink.events import Int64s
from tracelink.findings import Finding


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
        tails = arguments(sequence.texts, COLLECTIVE, [*facts, *seats.arrivals.facts()])
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
