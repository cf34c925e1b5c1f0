"""The host waits for a device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.dependencies import Awaited, Synchronizations
from tracelink.model.events import EventKind
from tracelink.model.graph import Excerpt
from tracelink.ordering.order import (
    EVENT_RECORDS,
    Lanes,
    Launched,
    Order,
    calls_named,
    calls_of_waits,
    can_follow,
    device_lanes,
    lane_of_tracks,
    stream_lanes,
)
from tracelink.ordering.streams import record_starts

# Which work the host had waited for when a call returned.


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
        last = last[last != UNKNOWN]
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
        streams = self.stream[used[used != UNKNOWN]]
        return self.given(streams, before, call) or self._ended_during(call)

    def _recorded(self, thread: Int64s, call: int) -> int:
        """When the thread recorded its last event; the call's own start where it did not."""
        start = self.part.events.start
        last = int(self.records_by_thread.last_before(thread, start[[call]])[0])
        return int(start[call if last == UNKNOWN else self.records[last]])

    def _device(self, used: int) -> Int64s:
        """The streams of the device that work at this place ran on; all streams where there is none."""
        if used == UNKNOWN:
            return np.unique(self.stream)
        return device_lanes(self.part, self.part.graph.tracks[int(self.stream[used])].process)

    def _ended_during(self, call: int) -> tuple[int, ...]:
        last = int(self.by_end.last_before(np.array([0]), np.array([self._returned(call) + 1]))[0])
        if last == UNKNOWN or self.end[last] < self.part.events.start[call]:
            return ()
        return (int(self.row[last]),)

    def _returned(self, call: int) -> int:
        events = self.part.events
        return int(events.start[call]) + max(int(events.duration[call]), 0) + CLOCKS_DIFFER_NS


# The host waits for a device: synchronising calls, and copies that return when they are done.


WAITING = {
    Awaited.STREAM: re.compile(r"StreamSynchronize"),
    Awaited.DEVICE: re.compile(r"(Device|Ctx|Context)Synchronize"),
    Awaited.EVENT: re.compile(r"EventSynchronize"),
}
WAITS = re.compile("|".join(name.pattern for name in WAITING.values()))
RETURNS_EARLY = re.compile(r"Async")
TO_PAGEABLE_MEMORY = re.compile(r"(DtoH|DeviceToHost)(?!.*Pinned)")
"""Even an asynchronous copy to memory that is not pinned returns only once it is done."""


def host_waits(part: Excerpt, launched: Launched, recorded: Synchronizations) -> Order:
    """The first operator or annotation of a thread after a wait, after the work that the thread waited for.

    Exact where the profiler recorded the wait. Else the stream is the one that the thread used last.
    """
    work = AwaitedWork.of(part, launched)
    said = list(_said(part, work, recorded.where(*WAITING)))
    told = {wait.call for wait in said}
    guessed = [
        _Wait(call, work.guessed(call, awaited))
        for awaited, name in WAITING.items()
        for call in calls_named(part, name).tolist()
        if call not in told
    ]
    copies = list(_blocking_copies(part, launched))
    before, after, idle = _followed([*said, *guessed, *copies], part)
    allowed = can_follow(part.events, before, after)
    counts = {
        "waits": len(said) + len(guessed),
        "recorded": sum(bool(wait.works) for wait in said),
        "inferred": sum(bool(wait.works) for wait in guessed),
        "nothing_to_wait_for": sum(not wait.works for wait in said),
        "unexplained": sum(not wait.works for wait in guessed),
        "blocking_copies": len(copies),
        "nothing_follows": idle,
    }
    return Order.of(before[allowed], after[allowed], counts)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A call, and the rows of the work that had ended because of it."""

    call: int
    works: tuple[int, ...]


def _said(part: Excerpt, work: AwaitedWork, waits: Synchronizations) -> Iterator[_Wait]:
    calls = calls_of_waits(part, waits).call
    started = part.events.start
    by_event = waits.awaited == Awaited.EVENT
    before = np.where(
        by_event, record_starts(part, waits), started[np.where(calls == UNKNOWN, waits.row, calls)]
    )
    streams = stream_lanes(part, waits.device, np.where(by_event, waits.event_stream, waits.stream))
    waiting = np.array([bool(WAITS.search(text)) for text in part.graph.strings], np.bool_)
    for wait, call in enumerate(calls.tolist()):
        if call == UNKNOWN or not waiting[part.events.name[call]]:
            continue  # asking whether an event has come about is recorded as well, and waits for nothing
        lanes = streams[[wait]]
        if waits.awaited[wait] == Awaited.DEVICE:
            lanes = device_lanes(part, str(waits.device[wait]))
        yield _Wait(call, work.given(lanes, int(before[wait]), call))


def _blocking_copies(part: Excerpt, launched: Launched) -> Iterator[_Wait]:
    """Copies that were done when the call returned, of those that are said to return only then."""
    events = part.events
    texts = part.graph.strings
    early = np.array([bool(RETURNS_EARLY.search(text)) for text in texts], np.bool_)
    pageable = np.array([bool(TO_PAGEABLE_MEMORY.search(text)) for text in texts], np.bool_)
    copies = np.flatnonzero((events.kind[launched.row] == EventKind.MEMCPY) & (launched.call != UNKNOWN))
    row, call = launched.row[copies], launched.call[copies]
    blocks = ~early[events.name[call]] | pageable[events.name[row]]
    done = events.end[row] <= events.end[call] + CLOCKS_DIFFER_NS
    for place in np.flatnonzero(blocks & done).tolist():
        yield _Wait(int(call[place]), (int(row[place]),))


def _followed(waits: Sequence[_Wait], part: Excerpt) -> tuple[Int64s, Int64s, int]:
    """Each work and the first operator or annotation after the wait for it; and how many waits have none."""
    pairs = np.array([(wait.call, work) for wait in waits for work in wait.works], np.int64).reshape(-1, 2)
    call, work = pairs[:, 0], pairs[:, 1]
    events = part.events
    lane = lane_of_tracks(part.graph.tracks)
    rows = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    rows = rows[events.timed[rows]]
    rows = rows[np.argsort(-events.duration[rows], kind="stable")]
    thread = Lanes.of(lane[events.track[rows]], events.start[rows])
    returned = np.maximum(events.end[call], events.end[work])
    first = thread.first_since(lane[events.track[call]], returned)
    found = first != UNKNOWN
    return work[found], rows[first[found]], len(np.setdiff1d(call[~found], call[found]))
