"""Order by waits of the host for a device: synchronising calls, and copies that return when they are done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import EventKind
from tracelink._model.graph import Excerpt
from tracelink._model.trace import Awaited, Synchronizations
from tracelink._order.order import (
    EVENT_RECORDS,
    Lanes,
    Launched,
    Order,
    calls_of_waits,
    can_follow,
    lane_of_tracks,
    lanes_of_device,
    lanes_of_streams,
    runtime_calls,
)
from tracelink._order.streams import record_starts

# The work that the host had waited for when a call returned.


CLOCKS_DIFFER_NS = 1000
"""The uncertainty between the clocks of host and device."""


class _AwaitedWork(Struct, frozen=True):
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
    def of(cls, part: Excerpt, launched: Launched) -> _AwaitedWork:
        """The look-ups for all work."""
        lane = lane_of_tracks(part.graph.tracks)
        end = part.events.end_of(launched.row)
        records = runtime_calls(part, EVENT_RECORDS)
        return cls(
            part,
            launched.row,
            launched.stream,
            end,
            lane,
            Lanes.of(launched.thread, launched.launched_at),
            Lanes.of(launched.stream, launched.launched_at),
            Lanes.of(np.zeros(len(launched), np.int64), end),
            records,
            Lanes.of(lane[part.events.track[records]], part.events.start[records]),
        )

    def launched_before(
        self, streams: Sequence[Int64s], before: Int64s, calls: Int64s
    ) -> list[tuple[int, ...]]:
        """For each call the last work launched on each of its streams before a time, if it had ended on return."""
        if not len(calls):
            return []
        which = np.repeat(np.arange(len(calls)), [len(each) for each in streams])
        last = self.by_stream.last_before(np.concatenate(streams), before[which])
        ended = np.flatnonzero(last != UNKNOWN)
        ended = ended[self.end[last[ended]] <= self._returned(calls)[which[ended]]]
        rows, bounds = (
            self.row[last[ended]].tolist(),
            np.searchsorted(which[ended], np.arange(len(calls) + 1)),
        )
        return [tuple(rows[begin:end]) for begin, end in pairwise(bounds.tolist())]

    def inferred(self, calls: Int64s, awaited: Awaited) -> list[tuple[int, ...]]:
        """`launched_before` for calls without stream or event: those that their thread used last.

        If that work had not ended, the last work that ended during the call.
        """
        events = self.part.events
        thread, before = self.lane[events.track[calls]], events.start[calls]
        if awaited == Awaited.EVENT:
            before = self._recorded(thread, before)
        used = self.by_thread.last_before(thread, before)
        stream = np.append(self.stream, UNKNOWN)[used]
        if awaited == Awaited.DEVICE:
            of_device = {each: self._device(each) for each in np.unique(stream).tolist()}
            return self.launched_before([of_device[each] for each in stream.tolist()], before, calls)
        found = self.launched_before(list(stream.reshape(-1, 1)), before, calls)
        during = self._ended_during(calls)
        return [works or others for works, others in zip(found, during, strict=True)]

    def _recorded(self, thread: Int64s, started: Int64s) -> Int64s:
        """When each thread recorded its last event before these times, else the times themselves."""
        last = self.records_by_thread.last_before(thread, started)
        recorded = np.append(self.part.events.start[self.records], 0)
        return np.where(last == UNKNOWN, started, recorded[last])

    def _device(self, stream: int) -> Int64s:
        """The streams of the device of a stream, or all streams."""
        if stream == UNKNOWN:
            return np.unique(self.stream)
        return lanes_of_device(self.part, self.part.graph.tracks[stream].process)

    def _ended_during(self, calls: Int64s) -> list[tuple[int, ...]]:
        last = self.by_end.last_before(np.zeros(len(calls), np.int64), self._returned(calls) + 1)
        during = last != UNKNOWN
        during[during] = self.end[last[during]] >= self.part.events.start[calls[during]]
        rows = np.append(self.row, UNKNOWN)[np.where(during, last, UNKNOWN)]
        return [() if row == UNKNOWN else (row,) for row in rows.tolist()]

    def _returned(self, calls: Int64s) -> Int64s:
        return self.part.events.end_of(calls) + CLOCKS_DIFFER_NS


# Waits of threads.


WAITING = {
    Awaited.STREAM: re.compile(r"StreamSynchronize"),
    Awaited.DEVICE: re.compile(r"(Device|Ctx|Context)Synchronize"),
    Awaited.EVENT: re.compile(r"EventSynchronize"),
}
WAITS = re.compile("|".join(name.pattern for name in WAITING.values()))
RETURNS_EARLY = re.compile(r"Async")
TO_PAGEABLE_MEMORY = re.compile(r"(DtoH|DeviceToHost)(?!.*Pinned)")
"""Even an asynchronous copy to memory that is not pinned returns only when it is done."""


def host_waits(part: Excerpt, launched: Launched, recorded: Synchronizations) -> Order:
    """The first operator or annotation of a thread after a wait, after the work that the thread waited for.

    Exact if the profiler recorded the wait. Else the stream is the one that the thread used last.
    """
    recorded_waits, inferred, copies = _host_waits(part, launched, recorded)
    before, after, idle = _followed([*recorded_waits, *inferred, *copies], part)
    allowed = can_follow(part.events, before, after)
    counts = {
        "waits": len(recorded_waits) + len(inferred),
        "recorded": sum(bool(wait.works) for wait in recorded_waits),
        "inferred": sum(bool(wait.works) for wait in inferred),
        "nothing_to_wait_for": sum(not wait.works for wait in recorded_waits),
        "unexplained": sum(not wait.works for wait in inferred),
        "blocking_copies": len(copies),
        "nothing_follows": idle,
    }
    return Order.of(before[allowed], after[allowed], counts)


class WaitingCalls(Struct, frozen=True):
    """Pairs of a call that waited for a device and work that it waited for."""

    call: Int64s
    work: Int64s
    unexplained: int
    """Calls without any work that they can have waited for."""


def waiting_calls(part: Excerpt, launched: Launched, recorded: Synchronizations) -> WaitingCalls:
    """The calls that wait for a device, each with the last work of each stream that it waited for."""
    recorded_waits, inferred, copies = _host_waits(part, launched, recorded)
    waits = [*recorded_waits, *inferred, *copies]
    pairs = np.array([(wait.call, work) for wait in waits for work in wait.works], np.int64).reshape(-1, 2)
    return WaitingCalls(pairs[:, 0], pairs[:, 1], sum(not wait.works for wait in inferred))


def _host_waits(
    part: Excerpt, launched: Launched, recorded: Synchronizations
) -> tuple[list[_Wait], list[_Wait], list[_Wait]]:
    """Waits that were recorded, waits that follow from calls, and copies that block their caller."""
    work = _AwaitedWork.of(part, launched)
    recorded_waits = list(_recorded_waits(part, work, recorded.where(*WAITING)))
    recorded_calls = {wait.call for wait in recorded_waits}
    inferred: list[_Wait] = []
    for awaited, name in WAITING.items():
        calls = runtime_calls(part, name)
        calls = calls[[call not in recorded_calls for call in calls.tolist()]] if len(calls) else calls
        works = work.inferred(calls, awaited)
        inferred += [_Wait(call, rows) for call, rows in zip(calls.tolist(), works, strict=True)]
    return recorded_waits, inferred, list(_blocking_copies(part, launched))


class _Wait(Struct, frozen=True):
    """A call, and the rows of the work that had ended because of it."""

    call: int
    works: tuple[int, ...]


def _recorded_waits(part: Excerpt, work: _AwaitedWork, waits: Synchronizations) -> Iterator[_Wait]:
    calls = calls_of_waits(part, waits).call
    started = part.events.start
    by_event = waits.awaited == Awaited.EVENT
    before = np.where(
        by_event, record_starts(part, waits), started[np.where(calls == UNKNOWN, waits.row, calls)]
    )
    streams = lanes_of_streams(part, waits.device, np.where(by_event, waits.event_stream, waits.stream))
    waiting = np.array([bool(WAITS.search(text)) for text in part.graph.strings], np.bool_)
    # queries of an event are recorded too, but do not wait
    some = np.flatnonzero((calls != UNKNOWN) & np.append(waiting, False)[part.events.name[calls]])
    of_device = {
        device: lanes_of_device(part, str(device))
        for device in np.unique(waits.device[some[waits.awaited[some] == Awaited.DEVICE]]).tolist()
    }
    lanes = [
        of_device[device] if awaited == Awaited.DEVICE else streams[[wait]]
        for wait, device, awaited in zip(
            some.tolist(), waits.device[some].tolist(), waits.awaited[some].tolist(), strict=True
        )
    ]
    works = work.launched_before(lanes, before[some], calls[some])
    for call, rows in zip(calls[some].tolist(), works, strict=True):
        yield _Wait(call, rows)


def _blocking_copies(part: Excerpt, launched: Launched) -> Iterator[_Wait]:
    """Copies by calls that return only when the copy is done, and that were done by then."""
    events = part.events
    texts = part.graph.strings
    early = np.array([bool(RETURNS_EARLY.search(text)) for text in texts], np.bool_)
    pageable = np.array([bool(TO_PAGEABLE_MEMORY.search(text)) for text in texts], np.bool_)
    copies = np.flatnonzero((events.kind[launched.row] == EventKind.MEMCPY) & (launched.call != UNKNOWN))
    row, call = launched.row[copies], launched.call[copies]
    blocks = ~early[events.name[call]] | pageable[events.name[row]]
    done = events.end_of(row) <= events.end_of(call) + CLOCKS_DIFFER_NS
    for index in np.flatnonzero(blocks & done).tolist():
        yield _Wait(int(call[index]), (int(row[index]),))


def _followed(waits: Sequence[_Wait], part: Excerpt) -> tuple[Int64s, Int64s, int]:
    """Each work with the first operator or annotation after the wait for it; and the number of waits without one."""
    pairs = np.array([(wait.call, work) for wait in waits for work in wait.works], np.int64).reshape(-1, 2)
    call, work = pairs[:, 0], pairs[:, 1]
    events = part.events
    lane = lane_of_tracks(part.graph.tracks)
    rows = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    rows = rows[events.timed[rows]]
    rows = rows[np.argsort(-events.duration[rows], kind="stable")]
    thread = Lanes.of(lane[events.track[rows]], events.start[rows])
    returned = np.maximum(events.end_of(call), events.end_of(work))
    first = thread.first_since(lane[events.track[call]], returned)
    found = first != UNKNOWN
    return work[found], rows[first[found]], len(np.setdiff1d(call[~found], call[found]))
