"""Why only communication or only copies ran: what the computation waited for, if it waited at all."""

from __future__ import annotations

import numpy as np

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, Table, Times
from tracelink._model.communications import Evidence, Messages, Verdict
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import NOTHING, divided, gaps_of, intersection, union, without_overlaps
from tracelink._time.model.results import NOT_MATCHED, NOTHING_LAUNCHED, Cause
from tracelink._time.rank.host import HostActivity
from tracelink._time.rank.idle import Reason, merged
from tracelink._time.rank.view import COMPUTE, COPY, RankView


class Waits(Table, frozen=True):
    """One row for each communication of a rank, in the order of time: when it was in it, and until when it waited."""

    start: Times
    arrived: Times
    """When the last of the others had entered; not after `end`."""
    end: Times
    rank: Int64s
    """The last of the others, or UNKNOWN."""
    complete: Bools
    """Whether all others were recorded."""


def waits_of(job: LinkedJob, view: RankView) -> Waits:
    """The collectives and the receives of one rank, by kernels on devices or the annotations of backends for CPUs."""
    (rank,) = view.graph.ranks
    complete = np.array([text == Verdict.COMPLETE for text in (*job.strings, "")], np.bool_)
    found = [_in_collectives(job, rank.rank, complete)]
    if len(job.messages):
        found.append(_in_receives(job.messages, view, rank.rank, complete))
    waits = Waits.concatenate(found)
    return waits.take(np.argsort(waits.start, kind="stable"))


def _in_collectives(job: LinkedJob, rank: int, complete: Bools) -> Waits:
    parts = job.participations
    measured = np.isin(parts.evidence, (Evidence.KERNEL, Evidence.ANNOTATION))
    mine = parts.take((parts.rank == rank) & measured & (parts.start != NO_TIME) & (parts.end != NO_TIME))
    last = job.collectives.last_rank[mine.collective].astype(np.int64)
    arrived = np.clip(mine.start + np.maximum(mine.wait, 0), mine.start, np.maximum(mine.end, mine.start))
    whole = complete[job.collectives.verdict[mine.collective]] & (mine.wait != UNKNOWN)
    return Waits(mine.start, arrived, mine.end, np.where(arrived > mine.start, last, UNKNOWN), whole)


def _in_receives(messages: Messages, view: RankView, rank: int, complete: Bools) -> Waits:
    """Receives wait for the start of the send; whether a send waited for its receiver is not known."""
    mine = messages.take(
        (messages.target == rank) & (messages.receive != UNKNOWN) & (messages.received != NO_TIME)
    )
    start = view.events.start[mine.receive]
    known = (mine.sent != NO_TIME) & complete[mine.verdict]
    end = np.maximum(mine.received, start)
    arrived = np.where(known, np.clip(mine.sent, start, end), start)
    source = np.where(arrived > start, mine.source, UNKNOWN).astype(np.int64)
    return Waits(start, arrived, end, source, known)


def explained_communication(
    view: RankView, exposed: Spans, waits: Waits, activity: HostActivity
) -> list[tuple[Reason, Spans]]:
    """The reasons of communication without computation.

    While the next computation was not launched, nothing waited for the communication, unless the thread that launches
    waited for the device. Otherwise the rank waited for the last rank to enter, and then for the data.
    """
    idle_host = _not_launched(view, exposed, activity) if len(view.work) else NOTHING
    host: Reason = Cause.HOST_BOUND, None, NOTHING_LAUNCHED
    parts, rest = divided(exposed, [(host, idle_host)])
    start, arrived = without_overlaps(waits.start, waits.arrived)
    claims: list[tuple[Reason, Spans]] = []
    for rank in np.unique(waits.rank[waits.rank != UNKNOWN]).tolist():
        mine = waits.rank == rank
        reason: Reason = Cause.WAITING_FOR_RANK, rank, ""
        claims.append((reason, Spans.of(start[mine], arrived[mine])))
    claims.append(
        ((Cause.TRANSFER, None, ""), Spans.of(waits.start[waits.complete], waits.end[waits.complete]))
    )
    found, rest = divided(rest, claims)
    return merged([*parts, *found, ((Cause.UNKNOWN, None, NOT_MATCHED), rest)])


def _not_launched(view: RankView, exposed: Spans, activity: HostActivity) -> Spans:
    """When the next computation was not launched, and the thread that launched it did not wait for the device."""
    work = view.work
    computing = np.flatnonzero((work.part == COMPUTE) & (work.end > work.start))
    following = np.append(computing, UNKNOWN)[np.searchsorted(work.start[computing], exposed.ends)]
    lane = np.append(view.launching_lane, UNKNOWN)[following]
    known = lane != UNKNOWN
    launched = np.minimum(np.append(view.launched_at, NO_TIME)[following], exposed.ends)
    found = []
    for number in np.unique(lane[known]).tolist():
        mine = known & (lane == number)
        late = Spans.of(exposed.starts[mine], launched[mine])
        waiting = [spans for cause, _, spans in activity.of(number) if cause is Cause.SYNCHRONIZATION]
        found.append(intersection(late, gaps_of(union(*waiting))))
    return union(*found)


def explained_copies(view: RankView, exposed: Spans) -> list[tuple[Reason, Spans]]:
    """Copies without kernels, by their kind."""
    work = view.work
    copies = np.flatnonzero(work.part == COPY)
    names = view.events.name[work.row[copies]]
    claims: list[tuple[Reason, Spans]] = []
    for name in np.unique(names).tolist():
        mine = copies[names == name]
        reason: Reason = Cause.COPY, None, view.graph.strings[name]
        claims.append((reason, Spans.of(work.start[mine], work.end[mine])))
    found, rest = divided(exposed, claims)
    return [*found, ((Cause.UNKNOWN, None, ""), rest)]
