"""Arrow tables to the graph of a rank, and to what a job has besides its ranks. Every value is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracelink.converters.tables import schema
from tracelink.converters.tables.schema import Column, Type
from tracelink.model.collectives import Collectives, Messages, Participations
from tracelink.model.columns import NO_TIME, UNKNOWN, Int32s, Int64s, StringTable
from tracelink.model.columns import Table as ModelTable
from tracelink.model.communications import Evidence
from tracelink.model.errors import UnreadableError
from tracelink.model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink.model.findings import Finding, Severity
from tracelink.model.graph import EventGraph, LinkReport, Rank, source_bounds
from tracelink.model.trace import TEXT_KEYS, Payload, Payloads, ProcessGroup, SourceInfo

Read = Callable[[schema.Table], pa.Table]
"""Reads a table of a rank, or of the job."""
Row = TypeVar("Row")
Columns = TypeVar("Columns", bound=ModelTable)

# Columns of Arrow tables.


def _integers(rows: pa.Table, name: str, unknown: int = UNKNOWN) -> Int64s:
    """A column of integers, in which null becomes `unknown`."""
    column = rows.column(name)
    if column.null_count:
        column = pc.fill_null(column, unknown)
    values: Int64s = column.to_numpy()
    return values


def _coded(rows: pa.Table, name: str) -> tuple[Int32s, list[str]]:
    """A column of texts as indexes of distinct texts; null is UNKNOWN."""
    chunked = rows.column(name)
    column = chunked.combine_chunks() if isinstance(chunked, pa.ChunkedArray) else chunked
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.to_pylist()
    indexes = column.indices
    if indexes.null_count:
        indexes = pc.fill_null(indexes, UNKNOWN)
    return _within(indexes.to_numpy(zero_copy_only=False).astype(np.int32), len(values), name), values


def _within(values: Any, count: int, name: str, lowest: int = UNKNOWN) -> Any:
    """The values, if all are rows of a table of `count` rows, or UNKNOWN where that is allowed."""
    if len(values) and (int(values.min()) < lowest or int(values.max()) >= count):
        wrong = int(values.min()) if int(values.min()) < lowest else int(values.max())
        raise UnreadableError(f"{name} contains {wrong}, but there are {count:,} of them")
    return values


def _words(rows: pa.Table, name: str, codes: Mapping[str, int], unknown: int = UNKNOWN) -> Int32s:
    """The codes of words of a closed list."""
    indexes, values = _coded(rows, name)
    unexpected = [value for value in values if value not in codes]
    if unexpected:
        raise UnreadableError(f"{name} contains {unexpected[0]!r}, which is none of {', '.join(codes)}")
    return np.array([*(codes[value] for value in values), unknown], np.int32)[indexes]


def _texts(rows: pa.Table, name: str, strings: StringTable) -> Int32s:
    """The codes of a column of texts in a table of strings."""
    indexes, values = _coded(rows, name)
    return np.append(strings.absorb([value or "" for value in values]), np.int32(UNKNOWN))[indexes]


def _values(rows: pa.Table, column: Column) -> list[Any]:
    return rows.column(column.name).to_pylist()


def _structs(table: schema.Table, rows: pa.Table, kind: type[Row], /, **others: Sequence[Any]) -> list[Row]:
    """A value of the model for each row; null becomes the default of a field."""
    columns = {column.source: _values(rows, column) for column in table.columns} | others
    names = [name for name in get_type_hints(kind) if name in columns]
    found = []
    for values in zip(*(columns[name] for name in names), strict=True):
        given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        try:
            found.append(kind(**given))
        except TypeError as error:
            raise UnreadableError(f"a row of {table.name} is incomplete: {error}") from error
    return found


def _model(
    table: schema.Table, rows: pa.Table, kind: type[Columns], strings: StringTable, /, **others: Any
) -> Columns:
    """A table of the model."""
    coded = set(kind.text_columns())
    empty = kind.empty().columns()
    unknown = kind.of(1).columns()
    columns: dict[str, Any] = {}
    for column in table.columns:
        name = column.source
        if name in others or name not in empty:
            continue
        if name in coded:
            columns[name] = _texts(rows, column.name, strings)
        elif column.type == Type.FLOAT64:
            columns[name] = pc.fill_null(rows.column(column.name), np.nan).to_numpy()
        else:
            values = _integers(rows, column.name, int(unknown[name][0]))
            columns[name] = values.astype(empty[name].dtype, copy=False)
    return kind(**columns, **others)


# One rank.


KINDS = {kind.name.lower(): int(kind) for kind in EventKind}
RELATIONS = {relation.name.lower(): int(relation) for relation in Relation}
TRACK_KINDS = {kind.value: kind for kind in TrackKind}


def rank_graph(
    read: Read,
    row: Rank,
    sources: Sequence[SourceInfo],
    groups: Sequence[ProcessGroup],
    reports: Sequence[LinkReport],
    *,
    arguments: bool,
) -> EventGraph:
    """The graph of one rank."""
    strings = StringTable()
    events_table = read(schema.EVENTS)
    tracks = _tracks(read(schema.TRACKS), row.rank)
    events = _events(events_table, strings, len(tracks), len(sources))
    keys = _keys(events_table, read(schema.KEYS), strings)
    return EventGraph(
        strings=strings.texts(),
        events=events,
        edges=_edges(read(schema.EDGES), len(events)),
        tracks=tracks,
        ranks=[row],
        sources=sources,
        bounds=source_bounds(events.source, len(sources)),
        keys=keys,
        counters=_counters(read(schema.COUNTERS), "track", len(tracks)),
        groups=groups,
        payloads=_payloads(read(schema.ARGUMENTS) if arguments else None, len(sources)),
        reports={row.rank: reports},
    )


def _events(rows: pa.Table, strings: StringTable, tracks: int, sources: int) -> Events:
    if not np.array_equal(_integers(rows, "event"), np.arange(len(rows))):
        raise UnreadableError("events are not numbered from 0 on")
    source = _within(_integers(rows, "source").astype(np.int32, copy=False), sources, "source", 0)
    if (np.diff(source) < 0).any():
        raise UnreadableError("events are not grouped by source")
    return Events(
        kind=_words(rows, "kind", KINDS, EventKind.OTHER).astype(np.uint8),
        name=_texts(rows, "name", strings),
        track=_within(_integers(rows, "track").astype(np.int32, copy=False), tracks, "track", 0),
        start=_integers(rows, "start_ns", NO_TIME),
        duration=_integers(rows, "duration_ns"),
        source=source,
        payload=_integers(rows, "payload"),
    )


def _edges(rows: pa.Table, events: int) -> Edges:
    return Edges(
        _within(_integers(rows, "source"), events, "source", 0),
        _within(_integers(rows, "target"), events, "target", 0),
        _words(rows, "relation", RELATIONS, Relation.CALLS).astype(np.uint8),
    )


def _tracks(rows: pa.Table, rank: int) -> list[Track]:
    count = len(rows)
    kinds = [_track_kind(kind) for kind in rows.column("kind").to_pylist()]
    empty = {name: _or_empty(rows, name) for name in ("process", "identity")}
    return _structs(schema.TRACKS, rows, Track, kind=kinds, rank=[rank] * count, **empty)


def _track_kind(kind: str | None) -> TrackKind:
    if kind not in TRACK_KINDS:
        raise UnreadableError(f"a track is {kind!r}, which is none of {', '.join(TRACK_KINDS)}")
    return TRACK_KINDS[kind]


def _or_empty(rows: pa.Table, name: str) -> list[str]:
    """Texts of fields without a default."""
    return [text or "" for text in rows.column(name).to_pylist()]


def _counters(rows: pa.Table, index: str, tracks: int) -> Counters:
    return Counters(
        _within(_integers(rows, index).astype(np.int32, copy=False), tracks, index, 0),
        _integers(rows, "time_ns"),
        pc.fill_null(rows.column("value"), np.nan).to_numpy(),
    )


def _keys(events: pa.Table, rows: pa.Table, strings: StringTable) -> dict[Key, KeyColumn]:
    found = {}
    for key in schema.KEY_COLUMNS:
        column = events.column(key.value)
        if column.null_count < len(column):
            given = np.flatnonzero(column.is_valid().to_numpy())
            values = _integers(events, key.value)
            found[key] = KeyColumn(given, values if len(given) == len(column) else values[given])
    event = _within(_integers(rows, "event"), len(events), "event", 0)
    which, names = _coded(rows, "key")
    value, text = _integers(rows, "value"), _texts(rows, "text", strings)
    known = {key.value for key in Key}
    for code in np.unique(which).tolist():
        name = names[code] if code != UNKNOWN else None
        if name not in known:
            raise UnreadableError(f"there is no link key {name!r}")
        key, mine = Key(name), which == code
        values = text[mine].astype(np.int64) if key in TEXT_KEYS else value[mine]
        if key in TEXT_KEYS and (values == UNKNOWN).any():
            raise UnreadableError(f"the key {name} has no text for an event")
        found[key] = KeyColumn(event[mine], values)
    return found


class StoredPayloads(Struct, frozen=True):
    """The arguments of a source: numbers of payloads in ascending order, and their texts."""

    numbers: Int64s
    texts: pa.Array

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads that have arguments."""
        begin = int(np.searchsorted(self.numbers, first))
        end = len(self.numbers) if last is None else int(np.searchsorted(self.numbers, last))
        yield from self._runs(np.arange(begin, end))

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields these payloads, as far as they have arguments."""
        rows = np.searchsorted(self.numbers, numbers)
        there = rows < len(self.numbers)
        there[there] = self.numbers[rows[there]] == numbers[there]
        yield from self._runs(np.unique(rows[there]))

    def _runs(self, rows: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        if not len(rows):
            return
        numbers = self.numbers[rows]
        breaks = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(rows) != 1)) + 1
        for run in np.split(rows, breaks):
            first, last = int(run[0]), int(run[-1])
            yield int(self.numbers[first]), self.texts.slice(first, last + 1 - first).to_pylist()


def _payloads(rows: pa.Table | None, sources: int) -> list[Payloads]:
    empty = StoredPayloads(np.empty(0, np.int64), pa.array([], pa.binary()))
    if rows is None:
        return [empty] * sources
    source = _within(_integers(rows, "source"), sources, "source", 0)
    numbers = _integers(rows, "payload")
    texts = rows.column("arguments").combine_chunks().cast(pa.binary())
    bounds = np.searchsorted(source, np.arange(sources + 1)).tolist()
    found: list[Payloads] = []
    for begin, end in pairwise(bounds):
        mine = numbers[begin:end]
        if (np.diff(mine) <= 0).any():
            raise UnreadableError("arguments are not in order")
        found.append(StoredPayloads(mine, texts.slice(begin, end - begin)))
    return found


# The job.


EVIDENCE = {evidence.name.lower(): int(evidence) for evidence in Evidence}


class JobContents(Struct, frozen=True):
    """What a job has besides the events of its ranks."""

    ranks: Sequence[Rank]
    sources: Sequence[SourceInfo]
    groups: Sequence[ProcessGroup]
    strings: Sequence[str]
    collectives: Collectives
    participations: Participations
    messages: Messages
    metrics: Counters
    metric_tracks: Sequence[Track]
    findings: Sequence[Finding]
    reports: Mapping[int, Sequence[LinkReport]] = field(default_factory=dict)


def job_contents(read: Read, events: Mapping[int, int]) -> JobContents:
    """All tables of a job; `events` is the number of events of each of its ranks."""
    strings = StringTable()
    ranks = _structs(schema.RANKS, read(schema.RANKS), Rank)
    if [row.rank for row in ranks] != sorted(events):
        raise UnreadableError("the ranks of the manifest are not those of the table ranks")
    groups = _groups(read(schema.GROUPS))
    collectives = _model(schema.COLLECTIVES, read(schema.COLLECTIVES), Collectives, strings)
    rows = read(schema.PARTICIPATIONS)
    evidence = _words(rows, "evidence", EVIDENCE, Evidence.NONE)
    participations = _model(schema.PARTICIPATIONS, rows, Participations, strings, evidence=evidence)
    messages = _model(schema.MESSAGES, read(schema.MESSAGES), Messages, strings)
    _within(collectives.group, len(groups), "group_id")
    _within(messages.group, len(groups), "group_id")
    _within(participations.collective, len(collectives), "collective", 0)
    for table in (participations, messages):
        _check_events(table, events)
    metric_rows = read(schema.METRIC_TRACKS)
    metric_tracks = _metric_tracks(metric_rows)
    return JobContents(
        ranks,
        _sources(read(schema.SOURCES), events),
        groups,
        strings.texts(),
        collectives,
        participations,
        messages,
        _counters(read(schema.METRICS), "metric", len(metric_tracks)),
        metric_tracks,
        _findings(read(schema.FINDINGS)),
        _reports(read(schema.REPORTS), events),
    )


def _check_events(table: Participations | Messages, events: Mapping[int, int]) -> None:
    """Raises `UnreadableError` if a row refers to an event that its rank does not have."""
    for name, owner in table.event_columns().items():
        rows, owners = getattr(table, name), getattr(table, owner)
        given = rows != UNKNOWN
        for rank in np.unique(owners[given]).tolist():
            if rank not in events:
                raise UnreadableError(f"{name} refers to rank {rank}, which is missing")
            _within(rows[given & (owners == rank)], events[rank], name)


def _sources(rows: pa.Table, events: Mapping[int, int]) -> list[SourceInfo]:
    headers = [_header(text) for text in rows.column("header").to_pylist()]
    recorders = [tuple(filter(None, found or ())) for found in rows.column("recorder").to_pylist()]
    paths = _or_empty(rows, "path")
    formats = _or_empty(rows, "format")
    given: dict[str, list[Any]] = {"header": headers, "recorder": recorders, "path": paths, "format": formats}
    sources = _structs(schema.SOURCES, rows, SourceInfo, **given)
    if any(source.rank not in events for source in sources):
        raise UnreadableError("a source is of a rank that is missing")
    return sources


def _header(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError as error:
        raise UnreadableError(f"the header of a source is invalid: {error}") from error


def _groups(rows: pa.Table) -> list[ProcessGroup]:
    ranks = [tuple(found or ()) for found in rows.column("ranks").to_pylist()]
    if any(rank is None for group in ranks for rank in group):
        raise UnreadableError("a rank of a group is missing")
    return _structs(schema.GROUPS, rows, ProcessGroup, ranks=ranks, name=_or_empty(rows, "name"))


def _metric_tracks(rows: pa.Table) -> list[Track]:
    kinds = [_track_kind(kind) for kind in rows.column("kind").to_pylist()]
    empty = {name: _or_empty(rows, name) for name in ("process", "identity")}
    return _structs(schema.METRIC_TRACKS, rows, Track, kind=kinds, **empty)


def _findings(rows: pa.Table) -> list[Finding]:
    known = {severity.value: severity for severity in Severity}
    severities = [known.get(text, Severity.INFO) for text in rows.column("severity").to_pylist()]
    given = {name: _or_empty(rows, name) for name in ("reason", "message")}
    return _structs(schema.FINDINGS, rows, Finding, severity=severities, **given)


def _reports(rows: pa.Table, events: Mapping[int, int]) -> dict[int, list[LinkReport]]:
    counts = {
        name: [dict(found or ()) for found in rows.column(name).to_pylist()] for name in ("unlinked", "notes")
    }
    numbers = {
        name: [value or 0 for value in rows.column(name).to_pylist()] for name in ("linked", "candidates")
    }
    given = _structs(
        schema.REPORTS, rows, LinkReport, relation=_or_empty(rows, "relation"), **counts, **numbers
    )
    reports: dict[int, list[LinkReport]] = {rank: [] for rank in sorted(events)}
    for rank, report in zip(rows.column("rank").to_pylist(), given, strict=True):
        if rank not in reports:
            raise UnreadableError(f"a report is of rank {rank}, which is missing")
        reports[rank].append(report)
    return reports
