"""One rank's graph to pieces and their causes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s, StringTable, lookup, values_at
from tracelink._model.communications import Evidence
from tracelink._model.events import GPU_WORK, EventKind
from tracelink._model.graph import EventGraph, Excerpt
from tracelink._model.job import LinkedJob, event_of
from tracelink._order.host import WaitingCalls, hand_overs, resumptions, waiting_calls
from tracelink._order.order import Launched, Order, lane_of_tracks, launched_work
from tracelink._order.streams import stream_order, stream_waits
from tracelink._time.path.host import Cuts, HostPieces, Threads, Waits, host_pieces
from tracelink._time.path.modules import modules_of
from tracelink._time.path.nodes import Causes, Landmarks, PieceKind, Pieces, Why
from tracelink._time.rank.call_sites import MODULE
from tracelink._time.rank.steps import windows_of
from tracelink._time.rank.view import RankView, Work
from tracelink.converters.pytorch.arguments import recorded_synchronizations


class RankPieces(Struct, frozen=True):
    """The contracted graph of a rank: all that the first process gets of it."""

    rank: int
    pieces: Pieces
    causes: Causes
    landmarks: Landmarks
    names: Sequence[str]
    steps: Int64s
    """The number of each step, or UNKNOWN."""
    step_start: Int64s
    step_end: Int64s
    unresolved: int = 0
    """Waits of the host for which no device work was found."""


def contracted(graph: EventGraph, job: LinkedJob, rank: int) -> RankPieces:
    """The pieces of a rank, their causes, and those that take part in communication.

    Args:
        graph: The events of the rank.
        job: The job; its events are not read.
        rank: The rank.
    """
    part = Excerpt(graph)
    lanes = lane_of_tracks(graph.tracks)
    lane = lanes[graph.events.track].astype(np.int64) if len(graph) else np.empty(0, np.int64)
    talks = _Talks.of(job, rank, part)
    threads = Threads.of(part, lane, talks.rows)
    joints = _Joints.of(part, threads, talks)
    host = host_pieces(threads, joints.waits, joints.cuts(talks))
    device = RankView(graph).work
    pieces = _Placed(part, lane, host, device)
    names = StringTable()
    windows = windows_of(graph).windows
    named = _named(part, lane, host, device, names)
    return RankPieces(
        rank,
        named,
        _with_unseen_waits(_causes(joints, pieces), named, len(host)),
        Landmarks(talks.rows, pieces.at_start(talks.rows)),
        names.texts(),
        windows.number,
        windows.start,
        windows.end,
        joints.unexplained,
    )


# What the rank does together with others.


class _Talks(Struct, frozen=True):
    """The events of a rank that take part in communication."""

    rows: Int64s
    requesting: Int64s
    """For each participation the operator that requested it, or UNKNOWN."""
    done: Int64s
    """The event of the transfer."""

    @classmethod
    def of(cls, job: LinkedJob, rank: int, part: Excerpt) -> _Talks:
        """Those of the tables of a job."""
        table, messages = job.participations, job.messages
        mine = (table.rank == rank) & (table.evidence >= Evidence.ANNOTATION)
        parts = table.take(mine)
        event = event_of(parts)
        ends = [messages.send[messages.source == rank], messages.receive[messages.target == rank]]
        rows = np.unique(np.concatenate([event, *ends]))
        rows = rows[rows != UNKNOWN]
        return cls(rows[part.events.timed[rows]], parts.operator, event)


# What threads waited for.


class _Joints(Struct, frozen=True):
    """Where threads and streams wait for each other, as rows and times."""

    waits: Waits
    host_waits: WaitingCalls
    between: Order
    """Work on a thread or stream that an event on another thread waited for."""
    issues: tuple[Int64s, Int64s, Int64s]
    """Lane and time of each request for communication on another thread, and the row of it."""
    launched: Launched
    streams: Order
    stream_waits: Order
    lane: Int64s
    part: Excerpt

    @classmethod
    def of(cls, part: Excerpt, threads: Threads, talks: _Talks) -> _Joints:
        """All joints of a rank."""
        events, lane = part.events, threads.lane
        launched, recorded = launched_work(part), recorded_synchronizations(part.graph)
        host_waits = waiting_calls(part, launched, recorded)
        between = _binding(part, threads, [hand_overs(part), _resumptions(part, talks)])
        issues = _issues(part, lane, talks)
        paused = np.concatenate([between.after, issues[2]])
        since, until = threads.pauses(paused)
        waits = Waits(
            np.concatenate([lane[host_waits.call], lane[paused]]),
            np.concatenate([events.start[host_waits.call], since]),
            np.concatenate([events.end_of(host_waits.call), until]),
        )
        has_calls = len(part.rows(EventKind.RUNTIME)) > 0
        of_streams = stream_waits(part, launched, recorded) if has_calls else Order.of(lane[:0], lane[:0])
        return cls(waits, host_waits, between, issues, launched, stream_order(part), of_streams, lane, part)

    @property
    def unexplained(self) -> int:
        """Waits of the host for which no work was found."""
        return self.host_waits.unexplained

    def cuts(self, talks: _Talks) -> Cuts:
        """The times at which something depends on a thread."""
        events, lane = self.part.events, self.lane
        on_host = self.between.before[~events.of_kind(*GPU_WORK)[self.between.before]]
        calls = self.launched.call[self.launched.call != UNKNOWN]
        talking = talks.rows[~events.of_kind(*GPU_WORK)[talks.rows]]
        starting = np.concatenate([calls, self.between.after, talking])
        return Cuts(
            np.concatenate([lane[starting], lane[on_host], self.issues[0]]),
            np.concatenate([events.start[starting], events.end_of(on_host), self.issues[1]]),
        )


def _resumptions(part: Excerpt, talks: _Talks) -> Order:
    """Threads that resume after communication on another thread."""
    known = talks.done != UNKNOWN
    on_host = np.zeros(len(talks.done), np.bool_)
    on_host[known] = ~part.events.of_kind(*GPU_WORK)[talks.done[known]]
    return resumptions(part, talks.requesting[on_host], talks.done[on_host])


def _binding(part: Excerpt, threads: Threads, orders: list[Order]) -> Order:
    """The pairs of which the second event came after a pause in which the first one ended."""
    before = np.concatenate([order.before for order in orders])
    after = np.concatenate([order.after for order in orders])
    elsewhere = threads.lane[before] != threads.lane[after]
    before, after = before[elsewhere], after[elsewhere]
    since, until = threads.pauses(after)
    ended = part.events.end_of(before)
    bound = (ended >= since) & (ended <= until) & part.events.timed[before]
    return Order.of(before[bound], after[bound])


def _issues(part: Excerpt, lane: Int64s, talks: _Talks) -> tuple[Int64s, Int64s, Int64s]:
    """Requests for communication on another thread: when it was there, at the latest when the transfer started."""
    events = part.events
    known = (talks.requesting != UNKNOWN) & (talks.done != UNKNOWN)
    requesting, done = talks.requesting[known], talks.done[known]
    other = (lane[requesting] != lane[done]) & ~events.of_kind(*GPU_WORK)[done] & events.timed[requesting]
    requesting, done = requesting[other], done[other]
    time = np.minimum(events.end_of(requesting), events.start[done])
    return lane[requesting], time, done


# Pieces by event and by time.


class _Placed:
    """Finds pieces; those of the host come first, then device work."""

    def __init__(self, part: Excerpt, lane: Int64s, host: HostPieces, device: Work) -> None:
        self._part, self._lane, self._host, self._device = part, lane, host, device
        self._on_device = part.events.of_kind(*GPU_WORK)

    def at_start(self, rows: Int64s) -> Int64s:
        """The piece that starts with each event, or UNKNOWN."""
        events = self._part.events
        return self._of(rows, self._found(self._host.start, self._lane[rows], events.start[rows]))

    def at_end(self, rows: Int64s) -> Int64s:
        """The piece that ends with each event, or UNKNOWN."""
        events = self._part.events
        return self._of(rows, self._found(self._host.end, self._lane[rows], events.end_of(rows)))

    def until(self, lane: Int64s, time: Int64s) -> Int64s:
        """The piece of each thread that ends at a time, or UNKNOWN."""
        return self._found(self._host.end, lane, time)

    def since(self, lane: Int64s, time: Int64s) -> Int64s:
        """The piece of each thread that starts at a time, or UNKNOWN."""
        return self._found(self._host.start, lane, time)

    def in_sequence(self) -> tuple[Int64s, Int64s]:
        """Each piece of a thread with the next one."""
        same = np.flatnonzero(self._host.lane[1:] == self._host.lane[:-1])
        return same, same + 1

    def work(self, rows: Int64s) -> Int64s:
        """The piece of each row of device work, or UNKNOWN."""
        index = lookup(self._device.row, rows)
        return np.where(index == UNKNOWN, UNKNOWN, index + len(self._host))

    def _of(self, rows: Int64s, on_thread: Int64s) -> Int64s:
        if not len(rows):
            return rows
        return np.where(self._on_device[rows], self.work(rows), on_thread)

    def _found(self, times: Int64s, lane: Int64s, time: Int64s) -> Int64s:
        """The piece of each thread with a time; pieces of a thread have ascending times."""
        found = np.full(len(lane), UNKNOWN, np.int64)
        for thread in np.unique(lane).tolist():
            begin, end = np.searchsorted(self._host.lane, [thread, thread + 1]).tolist()
            if begin == end:
                continue
            mine = np.flatnonzero(lane == thread)
            index = np.minimum(np.searchsorted(times[begin:end], time[mine]) + begin, end - 1)
            found[mine] = np.where(times[index] == time[mine], index, UNKNOWN)
        return found


def _causes(joints: _Joints, pieces: _Placed) -> Causes:
    """All causes as pieces."""
    events, lane = joints.part.events, joints.lane
    launched = joints.launched.take(joints.launched.call != UNKNOWN)
    waits, issued = joints.host_waits, joints.issues
    pairs = (
        (Why.SEQUENCE, *pieces.in_sequence()),
        (Why.STREAM, pieces.work(joints.streams.before), pieces.work(joints.streams.after)),
        (Why.STREAM_WAIT, pieces.work(joints.stream_waits.before), pieces.work(joints.stream_waits.after)),
        (
            Why.LAUNCH,
            pieces.until(lane[launched.call], events.start[launched.call]),
            pieces.work(launched.row),
        ),
        (Why.HOST_WAIT, pieces.work(waits.work), pieces.since(lane[waits.call], events.end_of(waits.call))),
        (Why.HAND_OVER, pieces.at_end(joints.between.before), pieces.at_start(joints.between.after)),
        (Why.HAND_OVER, pieces.until(issued[0], issued[1]), pieces.at_start(issued[2])),
    )
    before, after = (np.concatenate([pair[end] for pair in pairs]) for end in (1, 2))
    why = np.repeat([pair[0] for pair in pairs], [len(pair[1]) for pair in pairs]).astype(np.uint8)
    known = (before != UNKNOWN) & (after != UNKNOWN) & (before != after)
    return Causes(before[known], after[known], why[known])


UNSEEN_NS = 50_000
"""Device work that starts so much later than all of its causes waited for something else."""
PROMPT_NS = 30_000
"""It waited for the communication on another stream that ended so shortly before."""


def _with_unseen_waits(causes: Causes, pieces: Pieces, first: int) -> Causes:
    """Adds waits of streams for communication that neither calls nor records show; device work begins at `first`."""
    ready = np.full(len(pieces), NO_TIME, np.int64)
    np.maximum.at(ready, causes.after, pieces.end[causes.before])
    talks = first + np.flatnonzero(pieces.kind[first:] == PieceKind.COMMUNICATION)
    talks = talks[np.argsort(pieces.end[talks], kind="stable")]
    late = first + np.flatnonzero((pieces.start - UNSEEN_NS > ready)[first:] & (ready != NO_TIME)[first:])
    if not len(talks):
        return causes
    start = pieces.start[late]
    last = talks[np.maximum(np.searchsorted(pieces.end[talks], start, side="right") - 1, 0)]
    ended = pieces.end[last]
    found = (ended <= start) & (ended > ready[late]) & (start - ended <= PROMPT_NS)
    found &= pieces.lane[last] != pieces.lane[late]
    why = np.full(int(np.count_nonzero(found)), Why.STREAM_WAIT, np.uint8)
    return Causes.concatenate([causes, Causes(last[found], late[found], why)])


def _named(part: Excerpt, lane: Int64s, host: HostPieces, device: Work, names: StringTable) -> Pieces:
    """The pieces with the names of their events and modules."""
    inside = np.concatenate([host.inside, device.row])
    module = values_at(modules_of(part), inside)
    texts = part.graph.strings
    name = values_at(part.events.name, inside).astype(np.int64)
    module_name = values_at(part.events.name, module).astype(np.int64)
    code = np.full(len(texts) + 1, UNKNOWN, np.int32)
    for old in np.unique(name[name != UNKNOWN]).tolist():
        code[old] = names[texts[old]]
    of_module = np.full(len(texts) + 1, UNKNOWN, np.int32)
    for old in np.unique(module_name[module_name != UNKNOWN]).tolist():
        of_module[old] = names[texts[old].removeprefix(MODULE)]
    return Pieces(
        np.concatenate([host.lane, lane[device.row]]).astype(np.int32),
        np.concatenate([host.kind, device.part]).astype(np.uint8),
        np.concatenate([host.start, device.start]),
        np.concatenate([host.end, device.end]),
        np.concatenate([host.row, device.row]),
        code[name],
        of_module[module_name],
    )


assert (PieceKind.COMPUTE, PieceKind.COMMUNICATION, PieceKind.COPY) == (0, 1, 2), "as in `Work.part`"
