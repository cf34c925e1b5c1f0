"""The critical path in the timeline: a track of each rank with its segments; arrows where the path changes ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from tracelink._io.engine import Engine
from tracelink._model.columns import UNKNOWN, Int64s, Table
from tracelink._model.events import Edges, Relation, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob, Part, Ties
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.rank import RankPieces, contracted
from tracelink._time.path.report import PathOfJob, path_of
from tracelink._time.path.times import unusable_times
from tracelink.converters.perfetto.timeline.schema import PATH_CATEGORY
from tracelink.converters.perfetto.timeline.summary import add_track

TRACK = "critical path"
"""Identity and name of the track."""
NO_PROFILE = "No rank has a profile with times."


class DrawnSegments(Table, frozen=True):
    """The slices of one rank, in the order of time."""

    start: Int64s
    end: Int64s
    name: Int64s
    """Index among the names of the path."""
    row: Int64s
    """The event that the segment is, or UNKNOWN."""


class PartWithPath(Struct, frozen=True):
    """A rank whose graph has the segments of the critical path after all other events."""

    part: Part
    segments: DrawnSegments
    names: tuple[str, ...]

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.part.rank

    def load(self) -> EventGraph:
        """The graph of the rank with the segments."""
        return _with_segments(self.part.load(), self.segments, self.names)


class JobWithPath(LinkedJob, frozen=True, dict=True):
    """A job whose parts have the critical path."""

    of_job: Ties = field(default_factory=Ties.empty)
    """The edges of the job itself."""
    changes: Ties = field(default_factory=Ties.empty)
    """The changes of rank on the path."""

    @cached_property
    def ties(self) -> Ties:
        """The edges between ranks, with those of the path."""
        return Ties.concatenate([self.of_job, self.changes])


def with_critical_path(job: LinkedJob, engine: Engine) -> tuple[LinkedJob, tuple[Finding, ...]]:
    """The job with its critical path drawn; as it is, with a finding, if there is none."""

    def work(part: Part) -> tuple[RankPieces, int]:
        graph = part.load()
        return contracted(graph, job, part.rank), len(graph)

    found = engine.map(work, job.parts)
    parts = [pieces for pieces, _ in found]
    path = path_of(parts, job)
    if path is None:
        why = unusable_times(parts, job) or NO_PROFILE
        return job, (Finding(Severity.WARNING, "no_critical_path", f"No critical path is drawn. {why}", 1),)
    names, segments, ties = _drawn(path, {pieces.rank: count for pieces, count in found})
    drawn = [
        PartWithPath(part, segments[part.rank], names) if part.rank in segments else part
        for part in job.parts
    ]
    return JobWithPath(**{**asdict(job), "parts": drawn, "of_job": job.ties, "changes": ties}), ()


def _drawn(
    path: PathOfJob, events: Mapping[int, int]
) -> tuple[tuple[str, ...], dict[int, DrawnSegments], Ties]:
    """The names of all slices, the slices by rank, and the arrows between ranks.

    Segments of one kind and name that follow each other on a rank are one slice.
    """
    segments, pieces = path.segments, path.pieces
    code = pieces.pieces.name[segments.piece]
    kind = segments.kind.astype(np.int64)
    works = kind == pieces.pieces.kind[segments.piece]
    row = np.where(works, pieces.pieces.row[segments.piece], UNKNOWN)
    first = np.ones(len(segments), np.bool_)
    same = (segments.rank[1:] == segments.rank[:-1]) & (kind[1:] == kind[:-1]) & (code[1:] == code[:-1])
    first[1:] = ~same
    begin = np.flatnonzero(first)
    until = np.append(begin[1:], len(segments)) - 1
    keys, which = np.unique(kind[begin] * (len(pieces.names) + 1) + code[begin] + 1, return_inverse=True)
    names = tuple(_name(int(key), pieces.names) for key in keys.tolist())
    rank = segments.rank[begin].astype(np.int64)
    slices = DrawnSegments(segments.start[begin], segments.end[until], which.astype(np.int64), row[begin])
    number = np.zeros(len(begin), np.int64)
    drawn = {}
    for each in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == each)
        number[mine] = events[each] + np.arange(len(mine))
        drawn[each] = slices.take(mine)
    changes = np.flatnonzero(rank[1:] != rank[:-1])
    ties = Ties(
        rank[changes].astype(np.int32),
        number[changes],
        rank[changes + 1].astype(np.int32),
        number[changes + 1],
        np.full(len(changes), Relation.WAITS_FOR, np.int32),
    )
    return names, drawn, ties


def _name(key: int, names: Sequence[str]) -> str:
    kind, code = divmod(key, len(names) + 1)
    label = PieceKind(kind).label.replace("_", " ")
    return f"{label}: {names[code - 1]}" if code else label


def _with_segments(graph: EventGraph, segments: DrawnSegments, names: tuple[str, ...]) -> EventGraph:
    """The graph of a rank with one more track, whose events come after all others."""
    rank = graph.ranks[0].rank
    earlier = sum(track.identity.startswith(TRACK) for track in graph.tracks)
    identity = f"{TRACK} {earlier + 1}" if earlier else TRACK
    track = Track(TrackKind.THREAD, _process(graph), identity, identity, rank, sort=-1)
    whole = add_track(graph, track, PATH_CATEGORY, segments.start, segments.end, segments.name, names)
    known = np.flatnonzero(segments.row != UNKNOWN)
    same = Edges.of_relation(Relation.SAME, segments.row[known], len(graph) + known)
    return replace(whole, edges=Edges.concatenate([graph.edges, same]))


def _process(graph: EventGraph) -> str:
    """The process of the main thread, else of the first thread; empty if there is none."""
    threads = [track for track in graph.tracks if track.kind == TrackKind.THREAD]
    main = [track for track in threads if track.process == track.identity]
    return next((track.process for track in (*main, *threads)), "")
