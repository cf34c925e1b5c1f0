"""What no rank has alone: the tracks of groups, and the ends of arrows between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracelink.converters.perfetto.group_facts import facts_of, grouped_parts, names_of
from tracelink.converters.perfetto.group_tracks import PROCESS, GroupSeats, group_seats
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Block, Piece
from tracelink.converters.perfetto.schema import COLLECTIVE, COLLECTIVE_CATEGORY, LINK, TIE_MARKS, TIE_NAMES
from tracelink.converters.perfetto.ties import Ends, Meetings, possible_ties
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.converters.perfetto.whole import Sheets
from tracelink.converters.perfetto_native.arrows import ARRIVES, fields, joined_by_row
from tracelink.converters.perfetto_native.order import ordered
from tracelink.converters.perfetto_native.schema import Table, Type
from tracelink.converters.perfetto_native.sequence import PER_BLOCK, Events, PacketSequence
from tracelink.converters.perfetto_native.tracks import declared
from tracelink.converters.perfetto_native.tree import Branch
from tracelink.events import Int64s
from tracelink.findings import Finding
from tracelink.job import Job


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


def group_packets(job: Job, base: int, numbering: Numbering, wanted: Wanted) -> Block[list[Finding]]:
    """The tracks of groups; they stand before those of all ranks."""
    seats = group_seats(job, numbering)
    if not seats.tids:
        return Block(b"", [], False, seats.findings)
    lanes = zip(seats.tids, seats.titles, strict=True)
    tracks = [Branch(tid, title, seats.process) for tid, title in lanes]
    head = declared([Branch(seats.process, PROCESS), *tracks], base)
    return Block(
        head, [partial(_collectives, job, base, seats, numbering.block, wanted)], False, seats.findings
    )


def _collectives(job: Job, base: int, seats: GroupSeats, block: int, wanted: Wanted) -> Iterator[bytes]:
    sequence = PacketSequence(block * PER_BLOCK + 1, base)
    drawn = seats.drawn
    opening = np.lexsort((drawn.start, seats.seat))
    duration = drawn.end - drawn.start
    both = np.concatenate([opening[::-1], opening])
    packets = ordered(both, np.repeat([Type.END, Type.BEGIN], len(opening)), drawn.start - base, duration)
    names, which = names_of(job, drawn.row)
    name = sequence.texts.numbers(Table.NAMES, names)[which]
    category = sequence.texts.number(Table.CATEGORIES, COLLECTIVE_CATEGORY)
    tails: list[bytes] = []
    if wanted != Wanted.NONE:
        facts = facts_of(job, grouped_parts(job), drawn.row, drawn.open_ended)
        tails = sequence.arguments.of_payloads(COLLECTIVE, facts)
    tids = np.array(seats.tids, np.int64)[seats.seat]
    tail = np.where((packets.type == Type.BEGIN) & bool(tails), packets.row, -1)
    yield from sequence.packets(
        Events(
            packets.time,
            packets.type,
            tids[packets.row],
            np.full(len(tail), category),
            name[packets.row],
            tails,
            tail,
        )
    )


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
    sequence = PacketSequence(numbering.block * PER_BLOCK + 2, sheets.base or 0)
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
            for place, said in zip(mine.tolist(), sequence.arguments.of_payloads(LINK, causes), strict=True):
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
