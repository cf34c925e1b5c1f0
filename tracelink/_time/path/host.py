"""The pieces of the threads of a rank: operators, what is between them, and without the time that threads waited."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tracelink._model.causes import callers, innermost, outside
from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table, UInt8s, for_each_text
from tracelink._model.events import EventKind
from tracelink._model.graph import Excerpt
from tracelink._time.model.intervals import without_overlaps
from tracelink._time.path.modules import is_step
from tracelink._time.path.nodes import PieceKind
from tracelink._time.rank.call_sites import DEEPEST
from tracelink._time.rank.host import DATA_LOADER

NAMED = (EventKind.OPERATOR, EventKind.RUNTIME)
"""Kinds that name the pieces of threads; what encloses them names the time between them."""


class Waits(Table, frozen=True):
    """One row for each time that a thread waited; the pieces of the thread leave it out."""

    lane: Int64s
    start: Int64s
    end: Int64s


class Cuts(Table, frozen=True):
    """Times at which pieces of a thread must begin or end, because something else depends on them."""

    lane: Int64s
    time: Int64s


class HostPieces(Table, frozen=True):
    """The pieces of threads, by lane and start."""

    lane: Int64s
    kind: UInt8s
    start: Int64s
    end: Int64s
    row: Int64s
    """The event that names it."""
    inside: Int64s
    """The innermost event around it, itself if it is one; UNKNOWN if there is none."""


class Threads(Struct, frozen=True):
    """The events of the threads of a rank that name pieces."""

    part: Excerpt
    lane: Int64s
    """The lane of each event."""
    on_thread: Int64s
    """All events that are on threads and have a time, by lane, start and length."""
    caller: Int64s
    """The caller of each event, or UNKNOWN; and once more UNKNOWN."""
    top: Int64s
    """The outermost operators and calls, and communication on threads; by lane and start."""
    communicates: Bools
    """Which of `top` are communication."""
    working: Int64s
    """Operators, calls and communication on threads, by lane."""
    end: Int64s
    """The end of each event; and once more 0, for UNKNOWN."""

    @classmethod
    def of(cls, part: Excerpt, lane: Int64s, communication: Int64s) -> Threads:
        """The threads of a rank; `communication` are rows of the transfers that threads take part in."""
        events, caller = part.events, callers(part)
        known = events.timed & (events.duration >= 0)
        kinds = (*NAMED, EventKind.ANNOTATION, EventKind.PYTHON)
        on_thread = np.flatnonzero(events.of_kind(*kinds) & known)
        on_thread = on_thread[
            _outer_first(lane[on_thread], events.start[on_thread], events.duration[on_thread])
        ]
        transfers = np.zeros(len(events), np.bool_)
        transfers[communication] = True
        transfers &= events.of_kind(EventKind.ANNOTATION) & known
        named = (events.of_kind(*NAMED) & known) | transfers
        named[named] = ~for_each_text(part.graph.strings, events.name[named], is_step, np.bool_, False)
        outer = outside(caller, innermost(caller, named))
        top = np.flatnonzero(named & ((outer == UNKNOWN) | transfers))
        top = top[_outer_first(lane[top], events.start[top], events.duration[top])]
        working = on_thread[(events.of_kind(*NAMED) | transfers)[on_thread]]
        end = np.append(events.end, 0)
        return cls(part, lane, on_thread, np.append(caller, UNKNOWN), top, transfers[top], working, end)

    def lanes(self) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Each lane with its events and its outermost ones."""
        lanes = np.unique(self.lane[self.on_thread])
        bounds = [
            np.searchsorted(self.lane[rows], np.append(lanes, np.inf)) for rows in (self.on_thread, self.top)
        ]
        for index, lane in enumerate(lanes.tolist()):
            yield (
                lane,
                self.on_thread[bounds[0][index] : bounds[0][index + 1]],
                np.arange(bounds[1][index], bounds[1][index + 1]),
            )

    def pauses(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """For each of these rows the pause before it: when an operator, call or transfer of its thread last changed."""
        events, lanes = self.part.events, self.lane[self.working]
        since = np.full(len(rows), np.iinfo(np.int64).min)
        for lane in np.unique(self.lane[rows]).tolist():
            mine = self.working[slice(*np.searchsorted(lanes, [lane, lane + 1]).tolist())]
            changes = np.sort(np.concatenate([events.start[mine], self.end[mine]]))
            wanted = np.flatnonzero(self.lane[rows] == lane)
            position = np.searchsorted(changes, events.start[rows[wanted]])
            found = wanted[position > 0]
            since[found] = changes[position[position > 0] - 1]
        return since, events.start[rows]


FARTHEST = 1 << 62


def _outer_first(lane: Int64s, start: Int64s, duration: Int64s) -> Int64s:
    """The order by lane, start and length, the longest first: one sort, and another one of what starts together."""
    if not len(lane):
        return lane
    begin = int(start.min())
    span = int(start.max()) - begin + 1
    if (int(lane.max()) + 1) * span >= FARTHEST:
        return np.lexsort((-duration, start, lane))
    key = lane * span + (start - begin)
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(np.diff(key[order]) == 0)
    together = np.unique(np.append(same, same + 1))
    rows = order[together]
    order[together] = rows[np.lexsort((-duration[rows], key[rows]))]
    return order


def host_pieces(threads: Threads, waits: Waits, cuts: Cuts) -> HostPieces:
    """The pieces of all threads, cut where something depends on them."""
    parts = [
        _pieces_of_lane(
            threads,
            lane,
            rows,
            threads.top[top],
            threads.communicates[top],
            waits.take(waits.lane == lane),
            cuts,
        )
        for lane, rows, top in threads.lanes()
    ]
    return HostPieces.concatenate(parts)


def _pieces_of_lane(
    threads: Threads, lane: int, rows: Int64s, top: Int64s, communicates: Bools, waits: Waits, cuts: Cuts
) -> HostPieces:
    events = threads.part.events
    transfer_start, transfer_end = without_overlaps(
        events.start[top[communicates]], threads.end[top[communicates]]
    )
    start, end = _without(events.start[top], threads.end[top], communicates)
    wanted = cuts.time[cuts.lane == lane]
    wait_start, wait_end = _merged(waits.start, waits.end)
    times = np.concatenate(
        [start, end, wanted, wait_start, wait_end, [events.start[rows].min(), threads.end[rows].max()]]
    )
    times = times[~_within(times, transfer_start, transfer_end)]
    times = _distinct(np.concatenate([times, transfer_start, transfer_end]))
    begin, until = times[:-1], times[1:]
    working = ~_covers(wait_start, wait_end, begin) | _covers(transfer_start, transfer_end, begin)
    begin, until = begin[working], until[working]
    index = _covering(start, end, begin)
    of_transfer = _covering(transfer_start, transfer_end, begin)
    row = np.where(index == UNKNOWN, UNKNOWN, np.append(top, UNKNOWN)[index])
    row = np.where(of_transfer == UNKNOWN, row, np.append(top[communicates], UNKNOWN)[of_transfer])
    inside = np.where(row == UNKNOWN, _innermost(threads, rows, begin, until), row)
    return HostPieces(
        np.full(len(begin), lane, np.int64),
        _kinds(threads, row, inside, of_transfer),
        begin,
        until,
        row,
        inside,
    )


def _distinct(times: Int64s) -> Int64s:
    """Sorted, and each only once; much faster than `np.unique` for many that differ."""
    times = np.sort(times)
    return times[np.append(True, times[1:] > times[:-1])[: len(times)]]


def _without(start: Int64s, end: Int64s, excluded: Bools) -> tuple[Int64s, Int64s]:
    """The stretches without overlaps; those that are excluded have no length."""
    clipped_start, clipped_end = without_overlaps(start, np.where(excluded, start, end))
    return clipped_start, clipped_end


def _merged(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The stretches as far as earlier ones do not cover them."""
    order = np.lexsort((end, start))
    start, end = without_overlaps(start[order], end[order])
    some = start < end
    return start[some], end[some]


def _covering(start: Int64s, end: Int64s, time: Int64s) -> Int64s:
    """The index of the stretch that covers each time, or UNKNOWN; stretches are sorted and do not overlap."""
    some = np.flatnonzero(end > start)
    index = np.searchsorted(start[some], time, side="right") - 1
    covered = (index >= 0) & (np.append(end[some], np.iinfo(np.int64).min)[index] > time)
    return np.where(covered, np.append(some, UNKNOWN)[np.where(covered, index, -1)], UNKNOWN)


def _covers(start: Int64s, end: Int64s, time: Int64s) -> Bools:
    covered: Bools = _covering(start, end, time) != UNKNOWN
    return covered


def _within(time: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Which times are inside a stretch, its ends excluded."""
    index = np.searchsorted(start, time) - 1
    inside: Bools = (index >= 0) & (np.append(end, np.iinfo(np.int64).min)[index] > time)
    return inside


def _innermost(threads: Threads, rows: Int64s, begin: Int64s, until: Int64s) -> Int64s:
    """The innermost event around each stretch: from the last event to start before it, outwards."""
    events = threads.part.events
    position = np.searchsorted(events.start[rows], begin, side="right") - 1
    row = np.where(position >= 0, np.append(rows, UNKNOWN)[position], UNKNOWN)
    for _ in range(DEEPEST):
        too_short = (row != UNKNOWN) & (threads.end[row] < until)
        if not too_short.any():
            return row
        row = np.where(too_short, threads.caller[row], row)
    return np.where(too_short, UNKNOWN, row)


def _kinds(threads: Threads, row: Int64s, inside: Int64s, of_transfer: Int64s) -> UInt8s:
    graph = threads.part.graph
    kind = np.where(row == UNKNOWN, PieceKind.PYTHON, PieceKind.HOST)
    names = np.append(graph.events.name, UNKNOWN)
    loads = for_each_text(graph.strings, names[inside], lambda text: DATA_LOADER in text, np.bool_, False)
    kind = np.where(loads, PieceKind.DATA_LOADING, kind)
    return np.where(of_transfer == UNKNOWN, kind, PieceKind.COMMUNICATION).astype(np.uint8)
