"""The order of events: lanes, launches, recorded waits, and the last writer of each tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from tracelink._model.causes import greatest_inside
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, Table, lexical_order, lookup, scatter
from tracelink._model.events import GPU_WORK, EventKind, Events, Key, KeyColumn, Relation, Track, TrackKind
from tracelink._model.graph import Excerpt
from tracelink._model.trace import StorageUses, Synchronizations


class Order(Struct, frozen=True):
    """Pairs of rows: `after[i]` could not start before `before[i]` had ended."""

    before: Int64s
    after: Int64s
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of pairs by how they were found, and of unexplained waits, for reports."""

    def __len__(self) -> int:
        return len(self.before)

    @classmethod
    def of(cls, before: Int64s, after: Int64s, counts: Mapping[str, int] | None = None) -> Order:
        """Distinct pairs, by the row that had to wait and then by the row that it waited for."""
        if not len(before):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), counts or {})
        order = lexical_order(after, before)
        before, after = before[order], after[order]
        distinct = np.append(True, (before[1:] != before[:-1]) | (after[1:] != after[:-1]))
        return cls(before[distinct], after[distinct], counts or {})


def can_follow(events: Events, before: Int64s, after: Int64s) -> Bools:
    """The pairs that times allow: `before` had ended when `after` started.

    Of events with zero duration at one time the one that is recorded first comes first, so pairs of all orders
    together have no cycle.
    """
    known = events.timed[before] & events.timed[after] & (events.duration[before] >= 0)
    ended, started = events.end_of(before), events.start[after]
    instant = (events.start[before] == started) & (events.duration[after] == 0)
    allowed: Bools = known & (ended <= started) & (~instant | (before < after))
    return allowed


# Lanes: what happened on each thread or stream, by time.


def lane_of_tracks(tracks: Sequence[Track]) -> Int64s:
    """For each track the first one of the same thread or stream: several sources may have one stream."""
    first: dict[tuple[TrackKind, str, str], int] = {}
    lanes = [
        first.setdefault((track.kind, track.process, track.identity), index)
        for index, track in enumerate(tracks)
    ]
    return np.array(lanes, np.int64)


class Lanes(Struct, frozen=True):
    """Positions of items with a lane and a time, by lane, then time, then position."""

    times: Int64s
    keys: Int64s
    """Lane and time as one ascending number."""
    positions: Int64s

    @classmethod
    def of(cls, lane: Int64s, time: Int64s) -> Lanes:
        """The items in a known lane."""
        positions = np.flatnonzero(lane != UNKNOWN)
        times, moment = np.unique(time[positions], return_inverse=True)
        keys = lane[positions] * (len(times) + 1) + moment
        order = np.argsort(keys, kind="stable")
        return cls(times, keys[order], positions[order])

    def last_before(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the position of the last item before it, or UNKNOWN."""
        return self._in_lane(self._reached(lane, time) - 1, lane)

    def first_since(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the position of the first item at or after it, or UNKNOWN."""
        return self._in_lane(self._reached(lane, time), lane)

    def _reached(self, lane: Int64s, time: Int64s) -> Int64s:
        wanted = lane * (len(self.times) + 1) + np.searchsorted(self.times, time)
        return np.searchsorted(self.keys, wanted)

    def _in_lane(self, number: Int64s, lane: Int64s) -> Int64s:
        inside = (number >= 0) & (number < len(self.keys)) & (lane != UNKNOWN)
        number = np.where(inside, number, 0)
        if not len(self.keys):
            return np.full(len(lane), UNKNOWN, np.int64)
        inside &= self.keys[number] // (len(self.times) + 1) == lane
        return np.where(inside, self.positions[number], UNKNOWN)


# Device work in the order of its launches.


class Launched(Table, frozen=True):
    """One row for each kernel, copy and memset, in the order of launches, which is that of execution on a stream."""

    row: Int64s
    call: Int64s
    """The row of the call that launched it, or UNKNOWN if it was launched before the recording."""
    launched_at: Int64s
    """The start of the call, or NO_TIME, which is before all times."""
    thread: Int64s
    """The lane of the call, or UNKNOWN."""
    stream: Int64s
    """The lane of the work."""


def launched_work(part: Excerpt) -> Launched:
    """All device work of a rank; the work of one launch (a graph) in the order of starts."""
    events = part.events
    work = part.rows(*GPU_WORK)
    work = work[events.timed[work]]
    launches = part.where(Relation.LAUNCHES)
    launch = scatter(len(events), launches.target, launches.source)
    lane = lane_of_tracks(part.graph.tracks)
    call = launch[work]
    launched_at = np.where(call == UNKNOWN, NO_TIME, events.start[call]) if len(work) else work
    order = lexical_order(launched_at, events.start[work])
    work, call, launched_at = work[order], call[order], launched_at[order]
    if not len(work):
        return Launched(work, call, launched_at, work, work)
    thread = np.where(call == UNKNOWN, UNKNOWN, lane[events.track[call]])
    return Launched(work, call, launched_at, thread, lane[events.track[work]])


# Runtime calls, by name.


EVENT_RECORDS = re.compile(r"EventRecord")


def runtime_calls(part: Excerpt, name: re.Pattern[str]) -> Int64s:
    """The rows of the runtime calls with a matching name, in the order of their starts."""
    rows = part.rows(EventKind.RUNTIME)
    matches = np.array([bool(name.search(text)) for text in part.graph.strings], np.bool_)
    rows = rows[matches[part.events.name[rows]] & part.events.timed[rows]] if len(rows) else rows
    return rows[np.argsort(part.events.start[rows], kind="stable")]


# The calls behind recorded waits.


class CallsOfWaits(Struct, frozen=True):
    """The calls behind recorded waits."""

    call: Int64s
    """The row of the call that waited, or UNKNOWN."""
    record: Int64s
    """The row of the call that recorded the event, or UNKNOWN."""


def calls_of_waits(part: Excerpt, waits: Synchronizations) -> CallsOfWaits:
    """By correlation, within one source."""
    correlations = part.graph.key(Key.CORRELATION)
    calls = correlations.take(part.events.kind[correlations.rows] == EventKind.RUNTIME)
    own = part.key(Key.CORRELATION, UNKNOWN)[waits.row]
    return CallsOfWaits(_call(part, calls, waits.row, own), _call(part, calls, waits.row, waits.event_record))


def _call(part: Excerpt, calls: KeyColumn, rows: Int64s, wanted: Int64s) -> Int64s:
    found = np.full(len(rows), UNKNOWN, np.int64)
    source = part.events.source
    for number in np.unique(source[rows]).tolist():
        within = calls.take(source[calls.rows] == number)
        wanted_here = np.flatnonzero((source[rows] == number) & (wanted != UNKNOWN))
        index = lookup(within.values, wanted[wanted_here])
        found[wanted_here[index != UNKNOWN]] = within.rows[index[index != UNKNOWN]]
    return found


def lanes_of_streams(part: Excerpt, device: Int64s, stream: Int64s) -> Int64s:
    """The lane of each stream of a device, or UNKNOWN if it has no events."""
    tracks = part.graph.tracks
    lane = lane_of_tracks(tracks)
    known = {
        (track.process, track.identity): int(lane[index])
        for index, track in enumerate(tracks)
        if track.kind == TrackKind.STREAM
    }
    pairs = zip(device.tolist(), stream.tolist(), strict=True)
    return np.array([known.get((str(on), str(number)), UNKNOWN) for on, number in pairs], np.int64)


def lanes_of_device(part: Excerpt, device: str) -> Int64s:
    """The lanes of a device's streams."""
    tracks = part.graph.tracks
    lane = lane_of_tracks(tracks)
    streams = [
        index
        for index, track in enumerate(tracks)
        if track.kind == TrackKind.STREAM and track.process == device
    ]
    return np.unique(lane[streams])


# Order by tensors: each node after the last node that wrote what it reads.


def tensor_order(part: Excerpt, uses: StorageUses) -> Order:
    """Each node after the last one to write what it reads, of those that were complete when it started.

    Addresses are reused, and so are the ids of storages: only the last writer counts.
    """
    nodes = part.rows(EventKind.NODE)
    before, after = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for source in np.unique(part.events.source[nodes]).tolist():
        span = _Span.of(part, nodes[part.events.source[nodes] == source])
        written, read = _last_writers(span, uses)
        before.append(written)
        after.append(read)
    written, read = np.concatenate(before), np.concatenate(after)
    allowed = _allowed(part, written, read)
    linked = np.count_nonzero(allowed)
    counts = {
        "reads": int(np.count_nonzero(~uses.writes)),
        "with_writer": int(linked),
        "writer_not_recorded": int(np.count_nonzero(~uses.writes) - len(read)),
        "contradicted_by_times": int(len(read) - linked),
    }
    return Order.of(written[allowed], read[allowed], counts)


class _Span(Struct, frozen=True):
    """When nodes of one source started and were complete, counted in starts of nodes."""

    row: Int64s
    """In the order of their ids, which is that of their starts."""
    last: Int64s
    """For each the last node that started inside it."""
    position: Int64s
    """For each row of the graph its position in `row`, or UNKNOWN."""

    @classmethod
    def of(cls, part: Excerpt, rows: Int64s) -> _Span:
        ids = part.key(Key.NODE_ID, UNKNOWN)[rows]
        order = np.argsort(ids, kind="stable")
        rows, ids = rows[order], ids[order]
        parent = lookup(ids, part.key(Key.NODE_PARENT, UNKNOWN)[rows])
        position = scatter(len(part.events), rows)
        return cls(rows, greatest_inside(parent, np.arange(len(parent))), position)


def _last_writers(span: _Span, uses: StorageUses) -> tuple[Int64s, Int64s]:
    """The rows of the last writer and of the reader, for each read with a writer."""
    position = span.position[uses.row]
    writing, reading = (
        np.flatnonzero(uses.writes & (position != UNKNOWN)),
        np.flatnonzero(~uses.writes & (position != UNKNOWN)),
    )
    number = np.unique(uses.storage, return_inverse=True)[1]
    size = len(span.row) + 1
    # of two that were complete at the same time the outer one, which comes first, was later
    moment = number[writing] * size + span.last[position[writing]]
    order = np.lexsort((-position[writing], moment))
    reached = np.searchsorted(moment[order], number[reading] * size + position[reading])
    found = reached > 0
    writer = writing[order[reached[found] - 1]] if len(writing) else writing
    reader = reading[found]
    same = uses.storage[writer] == uses.storage[reader]
    return uses.row[writer[same]], uses.row[reader[same]]


def _allowed(part: Excerpt, written: Int64s, read: Int64s) -> Bools:
    """The pairs that the times of the profiled operators do not contradict, if both are known.

    Node ids only prove what was complete within one thread.
    """
    same = part.where(Relation.SAME)
    timed = part.events.timed[same.target]
    operator = scatter(len(part.events), same.source[timed], same.target[timed])
    before, after = operator[written], operator[read]
    unknown = (before == UNKNOWN) | (after == UNKNOWN)
    allowed: Bools = unknown | can_follow(part.events, before, after)
    return allowed
