"""Arrow tables to the graph of a rank, and to what a job has besides its ranks. Every value is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracelink._model.collectives import Collectives, Messages, Participations
from tracelink._model.columns import UNKNOWN, Int32s, Int64s, StringTable
from tracelink._model.columns import Table as ModelTable
from tracelink._model.errors import UnreadableError
from tracelink._model.events import (
    Counters,
    Edges,
    Events,
    Key,
    KeyColumn,
    Track,
)
from tracelink._model.fields import fields_of
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph, LinkReport, Rank, source_bounds
from tracelink._model.trace import TEXT_KEYS, Payload, Payloads, ProcessGroup, SourceInfo
from tracelink._store.schema import Column, Type
from tracelink.converters.tables import schema

Read = Callable[[schema.Table], pa.Table]
"""Reads a table of a rank, or of the job."""
Row = TypeVar("Row")
Columns = TypeVar("Columns", bound=ModelTable)

# Columns of Arrow tables.


def _integers(rows: pa.Table, name: str, unknown: Any = UNKNOWN) -> Int64s:
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


def _words(rows: pa.Table, column: Column, unknown: Any) -> Int32s:
    """The codes of words of a closed list."""
    indexes, values = _coded(rows, column.name)
    if unexpected := [value for value in values if value not in column.words]:
        raise UnreadableError(
            f"{column.name} contains {unexpected[0]!r}, which is none of {', '.join(column.words)}"
        )
    return np.array([*map(column.words.index, values), unknown], np.int32)[indexes]


def _texts(rows: pa.Table, name: str, strings: StringTable) -> Int32s:
    """The codes of a column of texts in a table of strings."""
    indexes, values = _coded(rows, name)
    return np.append(strings.absorb([value or "" for value in values]), np.int32(UNKNOWN))[indexes]


def _values(rows: pa.Table, column: Column, kind: Any) -> list[Any]:
    """The values of a field of this type; null is the empty text, list or mapping."""
    values = rows.column(column.name).to_pylist()
    if column.words:
        words = {word: kind(word) for word in column.words}
        if wrong := [value for value in values if value not in words]:
            raise UnreadableError(f"{column.name} contains {wrong[0]!r}, which is none of {', '.join(words)}")
        return [words[value] for value in values]
    if column.type == Type.COUNTS:
        return [dict(found or ()) for found in values]
    if column.type in (Type.INTEGERS, Type.TEXTS):
        if any(each is None for found in values for each in found or ()):
            raise UnreadableError(f"a value of a list of {column.name} is missing")
        return [tuple(found or ()) for found in values]
    return [value or "" for value in values] if column.type == Type.SHARED else values


def _restore(
    table: schema.Table, rows: pa.Table, strings: StringTable | None = None, /, **others: Sequence[Any]
) -> Any:
    """The table of the model, or a list of its structs; `others` are values of fields that are no columns."""
    if issubclass(table.model, ModelTable):
        return _columns(table, rows, strings)
    columns, fields = dict(others), fields_of(table.model)
    for column in table.columns:
        if column.source in fields and column.source not in others:
            columns[column.source] = _values(rows, column, fields[column.source].kind)
    found = []
    for values in zip(*columns.values(), strict=True):
        given = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        try:
            found.append(table.model(**given))
        except TypeError as error:
            raise UnreadableError(f"a row of {table.name} is incomplete: {error}") from error
    return found


def _columns(table: schema.Table, rows: pa.Table, strings: StringTable | None) -> Any:
    columns: dict[str, Any] = {}
    for name, example in table.model.of(1).columns().items():
        column = next(column for column in table.columns if column.source == name)
        unknown = example[0]
        if column.words:
            columns[name] = _words(rows, column, unknown).astype(example.dtype)
        elif column.type == Type.SHARED and strings is not None:
            columns[name] = _texts(rows, column.name, strings)
        elif column.type == Type.REAL:
            columns[name] = pc.fill_null(rows.column(column.name), unknown).to_numpy()
        else:
            columns[name] = _integers(rows, column.name, unknown).astype(example.dtype, copy=False)
    return table.model(**columns)


# One rank.


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
    stored_tracks = read(schema.TRACKS)
    tracks = _restore(schema.TRACKS, stored_tracks, rank=[row.rank] * len(stored_tracks))
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
        counters=_counters(read(schema.COUNTERS), len(tracks)),
        groups=groups,
        payloads=_payloads(read(schema.ARGUMENTS) if arguments else None, len(sources)),
        reports={row.rank: reports},
    )


def _events(rows: pa.Table, strings: StringTable, tracks: int, sources: int) -> Events:
    if not np.array_equal(_integers(rows, "event"), np.arange(len(rows))):
        raise UnreadableError("events are not numbered from 0 on")
    events: Events = _restore(schema.EVENTS, rows, strings)
    _within(events.track, tracks, "track", 0)
    _within(events.source, sources, "source", 0)
    if (np.diff(events.source) < 0).any():
        raise UnreadableError("events are not grouped by source")
    return events


def _edges(rows: pa.Table, events: int) -> Edges:
    edges: Edges = _restore(schema.EDGES, rows)
    for name in ("source", "target"):
        _within(getattr(edges, name), events, name, 0)
    return edges


def _counters(rows: pa.Table, tracks: int) -> Counters:
    counters: Counters = _restore(schema.COUNTERS, rows)
    _within(counters.track, tracks, "track", 0)
    return counters


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
    strings, found = StringTable(), dict[str, Any]()
    for table in schema.OF_JOB:
        if table != schema.TIES:
            found[table.name] = _of_job(table, read(table), strings, events)
    job = JobContents(strings=strings.texts(), **found)
    if [row.rank for row in job.ranks] != sorted(events):
        raise UnreadableError("the ranks of the manifest are not those of the table ranks")
    _within(job.collectives.group, len(job.groups), "group_id")
    _within(job.messages.group, len(job.groups), "group_id")
    _within(job.participations.collective, len(job.collectives), "collective", 0)
    _within(job.metrics.track, len(job.metric_tracks), "metric", 0)
    for rows in (job.participations, job.messages):
        _check_events(rows, events)
    if any(source.rank not in events for source in job.sources):
        raise UnreadableError("a source is of a rank that is missing")
    return job


def _of_job(table: schema.Table, rows: pa.Table, strings: StringTable, events: Mapping[int, int]) -> Any:
    if table == schema.SOURCES:
        return _restore(table, rows, header=[_header(text) for text in rows.column("header").to_pylist()])
    if table == schema.REPORTS:
        return _reports(rows, events)
    return _restore(table, rows, strings)


def _check_events(table: Participations | Messages, events: Mapping[int, int]) -> None:
    """Raises `UnreadableError` if a row refers to an event that its rank does not have."""
    for name, owner in table.event_columns().items():
        rows, owners = getattr(table, name), getattr(table, owner)
        given = rows != UNKNOWN
        for rank in np.unique(owners[given]).tolist():
            if rank not in events:
                raise UnreadableError(f"{name} refers to rank {rank}, which is missing")
            _within(rows[given & (owners == rank)], events[rank], name)


def _header(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError as error:
        raise UnreadableError(f"the header of a source is invalid: {error}") from error


def _reports(rows: pa.Table, events: Mapping[int, int]) -> dict[int, list[LinkReport]]:
    given = _restore(schema.REPORTS, rows)
    reports: dict[int, list[LinkReport]] = {rank: [] for rank in sorted(events)}
    for rank, report in zip(rows.column("rank").to_pylist(), given, strict=True):
        if rank not in reports:
            raise UnreadableError(f"a report is of rank {rank}, which is missing")
        reports[rank].append(report)
    return reports
