"""Dump to rank trace and to recording."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import orjson

from tracelink.converters.flight_recorder import pickles, schema
from tracelink.converters.flight_recorder import pickles as budget
from tracelink.converters.flight_recorder.entries import Fields, entry_of, fields_of
from tracelink.converters.flight_recorder.pickles import (
    Sizes,
    collector_paused,
    json_text,
    plain,
    refuse_if_too_large,
)
from tracelink.converters.flight_recorder.records import (
    communications_of,
    events_of,
    groups_of,
    keys_of,
    progress_of,
    records_of,
    tracks_of,
)
from tracelink.converters.flight_recorder.scan import Entries, abridged
from tracelink.io.engine import Engine
from tracelink.io.sources import Source
from tracelink.model.columns import NO_TIME, StringTable
from tracelink.model.errors import Finding, Severity, UnreadableError
from tracelink.model.records import Entry, Recording, Records
from tracelink.model.trace import Payload, RankTrace, SourceInfo

# JSON dumps, as torch's control plane hands them out.


COSTS = {b"{": 540, b"[": 120, b",": 96}
"""Bytes of memory that a value leads to at most; an object is counted with the row that it may become."""


def load(data: bytes, path: str) -> Any:
    """Decodes a dump in JSON."""
    refuse_if_too_large(data, COSTS, path)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(
            f"it is not whole JSON: {error.msg}",
            source=path,
            position=f"line {error.lineno}, column {error.colno}",
            advice="Copy or take the dump again.",
        ) from None


# The bytes of a source to a dump, whichever of the two forms it has.


JSON_START = b"{"
SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A dump, and what was found on the way."""

    dump: schema.Dump
    entries: Entries
    findings: list[Finding]
    cut_short: bool


def decode(source: Source) -> Decoded:
    """Reads and decodes a whole dump."""
    return _decoded(source, *_bytes(source))


def decodings(source: Source) -> Iterator[Decoded]:
    """First, if that is possible, with as few entries as tell of all; then with all, should that not do."""
    data, damage = _bytes(source)
    if data.startswith(pickles.HEADER):
        budget.refuse_if_too_large(data, pickles.COSTS, source.path)
        if brief := abridged(data, source.path):
            yield Decoded(*brief, [], cut_short=False)
    yield _decoded(source, data, damage)


def _decoded(source: Source, data: bytes, damage: str) -> Decoded:
    if data.lstrip(SPACE).startswith(JSON_START):
        content, cut = load(data, source.path), None
    else:
        loaded = _unpickled(data, source.path)
        content, cut = loaded.content, loaded.cut
    dump = schema.dump_of(content)
    if dump is None:
        raise UnreadableError(
            "a dict with version and entries, or a list of entries, was expected: it is not a dump",
            source=source.path,
            advice="Say what it is with --kineto or --et, or leave it out.",
        )
    findings = [_truncated(source, dump, cut, damage)] if cut else []
    return Decoded(dump, Entries.all_decoded(dump.entries), findings, cut is not None)


def _unpickled(data: bytes, path: str) -> pickles.Loaded:
    """As torch wrote it, else as Python may have written the same data again."""
    try:
        return pickles.load(data, path)
    except budget.TooLargeError:
        raise
    except UnreadableError:
        from tracelink.converters.flight_recorder import python_pickles

        try:
            known = python_pickles.loaded(data)
            return pickles.Loaded(known.value if known else python_pickles.replay(data))
        except python_pickles.NotPlain:
            pass
        raise


def _bytes(source: Source) -> tuple[bytes, str]:
    try:
        with source.open() as opened:
            return opened.read_all(budget.FILE), opened.damage
    except UnreadableError as error:
        raise UnreadableError(error.problem, source=source.path, advice=error.advice) from None
    except OSError as error:
        raise UnreadableError(
            error.strerror or str(error), source=source.path, advice="Check that the file can be read."
        ) from error


def _truncated(source: Source, dump: schema.Dump, cut: pickles.Cut, damage: str) -> Finding:
    because = f" ({damage})" if damage else ""
    message = (
        f"{source.path}, byte {cut.at}: {cut.problem}{because}. "
        f"The {len(dump.entries)} entries before it are used. {pickles.CUT_SHORT}"
    )
    return Finding(Severity.ERROR, "truncated", message, source=source.path)


# What each entry recorded, as JSON, decoded again from the source when someone asks.


RUN = 512
OMITTED = {"tracelink_omitted": "not an entry, or too large to be written as JSON"}
"""Stands for what is no entry, and for one whose parts refer to each other until it would fill the memory."""


@dataclass(frozen=True, slots=True)
class RecorderPayloads:
    """The entries of one dump; nothing decoded is kept between two questions."""

    source: Source

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of entries in the order of the file."""
        entries = decode(self.source).dump.entries
        sizes = Sizes()
        chosen = iter(range(*slice(first, last).indices(len(entries))))
        while run := list(islice(chosen, RUN)):
            yield run[0], [_text(entries[number], sizes) for number in run]

    def entries(self, places: Collection[int]) -> dict[int, Entry]:
        """The entries at some places of the dump, as far as they can be used."""
        dump = decode(self.source).dump
        sizes = Sizes()
        chosen = {
            place: dump.entries[place]
            for place in places
            if 0 <= place < len(dump.entries) and sizes.fits(dump.entries[place])
        }
        found = {place: entry_of(said, dump.layout) for place, said in chosen.items()}
        return {place: entry for place, entry in found.items() if entry}


def _text(entry: Any, sizes: Sizes) -> bytes:
    if type(entry) is not dict or not sizes.fits(entry):
        return json_text(OMITTED)
    return json_text(entry)


# Flight-recorder dumps to rank traces.


class FlightRecorderReader:
    """Reads what the c10d flight recorder dumps, as pickle or as JSON."""

    name = "flight-recorder"

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
