"""Metrics as counters of ranks: of which ranks the devices are, and which samples are of the job's time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.names import host_in_path
from tracelink._io.sources import Source
from tracelink._join.metric_times import Witness, timed
from tracelink._join.reading import Task, read_each
from tracelink._model.columns import Int64s
from tracelink._model.events import Counters, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.metrics import Basis, Gauge, Metrics, Readings
from tracelink._model.text import counted
from tracelink._model.trace import NoPayloads, RankTrace, SourceInfo, combine
from tracelink.plugins import Content

NO_RANK = -1
SHORTEST_UUID = 8
"""Characters by which a map can name a UUID."""
SHOWN = 8
"""Devices that a finding lists."""


def read_metrics(
    tasks: Sequence[Task], engine: Engine, findings: list[Finding]
) -> list[tuple[Source, Readings]]:
    """What each file of metrics says; files that cannot be read are findings."""

    def read(task: Task, inner: Engine) -> Readings:
        return task.reader.read_metrics(task.source, inner)

    # a folder can contain tables of anything
    results = read_each(tasks, engine, read, skip=True)
    findings += [result for result in results if isinstance(result, Finding)]
    return [
        (task.source, result)
        for task, result in zip(tasks, results, strict=True)
        if isinstance(result, Readings)
    ]


def inspected(
    tasks: Sequence[Task],
    engine: Engine,
    others: tuple[Sequence[SourceInfo], Sequence[frozenset[str]]],
    options: Metrics | None,
    findings: list[Finding],
) -> list[tuple[SourceInfo, Source]]:
    """One source for each file of metrics that can be read; `others` are the other sources, and their GPUs."""
    witnesses = _witnesses(*others)
    files = read_metrics(tasks, engine, findings)
    traces, found = placed(files, witnesses, options)
    findings += found
    of_path: defaultdict[str, list[RankTrace]] = defaultdict(list)
    for trace in traces:
        of_path[trace.source.path].append(trace)
    return [(_whole(readings.source, of_path[source.path]), source) for source, readings in files]


def differing_gpus(
    tasks: Sequence[Task], infos: Sequence[SourceInfo], options: Metrics | None, engine: Engine
) -> tuple[list[str], list[Finding]]:
    """Notes on GPUs that run differently from the others, and findings; `infos` are other sources of the ranks."""
    from tracelink._join.deviations import deviating

    findings: list[Finding] = []
    sampled = [task for task in tasks if task.content is Content.METRICS]
    witnesses = _witnesses(infos, [frozenset()] * len(infos))
    traces, placing = placed(read_metrics(sampled, engine, findings), witnesses, options)
    findings += placing
    if not traces:
        return [], findings
    samples = combine(traces)
    return [note.message for note in deviating(samples.tracks, samples.counters)], findings


def _witnesses(infos: Sequence[SourceInfo], gpus: Sequence[frozenset[str]]) -> list[Witness]:
    """The ranks of these sources; of sources without a rank, rank 0."""
    witnesses = []
    for rank in sorted({info.rank for info in infos if info.rank is not None}):
        mine = [(info, devices) for info, devices in zip(infos, gpus, strict=True) if info.rank == rank]
        own = [info for info, _ in mine]
        firsts = [info.start_ns for info in own if info.start_ns is not None]
        lasts = [info.end_ns for info in own if info.end_ns is not None]
        devices = frozenset[str]().union(*(used for _, used in mine))
        witnesses.append(Witness.of(rank, own, devices, min(firsts, default=None), max(lasts, default=None)))
    unranked = [info for info in infos if info.rank is None]
    if not witnesses and unranked:
        firsts = [info.start_ns for info in unranked if info.start_ns is not None]
        lasts = [info.end_ns for info in unranked if info.end_ns is not None]
        devices = frozenset[str]().union(*gpus)
        witnesses.append(
            Witness.of(0, unranked, devices, min(firsts, default=None), max(lasts, default=None))
        )
    return witnesses


def _whole(source: SourceInfo, traces: Sequence[RankTrace]) -> SourceInfo:
    """A file as one source; it has a rank and a host if all of its counters have the same."""
    parts = [trace.source for trace in traces]
    ranks = {track.rank if not track.process_label else None for trace in traces for track in trace.tracks}
    hosts = {part.host for part in parts}
    starts = [part.start_ns for part in parts if part.start_ns is not None]
    ends = [part.end_ns for part in parts if part.end_ns is not None]
    return replace(
        source,
        rank=ranks.pop() if len(ranks) == 1 else None,
        host=hosts.pop() if len(hosts) == 1 else "",
        records=sum(part.records for part in parts),
        start_ns=min(starts, default=None),
        end_ns=max(ends, default=None),
    )


def placed(
    files: Sequence[tuple[Source, Readings]], witnesses: Sequence[Witness], options: Metrics | None
) -> tuple[list[RankTrace], list[Finding]]:
    """The counters of each file, as one trace for each rank that has some, and findings.

    What belongs to no rank, such as metrics of a host, is given to the lowest rank of the host, in a process of its
    own. Without any rank it is given to rank 0.
    """
    options = options or Metrics()
    findings: list[Finding] = []
    indexes = _indexes(gauge for _, readings in files for gauge in readings.gauges)
    traces: list[RankTrace] = []
    used: set[str] = set()
    for source, readings in files:
        if readings.basis is Basis.START and options.start is None and not source.named:
            # a folder can contain tables with seconds of anything, such as losses of a training
            message = (
                f"{source.path}: skipped, its times do not say when they start. Give --metrics-start TIME."
            )
            findings.append(Finding(Severity.INFO, "skipped", message, source=source.path))
            continue
        findings += readings.findings
        named = {gauge.host for gauge in readings.gauges} - {""}
        host = named.pop() if len(named) == 1 else host_in_path(source.path)
        gauges = [_completed(gauge, host, witnesses, indexes) for gauge in readings.gauges]
        hosts = {gauge.host for gauge in gauges}
        seen = [witness for witness in witnesses if any(is_same_host(witness.host, host) for host in hosts)]
        times = timed(readings, seen or witnesses, options, findings)
        if times is None:
            continue
        owners = _Owners(source, witnesses, options, used).of(gauges, findings)
        traces += _traces(readings, gauges, owners, witnesses, times)
    if unused := options.map.keys() - used:
        message = (
            f"--map names {', '.join(sorted(unused)[:SHOWN])}, which no metrics are of. Devices are named by their "
            "index, by host and index (node1:0), or by UUID."
        )
        severity = Severity.INFO if used else Severity.WARNING
        findings.append(Finding(severity, "unused_map", message, len(unused)))
    return traces, findings


def is_same_host(one: str, other: str) -> bool:
    """Whether two names are of one host: one of them can be without its domain."""
    first, second = one.lower(), other.lower()
    if first == second:
        return True
    short = "." not in first or "." not in second
    return bool(one and other) and short and first.partition(".")[0] == second.partition(".")[0]


# What a gauge leaves open: the host, and the index of a device of which only the UUID is known.


def _indexes(gauges: Iterable[Gauge]) -> dict[str, str]:
    """The index of each device that is named by both."""
    return {gauge.uuid: gauge.device for gauge in gauges if gauge.uuid and gauge.device}


def _completed(
    gauge: Gauge, host_of_file: str, witnesses: Sequence[Witness], indexes: Mapping[str, str]
) -> Gauge:
    host = gauge.host or host_of_file
    hosts = {witness.host for witness in witnesses}
    if len(hosts) == 1 and not host:
        host = min(hosts)
    known = next((witness.host for witness in witnesses if is_same_host(witness.host, host)), host)
    return replace(gauge, host=known, device=gauge.device or indexes.get(gauge.uuid, ""))


# Ranks of gauges.


class _Owners(Struct, frozen=True):
    """Finds the rank of each gauge of one file."""

    source: Source
    witnesses: Sequence[Witness]
    options: Metrics
    used: set[str]
    """Keys of the map that named a device; more are added."""

    def of(self, gauges: Sequence[Gauge], findings: list[Finding]) -> list[int]:
        """The rank of each gauge, NO_RANK if there is none."""
        uuids = {(gauge.host, gauge.device): gauge.uuid for gauge in gauges if gauge.device and gauge.uuid}
        device_of = {gauge: _device(gauge, uuids) for gauge in gauges if gauge.of_device}
        devices = sorted(set(device_of.values()), key=_device_order)
        found = {device: self._of_device(device, devices) for device in devices}
        self._report({device: rank for device, (rank, _) in found.items()}, found, findings)
        return [
            found[device_of[gauge]][0] if gauge.of_device and gauge.rank is None else self._of_process(gauge)
            for gauge in gauges
        ]

    def _of_process(self, gauge: Gauge) -> int:
        """The rank that a gauge or the user states, or that of the process."""
        if self.source.rank is not None:
            return self.source.rank
        if gauge.rank is not None:
            return gauge.rank
        ranks = {
            witness.rank for witness in self.witnesses if gauge.pid is not None and gauge.pid in witness.pids
        }
        return ranks.pop() if len(ranks) == 1 else NO_RANK

    def _of_device(self, device: _Device, devices: Sequence[_Device]) -> tuple[int, str]:
        """The rank of a device, and what it is known from."""
        if (mapped := self._mapped(device)) is not None:
            return mapped, "--map"
        if self.source.rank is not None:
            return self.source.rank, "--rank"
        hint = self.source.rank_hint
        if hint and hint.certain and len(devices) == 1:
            return hint.rank, "the file name"
        host, index, _ = device
        here = sorted(
            (witness for witness in self.witnesses if witness.host == host or not witness.host),
            key=lambda witness: witness.rank,
        )
        among = [other for other in devices if other[0] == host]
        different = len({witness.devices for witness in here}) > 1 or len(here) == 1
        using = [witness for witness in here if index in witness.devices]
        if index and different and len(using) == 1:
            return using[0].rank, "the number of the device in its profile"
        if len(here) == len(among) and not (different and any(witness.devices for witness in here)):
            return here[among.index(device)].rank, "the order of the ranks of the host"
        return NO_RANK, ""

    def _mapped(self, device: _Device) -> int | None:
        host, index, uuid = device
        names = (host, host.partition(".")[0], self.source.path, self.source.name)
        wanted = [uuid.lower(), *(f"{name.lower()}:{index}" for name in names if name), index]
        for key in self.options.map:
            if len(key) >= SHORTEST_UUID and uuid.lower().startswith(key):
                wanted.insert(0, key)
        found = next((key for key in wanted if key and key in self.options.map), None)
        if found is None:
            return None
        self.used.add(found)
        return self.options.map[found]

    def _report(
        self, ranks: Mapping[_Device, int], found: Mapping[_Device, tuple[int, str]], findings: list[Finding]
    ) -> None:
        path = self.source.path
        known: defaultdict[str, list[str]] = defaultdict(list)
        for device, (rank, why) in found.items():
            if rank != NO_RANK:
                known[why].append(f"{_device_in_words(device)} is rank {rank}")
        for why, pairs in known.items():
            listed = ", ".join(pairs[:SHOWN]) + (", …" if len(pairs) > SHOWN else "")
            overruled = "" if why in ("--map", "--rank") else " --map overrules it."
            message = f"{path}: {listed}, by {why}.{overruled}"
            findings.append(Finding(Severity.INFO, "device_ranks", message, source=path))
        lost = [device for device, rank in ranks.items() if rank == NO_RANK]
        if lost:
            listed = ", ".join(map(_device_in_words, lost[:SHOWN])) + (", …" if len(lost) > SHOWN else "")
            example = _example(lost)
            message = (
                f"{path}: the ranks of {counted(len(lost), 'GPU')} are unknown ({listed}); their counters are shown by "
                f"host and GPU. Say which rank each is, such as --map {example}"
            )
            findings.append(Finding(Severity.WARNING, "unmapped_devices", message, len(lost), path))


_Device = tuple[str, str, str]
"""Host, index and UUID."""


def _device(gauge: Gauge, uuids: Mapping[tuple[str, str], str]) -> _Device:
    return gauge.host, gauge.device, gauge.uuid or uuids.get((gauge.host, gauge.device), "")


def _example(devices: Sequence[_Device]) -> str:
    """What `--map` could be for these devices."""
    host, index, uuid = devices[0]
    if not index.isdecimal():
        return f"{index or uuid}=0"
    first, count = int(index), 1
    while count < len(devices) and devices[count][:2] == (host, str(first + count)):
        count += 1
    numbers, ranks = (f"{low}-{low + count - 1}" if count > 1 else str(low) for low in (first, 0))
    return f"{host}:{numbers}={ranks}" if host else f"{numbers}={ranks}"


def _device_order(device: _Device) -> tuple[str, int, str, str]:
    host, index, uuid = device
    return host, int(index) if index.isdecimal() else 1 << 30, index, uuid


def _device_in_words(device: _Device) -> str:
    host, index, uuid = device
    name = f"GPU {index}" if index else uuid
    return f"{name} of {host}" if host else name


# From readings to traces.


def _traces(
    readings: Readings,
    gauges: Sequence[Gauge],
    owners: Sequence[int],
    witnesses: Sequence[Witness],
    times: tuple[Int64s, Int64s],
) -> list[RankTrace]:
    """A trace for each rank; `times` are the rows that are used, and their times."""
    rows, time = times
    homes = [_home(gauge, rank, witnesses) for gauge, rank in zip(gauges, owners, strict=True)]
    home = np.array(homes, np.int64)
    track = readings.counters.track[rows]
    owner = home[track] if len(track) else np.empty(0, np.int64)
    devices = {witness.rank: witness.devices for witness in witnesses}
    found = []
    for rank in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == rank)
        used, own_track = np.unique(track[mine], return_inverse=True)
        tracks = [
            _track(gauges[number], owners[number], rank, devices.get(rank, frozenset()))
            for number in used.tolist()
        ]
        counters = Counters(own_track.astype(np.int32), time[mine], readings.counters.value[rows[mine]])
        hosts = {gauges[number].host for number in used.tolist()}
        info = _info(readings.source, rank, min(hosts) if len(hosts) == 1 else "", counters)
        found.append(RankTrace([info], tracks=tracks, counters=counters, payloads=[NoPayloads()]))
    return found


def _home(gauge: Gauge, rank: int, witnesses: Sequence[Witness]) -> int:
    """The rank in whose part a gauge is stored: its own, else the lowest of its host, else the lowest of all."""
    if rank != NO_RANK:
        return rank
    here = [witness.rank for witness in witnesses if witness.host == gauge.host]
    return min(here or [witness.rank for witness in witnesses], default=0)


def _track(gauge: Gauge, rank: int, home: int, devices: frozenset[str]) -> Track:
    """A counter in the process of the rank's device; that of a host or of a device without rank has its own process."""
    owner = ""
    if rank == NO_RANK:
        host = f"host {gauge.host}".strip()
        owner = f"GPU {gauge.device or gauge.uuid} · {host}" if gauge.of_device else host
        process = owner
    elif gauge.of_device:
        process = min(devices) if len(devices) == 1 else gauge.device or gauge.uuid
    else:
        process = "" if gauge.pid is None else str(gauge.pid)
    return Track(
        TrackKind.COUNTER, process, gauge.name, gauge.name, home, process_label=owner, unit=gauge.unit
    )


def _info(source: SourceInfo, rank: int, host: str, counters: Counters) -> SourceInfo:
    return replace(
        source,
        rank=rank,
        host=host or source.host,
        records=len(counters),
        start_ns=int(counters.time.min()),
        end_ns=int(counters.time.max()),
    )
