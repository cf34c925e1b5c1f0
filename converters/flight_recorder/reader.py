"""Flight-recorder dumps as rank traces (for merging) and as recordings (for the diagnosis)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.pickles import collector_paused
from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, StringTable
from tracelink._model.findings import Finding, NewerVersion, Severity
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.records import Recording, Records
from tracelink._model.text import subject
from tracelink._model.trace import RankTrace, SourceInfo
from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.decoding import (
    Decoded,
    JsonSizes,
    RecorderPayloads,
    decodings,
    json_copy,
)
from tracelink.converters.flight_recorder.entries import Fields, fields_of
from tracelink.converters.flight_recorder.records import (
    backends_of,
    communications_of,
    events_of,
    group_numbers_of,
    groups_of,
    holds_only_active,
    keys_of,
    progress_of,
    records_of,
    tracks_of,
)


class FlightRecorderReader:
    """Reads dumps of the c10d flight recorder: pickle or JSON."""

    name = "flight-recorder"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each entry, on the track of its process group."""
        with collector_paused():
            return self._read(source, engine)

    def _read(self, source: Source, engine: Engine) -> RankTrace:
        decoded, recorded, strings = _entries(source)
        fields = recorded.fields
        records = records_of(fields, strings)
        events = events_of(fields, records)
        header, too_large = _header(decoded.dump.header, source.path)
        groups, invalid_groups = groups_of(
            decoded.dump.header.get(schema.GROUP_CONFIG), fields.groups, source.path
        )
        engine.meter.add(source.bytes)
        return RankTrace(
            sources=[
                replace(
                    _info(source, decoded.dump, fields, records),
                    header=header,
                    recorder=backends_of(fields, groups, strings),
                )
            ],
            strings=strings,
            events=events,
            tracks=tracks_of(fields.groups),
            keys=keys_of(fields, records),
            groups=groups,
            communications=communications_of(records, fields.requests, groups, strings),
            payloads=[RecorderPayloads(source)],
            findings=decoded.findings
            + _dump_findings(
                decoded.dump, fields, holds_only_active(decoded.dump, fields, records), source.path
            )
            + list(recorded.findings)
            + too_large
            + invalid_groups,
        )

    def read_records(self, source: Source, engine: Engine) -> Recording:
        """The entries as records, without events."""
        with collector_paused():
            decoded, recorded, strings = _entries(source)
            fields = recorded.fields
            records = records_of(fields, strings)
            config = decoded.dump.header.get(schema.GROUP_CONFIG)
            groups, invalid_groups = groups_of(config, fields.groups, source.path)
            only_active = holds_only_active(decoded.dump, fields, records)
            numbers, made = group_numbers_of(config, fields)
        engine.meter.add(source.bytes)
        return Recording(
            replace(
                _info(source, decoded.dump, fields, records), recorder=backends_of(fields, groups, strings)
            ),
            strings.texts(),
            records,
            fields.requests.distinct,
            groups,
            progress_of(decoded.dump, fields),
            numbers,
            made,
            overwritten=0 if only_active else fields.first_record,
            only_active=only_active,
            skipped=fields.skipped,
            last_skipped=_last_skipped(fields),
            broken_off=decoded.truncated,
            payloads=RecorderPayloads(source),
            findings=decoded.findings
            + _dump_findings(decoded.dump, fields, only_active, source.path)
            + list(recorded.findings)
            + invalid_groups,
            retires_early=recorded.is_torchcomms,
        )


class Recorded(Struct, frozen=True):
    """The fields of a dump, with numbers within each group, and what follows from who wrote them."""

    fields: Fields
    is_torchcomms: bool = False
    findings: tuple[Finding, ...] = ()


def _entries(source: Source) -> tuple[Decoded, Recorded, StringTable]:
    """The dump, the fields of its entries, and their strings."""
    for decoded in decodings(source):
        strings = StringTable()
        fields = fields_of(decoded.dump, decoded.entries, strings)
        if fields is not None:
            return decoded, _recorded(decoded.dump, fields, strings, source.path), strings
    raise AssertionError("entries that are all decoded always have fields")


def _recorded(dump: schema.Dump, fields: Fields, strings: StringTable, path: str) -> Recorded:
    """The fields with the numbers of c10d; torchcomms describes each group by its backend, and counts otherwise."""
    first = strings.texts()[fields.requests.distinct.operation[0]] if len(fields) else ""
    if not fields.groups or not first.startswith(f"{fields.groups[0][1]}:"):
        return Recorded(fields)
    config = dump.header.get(schema.GROUP_CONFIG)
    described = len(config) if isinstance(config, dict) else 0
    return _numbered(fields, strings, described, path) or Recorded(fields)


def _last_skipped(fields: Fields) -> int:
    """The index of the last invalid entry in the dump, or UNKNOWN."""
    missing = np.setdiff1d(np.arange(len(fields) + fields.skipped), fields.index) if fields.skipped else ()
    return int(max(missing, default=UNKNOWN))


def _info(source: Source, dump: schema.Dump, fields: Fields, records: Records) -> SourceInfo:
    created = records.created[records.created != NO_TIME]
    ends = np.maximum(created, fields.completed[records.created != NO_TIME])
    return SourceInfo(
        path=source.path,
        format=FlightRecorderReader.name,
        version=dump.version,
        events=len(records),
        bytes=source.bytes,
        start_ns=int(created.min()) if len(created) else None,
        end_ns=int(ends.max()) if len(created) else None,
    )


def _header(header: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[Finding]]:
    sizes = JsonSizes()
    kept = {key: json_copy(value) for key, value in header.items() if sizes.fits(value)}
    too_large = [key for key in header if key not in kept]
    if not too_large:
        return kept, []
    message = f"the dump's {', '.join(too_large)} is too large, and is not kept"
    return kept, [Finding(Severity.WARNING, "too-large", message, len(too_large), path)]


def _dump_findings(dump: schema.Dump, fields: Fields, only_active: bool, path: str) -> list[Finding]:
    findings: list[Finding] = []
    if schema.is_newer(dump.version):
        newest = ".".join(map(str, schema.NEWEST_VERSION))
        findings.append(NewerVersion(path, dump.version or "unknown", newest).finding())
    if only_active:
        message = f"the dump contains only active calls ({len(dump.entries)}): completed ones are left out"
        findings.append(Finding(Severity.INFO, "only_active", message, len(dump.entries), path))
    elif not dump.entries:
        findings.append(Finding(Severity.INFO, "empty", "the dump recorded no collectives", source=path))
    if fields.skipped:
        message = f"{subject(fields.skipped, 'entry', 'have')} invalid fields: skipped"
        findings.append(Finding(Severity.WARNING, "unusable", message, fields.skipped, path, fields.example))
    if fields.requests.invalid_sizes:
        entries = subject(fields.requests.invalid_sizes, "entry", "have")
        message = f"{entries} invalid tensor sizes, which are treated as unknown"
        findings.append(
            Finding(Severity.WARNING, "unreadable_sizes", message, fields.requests.invalid_sizes, path)
        )
    if fields.first_record > 0 and not only_active:
        message = f"the ring buffer wrapped: the first {fields.first_record} entries were overwritten before the dump"
        findings.append(Finding(Severity.INFO, "wrapped", message, fields.first_record, path))
    return findings


# Dumps of the recorder of torchcomms: the same layout, but one count of operations for all communicators of a process.

_BATCH_OF_MESSAGES = "batch_op_issue"
"""Sends and receives that are issued together, and are recorded as one operation of the rank alone."""


def _numbered(fields: Fields, strings: StringTable, described: int, path: str) -> Recorded | None:
    """The fields of a dump whose header describes so many groups; None if torchcomms did not write it."""
    if not _is_of_torchcomms(fields, strings):
        return None
    message = _messages(fields, strings)
    counted = _counted(fields, message)
    if counted is None and max(described, len(fields.groups)) == 1 and not message.any():
        counted = fields.collective + 1
    unnumbered = 0 if counted is not None else int(np.count_nonzero(~message))
    collective = np.full(len(fields), UNKNOWN) if counted is None else np.where(message, UNKNOWN, counted)
    found = replace(
        fields,
        collective=collective,
        p2p=np.full(len(fields), UNKNOWN),
        is_message=fields.is_message | message,
    )
    return Recorded(found, True, tuple(_findings(unnumbered, path)))


def _is_of_torchcomms(fields: Fields, strings: StringTable) -> bool:
    """True if each group is described by the backend of its operations, and one count runs through all groups."""
    if not len(fields) or (fields.p2p > 0).any() or fields.is_message.any():
        return False
    names = strings.texts()
    operation = fields.requests.distinct.operation[fields.requests.request]
    pairs = np.unique(fields.group << 32 | operation.astype(np.int64)).tolist()
    described = all(
        (backend := fields.groups[pair >> 32][1]) and names[pair & 0xFFFFFFFF].startswith(f"{backend}:")
        for pair in pairs
    )
    numbers = fields.collective
    counts_from_1 = len(fields.groups) == 1 and int(numbers[0]) == fields.first_record + 1
    return described and not counts_from_1 and bool((np.diff(numbers) > 0).all())


def _messages(fields: Fields, strings: StringTable) -> Bools:
    names = strings.texts()
    of_messages = (*POINT_TO_POINT, _BATCH_OF_MESSAGES)
    distinct = [
        operation_of(names[code]) in of_messages for code in fields.requests.distinct.operation.tolist()
    ]
    found: Bools = np.array(distinct, np.bool_)[fields.requests.request]
    return found


def _counted(fields: Fields, message: Bools) -> Int64s | None:
    """The number of each collective within its group, from 1; None if earlier entries are not in the dump."""
    if fields.first_record or int(fields.collective[0]) or fields.skipped:
        return None
    order = np.argsort(fields.group, kind="stable")
    counts = np.cumsum(~message[order])
    first = np.searchsorted(fields.group[order], fields.group[order])
    before = np.where(first > 0, counts[first - 1], 0)
    numbers = np.empty(len(fields), np.int64)
    numbers[order] = counts - before
    return numbers


def _findings(unnumbered: int, path: str) -> list[Finding]:
    if not unnumbered:
        return []
    text = (
        f"{subject(unnumbered, 'collective', 'are')} not matched with other ranks: torchcomms counts the operations of "
        "all communicators together, and earlier ones are not in the dump. Set a larger TORCHCOMM_FR_BUFFER_SIZE."
    )
    return [Finding(Severity.WARNING, "unnumbered", text, unnumbered, path)]
