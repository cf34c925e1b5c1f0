"""The graph of one rank with the look-ups that several answers need, each made once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink._model.columns import (
    UNKNOWN,
    Bools,
    Int64s,
    Integers,
    KnownInt32s,
    KnownRows,
    Rows,
    Table,
    Times,
    UInt8s,
    values_at,
)
from tracelink._model.events import GPU_WORK, EventKind, Events, Relation
from tracelink._model.graph import EventGraph
from tracelink._model.operations import COLLECTIVE_KERNEL
from tracelink._order.order import lane_of_tracks

COMPUTE, COMMUNICATION, COPY = range(3)
"""Values of `Work.part`."""


class Work(Table, frozen=True):
    """One row for each kernel, copy and memset with a start and an end, in the order of their starts."""

    row: KnownRows
    lane: KnownInt32s
    """The stream."""
    part: UInt8s
    start: Times
    end: Times
    call: Rows
    """The call that launched it; UNKNOWN if it was not recorded."""


class RankView(Struct, frozen=True, dict=True):
    """The graph of one rank, and what follows from it."""

    graph: EventGraph

    @property
    def events(self) -> Events:
        """The events of the rank."""
        return self.graph.events

    @cached_property
    def lane(self) -> Int64s:
        """For each track the first one of the same thread or stream."""
        return lane_of_tracks(self.graph.tracks)

    @cached_property
    def caller(self) -> Int64s:
        """The caller of each event, or UNKNOWN; and once more UNKNOWN, so that it has a caller itself."""
        edges = self.graph.edges
        calls = np.flatnonzero(edges.relation == Relation.CALLS)
        caller = np.full(len(self.events) + 1, UNKNOWN, np.int64)
        caller[edges.target[calls]] = edges.source[calls]
        return caller

    @cached_property
    def work(self) -> Work:
        """The work on devices."""
        events, edges = self.events, self.graph.edges
        rows = np.flatnonzero(events.of_kind(*GPU_WORK) & events.timed & (events.duration >= 0))
        rows = rows[np.argsort(events.start[rows], kind="stable")]
        kernel = events.kind[rows] == EventKind.KERNEL
        part = np.where(kernel, COMPUTE, COPY).astype(np.uint8)
        part[kernel] = np.where(self.named(rows[kernel], matching(COLLECTIVE_KERNEL)), COMMUNICATION, COMPUTE)
        start = events.start[rows]
        launches = np.flatnonzero(edges.relation == Relation.LAUNCHES)
        launch = np.full(len(events), UNKNOWN, np.int64)
        launch[edges.target[launches]] = edges.source[launches]
        lane = self.lane[events.track[rows]].astype(np.int32) if len(rows) else events.track[rows]
        return Work(rows, lane, part, start, start + events.duration[rows], launch[rows])

    @cached_property
    def launched_at(self) -> Int64s:
        """When the call that launched each work began, or NO_TIME."""
        return values_at(self.events.start, self.work.call, np.iinfo(np.int64).min)

    @cached_property
    def launch_end(self) -> Int64s:
        """When that call returned, or NO_TIME."""
        return values_at(self.events.end, self.work.call, np.iinfo(np.int64).min)

    @cached_property
    def launching_lane(self) -> Int64s:
        """The thread of the call that launched each work, or UNKNOWN."""
        if not len(self.work):
            return np.empty(0, np.int64)
        call = self.work.call
        return np.where(call == UNKNOWN, UNKNOWN, self.lane[self.events.track[call]])

    def named(self, rows: Int64s, test: Callable[[str], bool]) -> Bools:
        """Which events have a name that passes the test, which is called once for each name."""
        names = self.events.name[rows]
        occurs = np.zeros(len(self.graph.strings) + 1, np.bool_)
        occurs[names] = True
        codes = np.flatnonzero(occurs)
        passed = np.zeros(len(occurs), np.bool_)
        passed[codes] = [test(self.graph.strings[code]) for code in codes.tolist()]
        return passed[names]

    def texts(self, codes: Integers) -> list[str]:
        """The strings of codes; empty for UNKNOWN."""
        strings = self.graph.strings
        return ["" if code == UNKNOWN else strings[code] for code in codes.tolist()]

    def rows(self, *kinds: EventKind) -> Int64s:
        """The events of these kinds that have a start and an end."""
        events = self.events
        return np.flatnonzero(events.of_kind(*kinds) & events.timed & (events.duration >= 0))


def matching(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """A test whether a pattern occurs in a name."""
    return lambda text: pattern.search(text) is not None
