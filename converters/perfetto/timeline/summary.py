"""The summary of each rank at a glance: its steps and its waits, on a track of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, Table
from tracelink._model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.selection import steps_of
from tracelink.converters.perfetto.timeline.groups import collective_names
from tracelink.converters.perfetto.timeline.hangs import Hangs
from tracelink.converters.perfetto.timeline.layout import SUMMARY
from tracelink.converters.perfetto.timeline.schema import SUMMARY_CATEGORY

# What ranks wait in: for the last rank of a collective, or in a collective that hangs.


LEAST_SHARE = 2000
"""A wait shorter than this part of the job is less than a pixel of the first view."""

ALL_RANKS = -1
"""The row of waits in which any rank waits."""

NEVER_JOINED = " (this rank never joined)"


class Waits(Table, frozen=True):
    """One row for each wait; those of one rank are in order of time."""

    rank: Int64s
    start: Int64s
    end: Int64s
    name: Int64s
    """Index among the names of all waits."""
    hung: Bools


class AllWaits(Struct, frozen=True):
    """The waits of the ranks of a job."""

    names: Sequence[str] = ()
    waits: Waits = field(default_factory=Waits.empty)

    @classmethod
    def of(cls, job: LinkedJob, hangs: Hangs) -> AllWaits:
        """The waits that are worth a pixel, and longer than the uncertainty of the clocks."""
        if job.first_ns is None or not len(job.collectives):
            return cls()
        titles, title = collective_names(job, np.arange(len(job.collectives)), hangs)
        parts, collectives = job.participations, job.collectives
        rows, stuck = _late_parts(job, hangs), hangs.first_waits
        late = np.unique(parts.collective[rows])
        collective = np.concatenate([parts.collective[rows], late])
        last = collectives.last_rank[collective].astype(np.int64)
        ranks = int(last.max(initial=0)) + 1
        codes, name = np.unique(title[collective] * ranks + last, return_inverse=True)
        names = [f"waits for rank {code % ranks}: {titles[code // ranks]}" for code in codes.tolist()]
        names += [titles[title[one.collective]] + ("" if one.joined else NEVER_JOINED) for one in stuck]
        start = np.concatenate([parts.start[rows], collectives.start[late]])
        waits = Waits(
            np.concatenate([parts.rank[rows], np.full(len(late), ALL_RANKS)]),
            start,
            start + np.concatenate([parts.wait[rows], collectives.skew[late]]),
            name,
            np.zeros(len(name), np.bool_),
        )
        hung = Waits(
            np.array([wait.rank for wait in stuck], np.int64),
            np.array([wait.since for wait in stuck], np.int64),
            np.full(len(stuck), hangs.end, np.int64),
            len(codes) + np.arange(len(stuck)),
            np.ones(len(stuck), np.bool_),
        )
        whole = Waits.concatenate([waits, hung, _of_all_ranks(hung, hangs)])
        return cls(names, whole.take(np.lexsort((whole.start, whole.rank))))

    def of_rank(self, rank: int) -> Waits:
        """The waits of one rank, or of `ALL_RANKS`, without those that start during another."""
        mine = self.waits.take(self.waits.rank == rank)
        return mine.take(_disjoint(mine.start, mine.end))


def _of_all_ranks(hung: Waits, hangs: Hangs) -> Waits:
    """The first wait in each collective that is the cause of a hang."""
    collectives = np.array([wait.collective for wait in hangs.first_waits], np.int64)
    joined = np.array([wait.joined for wait in hangs.first_waits], np.bool_)
    rows = np.flatnonzero(joined & hangs.causes[collectives])
    rows = rows[np.argsort(hung.start[rows], kind="stable")]
    _, first = np.unique(collectives[rows], return_index=True)
    return replace(hung.take(rows[first]), rank=np.full(len(first), ALL_RANKS))


def _late_parts(job: LinkedJob, hangs: Hangs) -> Int64s:
    """Participations that wait for a later rank."""
    parts, collectives = job.participations, job.collectives
    last = collectives.last_rank[parts.collective]
    least = ((job.last_ns or 0) - (job.first_ns or 0)) // LEAST_SHARE
    uncertain = np.zeros(max(rank.rank for rank in job.ranks) + 1, np.int64)
    for rank in job.ranks:
        uncertain[rank.rank] = rank.clock_uncertainty_ns or 0
    late = (parts.start != NO_TIME) & (parts.wait > least) & (last != UNKNOWN)
    late &= ~hangs.collectives[parts.collective]
    late &= parts.wait > np.maximum(uncertain[parts.rank], uncertain[last])
    return np.flatnonzero(late)


def _disjoint(start: Int64s, end: Int64s) -> Int64s:
    """The intervals, sorted by start, that start after the end of the last one that was chosen."""
    chosen, free = [], NO_TIME
    for index, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if begin >= free:
            chosen.append(index)
            free = until
    return np.array(chosen, np.int64)


# The track: steps, and within them waits; a wait that goes on in the next step is cut.


class _Slices(Struct, frozen=True):
    """Slices that are nested or disjoint."""

    start: Int64s
    end: Int64s
    name: Int64s
    names: Sequence[str]
    hung: Bools


def with_summary(graph: EventGraph, all_waits: AllWaits) -> tuple[EventGraph, Sequence[int]]:
    """The graph of a rank with the events of its summary after all others, and the rows of those that hang."""
    slices = _slices(graph, all_waits)
    if not len(slices.start) or any(track.identity == SUMMARY for track in graph.tracks):
        return graph, ()
    track = Track(TrackKind.THREAD, "", SUMMARY, SUMMARY, graph.ranks[0].rank)
    whole = add_track(graph, track, SUMMARY_CATEGORY, slices.start, slices.end, slices.name, slices.names)
    return whole, (len(graph) + np.flatnonzero(slices.hung)).tolist()


def add_track(
    graph: EventGraph,
    track: Track,
    category: str,
    start: Int64s,
    end: Int64s,
    name: Int64s,
    names: Sequence[str],
) -> EventGraph:
    """The graph of a rank with one more track, whose slices come after all other events, as of one more source."""
    count, first = len(start), len(graph)
    used, which = np.unique(name, return_inverse=True)
    added = Events(
        np.full(count, EventKind.OTHER, np.uint8),
        (len(graph.strings) + 1 + which).astype(np.int32),
        np.full(count, len(graph.tracks), np.int32),
        start,
        end - start,
        np.full(count, len(graph.bounds) - 1, np.int32),
        np.full(count, UNKNOWN, np.int64),
    )
    own = KeyColumn(first + np.arange(count), np.full(count, len(graph.strings)))
    return replace(
        graph,
        strings=[*graph.strings, category, *(names[index] for index in used.tolist())],
        events=Events.concatenate([graph.events, added]),
        tracks=[*graph.tracks, track],
        bounds=[*graph.bounds, first + count],
        keys={**graph.keys, Key.CATEGORY: KeyColumn.concatenate([graph.key(Key.CATEGORY), own])},
    )


def _slices(graph: EventGraph, all_waits: AllWaits) -> _Slices:
    waits, steps = all_waits.of_rank(graph.ranks[0].rank), steps_of(graph)
    timed = graph.events.timed
    last = int(graph.events.end[timed].max(initial=0))
    order = np.lexsort((-steps.end, steps.start))
    order = order[_disjoint(steps.start[order], steps.end[order])]
    start, end = steps.start[order], np.minimum(steps.end[order], np.maximum(last, steps.start[order]))
    cuts = np.unique(np.concatenate([start, end]))
    begins, ends, source = [start], [end], []
    for begin, until in zip(waits.start.tolist(), waits.end.tolist(), strict=True):
        inside = cuts[(cuts > begin) & (cuts < until)]
        begins.append(np.concatenate([[begin], inside]))
        ends.append(np.concatenate([inside, [until]]))
        source.append(len(inside) + 1)
    pieces = np.repeat(np.arange(len(waits)), source)
    return _Slices(
        np.concatenate(begins).astype(np.int64),
        np.concatenate(ends).astype(np.int64),
        np.concatenate([np.arange(len(order)), len(order) + waits.name[pieces]]).astype(np.int64),
        [*(f"step {number}" for number in steps.number[order].tolist()), *all_waits.names],
        np.concatenate([np.zeros(len(order), np.bool_), waits.hung[pieces]]),
    )
