"""State of packet sequences: texts and defaults that packets refer to by number, until the state is cleared."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field

from tracelink._io.framing import DELIMITED, VARINT, fields_of
from tracelink._io.protobuf import Fields, Octets, split_all
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, distinct
from tracelink.converters.perfetto.native.decode import numbers_of, of_wire
from tracelink.converters.perfetto.track_events.schema import IS_CLEARED, NEEDS_STATE, TEXT_OF, Packet, Table

TRACK_DEFAULTS, DEFAULT_TRACK = 11, 11
"""Fields of the defaults of a sequence."""
LONGEST_TEXT = 1 << 16
"""Bytes of an interned text that are kept: demangled names of kernels are long, but not that long."""

Named = tuple[Table, int, int]
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

    def of(self, packets: Fields, count: int) -> tuple[Int32s, Bools]:
        """The state of each packet of a batch, and the packets that need one which is not in the file."""
        sequence = numbers_of(packets, Packet.SEQUENCE, count)
        flags = numbers_of(packets, Packet.FLAGS, count)
        cleared = ((flags & IS_CLEARED) != 0) | (numbers_of(packets, Packet.CLEARED, count) != 0)
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
        owner, read = of_wire(packets, Packet.INTERNED)
        tables = split_all(octets, read.begin, read.end)
        damaged = int(np.count_nonzero(tables.odd))
        for table in Table:
            place, entries = of_wire(tables, table)
            if len(place):
                damaged += self._add(octets, table, state[owner[place]], entries.begin, entries.end)
        self._add_defaults(octets, packets, state)
        return damaged

    def _add(self, octets: Octets, table: Table, states: Int32s, begins: Int64s, ends: Int64s) -> int:
        entries = split_all(octets, begins, ends)
        numbers = numbers_of(entries, 1, len(begins)).tolist()
        of_state = states.tolist()
        if table == Table.COUNTERS:
            for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
                self.messages[table, of_state[row], numbers[row]] = octets.data[begin:end]
        for number in reversed(TEXT_OF.get(table, (2,))):
            rows, text = of_wire(entries, number)
            for row, begin, end in zip(rows.tolist(), text.begin.tolist(), text.end.tolist(), strict=True):
                data = octets.data[begin : min(end, begin + LONGEST_TEXT)]
                self.texts[table, of_state[row], numbers[row]] = data.decode(errors="replace")
        return int(np.count_nonzero(entries.odd))

    def _add_defaults(self, octets: Octets, packets: Fields, state: Int32s) -> None:
        owner, read = of_wire(packets, Packet.DEFAULTS)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            for default in fields_of(octets.data, begin, end):
                if default and (default.number, default.wire) == (Packet.CLOCK, VARINT):
                    self.clocks[int(state[row])] = default.value
                if default and (default.number, default.wire) == (TRACK_DEFAULTS, DELIMITED):
                    for inner in fields_of(octets.data, default.begin, default.end):
                        if inner and (inner.number, inner.wire) == (DEFAULT_TRACK, VARINT):
                            self.tracks[int(state[row])] = inner.value

    def resolved(self, table: Table, state: Int32s, number: Int64s) -> tuple[list[str | None], Int64s]:
        """The distinct texts to which numbers refer in their states, and the index of each, or UNKNOWN."""
        index = np.full(len(number), UNKNOWN, np.int64)
        rows = np.flatnonzero(number > 0)
        code, first = distinct(state[rows].astype(np.int64), number[rows])
        index[rows] = code
        pairs = zip(state[rows[first]].tolist(), number[rows[first]].tolist(), strict=True)
        return [self.texts.get((table, of_state, of_number)) for of_state, of_number in pairs], index


def default_of(defaults: dict[int, int], state: Int32s, otherwise: int) -> Int64s:
    """The default of each state."""
    if not defaults:
        return np.full(len(state), otherwise, np.int64)
    table = np.full(max(int(state.max(initial=0)), max(defaults)) + 1, otherwise, np.int64)
    table[list(defaults)] = list(_signed(defaults.values()))
    return table[state]


def _signed(values: Iterable[int]) -> Iterable[int]:
    return (value - (1 << 64) if value >= 1 << 63 else value for value in values)
