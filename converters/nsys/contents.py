"""The content of an export: its session, the events of each of its processes, and what is not read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from tempfile import gettempdir

import numpy as np
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.errors import UnreadableError
from tracelink._model.events import Key, Track
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.text import subject
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.activities import Activities, Collector, Lanes, Names, Sampled, Samples, Stored
from tracelink.converters.nsys.database import COMMAND, Database, LocalFile, database_of
from tracelink.converters.nsys.nvtx import Ranges
from tracelink.converters.nsys.payloads import NvtxWords, Payloads, communicators_in

# The processes of an export: names, ranks, devices.

ENVIRONMENT = "WHERE name LIKE 'PROCESS%:ENVIRONMENT_VARIABLE%' AND value GLOB '{}=[0-9]*'"
"""The only values of environment variables that are read are numbers."""


class Process(Struct, frozen=True):
    """What is known of a process."""

    pid: int
    name: str = ""
    rank: int | None = None
    world_size: int | None = None
    device: int | None = None
    """Its only device."""


def processes_of(
    database: Database,
    pids: list[int],
    devices: Mapping[int, Collection[int]],
    inits: Mapping[int, Sequence[int]],
) -> dict[int, Process]:
    """The processes with these numbers; `devices` are those that each of them used.

    `inits` are the rows of NVTX events in which each of them joined communicators of NCCL.
    """
    names = {
        pid: name for pid, name in database.rows(schema.PROCESSES, "pid", "name") if isinstance(name, str)
    }
    ranks = _mpi_ranks(database)
    size = None  # the table has the ranks of this host only
    ranks = ranks or _communicator_ranks(database, inits)
    if not ranks and len(pids) == 1:
        rank = _environment(database, "RANK")
        ranks = {} if rank is None else {pids[0]: rank}
        size = _environment(database, "WORLD_SIZE") if ranks else None
    found = {}
    for pid in pids:
        device = _only(devices.get(pid, ()))
        found[pid] = Process(pid, names.get(pid, ""), ranks.get(pid), size, device)
    return found


def _only(devices: Collection[int]) -> int | None:
    """The only device; None if there are several, or none, or its number cannot be a rank."""
    number = next(iter(devices), -1)
    return number if len(devices) == 1 and 0 <= number <= LARGEST_RANK else None


def host_of(database: Database) -> str:
    """The name of the machine that was recorded."""
    rows = database.rows(schema.CAPTURE, "value", where=f"WHERE name = '{schema.HOST}'")
    return next((value for (value,) in rows if isinstance(value, str)), "")


def _mpi_ranks(database: Database) -> dict[int, int]:
    rows = database.rows(schema.MPI_RANKS, "globalTid", "rank")
    return {
        thread >> schema.PID_BITS & schema.PID_MASK: rank
        for thread, rank in rows
        if isinstance(thread, int) and isinstance(rank, int) and 0 <= rank <= LARGEST_RANK
    }


def _communicator_ranks(database: Database, inits: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The ranks within the largest communicator of each process, unless two processes have the same one."""
    payloads = Payloads.of(database)
    found = {}
    for pid, rows in inits.items():
        joined = communicators_in(list(payloads.of_rows(rows).values())).values()
        if joined:
            found[pid] = max(joined, key=lambda communicator: communicator.size).rank
    return found if len(set(found.values())) == len(found) else {}


def _environment(database: Database, name: str) -> int | None:
    """The number in an environment variable of the only process."""
    rows = database.rows(schema.CAPTURE, "value", where=ENVIRONMENT.format(name))
    numbers = {match[1] for (value,) in rows if (match := re.fullmatch(rf"{name}=(\d{{1,6}})", str(value)))}
    return int(numbers.pop()) if len(numbers) == 1 else None


# All of an export.

SYSTEM = "osrt"
"""What the user requests to read calls of the operating system."""
UNREAD = {
    schema.SYSTEM_CALLS: "calls of the operating system",
    "PROFILER_OVERHEAD": "intervals of the profiler's overhead",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "intervals of CUPTI's overhead",
    "MPI_COLLECTIVES_EVENTS": "collectives of MPI",
    "MPI_P2P_EVENTS": "messages of MPI",
    "UCP_EVENTS": "calls of UCX",
    "CUBLAS_EVENTS": "calls of cuBLAS",
    "CUDNN_EVENTS": "calls of cuDNN",
    "SCHED_EVENTS": "changes of the scheduler",
    "COMPOSITE_EVENTS": "samples of stacks",
    "NIC_METRICS": "samples of network adapters",
    "NET_NIC_METRIC": "samples of network adapters",
}
"""Tables with events that are counted only."""

LATEST_NS = 4 * 10**18
"""Later sessions (after 2096) are invalid."""


class Session(Struct, frozen=True):
    """What holds for all processes of an export."""

    file: LocalFile
    version: str
    host: str
    zero_ns: int


class ProcessSource(Source, frozen=True):
    """One process of an export, whose events were read already."""

    session: Session | None = None
    process: Process | None = None
    events: Stored | None = None
    names: tuple[str, ...] = ()
    tracks: tuple[Track, ...] = ()
    samples: Samples = field(default_factory=Samples)
    words: NvtxWords = field(default_factory=NvtxWords)
    inits: tuple[int, ...] = ()
    """Rows in which NCCL communicators are joined."""


class _Contents(Struct):
    """The tables of an export, once they were read."""

    database: Database
    activities: Activities
    ranges: Ranges
    sampled: Sampled
    helpers: list[Finding] = field(default_factory=list)
    """On processes that are of no rank."""


def unpack(source: Source, engine: Engine) -> tuple[list[ProcessSource], list[Finding]]:
    """A source for each process with events, and what did not fit."""
    try:
        return _unpacked(source, engine)
    except OSError as error:
        raise UnreadableError(
            f"cannot read it, or write temporary files in {gettempdir()}: {error.strerror or error}",
            advice="Free some space there, or set the environment variable TMPDIR to another directory.",
        ) from error


def _unpacked(source: Source, engine: Engine) -> tuple[list[ProcessSource], list[Finding]]:
    file = database_of(source)
    if file is None:
        return [], _part_of_folder(source)
    database = Database.open(file.path)
    export = _export(database)
    zero_ns = _zero(database, export)
    contents = _read(database, zero_ns, system_calls=SYSTEM in source.include)
    engine.meter.add(source.bytes)
    version = f"{export.get(schema.VERSION, '')}, schema {export.get(schema.SCHEMA_VERSION, '')}"
    sources = list(_sources(source, Session(file, version, host_of(database), zero_ns), contents))
    findings = [*_damage(source.path, file, database), *_findings(source, contents), *contents.helpers]
    database.connection.close()
    if not sources:
        raise UnreadableError("this export has no events that are read", source=source.path)
    return sources, findings


def _read(database: Database, zero_ns: int, *, system_calls: bool) -> _Contents:
    collector = Collector()
    names, lanes = Names(database, collector), Lanes(collector)
    activities = Activities(database, collector, names, lanes, zero_ns)
    _name_threads(database, names, lanes)
    activities.read()
    if system_calls:
        activities.read_system_calls()
    ranges = Ranges(activities)
    ranges.read()
    sampled = Sampled(database, zero_ns, activities.device_of)
    sampled.read()
    return _Contents(database, activities, ranges, sampled)


def _export(database: Database) -> dict[str, str]:
    """How the file was exported, by name."""
    rows = [row for table in schema.EXPORT for row in database.rows(table, "name", "value")]
    return {name: value for name, value in rows if isinstance(name, str) and isinstance(value, str)}


def _zero(database: Database, export: dict[str, str]) -> int:
    """The time of the start of the session; raises `UnreadableError` if times were changed by the export."""
    shifts = [export[name] for name in schema.SHIFTS if export.get(name, "0") not in ("0", "")]
    if shifts or export.get(schema.NORMALIZED, "false").lower() == "true":
        how = f"shifted by {shifts[0][:30]} ns" if shifts else "normalised"
        raise UnreadableError(
            f"its times were {how} when it was exported, and fit to no other source",
            advice=f"Export the report again: {COMMAND}",
        )
    starts = [start for (start,) in database.rows(schema.SESSION, "utcEpochNs") if isinstance(start, int)]
    if not starts or not 0 < starts[0] < LATEST_NS:
        raise UnreadableError(
            f"the time of the session is missing or invalid (table {schema.SESSION})",
            advice=f"Export the report again: {COMMAND}",
        )
    return starts[0]


def _name_threads(database: Database, names: Names, lanes: Lanes) -> None:
    rows = [
        row
        for row in database.rows(schema.THREADS, "globalTid", "nameId")
        if all(isinstance(one, int) for one in row)
    ]
    texts = database.strings(schema.STRINGS, np.unique(np.array([name for _, name in rows], np.int64)))
    for thread, name in rows:
        lanes.name(thread, texts.get(name, ""))


def _sources(source: Source, session: Session, contents: _Contents) -> Iterator[ProcessSource]:
    activities, ranges = contents.activities, contents.ranges
    collector = activities.collector
    tracks = tuple(activities.lanes.labelled(track) for track in collector.tracks)
    texts = tuple(collector.names.texts())
    processes = _processes(source.path, contents)
    total = sum(stored.count for stored in collector.processes.values())
    positions = _positions(list(processes.values()))
    for pid, process in processes.items():
        stored = collector.processes[pid]
        part = f"rank-{process.rank}" if process.rank is not None else f"process-{pid}"
        given = {name: getattr(source, name) for name in Source.__struct_fields__}
        given["path"] = source.path if len(processes) == 1 else f"{source.path}:{part}"
        given["bytes"] = source.bytes * stored.count // total
        if source.rank is not None:
            given["rank"] = source.rank + positions[pid]
        yield ProcessSource(
            **given,
            session=session,
            process=process,
            events=stored,
            names=texts,
            tracks=tracks,
            samples=contents.sampled.processes.get(pid, Samples()),
            words=ranges.words(pid),
            inits=tuple(ranges.inits.get(pid, ())),
        )


def _positions(processes: Sequence[Process]) -> dict[int, int]:
    """The position of each process among those of its host: the number of its device, else the order of pids."""
    devices = {process.pid: process.device for process in processes if process.device is not None}
    if len(set(devices.values())) == len(processes):
        return devices
    return {process.pid: position for position, process in enumerate(processes)}


def _processes(path: str, contents: _Contents) -> dict[int, Process]:
    """The processes that can be ranks: if some use a device or have a rank, those that only help them are left out."""
    stored = contents.activities.collector.processes
    devices: dict[int, set[int]] = {}
    for (pid, _), device in contents.activities.device_of.items():
        devices.setdefault(pid, set()).add(device)
    found = processes_of(contents.database, sorted(stored), devices, contents.ranges.inits)
    trained = [
        pid
        for pid, process in found.items()
        if process.rank is not None or pid in devices or Key.RECORD_FUNCTION in stored[pid].keys
    ]
    for pid in found.keys() - set(trained) if trained else ():
        count = stored[pid].count
        text = (
            f"{path}: {subject(count, 'event', 'are')} of process {pid} ({found[pid].name}), which has no rank, "
            "no device and no operators of torch: skipped."
        )
        contents.helpers.append(Finding(Severity.INFO, "helper_process", text, count, path))
    return {pid: found[pid] for pid in trained or found}


def _damage(path: str, file: LocalFile, database: Database) -> Iterator[Finding]:
    if file.damage:
        text = f"{path}: it could not be read to its end: {file.damage}."
        yield Finding(Severity.WARNING, Truncated.reason, text, source=path)
    for table, reason in database.damage.items():
        text = f"{path}: the table {table} was not read, or not to its end: {reason}."
        yield Finding(Severity.WARNING, "damaged", text, source=path, example=table)


def _findings(source: Source, contents: _Contents) -> Iterator[Finding]:
    path, activities = source.path, contents.activities
    yield from _left_out(source, contents.database)
    if count := activities.unusable:
        text = f"{path}: {subject(count, 'row', 'have')} no time within the session: skipped."
        yield Finding(Severity.WARNING, "not_an_event", text, count, path)
    if count := activities.names.missing:
        text = f"{path}: {subject(count, 'name', 'are')} not in the table {schema.STRINGS}; shown by number."
        yield Finding(Severity.WARNING, "missing_names", text, count, path)
    if count := contents.sampled.unowned:
        text = f"{path}: {subject(count, 'sample', 'are')} of GPUs that no process uses: skipped."
        yield Finding(Severity.WARNING, "unowned_samples", text, count, path)
    if count := contents.ranges.others:
        text = f"{path}: {subject(count, 'NVTX row', 'are')} of other types than ranges and marks: skipped."
        yield Finding(Severity.INFO, "skipped", text, count, path)


def _part_of_folder(source: Source) -> list[Finding]:
    """A finding if the user named one of several Parquet files himself."""
    if not source.named:
        return []
    text = f"{source.path}: one table of a Parquet export. Name its folder."
    return [Finding(Severity.WARNING, "part_of_export", text, source=source.path)]


def _left_out(source: Source, database: Database) -> Iterator[Finding]:
    """Tables with events that are not read."""
    for table, what in UNREAD.items():
        if table == schema.SYSTEM_CALLS and SYSTEM in source.include:
            continue
        if count := database.count(table):
            advice = " --include osrt reads them." if table == schema.SYSTEM_CALLS else ""
            text = f"{source.path}: {subject(count, 'row', 'are')} not read from the table {table} ({what}).{advice}"
            yield Finding(Severity.INFO, "left_out_table", text, count, source.path, table)
