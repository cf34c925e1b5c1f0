"""What each collective took: who came last, how long others waited, and at which bandwidth it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.collectives import Collectives, Participations
from tracelink.communications import CALL_ROWS, UNKNOWN, Calls, Evidence
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
from tracelink.linking.collectives import Matching
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.linking.sizes import bus_factor, elements_moved, is_one_of, item_sizes
from tracelink.linking.stacking import Stack
from tracelink.linking.verdicts import Judged
from tracelink.operations import ROOTED, Operation

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
