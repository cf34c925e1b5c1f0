"""Waits of streams that the profiler recorded: exact."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.ordering.lanes import Lanes, lane_of_tracks
from tracelink.analysis.ordering.launched import Launched
from tracelink.analysis.ordering.runtime_calls import EVENT_RECORDS, calls_named
from tracelink.analysis.ordering.synchronizations import Synchronizations, calls_of_waits, stream_lanes
from tracelink.events import Int64s
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class RecordedWaits:
    """Pairs of rows, the wait that each is from, and the call of every wait."""

    before: Int64s
    after: Int64s
    wait: Int64s
    """The place in `calls`."""
    calls: Int64s


def recorded_waits(part: Excerpt, launched: Launched, waits: Synchronizations) -> RecordedWaits:
    """The last work given to a stream before the event was recorded there, and the first after the wait."""
    began, call = wait_starts(part, waits)
    recorded = record_starts(part, waits)
    by_stream = Lanes.of(launched.stream, launched.begun)
    waiting = stream_lanes(part, waits.device, waits.stream)
    awaited = stream_lanes(part, waits.device, waits.event_stream)
    last = by_stream.last_before(awaited, recorded)
    first = by_stream.first_since(waiting, began)
    passed_on = _PassedOn(launched.begun, launched.stream)
    pairs: list[tuple[int, int, int]] = []
    for wait in np.argsort(began, kind="stable").tolist():
        works = passed_on.works(int(awaited[wait]), int(last[wait]), int(recorded[wait]))
        passed_on.keep(int(waiting[wait]), int(began[wait]), works)
        if first[wait] != NONE:
            pairs += [(work, int(first[wait]), wait) for work in works]
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return RecordedWaits(launched.row[table[:, 0]], launched.row[table[:, 1]], table[:, 2], call)


def wait_starts(part: Excerpt, waits: Synchronizations) -> tuple[Int64s, Int64s]:
    """When each wait was called, and by which call; that of the record itself where there is none."""
    call = calls_of_waits(part, waits).call
    return part.events.start[np.where(call == NONE, waits.row, call)], call


def record_starts(part: Excerpt, waits: Synchronizations) -> Int64s:
    """When the event of each wait was recorded.

    Profiles of 2023 do not say by which call: it is the last one of the thread, else the wait itself.
    """
    began, call = wait_starts(part, waits)
    record = calls_of_waits(part, waits).record
    calls = calls_named(part, EVENT_RECORDS)
    lane = lane_of_tracks(part.graph.tracks)
    threads = Lanes.of(lane[part.events.track[calls]], part.events.start[calls])
    thread = np.where(call == NONE, NONE, lane[part.events.track[call]])
    last = threads.last_before(thread, began)
    latest = np.where(last == NONE, NONE, np.append(calls, NONE)[last])
    record = np.where(record == NONE, latest, record)
    return np.where(record == NONE, began, part.events.start[record])


@dataclass(slots=True)
class _PassedOn:
    """What streams wait for that have been given no work since: who waits for them waits for that as well."""

    begun: Int64s
    stream: Int64s
    times: dict[int, list[int]] = field(default_factory=dict)
    awaited: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)

    def works(self, stream: int, last: int, recorded: int) -> tuple[int, ...]:
        """All work that an event recorded on `stream` then stands for: of each stream the last."""
        latest: dict[int, int] = {}
        own = () if last == NONE else (last,)
        times = self.times.get(stream, [])
        since = 0 if last == NONE else bisect_right(times, int(self.begun[last]))
        for works in [own, *self.awaited.get(stream, [])[since : bisect_left(times, recorded)]]:
            for work in works:
                lane = int(self.stream[work])
                latest[lane] = max(latest.get(lane, NONE), work)
        return tuple(latest.values())

    def keep(self, stream: int, time: int, works: tuple[int, ...]) -> None:
        """Notes that a stream waits for these from `time` on."""
        self.times.setdefault(stream, []).append(time)
        self.awaited.setdefault(stream, []).append(works)
