"""Which work the host had waited for when a call returned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.ordering.lanes import Lanes, lane_of_tracks
from tracelink.analysis.ordering.launched import Launched
from tracelink.analysis.ordering.runtime_calls import EVENT_RECORDS, calls_named
from tracelink.analysis.ordering.synchronizations import Awaited, device_lanes
from tracelink.events import Int64s
from tracelink.excerpt import NONE, Excerpt

CLOCKS_DIFFER_NS = 1000
"""The clocks of host and device agree no better than this."""


@dataclass(frozen=True, slots=True)
class AwaitedWork:
    """All work of a rank, by thread, stream and end."""

    part: Excerpt
    row: Int64s
    stream: Int64s
    end: Int64s
    lane: Int64s
    """The lane of each track."""
    by_thread: Lanes
    by_stream: Lanes
    by_end: Lanes
    records: Int64s
    records_by_thread: Lanes

    @classmethod
    def of(cls, part: Excerpt, launched: Launched) -> AwaitedWork:
        """Prepares the look-ups."""
        lane = lane_of_tracks(part.graph.tracks)
        end = part.events.end[launched.row]
        records = calls_named(part, EVENT_RECORDS)
        return cls(
            part,
            launched.row,
            launched.stream,
            end,
            lane,
            Lanes.of(launched.thread, launched.begun),
            Lanes.of(launched.stream, launched.begun),
            Lanes.of(np.zeros(len(launched), np.int64), end),
            records,
            Lanes.of(lane[part.events.track[records]], part.events.start[records]),
        )

    def given(self, streams: Int64s, before: int, call: int) -> tuple[int, ...]:
        """The rows of the last work that each stream had been given before a time, and had done when `call` ended."""
        last = self.by_stream.last_before(streams, np.full(len(streams), before))
        last = last[last != NONE]
        return tuple(self.row[last[self.end[last] <= self._returned(call)]].tolist())

    def guessed(self, call: int, awaited: Awaited) -> tuple[int, ...]:
        """The same for a call of which neither stream nor event are known: those that its thread used last.

        Where that work had not ended, the last that did during the call.
        """
        events = self.part.events
        thread = self.lane[events.track[[call]]]
        before = self._recorded(thread, call) if awaited == Awaited.EVENT else int(events.start[call])
        used = self.by_thread.last_before(thread, np.array([before]))
        if awaited == Awaited.DEVICE:
            return self.given(self._device(int(used[0])), before, call)
        streams = self.stream[used[used != NONE]]
        return self.given(streams, before, call) or self._ended_during(call)

    def _recorded(self, thread: Int64s, call: int) -> int:
        """When the thread recorded its last event; the call's own start where it did not."""
        start = self.part.events.start
        last = int(self.records_by_thread.last_before(thread, start[[call]])[0])
        return int(start[call if last == NONE else self.records[last]])

    def _device(self, used: int) -> Int64s:
        """The streams of the device that work at this place ran on; all streams where there is none."""
        if used == NONE:
            return np.unique(self.stream)
        return device_lanes(self.part, self.part.graph.tracks[int(self.stream[used])].process)

    def _ended_during(self, call: int) -> tuple[int, ...]:
        last = int(self.by_end.last_before(np.array([0]), np.array([self._returned(call) + 1]))[0])
        if last == NONE or self.end[last] < self.part.events.start[call]:
            return ()
        return (int(self.row[last]),)

    def _returned(self, call: int) -> int:
        events = self.part.events
        return int(events.start[call]) + max(int(events.duration[call]), 0) + CLOCKS_DIFFER_NS
