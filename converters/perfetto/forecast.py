"""How large a trace will be before it is written: some events of each kind are written, and the rest is counted."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, cast

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.excerpts import fewer, job_of, with_payloads_at_hand
from tracelink.converters.perfetto.schema import FLOW_NAMES
from tracelink.engine import Engine
from tracelink.events import Int64s, Relation
from tracelink.graph import EventGraph
from tracelink.job import PARTICIPATION_ROWS, Job, Part
from tracelink.plugins import Forecast, Output, Target
from tracelink.targets import GzipStream

MOST_RANKS = 2
"""Ranks of a job are alike: so many are looked into."""

PLACES, RUN = 2, 192
"""At so many places of a rank, so many events of each kind are looked at."""

MANY = 32
"""A kind that has one in so many of the events is looked at by itself."""

Write = Callable[[Job, Target, Engine], list[Output]]


@dataclass(frozen=True, slots=True)
class Typical:
    """Bytes of what is counted and not looked at, as measured on many jobs."""

    arrow: int
    tie: int
    """An arrow between ranks."""
    said: int
    """What is said of an event's part in a collective, or of the node that is the same."""
    collective: int
    participation: int
    """What the track of a group says of a rank."""
    sample: int
    """A sample of a counter."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of a rank: how much it will take, and how far what was looked at can be compressed."""

    bytes: float
    written: int
    compressed: int


def forecast_of(job: Job, engine: Engine, write: Write, typical: Typical, *, compressed: bool) -> Forecast:
    """The size of what `write` makes of a job, which `compressed` says to be gzip."""
    weights = _weights(job)
    chosen = _spread(job.parts)
    looks = engine.map(partial(_look, job, write, typical), chosen)
    seen = sum(weights[part.rank] for part in chosen)
    share = sum(weights[part.rank] for part in job.parts) / seen if seen else 0.0
    size = round(sum(look.bytes for look in looks) * share) + _common(job, typical)
    written = sum(look.written for look in looks)
    if not compressed or not written:
        return Forecast(size, size)
    return Forecast(round(size * sum(look.compressed for look in looks) / written), size)


def _weights(job: Job) -> dict[int, int]:
    """How many events each rank has about."""
    weights = dict.fromkeys((part.rank for part in job.parts), 1)
    for source in job.sources:
        if source.rank in weights:
            weights[source.rank] += source.events
    return weights


def _spread(parts: Sequence[Part]) -> list[Part]:
    count = min(MOST_RANKS, len(parts))
    return [parts[len(parts) * (2 * number + 1) // (2 * count)] for number in range(count)]


def _common(job: Job, typical: Typical) -> int:
    """What ranks have together, and what is said of their parts in it."""
    parts = job.participations
    rows = sum(int(np.count_nonzero(getattr(parts, name) != UNKNOWN)) for name in PARTICIPATION_ROWS)
    size = rows * typical.said
    if len(job.parts) > 1:
        size += len(job.ties) * typical.tie
        size += len(job.collectives) * typical.collective + len(parts) * typical.participation
    return size


def _look(job: Job, write: Write, typical: Typical, part: Part) -> _Look:
    graph = part.load()
    sorts = _sorts(graph)
    chosen = [_spread_rows(rows) for rows in sorts]
    every = np.sort(np.concatenate([np.empty(0, np.int64), *chosen]))
    excerpt = with_payloads_at_hand(graph, every)
    size, texts = float(_links(graph, typical)), list[bytes]()
    nothing = _written(job, write, fewer(excerpt, np.empty(0, np.int64)))
    for rows, some in zip(sorts, chosen, strict=True):
        places = np.searchsorted(every, some)
        whole = _written(job, write, fewer(excerpt, places))
        if len(some) == len(rows):
            size += len(whole) - len(nothing)
        else:
            half = _written(job, write, fewer(excerpt, places[::2]))
            size += (len(whole) - len(half)) * len(rows) / (len(some) // 2)
        texts.append(whole)
    text = b"".join(texts)
    return _Look(size, len(text), _gzipped(text))


def _sorts(graph: EventGraph) -> list[Int64s]:
    """The rows of each kind that there are many of, and all others."""
    kinds = graph.events.kind
    counts = np.bincount(kinds)
    many = np.flatnonzero(counts * MANY >= len(kinds)).tolist() if len(kinds) else []
    sorts = [np.flatnonzero(kinds == kind) for kind in many]
    rest = np.flatnonzero(~np.isin(kinds, many))
    return [*sorts, rest] if len(rest) else sorts


def _spread_rows(rows: Int64s) -> Int64s:
    """All rows, or runs of them."""
    if len(rows) <= PLACES * RUN:
        return rows
    begins = [len(rows) * (2 * place + 1) // (2 * PLACES) - RUN // 2 for place in range(PLACES)]
    return np.concatenate([rows[begin : begin + RUN] for begin in begins])


def _links(graph: EventGraph, typical: Typical) -> int:
    """Arrows, what is said of nodes that are not drawn, and samples."""
    edges, timed = graph.edges, graph.events.timed
    both = timed[edges.source] & timed[edges.target]
    arrows = np.isin(edges.relation, list(FLOW_NAMES)) & both
    nodes = (edges.relation == Relation.SAME) & ~both
    return (
        int(np.count_nonzero(arrows)) * typical.arrow
        + int(np.count_nonzero(nodes)) * typical.said
        + len(graph.counters) * typical.sample
    )


def _written(job: Job, write: Write, graph: EventGraph) -> bytes:
    target = _Memory()
    write(job_of(job, graph), target, Engine(1))
    return target.stream.getvalue()


def _gzipped(text: bytes) -> int:
    place = io.BytesIO()
    with GzipStream(place) as stream:
        stream.write(text)
    return len(place.getvalue())


@dataclass(slots=True)
class _Memory:
    """A target that keeps what is written."""

    stream: io.BytesIO = field(default_factory=io.BytesIO)

    @contextmanager
    def file(self, name: str = "") -> Iterator[BinaryIO]:
        """The only file."""
        yield cast(BinaryIO, self.stream)

    def path(self, name: str = "") -> str:
        """It has no name."""
        return ""

    def size(self, name: str = "") -> int:
        """How much was written."""
        return len(self.stream.getvalue())
