"""A whole native trace: its events, samples and flows as columns. Arguments are read when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.framing import FramingError
from tracelink._io.sources import Source, too_large
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, distinct
from tracelink._model.errors import UnreadableError
from tracelink._model.events import InstantScope
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink.converters.perfetto import is_own
from tracelink.converters.perfetto.native.decode import (
    BlockFacts,
    DecodedBatch,
    FlowEnds,
    InternedTexts,
    PacketColumns,
    TraceFacts,
    Unbundled,
    batches,
    decode_batch,
    interned_texts,
    pairs_of,
)
from tracelink.converters.perfetto.native.schema import RED, Table, Type
from tracelink.converters.perfetto.timeline.drawing import Drawing, OpeningOrder, opening_order_of
from tracelink.converters.perfetto.timeline.flows import BoundFlows, Flows, bind
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.schema import CROSS_RANK_FLOW_NAMES, FLOW_NAMES, SCOPES


class Events(Struct, frozen=True):
    """Slices and instants in the order of the file; times are nanoseconds after the base."""

    packet: Int64s
    sequence: Int32s
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


class BatchStart(Struct, frozen=True):
    """A batch that can be read again: its offset, and the number of its first packet."""

    offset: int
    first: int


class Damage(Struct):
    """What is wrong with a file."""

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
    outgoing: FlowEnds
    incoming: FlowEnds
    """Ends of flows by packet."""
    texts: Sequence[str]
    interned: InternedTexts
    """Strings to which events refer by number."""
    batch_starts: Sequence[BatchStart]
    damage: Damage
    wide_instants: Sequence[WideInstants] = ()

    @property
    def base(self) -> int:
        """The time 0 of JSON."""
        return self.facts.base


class _File(Struct):
    """The content of a file so far."""

    parts: list[PacketColumns] = field(default_factory=list)
    outgoing: list[FlowEnds] = field(default_factory=list)
    incoming: list[FlowEnds] = field(default_factory=list)
    interned: dict[tuple[int, Table, int], str] = field(default_factory=dict)
    facts: TraceFacts = field(default_factory=TraceFacts)
    batch_starts: list[BatchStart] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)
    unpacked: int = 0
    """Bytes that bundles unpacked to."""
    packets: int = 0
    rows: int = 0
    """Packets in the columns."""

    def add(self, decoded: DecodedBatch) -> None:
        """Adds a decoded batch."""
        packets = self.packets
        self.parts.append(decoded.packets.after(packets))
        self.outgoing.append(decoded.outgoing.after(packets))
        self.incoming.append(decoded.incoming.after(packets))
        self.interned |= decoded.texts
        self.facts.add(decoded.facts)
        self.damage.damaged += decoded.damaged
        self.packets += decoded.count
        self.rows += len(decoded.packets)


def read_native(source: Source, engine: Engine) -> NativeTrace:
    """Reads a whole file; everything before any damage is used."""
    if not is_own(source.head()):
        raise UnreadableError(
            "a Perfetto trace that tracelink did not write; tracelink reads only its own",
            source=source.path,
            advice="Open it at ui.perfetto.dev, or use the file that torch.profiler wrote.",
        )
    file = _File()
    with source.open() as opened:
        try:
            for batch in batches(opened, count=engine.meter.add):
                file.batch_starts.append(BatchStart(batch.offset, file.packets))
                unbundled = Unbundled(batch)
                for plain in unbundled:
                    file.add(decode_batch(plain))
                    if file.unpacked + unbundled.unpacked > source.limit:
                        raise too_large(source.path, source.limit)
                file.unpacked += unbundled.unpacked
                file.damage.bundles += unbundled.damaged
        except FramingError as error:
            file.damage.truncated_at, file.damage.offset = str(error), error.offset
        if opened.damage:
            file.damage.truncated_at = opened.damage
    if not file.facts.header:
        problem = file.damage.truncated_at or "its header cannot be read"
        raise UnreadableError(problem, source=source.path, advice="Copy or write it again.")
    return _resolved(file)


def _resolved(file: _File) -> NativeTrace:
    damage = file.damage
    packets, strings = PacketColumns.concatenate(file.parts), StringTable()
    category = _codes(file.interned, Table.CATEGORIES, packets.sequence, packets.category, strings)
    name = _codes(file.interned, Table.NAMES, packets.sequence, packets.name, strings)
    time = packets.time
    thread = _indexes([thread.tid for thread in file.facts.threads], packets.track)
    counter = _indexes([counter.number for counter in file.facts.counters], packets.track)
    slices = (packets.type == Type.BEGIN) | (packets.type == Type.END)
    instant = packets.type == Type.INSTANT
    sampled = packets.type == Type.COUNTER
    on_unknown_track = ((slices | instant) & (thread == UNKNOWN)) | (sampled & (counter == UNKNOWN))
    damage.on_unknown_track = int(np.count_nonzero(on_unknown_track))
    drawn = np.flatnonzero(sampled & ~on_unknown_track & np.isfinite(packets.value))
    packets.type[on_unknown_track] = 0
    return NativeTrace(
        file.facts,
        _events(packets, thread, time, category, name, damage),
        Samples(counter[drawn], time[drawn], packets.value[drawn]),
        FlowEnds.concatenate(file.outgoing),
        FlowEnds.concatenate(file.incoming),
        strings.texts(),
        file.interned,
        file.batch_starts,
        damage,
        _wide_instants(file.facts, strings),
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


def _codes(
    texts: InternedTexts, table: Table, sequence: Int32s, number: Int32s, strings: StringTable
) -> Int32s:
    """The code in `strings` of each interned string, `UNKNOWN` without one."""
    given = np.flatnonzero(number != UNKNOWN)
    names, which = interned_texts(texts, table, sequence[given], number[given])
    codes = np.full(len(number), UNKNOWN, np.int32)
    codes[given] = np.array([UNKNOWN if name is None else strings[name] for name in names], np.int32)[which]
    return codes


def _events(
    packets: PacketColumns, thread: Int32s, time: Int64s, category: Int32s, name: Int32s, damage: Damage
) -> Events:
    """Slices, each with its end, and instants."""
    begins, instant = packets.type == Type.BEGIN, packets.type == Type.INSTANT
    drawn = np.flatnonzero(packets.type)
    pairs = pairs_of(thread, time, np.flatnonzero(begins | (packets.type == Type.END)), begins)
    end = np.where(pairs.end < 0, time[drawn].max(initial=0), time[pairs.end])
    duration = np.zeros(len(packets), np.int64)
    duration[pairs.begin] = np.maximum(end - time[pairs.begin], 0)
    damage.without_end, damage.without_start = int(np.count_nonzero(pairs.end < 0)), pairs.unmatched_ends
    rows = np.flatnonzero(begins | instant)
    damage.without_name = int(np.count_nonzero(name[rows] == UNKNOWN))
    return Events(
        packets.number[rows],
        packets.sequence[rows],
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


def _of_events(native: NativeTrace, ends: FlowEnds) -> FlowEnds:
    """The ends by event; ends at packets that are not events are dropped."""
    packets = native.events.packet
    index = np.searchsorted(packets, ends.row)
    known = np.append(packets, -1)[index] == ends.row
    return FlowEnds(index[known], ends.number[known])


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
