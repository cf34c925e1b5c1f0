"""Sequences of packets, a column at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from tracelink.converters.perfetto.json_text import whole_text
from tracelink.converters.perfetto.native.schema import (
    BOOT_TIME,
    CLEARED,
    OWN_CLOCK,
    PACKET,
    READING,
    REAL_TIME,
    RED,
    Clock,
    Entry,
    Event,
    Packet,
    Table,
    Type,
)
from tracelink.converters.perfetto.timeline.drawing import halves
from tracelink.converters.perfetto.timeline.rank import Picture
from tracelink.io.framing import DELIMITED, FIXED64, VARINT, delimited, key, varint, varint_at
from tracelink.io.protobuf import Bytes, varint_groups
from tracelink.model.columns import Bools, Int64s

# Bundles: packets that stand compressed in a packet of their own, which says when the first of them is.


FAST = 2
"""The level of a library that takes a thousandth of a second for a megabyte."""

HEAD, CONTENT = key(Packet.TIME, VARINT), key(Packet.BUNDLE, DELIMITED)


class Packing(Enum):
    """How the packets of bundles are written."""

    BUNDLED = "bundled"
    DENSE = "dense"
    """In as few bytes as there is time for."""
    PLAIN = "plain"
    """Not compressed, for a file that is compressed as a whole."""


def bundle(time: int, packets: bytes) -> bytes:
    """The packet that holds these, of which none is before `time`."""
    return _bundle(time, isal_zlib.compress(packets, FAST))


def time_of(body: bytes) -> int | None:
    """When the first packet of a bundle is, by the first bytes of its body; None where this is no bundle."""
    if not body.startswith(HEAD):
        return None
    time, at = varint_at(body, len(HEAD))
    return time if body.startswith(CONTENT, at) else None


def packed(body: bytes, packing: Packing) -> bytes:
    """A bundle with this body, written in another way."""
    time, at = varint_at(body, len(HEAD))
    _, at = varint_at(body, at + len(CONTENT))
    packets = isal_zlib.decompress(memoryview(body)[at:])
    return packets if packing is Packing.PLAIN else _bundle(time, zlib.compress(packets))


def _bundle(time: int, compressed: bytes) -> bytes:
    return delimited(PACKET, HEAD + varint(time) + delimited(Packet.BUNDLE, compressed))


# Texts that stand once in a sequence of packets; events name them by number.


@dataclass(slots=True)
class Texts:
    """The tables of one sequence."""

    tables: dict[Table, dict[str, int]] = field(default_factory=lambda: {table: {} for table in Table})

    def number(self, table: Table, text: str) -> int:
        """The number of a text, from 1 on."""
        known = self.tables[table]
        return known.setdefault(text, len(known) + 1)

    def numbers(self, table: Table, texts: Sequence[str]) -> Int64s:
        """The numbers of many texts."""
        return np.array([self.number(table, text) for text in texts], np.int64)

    def message(self) -> bytes:
        """All tables as the content of one field."""
        return b"".join(
            delimited(
                table,
                key(Entry.NUMBER, VARINT) + varint(number) + delimited(Entry.TEXT, whole_text(text).encode()),
            )
            for table, texts in self.tables.items()
            for text, number in texts.items()
        )


# Many messages at once, a field of all of them at a time.


ONE_BYTE = 1 << 7
"""Lower numbers take one byte."""


class Rows:
    """The bytes of messages: each column holds bytes of every one, of which some may not count."""

    def __init__(self) -> None:
        self.lengths: Int64s | int = 0
        self._columns: list[tuple[Bytes, Int64s | None]] = []

    def constant(self, text: bytes, given: Bools | None = None) -> None:
        """The same bytes in all messages, or in some."""
        column = np.frombuffer(text, np.uint8)
        self._add(column, None if given is None else given * np.int64(len(text)))

    def numbers(self, field: bytes, values: Int64s, given: Bools | None = None) -> None:
        """A whole number in all messages, or in some; `field` is what stands before it."""
        self.constant(field, given)
        if given is None and len(values) and values.min() >= 0 and values.max() < ONE_BYTE:
            self._add(values.astype(np.uint8)[:, None], None)
            return
        groups, widths = varint_groups(np.ascontiguousarray(values))
        self._add(groups, widths if given is None else widths * given)

    def words(self, field: bytes, values: npt.NDArray[np.float64]) -> None:
        """A number of 64 bits in all messages."""
        self.constant(field)
        self._add(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize), None)

    def message(self, number: int, inner: Rows, more: Int64s | int = 0) -> None:
        """A message within each; `more` bytes of it are to follow."""
        head, lengths = key(number, DELIMITED), inner.lengths + more
        if isinstance(lengths, int):
            self.constant(head + varint(lengths))
        else:
            self.numbers(head, lengths)
        self._columns += inner._columns
        self.lengths = self.lengths + inner.lengths

    def joined(self) -> tuple[bytes, Int64s]:
        """All messages one after the other, and where each begins."""
        widths = [column.shape[-1] for column, _ in self._columns]
        count = max(len(column) for column, _ in self._columns if column.ndim > 1)
        matrix = np.empty((count, sum(widths)), np.uint8)
        counts = np.ones(matrix.shape, np.bool_)
        at = 0
        for (column, used), width in zip(self._columns, widths, strict=True):
            matrix[:, at : at + width] = column
            if used is not None:
                counts[:, at : at + width] = np.arange(width) < used[:, None]
            at += width
        bounds = np.zeros(count + 1, np.int64)
        np.cumsum(np.broadcast_to(self.lengths, count), out=bounds[1:])
        return matrix[counts].tobytes(), bounds

    def each(self) -> list[bytes]:
        """Every message by itself."""
        text, bounds = self.joined()
        return [text[low:high] for low, high in pairwise(bounds.tolist())]

    def _add(self, column: Bytes, used: Int64s | None) -> None:
        self._columns.append((column, used))
        self.lengths = self.lengths + (column.shape[-1] if used is None else used)


# Sequences of packets: each has tables of texts and a clock of its own, so that no two need to know of each other.


CHUNK = 4096
"""Packets that are made at once: what fits a cache."""

PER_BLOCK = 128
"""Sequences of a block at most."""


@dataclass(frozen=True, slots=True)
class Events:
    """Events on tracks in the order in which the engine is to meet them; names and categories are numbers of texts."""

    time: Int64s
    """Nanoseconds after the base."""
    type: Int64s
    track: Int64s
    category: Int64s
    """0: has none."""
    name: Int64s
    tails: Sequence[bytes]
    """Further fields of each event that begins something: its arrows, its value, its arguments."""
    tail: Int64s
    """Which of `tails` an event has, or -1."""


@dataclass(slots=True)
class PacketSequence:
    """What the packets of one sequence share."""

    number: int
    base: int
    """What time 0 is; 0 itself where nothing has a time."""
    texts: Texts = field(default_factory=Texts)

    def packets(self, events: Events) -> Iterator[bytes]:
        """All packets in bundles; the first has the texts, so everything must be known by now."""
        if not len(events.time):
            return
        # By itself: engines keep what holds texts for as long as they may be named.
        yield bundle(self.base + int(events.time[0]), self._first())
        before = np.concatenate([[0], events.time[:-1]])
        steps = events.time - before
        for at in range(0, len(steps), CHUNK):
            some = slice(at, min(at + CHUNK, len(steps)))
            yield bundle(self.base + int(events.time[at]), self._chunk(events, steps, some))

    def _first(self) -> bytes:
        """Sets the clock, and clears and fills the tables."""
        clocks = {BOOT_TIME: b"", OWN_CLOCK: key(Clock.INCREMENTAL, VARINT) + b"\1"}
        if self.base:
            clocks[REAL_TIME] = b""
        readings = b"".join(
            delimited(READING, number_field(Clock.NUMBER, clock) + number_field(Clock.TIME, self.base) + more)
            for clock, more in clocks.items()
        )
        return delimited(
            PACKET,
            number_field(Packet.TIME, self.base)
            + number_field(Packet.CLOCK, BOOT_TIME)
            + number_field(Packet.SEQUENCE, self.number)
            + number_field(Packet.FLAGS, CLEARED)
            + delimited(Packet.CLOCK_SNAPSHOT, readings)
            + delimited(Packet.DEFAULTS, number_field(Packet.CLOCK, OWN_CLOCK))
            + delimited(Packet.INTERNED, self.texts.message()),
        )

    def _chunk(self, events: Events, steps: Int64s, some: slice) -> bytes:
        tail = events.tail[some]
        tails = [events.tails[index] for index in tail[tail >= 0].tolist()]
        more = np.zeros(len(tail), np.int64)
        more[tail >= 0] = np.fromiter(map(len, tails), np.int64, len(tails))
        named = events.type[some]
        named = (named == Type.BEGIN) | (named == Type.INSTANT)
        event = Rows()
        event.numbers(key(Event.TYPE, VARINT), events.type[some])
        event.numbers(key(Event.TRACK, VARINT), events.track[some])
        event.numbers(key(Event.CATEGORY, VARINT), events.category[some], named)
        event.numbers(key(Event.NAME, VARINT), events.name[some], named)
        packet = Rows()
        packet.numbers(key(Packet.TIME, VARINT), steps[some])
        packet.constant(number_field(Packet.SEQUENCE, self.number))
        packet.message(Packet.TRACK_EVENT, event, more)
        whole = Rows()
        whole.message(PACKET, packet, more)
        text, bounds = whole.joined()
        cuts = [0, *bounds[1:][tail >= 0].tolist()]
        pieces = [text[cuts[-1] :]] * (2 * len(tails) + 1)
        pieces[0:-1:2] = [text[begin:end] for begin, end in pairwise(cuts)]
        pieces[1::2] = tails
        return b"".join(pieces)


def number_field(number: int, value: int) -> bytes:
    """A field that is a whole number."""
    return key(number, VARINT) + varint(value)


HUNG_COLOUR = number_field(Event.COLOUR, RED)
"""The field of an event that hangs."""


# JSON objects as viewers show them well: lists, which they take apart, are texts, and so is what they leave out.


# JSON objects as arguments of events: engines take them as they are.


# The order of packets: everything begins and ends in time, and of what happens at once the engine meets ends first.


@dataclass(frozen=True, slots=True)
class Packets:
    """Beginnings, ends and instants in the order in which they are written."""

    row: Int64s
    time: Int64s
    type: Int64s

    def where(self, some: slice) -> Packets:
        """Some of them."""
        return Packets(self.row[some], self.time[some], self.type[some])


def packets_of(picture: Picture) -> Packets:
    """All packets of a rank's slices and instants."""
    drawing, order = picture.drawing, picture.openings.order
    closing = order[~drawing.instant[order]][::-1]
    types = np.where(drawing.instant[order], Type.INSTANT, Type.BEGIN)
    return ordered(
        np.concatenate([closing, order]),
        np.concatenate([np.full(len(closing), Type.END), types]),
        drawing.start,
        drawing.duration,
    )


def ordered(row: Int64s, types: Int64s, start: Int64s, duration: Int64s) -> Packets:
    """Packets by time; ends come innermost first, all else in opening order, and so they must be given."""
    begin, end = halves(start, duration)
    ends = types == Type.END
    half = np.where(ends, end[row], begin[row])
    turn = np.argsort(2 * half + ~ends, kind="stable")
    return Packets(row[turn], half[turn] >> 1, types[turn])


# Where time 0 of a timeline stands.


def zero_of(base: int | None) -> int:
    """The base, in ns since the Unix epoch; engines leave out what is before that, so all is drawn later then."""
    return max(base or 0, 0)


# Arrows: each has a number, which the events at both its ends name.


LEAVES, ARRIVES = key(Event.FLOW, FIXED64), key(Event.LAST_OF_FLOW, FIXED64)


def arrow_fields(source: Int64s, target: Int64s, place: Int64s, first: int) -> tuple[Int64s, Bytes]:
    """Rows at which arrows begin or end, and the fields of each; `place` says which row the engine meets first."""
    turned = place[source] > place[target]
    begin, end = np.where(turned, target, source), np.where(turned, source, target)
    numbers = first + np.arange(len(begin))
    return np.concatenate([begin, end]), np.concatenate([fields(LEAVES, numbers), fields(ARRIVES, numbers)])


def fields(head: bytes, numbers: Int64s) -> Bytes:
    """The field of each arrow's number."""
    made = np.empty((len(numbers), len(head) + 8), np.uint8)
    made[:, : len(head)] = np.frombuffer(head, np.uint8)
    made[:, len(head) :] = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)
    return made


def joined_by_row(rows: Int64s, made: Bytes) -> dict[int, bytes]:
    """For each of `rows`, its fields one after the other."""
    order = np.argsort(rows, kind="stable")
    text, width = made[order].tobytes(), made.shape[1]
    distinct, first = np.unique(rows[order], return_index=True)
    bounds = pairwise([*(width * first).tolist(), len(text)])
    return {row: text[low:high] for row, (low, high) in zip(distinct.tolist(), bounds, strict=True)}
