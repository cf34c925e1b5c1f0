"""Waits of streams of which only the call was recorded: which streams they were, by what the threads launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tracelink.analysis.ordering.joined_work import JoinedWork
from tracelink.analysis.ordering.lanes import Lanes, lane_of_tracks
from tracelink.analysis.ordering.launched import Launched
from tracelink.analysis.ordering.runtime_calls import EVENT_RECORDS, calls_named
from tracelink.enclosing import callers, innermost
from tracelink.events import Bools, EventKind, Int64s
from tracelink.excerpt import NONE, Excerpt
from tracelink.linking.communicating import RECORDED
from tracelink.operations import COLLECTIVE_ANNOTATION


class WaitKind(IntEnum):
    """What a wait is for."""

    BEGIN = 0
    """A communication waits for what the thread launched before."""
    WITHIN_CALL = 1
    """The library of a communication waits for its own work."""
    JOIN = 2
    """Other work waits for a communication."""
    SIDE_STREAM = 3
    """Work on one stream waits for other work."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait, with places of `Launched`, or NONE."""

    kind: WaitKind
    before: int = NONE
    after: int = NONE


def inferred_waits(part: Excerpt, launched: Launched, calls: Int64s) -> Sequence[Wait]:
    """What each of these calls waits for, in their order, which is that of time."""
    if not len(calls) or not len(launched):
        return [Wait(WaitKind.SIDE_STREAM) for _ in calls]
    view = _View.of(part, launched)
    joined = JoinedWork(part.events, launched, view.communicates)
    thread = view.lane[part.events.track[calls]]
    began = part.events.start[calls]
    around = view.around[calls]
    previous, following = view.by_thread.last_before(thread, began), view.by_thread.first_since(thread, began)
    last_other = view.others.last_before(thread, began)
    next_other = view.next_other(thread, began, last_other)
    last_recorded = view.by_thread.last_before(thread, view.recorded(thread, began))
    kinds = _kinds(view, around, previous, following)
    waits: list[Wait] = []
    for wait, kind in enumerate(kinds.tolist()):
        if kind == WaitKind.BEGIN:
            pair = int(last_other[wait]), int(following[wait])
        elif kind == WaitKind.JOIN:
            after = int(next_other[wait])
            pair = joined.awaited(int(began[wait]), after), after
        elif kind == WaitKind.SIDE_STREAM:
            pair = int(last_recorded[wait]), int(following[wait])
        else:
            pair = NONE, NONE
        same = NONE not in pair and launched.stream[pair[0]] == launched.stream[pair[1]]
        waits.append(Wait(WaitKind(kind)) if same else Wait(WaitKind(kind), *pair))
    return waits


@dataclass(frozen=True, slots=True)
class _View:
    """What was launched, as a wait sees it."""

    lane: Int64s
    """The lane of each track."""
    around: Int64s
    """For each row the communication around it, or NONE."""
    within: Int64s
    """For each place of `Launched` the communication that launched it, or NONE."""
    stream: Int64s
    by_thread: Lanes
    others: Lanes
    """By thread, without communication."""
    others_by_stream: Lanes
    records: Lanes
    record_start: Int64s

    @classmethod
    def of(cls, part: Excerpt, launched: Launched) -> _View:
        lane = lane_of_tracks(part.graph.tracks)
        around = _communications(part)
        within = np.where(launched.call == NONE, NONE, around[launched.call])
        other = within == NONE
        records = calls_named(part, EVENT_RECORDS)
        record_start = part.events.start[records]
        return cls(
            lane,
            around,
            within,
            launched.stream,
            Lanes.of(launched.thread, launched.begun),
            Lanes.of(np.where(other, launched.thread, NONE), launched.begun),
            Lanes.of(np.where(other, launched.stream, NONE), launched.begun),
            Lanes.of(lane[part.events.track[records]], record_start),
            record_start,
        )

    @property
    def communicates(self) -> Bools:
        """Which places of `Launched` are communication."""
        communicates: Bools = self.within != NONE
        return communicates

    def next_other(self, thread: Int64s, began: Int64s, last: Int64s) -> Int64s:
        """The next work but communication on the stream that a thread uses, whoever launches it.

        That is the stream of the thread's next such work, else of its last.
        """
        following = self.others.first_since(thread, began)
        known = np.where(following == NONE, last, following)
        stream = np.where(known == NONE, NONE, self.stream[known])
        return self.others_by_stream.first_since(stream, began)

    def recorded(self, thread: Int64s, began: Int64s) -> Int64s:
        """When each thread recorded its last event before these times; the times themselves where it did not."""
        record = self.records.last_before(thread, began)
        return np.where(record == NONE, began, np.append(self.record_start, 0)[record])


def _kinds(view: _View, around: Int64s, previous: Int64s, following: Int64s) -> Int64s:
    """A value of `WaitKind` for each wait, from the communication around it and what is launched before and after."""
    within = np.append(view.within, NONE)
    stream = np.append(view.stream, NONE)
    inside = around != NONE
    begin = inside & (within[following] == around)
    own = inside & ~begin & (within[previous] == around)
    alone = (previous == NONE) | (following == NONE) | (stream[previous] == stream[following])
    join = ~begin & ~own & (inside | alone | (within[previous] != NONE))
    return np.select(
        [begin, own, join], [WaitKind.BEGIN, WaitKind.WITHIN_CALL, WaitKind.JOIN], WaitKind.SIDE_STREAM
    ).astype(np.int64)


def _communications(part: Excerpt) -> Int64s:
    """For each row the communication around it: its record, else the annotation of the library; or NONE."""
    caller = callers(part)
    events = part.events
    recorded = np.array([text == RECORDED for text in part.graph.strings], np.bool_)
    annotated = np.array([bool(COLLECTIVE_ANNOTATION.match(text)) for text in part.graph.strings], np.bool_)
    record = innermost(caller, events.of_kind(EventKind.OPERATOR) & recorded[events.name])
    annotation = innermost(caller, events.of_kind(EventKind.ANNOTATION) & annotated[events.name])
    return np.where(record == NONE, annotation, record)
