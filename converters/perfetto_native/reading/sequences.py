"""What packets mean by what others of their sequence said before: when they are, on which track, and their texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np

from tracelink.converters.perfetto_native.reading.packets import FIRST_INLINE, NOTHING, Packets
from tracelink.converters.perfetto_native.reading.states import State
from tracelink.converters.perfetto_native.schema import BOOT_TIME, OWN_CLOCK, Table
from tracelink.events import Bools, Int32s, Int64s
from tracelink.strings import StringTable

Tables = Mapping[int, Mapping[Table, Mapping[int, str]]]
"""By epoch."""
Numbers = TypeVar("Numbers", Int32s, Int64s)

WIDEST = 32
"""Bits of a text's number."""


@dataclass(frozen=True)
class Sequences:
    """All packets, and what some of them say of others."""

    packets: Packets
    states: Mapping[int, State]

    @cached_property
    def order(self) -> Int64s:
        """Packets by sequence."""
        return np.argsort(self.packets.sequence, kind="stable")

    @cached_property
    def _first(self) -> Int64s:
        """For each place in this order, where its sequence begins."""
        sequence = self.packets.sequence[self.order]
        begins = np.diff(sequence, prepend=-1) != 0
        return np.maximum.accumulate(np.where(begins, np.arange(len(sequence)), 0))

    @cached_property
    def epoch(self) -> Int32s:
        """For each packet the one, by place, from which on texts have the numbers that they have for it."""
        cleared = self.packets.cleared[self.order]
        return self._back(np.maximum(self._latest(cleared), self._first).astype(np.int32))

    @cached_property
    def tables(self) -> Tables:
        """The texts of each epoch."""
        tables: defaultdict[int, dict[Table, dict[int, str]]] = defaultdict(dict)
        for row, state in self.states.items():
            for table, texts in state.texts.items():
                tables[int(self.epoch[row])].setdefault(table, {}).update(texts)
        return tables

    def codes(self, table: Table, numbers: Int32s, inline: Sequence[str], strings: StringTable) -> Int32s:
        """The code in `strings` of each text that is named by number, `NOTHING` where there is none."""
        codes = np.full(len(numbers), NOTHING, np.int32)
        numbered, standing = numbers >= 0, numbers <= FIRST_INLINE
        texts, which = named(self.tables, table, self.epoch[numbered], numbers[numbered])
        found = [NOTHING if text is None else strings[text] for text in texts]
        codes[numbered] = np.array([*found, NOTHING], np.int32)[which]
        codes[standing] = strings.encode(inline)[FIRST_INLINE - numbers[standing]]
        return codes

    def times(self) -> Int64s:
        """When each packet is, in nanoseconds."""
        clock = self._clocks()
        time = self.packets.time[self.order]
        own = time.copy()
        for number in np.unique(clock[clock >= OWN_CLOCK]).tolist():
            mine = clock == number
            own[mine] = self._own_times(number, np.where(mine, time, 0))[mine]
        return self._back(own)

    def tracks(self) -> Int32s:
        """The track of each packet."""
        track = self.packets.track[self.order]
        default = self._said(lambda state: state.default_track)
        return self._back(np.where(track == NOTHING, default, track).astype(np.int32))

    def _clocks(self) -> Int64s:
        clock = self.packets.clock[self.order]
        said = self._said(lambda state: state.default_clock)
        return np.where(clock != NOTHING, clock, np.where(said == NOTHING, BOOT_TIME, said))

    def _own_times(self, clock: int, time: Int64s) -> Int64s:
        """Times on a clock of the sequence itself, of which some packets say what it shows."""
        shown = {row: state for row, state in self.states.items() if clock in state.clocks}
        given, values = self._places(shown)
        latest = self._latest(given)
        readings = [shown[row].clocks[clock] for row in values]
        boot = [
            (shown[row].clocks.get(BOOT_TIME) or reading).time
            for row, reading in zip(values, readings, strict=True)
        ]
        at = np.searchsorted(np.flatnonzero(given), latest)
        base, zero = _signed([*boot, 0])[at], _signed([*(one.time for one in readings), 0])[at]
        adds = np.array([*(one.incremental for one in readings), False])[at]
        total = np.cumsum(time)
        before = np.where(latest < 0, 0, total[latest] - time[latest])
        known = latest >= 0
        return np.where(known, base + np.where(adds, total - before, time - zero), time)

    def _said(self, what: Callable[[State], int | None]) -> Int64s:
        """For each place what was said last in its sequence, or `NOTHING`."""
        said = {row: value for row, state in self.states.items() if (value := what(state)) is not None}
        given, rows = self._places(said)
        latest = self._latest(given)
        values = _signed([*(said[row] for row in rows), NOTHING])
        return np.where(latest < 0, NOTHING, values[np.searchsorted(np.flatnonzero(given), latest)])

    def _places(self, some: Mapping[int, object]) -> tuple[Bools, list[int]]:
        """Which places are of these packets, and those in the order of places."""
        chosen = np.zeros(len(self.packets), np.bool_)
        chosen[list(some)] = True
        given = chosen[self.order]
        return given, self.order[given].tolist()

    def _latest(self, given: Bools) -> Int64s:
        """For each place the last in its sequence that is given, -1 where there is none."""
        latest = np.maximum.accumulate(np.where(given, np.arange(len(given)), -1))
        return np.where(latest < self._first, -1, latest)

    def _back(self, values: Numbers) -> Numbers:
        """Values by place as those of packets."""
        column = np.empty_like(values)
        column[self.order] = values
        return column


def named(
    tables: Tables, table: Table, epoch: Int32s, number: Int32s | Int64s
) -> tuple[list[str | None], Int64s]:
    """The distinct texts that numbers name in their epochs, and for each number its place among them."""
    names, which = np.unique(epoch.astype(np.int64) << WIDEST | number, return_inverse=True)
    low = (1 << WIDEST) - 1
    return [tables.get(name >> WIDEST, {}).get(table, {}).get(name & low) for name in names.tolist()], which


def _signed(numbers: Sequence[int]) -> Int64s:
    return np.fromiter(chain(numbers), np.int64, len(numbers))
