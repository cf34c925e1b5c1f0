"""Collectives that hang and how they are drawn; which rank arrived last in each collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tracelink.converters.perfetto.timeline.schema import HUNG_PREFIX
from tracelink.diagnosis.timeline import LONG_FOR_A_FIRST_NS, NEVER, OPEN, TRACKED, hung_of, missing_from
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.events import EventKind, Key
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.ranges import Numbers

# Collectives that hang: drawn to the end of the trace, with a prefix in their names and in one colour.


LEAST_SHARE = 10
"""Who joins last is drawn for at least one such part of the trace: what ends with it would not be seen."""


MOST_MISSING = 24
"""Characters of a list of missing ranks in a name."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What one rank is caught in."""

    records: Int64s
    """The recorder's entries of collectives that hang."""
    since: int
    """When it entered the first of them, or NEVER: what it has asked for since then hangs as well."""
    end: int
    """To when that is drawn."""


NOT_CAUGHT = Caught(np.empty(0, np.int64), NEVER, 0)


@dataclass(frozen=True, slots=True)
class Hangs:
    """What hangs of a job."""

    collectives: Bools
    missing: Mapping[int, Numbers]
    """For each collective that hangs, who of its group has not joined."""
    caught: Mapping[int, Caught]
    """By rank, for those that wait in such a collective."""
    end: int
    """The end of the trace: to there all that hangs is drawn, on all ranks."""

    @classmethod
    def of(cls, job: Job) -> Hangs:
        """What hangs of this job."""
        hung, parts = hung_of(job), job.participations
        newest = int(parts.enqueued[hung.parts].max(initial=NO_TIME))
        first, last = job.first_ns or 0, job.last_ns or 0
        end = max(last, newest + (last - first) // LEAST_SHARE)
        rows = np.flatnonzero(hung.parts)
        caught = {
            rank: Caught(parts.record[rows[parts.rank[rows] == rank]], int(hung.since[rank]), end)
            for rank in np.unique(parts.rank[rows]).tolist()
        }
        missing = {
            row: Numbers.of(missing_from(job, row)) for row in np.flatnonzero(hung.collectives).tolist()
        }
        return cls(hung.collectives, missing, caught, end)

    def of_rank(self, rank: int) -> Caught:
        """What a rank is caught in."""
        return self.caught.get(rank, replace(NOT_CAUGHT, end=self.end))

    def named(self, name: str, collective: int) -> str:
        """The name of a collective that hangs: it says who is missing."""
        missing = self.missing[collective]
        who = missing.called("rank")
        if len(who) > MOST_MISSING:
            who = f"{sum(1 for _ in missing)} ranks"
        return f"{HUNG_PREFIX}{name}{f': {who} missing' if missing else ''}"


def hung_rows(graph: EventGraph, caught: Caught) -> Int64s:
    """The entries of a rank that hang: those it is caught in, and all later ones that are not finished either."""
    events = graph.events
    unfinished = events.of_kind(EventKind.RECORD) & events.timed & (events.duration == UNKNOWN)
    if not unfinished.any():
        return np.empty(0, np.int64)
    pending = unfinished & _told_to_be_open(graph)
    since = np.where(pending & (caught.end - events.start >= LONG_FOR_A_FIRST_NS), events.start, NEVER).min()
    hung = pending & (events.start >= min(int(since), caught.since))
    hung[caught.records] |= unfinished[caught.records]
    return np.flatnonzero(hung)


def with_hung_names(graph: EventGraph, rows: Int64s) -> EventGraph:
    """The graph in which the names of these rows say that they hang."""
    if not len(rows):
        return graph
    codes, which = np.unique(graph.events.name[rows], return_inverse=True)
    names = graph.events.name.copy()
    names[rows] = (len(graph.strings) + which).astype(names.dtype)
    strings = [*graph.strings, *(HUNG_PREFIX + graph.strings[code] for code in codes.tolist())]
    return replace(graph, strings=strings, events=replace(graph.events, name=names))


def _told_to_be_open(graph: EventGraph) -> Bools:
    """Entries of groups whose recorder tells what is finished, and that are not; nor is what closes their batch."""
    events = graph.events
    states = graph.key(Key.STATE).dense(len(events), -1)
    open_states, progress = (
        np.array([*(text in texts for text in graph.strings), False]) for texts in (OPEN, TRACKED)
    )
    telling = np.zeros(len(graph.tracks), np.bool_)
    telling[events.track[progress[states]]] = True
    told: Bools = open_states[states] & telling[events.track] & ~_closed(graph)
    return told


def _closed(graph: EventGraph) -> Bools:
    """Whether an entry of the same numbers is finished: of a batch only the one that closes it tells that."""
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


# The last arrival of each collective: an instant within its slice, if its ranks did not all enter at once.


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The last arrivals, in the order of their collectives."""

    place: Int64s
    """Of the collective among those that are drawn."""
    time: Int64s
    rank: Int64s
    skew: Int64s

    def __len__(self) -> int:
        return len(self.place)

    def within(self, low: int, high: int) -> Arrivals:
        """Those of some of the collectives that are drawn."""
        some = slice(*np.searchsorted(self.place, [low, high]).tolist())
        return Arrivals(self.place[some], self.time[some], self.rank[some], self.skew[some])

    def names(self) -> tuple[list[str], Int64s]:
        """The distinct names, and which one each has."""
        ranks, which = np.unique(self.rank, return_inverse=True)
        return [f"rank {rank} last" for rank in ranks.tolist()], which


def arrivals_of(job: Job, row: Int64s, start: Int64s, end: Int64s, awaited: Bools) -> Arrivals:
    """Of these collectives, drawn from `start` to `end`; in those that are `awaited` nobody is the last yet."""
    skew, rank = job.collectives.skew[row], job.collectives.last_rank[row].astype(np.int64)
    place = np.flatnonzero((skew > 0) & (rank != UNKNOWN) & ~awaited & (end > start))
    time = np.minimum(start[place] + skew[place], end[place] - 1)
    return Arrivals(place, time, rank[place], skew[place])
