"""Rows of CUPTI tables as events of processes: work on streams, calls, waits; and samples as counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.system import append, read_into_at, temporary_file
from tracelink._model.columns import (
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    StringTable,
    UInt8s,
    distinct,
    stable_order,
)
from tracelink._model.events import BYTES, Counters, EventKind, Key, KeyColumn, Track, TrackKind
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.database import Database, identifier, known

# Events of all processes of an export, stored outside memory process by process until their rank is read.

COLUMNS = {
    "kind": np.uint8,
    "name": np.int32,
    "track": np.int32,
    "start": np.int64,
    "duration": np.int64,
    "row": np.int64,
}
"""Columns of stored events, with their types; `row` is the number of the row in its table."""


class Rows(Struct, frozen=True):
    """Events of any processes, which are rows of one table."""

    pid: Int64s
    columns: Mapping[str, npt.NDArray[Any]]
    keys: Mapping[Key, Int64s] = field(default_factory=dict)
    """Link keys of all rows; UNKNOWN for those without one."""


class Stored(Struct):
    """The events of one process: where their columns are in the spool."""

    spool: BinaryIO
    count: int = 0
    columns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The offset and the number of values of each part of a column."""
    keys: dict[Key, list[tuple[int, int, int]]] = field(default_factory=dict)
    """The offset and the number of rows, and of values behind them, and the first event that they count from."""
    tables: list[tuple[str, int]] = field(default_factory=list)
    """The tables in the order of events, each with the number of its events."""

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of all events."""
        return self._joined(self.columns.get(name, []), np.dtype(COLUMNS[name]))

    def key(self, key: Key) -> KeyColumn:
        """The events that have a link key."""
        rows = [
            self._read(offset, count, np.dtype(np.int64)) + first for offset, count, first in self.keys[key]
        ]
        values = [
            self._read(offset + 8 * count, count, np.dtype(np.int64)) for offset, count, _ in self.keys[key]
        ]
        return KeyColumn(np.concatenate(rows), np.concatenate(values))

    def add(self, table: str, columns: Mapping[str, npt.NDArray[Any]], keys: Mapping[Key, Int64s]) -> None:
        """Appends events, which are rows of a table."""
        count = len(columns["kind"])
        for name, values in columns.items():
            array = np.ascontiguousarray(values, COLUMNS[name])
            self.columns.setdefault(name, []).append((self._write(array), count))
        for key, dense in keys.items():
            rows = np.flatnonzero(dense != UNKNOWN)
            if len(rows):
                place = self._write(np.concatenate([rows, dense[rows]]))
                self.keys.setdefault(key, []).append((place, len(rows), self.count))
        self.count += count
        if self.tables and self.tables[-1][0] == table:
            self.tables[-1] = (table, self.tables[-1][1] + count)
        else:
            self.tables.append((table, count))

    def _joined(self, parts: Sequence[tuple[int, int]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        whole = np.empty(sum(count for _, count in parts), dtype)
        done = 0
        for offset, count in parts:
            read_into_at(self.spool.fileno(), whole[done : done + count].view(np.uint8).data, offset)
            done += count
        return whole

    def _read(self, offset: int, count: int, dtype: np.dtype[Any]) -> Int64s:
        return cast(Int64s, self._joined([(offset, count)], dtype))

    def _write(self, array: npt.NDArray[Any]) -> int:
        return append(self.spool.fileno(), [array])


class Collector(Struct):
    """Collects the events of an export, and the names and tracks that they use."""

    names: StringTable = field(default_factory=StringTable)
    tracks: dict[Track, int] = field(default_factory=dict)
    processes: dict[int, Stored] = field(default_factory=dict)
    """By pid."""
    spool: BinaryIO = field(default_factory=temporary_file)

    def track(self, track: Track) -> int:
        """The number of a track."""
        return self.tracks.setdefault(track, len(self.tracks))

    def add(self, table: str, rows: Rows) -> None:
        """Adds events to their processes, in their order."""
        pids, which = coded(rows.pid)
        columns, keys = rows.columns, rows.keys
        if len(pids) > 1:
            order = stable_order(which)
            columns = {name: values[order] for name, values in columns.items()}
            keys = {key: values[order] for key, values in keys.items()}
        ends = np.cumsum(np.bincount(which, minlength=len(pids))).tolist()
        for pid, begin, end in zip(pids.tolist(), [0, *ends], ends, strict=False):
            mine = slice(begin, end)
            self.processes.setdefault(pid, Stored(self.spool)).add(
                table,
                {name: values[mine] for name, values in columns.items()},
                {key: values[mine] for key, values in keys.items()},
            )


def coded(values: Int64s) -> tuple[Int64s, Int64s]:
    """The different values in order, and for each value its index among them: fast if few are different."""
    different = np.unique(values)
    return different, np.searchsorted(different, values)


# Tables of CUPTI.

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


# Sampled metrics of GPUs and memory in use as counters of the processes that use the GPUs.

METRICS, METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
DEVICES = "TARGET_INFO_CUDA_DEVICE"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"

GPU_MASK = 0xFFFFFFFF
"""The low bits of the type of a metric are the number of its GPU."""
ALLOCATION, RELEASE = 0, 1
HOST_KINDS = (0, 1)
"""Kinds of memory of the host: pageable and pinned."""


class Samples(Struct):
    """The samples of the counters of one process."""

    tracks: list[Track] = field(default_factory=list)
    parts: list[Counters] = field(default_factory=list)

    def add(self, track: Track, time: Int64s, value: Int64s) -> None:
        """Adds the samples of a counter."""
        if track not in self.tracks:
            self.tracks.append(track)
        number = self.tracks.index(track)
        self.parts.append(Counters(np.full(len(time), number, np.int32), time, value.astype(np.float64)))

    def counters(self, first_track: int) -> Counters:
        """All samples in order of time, with tracks numbered from `first_track`."""
        whole = Counters.concatenate(self.parts)
        whole = whole.take(np.lexsort((whole.time, whole.track)))
        return Counters(whole.track + np.int32(first_track), whole.time, whole.value)


class Sampled(Struct):
    """The counters of all processes of an export."""

    database: Database
    zero_ns: int
    device_of: Mapping[tuple[int, int], int]
    """The device of each context of a process."""
    processes: dict[int, Samples] = field(default_factory=dict)
    unowned: int = 0
    """Number of samples of GPUs that no process uses."""

    def read(self) -> None:
        """Reads both tables, as far as they are there."""
        if self.database.has(METRICS, "timestamp", "typeId", "metricId", "value"):
            self._read_metrics()
        if self.database.has(MEMORY, "start", "globalPid", "deviceId", "bytes", "memoryOperationType"):
            self._read_memory()

    def _read_metrics(self) -> None:
        names = self._metric_names()
        owners = self._owners()
        columns = [known(name) for name in ("timestamp", "typeId", "metricId", "value")]
        for block in self.database.blocks(METRICS, columns):
            _, time, kind, metric, value = block
            for gpu, number, rows in _groups(kind, metric):
                if gpu & GPU_MASK not in owners:
                    self.unowned += len(rows)
                    continue
                pid, device = owners[gpu & GPU_MASK]
                name = names.get((gpu, number)) or names.get((UNKNOWN, number)) or f"metric {number}"
                self._add(pid, device, name, "", time[rows], value[rows])

    def _metric_names(self) -> dict[tuple[int, int], str]:
        """The names of metrics by type and number; by number alone where the type is not listed."""
        rows = self.database.rows(METRIC_NAMES, "typeId", "metricId", "metricName")
        named = [(kind, number, name) for kind, number, name in rows if isinstance(name, str)]
        return {(UNKNOWN, number): name for _, number, name in named} | {
            (kind, number): name for kind, number, name in named
        }

    def _owners(self) -> dict[int, tuple[int, int]]:
        """The process that uses each GPU, and its number of it: as recorded, else by equal numbers."""
        recorded = {
            gpu: (pid, device)
            for gpu, device, pid in self.database.rows(DEVICES, "gpuId", "cudaId", "pid")
            if all(isinstance(number, int) for number in (gpu, device, pid))
        }
        assumed = {device: (pid, device) for (pid, _), device in sorted(self.device_of.items(), reverse=True)}
        return assumed | recorded

    def _read_memory(self) -> None:
        kind_known = self.database.has(MEMORY, "memKind")
        columns = [known(name) for name in ("start", "globalPid", "deviceId", "bytes", "memoryOperationType")]
        columns.append(known("memKind") if kind_known else str(UNKNOWN))
        blocks = list(self.database.blocks(MEMORY, columns))
        if not blocks:
            return
        _, time, process, device, size, operation, kind = (
            np.concatenate(parts) for parts in zip(*blocks, strict=True)
        )
        change = np.where(operation == ALLOCATION, size, np.where(operation == RELEASE, -size, 0))
        order = np.argsort(time, kind="stable")
        order = order[~np.isin(kind[order], HOST_KINDS)]
        for pid, number, rows in _groups(pid_of(process)[order], device[order]):
            mine = order[rows]
            self._add(pid, number, "memory in use", BYTES, time[mine], np.cumsum(change[mine]))

    def _add(self, pid: int, device: int, name: str, unit: str, time: Int64s, value: Int64s) -> None:
        label = f"GPU {device} {name}"
        track = Track(TrackKind.COUNTER, str(device), label, label, unit=unit)
        usable: Bools = (time >= 0) & (time <= schema.LONGEST_NS)
        samples = self.processes.setdefault(pid, Samples())
        samples.add(track, time[usable] + self.zero_ns, value[usable])


def _groups(first: Int64s, second: Int64s) -> Iterator[tuple[int, int, Int64s]]:
    """The rows of each pair of values."""
    order = np.lexsort((second, first))
    changes = np.flatnonzero((np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)) + 1
    for rows in np.split(order, changes):
        if len(rows):
            yield int(first[rows[0]]), int(second[rows[0]]), rows
