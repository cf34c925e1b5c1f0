"""The expected size of a trace: some events of each kind are written to memory, and the rest is counted."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.targets import Target
from tracelink._io.temporary import GzipStream
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import GPU_WORK, Counters, Edges, Key, KeyColumn, Relation, Track, TrackKind
from tracelink._model.graph import EventGraph, recorded_payloads
from tracelink._model.job import LinkedJob
from tracelink._model.trace import TEXT_KEYS, ListedPayloads
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.timeline.groups import EVENTS_PER_SAMPLE, MIN_SAMPLES
from tracelink.converters.perfetto.timeline.job import ArgumentChoice
from tracelink.converters.perfetto.timeline.schema import FLOW_NAMES, TypicalSizes
from tracelink.plugins import Forecast, Output

# Excerpts: a few events of a rank as a job of their own.


class Excerpt(Struct, frozen=True):
    """One rank with only some of its events."""

    rank: int
    graph: EventGraph

    def load(self) -> EventGraph:
        """Those events."""
        return self.graph


def excerpt_job(job: LinkedJob, graph: EventGraph, before: int) -> LinkedJob:
    """The job as if this were all of it, after `before` ranks without events."""
    rank = graph.ranks[0]
    empty = subset(graph, np.empty(0, np.int64)) if before else graph
    return LinkedJob(
        parts=[Excerpt(rank.rank, empty)] * before + [Excerpt(rank.rank, graph)],
        ranks=[rank],
        sources=(),
        first_ns=job.first_ns,
        last_ns=job.last_ns,
        events=len(graph),
    )


def excerpt_of(graph: EventGraph, rows: Int64s, *, arguments: bool) -> EventGraph:
    """Only these rows, in order, without links; with their recorded arguments in memory if `arguments`."""
    chosen = subset(graph, rows)
    if not arguments:
        return replace(chosen, payloads=[])
    texts = {row: bytes(text) for row, text in recorded_payloads(graph, rows)}
    listed = [texts.get(row, b"") for row in rows.tolist()]
    payloads = [ListedPayloads(listed[low:high]) for low, high in pairwise(chosen.bounds)]
    first = np.repeat(chosen.bounds[:-1], np.diff(chosen.bounds))
    indexes = np.arange(len(rows)) - first
    return replace(chosen, events=replace(chosen.events, payload=indexes), payloads=payloads)


def subset(graph: EventGraph, rows: Int64s) -> EventGraph:
    """Only these rows, and the strings that they use."""
    keys = {key: _picked(column, rows) for key, column in graph.keys.items()}
    names = graph.events.name[rows].astype(np.int64)
    used = np.unique(np.concatenate([names, *(keys[key].values for key in TEXT_KEYS & keys.keys())]))
    used = used[used >= 0]
    events = replace(graph.events.take(rows), name=np.searchsorted(used, names).astype(np.int32))
    return replace(
        graph,
        strings=[graph.strings[code] for code in used.tolist()],
        tracks=[_underived(track) for track in graph.tracks],
        events=events,
        edges=Edges.empty(),
        bounds=np.searchsorted(rows, graph.bounds).tolist(),
        keys={key: _recoded(key, column, used) for key, column in keys.items()},
        counters=Counters.empty(),
    )


def _underived(track: Track) -> Track:
    """A stream as a thread, so that no counters are derived from its events."""
    return replace(track, kind=TrackKind.THREAD) if track.kind == TrackKind.STREAM else track


def _picked(column: KeyColumn, rows: Int64s) -> KeyColumn:
    index = np.searchsorted(rows, column.rows)
    found = np.append(rows, -1)[index] == column.rows
    return replace(column.take(found), rows=index[found])


def _recoded(key: Key, column: KeyColumn, used: Int64s) -> KeyColumn:
    if key not in TEXT_KEYS:
        return column
    given = column.values >= 0
    return replace(column, values=np.where(given, np.searchsorted(used, column.values), column.values))


# Sizes.


LARGE_JOB = 1_000_000
"""Ranks of a job are similar: one is sampled, or two of a job of this size, which may be too large for the UI."""

RUNS, RUN_LENGTH = 4, 128
"""Samples: so many runs of so many events of each kind."""

EVENTS_PER_COMMON_KIND = 32
"""Kinds with at least one in this many events are sampled separately."""

RANKS_BEFORE = 2
"""Most ranks before the sampled one that an excerpt keeps: they affect the length of thread numbers."""

Write = Callable[[LinkedJob, Target, Engine], list[Output]]


class SizeModel(Struct, frozen=True):
    """A format by which a job is written, and its typical sizes."""

    write: Write
    """Writes without compression."""
    typical: TypicalSizes
    args: ArgumentChoice

    def size(self, **counts: int) -> int:
        """The size of so many of each thing of `TypicalSizes`."""
        added = self.args != ArgumentChoice.NONE
        sizes = ((count, *getattr(self.typical, name)) for name, count in counts.items())
        return sum(count * (plain + arguments * added) for count, plain, arguments in sizes)


class _RankSize(Struct, frozen=True):
    """The size of a rank, and how far the sample of it can be compressed."""

    bytes: float
    written: int
    compressed: int


def forecast_of(job: LinkedJob, engine: Engine, model: SizeModel, *, compressed: bool) -> Forecast:
    """The expected size of a job; as gzip if `compressed`."""
    weights = _weights(job)
    chosen = _spread(len(job.parts), 1 + (job.events >= LARGE_JOB))
    ranks = engine.map(partial(_rank_size, job, model), chosen)
    seen = sum(weights[job.parts[index].rank] for index in chosen)
    share = sum(weights[part.rank] for part in job.parts) / seen if seen else 0.0
    size = round(sum(rank.bytes for rank in ranks) * share) + _common(job, model)
    written = sum(rank.written for rank in ranks)
    if not compressed or not written:
        return Forecast(size, size)
    return Forecast(round(size * sum(rank.compressed for rank in ranks) / written), size)


def _weights(job: LinkedJob) -> dict[int, int]:
    """The approximate number of events of each rank."""
    weights = dict.fromkeys((part.rank for part in job.parts), 1)
    for source in job.sources:
        if source.rank in weights:
            weights[source.rank] += source.events
    return weights


def _spread(parts: int, most: int) -> list[int]:
    count = min(most, parts)
    return [parts * (2 * number + 1) // (2 * count) for number in range(count)]


def _common(job: LinkedJob, model: SizeModel) -> int:
    """The size of everything that does not belong to a single rank, and of the arguments of participations."""
    parts, collectives = job.participations, job.collectives
    rows = sum(int(np.count_nonzero(getattr(parts, name) != UNKNOWN)) for name in parts.event_columns())
    if len(job.parts) < 2:
        return model.size(participating=rows)
    changes = 2 * (len(collectives) + int(np.count_nonzero(np.isfinite(collectives.bus_gb_s))))
    return model.size(
        participating=rows,
        cross_rank_flow=len(job.ties),
        collective=len(collectives),
        participation=len(parts),
        arrival=int(np.count_nonzero(collectives.skew > 0)),
        sample=_most_samples(changes, job.events),
    )


def _rank_size(job: LinkedJob, model: SizeModel, index: int) -> _RankSize:
    graph = job.parts[index].load()
    groups = _rows_by_kind(graph)
    chosen = [_spread_rows(rows) for rows in groups]
    every = np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))
    excerpt = excerpt_of(graph, every, arguments=model.args == ArgumentChoice.ALL)

    def written(rows: Int64s) -> bytes:
        some = subset(excerpt, np.searchsorted(every, rows))
        return _written(excerpt_job(job, some, min(index, RANKS_BEFORE)), model.write)

    empty, texts = written(every[:0]), list[bytes]()
    size = float(len(empty) + _links(graph, model))
    for rows, some in zip(groups, chosen, strict=True):
        text = written(some)
        if len(some) == len(rows):
            size += len(text) - len(empty)
        else:
            size += (len(text) - len(written(_first_halves(some)))) * len(rows) / (len(some) // 2)
        texts.append(text)
    sample = b"".join(texts)
    return _RankSize(size, len(sample), _gzipped(sample))


def _rows_by_kind(graph: EventGraph) -> list[Int64s]:
    """The rows of each common kind, and those of all other kinds together."""
    kinds = graph.events.kind
    counts = np.bincount(kinds)
    many = np.flatnonzero(counts * EVENTS_PER_COMMON_KIND >= len(kinds)).tolist() if len(kinds) else []
    groups = [np.flatnonzero(kinds == kind) for kind in many]
    rest = np.flatnonzero(~np.isin(kinds, many))
    return [*groups, rest] if len(rest) else groups


def _spread_rows(rows: Int64s) -> Int64s:
    """All rows, or runs of them."""
    if len(rows) <= RUNS * RUN_LENGTH:
        return rows
    begins = [len(rows) * (2 * index + 1) // (2 * RUNS) - RUN_LENGTH // 2 for index in range(RUNS)]
    return np.concatenate([rows[begin : begin + RUN_LENGTH] for begin in begins])


def _first_halves(rows: Int64s) -> Int64s:
    """The first half of each run."""
    return rows.reshape(RUNS, RUN_LENGTH)[:, : RUN_LENGTH // 2].ravel()


def _links(graph: EventGraph, model: SizeModel) -> int:
    """The size of tracks, flows, arguments of nodes, and samples."""
    edges, timed = graph.edges, graph.events.timed
    both = timed[edges.source] & timed[edges.target]
    flows = np.isin(edges.relation, list(FLOW_NAMES)) & both
    nodes = (edges.relation == Relation.SAME) & ~both
    work = graph.events.of_kind(*GPU_WORK) & timed
    samples = len(graph.counters) + _most_samples(2 * int(np.count_nonzero(work)), len(graph))
    return model.size(
        track=len(np.unique(graph.events.track[timed])),
        flow=int(np.count_nonzero(flows)),
        node=int(np.count_nonzero(nodes)),
        sample=samples,
    )


def _most_samples(changes: int, events: int) -> int:
    """The number of samples of counters with this many changes."""
    return min(changes, max(MIN_SAMPLES, events // EVENTS_PER_SAMPLE))


def _written(job: LinkedJob, write: Write) -> bytes:
    target = _Memory()
    write(job, target, Processes(1))
    return target.stream.getvalue()


def _gzipped(text: bytes) -> int:
    compressed = io.BytesIO()
    with GzipStream(compressed) as stream:
        stream.write(text)
    return len(compressed.getvalue())


class _Memory(Struct):
    """A target that keeps the output in memory."""

    stream: io.BytesIO = field(default_factory=io.BytesIO)

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """The only file."""
        yield cast(BinaryIO, self.stream)

    def path(self, name: str = "") -> str:
        """It has no path."""
        return ""

    def size(self, name: str = "") -> int:
        """The size of the output."""
        return len(self.stream.getvalue())
