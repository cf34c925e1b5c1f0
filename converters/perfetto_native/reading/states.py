"""What packets say of all later ones of their sequence: clocks, defaults, and tables of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.perfetto_native.schema import READING, Clock, Defaults, Entry, Event, Packet, Table
from tracelink.events import Bools, Int64s
from tracelink.fields import DELIMITED, VARINT, Fields, split_all
from tracelink.octets import Octets

Texts = dict[Table, dict[int, str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a clock shows."""

    time: int
    incremental: bool


@dataclass(slots=True)
class State:
    """What one packet says of those behind it."""

    clocks: Mapping[int, Reading] = field(default_factory=dict)
    default_clock: int | None = None
    default_track: int | None = None
    texts: Texts = field(default_factory=dict)


def states_of(octets: Octets, packets: Fields) -> dict[int, State]:
    """By packet."""
    states: dict[int, State] = {}
    for row, begin, end in _messages(packets, Packet.CLOCK_SNAPSHOT):
        states.setdefault(row, State()).clocks = dict(_clocks(octets, begin, end))
    for row, begin, end in _messages(packets, Packet.DEFAULTS):
        state = states.setdefault(row, State())
        told = _inside(octets, begin, end)
        state.default_clock = _last(told, Defaults.CLOCK)
        for _, first, last in _messages(told, Defaults.EVENT):
            state.default_track = _last(_inside(octets, first, last), Event.TRACK)
    for row, begin, end in _messages(packets, Packet.INTERNED):
        _add_texts(states.setdefault(row, State()).texts, octets, begin, end)
    return states


def _clocks(octets: Octets, begin: int, end: int) -> Iterator[tuple[int, Reading]]:
    for _, first, last in _messages(_inside(octets, begin, end), READING):
        told = _inside(octets, first, last)
        number, time = _last(told, Clock.NUMBER), _last(told, Clock.TIME)
        if number is not None:
            yield number, Reading(time or 0, bool(_last(told, Clock.INCREMENTAL)))


def _add_texts(texts: Texts, octets: Octets, begin: int, end: int) -> None:
    whole = _inside(octets, begin, end)
    for table in Table:
        chosen = np.flatnonzero((whole.read.number == table) & (whole.read.wire == DELIMITED))
        entries = split_all(octets, whole.read.begin[chosen], whole.read.end[chosen])
        numbers = np.full(len(chosen), -1, np.int64)
        owner, read = entries.of(Entry.NUMBER)
        numbers[owner[read.wire == VARINT]] = read.value[read.wire == VARINT]
        owner, read = entries.of(Entry.TEXT)
        spans = zip(numbers[owner].tolist(), read.begin.tolist(), read.end.tolist(), strict=True)
        known = texts.setdefault(table, {})
        for number, first, last in spans:
            known[number] = octets.data[first:last].decode(errors="replace")


def _inside(octets: Octets, begin: int, end: int) -> Fields:
    """The fields of one message."""
    return split_all(octets, np.array([begin], np.int64), np.array([end], np.int64))


def _messages(fields: Fields, number: int) -> Iterator[tuple[int, int, int]]:
    """Owner, begin and end of every message of this number."""
    owner, read = fields.of(number)
    some = read.wire == DELIMITED
    return zip(owner[some].tolist(), read.begin[some].tolist(), read.end[some].tolist(), strict=True)


def _last(fields: Fields, number: int) -> int | None:
    """The whole number of a field; where it is there twice the last counts."""
    numbers = last_numbers(fields, number, 1)
    return int(numbers[0]) if fields.of(number)[0].size else None


def last_numbers(fields: Fields, number: int, count: int, none: int = 0) -> Int64s:
    """The whole number that this field is of each of `count` messages, `none` where it is missing."""
    owner, read = fields.of(number)
    numbers = np.full(count, none, np.int64)
    plain: Bools = read.wire == VARINT
    numbers[owner[plain]] = read.value[plain]
    return numbers
