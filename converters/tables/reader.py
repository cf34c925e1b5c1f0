"""The readers of whole jobs: a dataset or a DuckDB file in, a job whose ranks are loaded on request out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracelink._io.engine import Engine
from tracelink._io.remote.objects import lasting_copy
from tracelink._io.sources import STDIN, Source, again
from tracelink._join.selection import without_unseen
from tracelink._model.columns import UNKNOWN
from tracelink._model.errors import UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, LinkReport, Rank
from tracelink._model.job import Job
from tracelink._model.ranges import Numbers
from tracelink._model.trace import ProcessGroup, RankTrace, SourceInfo
from tracelink.converters.tables import schema
from tracelink.converters.tables.restoring import JobContents, job_contents, rank_graph
from tracelink.converters.tables.schema import Manifest
from tracelink.converters.tables.storage import DatabaseTables, DatasetTables, manifest_of, refused
from tracelink.plugins import Inspected


class Tables(Protocol):
    """Where the tables of a job are."""

    @property
    def path(self) -> str:
        """The path of the manifest, or of the database."""
        ...

    @property
    def manifest(self) -> Manifest:
        """What they contain."""
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


def _job(tables: Tables, wanted: Numbers) -> Job:
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


def _whole_job(contents: JobContents, parts: Sequence[TablesPart], manifest: Manifest) -> Job:
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
    return Job(**asdict(contents) | known)


def _without_waits(manifest: Manifest) -> list[Finding]:
    """The finding on a dataset without any arguments."""
    if manifest.arguments != "none":
        return []
    message = (
        "The dataset was written without arguments (--args none): recorded waits are missing, and the critical path "
        "can be wrong. Write it again from the traces without --args none."
    )
    return [Finding(Severity.WARNING, "arguments", message)]


def _only_ranks(job: Job, manifest: Manifest) -> Job:
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
    """What it is, for each rank."""
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

    def read_job(self, source: Source, engine: Engine, wanted: Numbers) -> Job:
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
