"""Bytes to packets to columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from tracelink.converters.perfetto.native.schema import PACKET, Entry, Event, Fact, Packet, Table, Type
from tracelink.io.framing import DELIMITED, FIXED64, VARINT, Batch, Framing, key, varint_at
from tracelink.io.protobuf import Fields, Octets, Read, split_all
from tracelink.io.sources import LARGEST_RANK, Opened
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s

# Packets one after the other, each a field of the trace.


FRAMING = Framing("packet", key(PACKET, DELIMITED))


@dataclass(frozen=True, slots=True)
class Unpacked(Batch):
    """Packets of which none is a bundle."""

    anchors: Sequence[tuple[int, int]] = ()
    """Packets that begin a bundle, and the times that it declares."""


def batches(
    opened: Opened, offset: int = 0, count: Callable[[int], None] = lambda _: None
) -> Iterator[Batch]:
    """Every packet from `offset` on; `count` is called with the number of bytes of each part that is read."""

    def read(size: int) -> bytes:
        part: bytes = opened.read(size)
        count(len(part))
        return part

    return FRAMING.batches(read, offset)


# The fields of messages that are of one wire type; what a damaged file has instead is passed over.


def of_wire(fields: Fields, number: int, wire: int = DELIMITED) -> tuple[Int64s, Read]:
    """The owners of these fields, and the fields."""
    owner, read = fields.of(number)
    some = read.wire == wire
    return owner[some], read.where(some)


def numbers_of(fields: Fields, number: int, count: int, none: int = 0) -> Int64s:
    """The whole number that this field is of each of `count` messages, `none` where it is missing."""
    owner, read = of_wire(fields, number, VARINT)
    numbers = np.full(count, none, np.int64)
    numbers[owner] = read.value
    return numbers


# What the first packet of a sequence says for all others: when they are, and what the numbers of texts mean.


InternedTexts = Mapping[tuple[int, Table, int], str]
"""By sequence, table and number."""

WIDEST = 32
"""Bits of a text's number."""


def texts_of(
    octets: Octets, packets: Fields, sequence: Int32s
) -> Iterator[tuple[tuple[int, Table, int], str]]:
    """The texts of packets of these sequences."""
    owner, told = of_wire(packets, Packet.INTERNED)
    tables = split_all(octets, told.begin, told.end)
    for table in Table:
        place, read = of_wire(tables, table)
        entries = split_all(octets, read.begin, read.end)
        numbers = numbers_of(entries, Entry.NUMBER, len(place)).tolist()
        sequences = sequence[owner[place]].tolist()
        entry, text = of_wire(entries, Entry.TEXT)
        for at, begin, end in zip(entry.tolist(), text.begin.tolist(), text.end.tolist(), strict=True):
            yield (sequences[at], table, numbers[at]), octets.data[begin:end].decode(errors="replace")


def interned_texts(
    texts: InternedTexts, table: Table, sequence: Int32s, number: Int32s | Int64s
) -> tuple[list[str | None], Int64s]:
    """The distinct texts that numbers name in their sequences, and for each number its place among them."""
    names, which = np.unique(sequence.astype(np.int64) << WIDEST | number, return_inverse=True)
    low = (1 << WIDEST) - 1
    return [texts.get((name >> WIDEST, table, name & low)) for name in names.tolist()], which


@dataclass(frozen=True, slots=True)
class Anchors:
    """Packets of which bundles say when they are: it holds even where the bundle before was lost."""

    row: Int64s
    time: Int64s

    def behind(self, rows: int) -> Anchors:
        """The same where the packets stand behind `rows` others."""
        return Anchors(self.row + rows, self.time)

    @classmethod
    def concatenate(cls, parts: Sequence[Anchors]) -> Anchors:
        """All of them."""
        none = [np.empty(0, np.int64)]
        rows, moments = ([*none, *column] for column in zip(*((p.row, p.time) for p in parts), strict=True))
        return cls(np.concatenate(rows), np.concatenate(moments))


def anchored(sequence: Int32s, step: Int64s, anchors: Anchors) -> Int64s:
    """When each packet is, also behind what was lost."""
    column = times(sequence, step)
    late = anchors.time - column[anchors.row]
    if not late.any():
        return column
    order = np.lexsort((anchors.row, sequence[anchors.row]))
    row, late = anchors.row[order], late[order]
    same = np.diff(sequence[row]) == 0
    late[1:] -= np.where(same, late[:-1], 0)
    step = step.copy()
    step[row] += late
    return times(sequence, step)


def times(sequence: Int32s, step: Int64s) -> Int64s:
    """When each packet is: the first of a sequence says it, all others how long they are behind the one before."""
    order = np.argsort(sequence, kind="stable")
    of_one = sequence[order]
    first = np.flatnonzero(np.diff(of_one, prepend=of_one[:1] - 1))
    total = np.cumsum(step[order])
    before = total[first] - step[order[first]]
    column = np.empty_like(total)
    column[order] = total - np.repeat(before, np.diff(first, append=len(order)))
    return column


# Packets to columns, a batch at a time: everything but what events say as arguments.


LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Packets:
    """Columns of packets in the order of the file; rows are events of tracks where they have a type."""

    sequence: Int32s
    step: Int64s
    """Time since the packet of its sequence before it."""
    type: npt.NDArray[np.uint8]
    track: Int32s
    category: Int32s
    name: Int32s
    colour: Int32s
    value: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sequence)

    @classmethod
    def concatenate(cls, parts: Sequence[Packets]) -> Packets:
        """One behind the other."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """Ends of arrows: the packet at which each is, and its number."""

    row: Int64s
    number: Int64s

    def behind(self, rows: int) -> FlowEnds:
        """The same where the packets stand behind `rows` others."""
        return FlowEnds(self.row + rows, self.number)

    @classmethod
    def concatenate(cls, parts: Sequence[FlowEnds]) -> FlowEnds:
        """All of them."""
        none = [np.empty(0, np.int64)]
        return cls(
            np.concatenate([*none, *(part.row for part in parts)]),
            np.concatenate([*none, *(part.number for part in parts)]),
        )


@dataclass(slots=True)
class Told:
    """What a batch says."""

    packets: Packets
    leaving: FlowEnds
    arriving: FlowEnds
    texts: InternedTexts
    facts: list[bytes]
    anchors: Anchors
    damaged: int
    """How many packets are not what packets must be."""


def told_by(batch: Unpacked) -> Told:
    """The columns of a batch."""
    octets = Octets(batch.data)
    whole = split_all(octets, np.array(batch.begins, np.int64), np.array(batch.ends, np.int64))
    count = len(batch.begins)
    rows, inner = event_fields(octets, whole)
    events = _Events(octets, inner, rows, count)
    types = np.clip(events.numbers(Event.TYPE, 0), 0, max(Type) + 1)
    sequence = _narrow(numbers_of(whole, Packet.SEQUENCE, count))
    packets = Packets(
        sequence,
        numbers_of(whole, Packet.TIME, count),
        types.astype(np.uint8),
        _narrow(events.numbers(Event.TRACK)),
        _narrow(events.numbers(Event.CATEGORY)),
        _narrow(events.numbers(Event.NAME)),
        _narrow(events.numbers(Event.COLOUR)),
        events.values(),
    )
    return Told(
        packets,
        events.flows(Event.FLOW),
        events.flows(Event.LAST_OF_FLOW),
        dict(texts_of(octets, whole, sequence)),
        facts_of(octets, whole),
        _anchors(batch, types),
        int(np.count_nonzero(whole.odd)) + int(np.count_nonzero(inner.odd)),
    )


def _anchors(batch: Unpacked, types: Int64s) -> Anchors:
    """The events with which bundles begin."""
    row, time = np.array(batch.anchors, np.int64).reshape(-1, 2).T
    some = row < len(types)
    some[some] = types[row[some]] != 0
    return Anchors(row[some], time[some])


def facts_of(octets: Octets, packets: Fields) -> list[bytes]:
    """The texts of packets for readers of tracelink's own."""
    _, read = of_wire(packets, Packet.TRACELINK)
    return [octets.data[begin:end] for begin, end in zip(read.begin.tolist(), read.end.tolist(), strict=True)]


def event_fields(octets: Octets, packets: Fields) -> tuple[Int64s, Fields]:
    """The rows of packets that are events of tracks, and the fields of those events."""
    rows, read = of_wire(packets, Packet.TRACK_EVENT)
    return rows, split_all(octets, read.begin, read.end)


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of a batch, as columns of its packets."""

    octets: Octets
    inner: Fields
    rows: Int64s
    count: int

    def numbers(self, number: int, none: int = UNKNOWN) -> Int64s:
        """A whole number of each."""
        return self._placed(numbers_of(self.inner, number, len(self.rows), none), none)

    def values(self) -> npt.NDArray[np.float64]:
        """What counters show."""
        values = np.zeros(len(self.rows))
        owner, read = of_wire(self.inner, Event.DOUBLE_VALUE, FIXED64)
        values[owner] = self.octets.words(read.begin).view(np.float64)
        return self._placed(values, 0)

    def flows(self, number: int) -> FlowEnds:
        """The ends of arrows."""
        owner, read = of_wire(self.inner, number, FIXED64)
        return FlowEnds(self.rows[owner], self.octets.words(read.begin).view(np.int64))

    def _placed(self, values: npt.NDArray[Any], none: int) -> npt.NDArray[Any]:
        column = np.full(self.count, none, values.dtype)
        column[self.rows] = values
        return column


def _narrow(values: Int64s) -> Int32s:
    """Numbers in half the space; larger ones are none of tracelink's."""
    return np.where((values >= 0) & (values <= LARGEST), values, UNKNOWN).astype(np.int32)


# Which end closes which beginning: on each track what began last ends first.


@dataclass(frozen=True, slots=True)
class Pairs:
    """Beginnings and their ends, as rows; beginnings without one have -1, and ends without one are only counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def pairs_of(track: Int32s, time: Int64s, rows: Int64s, begin: Bools) -> Pairs:
    """Pairs of `rows`, of which some begin and all others end; of what happens at once the first row comes first."""
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
    """Without ends of what never began."""
    apart = segment * np.int64(2 * len(rows) + 2)
    depth = _depths(begins, segment) - apart
    lowest = np.minimum(np.minimum.accumulate(depth), -apart)
    before = np.append(-apart[:1], lowest[:-1]) if len(rows) else lowest
    kept = begins | (depth >= np.minimum(before, -apart))
    return begins[kept], rows[kept], segment[kept], int(np.count_nonzero(~kept))


def _depths(begins: Bools, segment: Int64s) -> Int64s:
    """How much is open behind each row of its segment."""
    total = np.cumsum(np.where(begins, 1, -1))
    first = np.searchsorted(segment, segment)
    return total - np.where(first > 0, total[first - 1], 0)


# What a native trace says for readers of tracelink's own.


Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Large = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class ProcessFact(msgspec.Struct, array_like=True):
    """A process as it is in JSON."""

    pid: Number
    name: str
    label: str
    original: str | None = None


class ThreadFact(msgspec.Struct, array_like=True):
    """A thread as it is in JSON."""

    pid: Number
    tid: Number
    name: str
    original: str | None = None


class CounterFact(msgspec.Struct, array_like=True):
    """A counter as it is in JSON, and the track that it has here."""

    number: Number
    pid: Number
    name: str


class ArrowFact(msgspec.Struct, array_like=True):
    """So many arrows of one sort, of which the last lead from the event that is met second."""

    name: str
    count: Large
    turned: Large


class Facts(msgspec.Struct):
    """The facts on a rank, or on groups."""

    processes: list[ProcessFact] = msgspec.field(name=Fact.PROCESSES.value)
    threads: list[ThreadFact] = msgspec.field(name=Fact.THREADS.value)
    counters: list[CounterFact] = msgspec.field(name=Fact.COUNTERS.value)
    rank: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)] | None = msgspec.field(
        name=Fact.RANK.value, default=None
    )
    first_arrow: Large = msgspec.field(name=Fact.FIRST_ARROW.value, default=0)
    arrows: list[ArrowFact] = msgspec.field(name=Fact.ARROWS.value, default_factory=list)


@dataclass(slots=True)
class Said:
    """All facts of a file."""

    header: dict[str, Any] | None = None
    blocks: list[Facts] = field(default_factory=list)
    unusable: int = 0

    def add(self, texts: Sequence[bytes]) -> None:
        """Facts in the order in which they stand; the first are the header."""
        for text in texts:
            try:
                if self.header is None:
                    self.header = msgspec.json.decode(text, type=dict[str, Any])
                else:
                    self.blocks.append(msgspec.json.decode(text, type=Facts))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.unusable += 1

    @property
    def threads(self) -> list[ThreadFact]:
        """The threads of all ranks, and of groups."""
        return [thread for block in self.blocks for thread in block.threads]

    @property
    def counters(self) -> list[CounterFact]:
        """The counters of all ranks, and of groups."""
        return [counter for block in self.blocks for counter in block.counters]

    @property
    def base(self) -> int:
        """What time 0 of JSON is."""
        base = (self.header or {}).get("baseTimeNanoseconds")
        return base if type(base) is int and abs(base) < 1 << 62 else 0


# Packets that stand compressed in others, in their place among those that do not.


TOGETHER = 8 << 20
"""So many bytes of packets are looked at together, at least."""
MOST_UNBUNDLING = 256 << 20
"""A bundle of more is none: a small file must not be able to ask for all memory."""

LATEST = 1 << 62
"""What is said to be later is not to be believed."""

MOST_PACKETS = 1 << 16
"""Of a bundle, which has a sixteenth of that: a small file must not be able to ask for millions."""

TIME, BUNDLE = key(Packet.TIME, VARINT), key(Packet.BUNDLE, DELIMITED)


@dataclass(slots=True)
class Unbundled:
    """The packets of a batch; iterate to the end, then ask how many bundles were damaged."""

    batch: Batch
    damaged: int = 0
    _parts: list[bytes] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _anchors: list[tuple[int, int]] = field(default_factory=list)
    _size: int = 0

    def __iter__(self) -> Iterator[Unpacked]:
        """Batches of packets of which none is a bundle."""
        batch, first = self.batch, 0
        for place, (begin, end) in enumerate(zip(batch.begins, batch.ends, strict=True)):
            time, at = _compressed_at(batch.data, begin, end)
            if not at:
                continue
            self._add_run(first, place)
            self._add_bundle(batch.data[at:end], time)
            first = place + 1
            if self._size >= TOGETHER:
                yield self._together()
        if not first:
            yield Unpacked(batch.offset, batch.data, batch.begins, batch.ends)
            return
        self._add_run(first, len(batch.begins))
        if self._begins:
            yield self._together()

    def _add_run(self, low: int, high: int) -> None:
        """Packets that follow one another."""
        if low < high:
            begins, ends = self.batch.begins[low:high], self.batch.ends[low:high]
            self._add(self.batch.data[begins[0] : ends[-1]], begins, ends, begins[0])

    def _add_bundle(self, compressed: bytes, time: int) -> None:
        packets, whole = _inflated(compressed)
        batch, problem = FRAMING.split(0, packets, MOST_PACKETS)
        if batch.begins and 0 <= time <= LATEST:
            self._anchors.append((len(self._begins), time))
        self.damaged += bool(not whole or problem or (batch.ends[-1:] or [0]) != [len(packets)])
        self._add(packets, batch.begins, batch.ends, 0)

    def _add(self, data: bytes, begins: list[int], ends: list[int], first: int) -> None:
        shift = self._size - first
        self._parts.append(data)
        self._begins += [begin + shift for begin in begins]
        self._ends += [end + shift for end in ends]
        self._size += len(data)

    def _together(self) -> Unpacked:
        data = b"".join(self._parts)
        whole = Unpacked(self.batch.offset, data, self._begins, self._ends, self._anchors)
        self._parts, self._begins, self._ends, self._anchors, self._size = [], [], [], [], 0
        return whole


def _compressed_at(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """When a bundle begins, and where what is compressed in it does; that is 0 where a packet is no bundle."""
    place, time = begin, 0
    if data.startswith(TIME, place, end):
        time, place = varint_at(data, begin + len(TIME), end)
    if not place or not data.startswith(BUNDLE, place, end):
        return 0, 0
    return time, varint_at(data, place + len(BUNDLE), end)[1]


def _inflated(compressed: bytes) -> tuple[bytes, bool]:
    """The bytes of a bundle, and whether they are all."""
    try:
        inflating = isal_zlib.decompressobj()
        packets = inflating.decompress(compressed, MOST_UNBUNDLING)
    except isal_zlib.error:  # type: ignore[misc]
        return b"", False
    return packets, bool(inflating.eof)
