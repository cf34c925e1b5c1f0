"""Packets of the native format, made a column at a time: bundles, interned strings, sequences, order, flows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from isal import isal_zlib
from msgspec import Struct, field

from tracelink._io.framing import DELIMITED, FIXED64, GROUP_BITS, VARINT, delimited, key, varint, varint_at
from tracelink._io.protobuf import Bytes, varint_groups
from tracelink._model.columns import Bools, Int64s, Table
from tracelink.converters.perfetto.facts import clean_text
from tracelink.converters.perfetto.packets import schema
from tracelink.converters.perfetto.timeline.drawing import in_half_nanoseconds
from tracelink.converters.perfetto.timeline.job import RankTimeline

# Bundles: compressed packets within a packet of their own, whose time is that of the first of them.


FAST_LEVEL = 2
"""A compression level of isal that takes a millisecond for a megabyte."""

HEAD, CONTENT = key(schema.Packet.TIME, VARINT), key(schema.Packet.BUNDLE, DELIMITED)


class Packing(Enum):
    """Ways to write bundles."""

    BUNDLED = "bundled"
    DENSE = "dense"
    """Compressed harder, which takes longer."""
    PLAIN = "plain"
    """Not compressed, for a file that is compressed as a whole."""


def bundle(time: int, packets: bytes) -> bytes:
    """A packet that contains these packets, none of which is before `time`."""
    return _bundle(time, isal_zlib.compress(packets, FAST_LEVEL))


def bundle_time(body: bytes) -> int | None:
    """The time of a bundle, by the first bytes of its body; None if it is not a bundle."""
    if not body.startswith(HEAD):
        return None
    time, at = varint_at(body, len(HEAD))
    return time if body.startswith(CONTENT, at) else None


def repacked(body: bytes, packing: Packing) -> bytes:
    """The bundle with this body, written with another packing."""
    time, at = varint_at(body, len(HEAD))
    _, at = varint_at(body, at + len(CONTENT))
    packets = isal_zlib.decompress(memoryview(body)[at:])
    return packets if packing is Packing.PLAIN else _bundle(time, zlib.compress(packets))


def _bundle(time: int, compressed: bytes) -> bytes:
    return delimited(schema.PACKET, HEAD + varint(time) + delimited(schema.Packet.BUNDLE, compressed))


# Interned strings: events refer to them by number.


class InternTables(Struct):
    """The tables of interned strings of one sequence."""

    tables: dict[schema.TextTable, dict[str, int]] = field(
        default_factory=lambda: {table: {} for table in schema.TextTable}
    )

    def number(self, table: schema.TextTable, text: str) -> int:
        """The number of a string, from 1 on."""
        known = self.tables[table]
        return known.setdefault(text, len(known) + 1)

    def numbers(self, table: schema.TextTable, texts: Sequence[str]) -> Int64s:
        """The numbers of several strings."""
        return np.array([self.number(table, text) for text in texts], np.int64)

    def message(self) -> bytes:
        """All tables as the content of one field."""
        return b"".join(
            delimited(
                table,
                key(schema.Entry.NUMBER, VARINT)
                + varint(number)
                + delimited(schema.Entry.TEXT, clean_text(text).encode()),
            )
            for table, texts in self.tables.items()
            for text, number in texts.items()
        )


# Many messages at once, a field of all of them at a time.


SHORT, SHORT_WIDTHS = varint_groups(np.arange(1 << 2 * GROUP_BITS))
"""The varints of numbers of at most two bytes."""


class MessageColumns:
    """The bytes of many messages as columns; of a column's bytes a message can use all, some, or none."""

    def __init__(self) -> None:
        self.lengths: Int64s | int = 0
        self._columns: list[tuple[Bytes, Int64s | Bools | None]] = []
        """Bytes, and how many of them each message uses: some, or all or none, or all."""

    def constant(self, text: bytes, given: Bools | None = None) -> None:
        """The same bytes in all messages, or in those that are `given`."""
        self._add(np.frombuffer(text, np.uint8), given)

    def numbers(self, field: bytes, values: Int64s, given: Bools | None = None) -> None:
        """An integer in all messages, or in those that are `given`; `field` is the text before it."""
        self.constant(field, given)
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        if least >= 0 and len(varint(least)) == len(varint(most)):
            self._add(_equally_wide(values, len(varint(most))), given)
        elif least >= 0 and most < len(SHORT_WIDTHS):
            widths = SHORT_WIDTHS[values]
            self._add(SHORT[values], widths if given is None else widths * given)
        else:
            groups, widths = varint_groups(np.ascontiguousarray(values))
            self._add(groups, widths if given is None else widths * given)

    def words(self, field: bytes, values: npt.NDArray[np.float64]) -> None:
        """A number of 64 bits in all messages."""
        self.constant(field)
        self._add(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize), None)

    def message(self, number: int, inner: MessageColumns, more: Int64s | int = 0) -> None:
        """A message within each message; `more` bytes of it will follow."""
        head, lengths = key(number, DELIMITED), inner.lengths + more
        if isinstance(lengths, int):
            self.constant(head + varint(lengths))
        else:
            self.numbers(head, lengths)
        self._columns += inner._columns
        self.lengths = self.lengths + inner.lengths

    def joined(self) -> tuple[bytes, Int64s]:
        """All messages in order, and their bounds."""
        widths = [column.shape[-1] for column, _ in self._columns]
        count = max(len(column) for column, _ in self._columns if column.ndim > 1)
        matrix = np.empty((count, sum(widths)), np.uint8)
        counts = np.ones(matrix.shape, np.bool_)
        at = 0
        for (column, used), width in zip(self._columns, widths, strict=True):
            matrix[:, at : at + width] = column
            if used is not None:
                all_or_none = used.dtype == np.bool_
                counts[:, at : at + width] = (
                    used[:, None] if all_or_none else np.arange(width) < used[:, None]
                )
            at += width
        bounds = np.zeros(count + 1, np.int64)
        np.cumsum(np.broadcast_to(self.lengths, count), out=bounds[1:])
        return matrix[counts].tobytes(), bounds

    def each(self) -> list[bytes]:
        """Every message as bytes of its own."""
        text, bounds = self.joined()
        return [text[low:high] for low, high in pairwise(bounds.tolist())]

    def _add(self, column: Bytes, used: Int64s | Bools | None) -> None:
        self._columns.append((column, used))
        width = column.shape[-1]
        if used is None:
            self.lengths = self.lengths + width
        else:
            self.lengths = self.lengths + (used * np.int64(width) if used.dtype == np.bool_ else used)


def _equally_wide(values: Int64s, width: int) -> Bytes:
    """The varints of numbers that all take the same number of bytes."""
    groups = np.empty((len(values), width), np.uint8)
    for index in range(width):
        groups[:, index] = values >> GROUP_BITS * index
    groups[:, : width - 1] |= 0x80
    return groups


# Sequences of packets: each has interned strings of its own, so they can be made independently.


CHUNK = 4096
"""Packets that are made at once: their columns fit a cache."""

SEQUENCES_PER_BLOCK = 128
"""Most sequences of a block."""


class Tails(Struct, frozen=True):
    """Further fields of starts, instants and samples: flows, value, arguments. Each tail has a text in every column."""

    columns: Sequence[Sequence[bytes]]
    lengths: Int64s

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Tails:
        """Tails of one text each."""
        return cls([texts], np.fromiter(map(len, texts), np.int64, len(texts)))

    def take(self, indexes: Int64s) -> Tails:
        """The tails at these indexes."""
        if np.array_equal(indexes, np.arange(len(self.lengths))):
            return self
        if len(indexes) < 2:
            return Tails(
                [[column[index] for index in indexes.tolist()] for column in self.columns],
                self.lengths[indexes],
            )
        chosen = itemgetter(*indexes.tolist())
        return Tails([chosen(column) for column in self.columns], self.lengths[indexes])

    def between(self, texts: Sequence[bytes], low: int, high: int) -> bytes:
        """The tails from `low` to `high`, each after a text; one more text follows the last."""
        step = len(self.columns) + 1
        parts = [b""] * (step * (high - low) + 1)
        parts[0::step] = texts
        for number, column in enumerate(self.columns, 1):
            parts[number::step] = column[low:high]
        return b"".join(parts)


class TrackEvents(Struct, frozen=True):
    """Events in the order in which the engine reads them; names and categories are numbers of interned strings."""

    time: Int64s
    """Nanoseconds after the base."""
    type: Int64s
    track: Int64s
    category: Int64s
    """0 without one."""
    name: Int64s
    tails: Tails
    tail: Int64s
    """Index in `tails`, or -1 without one."""


class PacketSequence(Struct):
    """The common part of all packets of a sequence: interned strings, so that sequences can be made independently."""

    number: int
    interned: InternTables = field(default_factory=InternTables)

    def packets(self, events: TrackEvents) -> Iterator[bytes]:
        """All packets in bundles. The first contains the interned strings, so all of them must be known."""
        if not len(events.time):
            return
        # A bundle of its own: engines keep the data of interned strings for as long as they are in use.
        yield bundle(int(events.time[0]), self._first())
        given = np.flatnonzero(events.tail >= 0)
        tails = events.tails.take(events.tail[given])
        for at in range(0, len(events.time), CHUNK):
            some = slice(at, min(at + CHUNK, len(events.time)))
            low, high = np.searchsorted(given, [some.start, some.stop]).tolist()
            yield bundle(int(events.time[at]), self._chunk(events, some, given[low:high] - at, tails, low))

    def _first(self) -> bytes:
        """Clears and fills the tables."""
        return delimited(
            schema.PACKET,
            number_field(schema.Packet.SEQUENCE, self.number)
            + number_field(schema.Packet.FLAGS, schema.CLEARED)
            + delimited(schema.Packet.INTERNED, self.interned.message()),
        )

    def _chunk(self, events: TrackEvents, some: slice, given: Int64s, tails: Tails, first: int) -> bytes:
        """The packets of some events; those that are `given` have tails, from `first` on."""
        last = first + len(given)
        more = np.zeros(some.stop - some.start, np.int64)
        more[given] = tails.lengths[first:last]
        types = events.type[some]
        named = (types == schema.Type.BEGIN) | (types == schema.Type.INSTANT)
        event = MessageColumns()
        event.numbers(key(schema.Event.TYPE, VARINT), events.type[some])
        event.numbers(key(schema.Event.TRACK, VARINT), events.track[some])
        event.numbers(key(schema.Event.CATEGORY, VARINT), events.category[some], named)
        event.numbers(key(schema.Event.NAME, VARINT), events.name[some], named)
        packet = MessageColumns()
        packet.numbers(key(schema.Packet.TIME, VARINT), events.time[some])
        packet.constant(number_field(schema.Packet.SEQUENCE, self.number))
        packet.message(schema.Packet.TRACK_EVENT, event, more)
        framed = MessageColumns()
        framed.message(schema.PACKET, packet, more)
        text, bounds = framed.joined()
        cuts = bounds[given + 1].tolist()
        return tails.between(
            [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)], first, last
        )


def number_field(number: int, value: int) -> bytes:
    """An integer field."""
    return key(number, VARINT) + varint(value)


HUNG_COLOUR = number_field(schema.Event.COLOUR, schema.RED)
"""The colour of an event that hangs."""


# The order of packets: by time, and ends before everything else at the same time.


class EventOrder(Table, frozen=True):
    """Starts, ends and instants in the order in which they are written."""

    row: Int64s
    time: Int64s
    type: Int64s


def event_order(rank_timeline: RankTimeline) -> EventOrder:
    """The order of the slices and instants of a rank."""
    drawing, order = rank_timeline.drawing, rank_timeline.opening_order.order
    closing = order[~drawing.instant[order]][::-1]
    types = np.where(drawing.instant[order], schema.Type.INSTANT, schema.Type.BEGIN)
    return in_order(
        np.concatenate([closing, order]),
        np.concatenate([np.full(len(closing), schema.Type.END), types]),
        drawing.start,
        drawing.duration,
    )


def in_order(row: Int64s, types: Int64s, start: Int64s, duration: Int64s) -> EventOrder:
    """Sorts events by time; ends must be given innermost first, everything else in opening order."""
    begin, end = in_half_nanoseconds(start, duration)
    ends = types == schema.Type.END
    time = np.where(ends, end[row], begin[row])
    order = np.argsort(2 * time + ~ends, kind="stable")
    return EventOrder(row[order], time[order] >> 1, types[order])


# Flows: each has a number, which the events at both ends contain.


OUTGOING, INCOMING = key(schema.Event.FLOW, FIXED64), key(schema.Event.LAST_OF_FLOW, FIXED64)


def flow_fields(source: Int64s, target: Int64s, order: Int64s, first: int) -> tuple[Int64s, Bytes]:
    """The rows at which flows start or end, and a field for each; `order` is the position of each row's opening."""
    backward = order[source] > order[target]
    begin, end = np.where(backward, target, source), np.where(backward, source, target)
    numbers = first + np.arange(len(begin))
    return np.concatenate([begin, end]), np.concatenate(
        [flow_field(OUTGOING, numbers), flow_field(INCOMING, numbers)]
    )


def flow_field(key_bytes: bytes, numbers: Int64s) -> Bytes:
    """A field for each flow number."""
    fields = np.empty((len(numbers), len(key_bytes) + 8), np.uint8)
    fields[:, : len(key_bytes)] = np.frombuffer(key_bytes, np.uint8)
    fields[:, len(key_bytes) :] = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)
    return fields


class FieldsByRow(Struct, frozen=True):
    """Fields of rows, one row after the other."""

    rows: Int64s
    bounds: Int64s
    """For each of the rows, and for the end, the offset of its first field."""
    text: bytes

    @classmethod
    def of(cls, rows: Int64s, fields: Bytes) -> FieldsByRow:
        """Sorts fields by row; those of a row stay in their order."""
        order = np.argsort(rows, kind="stable")
        distinct, first = np.unique(rows[order], return_index=True)
        return cls(distinct, fields.shape[1] * np.append(first, len(rows)), fields[order].tobytes())

    def of_rows(self, rows: Int64s) -> tuple[list[bytes], Int64s]:
        """The fields of each of some sorted rows, and their lengths."""
        if not len(self.rows):
            return [b""] * len(rows), np.zeros(len(rows), np.int64)
        index = np.searchsorted(self.rows, rows)
        found = self.rows[np.minimum(index, len(self.rows) - 1)] == rows
        low, high = self.bounds[index], self.bounds[index + found]
        texts = [self.text[begin:end] for begin, end in zip(low.tolist(), high.tolist(), strict=True)]
        return texts, high - low
