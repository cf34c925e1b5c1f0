"""Rows of CUPTI tables as events: work on streams, calls of runtime and driver, waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Int32s, Int64s, UInt8s, distinct
from tracelink._model.events import EventKind, Key, Track, TrackKind
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.collected import Collector, Rows, coded
from tracelink.converters.nsys.database import Database, identifier, known

VERSION_SUFFIX = re.compile(r"_v\d+(?=_pt|$)")
"""`cudaLaunchKernel_v7000`: the version of the interface."""


NO_STREAM = 0xFFFFFFFF
"""The stream of waits that are for an event, not for a stream."""


class Names(Struct):
    """Codes of names by their ids in the database, which are looked up when they are first used."""

    database: Database
    collector: Collector
    codes: dict[int, int] = field(default_factory=dict)
    missing: int = 0
    """Number of ids without a string."""

    def of_ids(self, ids: Int64s, shown: Callable[[str], str] = str) -> Int32s:
        """The codes of names with these ids."""
        different, which = coded(ids)
        new = np.array([number for number in different.tolist() if number not in self.codes], np.int64)
        texts = self.database.strings(schema.STRINGS, new)
        for number in new.tolist():
            text = texts.get(number)
            self.missing += text is None
            self.codes[number] = self.collector.names[f"string {number}" if text is None else shown(text)]
        return np.array([self.codes[number] for number in different.tolist()], np.int32)[which]

    def of_numbers(self, numbers: Int64s, words: Callable[[int], str]) -> Int32s:
        """The codes of the names that numbers stand for."""
        different, which = coded(numbers)
        return np.array([self.collector.names[words(number)] for number in different.tolist()], np.int32)[
            which
        ]


class Lanes(Struct):
    """Tracks by the numbers of which they consist."""

    collector: Collector
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    """Names of threads by process and thread."""

    def name(self, thread: int, name: str) -> None:
        """Sets the name of the thread with a global id."""
        self.names[thread >> schema.TID_BITS & schema.PID_MASK, thread & schema.TID_MASK] = name

    def threads(self, threads: Int64s) -> Int32s:
        """The track of each thread."""
        different, which = coded(threads)
        return np.array([self.collector.track(_thread(one)) for one in different.tolist()], np.int32)[which]

    def streams(self, device: Int64s, stream: Int64s, *, waits: bool = False) -> Int32s:
        """The track of each stream of each device; that of waits for it if these are asked for."""
        which, first = distinct(device, stream)
        pairs = zip(device[first].tolist(), stream[first].tolist(), strict=True)
        numbers = [self.collector.track(_stream(*pair, waits=waits)) for pair in pairs]
        return np.array(numbers, np.int32)[which]

    def labelled(self, track: Track) -> Track:
        """The track with the name to show."""
        if track.kind != TrackKind.THREAD:
            return track
        pid, tid = int(track.process), int(track.identity.partition(" ")[0])
        if pid == tid:
            return replace(track, label=f"nsys main thread {tid}")
        return replace(track, label=f"nsys thread {tid} {self.names.get((pid, tid), '')}".strip())


def _thread(thread: int) -> Track:
    pid, tid = thread >> schema.TID_BITS & schema.PID_MASK, thread & schema.TID_MASK
    return Track(TrackKind.THREAD, str(pid), f"{tid} nsys", sort=-int(pid == tid))


def _stream(device: int, stream: int, *, waits: bool) -> Track:
    if not waits:
        return Track(TrackKind.STREAM, str(device), str(stream), f"stream {stream}")
    label = "event synchronisation" if stream == NO_STREAM else f"stream {stream} synchronisation"
    return Track(TrackKind.STREAM, str(device), f"{stream} waits", label, sort=1)


def pid_of(numbers: Int64s) -> Int64s:
    """The process in ids of threads or processes."""
    return (numbers >> schema.PID_BITS) & schema.PID_MASK


class Activities(Struct):
    """Reads the tables of CUPTI."""

    database: Database
    collector: Collector
    names: Names
    lanes: Lanes
    zero_ns: int
    device_of: dict[tuple[int, int], int] = field(default_factory=dict)
    """The device of each context of a process: rows of waits always have device 0."""
    unusable: int = 0
    """Number of rows without a time within the session."""

    def read(self) -> None:
        """Reads all tables that are there."""
        for table in schema.DEVICE_TABLES:
            self._read(table, self._add_work, ("globalPid", "deviceId", "streamId", "contextId"))
        self._read(schema.CALLS, self._add_calls, ("globalTid", "nameId"))

    def read_system_calls(self) -> None:
        """Reads what the operating system was asked for."""
        self._read(schema.SYSTEM_CALLS, self._add_calls, ("globalTid", "nameId"))

    def _read(self, table: str, add: Callable[[str, Sequence[Int64s]], None], needed: Sequence[str]) -> None:
        if table not in self.database.tables:
            return
        if not self.database.has(table, "start", "end", *needed):
            self.database.damage[table] = f"it has not all of the columns start, end, {', '.join(needed)}"
            return
        numbers = [known(name) for name in ("start", "end", *needed)]
        numbers.append(self._optional(table, "correlationId"))
        numbers.append(self._name(table))
        for block in self.database.blocks(table, numbers):
            add(table, block)

    def _optional(self, table: str, *columns: str) -> str:
        """SQL of the first of these columns that the table has and that has a value."""
        there = [identifier(name) for name in columns if self.database.has(table, name)]
        return f"coalesce({', '.join([*there, str(UNKNOWN)])})" if there else str(UNKNOWN)

    def _name(self, table: str) -> str:
        """SQL of the number that stands for the name of an event."""
        columns = {
            schema.KERNELS: ("demangledName", "shortName", "mangledName"),
            schema.COPIES: ("copyKind",),
            schema.WAITS: ("syncType", "deprecatedSyncType"),
        }
        return self._optional(table, *columns.get(table, ()))

    def _add_work(self, table: str, block: Sequence[Int64s]) -> None:
        row, start, end, process, device, stream, context, correlation, name = block
        pid = pid_of(process)
        if table == schema.WAITS:
            device = self._devices(pid, context, device)
        else:
            self._learn(pid, context, device)
        kind = schema.DEVICE_TABLES[table]
        track = self.lanes.streams(device, stream, waits=kind == EventKind.SYNCHRONIZATION)
        columns = (self._device_names(table, name), track, row, start, end)
        self.add(table, pid, kind, columns, {Key.CORRELATION: correlation})

    def _device_names(self, table: str, name: Int64s) -> Int32s:
        if table == schema.KERNELS:
            return self.names.of_ids(name)
        words: dict[str, Callable[[int], str]] = {
            schema.COPIES: lambda kind: schema.COPY_KINDS.get(kind, schema.COPY_KINDS[0]),
            schema.FILLS: lambda _: schema.FILL,
            schema.GRAPHS: lambda _: schema.GRAPH,
            schema.WAITS: lambda kind: schema.WAIT_KINDS.get(kind, "Synchronization"),
        }
        return self.names.of_numbers(name, words[table])

    def _add_calls(self, table: str, block: Sequence[Int64s]) -> None:
        row, start, end, thread, name, correlation, _ = block
        kind = EventKind.RUNTIME if table == schema.CALLS else EventKind.OTHER
        shown = self.names.of_ids(name, lambda text: VERSION_SUFFIX.sub("", text))
        columns = (shown, self.lanes.threads(thread), row, start, end)
        self.add(
            table,
            pid_of(thread),
            kind,
            columns,
            {Key.CORRELATION: correlation} if table == schema.CALLS else {},
        )

    def add(
        self,
        table: str,
        pid: Int64s,
        kind: EventKind | UInt8s,
        columns: Sequence[npt.NDArray[Any]],
        keys: Mapping[Key, Int64s],
    ) -> None:
        """Adds events; `columns` are name, track, number of the row, start and end in the session."""
        name, track, row, start, end = columns
        usable = (start >= 0) & (start <= schema.LONGEST_NS) & (end <= schema.LONGEST_NS)
        whole = {
            "kind": np.broadcast_to(np.asarray(kind, np.uint8), len(row)),
            "name": name,
            "track": track,
            "start": start + self.zero_ns,
            "duration": np.where(end < start, UNKNOWN, end - start),
            "row": row,
        }
        if not usable.all():
            self.unusable += len(row) - int(np.count_nonzero(usable))
            whole = {key: values[usable] for key, values in whole.items()}
            pid, keys = pid[usable], {key: values[usable] for key, values in keys.items()}
        self.collector.add(table, Rows(pid, whole, keys))

    def _learn(self, pid: Int64s, context: Int64s, device: Int64s) -> None:
        _, first = distinct(pid, context, device)
        for row in first.tolist():
            self.device_of.setdefault((int(pid[row]), int(context[row])), int(device[row]))

    def _devices(self, pid: Int64s, context: Int64s, device: Int64s) -> Int64s:
        """The device of each context, if it did any work, else the recorded one."""
        which, first = distinct(pid, context, device)
        contexts = zip(pid[first].tolist(), context[first].tolist(), device[first].tolist(), strict=True)
        devices = [self.device_of.get((owner, number), recorded) for owner, number, recorded in contexts]
        return np.array(devices, np.int64)[which]
