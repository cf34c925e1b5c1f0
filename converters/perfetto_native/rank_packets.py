"""One rank's events as packets: slices and instants in order of time, then the samples of counters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracelink.converters.perfetto.categories import categories_of, category, driver_calls
from tracelink.converters.perfetto.links import SaidOf
from tracelink.converters.perfetto.marks import drawn_samples
from tracelink.converters.perfetto.parts import Piece, spans
from tracelink.converters.perfetto.payload_runs import payload_runs
from tracelink.converters.perfetto.picture import MOST_PIECES, Picture
from tracelink.converters.perfetto.schema import ORIGINAL, RECORDER
from tracelink.converters.perfetto.text import Float64s
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.converters.perfetto_native.arguments import arguments
from tracelink.converters.perfetto_native.order import Packets
from tracelink.converters.perfetto_native.rows import Rows
from tracelink.converters.perfetto_native.schema import Event, Table, Type
from tracelink.converters.perfetto_native.sequence import HUNG_COLOUR, PER_BLOCK, Events, PacketSequence
from tracelink.converters.perfetto_native.zero import zero_of
from tracelink.events import Bools, EventKind, Int64s
from tracelink.graph import EventGraph
from tracelink.trace import Payload
from tracelink.wire import FIXED64, key

PIECE_PACKETS = 1 << 16
"""Packets of a piece at least: what it says of all of its events is in memory at once."""

GAP = 1 << 14
"""So many payloads that nobody asks for are passed over and not read: a piece of a long trace needs few of them."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that the packets of a rank are made of."""

    picture: Picture
    packets: Packets
    arrows: Mapping[int, bytes]
    """Fields of arrows, for the rows that have any."""
    said: SaidOf
    counters: Mapping[int, int]
    """The numbers of counters' tracks."""
    wanted: Wanted
    block: int


def pieces_of(sheet: Sheet) -> Sequence[Piece]:
    """All packets of a rank, in pieces that are sequences of their own."""
    count = len(sheet.packets.row)
    parts = spans(0, count, max(PIECE_PACKETS, count // MOST_PIECES))
    pieces: list[Piece] = [partial(_events, sheet, number, *span) for number, span in enumerate(parts)]
    if sheet.counters:
        pieces.append(partial(_samples, sheet, len(parts)))
    return pieces


def _sequence(sheet: Sheet, number: int) -> PacketSequence:
    return PacketSequence(sheet.block * PER_BLOCK + number + 1, zero_of(sheet.picture.drawing.base))


def _events(sheet: Sheet, number: int, low: int, high: int) -> Iterator[bytes]:
    sequence = _sequence(sheet, number)
    packets, picture = sheet.packets.where(slice(low, high)), sheet.picture
    opens = packets.type != Type.END
    rows = np.sort(packets.row[opens])
    tails = _tails(sheet, sequence, rows)
    tids = np.array(picture.seats.tid, np.int64)
    place = np.searchsorted(rows, packets.row[opens])
    category, name, tail = np.full((3, len(opens)), -1)
    category[opens] = _categories(picture.graph, sequence, rows)[place]
    name[opens] = _names(picture.graph, sequence, rows)[place]
    tail[opens] = place
    track = tids[picture.seat[packets.row]]
    yield from sequence.packets(Events(packets.time, packets.type, track, category, name, tails, tail))


def _names(graph: EventGraph, sequence: PacketSequence, rows: Int64s) -> Int64s:
    distinct, which = np.unique(graph.events.name[rows], return_inverse=True)
    texts = [graph.strings[code] for code in distinct.tolist()]
    return sequence.texts.numbers(Table.NAMES, texts)[which]


def _categories(graph: EventGraph, sequence: PacketSequence, rows: Int64s) -> Int64s:
    distinct, which = np.unique(categories_of(graph, driver_calls(graph), rows), return_inverse=True)
    return sequence.texts.numbers(Table.CATEGORIES, list(map(category, distinct.tolist())))[which]


def _tails(sheet: Sheet, sequence: PacketSequence, rows: Int64s) -> list[bytes]:
    """For each row its arrows, its own arguments, and what is said of it."""
    tails = (
        _own_arguments(sheet.picture.graph, sequence, rows)
        if sheet.wanted == Wanted.ALL
        else [b""] * len(rows)
    )
    for name, said in sheet.said.items():
        some = _inside(said, rows)
        texts = arguments(sequence.texts, name, [b"{%s}" % said[row] for row in rows[some].tolist()])
        for index, text in zip(some.tolist(), texts, strict=True):
            tails[index] += text
    for index in _inside(sheet.picture.drawing.hung, rows).tolist():
        tails[index] = HUNG_COLOUR + tails[index]
    some = _inside(sheet.arrows, rows)
    for index, row in zip(some.tolist(), rows[some].tolist(), strict=True):
        tails[index] = sheet.arrows[row] + tails[index]
    return tails


def _inside(said: Collection[int], rows: Int64s) -> Int64s:
    """The places of those rows of which something is said."""
    return np.flatnonzero(np.isin(rows, np.fromiter(said, np.int64, len(said))))


def _own_arguments(graph: EventGraph, sequence: PacketSequence, rows: Int64s) -> list[bytes]:
    made: list[bytes] = []
    for source, begin in enumerate(graph.bounds[:-1]):
        mine = rows[slice(*np.searchsorted(rows, [begin, graph.bounds[source + 1]]).tolist())]
        payloads = graph.payloads[source] if source < len(graph.payloads) else None
        recorded, numbers = graph.events.kind[mine] == EventKind.RECORD, graph.events.payload[mine]
        parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > GAP) + 1)
        done = 0
        for run in (run for part in parts for _, run in payload_runs(payloads, part)):
            made += _grouped(sequence, recorded[done : done + len(run)], run)
            done += len(run)
    return made


def _grouped(sequence: PacketSequence, recorded: Bools, texts: Sequence[Payload]) -> list[bytes]:
    """An argument for each text: one for what a recorder said, one for what any other source did."""
    if not recorded.any():
        return arguments(sequence.texts, ORIGINAL, texts)
    made = [b""] * len(texts)
    for name, mine in ((ORIGINAL, ~recorded), (RECORDER, recorded)):
        places = np.flatnonzero(mine).tolist()
        some = arguments(sequence.texts, name, [texts[place] for place in places])
        for place, text in zip(places, some, strict=True):
            made[place] = text
    return made


def _samples(sheet: Sheet, number: int) -> Iterator[bytes]:
    graph, counters = sheet.picture.graph, sheet.counters
    rows = np.flatnonzero(drawn_samples(graph))
    tracks = np.zeros(len(graph.tracks), np.int64)
    tracks[list(counters)] = list(counters.values())
    drawn, base = graph.counters, sheet.picture.drawing.base
    yield from sample_packets(
        _sequence(sheet, number), tracks[drawn.track[rows]], drawn.time[rows] - base, drawn.value[rows]
    )


def sample_packets(
    sequence: PacketSequence, track: Int64s, times: Int64s, values: Float64s
) -> Iterator[bytes]:
    """Samples of counters, whose tracks have these numbers; times are nanoseconds after the base."""
    turn = np.argsort(times, kind="stable")
    tails = Rows()
    tails.words(key(Event.DOUBLE_VALUE, FIXED64), values[turn])
    none = np.zeros(len(turn), np.int64)
    yield from sequence.packets(
        Events(
            times[turn],
            none + Type.COUNTER,
            track[turn],
            none,
            none,
            tails.each(),
            np.arange(len(turn)),
        )
    )
