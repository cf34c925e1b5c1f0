"""Clocks: times of packets, each by a clock of its own, as nanoseconds since 1970."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.framing import DELIMITED, VARINT, fields_of
from tracelink._io.protobuf import Fields, Octets
from tracelink._model.columns import NO_TIME, Bools, Int32s, Int64s, Table, distinct
from tracelink.converters.perfetto.packets.reading import find_fields
from tracelink.converters.perfetto.packets.schema import BOOTTIME, FIRST_LOCAL, LAST_LOCAL, REALTIME, Packet

UNIX_SINCE = 10**18
"""Later times of a clock (the year 2001) count from 1970: no computer is up for that long."""
LATEST = 4 * 10**18
"""Later times (after the year 2096) are invalid."""


class Reading(Struct, frozen=True):
    """One clock in a snapshot."""

    clock: int
    time: int
    """In ns."""
    incremental: bool
    unit: int


class Snapshot(Struct, frozen=True):
    """Several clocks read at once."""

    packet: int
    sequence: int
    readings: Sequence[Reading]

    def of(self, clock: int) -> Reading | None:
        """The reading of a clock."""
        return next((reading for reading in self.readings if reading.clock == clock), None)


class LocalTimes(Struct, frozen=True):
    """The packets whose clocks are of one sequence only, by number, with times by a clock that all sequences know."""

    packet: Int64s
    clock: Int64s
    time: Int64s


class PacketRows(Table, frozen=True):
    """Packets with a time."""

    packet: Int64s
    sequence: Int64s
    state: Int32s
    clock: npt.NDArray[np.int16]
    time: Int64s


class Clocks(Struct):
    """The clocks of a file."""

    snapshots: list[Snapshot] = field(default_factory=list)
    local: list[tuple[Int64s, Int64s, Int64s, Int64s]] = field(default_factory=list)
    """Packets with clocks of one sequence: number, sequence, clock, and time, which may count from the one before."""
    _resolved: LocalTimes | None = None

    def add(
        self, octets: Octets, packets: Fields, sequence: Int64s, clock: Int64s, time: Int64s, first: int
    ) -> None:
        """Adds the snapshots and the times of a batch whose first packet has this number."""
        owner, read = find_fields(packets, Packet.CLOCK_SNAPSHOT)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            readings = [*_readings(octets.data, begin, end)]
            self.snapshots.append(Snapshot(first + row, int(sequence[row]), readings))
        rows = np.flatnonzero((clock >= FIRST_LOCAL) & (clock <= LAST_LOCAL) & (time >= 0))
        if len(rows):
            self.local.append((first + rows, sequence[rows], clock[rows], time[rows]))

    def unix_times(self, packets: PacketRows) -> tuple[Int64s, bool]:
        """The time of each packet in ns, NO_TIME if its clock is unknown; and whether these count from 1970."""
        clock, known = packets.clock, packets.time.copy()
        common = np.where(clock == 0, BOOTTIME, clock).astype(np.int64)
        rows = np.flatnonzero((clock >= FIRST_LOCAL) & (clock <= LAST_LOCAL))
        if len(rows):
            local = self._resolved = self._resolved or self._local_times()
            place = np.searchsorted(local.packet, packets.packet[rows])
            common[rows], known[rows] = local.clock[place], local.time[place]
        counts = self._to_unix(common, known)
        known[(known != NO_TIME) & ((known < 0) | (known > LATEST))] = NO_TIME
        return known, counts

    def _local_times(self) -> LocalTimes:
        """All packets with clocks of one sequence."""
        packet, sequence, clock, time = (np.concatenate(columns) for columns in zip(*self.local, strict=True))
        found: dict[tuple[int, int], list[tuple[int, Reading, Reading]]] = defaultdict(list)
        for snapshot in self.snapshots:
            if other := _common(snapshot):
                for reading in snapshot.readings:
                    found[snapshot.sequence, reading.clock].append((snapshot.packet, reading, other))
        code, first = distinct(sequence, clock)
        order = np.argsort(code, kind="stable")
        bounds = np.searchsorted(code[order], np.arange(len(first) + 1)).tolist()
        common, unix = np.zeros(len(packet), np.int64), np.full(len(packet), NO_TIME)
        for number, row in enumerate(first.tolist()):
            if readings := found.get((int(sequence[row]), int(clock[row]))):
                own = order[bounds[number] : bounds[number + 1]]
                common[own], unix[own] = _by_snapshots(packet[own], time[own], readings)
        return LocalTimes(packet, common, unix)

    def _to_unix(self, clock: Int64s, times: Int64s) -> bool:
        """Converts times to the clock of the day; whether that is known for all. Others stay as they are."""
        pairs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for snapshot in self.snapshots:
            if real := snapshot.of(REALTIME):
                for reading in snapshot.readings:
                    pairs[reading.clock].append((reading.time, real.time))
        order = np.argsort(clock, kind="stable")
        order = order[times[order] != NO_TIME]
        ordered = clock[order]
        counts = True
        for rows in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1) if len(order) else ():
            own_clock = int(clock[rows[0]])
            if own_clock == REALTIME:
                continue
            if own_clock not in pairs:
                counts &= int(times[rows].min()) >= UNIX_SINCE
                continue
            own, real = np.array(sorted(pairs[own_clock]), np.int64).T
            which = np.maximum(np.searchsorted(own, times[rows], side="right") - 1, 0)
            times[rows] += (real - own)[which]
        return counts


def _by_snapshots(
    packets: Int64s, values: Int64s, found: Sequence[tuple[int, Reading, Reading]]
) -> tuple[Int64s, Int64s]:
    """The common clock of packets of one local clock, and their times by it; NO_TIME before the first snapshot."""
    starts = np.array([number for number, _, _ in found], np.int64)
    which = np.searchsorted(starts, packets, side="right") - 1
    before = which < 0
    which = np.maximum(which, 0)
    unit = np.array([reading.unit for _, reading, _ in found], np.int64)[which]
    base = np.array([reading.time for _, reading, _ in found], np.int64)[which]
    incremental = np.array([reading.incremental for _, reading, _ in found], np.bool_)[which]
    total = np.cumsum(np.where(incremental & ~before, values * unit, 0))
    first = np.searchsorted(which, which)
    summed = base + total - np.where(first > 0, total[first - 1], 0)
    own = np.where(incremental, summed, values * unit)
    other_time = np.array([other.time for _, _, other in found], np.int64)[which]
    other_clock = np.array([other.clock for _, _, other in found], np.int64)[which]
    return np.where(before, 0, other_clock), np.where(before, NO_TIME, own - base + other_time)


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
