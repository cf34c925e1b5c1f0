"""Order, Lanes, launched work, recorded synchronisations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s, Table, lookup
from tracelink.model.dependencies import Synchronizations
from tracelink.model.events import GPU_WORK, EventKind, Events, Key, KeyColumn, Relation, Track, TrackKind
from tracelink.model.graph import Excerpt

# What every finder of an order gives back.


@dataclass(frozen=True, slots=True)
class Order:
    """Pairs of rows: `after[i]` could not begin until `before[i]` had ended."""

    before: Int64s
    after: Int64s
    counts: Mapping[str, int] = field(default_factory=dict)
    """How the pairs were found, and what could not be explained, for a report."""

    def __len__(self) -> int:
        return len(self.before)

    @classmethod
    def of(cls, before: Int64s, after: Int64s, counts: Mapping[str, int] | None = None) -> Order:
        """Each pair once, by what had to wait and then by what it waited for."""
        if not len(before):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), counts or {})
        order = np.lexsort((before, after))
        before, after = before[order], after[order]
        fresh = np.append(True, (before[1:] != before[:-1]) | (after[1:] != after[:-1]))
        return cls(before[fresh], after[fresh], counts or {})


def can_follow(events: Events, before: Int64s, after: Int64s) -> Bools:
    """Whether the times allow each pair: `before` had ended when `after` began.

    Of events without length at one time the one that is recorded first comes first: no circle can arise, whatever
    pairs of all orders are put together.
    """
    known = events.timed[before] & events.timed[after] & (events.duration[before] >= 0)
    ended, began = events.end[before], events.start[after]
    instant = (events.start[before] == began) & (events.duration[after] == 0)
    allowed: Bools = known & (ended <= began) & (~instant | (before < after))
    return allowed


# What happened on each thread or stream, to be looked up by time.


def lane_of_tracks(tracks: Sequence[Track]) -> Int64s:
    """For each track the first one of the same thread or stream: several sources tell of one stream."""
    first: dict[tuple[TrackKind, str, str], int] = {}
    places = [
        first.setdefault((track.kind, track.process, track.identity), place)
        for place, track in enumerate(tracks)
    ]
    return np.array(places, np.int64)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Places of things that have a lane and a time, by lane, then time, then place."""

    times: Int64s
    keys: Int64s
    """Lane and time as one number that only grows."""
    places: Int64s

    @classmethod
    def of(cls, lane: Int64s, time: Int64s) -> Lanes:
        """Those in a lane: not in UNKNOWN."""
        places = np.flatnonzero(lane != UNKNOWN)
        times, moment = np.unique(time[places], return_inverse=True)
        keys = lane[places] * (len(times) + 1) + moment
        order = np.argsort(keys, kind="stable")
        return cls(times, keys[order], places[order])

    def last_before(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the place of the last thing before it, or UNKNOWN."""
        return self._in_lane(self._reached(lane, time) - 1, lane)

    def first_since(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the place of the first thing at or after it, or UNKNOWN."""
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
        return np.where(inside, self.places[number], UNKNOWN)


# Work on devices in the order in which it was launched.


@dataclass(frozen=True, slots=True)
class Launched(Table):
    """A row for each kernel, copy and memset; a stream works them off in the order of their launches."""

    row: Int64s
    call: Int64s
    """The row of the call that launched it, or UNKNOWN: it was launched before the recording."""
    begun: Int64s
    """When the call began; NO_TIME, which is before all times, where there is none."""
    thread: Int64s
    """The lane of the call, or UNKNOWN."""
    stream: Int64s
    """The lane of the work."""


def launched_work(part: Excerpt) -> Launched:
    """All work of a rank; of one launch (a graph) in the order in which it started."""
    events = part.events
    work = part.rows(*GPU_WORK)
    work = work[events.timed[work]]
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(events), UNKNOWN, np.int64)
    launch[launches.target] = launches.source
    lane = lane_of_tracks(part.graph.tracks)
    call = launch[work]
    begun = np.where(call == UNKNOWN, NO_TIME, events.start[call]) if len(work) else work
    order = np.lexsort((work, events.start[work], begun))
    work, call, begun = work[order], call[order], begun[order]
    if not len(work):
        return Launched(work, call, begun, work, work)
    thread = np.where(call == UNKNOWN, UNKNOWN, lane[events.track[call]])
    return Launched(work, call, begun, thread, lane[events.track[work]])


# Calls of a device's runtime, by what they do.


EVENT_RECORDS = re.compile(r"EventRecord")


def calls_named(part: Excerpt, name: re.Pattern[str]) -> Int64s:
    """The rows of the runtime calls whose name matches, in the order of their starts."""
    rows = part.rows(EventKind.RUNTIME)
    matches = np.array([bool(name.search(text)) for text in part.graph.strings], np.bool_)
    rows = rows[matches[part.events.name[rows]] & part.events.timed[rows]] if len(rows) else rows
    return rows[np.argsort(part.events.start[rows], kind="stable")]


# The calls behind recorded waits.


@dataclass(frozen=True, slots=True)
class CallsOfWaits:
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
        asked = np.flatnonzero((source[rows] == number) & (wanted != UNKNOWN))
        place = lookup(within.values, wanted[asked])
        found[asked[place != UNKNOWN]] = within.rows[place[place != UNKNOWN]]
    return found


def stream_lanes(part: Excerpt, device: Int64s, stream: Int64s) -> Int64s:
    """The lane of each stream of a device, or UNKNOWN where nothing happened on it."""
    tracks = part.graph.tracks
    lane = lane_of_tracks(tracks)
    known = {
        (track.process, track.identity): int(lane[place])
        for place, track in enumerate(tracks)
        if track.kind == TrackKind.STREAM
    }
    pairs = zip(device.tolist(), stream.tolist(), strict=True)
    return np.array([known.get((str(on), str(number)), UNKNOWN) for on, number in pairs], np.int64)


def device_lanes(part: Excerpt, device: str) -> Int64s:
    """The lanes of a device's streams."""
    tracks = part.graph.tracks
    lane = lane_of_tracks(tracks)
    places = [
        place
        for place, track in enumerate(tracks)
        if track.kind == TrackKind.STREAM and track.process == device
    ]
    return np.unique(lane[places])
