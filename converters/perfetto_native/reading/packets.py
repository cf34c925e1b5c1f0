"""Packets to columns, a batch at a time: everything but what events say as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto_native.reading.framing import Batch
from tracelink.converters.perfetto_native.reading.states import State, last_numbers, states_of
from tracelink.converters.perfetto_native.schema import CLEARED, Event, Packet, Type
from tracelink.events import Bools, Int32s, Int64s
from tracelink.fields import DELIMITED, FIXED64, Fields, split_all
from tracelink.octets import Octets
from tracelink.strings import StringTable

NOTHING = -1
"""Of a number that is not given."""
FIRST_INLINE = -2
"""Texts that stand in events themselves have numbers from here down."""
LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Packets:
    """Columns of packets in the order of the file; rows are events of tracks where they have a type."""

    sequence: Int32s
    time: Int64s
    clock: Int32s
    cleared: Bools
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
    states: dict[int, State]
    facts: list[bytes]
    damaged: int
    """How many packets are not what packets must be."""


@dataclass(slots=True)
class Inline:
    """Texts that stand in events themselves."""

    categories: StringTable = field(default_factory=StringTable)
    names: StringTable = field(default_factory=StringTable)


def told_by(batch: Batch, inline: Inline) -> Told:
    """The columns of a batch."""
    octets = Octets(batch.data)
    whole = split_all(octets, np.array(batch.begins, np.int64), np.array(batch.ends, np.int64))
    count = len(batch.begins)
    rows, inner = event_fields(octets, whole)
    events = _Events(octets, inner, rows, count)
    types = np.clip(events.numbers(Event.TYPE, 0), 0, max(Type) + 1)
    packets = Packets(
        _narrow(last_numbers(whole, Packet.SEQUENCE, count)),
        last_numbers(whole, Packet.TIME, count),
        _narrow(last_numbers(whole, Packet.CLOCK, count, NOTHING)),
        (last_numbers(whole, Packet.FLAGS, count) & CLEARED) != 0,
        types.astype(np.uint8),
        _narrow(events.numbers(Event.TRACK)),
        _narrow(events.texts(Event.CATEGORY, Event.CATEGORY_TEXT, inline.categories), FIRST_INLINE),
        _narrow(events.texts(Event.NAME, Event.NAME_TEXT, inline.names), FIRST_INLINE),
        _narrow(events.numbers(Event.COLOUR)),
        events.values(),
    )
    return Told(
        packets,
        events.flows(Event.FLOW),
        events.flows(Event.LAST_OF_FLOW),
        states_of(octets, whole),
        facts_of(octets, whole),
        int(np.count_nonzero(whole.odd)) + int(np.count_nonzero(inner.odd)),
    )


def facts_of(octets: Octets, packets: Fields) -> list[bytes]:
    """The texts of packets for readers of tracelink's own."""
    _, read = packets.of(Packet.TRACELINK)
    spans = zip(read.begin.tolist(), read.end.tolist(), (read.wire == DELIMITED).tolist(), strict=True)
    return [octets.data[begin:end] for begin, end, told in spans if told]


def event_fields(octets: Octets, packets: Fields) -> tuple[Int64s, Fields]:
    """The rows of packets that are events of tracks, and the fields of those events."""
    owner, read = packets.of(Packet.TRACK_EVENT)
    some = read.wire == DELIMITED
    return owner[some], split_all(octets, read.begin[some], read.end[some])


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of a batch, as columns of its packets."""

    octets: Octets
    inner: Fields
    rows: Int64s
    count: int

    def numbers(self, number: int, none: int = NOTHING) -> Int64s:
        """A whole number of each."""
        return self._placed(last_numbers(self.inner, number, len(self.rows), none), none)

    def texts(self, number: int, inline_number: int, inline: StringTable) -> Int64s:
        """The number of a text of each: that of a table, or below `NOTHING` that of one that stands there itself."""
        column = np.minimum(last_numbers(self.inner, number, len(self.rows), NOTHING), LARGEST)
        column[column < 0] = NOTHING
        owner, read = self.inner.of(inline_number)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            column[row] = FIRST_INLINE - inline[self.octets.data[begin:end].decode(errors="replace")]
        return self._placed(column, NOTHING)

    def values(self) -> npt.NDArray[np.float64]:
        """What counters show."""
        values = last_numbers(self.inner, Event.WHOLE_VALUE, len(self.rows)).astype(np.float64)
        owner, read = self.inner.of(Event.DOUBLE_VALUE)
        plain = read.wire == FIXED64
        values[owner[plain]] = self.octets.words(read.begin[plain]).view(np.float64)
        return self._placed(values, 0)

    def flows(self, number: int) -> FlowEnds:
        """The ends of arrows."""
        owner, read = self.inner.of(number)
        plain = read.wire == FIXED64
        return FlowEnds(self.rows[owner[plain]], self.octets.words(read.begin[plain]).view(np.int64))

    def _placed(self, values: npt.NDArray[Any], none: int) -> npt.NDArray[Any]:
        column = np.full(self.count, none, values.dtype)
        column[self.rows] = values
        return column


def _narrow(values: Int64s, least: int | None = None) -> Int32s:
    """Numbers in half the space; larger ones are none of tracelink's."""
    fits = (values <= LARGEST) & (values >= (-LARGEST if least is not None else 0))
    return np.where(fits, values, NOTHING).astype(np.int32)
