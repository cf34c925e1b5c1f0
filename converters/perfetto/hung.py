"""What hangs of a job, and how that is drawn: to the end of the trace, under a name that says so, in one colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tracelink.analysis.hung import NEVER, OPEN, PROGRESS, hung_of, missing_from
from tracelink.analysis.stuck import LONG_FOR_A_FIRST_NS
from tracelink.converters.perfetto.schema import HUNG_PREFIX
from tracelink.events import NO_TIME, UNFINISHED, Bools, EventKind, Int64s, Key
from tracelink.graph import EventGraph
from tracelink.job import Job
from tracelink.ranges import Numbers

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
    unfinished = events.of_kind(EventKind.RECORD) & events.timed & (events.duration == UNFINISHED)
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
        np.array([*(text in texts for text in graph.strings), False]) for texts in (OPEN, PROGRESS)
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
    finished = events.duration[rows] != UNFINISHED
    _, batch = np.unique(
        np.stack([events.track[rows], messages[rows], collectives[rows]]), axis=1, return_inverse=True
    )
    closed = np.zeros(len(events), np.bool_)
    closed[rows] = np.isin(batch.ravel(), batch.ravel()[finished])
    return closed
