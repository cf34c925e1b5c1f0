"""Packets to columns, a batch at a time: everything but what events say as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto_native.reading.framing import Batch
from tracelink.converters.perfetto_native.reading.messages import numbers_of, of_wire
from tracelink.converters.perfetto_native.reading.sequences import Anchors, Texts, texts_of
from tracelink.converters.perfetto_native.schema import Event, Packet, Type
from tracelink.events import Int32s, Int64s
from tracelink.fields import FIXED64, Fields, split_all
from tracelink.octets import Octets

NOTHING = -1
"""Of a number that is not given."""
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
    texts: Texts
    facts: list[bytes]
    anchors: Anchors
    damaged: int
    """How many packets are not what packets must be."""


def told_by(batch: Batch) -> Told:
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


def _anchors(batch: Batch, types: Int64s) -> Anchors:
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

    def numbers(self, number: int, none: int = NOTHING) -> Int64s:
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
    return np.where((values >= 0) & (values <= LARGEST), values, NOTHING).astype(np.int32)
