"""Reads back the tables of a job: every value is checked, and ranks are loaded on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

import tracelink.converters.tables.schema as schema
from tracelink._io.engine import Engine
from tracelink._io.remote.objects import lasting_copy
from tracelink._io.sources import STDIN, Source, again
from tracelink._join.selection import without_unseen
from tracelink._model.columns import UNKNOWN, Int32s, Int64s, StringTable
from tracelink._model.columns import Table as ModelTable
from tracelink._model.communications import Messages, Participations
from tracelink._model.errors import UnreadableError, UsageError
from tracelink._model.events import (
    Counters,
    Edges,
    Events,
    Key,
    KeyColumn,
)
from tracelink._model.fields import fields_of
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, LinkReport, Rank, source_bounds
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.trace import TEXT_KEYS, Payload, Payloads, ProcessGroup, RankTrace, SourceInfo
from tracelink._store.schema import Column, Type
from tracelink.converters.tables.schema import Manifest
from tracelink.converters.tables.storage import DatabaseTables, DatasetTables, manifest_of, refused
from tracelink.plugins import Inspected

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


def job_contents(read: Read, events: Mapping[int, int]) -> LinkedJob:
    """The tables of a job, without its parts; `events` is the number of events of each of its ranks."""
    strings, found = StringTable(), dict[str, Any]()
    for table in schema.OF_JOB:
        if table != schema.TIES:
            found[table.name] = _of_job(table, read(table), strings, events)
    job = LinkedJob(parts=(), strings=strings.texts(), **found)
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


# The readers.


class Tables(Protocol):
    """The tables of a job in a dataset or a database."""

    @property
    def path(self) -> str:
        """The path of the manifest, or of the database."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The content that was written."""
        ...

    def read(self, table: schema.Table, rank: int | None = None) -> pa.Table:
        """The rows of a table of the job, or those of one rank."""
        ...


class TablesPart(Struct, frozen=True):
    """A rank whose tables are read when it is loaded."""

    tables: Tables
    row: Rank
    sources: Sequence[SourceInfo]
    groups: Sequence[ProcessGroup]
    reports: Sequence[LinkReport]

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.row.rank

    def load(self) -> EventGraph:
        """The rank's graph."""
        with refused(self.tables.path):
            graph = rank_graph(
                partial(self.tables.read, rank=self.rank),
                self.row,
                self.sources,
                self.groups,
                self.reports,
                arguments=schema.ARGUMENTS.name in self.tables.manifest.tables,
            )
            expected = dict(zip(self.tables.manifest.ranks, self.tables.manifest.events, strict=True))
            if len(graph) != expected[self.rank]:
                raise UnreadableError(
                    f"rank {self.rank} has {len(graph):,} events, and the manifest states {expected[self.rank]:,}"
                )
            return graph


def _job(tables: Tables, wanted: Numbers) -> LinkedJob:
    manifest = tables.manifest
    with refused(tables.path):
        contents = job_contents(tables.read, dict(zip(manifest.ranks, manifest.events, strict=True)))
    if missing := wanted.without(manifest.ranks):
        raise UsageError(
            f"there is no rank {missing}",
            advice=f"{tables.path} has {Numbers.of(manifest.ranks).called('rank')}.",
        )
    sources: dict[int, list[SourceInfo]] = {rank: [] for rank in manifest.ranks}
    for source in contents.sources:
        sources[source.rank or 0].append(source)
    parts = [
        TablesPart(tables, row, sources[row.rank], contents.groups, contents.reports[row.rank])
        for row in contents.ranks
        if not wanted or row.rank in wanted
    ]
    whole = _whole_job(contents, parts, manifest)
    return _only_ranks(whole, manifest) if len(parts) < len(manifest.ranks) else whole


def _whole_job(contents: LinkedJob, parts: Sequence[TablesPart], manifest: Manifest) -> LinkedJob:
    events = dict(zip(manifest.ranks, manifest.events, strict=True))
    known = {
        "parts": parts,
        "ranks": [part.row for part in parts],
        "sources": [source for part in parts for source in part.sources],
        "findings": [*contents.findings, *_without_waits(manifest)],
        "reports": {part.rank: part.reports for part in parts},
        "first_ns": manifest.first_ns,
        "last_ns": manifest.last_ns,
        "events": sum(events[part.rank] for part in parts),
        "all_arguments": manifest.arguments == "all",
    }
    return replace(contents, **known)


def _without_waits(manifest: Manifest) -> list[Finding]:
    """The finding on a dataset without any arguments."""
    if manifest.arguments != "none":
        return []
    message = (
        "The dataset was written without arguments (--args none): recorded waits are missing, and the critical path "
        "can be wrong. Write it again from the traces without --args none."
    )
    return [Finding(Severity.WARNING, "arguments", message)]


def _only_ranks(job: LinkedJob, manifest: Manifest) -> LinkedJob:
    """The job with the tables of the ranks of its parts; what was matched with other ranks stays matched."""
    ranks = [part.rank for part in job.parts]
    spans = [span for rank, span in zip(manifest.ranks, manifest.spans, strict=True) if rank in ranks]
    known = np.array([track.rank in ranks for track in job.metric_tracks], np.bool_)
    samples = job.metrics.take(known[job.metrics.track] if len(job.metrics) else slice(0))
    messages = job.messages
    here = {name: np.isin(getattr(messages, name), ranks) for name in ("source", "target")}
    events = {
        name: np.where(here[owner], getattr(messages, name), UNKNOWN)
        for name, owner in messages.event_columns().items()
    }
    smaller = replace(
        job,
        participations=job.participations.take(np.isin(job.participations.rank, ranks)),
        messages=replace(messages, **events).take(here["source"] | here["target"]),
        first_ns=min((first for first, _ in spans if first is not None), default=None),
        last_ns=max((last for _, last in spans if last is not None), default=None),
        metrics=replace(samples, track=(np.cumsum(known) - 1)[samples.track].astype(np.int32)),
        metric_tracks=[track for track in job.metric_tracks if track.rank in ranks],
    )
    return without_unseen(smaller)


def _inspected(tables: Tables, source: Source, name: str) -> list[Inspected]:
    """The source of each rank."""
    parts = _job(tables, Numbers()).parts
    return [_inspected_rank(part, source, name) for part in parts if isinstance(part, TablesPart)]


def _inspected_rank(part: TablesPart, source: Source, name: str) -> Inspected:
    starts = [info.start_ns for info in part.sources if info.start_ns is not None]
    ends = [info.end_ns for info in part.sources if info.end_ns is not None]
    clock, manifest = part.row.clock, part.tables.manifest
    events = manifest.events[list(manifest.ranks).index(part.rank)]
    info = SourceInfo(
        f"{source.path}:rank={part.rank}",
        name,
        str(manifest.schema),
        part.rank,
        part.row.host,
        part.row.world_size,
        events=events,
        records=events,
        bytes=sum(info.bytes for info in part.sources),
        start_ns=clock.corrected_time(min(starts)) if starts else None,
        end_ns=clock.corrected_time(max(ends)) if ends else None,
    )
    return Inspected(replace(source, path=info.path), info)


class _TablesReader:
    """Reads the tables of a whole job."""

    name: str

    def read_job(self, source: Source, engine: Engine, wanted: Numbers) -> LinkedJob:
        """The job; its ranks are read when they are loaded."""
        return _job(self._tables(source), wanted)

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """The ranks of the job."""
        return _inspected(self._tables(source), source, self.name)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The tables of a whole job are no rank trace."""
        raise UnreadableError(
            "it contains linked traces of a whole job", source=source.path, advice="Use it as the only input."
        )

    def _tables(self, source: Source) -> Tables:
        if not source.is_whole:
            raise _not_local(source)
        return self._opened(source)

    def _opened(self, source: Source) -> Tables:
        raise NotImplementedError


class DatasetReader(_TablesReader):
    """Reads the folder of Parquet tables that `merge -o job.parquet` writes."""

    name = "parquet"

    def _opened(self, source: Source) -> DatasetTables:
        return DatasetTables(source.path, again(source).rpartition("/")[0] or ".", manifest_of(source))


class DatabaseReader(_TablesReader):
    """Reads the DuckDB file that `merge -o job.duckdb` writes."""

    name = "duckdb"

    def _opened(self, source: Source) -> DatabaseTables:
        return DatabaseTables.of(source.path, source.local or lasting_copy(again(source)))


def _not_local(source: Source) -> UnreadableError:
    if source.path == STDIN:
        return UnreadableError(
            "it cannot be read from standard input", source=source.path, advice="Name the file instead."
        )
    return UnreadableError("it cannot be read within an archive", source=source.path, advice="Unpack it.")
