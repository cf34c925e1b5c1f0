"""The writers of tables: a folder of Parquet files, written rank by rank in workers, and a DuckDB file made of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.targets import Place, Target, folder_target
from tracelink._io.temporary import scratch_folder_for, temporary_for
from tracelink._model import MANIFEST, __version__
from tracelink._model.columns import Int64s
from tracelink._model.errors import TraceError, UsageError
from tracelink._model.events import EventKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import Job, Part
from tracelink._store import parquet
from tracelink._time.collectives.exchanges import events_with_splits
from tracelink.converters.tables import schema
from tracelink.converters.tables.contents import job_tables, rank_tables
from tracelink.converters.tables.schema import Manifest
from tracelink.converters.tables.storage import write_manifest
from tracelink.plugins import Output

DATABASE_NAME = "job.duckdb"
"""The name of the database in a directory."""

ALL, LINK, NONE = "all", "link", "none"
"""Whose arguments are written: those of all events, of events that analyses read, or of none."""


class Written(Struct, frozen=True):
    """What was written of one rank, or of the job."""

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

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes all tables; the manifest is last."""
        if not isinstance(target, Place):
            raise UsageError("a dataset is a folder", advice="Name it: -o job.parquet/")
        with target.whole(MANIFEST, schema.OWN_FILES) as files:
            size = self._write(job, files, engine)
        return [Output(target.path(), self.name, None, size, job.events)]

    def _write(self, job: Job, files: Target, engine: Engine) -> int:
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


def _check_visible(files: Target, job: Job) -> None:
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

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
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

    def _write(self, job: Job, scratch: Path, engine: Engine, database: Path, called: str) -> None:
        from tracelink.converters.tables.storage import make_database

        dataset = scratch / "dataset"
        DatasetWriter(self.arguments).write(job, folder_target(dataset), engine)
        make_database(dataset, database, scratch, called)
