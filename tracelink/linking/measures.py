"""Skew, wait, bytes, bandwidth; crossings for clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.clock.clock import Crossings
from tracelink.linking.collectives import Judged, Matching
from tracelink.linking.groups import Groups, Members
from tracelink.linking.stack import Stack, bus_factor, elements_moved, is_one_of, item_sizes
from tracelink.model.collectives import Collectives, Messages, Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.communications import CALL_ROWS, Calls, Evidence
from tracelink.model.operations import ROOTED, SYNCHRONIZING, Operation

# What each collective took: who came last, how long others waited, and at which bandwidth it ran.


LATEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class _Spans:
    """The parts of each collective: where they begin, and how many there are."""

    starts: Int64s
    length: Int64s

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One value of each collective for each of its parts."""
        return np.repeat(values, self.length)

    def least(self, values: Int64s) -> Int64s:
        """The least of each collective, NO_TIME left out."""
        if not len(values):
            return values
        least = np.minimum.reduceat(np.where(values == NO_TIME, LATEST, values), self.starts)
        return np.where(least == LATEST, NO_TIME, least)

    def most(self, values: Int64s) -> Int64s:
        """The greatest of each collective; NO_TIME where there is none."""
        return np.maximum.reduceat(values, self.starts) if len(values) else values


def measure(
    stack: Stack, groups: Groups, matching: Matching, judged: Judged, clocked: Calls
) -> tuple[Collectives, Participations]:
    """The tables of collectives and participations, by times of one clock."""
    starts = matching.starts
    spans = _Spans(starts, np.diff(np.append(starts, len(clocked))))
    comparable = _comparable(clocked, spans)
    start = np.where(comparable, clocked.start, NO_TIME)
    end = np.where(comparable, clocked.end, NO_TIME)
    timed = spans.spread(spans.most(start)) != NO_TIME
    entered = np.where(timed, start, clocked.enqueued)
    entered = np.where(spans.spread(_compared(groups, matching, entered, spans)), entered, NO_TIME)
    last, first = spans.most(entered), spans.least(entered)
    wait = np.where(entered == NO_TIME, UNKNOWN, spans.spread(last) - entered)
    participations = Participations.of(
        len(clocked),
        collective=matching.collective,
        rank=matching.rank,
        **{name: getattr(clocked, name) for name in (*CALL_ROWS, "enqueued", "state")},
        start=start,
        end=end,
        evidence=np.where(comparable, clocked.evidence, Evidence.NONE),
        wait=wait,
        **_amounts(stack, clocked),
    )
    finish = spans.most(end)
    measured = (spans.most(start) != NO_TIME) & (finish != NO_TIME) & (last != NO_TIME)
    duration = np.where(measured, finish - last, UNKNOWN)
    table = Collectives.of(
        len(matching),
        **_described(stack, groups, matching, judged, clocked, spans, duration),
        root=_roots(stack, groups, matching, judged, clocked),
        start=spans.least(start),
        end=finish,
        duration=duration,
        last_rank=_last_rank(matching.rank, entered, last, spans),
        skew=np.where(last == NO_TIME, UNKNOWN, last - first),
    )
    return table, participations


def _amounts(stack: Stack, calls: Calls) -> dict[str, Int64s]:
    """What each rank gives and gets, in bytes."""
    item = item_sizes(calls.type, stack.strings)
    return {
        name: np.where((elements >= 0) & (item >= 0), elements * item, np.where(elements == 0, 0, UNKNOWN))
        for name, elements in (("bytes_in", calls.elements_in), ("bytes_out", calls.elements_out))
    }


def _roots(stack: Stack, groups: Groups, matching: Matching, judged: Judged, calls: Calls) -> Int64s:
    """The root of each collective that has one, as a rank of the job; or UNKNOWN."""
    rooted = is_one_of(calls.operation[judged.typical], stack.strings, tuple(ROOTED))
    within, of_job = calls.source[judged.typical], calls.global_ranks[judged.typical]
    root = Members.of(groups).rank_of(matching.group, within, of_job)
    return np.where(rooted & (within >= 0), root, UNKNOWN)


def _comparable(calls: Calls, spans: _Spans) -> Bools:
    """Parts whose times rest on what those of most others rest on, too."""
    best, most = np.zeros(len(spans.starts), np.int32), np.zeros(len(spans.starts), np.int64)
    if not len(calls):
        return np.zeros(0, np.bool_)
    for evidence in Evidence:
        count = np.add.reduceat(calls.evidence == evidence, spans.starts)
        better = count >= most
        best[better], most[better] = evidence, count[better]
    comparable: Bools = (calls.evidence == np.repeat(best, spans.length)) & (calls.evidence != Evidence.NONE)
    return comparable


def _compared(groups: Groups, matching: Matching, entered: Int64s, spans: _Spans) -> Bools:
    """Whether the entering of several is known, or there is only one: one alone is neither early nor late."""
    if not len(entered):
        return np.zeros(0, np.bool_)
    known = np.add.reduceat(entered != NO_TIME, spans.starts)
    alone = np.array([groups.size(row) == 1 for row in range(len(groups.rows))], np.bool_)
    compared: Bools = (known > 1) | alone[matching.group]
    return compared


def _last_rank(rank: Int32s, entered: Int64s, last: Int64s, spans: _Spans) -> Int64s:
    """The first rank of those that entered last, or UNKNOWN."""
    if not len(rank):
        return np.empty(0, np.int64)
    latest = (entered == spans.spread(last)) & (entered != NO_TIME)
    found = np.minimum.reduceat(np.where(latest, rank.astype(np.int64), LATEST), spans.starts)
    return np.where(found == LATEST, UNKNOWN, found)


def _described(
    stack: Stack,
    groups: Groups,
    matching: Matching,
    judged: Judged,
    calls: Calls,
    spans: _Spans,
    duration: Int64s,
) -> dict[str, Any]:
    """What each collective was, as most of its ranks have it, and how fast."""
    operation, kind = calls.operation[judged.typical], calls.type[judged.typical]
    given, gotten = calls.elements_in[judged.typical], calls.elements_out[judged.typical]
    sizes = np.array([groups.size(row) for row in range(len(groups.rows))] or [0], np.int64)
    members = sizes[matching.group]
    to_all = is_one_of(operation, stack.strings, (Operation.ALL_TO_ALL,))
    given = np.where(to_all, _mean_given(calls.elements_in, given, members, spans), given)
    elements = elements_moved(operation, given, gotten, members, stack.strings)
    item = item_sizes(kind, stack.strings)
    moved = np.where((elements >= 0) & (item >= 0), elements * item, UNKNOWN)
    moved[elements == 0] = 0
    rated = (moved > 0) & (duration > 0)
    rate = np.divide(moved, duration, out=np.full(len(moved), np.nan), where=rated)
    return {
        "group": matching.group,
        "sequence": matching.sequence,
        "order": matching.order,
        "operation": operation,
        "type": kind,
        "verdict": judged.verdict,
        "bytes": moved,
        "algorithm_gb_s": rate,
        "bus_gb_s": rate * bus_factor(operation, members, stack.strings),
    }


def _mean_given(given: Int64s, typical: Int64s, members: Int64s, spans: _Spans) -> Int64s:
    """What a rank gives on average, where not all give equally much and that of all is known; else UNKNOWN."""
    if not len(given):
        return typical
    least = np.minimum.reduceat(given, spans.starts)
    uneven = least != np.maximum.reduceat(given, spans.starts)
    whole = (least >= 0) & (spans.length == members)
    mean = np.where(whole, np.add.reduceat(given, spans.starts) // spans.length, UNKNOWN)
    return np.where(uneven, mean, typical)


# What matched collectives and messages tell of the ranks' clocks.


FROM_ROOT = (Operation.BROADCAST, Operation.SCATTER)
TO_ROOT = (Operation.REDUCE, Operation.GATHER)


def crossings(
    stack: Stack, groups: Groups, matching: Matching, judged: Judged, messages: Messages
) -> Crossings:
    """One row for each part in a collective that makes ranks wait for each other, and two for each message."""
    calls = matching.calls
    waits, awaited, everybody = _roles(stack, groups, matching, judged)
    certain = ~matching.lonely & ~matching.doubtful
    certain &= judged.verdict != stack.strings[Verdict.MISMATCH.value]
    used = certain[matching.collective] & (waits | awaited)
    began = np.isin(calls.evidence, (Evidence.KERNEL, Evidence.ANNOTATION)) & (calls.start != NO_TIME)
    left = np.where(calls.evidence > Evidence.NONE, calls.end, NO_TIME)
    together = everybody & _all(began & (left != NO_TIME), matching)
    whole = np.flatnonzero((messages.sent != NO_TIME) & (messages.received != NO_TIME))
    whole = whole[messages.verdict[whole] == stack.strings[Verdict.COMPLETE.value]]
    pair = len(matching) + np.arange(len(whole))
    none = np.full(len(whole), NO_TIME)
    yes, no = np.ones(len(whole), np.bool_), np.zeros(len(whole), np.bool_)
    return Crossings(
        np.concatenate([matching.collective[used], pair, pair]),
        np.concatenate([matching.rank[used], messages.source[whole], messages.target[whole]]),
        np.concatenate([np.where(began, calls.start, calls.enqueued)[used], messages.sent[whole], none]),
        np.concatenate([left[used], none, messages.received[whole]]),
        np.concatenate([waits[used], no, yes]),
        np.concatenate([awaited[used], yes, no]),
        np.concatenate([together[used], no, no]),
    )


def _roles(stack: Stack, groups: Groups, matching: Matching, judged: Judged) -> tuple[Bools, Bools, Bools]:
    """Whether each part waits for others, whether others wait for it, and whether all wait for all."""
    typical, calls, strings = judged.typical, matching.calls, stack.strings
    operation = calls.operation[typical]
    empty = np.maximum(calls.elements_in, calls.elements_out)[typical] == 0
    empty &= ~is_one_of(operation, strings, (Operation.BARRIER,))
    everybody = is_one_of(operation, strings, tuple(SYNCHRONIZING)) & ~empty
    everybody &= ~is_one_of(operation, strings, (Operation.ALL_TO_ALL,)) | _even(matching)
    everybody = everybody[matching.collective]
    root = _roots_crossings(groups, matching, typical)[matching.collective]
    rooted = (root != UNKNOWN) & ~empty[matching.collective]
    from_root = is_one_of(operation, strings, FROM_ROOT)[matching.collective] & rooted
    to_root = is_one_of(operation, strings, TO_ROOT)[matching.collective] & rooted
    is_root = matching.rank == root
    waits = everybody | (from_root & ~is_root) | (to_root & is_root)
    awaited = everybody | (from_root & is_root) | (to_root & ~is_root)
    return waits, awaited, everybody


def _roots_crossings(groups: Groups, matching: Matching, typical: Int64s) -> Int64s:
    calls = matching.calls
    return Members.of(groups).rank_of(matching.group, calls.source[typical], calls.global_ranks[typical])


def _even(matching: Matching) -> Bools:
    """Whether every part gives equally much."""
    if not len(matching):
        return np.zeros(0, np.bool_)
    given = matching.calls.elements_in
    least = np.minimum.reduceat(given, matching.starts)
    even: Bools = (least > 0) & (least == np.maximum.reduceat(given, matching.starts))
    return even


def _all(chosen: Bools, matching: Matching) -> Bools:
    """For each part whether all parts of its collective are chosen."""
    if not len(matching):
        return chosen
    every: Bools = np.logical_and.reduceat(chosen, matching.starts)[matching.collective]
    return every
