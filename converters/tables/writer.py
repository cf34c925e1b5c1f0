"""Writes a graph and a job as tables: Arrow arrays of the model, as a folder of Parquet files or a DuckDB file."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

import tracelink.converters.tables.schema as schema
from tracelink._io.engine import Engine
from tracelink._io.targets import Place, Target, folder_target
from tracelink._io.temporary import scratch_folder_for, temporary_for
from tracelink._model import MANIFEST, __version__
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s, int64s, scatter, values_at
from tracelink._model.columns import Table as ModelTable
from tracelink._model.errors import TraceError, UsageError, encodable
from tracelink._model.events import EventKind, Events, Key, KeyColumn, Relation
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob, Part
from tracelink._model.trace import TEXT_KEYS, Payload, SourceInfo, payloads_near
from tracelink._store import parquet
from tracelink._store.parquet import arrow_schema, arrow_type
from tracelink._store.schema import Column, Type
from tracelink._time.collectives.exchanges import events_with_splits
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.breakdown import breakdown_of
from tracelink._time.rank.steps import windows_of
from tracelink._time.rank.view import RankView
from tracelink.converters.tables.schema import Manifest
from tracelink.converters.tables.storage import write_manifest
from tracelink.plugins import Output

# Arrow arrays of columns.


def numbers(values: Any, unknown: int = UNKNOWN) -> pa.Array:
    """An array of integers, in which `unknown` is null."""
    missing = values == unknown
    return pa.array(values, mask=missing if missing.any() else None)


def texts(strings: Sequence[str], codes: Any) -> pa.DictionaryArray:
    """The strings of codes as a dictionary of those that occur; UNKNOWN is null."""
    occurs = np.zeros(len(strings) + 1, np.bool_)
    occurs[codes] = True
    used = np.flatnonzero(occurs[:-1]).tolist()
    renumbered = np.full(len(strings) + 1, UNKNOWN, np.int32)
    renumbered[used] = np.arange(len(used))
    return dictionary([strings[code] for code in used], renumbered[codes])


def dictionary(values: Sequence[str], indexes: Any) -> pa.DictionaryArray:
    """The values at these indexes as a dictionary; UNKNOWN is null."""
    return pa.DictionaryArray.from_arrays(numbers(indexes.astype(np.int32, copy=False)), _utf8(values))


def _utf8(values: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # names of files can hold what is not UTF-8
        return pa.array([encodable(value) for value in values], pa.string())


def _array(column: Column, values: Iterable[Any]) -> pa.Array:
    """An array of values of Python, of which unknown and empty ones are null."""
    listed = [value if value or value == 0 else None for value in values]
    if column.type == Type.SHARED:
        codes = {text: code for code, text in enumerate(dict.fromkeys(filter(None, listed)))}
        indexes = np.fromiter((codes.get(text, UNKNOWN) for text in listed), np.int32, len(listed))
        return dictionary(list(codes), indexes)
    if column.type == Type.TEXTS:
        listed = [encodable(list(value)) if value else None for value in listed]
    if column.type == Type.COUNTS:
        listed = [sorted(value.items()) if value else None for value in listed]
    if column.type == Type.INTEGERS:
        return _lists(listed)
    if column.type == Type.INTEGER:
        missing = np.array([value is None for value in listed], np.bool_)
        return pa.array(int64s([value or 0 for value in listed]), mask=missing)
    return pa.array(listed, arrow_type(column.type))


def _lists(values: Sequence[Sequence[int] | None]) -> pa.ListArray:
    """Lists of ranks, which can be long."""
    lengths = np.array([len(value or ()) for value in values], np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    flat = np.concatenate([np.empty(0, np.int64), *(int64s(value) for value in values if value)])
    return pa.ListArray.from_arrays(offsets, pa.array(flat), mask=pa.array(lengths == 0))


def _table(table: schema.Table, columns: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_arrays(
        [columns[column.name] for column in table.columns], schema=arrow_schema(table)
    )


def _of_model(table: schema.Table, rows: Any, strings: Sequence[str] = (), **others: pa.Array) -> pa.Table:
    """A table of the rows of the model; `others` are columns that are not made of its fields alone."""
    masked = rows.masked() if isinstance(rows, ModelTable) else {}

    def array(column: Column) -> pa.Array:
        if not column.source:
            return pa.array(np.arange(len(rows))).cast(arrow_type(column.type))
        if not isinstance(rows, ModelTable):
            return _array(column, (getattr(row, column.source) for row in rows))
        if column.words:
            return dictionary(column.words, getattr(rows, column.source))
        if column.type == Type.SHARED:
            return texts(strings, getattr(rows, column.source))
        values = masked[column.source]
        if isinstance(values, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(values)
            return pa.array(values.data, mask=mask if mask.any() else None)
        return pa.array(values, from_pandas=True)

    return _table(
        table,
        others | {column.name: array(column) for column in table.columns if column.name not in others},
    )


# One rank.


def rank_tables(graph: EventGraph, arguments: Int64s | None) -> Iterator[tuple[schema.Table, pa.Table]]:
    """The tables of the graph of one rank, with the arguments of these events; None is no table of arguments."""
    graph = _with_own_tracks(graph)
    view = RankView(graph)
    as_columns, others = _keys(graph)
    yield schema.EVENTS, _events(view, as_columns)
    yield schema.EDGES, _of_model(schema.EDGES, graph.edges)
    yield schema.TRACKS, _of_model(schema.TRACKS, graph.tracks)
    yield schema.COUNTERS, _counters(graph)
    yield schema.KEYS, _other_keys(graph, others)
    yield schema.STEPS, _steps(view)
    yield schema.COMPILES, _compiles(graph)
    if arguments is not None:
        yield schema.ARGUMENTS, _arguments(graph, arguments)


def _with_own_tracks(graph: EventGraph) -> EventGraph:
    """The graph without tracks of other ranks, which the part of a graph in memory has."""
    rank = graph.ranks[0].rank
    own = np.array([track.rank == rank for track in graph.tracks], np.bool_)
    own[graph.events.track] = True
    own[graph.counters.track] = True
    if own.all():
        return graph
    number = (np.cumsum(own) - 1).astype(np.int32)
    return replace(
        graph,
        tracks=[track for track, mine in zip(graph.tracks, own.tolist(), strict=True) if mine],
        events=replace(graph.events, track=number[graph.events.track]),
        counters=replace(graph.counters, track=number[graph.counters.track]),
    )


def _events(view: RankView, keys: Mapping[Key, KeyColumn]) -> pa.Table:
    graph, events = view.graph, view.events
    length = len(graph)
    caller = view.caller[:-1]
    work = view.work
    part, call = (scatter(length, work.row, values) for values in (work.part, work.call))
    gap = work.start[1:] - np.maximum.accumulate(work.end)[:-1]
    idle = scatter(length, work.row[1:][gap > 0], gap[gap > 0])
    columns = {
        "payload": numbers(events.payload),
        "caller": numbers(caller),
        "self_ns": _self_times(events, caller),
        "call": numbers(call),
        "called_ns": numbers(values_at(events.start, call, NO_TIME), NO_TIME),
        "part": dictionary([part.name.lower() for part in schema.Part], part),
        "idle_ns": numbers(idle),
    }
    for key in schema.KEY_COLUMNS:
        columns[key.value] = _spread(keys[key], length) if key in keys else pa.nulls(length, pa.int64())
    return _of_model(schema.EVENTS, events, graph.strings, **columns)


def _self_times(events: Events, caller: Int64s) -> pa.Array:
    """The duration of each event without what it calls."""
    called = np.flatnonzero((caller != UNKNOWN) & (events.duration > 0))
    inner = np.zeros(len(caller), np.int64)
    np.add.at(inner, caller[called], events.duration[called])
    missing = events.duration == UNKNOWN
    return pa.array(events.duration - inner, mask=missing if missing.any() else None)


def _spread(column: KeyColumn, length: int) -> pa.Array:
    """A key as a column of all events."""
    missing = np.ones(length, np.bool_)
    missing[column.rows] = False
    return pa.array(column.dense(length, 0), mask=missing)


def _keys(graph: EventGraph) -> tuple[dict[Key, KeyColumn], dict[Key, KeyColumn]]:
    """The keys that are columns of events, and the others: those of few events, or with several values for one."""
    as_columns = {
        key: column
        for key, column in graph.keys.items()
        if key in schema.KEY_COLUMNS and (np.diff(column.rows) > 0).all()
    }
    return as_columns, {key: column for key, column in graph.keys.items() if key not in as_columns}


def _other_keys(graph: EventGraph, keys: Mapping[Key, KeyColumn]) -> pa.Table:
    rows, values, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    missing = [np.empty(0, np.bool_)]
    for key, column in keys.items():
        is_text = key in TEXT_KEYS
        unknown = np.full(len(column), UNKNOWN, np.int64)
        rows.append(column.rows)
        values.append(unknown if is_text else column.values)
        codes.append(column.values if is_text else unknown)
        missing.append(np.full(len(column), is_text))
    which = np.repeat(np.arange(len(keys), dtype=np.int32), [len(column) for column in keys.values()])
    return _table(
        schema.KEYS,
        {
            "event": pa.array(np.concatenate(rows)),
            "key": dictionary([key.value for key in keys], which),
            "value": pa.array(np.concatenate(values), mask=np.concatenate(missing)),
            "text": texts(graph.strings, np.concatenate(codes)),
        },
    )


def _counters(graph: EventGraph) -> pa.Table:
    samples = graph.counters
    operator = _last_before(samples.time, graph.events, EventKind.OPERATOR)
    return _of_model(schema.COUNTERS, samples, operator=numbers(operator))


def _last_before(times: Int64s, events: Events, kind: EventKind) -> Int64s:
    """The event of a kind that began last before each of these times, or at it; UNKNOWN before the first one."""
    if not len(times):
        return np.empty(0, np.int64)
    rows = np.flatnonzero(events.of_kind(kind) & events.timed)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    place = np.searchsorted(events.start[rows], times, side="right") - 1
    return values_at(rows, place)


def _steps(view: RankView) -> pa.Table:
    windows = windows_of(view.graph).windows
    breakdown = breakdown_of(view)
    parts = breakdown.parts(windows)
    work = np.full(len(windows), list(WorkIn).index(breakdown.work))
    return _table(
        schema.STEPS,
        {
            "step": numbers(windows.number),
            "start_ns": pa.array(windows.start),
            "end_ns": pa.array(windows.end),
            "own_end_ns": pa.array(windows.own_end),
            "work": dictionary(list(WorkIn), work),
            **{name: pa.array(parts[name]) for name in schema.STEP_PARTS},
        },
    )


def _compiles(graph: EventGraph) -> pa.Table:
    """The compilations of a rank, in the order of their first phases."""
    events = graph.events
    phases = graph.key(Key.COMPILE_ID)
    kept = events.kind[phases.rows] == EventKind.COMPILATION
    rows, codes = phases.rows[kept], phases.values[kept]
    distinct, first, number = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.argsort(order, kind="stable")[number]
    begin = np.full(len(distinct), np.iinfo(np.int64).max)
    end = np.full(len(distinct), NO_TIME)
    timed = events.timed[rows]
    np.minimum.at(begin, number[timed], events.start[rows[timed]])
    np.maximum.at(end, number[timed], events.end_of(rows[timed]))
    known = end != NO_TIME
    compilation = scatter(len(graph), rows, number)
    ran = compilation[graph.edges.where(Relation.COMPILES).source]
    return _table(
        schema.COMPILES,
        {
            "compile_id": texts(graph.strings, distinct[order]),
            "start_ns": pa.array(begin, mask=~known),
            "duration_ns": pa.array(np.where(known, end - np.where(known, begin, 0), 0), mask=~known),
            "phases": pa.array(np.bincount(number, minlength=len(distinct))),
            "ran": pa.array(np.bincount(ran[ran != UNKNOWN], minlength=len(distinct))),
            "cache_key": _first_text(graph, Key.CACHE_KEY, compilation, len(distinct)),
            "output_code": _first_text(graph, Key.OUTPUT_CODE, compilation, len(distinct)),
        },
    )


def _first_text(graph: EventGraph, key: Key, compilation: Int64s, count: int) -> pa.Array:
    """The first value of a key in each compilation."""
    column = graph.key(key)
    number = compilation[column.rows]
    first = np.full(count, UNKNOWN, np.int64)
    given = np.flatnonzero(number != UNKNOWN)[::-1]
    first[number[given]] = given
    return texts(graph.strings, values_at(column.values, first))


def _arguments(graph: EventGraph, rows: Int64s) -> pa.Table:
    """The arguments of those of these events that have some, by source and by the number of the payload."""
    events = graph.events
    sources, places, found = [np.empty(0, np.int32)], [np.empty(0, np.int64)], list[Payload]()
    for source, payloads in enumerate(graph.payloads):
        wanted = np.unique(events.payload[rows[events.source[rows] == source]])
        for first, run in payloads_near(payloads, wanted[wanted >= 0]):
            inside = wanted[(wanted >= first) & (wanted < first + len(run))]
            given = [(place, run[place - first]) for place in inside.tolist() if len(run[place - first])]
            sources.append(np.full(len(given), source, np.int32))
            places.append(np.array([place for place, _ in given], np.int64))
            found += [text for _, text in given]
    return _table(
        schema.ARGUMENTS,
        {
            "source": pa.array(np.concatenate(sources)),
            "payload": pa.array(np.concatenate(places)),
            "arguments": _json_texts(found),
        },
    )


def _json_texts(found: Sequence[Payload]) -> pa.Array:
    """Arguments as texts; bytes that are not UTF-8 are replaced."""
    stored = [bytes(text) for text in found]
    try:
        return pa.array(stored, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in stored], pa.string())


# The job.


def job_tables(job: LinkedJob) -> Iterator[tuple[schema.Table, pa.Table]]:
    """The tables that a job has once."""
    reports = [(rank, report) for rank, reports in job.reports.items() for report in reports]
    special = {
        schema.SOURCES: {
            "source": pa.array(_numbers_within_ranks(job.sources), pa.int32()),
            "header": _utf8([_header(source.header) if source.header else None for source in job.sources]),
        },
        schema.GROUPS: {"size": numbers(int64s([group.size for group in job.groups]), 0)},
        schema.REPORTS: {"rank": pa.array([rank for rank, _ in reports], pa.int32())},
    }
    for table in schema.OF_JOB:
        rows = [report for _, report in reports] if table == schema.REPORTS else getattr(job, table.name)
        yield table, _of_model(table, rows, job.strings, **special.get(table, {}))


def _numbers_within_ranks(sources: Sequence[SourceInfo]) -> Iterator[int]:
    """Yields the row of each source among those of its rank."""
    counts = Counter[int]()
    for source in sources:
        rank = source.rank or 0
        yield counts[rank]
        counts[rank] += 1


def _header(header: Mapping[str, Any]) -> str:
    return msgspec.json.encode(encodable(dict(header))).decode()


# The writers.


DATABASE_NAME = "job.duckdb"
"""The name of the database in a directory."""

ALL, LINK, NONE = "all", "link", "none"
"""Whose arguments are written: those of all events, of events that analyses read, or of none."""


class Written(Struct, frozen=True):
    """Sizes of the files of one rank, or of the job."""

    bytes: int
    events: int
    rows: Mapping[str, int]
    span: tuple[int | None, int | None]


class _RankWork(Struct, frozen=True):
    """Writes the tables of one rank, in any process."""

    target: Target
    arguments: str
    exchanging: Mapping[int, Int64s]
    """By rank, the events with the parts of all-to-all operations."""

    def __call__(self, part: Part) -> Written:
        graph = part.load()
        size, rows = 0, {}
        for table, content in rank_tables(graph, self._with_arguments(graph, part.rank)):
            size += parquet.write(self.target, schema.partition(table.name, part.rank), table, content)
            rows[table.name] = len(content)
        return Written(size, len(graph), rows, graph.span)

    def _with_arguments(self, graph: EventGraph, rank: int) -> Int64s | None:
        if self.arguments == NONE:
            return None
        if self.arguments == ALL:
            return np.arange(len(graph))
        waits = np.flatnonzero(graph.events.of_kind(EventKind.SYNCHRONIZATION))
        return np.union1d(waits, self.exchanging.get(rank, waits))


class DatasetWriter(Struct, frozen=True):
    """A folder of Parquet tables."""

    arguments: str = LINK

    name = "parquet"

    def configured(self, **options: str) -> DatasetWriter:
        """The writer of these arguments of events."""
        return DatasetWriter(options.get("args", LINK))

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes all tables; the manifest is last."""
        if not isinstance(target, Place):
            raise UsageError("a dataset is a folder", advice="Name it: -o job.parquet/")
        with target.whole(MANIFEST, schema.OWN_FILES) as files:
            size = self._write(job, files, engine)
        return [Output(target.path(), self.name, None, size, job.events)]

    def _write(self, job: LinkedJob, files: Target, engine: Engine) -> int:
        ranks = engine.map(_RankWork(files, self.arguments, events_with_splits(job)), job.parts)
        _check_visible(files, job)
        rows = dict.fromkeys(ranks[0].rows if ranks else (), 0)
        for name in rows:
            rows[name] = sum(written.rows[name] for written in ranks)
        size = sum(written.bytes for written in ranks)
        for table, content in job_tables(job):
            size += parquet.write(files, schema.file_of(table.name), table, content)
            rows[table.name] = len(content)
        manifest = Manifest(
            schema.FORMAT,
            schema.VERSION,
            __version__,
            [part.rank for part in job.parts],
            [written.events for written in ranks],
            rows,
            [written.span for written in ranks],
            job.first_ns,
            job.last_ns,
            LINK if self.arguments == ALL and not job.all_arguments else self.arguments,
        )
        return size + write_manifest(files, manifest)


def _check_visible(files: Target, job: LinkedJob) -> None:
    """Raises `TraceError` if workers of a cluster wrote to folders that only they have."""
    for part in job.parts[:1]:
        name = schema.partition(schema.EVENTS.name, part.rank)
        try:
            files.size(name)
        except OSError as error:
            raise TraceError(
                "the workers wrote their files where this machine cannot read them",
                source=files.path(name),
                advice="Name a folder that all machines share, or an address such as s3://BUCKET/job.parquet/.",
            ) from error


class DatabaseWriter(Struct, frozen=True):
    """One DuckDB file with tables and views."""

    arguments: str = LINK

    name = "duckdb"

    def configured(self, **options: str) -> DatabaseWriter:
        """The writer of these arguments of events."""
        return DatabaseWriter(options.get("args", LINK))

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes a dataset in a temporary folder, and makes the file of it."""
        if not isinstance(target, Place):
            raise UsageError("a DuckDB file cannot be written to a stream", advice="Name it: -o job.duckdb")
        if target.local and not target.is_folder:
            with scratch_folder_for(target.local) as scratch, temporary_for(target.local) as temporary:
                self._write(job, scratch, engine, temporary, target.path())
        else:
            with scratch_folder_for(None) as scratch, target.file(DATABASE_NAME) as stream:
                database = scratch / DATABASE_NAME
                self._write(job, scratch, engine, database, target.path(DATABASE_NAME))
                with database.open("rb") as written:
                    shutil.copyfileobj(written, stream)
        size = target.size(DATABASE_NAME)
        return [Output(target.path(DATABASE_NAME), self.name, None, size, job.events)]

    def _write(self, job: LinkedJob, scratch: Path, engine: Engine, database: Path, called: str) -> None:
        from tracelink.converters.tables.storage import make_database

        dataset = scratch / "dataset"
        DatasetWriter(self.arguments).write(job, folder_target(dataset), engine)
        make_database(dataset, database, scratch, called)
