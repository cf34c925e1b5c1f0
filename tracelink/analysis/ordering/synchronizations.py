"""What a profiler recorded of waits: which stream or host waited for which stream, and since which event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.events import Columns, EventKind, Int64s, Key, KeyColumn, TrackKind
from tracelink.excerpt import NONE, Excerpt
from tracelink.linking.joins import lookup


class Awaited(IntEnum):
    """What is waited for, and by whom."""

    STREAM = 0
    """The host waits for all that a stream has been given."""
    DEVICE = 1
    """The host waits for all that a device has been given."""
    EVENT = 2
    """The host waits for what a stream had been given when the event was recorded."""
    EVENT_BY_STREAM = 3
    """A stream waits for that."""


@dataclass(frozen=True, slots=True)
class Synchronizations(Columns):
    """A row for each wait that a profiler recorded; NONE stands for what it does not say."""

    row: Int64s
    """The event of the record."""
    awaited: Int64s
    """A value of `Awaited`."""
    device: Int64s
    stream: Int64s
    """Number of the stream: of the one waited for, and where a stream waits, of that one."""
    event_stream: Int64s
    """Number of the stream on which the event was recorded."""
    event_record: Int64s
    """Correlation of the call that recorded the event."""

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def empty(cls) -> Synchronizations:
        """A profiler that was not told to record waits."""
        return cls(*(np.empty(0, np.int64) for _ in range(6)))

    def where(self, *awaited: Awaited) -> Synchronizations:
        """Those that wait for one of these."""
        chosen = np.isin(self.awaited, awaited)
        return Synchronizations(*(column[chosen] for column in self.columns().values()))


@dataclass(frozen=True, slots=True)
class CallsOfWaits:
    """The calls behind recorded waits."""

    call: Int64s
    """The row of the call that waited, or NONE."""
    record: Int64s
    """The row of the call that recorded the event, or NONE."""


def calls_of_waits(part: Excerpt, waits: Synchronizations) -> CallsOfWaits:
    """By correlation, within one source."""
    correlations = part.graph.key(Key.CORRELATION)
    calls = correlations.where(part.events.kind[correlations.rows] == EventKind.RUNTIME)
    own = part.key(Key.CORRELATION, NONE)[waits.row]
    return CallsOfWaits(_call(part, calls, waits.row, own), _call(part, calls, waits.row, waits.event_record))


def _call(part: Excerpt, calls: KeyColumn, rows: Int64s, wanted: Int64s) -> Int64s:
    found = np.full(len(rows), NONE, np.int64)
    source = part.events.source
    for number in np.unique(source[rows]).tolist():
        within = calls.where(source[calls.rows] == number)
        asked = np.flatnonzero((source[rows] == number) & (wanted != NONE))
        place = lookup(within.values, wanted[asked])
        found[asked[place != NONE]] = within.rows[place[place != NONE]]
    return found


def stream_lanes(part: Excerpt, device: Int64s, stream: Int64s) -> Int64s:
    """The lane of each stream of a device, or NONE where nothing happened on it."""
    tracks = part.graph.tracks
    lane = lane_of_tracks(tracks)
    known = {
        (track.process, track.identity): int(lane[place])
        for place, track in enumerate(tracks)
        if track.kind == TrackKind.STREAM
    }
    pairs = zip(device.tolist(), stream.tolist(), strict=True)
    return np.array([known.get((str(on), str(number)), NONE) for on, number in pairs], np.int64)


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
