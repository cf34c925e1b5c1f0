"""Order of device work: on one stream, and between streams by recorded or inferred waits."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from msgspec import Struct, field

from tracelink._model.causes import callers, innermost
from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink._model.events import GPU_WORK, EventKind, Events
from tracelink._model.graph import Excerpt
from tracelink._model.operations import COLLECTIVE_ANNOTATION, RECORD_OPERATOR
from tracelink._model.trace import Awaited, Synchronizations
from tracelink._order.order import (
    EVENT_RECORDS,
    Lanes,
    Launched,
    Order,
    calls_of_waits,
    can_follow,
    lane_of_tracks,
    lanes_of_streams,
    runtime_calls,
)

# Work on one stream runs in sequence.


def stream_order(part: Excerpt) -> Order:
    """Each kernel, copy and memset after the last one on its stream that had ended when it started.

    Work that overlaps on one stream (graphs, programmatic launches) is not ordered, but all of it comes before the
    work that starts after its end.
    """
    events = part.events
    rows = part.rows(*GPU_WORK)
    rows = rows[events.timed[rows]]
    lanes = lane_of_tracks(part.graph.tracks)
    lane = lanes[events.track[rows]] if len(rows) else rows
    previous, following = np.full((2, len(rows)), UNKNOWN, np.int64)
    for stream in np.unique(lane).tolist():
        positions = np.flatnonzero(lane == stream)
        previous[positions] = _previous(
            rows[positions],
            events.start[rows[positions]],
            events.end_of(rows[positions]),
            events.duration[rows[positions]],
        )
        ended = positions[events.duration[rows[positions]] >= 0]
        following[ended] = _following(rows[ended], events.start[rows[ended]], events.end_of(rows[ended]))
    found = previous != UNKNOWN
    ahead = np.flatnonzero(following != UNKNOWN)
    ahead = ahead[can_follow(events, rows[ahead], following[ahead])]
    counts = {"work": len(rows), "first": int(np.count_nonzero(~found))}
    before, after = np.append(previous[found], rows[ahead]), np.append(rows[found], following[ahead])
    return Order.of(before, after, counts)


def _previous(rows: Int64s, start: Int64s, end: Int64s, duration: Int64s) -> Int64s:
    """For each row the last one to end before it starts, or UNKNOWN; `rows` ascend."""
    ended = np.flatnonzero(duration >= 0)
    by_end = ended[np.lexsort((rows[ended], start[ended], end[ended]))]
    earlier = np.searchsorted(end[by_end], start, side="right")
    instant = end[by_end] == start[by_end]
    # of several with zero duration at one time each follows the one before it, the first what ended at that time
    earlier[by_end[instant]] = np.flatnonzero(instant)
    return (
        np.where(earlier > 0, rows[by_end[earlier - 1]], UNKNOWN)
        if len(by_end)
        else np.full(len(rows), UNKNOWN)
    )


def _following(rows: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """For each row the first other one to start after its end, or UNKNOWN."""
    by_start = np.lexsort((rows, end, start))
    index = np.searchsorted(start[by_start], end)
    instant = np.flatnonzero(start == end)
    index[by_start] = np.where(np.isin(by_start, instant), np.arange(len(rows)) + 1, index[by_start])
    return np.append(rows[by_start], UNKNOWN)[index]


# The communication that other work waits for, if it was not recorded.


class _JoinedCommunications:
    """Communications are waited for in the order of their launches, unless times show a different one.

    Each wait is for one communication without an earlier wait. Work that was launched on a free stream while a
    communication still ran, and that started after its end, visibly waited for it. Without a visible wait the first
    communication is the safe answer: the later ones of its stream ended after it.
    """

    def __init__(self, events: Events, launched: Launched, communicates: Bools) -> None:
        self._start, self._end = events.start[launched.row], events.end_of(launched.row)
        self._launched_at, self._stream = launched.launched_at, launched.stream
        self._communications = np.flatnonzero(communicates)
        self._communication_launched_at = launched.launched_at[self._communications]
        self._open = np.ones(len(self._communications), np.bool_)
        self._by_end = Lanes.of(launched.stream, self._end)

    def awaited(self, called: int, after: int) -> int:
        """The position of the communication that a wait is for, called before the work at `after`; or UNKNOWN."""
        launched = int(np.searchsorted(self._communication_launched_at, called))
        numbers = np.flatnonzero(self._open[:launched])
        if after == UNKNOWN or not len(numbers):
            return UNKNOWN
        ends = self._end[self._communications[numbers]]
        visible = np.flatnonzero((ends <= self._start[after]) & (ends > self._ready(after)))
        if len(visible):
            return self._close(int(numbers[visible[np.argmax(ends[visible])]]))
        return self._close(int(numbers[0])) if ends[0] <= self._start[after] else UNKNOWN

    def _ready(self, after: int) -> int:
        """The time at which the work at `after` was launched and its stream was free."""
        previous = self._by_end.last_before(self._stream[[after]], self._start[[after]] + 1)[0]
        ended = self._launched_at[after] if previous in (UNKNOWN, after) else self._end[previous]
        return int(max(ended, self._launched_at[after]))

    def _close(self, number: int) -> int:
        """Communications on its stream up to this one get no further wait."""
        position = int(self._communications[number])
        earlier = self._communications[: number + 1]
        self._open[: number + 1] &= self._stream[earlier] != self._stream[position]
        return position


# Inferred waits: only the call was recorded; the streams follow from what its thread launched.


class _WaitKind(IntEnum):
    """The purpose of a wait."""

    BEGIN = 0
    """A communication waits for what the thread launched before it."""
    WITHIN_CALL = 1
    """The library of a communication waits for its own work."""
    JOIN = 2
    """Other work waits for a communication."""
    SIDE_STREAM = 3
    """Work on one stream waits for other work."""


class _Wait(Struct, frozen=True):
    """One wait, with positions in `Launched`, or UNKNOWN."""

    kind: _WaitKind
    before: int = UNKNOWN
    after: int = UNKNOWN


def _inferred_waits(part: Excerpt, launched: Launched, calls: Int64s) -> Sequence[_Wait]:
    """The waits of these calls; the calls are in the order of time."""
    if not len(calls) or not len(launched):
        return [_Wait(_WaitKind.SIDE_STREAM) for _ in calls]
    view = _LaunchView.of(part, launched)
    joined = _JoinedCommunications(part.events, launched, view.communicates)
    thread = view.lane[part.events.track[calls]]
    started = part.events.start[calls]
    around = view.around[calls]
    previous, following = (
        view.by_thread.last_before(thread, started),
        view.by_thread.first_since(thread, started),
    )
    last_other = view.others.last_before(thread, started)
    next_other = view.next_other(thread, started, last_other)
    last_recorded = view.by_thread.last_before(thread, view.recorded(thread, started))
    kinds = _kinds(view, around, previous, following)
    waits: list[_Wait] = []
    for wait, kind in enumerate(kinds.tolist()):
        if kind == _WaitKind.BEGIN:
            pair = int(last_other[wait]), int(following[wait])
        elif kind == _WaitKind.JOIN:
            after = int(next_other[wait])
            pair = joined.awaited(int(started[wait]), after), after
        elif kind == _WaitKind.SIDE_STREAM:
            pair = int(last_recorded[wait]), int(following[wait])
        else:
            pair = UNKNOWN, UNKNOWN
        same = UNKNOWN not in pair and launched.stream[pair[0]] == launched.stream[pair[1]]
        waits.append(_Wait(_WaitKind(kind)) if same else _Wait(_WaitKind(kind), *pair))
    return waits


class _LaunchView(Struct, frozen=True):
    """Launched work, with the look-ups that inferring a wait needs."""

    lane: Int64s
    """The lane of each track."""
    around: Int64s
    """For each row the communication around it, or UNKNOWN."""
    within: Int64s
    """For each position in `Launched` the communication that launched it, or UNKNOWN."""
    stream: Int64s
    by_thread: Lanes
    others: Lanes
    """By thread, without communication."""
    others_by_stream: Lanes
    records: Lanes
    record_start: Int64s

    @classmethod
    def of(cls, part: Excerpt, launched: Launched) -> _LaunchView:
        lane = lane_of_tracks(part.graph.tracks)
        around = _communications(part)
        within = np.where(launched.call == UNKNOWN, UNKNOWN, around[launched.call])
        is_other = within == UNKNOWN
        records = runtime_calls(part, EVENT_RECORDS)
        record_start = part.events.start[records]
        return cls(
            lane,
            around,
            within,
            launched.stream,
            Lanes.of(launched.thread, launched.launched_at),
            Lanes.of(np.where(is_other, launched.thread, UNKNOWN), launched.launched_at),
            Lanes.of(np.where(is_other, launched.stream, UNKNOWN), launched.launched_at),
            Lanes.of(lane[part.events.track[records]], record_start),
            record_start,
        )

    @property
    def communicates(self) -> Bools:
        """The positions in `Launched` that are communication."""
        communicates: Bools = self.within != UNKNOWN
        return communicates

    def next_other(self, thread: Int64s, started: Int64s, last: Int64s) -> Int64s:
        """The next work other than communication on the stream that a thread uses, launched by any thread.

        It is the stream of the thread's next such work, else of its last.
        """
        following = self.others.first_since(thread, started)
        known = np.where(following == UNKNOWN, last, following)
        stream = np.where(known == UNKNOWN, UNKNOWN, self.stream[known])
        return self.others_by_stream.first_since(stream, started)

    def recorded(self, thread: Int64s, started: Int64s) -> Int64s:
        """When each thread recorded its last event before these times, else the times themselves."""
        record = self.records.last_before(thread, started)
        return np.where(record == UNKNOWN, started, np.append(self.record_start, 0)[record])


def _kinds(view: _LaunchView, around: Int64s, previous: Int64s, following: Int64s) -> Int64s:
    """The kind of each wait, from the communication around it and what is launched before and after it."""
    within = np.append(view.within, UNKNOWN)
    stream = np.append(view.stream, UNKNOWN)
    inside = around != UNKNOWN
    begin = inside & (within[following] == around)
    within_call = inside & ~begin & (within[previous] == around)
    single_stream = (previous == UNKNOWN) | (following == UNKNOWN) | (stream[previous] == stream[following])
    join = ~begin & ~within_call & (inside | single_stream | (within[previous] != UNKNOWN))
    return np.select(
        [begin, within_call, join],
        [_WaitKind.BEGIN, _WaitKind.WITHIN_CALL, _WaitKind.JOIN],
        _WaitKind.SIDE_STREAM,
    ).astype(np.int64)


def _communications(part: Excerpt) -> Int64s:
    """For each row the communication around it: its record, else the annotation of the library; or UNKNOWN."""
    caller = callers(part)
    events = part.events
    recorded = np.array([text == RECORD_OPERATOR for text in part.graph.strings], np.bool_)
    annotated = np.array([bool(COLLECTIVE_ANNOTATION.match(text)) for text in part.graph.strings], np.bool_)
    record = innermost(caller, events.of_kind(EventKind.OPERATOR) & recorded[events.name])
    annotation = innermost(caller, events.of_kind(EventKind.ANNOTATION) & annotated[events.name])
    return np.where(record == UNKNOWN, annotation, record)


# Recorded waits: exact.


class _RecordedWaits(Struct, frozen=True):
    """Pairs of rows from recorded waits."""

    before: Int64s
    after: Int64s
    wait: Int64s
    """The index of the wait of each pair, in `calls`."""
    calls: Int64s
    """The call of each wait."""


def _recorded_waits(part: Excerpt, launched: Launched, waits: Synchronizations) -> _RecordedWaits:
    """The last work launched on a stream before the event was recorded there, and the first after the wait."""
    started, call = _wait_starts(part, waits)
    recorded = record_starts(part, waits)
    by_stream = Lanes.of(launched.stream, launched.launched_at)
    waiting = lanes_of_streams(part, waits.device, waits.stream)
    awaited = lanes_of_streams(part, waits.device, waits.event_stream)
    last = by_stream.last_before(awaited, recorded)
    first = by_stream.first_since(waiting, started)
    indirect = _IndirectWaits(launched.launched_at, launched.stream)
    pairs: list[tuple[int, int, int]] = []
    for wait in np.argsort(started, kind="stable").tolist():
        works = indirect.works(int(awaited[wait]), int(last[wait]), int(recorded[wait]))
        indirect.keep(int(waiting[wait]), int(started[wait]), works)
        if first[wait] != UNKNOWN:
            pairs += [(work, int(first[wait]), wait) for work in works]
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return _RecordedWaits(launched.row[table[:, 0]], launched.row[table[:, 1]], table[:, 2], call)


def _wait_starts(part: Excerpt, waits: Synchronizations) -> tuple[Int64s, Int64s]:
    """The start of each wait's call (of the record itself if unknown), and the call."""
    call = calls_of_waits(part, waits).call
    return part.events.start[np.where(call == UNKNOWN, waits.row, call)], call


def record_starts(part: Excerpt, waits: Synchronizations) -> Int64s:
    """When the event of each wait was recorded.

    Profiles of 2023 do not have the call: it is the last such call of the thread, else the wait itself.
    """
    started, call = _wait_starts(part, waits)
    record = calls_of_waits(part, waits).record
    calls = runtime_calls(part, EVENT_RECORDS)
    lane = lane_of_tracks(part.graph.tracks)
    threads = Lanes.of(lane[part.events.track[calls]], part.events.start[calls])
    thread = np.where(call == UNKNOWN, UNKNOWN, lane[part.events.track[call]])
    last = threads.last_before(thread, started)
    latest = np.where(last == UNKNOWN, UNKNOWN, np.append(calls, UNKNOWN)[last])
    record = np.where(record == UNKNOWN, latest, record)
    return np.where(record == UNKNOWN, started, part.events.start[record])


class _IndirectWaits(Struct):
    """Waits of streams without later work: a wait for such a stream is also a wait for what it waits for."""

    launched_at: Int64s
    stream: Int64s
    times: dict[int, list[int]] = field(default_factory=dict)
    awaited: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)

    def works(self, stream: int, last: int, recorded: int) -> tuple[int, ...]:
        """All work that an event recorded on `stream` at that time represents: the last of each stream."""
        latest: dict[int, int] = {}
        own = () if last == UNKNOWN else (last,)
        times = self.times.get(stream, [])
        since = 0 if last == UNKNOWN else bisect_right(times, int(self.launched_at[last]))
        for works in [own, *self.awaited.get(stream, [])[since : bisect_left(times, recorded)]]:
            for work in works:
                lane = int(self.stream[work])
                latest[lane] = max(latest.get(lane, UNKNOWN), work)
        return tuple(latest.values())

    def keep(self, stream: int, time: int, works: tuple[int, ...]) -> None:
        """Adds that a stream waits for this work from `time` on."""
        self.times.setdefault(stream, []).append(time)
        self.awaited.setdefault(stream, []).append(works)


# A stream waits for what was launched on another stream: `cudaStreamWaitEvent` and similar calls.


STREAM_WAITS = re.compile(r"StreamWaitEvent")


def stream_waits(part: Excerpt, launched: Launched, recorded: Synchronizations) -> Order:
    """The first work of a stream after its wait, after the last work that the wait is for.

    Exact if the profiler recorded waits. Else the call has neither stream nor event: both are inferred, and only
    pairs that times allow are kept.
    """
    exact = _recorded_waits(part, launched, recorded.where(Awaited.EVENT_BY_STREAM))
    calls = np.setdiff1d(runtime_calls(part, STREAM_WAITS), exact.calls)
    has_records = np.isin(part.events.source[calls], part.events.source[recorded.row])
    inferred = _inferred_waits(part, launched, _by_time(part, calls[~has_records]))
    before, after = _pairs(launched, inferred)
    allowed = can_follow(part.events, before, after)
    exact_allowed = can_follow(part.events, exact.before, exact.after)
    found = np.unique(exact.wait[exact_allowed])
    contradicted = np.setdiff1d(exact.wait[~exact_allowed], found)
    explained = int(np.count_nonzero(allowed))
    within_calls = sum(wait.kind == _WaitKind.WITHIN_CALL for wait in inferred)
    counts = {
        "waits": len(exact.calls) + len(calls),
        "recorded": len(found),
        "inferred": explained,
        "within_a_communication": within_calls,
        "nothing_to_wait_for": len(exact.calls) - len(found) - len(contradicted),
        "contradicted_by_times": len(contradicted),
        "unexplained": len(calls) - explained - within_calls,
    }
    return Order.of(
        np.concatenate([exact.before[exact_allowed], before[allowed]]),
        np.concatenate([exact.after[exact_allowed], after[allowed]]),
        counts,
    )


def _by_time(part: Excerpt, calls: Int64s) -> Int64s:
    ordered: Int64s = calls[np.argsort(part.events.start[calls], kind="stable")]
    return ordered


def _pairs(launched: Launched, waits: Sequence[_Wait]) -> tuple[Int64s, Int64s]:
    found = [(wait.before, wait.after) for wait in waits if UNKNOWN not in (wait.before, wait.after)]
    positions = np.array(found, np.int64).reshape(-1, 2)
    return launched.row[positions[:, 0]], launched.row[positions[:, 1]]
