"""Flight-recorder dumps to rank traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.collector import collector_paused
from tracelink.converters.flight_recorder.columns import Rows, rows_of
from tracelink.converters.flight_recorder.communication import with_group_sizes
from tracelink.converters.flight_recorder.decoding import decode
from tracelink.converters.flight_recorder.groups import groups_of
from tracelink.converters.flight_recorder.payloads import RecorderPayloads
from tracelink.converters.flight_recorder.plain import Sizes, plain
from tracelink.converters.flight_recorder.progress import progress_of
from tracelink.engine import Engine
from tracelink.findings import Finding, Severity
from tracelink.records import Recording
from tracelink.sources import Source
from tracelink.strings import StringTable
from tracelink.trace import RankTrace, SourceInfo

PICKLE_OF_A_DUMP = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[\]}]", re.DOTALL)
ANY_PICKLE = re.compile(rb"\x80[\x00-\x05]|[(\]}]|c[A-Za-z_][\w.]*\n")
JSON_OF_A_DUMP = re.compile(rb'\s*\{\s*"(?:%s)"\s*:' % b"|".join(key.encode() for key in schema.TOP_LEVEL))

TELLING = tuple(
    key.encode()
    for key in (
        schema.GROUP_CONFIG,
        schema.GROUP_STATUS,
        schema.LIBRARY_VERSION,
        schema.COMMUNICATORS,
        schema.CURRENT.name,
        schema.CURRENT.collective_sequence,
    )
)
"""Keys that stand near the start of every dump and of nothing else."""


class FlightRecorderReader:
    """Reads what the c10d flight recorder dumps, as pickle or as JSON."""

    name = "flight-recorder"
    summary = "PyTorch flight-recorder dumps (pickle of torch 2.2 and later, or JSON)"

    def recognises(self, head: bytes, name: str) -> bool:
        """By the keys near the start; a pickle that is named like a dump is one, however damaged."""
        if PICKLE_OF_A_DUMP.match(head):
            return schema.FILE_NAME.search(name) is not None or any(
                bytes([len(key)]) + lead + key in head for key in TELLING for lead in (b"\0\0\0", b"")
            )
        if JSON_OF_A_DUMP.match(head):
            return any(b'"%s"' % key in head for key in TELLING)
        return schema.FILE_NAME.search(name) is not None and ANY_PICKLE.match(head) is not None

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each entry, on the track of its process group."""
        with collector_paused():
            return self._read(source, engine)

    def _read(self, source: Source, engine: Engine) -> RankTrace:
        decoded = decode(source)
        strings = StringTable()
        rows = rows_of(decoded.dump, strings)
        header, too_large = _header(decoded.dump.header, source.path)
        groups, unread = groups_of(decoded.dump.header.get(schema.GROUP_CONFIG), rows.groups, source.path)
        engine.meter.add(source.bytes)
        return RankTrace(
            sources=[_info(source, decoded.dump.version, rows, header)],
            strings=strings,
            events=rows.events,
            tracks=rows.tracks,
            keys=rows.keys,
            groups=groups,
            communications=with_group_sizes(rows.communications, groups, strings),
            payloads=[RecorderPayloads(source)],
            findings=decoded.findings + _findings(decoded.dump, rows, source.path) + too_large + unread,
        )


    def read_records(self, source: Source, engine: Engine) -> Recording:
        """The entries as they are, without the events that stand for them."""
        with collector_paused():
            decoded = decode(source)
            strings = StringTable()
            rows = rows_of(decoded.dump, strings)
            facts = decoded.dump.header
            groups, unread = groups_of(facts.get(schema.GROUP_CONFIG), rows.groups, source.path)
        engine.meter.add(source.bytes)
        return Recording(
            _info(source, decoded.dump.version, rows, {}),
            strings.texts(),
            rows.records,
            rows.requests,
            groups,
            progress_of(facts.get(schema.GROUP_STATUS), decoded.dump),
            overwritten=rows.first_record,
            broken_off=decoded.cut_short,
            payloads=RecorderPayloads(source),
            findings=decoded.findings + _findings(decoded.dump, rows, source.path) + unread,
        )


def _info(source: Source, version: str, rows: Rows, header: Mapping[str, Any]) -> SourceInfo:
    timed = rows.events.timed
    any_time = bool(timed.any())
    return SourceInfo(
        path=source.path,
        format=FlightRecorderReader.name,
        version=version,
        events=len(rows.events),
        bytes=source.bytes,
        start_ns=int(rows.events.start[timed].min()) if any_time else None,
        end_ns=int(rows.events.end[timed].max()) if any_time else None,
        header=header,
    )


def _header(facts: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[Finding]]:
    sizes = Sizes()
    fitting = {key: plain(value) for key, value in facts.items() if sizes.fits(value)}
    left_out = [key for key in facts if key not in fitting]
    if not left_out:
        return fitting, []
    message = f"{', '.join(left_out)} of the dump is too large to be kept"
    return fitting, [Finding(Severity.WARNING, "too-large", message, len(left_out), path)]


def _findings(dump: schema.Dump, rows: Rows, path: str) -> list[Finding]:
    found: list[Finding] = []
    if schema.is_newer(dump.version):
        newest = ".".join(map(str, schema.NEWEST_VERSION))
        version = dump.version or "unknown"
        message = f"version {version} is not one known here (up to {newest}); what is known of it was read"
        found.append(Finding(Severity.INFO, "newer-version", message, source=path))
    if not dump.entries:
        found.append(Finding(Severity.INFO, "empty", "the dump recorded no collectives", source=path))
    if rows.skipped:
        message = f"{rows.skipped} entries have fields that cannot be used; they were left out"
        found.append(Finding(Severity.WARNING, "unusable", message, rows.skipped, path, rows.example))
    if rows.unreadable_sizes:
        message = f"{rows.unreadable_sizes} entries have sizes of tensors that cannot be read; they count as unknown"
        found.append(Finding(Severity.WARNING, "unreadable_sizes", message, rows.unreadable_sizes, path))
    if rows.first_record > 0:
        message = (
            f"the buffer had wrapped: the first {rows.first_record} entries were overwritten before the dump"
        )
        found.append(Finding(Severity.INFO, "wrapped", message, rows.first_record, path))
    return found
