"""Clocks: times of packets, each by a clock of its own, as nanoseconds since 1970."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.perfetto.native.decode import of_wire
from tracelink.converters.perfetto.track_events.schema import (
    BOOTTIME,
    FIRST_LOCAL,
    LAST_LOCAL,
    REALTIME,
    Packet,
)
from tracelink.io.framing import DELIMITED, VARINT, fields_of
from tracelink.io.protobuf import Fields, Octets
from tracelink.model.columns import NO_TIME, Bools, Int64s

UNIX_SINCE = 10**18
"""Later times of a clock (the year 2001) count from 1970: no computer is up for that long."""
LATEST = 4 * 10**18
"""Later times (after the year 2096) are invalid."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One clock in a snapshot."""

    clock: int
    time: int
    """In ns."""
    incremental: bool
    unit: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Several clocks read at once."""

    packet: int
    sequence: int
    readings: Sequence[Reading]

    def of(self, clock: int) -> Reading | None:
        """The reading of a clock."""
        return next((reading for reading in self.readings if reading.clock == clock), None)


@dataclass(slots=True)
class LocalTimes:
    """All packets of one clock of one sequence: each time may count from the one before."""

    packets: list[Int64s] = field(default_factory=list)
    times: list[Int64s] = field(default_factory=list)


@dataclass(slots=True)
class Clocks:
    """The clocks of a file."""

    snapshots: list[Snapshot] = field(default_factory=list)
    local: dict[tuple[int, int], LocalTimes] = field(default_factory=lambda: defaultdict(LocalTimes))
    """By sequence and clock."""

    def add(
        self, octets: Octets, packets: Fields, sequence: Int64s, clock: Int64s, time: Int64s, first: int
    ) -> None:
        """Adds the snapshots and the times of a batch whose first packet has this number."""
        owner, read = of_wire(packets, Packet.CLOCKS)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            readings = [*_readings(octets.data, begin, end)]
            self.snapshots.append(Snapshot(first + row, int(sequence[row]), readings))
        rows = np.flatnonzero((clock >= FIRST_LOCAL) & (clock <= LAST_LOCAL) & (time >= 0))
        for of_sequence in np.unique(sequence[rows]).tolist():
            own = rows[sequence[rows] == of_sequence]
            for of_clock in np.unique(clock[own]).tolist():
                local = self.local[of_sequence, of_clock]
                local.packets.append(first + own[clock[own] == of_clock])
                local.times.append(time[own[clock[own] == of_clock]])

    def unix_times(
        self, packet: Int64s, sequence: Int64s, clock: Int64s, time: Int64s
    ) -> tuple[Int64s, bool]:
        """The time of each packet in ns, NO_TIME if its clock is unknown; and whether these count from 1970."""
        common, known = np.where(clock == 0, BOOTTIME, clock), time.copy()
        local = (clock >= FIRST_LOCAL) & (clock <= LAST_LOCAL)
        for (of_sequence, of_clock), times in self.local.items():
            rows = np.flatnonzero(local & (sequence == of_sequence) & (clock == of_clock))
            if len(rows):
                common[rows], known[rows] = self._of_local(of_sequence, of_clock, times, packet[rows])
        known[local & (common >= FIRST_LOCAL)] = NO_TIME
        counts = True
        for builtin in np.unique(common).tolist():
            rows = np.flatnonzero((common == builtin) & (known != NO_TIME))
            if builtin != REALTIME and len(rows):
                known[rows], of_unix = self._to_unix(builtin, known[rows])
                counts &= of_unix
        known[(known != NO_TIME) & ((known < 0) | (known > LATEST))] = NO_TIME
        return known, counts

    def _of_local(
        self, sequence: int, clock: int, times: LocalTimes, packet: Int64s
    ) -> tuple[Int64s, Int64s]:
        """The common clock of each of these packets, and its time by that; the local clock itself if it is unknown."""
        packets, values = np.concatenate(times.packets), np.concatenate(times.times)
        found = [
            (snapshot.packet, reading, other)
            for snapshot in self.snapshots
            if snapshot.sequence == sequence
            and (reading := snapshot.of(clock))
            and (other := _common(snapshot))
        ]
        if not found:
            return np.full(len(packet), clock), np.full(len(packet), NO_TIME)
        starts = np.array([number for number, _, _ in found], np.int64)
        which = np.searchsorted(starts, packets, side="right") - 1
        before = which < 0
        which = np.maximum(which, 0)
        unit = np.array([reading.unit for _, reading, _ in found], np.int64)[which]
        base = np.array([reading.time for _, reading, _ in found], np.int64)[which]
        incremental = np.array([reading.incremental for _, reading, _ in found], np.bool_)[which]
        steps = np.where(incremental, values * unit, 0)
        total = np.cumsum(steps)
        first = np.searchsorted(which, which)
        summed = base + total - np.where(first > 0, total[first - 1], 0)
        own = np.where(incremental, summed, values * unit)
        other_time = np.array([other.time for _, _, other in found], np.int64)[which]
        other_clock = np.array([other.clock for _, _, other in found], np.int64)[which]
        time = np.where(before, NO_TIME, own - base + other_time)
        place = np.searchsorted(packets, packet)
        return np.where(before, clock, other_clock)[place], time[place]

    def _to_unix(self, clock: int, times: Int64s) -> tuple[Int64s, bool]:
        """Times of a common clock by the clock of the day; as they are if no snapshot has both."""
        pairs = sorted(
            (own.time, real.time)
            for snapshot in self.snapshots
            if (own := snapshot.of(clock)) and (real := snapshot.of(REALTIME))
        )
        if not pairs:
            return times, bool(len(times)) and int(times.min()) >= UNIX_SINCE
        own, real = np.array(pairs, np.int64).T
        which = np.maximum(np.searchsorted(own, times, side="right") - 1, 0)
        return times + (real - own)[which], True


def _common(snapshot: Snapshot) -> Reading | None:
    """A clock that all sequences know: that of the day, else the one since boot, else any other."""
    for clock in (REALTIME, BOOTTIME):
        if reading := snapshot.of(clock):
            return reading
    return next((reading for reading in snapshot.readings if reading.clock < FIRST_LOCAL), None)


def _readings(data: bytes, begin: int, end: int) -> Iterator[Reading]:
    for entry in fields_of(data, begin, end):
        if not entry or (entry.number, entry.wire) != (1, DELIMITED):
            continue
        numbers = {
            inner.number: inner.value
            for inner in fields_of(data, entry.begin, entry.end)
            if inner and inner.wire == VARINT
        }
        clock, time, unit = numbers.get(1, 0), numbers.get(2, 0), numbers.get(4, 1) or 1
        if clock > 0 and 0 < unit <= LATEST and 0 <= time * unit <= LATEST:
            yield Reading(clock, time * unit, bool(numbers.get(3, 0)), unit)


def are_timed(times: Int64s) -> Bools:
    """Packets with a time that a job can have, by any clock."""
    timed: Bools = (times >= 0) & (times <= LATEST)
    return timed
