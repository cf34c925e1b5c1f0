"""Sampled metrics of GPUs and memory in use as counters of the processes that use the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink._model.events import BYTES, Counters, Track, TrackKind
from tracelink.converters.nsys.activities import pid_of
from tracelink.converters.nsys.database import Database, known
from tracelink.converters.nsys.schema import LONGEST_NS

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
        usable: Bools = (time >= 0) & (time <= LONGEST_NS)
        samples = self.processes.setdefault(pid, Samples())
        samples.add(track, time[usable] + self.zero_ns, value[usable])


def _groups(first: Int64s, second: Int64s) -> Iterator[tuple[int, int, Int64s]]:
    """The rows of each pair of values."""
    order = np.lexsort((second, first))
    changes = np.flatnonzero((np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)) + 1
    for rows in np.split(order, changes):
        if len(rows):
            yield int(first[rows[0]]), int(second[rows[0]]), rows
