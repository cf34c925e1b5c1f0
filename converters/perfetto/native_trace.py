"""A native trace of tracelink as columns: events, samples and flows. Arguments are read when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.framing import Batch
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, Table, distinct
from tracelink._model.errors import UnreadableError
from tracelink._model.events import InstantScope
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink.converters.perfetto import is_own
from tracelink.converters.perfetto.packets import schema
from tracelink.converters.perfetto.packets.reading import (
    BatchStart,
    Growing,
    Numbered,
    PacketFile,
    States,
    find_fields,
    pair_ends,
    read_bytes,
    read_numbers,
    read_words,
    split_messages,
    split_packets,
)
from tracelink.converters.perfetto.packets.schema import RED, Event, Fact, Packet, TextTable, Type
from tracelink.converters.perfetto.timeline.drawing import Drawing, OpeningOrder, opening_order_of
from tracelink.converters.perfetto.timeline.flows import BoundFlows, Flows, bind
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.schema import CROSS_RANK_FLOW_NAMES, FLOW_NAMES, SCOPES

# Facts: JSON for tracelink's own reader.


Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Large = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class ProcessFact(msgspec.Struct, array_like=True):
    """A process as in JSON."""

    pid: Number
    name: str
    label: str
    original: str | None = None


class ThreadFact(msgspec.Struct, array_like=True):
    """A thread as in JSON."""

    pid: Number
    tid: Number
    name: str
    original: str | None = None


class CounterFact(msgspec.Struct, array_like=True):
    """A counter as in JSON, and the number of its native track."""

    number: Number
    pid: Number
    name: str


class FlowFact(msgspec.Struct, array_like=True):
    """The flows of one relation; the last `turned` of them run to an earlier event."""

    name: str
    count: Large
    turned: Large


class BlockFacts(msgspec.Struct):
    """The facts of a rank, or of the process groups."""

    processes: list[ProcessFact] = msgspec.field(name=Fact.PROCESSES.value)
    threads: list[ThreadFact] = msgspec.field(name=Fact.THREADS.value)
    counters: list[CounterFact] = msgspec.field(name=Fact.COUNTERS.value)
    rank: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)] | None = msgspec.field(
        name=Fact.RANK.value, default=None
    )
    title: str = msgspec.field(name=Fact.TITLE.value, default="")
    first_flow: Large = msgspec.field(name=Fact.FIRST_FLOW.value, default=0)
    flows: list[FlowFact] = msgspec.field(name=Fact.FLOWS.value, default_factory=list)
    scopes: dict[str, str] = msgspec.field(name=Fact.SCOPES.value, default_factory=dict)


class TraceFacts(Struct):
    """All facts of a file."""

    header: dict[str, Any] | None = None
    blocks: list[BlockFacts] = field(default_factory=list)
    unusable: int = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Adds facts in the order of the file; the first one is the header."""
        for text in texts:
            try:
                if self.header is None:
                    self.header = msgspec.json.decode(text, type=dict[str, Any])
                else:
                    self.blocks.append(msgspec.json.decode(text, type=BlockFacts))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.unusable += 1

    @property
    def threads(self) -> list[ThreadFact]:
        """The threads of all ranks and of the process groups."""
        return [thread for block in self.blocks for thread in block.threads]

    @property
    def counters(self) -> list[CounterFact]:
        """The counters of all ranks and of the process groups."""
        return [counter for block in self.blocks for counter in block.counters]

    @property
    def base(self) -> int:
        """The time 0 of JSON."""
        base = (self.header or {}).get("baseTimeNanoseconds")
        return base if type(base) is int and abs(base) < 1 << 62 else 0


# Columns: a batch of packets at a time.


LARGEST = (1 << 31) - 1

LAST_TIME = 1 << 62
"""Later times are invalid."""


class PacketColumns(Table, frozen=True):
    """Packets in the order of the file that are events on tracks."""

    number: Int64s
    """The number of the packet in the file."""
    state: Int32s
    """The state of its sequence."""
    time: Int64s
    """Nanoseconds after the base."""
    type: npt.NDArray[np.uint8]
    track: Int32s
    category: Int32s
    name: Int32s
    colour: Int32s
    value: npt.NDArray[np.float64]


class _Columns(Struct):
    """The content of a file so far."""

    packets: Growing[PacketColumns] = field(default_factory=lambda: Growing(PacketColumns))
    outgoing: Growing[Numbered] = field(default_factory=lambda: Growing(Numbered))
    incoming: Growing[Numbered] = field(default_factory=lambda: Growing(Numbered))
    """Ends of flows by packet."""
    states: States = field(default_factory=lambda: States(of_tracelink=True))
    facts: TraceFacts = field(default_factory=TraceFacts)
    damaged: int = 0
    """Packets that are invalid."""

    def add(self, batch: Batch, first: int) -> None:
        """Adds the packets of a batch, the first of which has this number."""
        octets, whole = split_packets(batch)
        count = len(batch.begins)
        state, _ = self.states.of(whole, count)
        self.states.learn(octets, whole, state)
        self.facts.add(read_bytes(octets, find_fields(whole, Packet.TRACELINK)[1]))
        rows, _, inner = split_messages(octets, whole, Packet.TRACK_EVENT)
        type_, on_track = (read_numbers(inner, number, len(rows)) for number in (Event.TYPE, Event.TRACK))
        time = read_numbers(whole, Packet.TIME, count)[rows]
        type_ = np.clip(type_, 0, max(Type) + 1)
        type_[:-1][rows[1:] == rows[:-1]] = 0  # of several events in a damaged packet the last one counts
        invalid = (type_ != 0) & ((time < 0) | (time > LAST_TIME))
        type_[invalid | (on_track >= schema.FIRST_VIEW_TRACK)] = 0
        value = np.zeros(len(rows))
        owner, words = read_words(octets, inner, Event.DOUBLE_VALUE)
        value[owner] = words.view(np.float64)
        track, category, name, colour = (
            _narrow(read_numbers(inner, number, len(rows), UNKNOWN))
            for number in (Event.TRACK, Event.CATEGORY, Event.NAME, Event.COLOUR)
        )
        columns = PacketColumns(
            first + rows, state[rows], time, type_.astype(np.uint8), track, category, name, colour, value
        )
        self.packets.add(columns.take(type_ != 0))
        for ends, number in ((self.outgoing, Event.FLOW), (self.incoming, Event.LAST_OF_FLOW)):
            owner, numbers = read_words(octets, inner, number)
            ends.add(Numbered(first + rows[owner], numbers))
        self.damaged += sum(int(np.count_nonzero(odd)) for odd in (whole.odd, inner.odd, invalid))


def _narrow(values: Int64s) -> Int32s:
    """32-bit numbers; tracelink writes no larger ones."""
    return np.where((values >= 0) & (values <= LARGEST), values, UNKNOWN).astype(np.int32)


# The whole trace.


class Events(Struct, frozen=True):
    """Slices and instants in the order of the file; times are nanoseconds after the base."""

    packet: Int64s
    state: Int32s
    """The state of its sequence."""
    start: Int64s
    duration: Int64s
    instant: Bools
    thread: Int32s
    """Index of its thread among those in the facts."""
    category: Int32s
    name: Int32s
    hung: Bools

    def __len__(self) -> int:
        return len(self.packet)


class Samples(Struct, frozen=True):
    """Samples of counters, by index among those in the facts."""

    counter: Int32s
    time: Int64s
    value: npt.NDArray[np.float64]


class Damage(Struct):
    """The problems of a file."""

    damaged: int = 0
    bundles: int = 0
    """Bundles that are incomplete."""
    truncated_at: str = ""
    offset: int = 0
    without_end: int = 0
    without_start: int = 0
    on_unknown_track: int = 0
    """Events on tracks that are not in the facts."""
    without_name: int = 0


class WideInstants(Struct, frozen=True):
    """The instants of a name on the threads of a rank, which concern more than their thread."""

    threads: range
    name: int
    scope: InstantScope


class NativeTrace(Struct, frozen=True):
    """Everything in a file but arguments."""

    facts: TraceFacts
    events: Events
    samples: Samples
    outgoing: Numbered
    incoming: Numbered
    """Ends of flows by packet."""
    texts: Sequence[str]
    states: States
    """With the strings to which events refer by number."""
    batch_starts: Sequence[BatchStart]
    damage: Damage
    wide_instants: Sequence[WideInstants] = ()

    @property
    def base(self) -> int:
        """The time 0 of JSON."""
        return self.facts.base


def read_native(source: Source, engine: Engine) -> NativeTrace:
    """Reads a whole file; everything before any damage is used."""
    if not is_own(source.head()):
        raise UnreadableError(
            "a Perfetto trace that tracelink did not write; tracelink reads only its own",
            source=source.path,
            advice="Open it at ui.perfetto.dev, or use the file that torch.profiler wrote.",
        )
    file, columns = PacketFile(source), _Columns()
    for batch in file.batches(engine.meter.add):
        columns.add(batch, file.packets)
    if not columns.facts.header:
        problem = file.truncated_at or "its header cannot be read"
        raise UnreadableError(problem, source=source.path, advice="Copy or write it again.")
    return _resolve(file, columns)


def _resolve(file: PacketFile, columns: _Columns) -> NativeTrace:
    damage = Damage(columns.damaged, file.damaged_bundles, file.truncated_at, file.offset)
    packets, strings, facts, states = columns.packets.join(), StringTable(), columns.facts, columns.states
    category = _codes(states, TextTable.CATEGORIES, packets.state, packets.category, strings)
    name = _codes(states, TextTable.NAMES, packets.state, packets.name, strings)
    time = packets.time
    thread = _indexes([thread.tid for thread in facts.threads], packets.track)
    counter = _indexes([counter.number for counter in facts.counters], packets.track)
    slices = (packets.type == Type.BEGIN) | (packets.type == Type.END)
    instant = packets.type == Type.INSTANT
    sampled = packets.type == Type.COUNTER
    on_unknown_track = ((slices | instant) & (thread == UNKNOWN)) | (sampled & (counter == UNKNOWN))
    damage.on_unknown_track = int(np.count_nonzero(on_unknown_track))
    drawn = np.flatnonzero(sampled & ~on_unknown_track & np.isfinite(packets.value))
    packets.type[on_unknown_track] = 0
    return NativeTrace(
        facts,
        _events(packets, thread, time, category, name, damage),
        Samples(counter[drawn], time[drawn], packets.value[drawn]),
        columns.outgoing.join(),
        columns.incoming.join(),
        strings.texts(),
        states,
        file.starts,
        damage,
        _wide_instants(facts, strings),
    )


def _wide_instants(facts: TraceFacts, strings: StringTable) -> list[WideInstants]:
    values = {text: scope for scope, text in SCOPES.items()}
    found, first = [], 0
    for block in facts.blocks:
        threads = range(first, first + len(block.threads))
        first = threads.stop
        found += [
            WideInstants(threads, strings.find(name), values[scope])
            for name, scope in block.scopes.items()
            if scope in values
        ]
    return found


def _codes(states: States, table: TextTable, state: Int32s, number: Int32s, strings: StringTable) -> Int32s:
    """The code in `strings` of each interned string, `UNKNOWN` without one."""
    names, which = states.resolve(table, state, number)
    return np.array([UNKNOWN if name is None else strings[name] for name in names], np.int32)[which]


def _events(
    packets: PacketColumns, thread: Int32s, time: Int64s, category: Int32s, name: Int32s, damage: Damage
) -> Events:
    """Slices, each with its end, and instants."""
    begins, instant = packets.type == Type.BEGIN, packets.type == Type.INSTANT
    drawn = np.flatnonzero(packets.type)
    pairs = pair_ends(thread, time, np.flatnonzero(begins | (packets.type == Type.END)), begins)
    end = np.where(pairs.end < 0, time[drawn].max(initial=0), time[pairs.end])
    duration = np.zeros(len(packets), np.int64)
    duration[pairs.begin] = np.maximum(end - time[pairs.begin], 0)
    damage.without_end, damage.without_start = int(np.count_nonzero(pairs.end < 0)), pairs.unmatched_ends
    rows = np.flatnonzero(begins | instant)
    damage.without_name = int(np.count_nonzero(name[rows] == UNKNOWN))
    return Events(
        packets.number[rows],
        packets.state[rows],
        time[rows],
        duration[rows],
        instant[rows],
        thread[rows],
        category[rows],
        name[rows],
        packets.colour[rows] == RED,
    )


def _indexes(numbers: Sequence[int], track: Int32s) -> Int32s:
    """For each track the index of its number, `UNKNOWN` for other tracks."""
    index_of: Mapping[int, int] = {number: index for index, number in enumerate(numbers)}
    which, first = distinct(track)
    found = np.array([index_of.get(number, UNKNOWN) for number in track[first].tolist()], np.int32)
    return found[which]


# Flows, bound as JSON binds them.


RELATIONS = {name: relation for relation, name in FLOW_NAMES.items()}
CROSS_RANK = {name: relation for relation, name in CROSS_RANK_FLOW_NAMES.items()}


class CrossRankFlows(Struct, frozen=True):
    """Flows between ranks that can be drawn; those of one relation from one event share a number."""

    flows: Flows
    number: Int64s
    undrawn: Int64s
    """Events at which flows end that cannot be drawn; their instants are not drawn either."""


class TraceFlows(Struct):
    """All flows of a trace."""

    drawing: Drawing
    flows: list[BoundFlows]
    cross_rank: CrossRankFlows
    findings: list[Finding] = field(default_factory=list)


def flows_of_trace(native: NativeTrace) -> TraceFlows:
    """The flows within all ranks, then those between ranks."""
    drawing = _drawing(native)
    events = native.events
    opening_order = opening_order_of(
        drawing, events.thread.astype(np.int64), np.argsort(events.thread, kind="stable")
    )
    number, source, target = _joined(native)
    flows: list[BoundFlows] = []
    within = np.zeros(len(number), np.bool_)
    findings: list[Finding] = []
    blocks = native.facts.blocks
    for index, facts in enumerate(blocks):
        mine, of_rank = _of_block(facts, number, source, target)
        within |= mine
        if len(of_rank):
            numbering = Numbering(index, len(blocks))
            flows.append(bind(of_rank, drawing, opening_order, numbering, _namer(native), findings))
    cross_rank = _cross_rank(
        native, opening_order, source[~within], target[~within], Numbering(len(blocks), len(blocks) + 1)
    )
    if len(cross_rank.undrawn):
        message = "flows between ranks from slices that open at the same time as others are not drawn"
        findings.append(Finding(Severity.WARNING, "flow_crowded", message, len(cross_rank.undrawn)))
    return TraceFlows(drawing, flows, cross_rank, findings)


def _drawing(native: NativeTrace) -> Drawing:
    events = native.events
    shown = np.ones(len(events), np.bool_)
    none = np.empty(0, np.int64)
    return Drawing(native.base, shown, events.instant, events.start, events.duration, none, {})


def _joined(native: NativeTrace) -> tuple[Int64s, Int64s, Int64s]:
    """Number, source and target of each flow with both ends, sorted by number."""
    outgoing, incoming = (_of_events(native, ends) for ends in (native.outgoing, native.incoming))
    order = np.argsort(incoming.number, kind="stable")
    targets, numbers = incoming.row[order], incoming.number[order]
    order = np.argsort(outgoing.number, kind="stable")
    sources, started = outgoing.row[order], outgoing.number[order]
    index = np.searchsorted(started, numbers)
    known = np.append(started, -1)[index] == numbers
    return numbers[known], sources[index[known]], targets[known]


def _of_events(native: NativeTrace, ends: Numbered) -> Numbered:
    """The ends by event; ends at packets that are not events are dropped."""
    packets = native.events.packet
    index = np.searchsorted(packets, ends.row)
    known = np.append(packets, -1)[index] == ends.row
    return Numbered(index[known], ends.number[known])


def _of_block(facts: BlockFacts, number: Int64s, source: Int64s, target: Int64s) -> tuple[Bools, Flows]:
    """A mask of the flows of one rank, and these flows as a writer of JSON has them."""
    within = np.zeros(len(number), np.bool_)
    parts: list[tuple[Int64s, Int64s, Int64s]] = []
    first = facts.first_flow
    for fact in facts.flows:
        low, turned, high = np.searchsorted(
            number, [first, first + fact.count - fact.turned, first + fact.count]
        ).tolist()
        first += fact.count
        within[low:high] = True
        if fact.name not in RELATIONS:
            continue
        first_end, second_end = source[low:high].copy(), target[low:high].copy()
        first_end[turned - low :], second_end[turned - low :] = target[turned:high], source[turned:high]
        parts.append((first_end, second_end, np.full(high - low, int(RELATIONS[fact.name]))))
    columns = [np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*parts, strict=True)]
    flows = Flows(*columns) if parts else Flows(*np.empty((3, 0), np.int64))
    return within, flows.take(np.lexsort((flows.target, flows.source, flows.relation)))


def _cross_rank(
    native: NativeTrace, opening_order: OpeningOrder, source: Int64s, target: Int64s, numbering: Numbering
) -> CrossRankFlows:
    events = native.events
    codes = np.array([int(CROSS_RANK.get(text, -1)) for text in native.texts] + [-1])
    relation = codes[events.category[target]]
    known = relation >= 0
    flows = Flows(source, target, relation).take(known)
    opens_last = opening_order.last[flows.source]
    drawn = flows.take(opens_last)
    group = drawn.relation * (len(events) + 1) + drawn.source
    _, number = np.unique(group, return_inverse=True)
    return CrossRankFlows(drawn, number + numbering.first_flow, flows.target[~opens_last])


def _namer(native: NativeTrace) -> Callable[[int], str]:
    return lambda row: native.texts[native.events.name[row]]


# Findings.


def findings_of(path: str, native: NativeTrace) -> Iterator[Finding]:
    """Everything that is wrong with a file."""
    damage, kept = native.damage, len(native.events)
    if damage.truncated_at:
        yield Truncated(path, damage.truncated_at, kept, "event", damage.offset).finding()
    counted = {
        "damaged": (damage.damaged, "packets are damaged; their content before the damage is used"),
        "damaged_bundles": (damage.bundles, "bundles are damaged; the packets before the damage are used"),
        "unfinished": (damage.without_end, "events have no end; they last until the last event of the file"),
        "without_begin": (damage.without_start, "ends of events have no start and are skipped"),
        "unknown_track": (
            damage.on_unknown_track,
            "packets on tracks that the file does not describe are skipped",
        ),
        "without_name": (damage.without_name, "events have names that are not in the file"),
        "unreadable_facts": (native.facts.unusable, "descriptions of ranks cannot be read and are skipped"),
    }
    for reason, (count, text) in counted.items():
        if count:
            yield _warning(path, reason, f"{path}: {count:,} {text}.", count)


def _warning(path: str, reason: str, text: str, count: int, example: str = "") -> Finding:
    return Finding(Severity.WARNING, reason, text, count, path, example)


def unprofiled_finding(path: str, count: int) -> Iterator[Finding]:
    """A finding on events that were not recorded by a profiler."""
    if count:
        text = (
            f"{path}: {count:,} entries of recorders, nodes of execution traces and ends of flows are only drawn; "
            "to use them, merge the files from which it was made."
        )
        yield Finding(Severity.INFO, "drawn_only", text, count, path)
