"""Perfetto's packets: batches of a file, fields as columns, bundles, the state of sequences, slices by their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import numpy as np
from isal import isal_zlib
from msgspec import Struct, field

from tracelink._io.framing import (
    DELIMITED,
    FIXED64,
    VARINT,
    Batch,
    Framing,
    FramingError,
    fields_of,
    key,
    length_at,
    varint_at,
)
from tracelink._io.protobuf import Fields, Octets, Read, split_all
from tracelink._io.sources import Opened, Source, too_large
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, Table, distinct
from tracelink.converters.perfetto.packets.schema import (
    CLEARED,
    NEEDS_STATE,
    PACKET,
    Entry,
    Packet,
    TextTable,
)

AnyTable = TypeVar("AnyTable", bound=Table)

# Framing: packets one after the other, each a field of the trace.


FRAMING = Framing("packet", key(PACKET, DELIMITED))


class BatchStart(Struct, frozen=True):
    """A batch that can be read again: its offset, and the number of its first packet."""

    offset: int
    first: int


class PacketFile(Struct):
    """The packets of a file, and what is wrong with it: iterate over `batches` to the end, then read the rest."""

    source: Source
    starts: list[BatchStart] = field(default_factory=list)
    packets: int = 0
    damaged_bundles: int = 0
    truncated_at: str = ""
    offset: int = 0
    """The offset of the damage that ends the file for its reader."""

    def batches(self, count: Callable[[int], None]) -> Iterator[Batch]:
        """Yields packets without bundles up to the first damage; `count` is called with the bytes that are read."""
        unpacked = 0
        with self.source.open() as opened:
            try:
                for batch in _read_batches(opened, 0, count):
                    self.starts.append(BatchStart(batch.offset, self.packets))
                    unbundled = Unbundled(batch)
                    for plain in unbundled:
                        yield plain
                        self.packets += len(plain.begins)
                        if unpacked + unbundled.unpacked > self.source.limit:
                            raise too_large(self.source.path, self.source.limit)
                    unpacked += unbundled.unpacked
                    self.damaged_bundles += unbundled.damaged
            except FramingError as error:
                self.truncated_at, self.offset = str(error), error.offset
            self.truncated_at = opened.damage or self.truncated_at


def read_again(
    source: Source, starts: Sequence[BatchStart], count: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[int, Batch]]:
    """Yields the packets of these batches, which follow each other, and the number of the first packet of each part."""
    if not starts:
        return
    with source.open() as opened, suppress(FramingError):
        opened.skip(starts[0].offset)
        for start, batch in zip(starts, _read_batches(opened, starts[0].offset, count), strict=False):
            first = start.first
            for plain in Unbundled(batch):
                yield first, plain
                first += len(plain.begins)


def _read_batches(opened: Opened, offset: int, count: Callable[[int], None]) -> Iterator[Batch]:
    def read(size: int) -> bytes:
        part: bytes = opened.read(size)
        count(len(part))
        return part

    return FRAMING.batches(read, offset)


# Fields of messages with one wire type; other wire types, in a damaged file, are skipped.


def split_packets(batch: Batch) -> tuple[Octets, Fields]:
    """The bytes of a batch, and the fields of its packets."""
    octets = Octets(batch.data)
    return octets, split_all(octets, np.array(batch.begins, np.int64), np.array(batch.ends, np.int64))


def find_fields(fields: Fields, number: int, wire: int = DELIMITED) -> tuple[Int64s, Read]:
    """The messages of these fields, and the fields."""
    owner, read = fields.of(number)
    some = read.wire == wire
    return owner[some], read.where(some)


def split_messages(octets: Octets, fields: Fields, number: int) -> tuple[Int64s, Read, Fields]:
    """The owners of the messages in this field, the messages, and their own fields."""
    owner, read = find_fields(fields, number)
    return owner, read, split_all(octets, read.begin, read.end)


def read_numbers(fields: Fields, number: int, count: int, missing: int = 0) -> Int64s:
    """The integer in this field of each of `count` messages."""
    owner, read = find_fields(fields, number, VARINT)
    numbers = np.full(count, missing, np.int64)
    numbers[owner] = read.value
    return numbers


def read_words(octets: Octets, fields: Fields, number: int) -> tuple[Int64s, Int64s]:
    """The messages of these fields of 64 bits, and their values."""
    owner, read = find_fields(fields, number, FIXED64)
    return owner, octets.words(read.begin).view(np.int64)


def read_bytes(octets: Octets, read: Read) -> list[bytes]:
    """The content of each field."""
    return [octets.data[begin:end] for begin, end in zip(read.begin.tolist(), read.end.tolist(), strict=True)]


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

TIME, BUNDLE = key(Packet.TIME, VARINT), key(Packet.BUNDLE, DELIMITED)


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
    """The bounds of the packets of a bundle, and True if these are all of its bytes."""
    if bounds := _bounds_at_once(bundle):
        return *bounds, True
    batch, problem = FRAMING.split(0, bundle, MAX_BUNDLE_PACKETS)
    framed = not problem and (batch.ends[-1:] or [0]) == [len(bundle)]
    return np.array(batch.begins, np.int64), np.array(batch.ends, np.int64), framed


def _bounds_at_once(bundle: bytes) -> tuple[Int64s, Int64s] | None:
    """The bounds of packets, found in runs of those that start with their time; None for unusual bundles."""
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
    """Offsets at which packets that begin with their time may be: of the mark, of the first byte, of the end."""
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


# State of sequences: texts and defaults that packets refer to by number, until the state is cleared.


TRACK_DEFAULTS, DEFAULT_TRACK = 11, 11
"""Fields of the defaults of a sequence."""
TEXT_OF = {TextTable.KERNELS: (3, Entry.TEXT)}
"""The fields with the text of an entry, the best first; others have it in one field."""

LONGEST_TEXT = 1 << 16
"""Bytes of an interned text that are kept: demangled names of kernels are long, but not that long."""

Named = tuple[TextTable, int, int]
"""Table, state and number of an interned text."""


class States(Struct):
    """The states of all sequences so far. A state is a number; each clearing of a sequence begins a new one."""

    current: dict[int, int] = field(default_factory=dict)
    """The state of each sequence."""
    valid: list[bool] = field(default_factory=list)
    """For each state whether it began with a clearing: else earlier packets are missing."""
    texts: dict[Named, str] = field(default_factory=dict)
    tracks: dict[int, int] = field(default_factory=dict)
    """The default track of each state."""
    clocks: dict[int, int] = field(default_factory=dict)
    """The default clock of each state."""
    messages: dict[Named, bytes] = field(default_factory=dict)
    """Interned messages that are more than a text."""
    of_tracelink: bool = False
    """True for traces of tracelink: their sequences are cleared only at their start, and all of a text is kept."""

    def of(self, packets: Fields, count: int) -> tuple[Int32s, Bools]:
        """The state of each packet of a batch, and the packets that need one which is not in the file."""
        sequence = read_numbers(packets, Packet.SEQUENCE, count)
        flags = read_numbers(packets, Packet.FLAGS, count)
        cleared = ((flags & CLEARED) != 0) | (read_numbers(packets, Packet.CLEARED, count) != 0)
        cleared &= not self.of_tracelink
        state = self._numbered(sequence, cleared)
        known = np.array(self.valid, np.bool_)[state]
        return state, ((flags & NEEDS_STATE) != 0) & ~known

    def _numbered(self, sequence: Int64s, cleared: Bools) -> Int32s:
        order = np.argsort(sequence, kind="stable")
        ordered, clears = sequence[order], cleared[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = ordered[1:] != ordered[:-1]
        new = begins | clears
        rows = np.flatnonzero(new)
        numbers = np.empty(len(rows), np.int32)
        for place, (number, is_clear) in enumerate(
            zip(ordered[rows].tolist(), clears[rows].tolist(), strict=True)
        ):
            if is_clear or number not in self.current:
                self.current[number] = len(self.valid)
                self.valid.append(is_clear)
            numbers[place] = self.current[number]
        state = np.empty(len(order), np.int32)
        state[order] = numbers[np.cumsum(new) - 1]
        return state

    def learn(self, octets: Octets, packets: Fields, state: Int32s) -> int:
        """Adds the texts and defaults in a batch; returns the number of damaged entries."""
        owner, _, tables = split_messages(octets, packets, Packet.INTERNED)
        damaged = int(np.count_nonzero(tables.odd))
        for table in TextTable:
            place, messages, entries = split_messages(octets, tables, table)
            if len(place):
                self._add(octets, table, state[owner[place]].tolist(), messages, entries)
                damaged += int(np.count_nonzero(entries.odd))
        self._add_defaults(octets, packets, state)
        return damaged

    def _add(
        self, octets: Octets, table: TextTable, states: list[int], messages: Read, entries: Fields
    ) -> None:
        numbers = read_numbers(entries, Entry.NUMBER, len(states)).tolist()
        if table == TextTable.COUNTERS:
            names = zip(states, numbers, read_bytes(octets, messages), strict=True)
            self.messages |= {(table, state, number): message for state, number, message in names}
        for field_of_text in reversed(TEXT_OF.get(table, (Entry.TEXT,))):
            rows, read = find_fields(entries, field_of_text)
            if not self.of_tracelink:
                read = read._replace(end=np.minimum(read.end, read.begin + LONGEST_TEXT))
            for row, text in zip(rows.tolist(), read_bytes(octets, read), strict=True):
                self.texts[table, states[row], numbers[row]] = text.decode(errors="replace")

    def _add_defaults(self, octets: Octets, packets: Fields, state: Int32s) -> None:
        owner, read = find_fields(packets, Packet.DEFAULTS)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            for default in fields_of(octets.data, begin, end):
                if default and (default.number, default.wire) == (Packet.CLOCK, VARINT):
                    self.clocks[int(state[row])] = default.value
                if default and (default.number, default.wire) == (TRACK_DEFAULTS, DELIMITED):
                    for inner in fields_of(octets.data, default.begin, default.end):
                        if inner and (inner.number, inner.wire) == (DEFAULT_TRACK, VARINT):
                            self.tracks[int(state[row])] = inner.value

    def resolve(
        self, table: TextTable, state: Int32s, number: Int32s | Int64s
    ) -> tuple[list[str | None], Int64s]:
        """The distinct texts to which numbers refer in their states, then None, and the index of each number's text.

        Unknown numbers, which are not positive, have the index UNKNOWN: that of the last one.
        """
        index = np.full(len(number), UNKNOWN, np.int64)
        rows = np.flatnonzero(number > 0)
        code, first = distinct(state[rows].astype(np.int64), number[rows])
        index[rows] = code
        pairs = zip(state[rows[first]].tolist(), number[rows[first]].tolist(), strict=True)
        texts = [self.texts.get((table, of_state, of_number)) for of_state, of_number in pairs]
        return [*texts, None], index


def default_of(defaults: dict[int, int], state: Int32s, otherwise: int) -> Int64s:
    """The default of each state."""
    if not defaults:
        return np.full(len(state), otherwise, np.int64)
    table = np.full(max(int(state.max(initial=0)), max(defaults)) + 1, otherwise, np.int64)
    table[list(defaults)] = [value - (1 << 64) if value >= 1 << 63 else value for value in defaults.values()]
    return table[state]


# Columns that grow by batches.


class Growing(Struct, Generic[AnyTable]):
    """A table that grows by parts."""

    kind: type[AnyTable]
    rows: int = 0
    _parts: list[AnyTable] = field(default_factory=list)

    def add(self, part: AnyTable) -> None:
        """Adds rows."""
        self._parts.append(part)
        self.rows += len(part)

    def join(self) -> AnyTable:
        """The whole table; frees each column of the parts as it is joined, so that nothing is in memory twice."""
        parts = self._parts or [self.kind.empty()]
        columns = [[getattr(part, name) for part in parts] for name in self.kind.__struct_fields__]
        parts.clear()
        return self.kind(*(np.concatenate(columns.pop(0)) for _ in self.kind.__struct_fields__))


class Numbered(Table, frozen=True):
    """Rows, and a number for each: the ends of flows, or the values of arguments."""

    row: Int64s
    number: Int64s


# Pairs: on each track the slice that started last ends first.


class Pairs(Struct, frozen=True):
    """Starts and their ends, as rows; -1 for a missing end. Ends without a start are only counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def pair_ends(track: Int32s, time: Int64s, rows: Int64s, begin: Bools) -> Pairs:
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
