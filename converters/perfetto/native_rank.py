"""One rank as packets: its events, its tracks, and the facts that tracelink's reader needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from tracelink._io.framing import FIXED64, delimited, key
from tracelink._model.columns import Bools, Float64s, Int32s, Int64s
from tracelink._model.events import BYTES, COUNT, EventKind, InstantScope, Key, Relation, Track, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.trace import Payload, Payloads
from tracelink.converters.perfetto.facts import AddedArguments, clean_text, encoded, header
from tracelink.converters.perfetto.native_arguments import argument_columns
from tracelink.converters.perfetto.native_packets import (
    HUNG_COLOUR,
    SEQUENCES_PER_BLOCK,
    EventOrder,
    FieldsByRow,
    MessageColumns,
    PacketSequence,
    Tails,
    TrackEvents,
    number_field,
)
from tracelink.converters.perfetto.packets import schema
from tracelink.converters.perfetto.timeline import schema as timeline_schema
from tracelink.converters.perfetto.timeline.blocks import Section, row_ranges
from tracelink.converters.perfetto.timeline.drawing import drawn_samples
from tracelink.converters.perfetto.timeline.flows import Flows
from tracelink.converters.perfetto.timeline.groups import (
    GROUPS_PROCESS,
    WAITS_NAME,
    GroupCounters,
    GroupTracks,
)
from tracelink.converters.perfetto.timeline.job import (
    MAX_SECTIONS,
    ArgumentChoice,
    RankTimeline,
    payload_runs,
)
from tracelink.converters.perfetto.timeline.layout import (
    SUMMARY,
    Layout,
    Numbering,
    OutputThreads,
    Process,
    ProcessKind,
    Thread,
)

# Events: slices and instants in order of time, then the samples of counters.


SECTION_PACKETS = 1 << 16
"""Least packets of a section; the arguments of all its events are in memory at once."""

GAP = 1 << 14
"""Payloads between two events that are skipped without reading: a section of a long trace needs few of them."""


class RankPackets(Struct, frozen=True):
    """The data of which the packets of a rank are made."""

    rank_timeline: RankTimeline
    order: EventOrder
    flows: FieldsByRow
    added: AddedArguments
    has_added: Mapping[str, Bools]
    """By the name of an added argument, whether each row has it."""
    counters: Mapping[int, int]
    """Numbers of the tracks of counters."""
    args: ArgumentChoice
    block: int
    categories: timeline_schema.Categories
    payloads: Sequence[Payloads]
    """For each source, its recorded arguments."""


def rank_sections(packets: RankPackets) -> Sequence[Section]:
    """All packets of a rank; each section is a sequence of its own."""
    count = len(packets.order.row)
    ranges = row_ranges(0, count, max(SECTION_PACKETS, count // MAX_SECTIONS))
    sections: list[Section] = [
        partial(_events, packets, number, low, high) for number, (low, high) in enumerate(ranges)
    ]
    if packets.counters:
        sections.append(partial(_samples, packets, len(ranges)))
    return sections


def _sequence(packets: RankPackets, number: int) -> PacketSequence:
    return PacketSequence(packets.block * SEQUENCES_PER_BLOCK + number + 1)


def _events(packets: RankPackets, number: int, low: int, high: int) -> Iterator[bytes]:
    sequence = _sequence(packets, number)
    order, rank_timeline = packets.order.take(slice(low, high)), packets.rank_timeline
    opens = np.flatnonzero(order.type != schema.Type.END)
    by_row = np.argsort(order.row[opens])
    rows = order.row[opens[by_row]]
    tails = _tails(packets, sequence, rows)
    tids = np.array(rank_timeline.threads.tid, np.int64)
    category, name = np.zeros((2, len(order.row)), np.int64)
    tail = np.full(len(order.row), -1)
    category[opens[by_row]] = _categories(packets, sequence, rows)
    name[opens[by_row]] = _names(rank_timeline.graph, sequence, rows)
    tail[opens[by_row]] = np.arange(len(rows))
    track = tids[rank_timeline.thread[order.row]]
    yield from sequence.packets(TrackEvents(order.time, order.type, track, category, name, tails, tail))


def _names(graph: EventGraph, sequence: PacketSequence, rows: Int64s) -> Int64s:
    return _interned(sequence, schema.TextTable.NAMES, graph.strings, graph.events.name[rows])


def _categories(packets: RankPackets, sequence: PacketSequence, rows: Int64s) -> Int64s:
    codes = packets.categories.of_rows(packets.rank_timeline.graph, rows)
    return _interned(sequence, schema.TextTable.CATEGORIES, packets.categories.names, codes)


def _interned(
    sequence: PacketSequence, table: schema.TextTable, texts: Sequence[str], codes: Int64s | Int32s
) -> Int64s:
    """The numbers of interned strings that are the texts of these codes."""
    numbers = np.zeros(len(texts), np.int64)
    numbers[codes] = 1
    used = np.flatnonzero(numbers)
    numbers[used] = sequence.interned.numbers(table, [texts[code] for code in used.tolist()])
    return numbers[codes]


def _tails(packets: RankPackets, sequence: PacketSequence, rows: Int64s) -> Tails:
    """For each row its flows and colour, recorded arguments, and added arguments."""
    hung = packets.rank_timeline.drawing.hung
    flows, lengths = packets.flows.of_rows(rows)
    if hung:
        for index in np.flatnonzero(np.isin(rows, np.fromiter(hung, np.int64, len(hung)))).tolist():
            flows[index] += HUNG_COLOUR
            lengths[index] += len(HUNG_COLOUR)
    columns = [flows]
    if packets.args == ArgumentChoice.ALL:
        heads, texts, of_recorded = _recorded_arguments(packets, sequence, rows)
        columns += [heads, texts]
        lengths += of_recorded
    if packets.added:
        added, of_added = _added_arguments(packets, sequence, rows)
        columns.append(added)
        lengths += of_added
    return Tails(columns, lengths)


def _added_arguments(
    packets: RankPackets, sequence: PacketSequence, rows: Int64s
) -> tuple[list[bytes], Int64s]:
    """For each row the arguments that tracelink adds, and their length."""
    added, lengths = [b""] * len(rows), np.zeros(len(rows), np.int64)
    for name, members in packets.added.items():
        some = np.flatnonzero(packets.has_added[name][rows])
        objects = [b"{%s}" % members[row] for row in rows[some].tolist()]
        heads, texts, of_objects = argument_columns(sequence.interned, name, objects)
        lengths[some] += of_objects
        for index, head, text in zip(some.tolist(), heads, texts, strict=True):
            added[index] += head + text
    return added, lengths


def _recorded_arguments(
    packets: RankPackets, sequence: PacketSequence, rows: Int64s
) -> tuple[list[bytes], list[bytes], Int64s]:
    """For each row the two parts of its recorded arguments, and their length."""
    graph = packets.rank_timeline.graph
    heads: list[bytes] = []
    texts: list[bytes] = []
    lengths = [np.empty(0, np.int64)]
    for source, begin in enumerate(graph.bounds[:-1]):
        mine = rows[slice(*np.searchsorted(rows, [begin, graph.bounds[source + 1]]).tolist())]
        payloads = packets.payloads[source] if source < len(packets.payloads) else None
        recorder, numbers = graph.events.kind[mine] == EventKind.RECORD, graph.events.payload[mine]
        parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > GAP) + 1)
        done = 0
        for run in (run for part in parts for _, run in payload_runs(payloads, part)):
            some = _by_recorder(sequence, recorder[done : done + len(run)], run)
            heads += some[0]
            texts += some[1]
            lengths.append(some[2])
            done += len(run)
    return heads, texts, np.concatenate(lengths)


def _by_recorder(
    sequence: PacketSequence, recorder: Bools, payloads: Sequence[Payload]
) -> tuple[list[bytes], list[bytes], Int64s]:
    """An argument for each payload: one name for those of flight recorders, another for all other sources."""
    if not recorder.any():
        return argument_columns(sequence.interned, timeline_schema.ORIGINAL, payloads)
    heads, texts = [b""] * len(payloads), [b""] * len(payloads)
    lengths = np.zeros(len(payloads), np.int64)
    for name, mine in ((timeline_schema.ORIGINAL, ~recorder), (timeline_schema.RECORDER, recorder)):
        indexes = np.flatnonzero(mine)
        chosen = [payloads[index] for index in indexes.tolist()]
        of_name = argument_columns(sequence.interned, name, chosen)
        lengths[indexes] = of_name[2]
        for index, head, text in zip(indexes.tolist(), of_name[0], of_name[1], strict=True):
            heads[index], texts[index] = head, text
    return heads, texts, lengths


def _samples(packets: RankPackets, number: int) -> Iterator[bytes]:
    graph, counters = packets.rank_timeline.graph, packets.counters
    rows = np.flatnonzero(drawn_samples(graph))
    tracks = np.zeros(len(graph.tracks), np.int64)
    tracks[list(counters)] = list(counters.values())
    drawn, base = graph.counters, packets.rank_timeline.drawing.base
    yield from sample_packets(
        _sequence(packets, number), tracks[drawn.track[rows]], drawn.time[rows] - base, drawn.value[rows]
    )


def sample_packets(
    sequence: PacketSequence, track: Int64s, times: Int64s, values: Float64s
) -> Iterator[bytes]:
    """Samples of counters by the number of their track; times are nanoseconds after the base."""
    order = np.argsort(times, kind="stable")
    tails = MessageColumns()
    tails.words(key(schema.Event.DOUBLE_VALUE, FIXED64), values[order])
    zeros = np.zeros(len(order), np.int64)
    yield from sequence.packets(
        TrackEvents(
            times[order],
            zeros + schema.Type.COUNTER,
            track[order],
            zeros,
            zeros,
            Tails.of(tails.each()),
            np.arange(len(order)),
        )
    )


# Tracks: a tree of threads, then GPUs with their streams, process groups, and the rest.


THREADS = tuple(kind for kind in TrackKind if kind != TrackKind.PROCESS)
"""Kinds of tracks that are directly below a rank, if they belong to its main process."""

PROFILER = "profiler"
"""The node of tracks that belong to no thread, if there are several."""


class TrackNode(Struct, frozen=True):
    """A track to declare, below another one or at the root."""

    number: int
    name: str
    parent: int = 0
    unit: str | None = None
    """Of a counter: its unit, or "" if unknown."""


class TrackTree(Struct):
    """The tracks of a rank, in the order in which they are shown."""

    root: TrackNode
    below: list[TrackNode] = field(default_factory=list)

    def __iter__(self) -> Iterator[TrackNode]:
        yield self.root
        yield from self.below

    def add(self, number: int, name: str, parent: int, unit: str | None = None) -> None:
        """Adds a track after all others of its parent."""
        self.below.append(TrackNode(number, name, parent, unit))

    def add_threads(self, threads: Sequence[tuple[int, Thread]], parent: int, *kinds: TrackKind) -> None:
        """Adds the threads of a process. All lanes of a thread have its name, so that viewers merge them."""
        for tid, thread in threads:
            if thread.kind in kinds and thread.original != SUMMARY:
                self.add(tid, thread.name, parent)

    def add_counters(self, tracks: Mapping[int, Track], parent: int) -> None:
        """Adds counters by number, each with a unique name: viewers cannot merge counters."""
        used: set[str] = set()
        for number, track in tracks.items():
            name = _counter_name(track)
            unique = f"{name} #{number}" if name in used else name
            used.add(unique)
            self.add(number, unique, parent, track.unit)


def track_tree(rank_timeline: RankTimeline, counters: Mapping[int, int], numbering: Numbering) -> TrackTree:
    """The tracks of one rank; `counters` are the numbers of its counters."""
    layout, threads = rank_timeline.layout, rank_timeline.threads
    last = len(layout.processes) + len(threads.tid) + len(counters)
    tree = TrackTree(TrackNode(_summary(threads) or numbering.id_of(last + 1), layout.title))
    root, main = tree.root.number, _main_process(layout)
    threads_of: defaultdict[int, list[tuple[int, Thread]]] = defaultdict(list)
    for tid, thread in zip(threads.tid, threads.thread, strict=True):
        threads_of[thread.process.pid].append((tid, thread))
    counters_of: defaultdict[int, dict[int, Track]] = defaultdict(dict)
    for row, owner in layout.process_of_counter.items():
        shared = owner == main or (owner.kind == ProcessKind.COUNTERS and not owner.is_of_no_rank)
        counters_of[root if shared else owner.pid][counters[row]] = rank_timeline.graph.tracks[row]
    if main:
        tree.add_threads(threads_of[main.pid], root, *THREADS)
    for process in layout.processes:
        if process != main and process.kind != ProcessKind.COUNTERS:
            tree.add(process.pid, process.name, root)
            tree.add_threads(threads_of[process.pid], process.pid, *TrackKind)
            tree.add_counters(counters_of[process.pid], process.pid)
    if main:
        profiler = TrackNode(numbering.id_of(last + 2), f"{layout.title} · {PROFILER}", root)
        _add_profiler(tree, threads_of[main.pid], profiler)
    tree.add_counters(counters_of[root], root)
    for process in layout.processes:
        if process.is_of_no_rank:
            tree.add(process.pid, process.name, root)
            tree.add_counters(counters_of[process.pid], process.pid)
    return tree


def _summary(threads: OutputThreads) -> int | None:
    """The number of the track that shows at a glance what a rank does: a viewer draws it in the heading of the rank."""
    tids = [
        tid for tid, thread in zip(threads.tid, threads.thread, strict=True) if thread.original == SUMMARY
    ]
    return tids[0] if tids else None


def _add_profiler(tree: TrackTree, threads: Sequence[tuple[int, Thread]], node: TrackNode) -> None:
    """Adds tracks that belong to no thread, below a node of their own if there are several."""
    count = len({thread.name for _, thread in threads if thread.kind == TrackKind.PROCESS})
    if count > 1:
        tree.add(node.number, node.name, node.parent)
    tree.add_threads(threads, node.number if count > 1 else node.parent, TrackKind.PROCESS)


def _main_process(layout: Layout) -> Process | None:
    """The process whose threads are directly below the rank: its first, or the only one without a device."""
    drawn = [
        process for process in layout.processes if process.kind not in (ProcessKind.GPU, ProcessKind.COUNTERS)
    ]
    return drawn[0] if drawn and (drawn[0].kind == ProcessKind.CPU or len(layout.processes) == 1) else None


def counter_numbers(layout: Layout, threads: OutputThreads, numbering: Numbering) -> dict[int, int]:
    """The number of the track of each counter, after those of all processes and threads."""
    first = len(layout.processes) + len(threads.tid) + 1
    return {row: numbering.id_of(number) for number, row in enumerate(layout.process_of_counter, first)}


def track_packets(nodes: Iterable[TrackNode]) -> bytes:
    """Packets that declare tracks, before all events; tracks with the same parent are shown in this order."""
    tracks = (_track(node, rank) for rank, node in enumerate(nodes))
    return b"".join(delimited(schema.PACKET, delimited(schema.Packet.TRACK, track)) for track in tracks)


def _track(node: TrackNode, rank: int) -> bytes:
    """A track that belongs to no process and no thread of the engine."""
    return (
        number_field(schema.Track.NUMBER, node.number)
        + (number_field(schema.Track.PARENT, node.parent) if node.parent else b"")
        + delimited(schema.Track.NAME, clean_text(node.name).encode())
        + (b"" if node.unit is None else delimited(schema.Track.COUNTER, _unit(node.unit)))
        + number_field(schema.Track.CHILD_ORDERING, schema.BY_RANK)
        + number_field(schema.Track.RANK, rank)
    )


def _unit(unit: str) -> bytes:
    if unit in (BYTES, COUNT):
        return number_field(schema.Counter.UNIT, next(n for n, name in schema.UNITS.items() if name == unit))
    return delimited(schema.Counter.UNIT_NAME, clean_text(unit).encode()) if unit else b""


# Facts for tracelink's own reader, in packets of a field that viewers ignore.


FlowCount = tuple[str, int, int]
"""A relation, the number of its flows, and how many of them run to an event that the engine reads earlier."""


def header_packet(job: LinkedJob, base: int) -> bytes:
    """The header of the job, as in a JSON document."""
    return _packet(header(job, base) + b"\n}")


def rank_packet(
    rank_timeline: RankTimeline, counters: Mapping[int, int], flows: Sequence[FlowCount], first_flow: int
) -> bytes:
    """Processes and threads of one rank as in JSON, the relations of its flows, and the numbers of its counters."""
    layout, threads = rank_timeline.layout, rank_timeline.threads
    listed = zip(threads.pid, threads.tid, threads.name, threads.thread, strict=True)
    tracks = rank_timeline.graph.tracks
    return _facts(
        {
            schema.Fact.RANK: rank_timeline.graph.ranks[0].rank,
            schema.Fact.TITLE: layout.title,
            schema.Fact.PROCESSES: [
                [process.pid, process.name, process.label, process.original] for process in layout.processes
            ],
            schema.Fact.THREADS: [[pid, tid, name, thread.original] for pid, tid, name, thread in listed],
            schema.Fact.COUNTERS: [
                [number, layout.process_of_counter[row].pid, _counter_name(tracks[row])]
                for row, number in counters.items()
            ],
            schema.Fact.FIRST_FLOW: first_flow,
            schema.Fact.FLOWS: flows,
        }
        | _scopes(rank_timeline)
    )


def _scopes(rank_timeline: RankTimeline) -> dict[schema.Fact, Any]:
    """The scopes of the names of instants that all have the same one, if it is wider than their thread."""
    graph, drawing = rank_timeline.graph, rank_timeline.drawing
    column = graph.key(Key.INSTANT_SCOPE)
    if not len(column):
        return {}
    scope = column.dense(len(graph), InstantScope.THREAD)
    instants = np.flatnonzero(drawing.instant & drawing.shown)
    found: dict[str, set[int]] = {}
    wide = np.isin(graph.events.name[instants], graph.events.name[column.rows])
    for row in instants[wide].tolist():
        found.setdefault(graph.name(row), set()).add(int(scope[row]))
    equal = {name: min(scopes) for name, scopes in found.items() if len(scopes) == 1}
    return (
        {
            schema.Fact.SCOPES: {
                name: timeline_schema.SCOPES[InstantScope(scope)] for name, scope in equal.items()
            }
        }
        if equal
        else {}
    )


def group_packet(tracks: GroupTracks, counters: GroupCounters, ranks: int, *, summarized: bool) -> bytes:
    """Process, threads and counters of the process groups."""
    process = tracks.process
    return _facts(
        {
            schema.Fact.TITLE: str(ranks),
            schema.Fact.PROCESSES: [[process, GROUPS_PROCESS, GROUPS_PROCESS]],
            schema.Fact.THREADS: [
                *([[process, tracks.summary, WAITS_NAME]] if summarized else []),
                *([process, tid, name] for tid, name in zip(tracks.tids, tracks.names, strict=True)),
            ],
            schema.Fact.COUNTERS: [
                [number, process, name] for number, name in zip(counters.numbers, counters.names, strict=True)
            ],
        }
    )


def flow_counts(flows: Flows, backward: Bools) -> list[FlowCount]:
    """The flows of each relation, sorted by relation, and how many of them are `backward`."""
    relations, counts = np.unique(flows.relation, return_counts=True)
    return [
        (
            timeline_schema.FLOW_NAMES[Relation(relation)],
            count,
            int(np.count_nonzero(backward[flows.relation == relation])),
        )
        for relation, count in zip(relations.tolist(), counts.tolist(), strict=True)
    ]


def _counter_name(track: Track) -> str:
    return track.label or track.identity


def _facts(facts: Mapping[schema.Fact, Any]) -> bytes:
    return _packet(encoded(facts))


def _packet(text: bytes) -> bytes:
    return delimited(schema.PACKET, delimited(schema.Packet.TRACELINK, text))
