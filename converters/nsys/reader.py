"""The reader of exports: a database in, a rank trace for each of its processes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np

from tracelink.converters.nsys.activities import Activities, Lanes, Names
from tracelink.converters.nsys.collected import Collector, Stored
from tracelink.converters.nsys.counters import Sampled, Samples
from tracelink.converters.nsys.database import Database
from tracelink.converters.nsys.files import LocalFile, local_file
from tracelink.converters.nsys.nccl import LibraryCalls, Payloads, is_library_call, library_calls
from tracelink.converters.nsys.nvtx import Ranges
from tracelink.converters.nsys.payloads import NvtxWords, RowPayloads
from tracelink.converters.nsys.processes import Process, host_of, processes_of
from tracelink.converters.nsys.schema import (
    EXPORT,
    NORMALIZED,
    SCHEMA_VERSION,
    SESSION,
    SHIFTS,
    STRINGS,
    SYSTEM_CALLS,
    THREADS,
    VERSION,
)
from tracelink.io.engine import Engine
from tracelink.io.sources import Source
from tracelink.model.columns import Int64s, StringTable
from tracelink.model.communications import Communications, communications
from tracelink.model.errors import Finding, Severity, UnreadableError
from tracelink.model.events import EventKind, Events, Track, TrackKind
from tracelink.model.text import subject
from tracelink.model.trace import RankTrace, SourceInfo

SYSTEM = "osrt"
"""What the user requests to read calls of the operating system."""
UNREAD = {
    SYSTEM_CALLS: "calls of the operating system",
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

COMMAND = "nsys export --type sqlite --ts-normalize false --ts-shift 0 -o OUT.sqlite REPORT.nsys-rep"


@dataclass(frozen=True, slots=True)
class Session:
    """What holds for all processes of an export."""

    file: LocalFile
    version: str
    host: str
    zero_ns: int


@dataclass(frozen=True, slots=True)
class ProcessSource(Source):
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


class NsysReader:
    """Reads what `nsys export` wrote from 2022 to 2026."""

    name = "nsys"

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each process with events."""
        file = local_file(source)
        database = Database.open(file.path)
        export = _export(database)
        zero_ns = _zero(database, export)
        collector = Collector()
        names, lanes = Names(database, collector), Lanes(collector)
        activities = Activities(database, collector, names, lanes, zero_ns)
        _name_threads(database, names, lanes)
        activities.read()
        if SYSTEM in source.include:
            activities.read_system_calls()
        ranges = Ranges(activities)
        ranges.read()
        sampled = Sampled(database, zero_ns, activities.device_of)
        sampled.read()
        engine.meter.add(source.bytes)
        version = f"{export.get(VERSION, '')}, schema {export.get(SCHEMA_VERSION, '')}"
        session = Session(file, version, host_of(database), zero_ns)
        sources: list[Source] = list(_sources(source, session, activities, ranges, sampled))
        findings = list(_findings(source, activities, ranges, sampled))
        if not sources:
            raise UnreadableError("this export has no events that are read", source=source.path)
        return sources, findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of one process."""
        if isinstance(source, ProcessSource):
            return _trace(source)
        sources, findings = self.unpacked(source, engine)
        if len(sources) != 1:
            raise UnreadableError(
                f"this export contains {len(sources)} processes; one rank was requested",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = _trace(cast(ProcessSource, sources[0]))
        trace.findings += findings
        return trace


def _export(database: Database) -> dict[str, str]:
    """How the file was exported, by name."""
    rows = [row for table in EXPORT for row in database.rows(table, "name", "value")]
    return {name: value for name, value in rows if isinstance(name, str) and isinstance(value, str)}


def _zero(database: Database, export: dict[str, str]) -> int:
    """The time of the start of the session; raises `UnreadableError` if times were changed by the export."""
    shifts = [export[name] for name in SHIFTS if export.get(name, "0") not in ("0", "")]
    if shifts or export.get(NORMALIZED, "false").lower() == "true":
        how = f"shifted by {shifts[0][:30]} ns" if shifts else "normalised"
        raise UnreadableError(
            f"its times were {how} when it was exported, and fit to no other source",
            advice=f"Export the report again: {COMMAND}",
        )
    starts = [start for (start,) in database.rows(SESSION, "utcEpochNs") if isinstance(start, int)]
    if not starts or not 0 < starts[0] < LATEST_NS:
        raise UnreadableError(
            f"the time of the session is missing or invalid (table {SESSION})",
            advice=f"Export the report again: {COMMAND}",
        )
    return starts[0]


def _name_threads(database: Database, names: Names, lanes: Lanes) -> None:
    rows = [
        row
        for row in database.rows(THREADS, "globalTid", "nameId")
        if all(isinstance(one, int) for one in row)
    ]
    texts = database.strings(STRINGS, np.unique(np.array([name for _, name in rows], np.int64)))
    for thread, name in rows:
        lanes.name(thread, texts.get(name, ""))


def _sources(
    source: Source, session: Session, activities: Activities, ranges: Ranges, sampled: Sampled
) -> Iterator[ProcessSource]:
    collector = activities.collector
    tracks = tuple(activities.lanes.labelled(track) for track in collector.tracks)
    texts = tuple(collector.names.texts())
    devices: dict[int, set[int]] = {}
    for (pid, _), device in activities.device_of.items():
        devices.setdefault(pid, set()).add(device)
    pids = sorted(collector.processes)
    processes = processes_of(activities.database, pids, devices, ranges.inits)
    total = sum(stored.count for stored in collector.processes.values())
    for pid in pids:
        process, stored = processes[pid], collector.processes[pid]
        part = f"rank-{process.rank}" if process.rank is not None else f"process-{pid}"
        given = {item.name: getattr(source, item.name) for item in fields(Source)}
        given["path"] = source.path if len(pids) == 1 else f"{source.path}:{part}"
        given["bytes"] = source.bytes * stored.count // total
        yield ProcessSource(
            **given,
            session=session,
            process=process,
            events=stored,
            names=texts,
            tracks=tracks,
            samples=sampled.processes.get(pid, Samples()),
            words=ranges.words(pid),
            inits=tuple(ranges.inits.get(pid, ())),
        )


def _findings(source: Source, activities: Activities, ranges: Ranges, sampled: Sampled) -> Iterator[Finding]:
    path = source.path
    yield from _left_out(source, activities.database)
    for table, reason in activities.database.damage.items():
        text = f"{path}: the table {table} was not read, or not to its end: {reason}."
        yield Finding(Severity.WARNING, "damaged", text, source=path, example=table)
    if count := activities.unusable:
        text = f"{path}: {subject(count, 'row', 'have')} no time within the session: skipped."
        yield Finding(Severity.WARNING, "not_an_event", text, count, path)
    if count := activities.names.missing:
        text = f"{path}: {subject(count, 'name', 'are')} not in the table {STRINGS}; shown by number."
        yield Finding(Severity.WARNING, "missing_names", text, count, path)
    if count := sampled.unowned:
        text = f"{path}: {subject(count, 'sample', 'are')} of GPUs that no process uses: skipped."
        yield Finding(Severity.WARNING, "unowned_samples", text, count, path)
    if count := ranges.others:
        text = f"{path}: {subject(count, 'NVTX row', 'are')} of other types than ranges and marks: skipped."
        yield Finding(Severity.INFO, "skipped", text, count, path)


def _left_out(source: Source, database: Database) -> Iterator[Finding]:
    """Tables with events that are not read."""
    for table, what in UNREAD.items():
        if table == SYSTEM_CALLS and SYSTEM in source.include:
            continue
        if count := database.count(table):
            advice = " --include osrt reads them." if table == SYSTEM_CALLS else ""
            text = f"{source.path}: {subject(count, 'row', 'are')} not read from the table {table} ({what}).{advice}"
            yield Finding(Severity.INFO, "left_out_table", text, count, source.path, table)


def _trace(source: ProcessSource) -> RankTrace:
    """The rank trace of a process."""
    session, process, stored = source.session, source.process, source.events
    assert session
    assert process
    assert stored
    strings = StringTable()
    name, texts = _used(stored.column("name"), source.names)
    track, tracks = _used(stored.column("track"), source.tracks)
    for text in texts:
        strings[text]
    start, duration = stored.column("start"), stored.column("duration")
    events = Events(
        cast(Any, stored.column("kind")),
        name,
        track,
        cast(Any, start),
        cast(Any, duration),
        np.zeros(stored.count, np.int32),
        np.arange(stored.count),
    )
    calls = _library_calls(source, session, stored, events, strings)
    info = SourceInfo(
        source.path,
        NsysReader.name,
        session.version,
        process.rank,
        session.host,
        process.world_size,
        process.pid,
        process.device,
        stored.count,
        stored.count,
        source.bytes,
        int(events.start.min()),
        int(events.end.max()),
        zero_ns=session.zero_ns,
    )
    return RankTrace(
        [info],
        strings,
        events,
        [*(_of_process(track, process) for track in tracks), *source.samples.tracks],
        {key: stored.key(key) for key in stored.keys},
        source.samples.counters(len(tracks)),
        groups=calls.groups if calls else [],
        communications=communications(calls.rows, calls.statements, strings)
        if calls
        else Communications.empty(),
        payloads=[_payloads(source, session, stored)],
        findings=_without_payload(source.path, calls),
    )


def _library_calls(
    source: ProcessSource, session: Session, stored: Stored, events: Events, strings: StringTable
) -> LibraryCalls | None:
    """What the calls of NCCL state; None if there are none."""
    are_calls = is_library_call(strings.texts())
    chosen = np.flatnonzero(are_calls[events.name] & (events.kind == EventKind.ANNOTATION))
    if not len(chosen):
        return None
    chosen = chosen[np.argsort(events.start[chosen], kind="stable")]
    numbers = stored.column("row")[chosen].tolist()
    names = [strings_of[code] for strings_of in [strings.texts()] for code in events.name[chosen].tolist()]
    database = Database.open(session.file.path)
    found = list(zip(chosen.tolist(), numbers, names, strict=True))
    calls = library_calls(Payloads.of(database), found, source.inits)
    database.connection.close()
    return calls


def _without_payload(path: str, calls: LibraryCalls | None) -> list[Finding]:
    if calls is None or not calls.without_payload:
        return []
    count = calls.without_payload
    text = (
        f"{path}: {subject(count, 'call', 'have')} of NCCL no payload: their groups, sizes and peers are unknown. "
        "They are recorded by nsys from 2024 on, and exported with --include-blobs true."
    )
    return [Finding(Severity.INFO, "no_payload", text, count, path)]


def _payloads(source: ProcessSource, session: Session, stored: Stored) -> RowPayloads:
    """The arguments of events; small numbers of rows are held in half of the memory."""
    rows = cast(Int64s, stored.column("row"))
    small = rows.astype(np.int32) if rows.max(initial=0) < np.iinfo(np.int32).max else rows
    return RowPayloads(source, session.file, tuple(stored.tables), small, source.words)


def _used(codes: Any, values: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Codes of the values that are used, and these."""
    distinct, which = np.unique(codes, return_inverse=True)
    return which.astype(np.int32), [values[code] for code in distinct.tolist()]


def _of_process(track: Track, process: Process) -> Track:
    if track.kind == TrackKind.STREAM:
        return track
    return replace(track, process_label=process.name)
