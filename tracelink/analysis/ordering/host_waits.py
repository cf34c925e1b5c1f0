"""The host waits for a device: synchronising calls, and copies that return when they are done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.ordering.awaited_work import CLOCKS_DIFFER_NS, AwaitedWork
from tracelink.analysis.ordering.lanes import Lanes, lane_of_tracks
from tracelink.analysis.ordering.launched import Launched
from tracelink.analysis.ordering.order import Order, can_follow
from tracelink.analysis.ordering.recorded_waits import record_starts
from tracelink.analysis.ordering.runtime_calls import calls_named
from tracelink.analysis.ordering.synchronizations import (
    Awaited,
    Synchronizations,
    calls_of_waits,
    device_lanes,
    stream_lanes,
)
from tracelink.events import EventKind, Int64s
from tracelink.excerpt import NONE, Excerpt

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
        by_event, record_starts(part, waits), started[np.where(calls == NONE, waits.row, calls)]
    )
    streams = stream_lanes(part, waits.device, np.where(by_event, waits.event_stream, waits.stream))
    waiting = np.array([bool(WAITS.search(text)) for text in part.graph.strings], np.bool_)
    for wait, call in enumerate(calls.tolist()):
        if call == NONE or not waiting[part.events.name[call]]:
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
    copies = np.flatnonzero((events.kind[launched.row] == EventKind.MEMCPY) & (launched.call != NONE))
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
    found = first != NONE
    return work[found], rows[first[found]], len(np.setdiff1d(call[~found], call[found]))
