"""Collectives that hang and how they are drawn; which rank arrived last in each collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.collectives import LONG_FOR_A_FIRST_NS
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, Table
from tracelink._model.events import EventKind, Key
from tracelink._model.graph import EventGraph
from tracelink._model.job import Job
from tracelink._model.ranges import Numbers
from tracelink.converters.perfetto.timeline.schema import HUNG_PREFIX
from tracelink.converters.perfetto.timeline.stuck import (
    NEVER,
    OPEN,
    TRACKED,
    Hung,
    hung_of,
    missing_from,
)

# Collectives that hang: drawn to the end of the trace, in one colour, with a prefix in their names.


LEAST_PART = 10
"""A collective that hangs lasts at least a tenth of the trace, to be visible even if it starts last."""


MAX_LIST = 24
"""Longest list of missing ranks in a name, in characters."""


class RankHang(Struct, frozen=True):
    """What hangs on one rank."""

    records: Int64s
    """The recorder's entries of collectives that hang."""
    since: int
    """When the rank entered the first of them, or NEVER; what it requested since then hangs as well."""
    end: int
    """The end of the slices that hang."""


NO_HANG = RankHang(np.empty(0, np.int64), NEVER, 0)


class HungWait(Struct, frozen=True):
    """The first collective that hangs in which a rank is, or which it never joined although others wait there."""

    rank: int
    collective: int
    since: int
    joined: bool


class Hangs(Struct, frozen=True):
    """Everything that hangs in a job."""

    collectives: Bools
    causes: Bools
    """Of the collectives that wait for the same ranks, the one that was entered first."""
    missing: Mapping[int, Numbers]
    """For each collective that hangs, the ranks of its group that have not joined."""
    by_rank: Mapping[int, RankHang]
    """The ranks that wait in such a collective."""
    first_waits: Sequence[HungWait]
    """At most one for each rank."""
    end: int
    """The end of the trace: all that hangs is drawn up to it, on all ranks."""

    @classmethod
    def of(cls, job: Job) -> Hangs:
        """The hangs of a job."""
        hung, parts = hung_of(job), job.participations
        newest = int(parts.enqueued[hung.parts].max(initial=NO_TIME))
        first, last = job.first_ns or 0, job.last_ns or 0
        end = max(last, newest + (last - first) // LEAST_PART)
        rows = np.flatnonzero(hung.parts)
        by_rank = {
            rank: RankHang(parts.record[rows[parts.rank[rows] == rank]], int(hung.since[rank]), end)
            for rank in np.unique(parts.rank[rows]).tolist()
        }
        missing = {
            row: Numbers.of(missing_from(job, row)) for row in np.flatnonzero(hung.collectives).tolist()
        }
        causes = _first_causes(job, hung, missing)
        return cls(hung.collectives, causes, missing, by_rank, _first_waits(job, hung, causes, missing), end)

    def of_rank(self, rank: int) -> RankHang:
        """What hangs on a rank."""
        return self.by_rank.get(rank, replace(NO_HANG, end=self.end))

    def hung_name(self, name: str, collective: int) -> str:
        """The name of a collective that hangs, with the missing ranks."""
        missing = self.missing[collective]
        ranks = missing.called("rank")
        if len(ranks) > MAX_LIST:
            ranks = f"{sum(1 for _ in missing)} ranks"
        return f"{HUNG_PREFIX}{name}{f': {ranks} missing' if missing else ''}"


def _first_causes(job: Job, hung: Hung, missing: Mapping[int, Numbers]) -> Bools:
    """The first collective, by its first entry, for each set of missing ranks."""
    parts = job.participations
    entered = np.where(parts.enqueued == NO_TIME, NEVER, parts.enqueued)
    first = np.full(len(job.collectives), NEVER)
    np.minimum.at(first, parts.collective, entered)
    rows = np.flatnonzero(hung.causes)
    chosen: dict[str, int] = {}
    for collective in rows[np.argsort(first[rows], kind="stable")].tolist():
        chosen.setdefault(str(missing[collective]), collective)
    causes = np.zeros(len(job.collectives), np.bool_)
    causes[list(chosen.values())] = True
    return causes


def _first_waits(job: Job, hung: Hung, causes: Bools, missing: Mapping[int, Numbers]) -> Sequence[HungWait]:
    parts, waits = job.participations, dict[int, HungWait]()
    for collective in np.flatnonzero(causes).tolist():
        entered = parts.enqueued[parts.collective == collective]
        since = int(entered.max(initial=NO_TIME))
        for rank in missing[collective] if since != NO_TIME else ():
            if rank not in waits or since < waits[rank].since:
                waits[rank] = HungWait(rank, collective, since, joined=False)
    rows = np.flatnonzero(hung.parts & (parts.enqueued != NO_TIME))
    for row in rows[np.argsort(parts.enqueued[rows], kind="stable")].tolist():
        rank = int(parts.rank[row])
        waits.setdefault(
            rank, HungWait(rank, int(parts.collective[row]), int(parts.enqueued[row]), joined=True)
        )
    return list(waits.values())


def hung_rows(graph: EventGraph, hang: RankHang) -> Int64s:
    """The recorder entries of a rank that hang: those of collectives that hang, and all later unfinished ones."""
    events = graph.events
    unfinished = events.of_kind(EventKind.RECORD) & events.timed & (events.duration == UNKNOWN)
    if not unfinished.any():
        return np.empty(0, np.int64)
    pending = unfinished & _pending(graph)
    since = np.where(pending & (hang.end - events.start >= LONG_FOR_A_FIRST_NS), events.start, NEVER).min()
    hung = pending & (events.start >= min(int(since), hang.since))
    hung[hang.records] |= unfinished[hang.records]
    return np.flatnonzero(hung)


def with_hung_names(graph: EventGraph, rows: Int64s) -> EventGraph:
    """The graph with a prefix in the names of these rows."""
    if not len(rows):
        return graph
    codes, which = np.unique(graph.events.name[rows], return_inverse=True)
    names = graph.events.name.copy()
    names[rows] = (len(graph.strings) + which).astype(names.dtype)
    strings = [*graph.strings, *(HUNG_PREFIX + graph.strings[code] for code in codes.tolist())]
    return replace(graph, strings=strings, events=replace(graph.events, name=names))


def _pending(graph: EventGraph) -> Bools:
    """Unfinished entries of groups whose recorder reports progress, unless their batch is finished."""
    events = graph.events
    states = graph.key(Key.STATE).dense(len(events), -1)
    open_states, progress = (
        np.array([*(text in texts for text in graph.strings), False]) for texts in (OPEN, TRACKED)
    )
    reports_progress = np.zeros(len(graph.tracks), np.bool_)
    reports_progress[events.track[progress[states]]] = True
    pending: Bools = open_states[states] & reports_progress[events.track] & ~_closed(graph)
    return pending


def _closed(graph: EventGraph) -> Bools:
    """Entries with the numbers of a finished one: of a batch, only the entry that closes it is marked as finished."""
    events = graph.events
    messages, collectives = (
        graph.key(key).dense(len(events), 0) for key in (Key.P2P_SEQUENCE, Key.COLLECTIVE_SEQUENCE)
    )
    rows = np.flatnonzero(events.of_kind(EventKind.RECORD))
    finished = events.duration[rows] != UNKNOWN
    _, batch = np.unique(
        np.stack([events.track[rows], messages[rows], collectives[rows]]), axis=1, return_inverse=True
    )
    closed = np.zeros(len(events), np.bool_)
    closed[rows] = np.isin(batch.ravel(), batch.ravel()[finished])
    return closed


# The last arrival of each collective: an instant within its slice, if its ranks did not enter at the same time.


class LastArrivals(Table, frozen=True):
    """The last arrivals, in the order of their collectives."""

    index: Int64s
    """Index of the collective among those that are drawn."""
    time: Int64s
    rank: Int64s
    skew: Int64s

    def within(self, low: int, high: int) -> LastArrivals:
        """The arrivals of the drawn collectives from `low` to `high`."""
        some = slice(*np.searchsorted(self.index, [low, high]).tolist())
        return LastArrivals(self.index[some], self.time[some], self.rank[some], self.skew[some])

    def names(self) -> tuple[list[str], Int64s]:
        """The distinct names, and the index of each arrival's name."""
        ranks, which = np.unique(self.rank, return_inverse=True)
        return [f"rank {rank} arrived last" for rank in ranks.tolist()], which


def last_arrivals_of(job: Job, row: Int64s, start: Int64s, end: Int64s, awaited: Bools) -> LastArrivals:
    """The last arrivals of collectives drawn from `start` to `end`, except those that still await ranks."""
    skew, rank = job.collectives.skew[row], job.collectives.last_rank[row].astype(np.int64)
    index = np.flatnonzero((skew > 0) & (rank != UNKNOWN) & ~awaited & (end > start))
    time = np.minimum(start[index] + skew[index], end[index] - 1)
    return LastArrivals(index, time, rank[index], skew[index])
