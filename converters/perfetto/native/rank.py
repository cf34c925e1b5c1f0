"""One rank's events, tracks and facts as packets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tracelink.converters.perfetto.facts import SaidOf, opening
from tracelink.converters.perfetto.json_text import encoded, whole_text
from tracelink.converters.perfetto.native.arguments import arguments
from tracelink.converters.perfetto.native.packets import (
    HUNG_COLOUR,
    PER_BLOCK,
    Events,
    Packets,
    PacketSequence,
    Rows,
    number_field,
    zero_of,
)
from tracelink.converters.perfetto.native.schema import (
    BY_RANK,
    PACKET,
    UNITS,
    Counter,
    Event,
    Fact,
    Packet,
    Table,
    Type,
)
from tracelink.converters.perfetto.native.schema import Track as TrackOfTracks
from tracelink.converters.perfetto.timeline.blocks import Piece, spans
from tracelink.converters.perfetto.timeline.counters import GroupCounters
from tracelink.converters.perfetto.timeline.drawing import drawn_samples
from tracelink.converters.perfetto.timeline.flows import Arrows
from tracelink.converters.perfetto.timeline.groups import PROCESS, GroupSeats
from tracelink.converters.perfetto.timeline.job import Wanted
from tracelink.converters.perfetto.timeline.layout import Layout, Numbering, Place, Process, Seats
from tracelink.converters.perfetto.timeline.rank import MOST_PIECES, Picture, payload_runs
from tracelink.converters.perfetto.timeline.schema import (
    FLOW_NAMES,
    ORIGINAL,
    RECORDER,
    categories_of,
    category,
    driver_calls,
)
from tracelink.io.framing import FIXED64, delimited, key
from tracelink.model.columns import Bools, Float64s, Int64s
from tracelink.model.events import EventKind, Relation, Track, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.model.trace import Payload

# One rank's events as packets: slices and instants in order of time, then the samples of counters.


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


# The tracks of one rank as a tree: its threads, then its GPUs with their streams, its process groups, and the rest.


THREADS = tuple(kind for kind in TrackKind if kind != TrackKind.PROCESS)
"""What stands directly below a rank, where its process has no branch of its own."""

PROFILER = "profiler"
"""The branch of what belongs to no thread, where there is more of it than one track."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A track that is to be declared, under another or at the root."""

    number: int
    name: str
    parent: int = 0
    unit: str | None = None
    """Of a counter: what its values are in, or "" where that is not known."""


@dataclass(slots=True)
class Tree:
    """The branches of a rank, in the order in which they are shown."""

    root: Branch
    below: list[Branch] = field(default_factory=list)

    def __iter__(self) -> Iterator[Branch]:
        yield self.root
        yield from self.below

    def add(self, number: int, name: str, parent: int, unit: str | None = None) -> None:
        """Puts a track behind all others of its parent."""
        self.below.append(Branch(number, name, parent, unit))

    def add_threads(self, seats: Seats, process: Process, parent: int, *kinds: TrackKind) -> None:
        """The threads of a process; all lanes of one have its name, so that viewers draw them as one."""
        for tid, thread in zip(seats.tid, seats.thread, strict=True):
            if thread.process == process and thread.kind in kinds:
                self.add(tid, thread.name, parent)

    def add_counters(self, tracks: Mapping[int, Track], parent: int) -> None:
        """Counters by number, each with a name of its own: viewers cannot draw two as one."""
        used: set[str] = set()
        for number, track in tracks.items():
            name = track.label or track.identity
            own = f"{name} #{number}" if name in used else name
            used.add(own)
            self.add(number, own, parent, track.unit)


def tree_of(
    graph: EventGraph, layout: Layout, seats: Seats, counters: Mapping[int, int], numbering: Numbering
) -> Tree:
    """The tree of one rank; `counters` are the numbers of those of its tracks that are counters."""
    last = len(layout.processes) + len(seats.tid) + len(counters)
    tree = Tree(Branch(numbering.seat(last + 1), layout.title))
    root, trunk = tree.root.number, _trunk(layout)
    if trunk:
        tree.add_threads(seats, trunk, root, *THREADS)
    for process in layout.processes:
        if process != trunk and process.place != Place.COUNTERS:
            tree.add(process.pid, process.name, root)
            tree.add_threads(seats, process, process.pid, *TrackKind)
            tree.add_counters(_sampled(graph, layout, counters, process), process.pid)
    if trunk:
        _add_profiler(
            tree, seats, trunk, Branch(numbering.seat(last + 2), f"{layout.title} · {PROFILER}", root)
        )
    bare = [process for process in layout.processes if process == trunk or process.place == Place.COUNTERS]
    tree.add_counters(_sampled(graph, layout, counters, *bare), root)
    return tree


def _add_profiler(tree: Tree, seats: Seats, trunk: Process, branch: Branch) -> None:
    """What belongs to no thread, on a branch of its own where it is more than one track."""
    count = sum(thread.process == trunk and thread.kind == TrackKind.PROCESS for thread in set(seats.thread))
    if count > 1:
        tree.add(branch.number, branch.name, branch.parent)
    tree.add_threads(seats, trunk, branch.number if count > 1 else branch.parent, TrackKind.PROCESS)


def _sampled(
    graph: EventGraph, layout: Layout, counters: Mapping[int, int], *processes: Process
) -> Mapping[int, Track]:
    """The counters of processes by number."""
    return {
        counters[row]: graph.tracks[row]
        for row, owner in layout.process_of_counter.items()
        if owner in processes
    }


def _trunk(layout: Layout) -> Process | None:
    """The process whose threads stand directly below the rank: its first, or the only one without a device."""
    drawn = [process for process in layout.processes if process.place not in (Place.GPU, Place.COUNTERS)]
    return drawn[0] if drawn and (drawn[0].place == Place.CPU or len(layout.processes) == 1) else None


# Packets that say which tracks there are, how they are called, and in which order they stand.


def counter_numbers(layout: Layout, seats: Seats, numbering: Numbering) -> dict[int, int]:
    """The number of the track of each counter, behind those of all processes and threads."""
    first = len(layout.processes) + len(seats.tid) + 1
    return {row: numbering.seat(number) for number, row in enumerate(layout.process_of_counter, first)}


def declared(branches: Iterable[Branch], base: int) -> bytes:
    """Packets for tracks, before all events; the tracks of each parent are shown in their order here."""
    time = number_field(Packet.TIME, base)
    tracks = (_track(branch, place) for place, branch in enumerate(branches))
    return b"".join(delimited(PACKET, time + delimited(Packet.TRACK, track)) for track in tracks)


def _track(branch: Branch, place: int) -> bytes:
    """A track of no process and no thread."""
    return (
        number_field(TrackOfTracks.NUMBER, branch.number)
        + (number_field(TrackOfTracks.PARENT, branch.parent) if branch.parent else b"")
        + delimited(TrackOfTracks.NAME, whole_text(branch.name).encode())
        + (b"" if branch.unit is None else delimited(TrackOfTracks.COUNTER, _in_unit(branch.unit)))
        + number_field(TrackOfTracks.CHILD_ORDERING, BY_RANK)
        + number_field(TrackOfTracks.RANK, place)
    )


def _in_unit(unit: str) -> bytes:
    if unit in UNITS:
        return number_field(Counter.UNIT, UNITS[unit])
    return delimited(Counter.UNIT_NAME, whole_text(unit).encode()) if unit else b""


# What viewers have no use for and readers need: packets of a field of tracelink's own, which viewers pass over.


ArrowFact = tuple[str, int, int]
"""A relation, how many arrows it has, and how many of them lead against the order in which events are met."""


def header_packet(job: Job, base: int) -> bytes:
    """The facts on the job, as a document in JSON has them around its events."""
    return _packet(opening(job, base) + b"\n}")


def rank_packet(
    picture: Picture, counters: Mapping[int, int], arrows: Sequence[ArrowFact], first_arrow: int
) -> bytes:
    """The facts on one rank: its processes and threads as they are in JSON, and what its arrows mean.

    `counters` are the numbers of those of its tracks that are counters.
    """
    graph, layout, seats = picture.graph, picture.layout, picture.seats
    threads = zip(seats.pid, seats.tid, seats.name, seats.thread, strict=True)
    return _facts(
        {
            Fact.RANK: graph.ranks[0].rank,
            Fact.PROCESSES: [
                [process.pid, process.name, process.label, process.original] for process in layout.processes
            ],
            Fact.THREADS: [[pid, tid, name, thread.original] for pid, tid, name, thread in threads],
            Fact.COUNTERS: [
                [number, layout.process_of_counter[row].pid, _counter_name(graph.tracks[row])]
                for row, number in counters.items()
            ],
            Fact.FIRST_ARROW: first_arrow,
            Fact.ARROWS: arrows,
        }
    )


def group_packet(seats: GroupSeats, counters: GroupCounters) -> bytes:
    """The facts on what ranks did together."""
    process = seats.process
    return _facts(
        {
            Fact.PROCESSES: [[process, PROCESS, PROCESS]],
            Fact.THREADS: [[process, *seat] for seat in zip(seats.tids, seats.names, strict=True)],
            Fact.COUNTERS: [
                [number, process, name] for number, name in zip(counters.numbers, counters.names, strict=True)
            ],
        }
    )


def arrow_facts(arrows: Arrows, turned: Bools) -> list[ArrowFact]:
    """What arrows mean that stand by relation, those that are turned behind the others."""
    relations, counts = np.unique(arrows.relation, return_counts=True)
    return [
        (FLOW_NAMES[Relation(relation)], count, int(np.count_nonzero(turned[arrows.relation == relation])))
        for relation, count in zip(relations.tolist(), counts.tolist(), strict=True)
    ]


def _counter_name(track: Track) -> str:
    return track.label or track.identity


def _facts(facts: Mapping[Fact, Any]) -> bytes:
    return _packet(encoded(facts))


def _packet(text: bytes) -> bytes:
    return delimited(PACKET, delimited(Packet.TRACELINK, text))
