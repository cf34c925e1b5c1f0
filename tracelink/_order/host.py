"""Order on the host: waits for devices, hand-overs between autograd's threads, and resumptions after communication."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tracelink._model.causes import callers, innermost, outside
from tracelink._model.columns import UNKNOWN, Int64s, lexical_order
from tracelink._model.events import EventKind, Events, Relation
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


# Hand-overs: autograd runs on its own threads, between the operators of the thread that calls it.


BACKWARD = re.compile(r"^(autograd::engine::evaluate_function|torch::autograd::)")
"""Operators of the engine; some run on the calling thread, which helps while it waits."""


def hand_overs(part: Excerpt) -> Order:
    """Backward operators after their forward operators, and backward passes between operators of their callers.

    `backward()` blocks its caller. So the first operator of a run on an autograd thread follows the last operator
    that had ended on the forward thread, and the next operator of the forward thread follows the end of the run.
    """
    events = part.events
    links = part.where(Relation.BACKWARD_OF)
    linked = can_follow(events, links.target, links.source)
    before, after = [links.target[linked]], [links.source[linked]]
    passed = 0
    for last, first in _hand_over_pairs(part, links.source, links.target):
        allowed = can_follow(events, last, first)
        passed += int(np.count_nonzero(allowed))
        before.append(last[allowed])
        after.append(first[allowed])
    counts = {
        "backward_of": int(np.count_nonzero(linked)),
        "forward_had_not_ended": int(np.count_nonzero(~linked)),
        "between_threads": passed,
    }
    return Order.of(np.concatenate(before), np.concatenate(after), counts)


def _hand_over_pairs(part: Excerpt, backward: Int64s, forward: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """For each two threads the last operator to end on one and the first to start after it on the other, both ways."""
    events = part.events
    if not len(backward):
        return
    lane = lane_of_tracks(part.graph.tracks)[events.track]
    operators = (
        events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION) & events.timed & (events.duration >= 0)
    )
    caller = callers(part)
    outermost = operators & (outside(caller, innermost(caller, operators)) == UNKNOWN)
    of_engine = np.array([bool(BACKWARD.search(text)) for text in part.graph.strings], np.bool_)[events.name]
    of_engine[backward] = True
    engine = innermost(caller, of_engine)
    outside_engine, not_inside_engine = (
        operators & (engine == UNKNOWN),
        operators & (outside(caller, engine) == UNKNOWN),
    )
    pairs = np.stack([lane[backward], lane[forward]])
    for engine_lane, caller_lane in np.unique(pairs[:, pairs[0] != pairs[1]], axis=1).T.tolist():
        runs = _by_start(events, np.flatnonzero(outermost & (lane == engine_lane)))
        waits = _by_start(events, np.flatnonzero(not_inside_engine & (lane == caller_lane)))
        calls = _by_start(events, np.flatnonzero(outside_engine & (lane == caller_lane)))
        yield _last_and_first(
            events, calls, _heads(runs, np.searchsorted(events.start[calls], events.start[runs]))
        )
        ends = np.sort(events.end_of(runs))
        yield _last_and_first(
            events, runs, _heads(waits, np.searchsorted(ends, events.start[waits], side="right"))
        )


def _by_start(events: Events, rows: Int64s) -> Int64s:
    """Rows in the order of their starts, outer ones first."""
    ordered: Int64s = rows[lexical_order(events.start[rows], -events.end_of(rows))]
    return ordered


def _heads(rows: Int64s, passed: Int64s) -> Int64s:
    """The first row after each change on the other thread."""
    increased = np.diff(passed, prepend=0) > 0
    heads: Int64s = rows[increased]
    return heads


def _last_and_first(events: Events, ended: Int64s, first: Int64s) -> tuple[Int64s, Int64s]:
    """For each of `first` the last of `ended` when it started (of several the earliest to start), if there is one."""
    by_end = ended[lexical_order(events.end_of(ended), -events.start[ended])]
    count = np.searchsorted(events.end_of(by_end), events.start[first], side="right")
    known = count > 0
    return by_end[count[known] - 1], first[known]


# Resumptions: a thread continues when communication on another thread, which it waited for, has ended.


def resumptions(part: Excerpt, requesting: Int64s, done: Int64s) -> Order:
    """The first event of a thread after communication, after it: operator `requesting[i]` requested `done[i]`.

    CPU backends record no wait. But a thread that pauses until the work ends, and then continues, waited for it: the
    end must be in the second half of the pause, so that work which ended by chance during a pause is not used.
    """
    events = part.events
    known = (requesting != UNKNOWN) & (done != UNKNOWN) & (requesting != done)
    requesting, done = requesting[known], done[known]
    if not len(done):
        return Order.of(done, done)
    lanes = lane_of_tracks(part.graph.tracks)
    lane, own_lane = lanes[events.track[requesting]], lanes[events.track[done]]
    on_threads = part.rows(EventKind.OPERATOR, EventKind.ANNOTATION)
    on_threads = on_threads[events.timed[on_threads]]
    after = np.full(len(done), UNKNOWN, np.int64)
    for thread in np.unique(lane[lane != own_lane]).tolist():
        chosen = np.flatnonzero((lane == thread) & (own_lane != thread) & (events.duration[done] >= 0))
        on_thread = on_threads[lanes[events.track[on_threads]] == thread]
        after[chosen] = _resumed(part, on_thread, events.end_of(done[chosen]))
    found = after != UNKNOWN
    counts = {"requested": len(done), "waited": int(np.count_nonzero(found))}
    return Order.of(done[found], after[found], counts)


def _resumed(part: Excerpt, rows: Int64s, ended: Int64s) -> Int64s:
    """For each time the first row of the thread after it, if the thread had paused until then; else UNKNOWN."""
    events = part.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    starts = events.start[rows]
    changes = np.unique(np.concatenate([starts, events.end_of(rows)]))
    following = np.searchsorted(starts, ended)
    change = np.searchsorted(changes, ended)
    if not len(changes):
        return np.full(len(ended), UNKNOWN, np.int64)
    paused = ended - changes[np.maximum(change - 1, 0)]
    until = changes[np.minimum(change, len(changes) - 1)] - ended
    waited = (change > 0) & (change < len(changes)) & (following < len(rows)) & (paused > until)
    return np.where(waited, rows[np.minimum(following, len(rows) - 1)], UNKNOWN)
