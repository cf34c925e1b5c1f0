"""Sequences of packets: each has tables of texts and a clock of its own, so that no two need to know of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto_native.bundles import bundle
from tracelink.converters.perfetto_native.interning import Texts
from tracelink.converters.perfetto_native.rows import Rows
from tracelink.converters.perfetto_native.schema import (
    BOOT_TIME,
    CLEARED,
    OWN_CLOCK,
    PACKET,
    READING,
    REAL_TIME,
    RED,
    Clock,
    Event,
    Packet,
    Type,
)
from tracelink.events import Int64s
from tracelink.wire import VARINT, delimited, key, varint

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
