"""What happened on each thread or stream, to be looked up by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.events import Int64s, Track, TrackKind
from tracelink.excerpt import NONE


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
        """Those in a lane: not in NONE."""
        places = np.flatnonzero(lane != NONE)
        times, moment = np.unique(time[places], return_inverse=True)
        keys = lane[places] * (len(times) + 1) + moment
        order = np.argsort(keys, kind="stable")
        return cls(times, keys[order], places[order])

    def last_before(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the place of the last thing before it, or NONE."""
        return self._in_lane(self._reached(lane, time) - 1, lane)

    def first_since(self, lane: Int64s, time: Int64s) -> Int64s:
        """For each lane and time the place of the first thing at or after it, or NONE."""
        return self._in_lane(self._reached(lane, time), lane)

    def _reached(self, lane: Int64s, time: Int64s) -> Int64s:
        wanted = lane * (len(self.times) + 1) + np.searchsorted(self.times, time)
        return np.searchsorted(self.keys, wanted)

    def _in_lane(self, number: Int64s, lane: Int64s) -> Int64s:
        inside = (number >= 0) & (number < len(self.keys)) & (lane != NONE)
        number = np.where(inside, number, 0)
        if not len(self.keys):
            return np.full(len(lane), NONE, np.int64)
        inside &= self.keys[number] // (len(self.times) + 1) == lane
        return np.where(inside, self.places[number], NONE)
