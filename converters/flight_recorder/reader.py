"""Flight-recorder dumps to rank traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.collector import collector_paused
from tracelink.converters.flight_recorder.columns import events_of, keys_of, tracks_of
from tracelink.converters.flight_recorder.communication import communications_of
from tracelink.converters.flight_recorder.decoding import Decoded, decodings
from tracelink.converters.flight_recorder.fields import Fields, fields_of
from tracelink.converters.flight_recorder.groups import groups_of
from tracelink.converters.flight_recorder.payloads import RecorderPayloads
from tracelink.converters.flight_recorder.plain import Sizes, plain
from tracelink.converters.flight_recorder.progress import progress_of
from tracelink.converters.flight_recorder.records import records_of
from tracelink.engine import Engine
from tracelink.events import NO_TIME
from tracelink.findings import Finding, Severity
from tracelink.records import Recording, Records
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
        decoded, fields, strings = _entries(source)
        records = records_of(fields, strings)
        events = events_of(fields, records)
        header, too_large = _header(decoded.dump.header, source.path)
        groups, unread = groups_of(decoded.dump.header.get(schema.GROUP_CONFIG), fields.groups, source.path)
        engine.meter.add(source.bytes)
        return RankTrace(
            sources=[replace(_info(source, decoded.dump, fields, records), header=header)],
            strings=strings,
            events=events,
            tracks=tracks_of(fields.groups),
            keys=keys_of(fields, records),
            groups=groups,
            communications=communications_of(records, fields.asked, groups, strings),
            payloads=[RecorderPayloads(source)],
            findings=decoded.findings + _findings(decoded.dump, fields, source.path) + too_large + unread,
        )

    def read_records(self, source: Source, engine: Engine) -> Recording:
        """The entries as they are, without the events that stand for them."""
        with collector_paused():
            decoded, fields, strings = _entries(source)
            records = records_of(fields, strings)
            config = decoded.dump.header.get(schema.GROUP_CONFIG)
            groups, unread = groups_of(config, fields.groups, source.path)
        engine.meter.add(source.bytes)
        return Recording(
            _info(source, decoded.dump, fields, records),
            strings.texts(),
            records,
            fields.asked.requests,
            groups,
            progress_of(decoded.dump, fields),
            overwritten=fields.first_record,
            broken_off=decoded.cut_short,
            payloads=RecorderPayloads(source),
            findings=decoded.findings + _findings(decoded.dump, fields, source.path) + unread,
        )


def _entries(source: Source) -> tuple[Decoded, Fields, StringTable]:
    """What the entries say, and the texts that they say it with."""
    for decoded in decodings(source):
        strings = StringTable()
        fields = fields_of(decoded.dump, decoded.entries, strings)
        if fields is not None:
            return decoded, fields, strings
    raise AssertionError("entries that are all decoded can all be told")


def _info(source: Source, dump: schema.Dump, fields: Fields, records: Records) -> SourceInfo:
    created = records.created[records.created != NO_TIME]
    any_time = len(created) > 0
    return SourceInfo(
        path=source.path,
        format=FlightRecorderReader.name,
        version=dump.version,
        events=len(records),
        bytes=source.bytes,
        start_ns=int(created.min()) if any_time else None,
        end_ns=int(np.maximum(created, fields.completed[records.created != NO_TIME]).max())
        if any_time
        else None,
    )


def _header(facts: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[Finding]]:
    sizes = Sizes()
    fitting = {key: plain(value) for key, value in facts.items() if sizes.fits(value)}
    left_out = [key for key in facts if key not in fitting]
    if not left_out:
        return fitting, []
    message = f"{', '.join(left_out)} of the dump is too large to be kept"
    return fitting, [Finding(Severity.WARNING, "too-large", message, len(left_out), path)]


def _findings(dump: schema.Dump, fields: Fields, path: str) -> list[Finding]:
    found: list[Finding] = []
    if schema.is_newer(dump.version):
        newest = ".".join(map(str, schema.NEWEST_VERSION))
        version = dump.version or "unknown"
        message = f"version {version} is not one known here (up to {newest}); what is known of it was read"
        found.append(Finding(Severity.INFO, "newer-version", message, source=path))
    if not dump.entries:
        found.append(Finding(Severity.INFO, "empty", "the dump recorded no collectives", source=path))
    if fields.skipped:
        message = f"{fields.skipped} entries have fields that cannot be used; they were left out"
        found.append(Finding(Severity.WARNING, "unusable", message, fields.skipped, path, fields.example))
    if fields.asked.unreadable:
        message = f"{fields.asked.unreadable} entries have sizes of tensors that cannot be read; they count as unknown"
        found.append(Finding(Severity.WARNING, "unreadable_sizes", message, fields.asked.unreadable, path))
    if fields.first_record > 0:
        message = f"the buffer had wrapped: the first {fields.first_record} entries were overwritten before the dump"
        found.append(Finding(Severity.INFO, "wrapped", message, fields.first_record, path))
    return found
