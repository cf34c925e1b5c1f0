"""The reader of exports: a database in, a rank trace for each of its processes out."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import Int64s, StringTable
from tracelink._model.communications import Communications, communications
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Events, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import subject
from tracelink._model.trace import RankTrace
from tracelink.converters.nsys.activities import Stored
from tracelink.converters.nsys.contents import Process, ProcessSource, Session, unpack
from tracelink.converters.nsys.database import Database
from tracelink.converters.nsys.payloads import (
    LibraryCalls,
    Payloads,
    RowPayloads,
    is_library_call,
    library_calls,
)
from tracelink.plugins.traces import TraceBuilder


class NsysReader:
    """Reads what `nsys export` wrote from 2022 to 2026."""

    name = "nsys"

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each process with events."""
        sources, findings = unpack(source, engine)
        return [*sources], findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of one process."""
        if isinstance(source, ProcessSource):
            return _trace(source)
        sources, findings = unpack(source, engine)
        if len(sources) != 1:
            raise UnreadableError(
                f"this export contains {len(sources)} processes; one rank was requested",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = _trace(sources[0])
        trace.findings += findings
        return trace


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
    trace = TraceBuilder(
        source,
        NsysReader.name,
        version=session.version,
        rank=process.rank,
        host=session.host,
        world_size=process.world_size,
        pid=process.pid,
        device=process.device,
        start_ns=int(start.min()),
        end_ns=int((start + np.maximum(duration, 0)).max()),
        zero_ns=session.zero_ns,
    )
    trace.events(name, start, duration, kind=stored.column("kind"), track=track)
    calls = _library_calls(source, session, stored, trace.build().events, strings)
    return trace.build(
        strings=strings,
        tracks=[*(_of_process(track, process) for track in tracks), *source.samples.tracks],
        keys={key: stored.key(key) for key in stored.keys},
        counters=source.samples.counters(len(tracks)),
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
    """The statements of calls of NCCL; None if there are none."""
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
        f"{path}: {subject(count, 'NCCL call', 'have')} no payload: groups, sizes and peers are unknown. nsys records "
        "payloads from 2024 on, and exports them with --include-blobs true."
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
