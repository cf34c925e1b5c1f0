"""Reads a native trace: bytes to packets, packets to columns; everything but the arguments of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.framing import DELIMITED, FIXED64, VARINT, Batch, Framing, key, length_at, varint_at
from tracelink._io.protobuf import Fields, Octets, Read, split_all
from tracelink._io.sources import LARGEST_RANK, Opened
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, Table, distinct
from tracelink.converters.perfetto.native import schema

# Framing: packets one after the other, each a field of the trace.


FRAMING = Framing("packet", key(schema.PACKET, DELIMITED))


def batches(
    opened: Opened, offset: int = 0, count: Callable[[int], None] = lambda _: None
) -> Iterator[Batch]:
    """Every packet from `offset` on; `count` is called with the number of bytes of each part that is read."""

    def read(size: int) -> bytes:
        part: bytes = opened.read(size)
        count(len(part))
        return part

    return FRAMING.batches(read, offset)


# Fields of messages with one wire type; other wire types, in a damaged file, are skipped.


def of_wire(fields: Fields, number: int, wire: int = DELIMITED) -> tuple[Int64s, Read]:
    """The messages of these fields, and the fields."""
    owner, read = fields.of(number)
    some = read.wire == wire
    return owner[some], read.where(some)


def numbers_of(fields: Fields, number: int, count: int, none: int = 0) -> Int64s:
    """The integer in this field of each of `count` messages, `none` if missing."""
    owner, read = of_wire(fields, number, VARINT)
    numbers = np.full(count, none, np.int64)
    numbers[owner] = read.value
    return numbers


# Sequences: the first packet of each defines its interned strings.


InternedTexts = Mapping[tuple[int, schema.Table, int], str]
"""By sequence, table and number."""


def texts_of(
    octets: Octets, packets: Fields, sequence: Int32s
) -> Iterator[tuple[tuple[int, schema.Table, int], str]]:
    """The interned strings of packets of these sequences."""
    owner, interned = of_wire(packets, schema.Packet.INTERNED)
    tables = split_all(octets, interned.begin, interned.end)
    for table in schema.Table:
        place, read = of_wire(tables, table)
        entries = split_all(octets, read.begin, read.end)
        numbers = numbers_of(entries, schema.Entry.NUMBER, len(place)).tolist()
        sequences = sequence[owner[place]].tolist()
        entry, text = of_wire(entries, schema.Entry.TEXT)
        for at, begin, end in zip(entry.tolist(), text.begin.tolist(), text.end.tolist(), strict=True):
            yield (sequences[at], table, numbers[at]), octets.data[begin:end].decode(errors="replace")


def interned_texts(
    texts: InternedTexts, table: schema.Table, sequence: Int32s, number: Int32s | Int64s
) -> tuple[list[str | None], Int64s]:
    """The distinct strings to which numbers refer in their sequences, and the index of each number's string."""
    which, first = distinct(sequence, number)
    names = zip(sequence[first].tolist(), number[first].tolist(), strict=True)
    return [texts.get((of, table, name)) for of, name in names], which


# Columns: a batch of packets at a time.


LARGEST = (1 << 31) - 1

LAST_TIME = 1 << 62
"""Later times are invalid."""


class PacketColumns(Struct, frozen=True):
    """Packets in the order of the file that are events on tracks."""

    number: Int64s
    """The number of the packet in the file, or in a batch."""
    sequence: Int32s
    time: Int64s
    """Nanoseconds after the base."""
    type: npt.NDArray[np.uint8]
    track: Int32s
    category: Int32s
    name: Int32s
    colour: Int32s
    value: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sequence)

    def after(self, packets: int) -> PacketColumns:
        """The same packets after `packets` others."""
        return replace(self, number=self.number + packets)

    def where(self, chosen: Bools) -> PacketColumns:
        """Some of the packets."""
        if chosen.all():
            return self
        return PacketColumns(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    @classmethod
    def concatenate(cls, parts: list[PacketColumns]) -> PacketColumns:
        """The packets of all parts; empties `parts`, column by column, so that nothing is in memory twice."""
        columns = [[getattr(part, name) for part in parts] for name in cls.__struct_fields__]
        parts.clear()
        return cls(*(np.concatenate(columns.pop(0)) for _ in cls.__struct_fields__))


class FlowEnds(Table, frozen=True):
    """Ends of flows: the row of the packet, and the number of the flow."""

    row: Int64s
    number: Int64s

    def after(self, rows: int) -> FlowEnds:
        """The same rows after `rows` others."""
        return FlowEnds(self.row + rows, self.number)


class DecodedBatch(Struct):
    """The content of a batch."""

    packets: PacketColumns
    count: int
    """Number of packets, also of those that are not in the columns."""
    outgoing: FlowEnds
    incoming: FlowEnds
    texts: InternedTexts
    facts: list[bytes]
    damaged: int
    """Packets that are invalid."""


def decode_batch(batch: Batch) -> DecodedBatch:
    """Decodes a batch."""
    octets = Octets(batch.data)
    whole = split_all(octets, np.array(batch.begins, np.int64), np.array(batch.ends, np.int64))
    count = len(batch.begins)
    rows, inner = event_fields(octets, whole)
    events = _Events(octets, inner, rows, count)
    types = np.clip(events.numbers(schema.Event.TYPE, 0), 0, max(schema.Type) + 1)
    times = numbers_of(whole, schema.Packet.TIME, count)
    invalid = (types != 0) & ((times < 0) | (times > LAST_TIME))
    types[invalid] = 0
    track = events.numbers(schema.Event.TRACK)
    types[track >= schema.FIRST_VIEW_TRACK] = 0
    sequence = _narrow(numbers_of(whole, schema.Packet.SEQUENCE, count))
    kept = types != 0
    packets = PacketColumns(
        np.arange(count),
        sequence,
        times,
        types.astype(np.uint8),
        _narrow(track),
        _narrow(events.numbers(schema.Event.CATEGORY)),
        _narrow(events.numbers(schema.Event.NAME)),
        _narrow(events.numbers(schema.Event.COLOUR)),
        events.values(),
    )
    return DecodedBatch(
        packets.where(kept),
        count,
        events.flows(schema.Event.FLOW),
        events.flows(schema.Event.LAST_OF_FLOW),
        dict(texts_of(octets, whole, sequence)),
        facts_of(octets, whole),
        sum(int(np.count_nonzero(odd)) for odd in (whole.odd, inner.odd, invalid)),
    )


def facts_of(octets: Octets, packets: Fields) -> list[bytes]:
    """The JSON of packets for tracelink's own reader."""
    _, read = of_wire(packets, schema.Packet.TRACELINK)
    return [octets.data[begin:end] for begin, end in zip(read.begin.tolist(), read.end.tolist(), strict=True)]


def event_fields(octets: Octets, packets: Fields) -> tuple[Int64s, Fields]:
    """The rows of packets that are events on tracks, and the fields of those events."""
    rows, read = of_wire(packets, schema.Packet.TRACK_EVENT)
    return rows, split_all(octets, read.begin, read.end)


class _Events(Struct, frozen=True):
    """The events of a batch, as columns of its packets."""

    octets: Octets
    inner: Fields
    rows: Int64s
    count: int

    def numbers(self, number: int, none: int = UNKNOWN) -> Int64s:
        """An integer of each event."""
        return self._placed(numbers_of(self.inner, number, len(self.rows), none), none)

    def values(self) -> npt.NDArray[np.float64]:
        """The values of counters."""
        values = np.zeros(len(self.rows))
        owner, read = of_wire(self.inner, schema.Event.DOUBLE_VALUE, FIXED64)
        values[owner] = self.octets.words(read.begin).view(np.float64)
        return self._placed(values, 0)

    def flows(self, number: int) -> FlowEnds:
        """Ends of flows."""
        owner, read = of_wire(self.inner, number, FIXED64)
        return FlowEnds(self.rows[owner], self.octets.words(read.begin).view(np.int64))

    def _placed(self, values: npt.NDArray[Any], none: int) -> npt.NDArray[Any]:
        column = np.full(self.count, none, values.dtype)
        column[self.rows] = values
        return column


def _narrow(values: Int64s) -> Int32s:
    """32-bit numbers; tracelink writes no larger ones."""
    return np.where((values >= 0) & (values <= LARGEST), values, UNKNOWN).astype(np.int32)


# Pairs: on each track the slice that started last ends first.


class Pairs(Struct, frozen=True):
    """Starts and their ends, as rows; -1 for a missing end. Ends without a start are only counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def pairs_of(track: Int32s, time: Int64s, rows: Int64s, begin: Bools) -> Pairs:
    """Pairs of `rows`, some of which start and the others end slices; simultaneous rows are in order."""
    rows = rows[np.lexsort((time[rows], track[rows]))]
    begins = begin[rows]
    segment = np.cumsum(np.diff(track[rows], prepend=-1) != 0)
    begins, rows, segment, lost = _without_lost_ends(begins, rows, segment)
    level = _depths(begins, segment) + ~begins
    turn = np.lexsort((level, segment))
    rows, begins, segment, level = rows[turn], begins[turn], segment[turn], level[turn]
    paired = np.zeros(len(rows), np.bool_)
    paired[:-1] = begins[:-1] & ~begins[1:] & (segment[:-1] == segment[1:]) & (level[:-1] == level[1:])
    following = np.append(rows[1:], -1)
    some = np.flatnonzero(begins)
    return Pairs(rows[some], np.where(paired[some], following[some], -1), lost)


def _without_lost_ends(begins: Bools, rows: Int64s, segment: Int64s) -> tuple[Bools, Int64s, Int64s, int]:
    """Removes ends without a start."""
    offset = segment * np.int64(2 * len(rows) + 2)
    depth = _depths(begins, segment) - offset
    lowest = np.minimum(np.minimum.accumulate(depth), -offset)
    before = np.append(-offset[:1], lowest[:-1]) if len(rows) else lowest
    kept = begins | (depth >= np.minimum(before, -offset))
    return begins[kept], rows[kept], segment[kept], int(np.count_nonzero(~kept))


def _depths(begins: Bools, segment: Int64s) -> Int64s:
    """The number of open slices after each row of its segment."""
    total = np.cumsum(np.where(begins, 1, -1))
    first = np.searchsorted(segment, segment)
    return total - np.where(first > 0, total[first - 1], 0)


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

    processes: list[ProcessFact] = msgspec.field(name=schema.Fact.PROCESSES.value)
    threads: list[ThreadFact] = msgspec.field(name=schema.Fact.THREADS.value)
    counters: list[CounterFact] = msgspec.field(name=schema.Fact.COUNTERS.value)
    rank: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)] | None = msgspec.field(
        name=schema.Fact.RANK.value, default=None
    )
    title: str = msgspec.field(name=schema.Fact.TITLE.value, default="")
    first_flow: Large = msgspec.field(name=schema.Fact.FIRST_FLOW.value, default=0)
    flows: list[FlowFact] = msgspec.field(name=schema.Fact.FLOWS.value, default_factory=list)
    scopes: dict[str, str] = msgspec.field(name=schema.Fact.SCOPES.value, default_factory=dict)


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


# Bundles: compressed packets within a packet.


MIN_BATCH_BYTES = 2 << 20
"""Least bytes of packets that are decoded together: their columns fit into the processor's cache."""
MAX_BUNDLE_BYTES = 256 << 20
"""Larger bundles are invalid: a small file must not be able to allocate all memory."""

MAX_BUNDLE_PACKETS = 1 << 16
"""Most packets of a bundle, 16 times as many as tracelink writes: a small file must not be able to contain millions."""

MAX_BUNDLE_RUNS = 1 << 10
"""Runs of packets of one bundle that are found at once."""
LONGEST_LENGTH = 3
"""Bytes of the length of such a packet, at most."""

TIME, BUNDLE = key(schema.Packet.TIME, VARINT), key(schema.Packet.BUNDLE, DELIMITED)


class Unbundled(Struct):
    """The packets of a batch: iterate to the end, then read how many bundles were damaged."""

    batch: Batch
    damaged: int = 0
    unpacked: int = 0
    """Number of bytes that bundles unpacked to."""
    _parts: list[bytes] = field(default_factory=list)
    _begins: list[Int64s] = field(default_factory=list)
    _ends: list[Int64s] = field(default_factory=list)
    _size: int = 0

    def __iter__(self) -> Iterator[Batch]:
        """Batches of packets without bundles."""
        batch, first = self.batch, 0
        for place, (begin, end) in enumerate(zip(batch.begins, batch.ends, strict=True)):
            at = _compressed_at(batch.data, begin, end)
            if not at:
                continue
            self._add_run(first, place)
            self._add_bundle(batch.data[at:end])
            first = place + 1
            if self._size >= MIN_BATCH_BYTES:
                yield self._together()
        if not first:
            yield batch
            return
        self._add_run(first, len(batch.begins))
        if self._begins:
            yield self._together()

    def _add_run(self, low: int, high: int) -> None:
        """Adds successive packets that are not bundles."""
        if low < high:
            begins, ends = self.batch.begins[low:high], self.batch.ends[low:high]
            data = self.batch.data[begins[0] : ends[-1]]
            self._add(data, np.array(begins, np.int64), np.array(ends, np.int64), begins[0])

    def _add_bundle(self, compressed: bytes) -> None:
        packets, whole = _inflated(compressed)
        self.unpacked += len(packets)
        begins, ends, framed = _packets_in(packets)
        self.damaged += not whole or not framed
        self._add(packets, begins, ends, 0)

    def _add(self, data: bytes, begins: Int64s, ends: Int64s, first: int) -> None:
        shift = self._size - first
        self._parts.append(data)
        self._begins.append(begins + shift)
        self._ends.append(ends + shift)
        self._size += len(data)

    def _together(self) -> Batch:
        data = b"".join(self._parts)
        begins, ends = np.concatenate(self._begins).tolist(), np.concatenate(self._ends).tolist()
        self._parts, self._begins, self._ends, self._size = [], [], [], 0
        return Batch(self.batch.offset, data, begins, ends)


def _packets_in(bundle: bytes) -> tuple[Int64s, Int64s, bool]:
    """Where the packets of a bundle begin and end, and whether these are all of its bytes."""
    if bounds := _bounds_at_once(bundle):
        return *bounds, True
    batch, problem = FRAMING.split(0, bundle, MAX_BUNDLE_PACKETS)
    framed = not problem and (batch.ends[-1:] or [0]) == [len(bundle)]
    return np.array(batch.begins, np.int64), np.array(batch.ends, np.int64), framed


def _bounds_at_once(bundle: bytes) -> tuple[Int64s, Int64s] | None:
    """Where packets begin and end, found in runs of those that start with their time; None for unusual bundles."""
    start, begin, end = _timed_packets(bundle)
    breaks = np.append(np.flatnonzero(end[:-1] != start[1:]), len(start) - 1)
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    at, count = 0, 0
    while at < len(bundle):
        row = int(np.searchsorted(start, at))
        if row < len(start) and start[row] == at:
            run = slice(row, int(breaks[np.searchsorted(breaks, row)]) + 1)
            begins.append(begin[run])
            ends.append(end[run])
        else:
            found = length_at(bundle, at + 1)
            if bundle[at] != FRAMING.mark[0] or not found or not 0 < found[0] <= len(bundle) - found[1]:
                return None
            begins.append(np.array([found[1]]))
            ends.append(np.array([sum(found)]))
        at, count = int(ends[-1][-1]), count + len(ends[-1])
        if len(ends) > MAX_BUNDLE_RUNS or count > MAX_BUNDLE_PACKETS:
            return None
    return np.concatenate(begins), np.concatenate(ends)


def _timed_packets(bundle: bytes) -> tuple[Int64s, Int64s, Int64s]:
    """Where a packet that starts with its time may start, with its mark and its length, may begin and may end."""
    octets = np.frombuffer(bundle + bytes(LONGEST_LENGTH + 1), np.uint8)
    start = np.flatnonzero(octets[: len(bundle)] == FRAMING.mark[0])
    first, second, third = (octets[start + 1 + place].astype(np.int64) for place in range(LONGEST_LENGTH))
    two, three = first > 0x7F, (first > 0x7F) & (second > 0x7F)
    length = first & 0x7F | np.where(two, (second & 0x7F) << 7, 0) | np.where(three, third << 14, 0)
    begin = start + 2 + two + three
    timed = (
        (octets[begin] == TIME[0])
        & (length > 0)
        & (begin + length <= len(bundle))
        & ~(three & (third > 0x7F))
    )
    return start[timed], begin[timed], (begin + length)[timed]


def _compressed_at(data: bytes, begin: int, end: int) -> int:
    """The offset of the compressed bytes of a bundle; 0 if a packet is not a bundle."""
    place = begin
    if data.startswith(TIME, place, end):
        _, place = varint_at(data, begin + len(TIME), end)
    if not place or not data.startswith(BUNDLE, place, end):
        return 0
    return varint_at(data, place + len(BUNDLE), end)[1]


def _inflated(compressed: bytes) -> tuple[bytes, bool]:
    """The bytes of a bundle, and whether they are complete."""
    try:
        inflating = isal_zlib.decompressobj()
        packets = inflating.decompress(compressed, MAX_BUNDLE_BYTES)
    except isal_zlib.error:  # type: ignore[misc]
        return b"", False
    return packets, bool(inflating.eof)
