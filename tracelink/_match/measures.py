"""Measures of matched collectives (skew, wait, bytes, bandwidth), and their crossings for clock estimation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._match.clock import Crossings
from tracelink._match.collectives import Matching, Verdicts
from tracelink._match.groups import Groups, Members
from tracelink._match.outlines import Stack, is_one_of, item_sizes
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Float64s, Int32s, Int64s, StringTable
from tracelink._model.communications import (
    Calls,
    Collectives,
    Evidence,
    Messages,
    Participations,
    RoundTrips,
    Verdict,
)
from tracelink._model.operations import ROOTED, SYNCHRONIZING, Operation

# Who arrived last at each collective, how long the others waited, and at which bandwidth it ran.


LATEST = int(np.iinfo(np.int64).max)


class _Spans(Struct, frozen=True):
    """The parts of each collective: the first row, and the number of rows."""

    starts: Int64s
    length: Int64s

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A value of each collective, repeated for each of its parts."""
        return np.repeat(values, self.length)

    def least(self, values: Int64s) -> Int64s:
        """The least of each collective, without NO_TIME."""
        if not len(values):
            return values
        least = np.minimum.reduceat(np.where(values == NO_TIME, LATEST, values), self.starts)
        return np.where(least == LATEST, NO_TIME, least)

    def most(self, values: Int64s) -> Int64s:
        """The greatest of each collective; NO_TIME if all are."""
        return np.maximum.reduceat(values, self.starts) if len(values) else values


def measure(
    strings: StringTable, groups: Groups, matching: Matching, verdicts: Verdicts, clocked: Calls
) -> tuple[Collectives, Participations]:
    """The tables of collectives and participations; `clocked` are the calls on the reference clock."""
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
        **{name: getattr(clocked, name) for name in (*Participations.event_columns(), "enqueued", "state")},
        start=start,
        end=end,
        evidence=np.where(comparable, clocked.evidence, Evidence.NONE),
        wait=wait,
        **_bytes(strings, clocked),
    )
    finish = spans.most(end)
    measured = (spans.most(start) != NO_TIME) & (finish != NO_TIME) & (last != NO_TIME)
    duration = np.where(measured, finish - last, UNKNOWN)
    table = Collectives.of(
        len(matching),
        **_described(strings, groups, matching, verdicts, clocked, spans, duration),
        root=_roots(strings, groups, matching, verdicts),
        start=spans.least(start),
        end=finish,
        duration=duration,
        last_rank=_last_rank(matching.rank, entered, last, spans),
        skew=np.where(last == NO_TIME, UNKNOWN, last - first),
    )
    return table, participations


def _bytes(strings: StringTable, calls: Calls) -> dict[str, Int64s]:
    """Input and output of each part in bytes."""
    item = item_sizes(calls.type, strings)
    return {
        name: np.where((elements >= 0) & (item >= 0), elements * item, np.where(elements == 0, 0, UNKNOWN))
        for name, elements in (("bytes_in", calls.elements_in), ("bytes_out", calls.elements_out))
    }


def _roots(strings: StringTable, groups: Groups, matching: Matching, verdicts: Verdicts) -> Int64s:
    """The root of each collective as a rank of the job, or UNKNOWN."""
    calls, typical = matching.calls, verdicts.typical
    rooted = is_one_of(calls.operation[typical], strings, tuple(ROOTED))
    return np.where(rooted & (calls.source[typical] >= 0), _root_ranks(groups, matching, typical), UNKNOWN)


def _comparable(calls: Calls, spans: _Spans) -> Bools:
    """Parts with times from the kind of evidence that most parts of their collective have."""
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
    """Collectives with known entry times of several ranks, or of a single-rank group: these can be compared."""
    if not len(entered):
        return np.zeros(0, np.bool_)
    known = np.add.reduceat(entered != NO_TIME, spans.starts)
    alone = np.array([groups.size(row) == 1 for row in range(len(groups.rows))], np.bool_)
    compared: Bools = (known > 1) | alone[matching.group]
    return compared


def _last_rank(rank: Int32s, entered: Int64s, last: Int64s, spans: _Spans) -> Int64s:
    """The rank that entered last, the lowest of several; or UNKNOWN."""
    if not len(rank):
        return np.empty(0, np.int64)
    latest = (entered == spans.spread(last)) & (entered != NO_TIME)
    found = np.minimum.reduceat(np.where(latest, rank.astype(np.int64), LATEST), spans.starts)
    return np.where(found == LATEST, UNKNOWN, found)


def _described(
    strings: StringTable,
    groups: Groups,
    matching: Matching,
    verdicts: Verdicts,
    calls: Calls,
    spans: _Spans,
    duration: Int64s,
) -> dict[str, Any]:
    """The work of each collective, by its typical part, and its speed."""
    operation, kind = calls.operation[verdicts.typical], calls.type[verdicts.typical]
    elements_in, elements_out = calls.elements_in[verdicts.typical], calls.elements_out[verdicts.typical]
    sizes = np.array([groups.size(row) for row in range(len(groups.rows))] or [0], np.int64)
    members = sizes[matching.group]
    to_all = is_one_of(operation, strings, (Operation.ALL_TO_ALL,))
    elements_in = np.where(
        to_all, _mean_elements_in(calls.elements_in, elements_in, members, spans), elements_in
    )
    elements = _elements_moved(operation, elements_in, elements_out, members, strings)
    item = item_sizes(kind, strings)
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
        "verdict": verdicts.verdict,
        "bytes": moved,
        "algorithm_gb_s": rate,
        "bus_gb_s": rate * _bus_factor(operation, members, strings),
    }


def _mean_elements_in(elements_in: Int64s, typical: Int64s, members: Int64s, spans: _Spans) -> Int64s:
    """The mean input of a rank where inputs differ and all are known; UNKNOWN if some are not."""
    if not len(elements_in):
        return typical
    least = np.minimum.reduceat(elements_in, spans.starts)
    uneven = least != np.maximum.reduceat(elements_in, spans.starts)
    complete = (least >= 0) & (spans.length == members)
    mean = np.where(complete, np.add.reduceat(elements_in, spans.starts) // spans.length, UNKNOWN)
    return np.where(uneven, mean, typical)


def _elements_moved(
    operation: Int32s, elements_in: Int64s, elements_out: Int64s, size: Int64s, strings: StringTable
) -> Int64s:
    """The elements that nccl-tests counts as the size of each collective, or UNKNOWN.

    `elements_in` and `elements_out` are those of a typical rank, `size` is the number of members. For all-to-all
    it is the input of one rank; for gather, scatter and similar operations the parts of all ranks together.
    """
    moved = np.maximum(elements_in, elements_out)
    members = np.where(size > 0, size, 1)
    sized = size > 0
    for names, total, share in (
        ((Operation.ALL_GATHER,), elements_out, elements_in),
        ((Operation.REDUCE_SCATTER,), elements_in, elements_out),
        ((Operation.GATHER,), np.full_like(elements_in, UNKNOWN), elements_in),
        ((Operation.SCATTER,), np.full_like(elements_in, UNKNOWN), elements_out),
    ):
        chosen = is_one_of(operation, strings, names)
        total_of_shares = np.where((share >= 0) & sized, share * members, UNKNOWN)
        moved[chosen] = np.where(total >= 0, total, total_of_shares)[chosen]
    chosen = is_one_of(operation, strings, (Operation.ALL_TO_ALL,))
    moved[chosen] = elements_in[chosen]
    moved[is_one_of(operation, strings, (Operation.BARRIER,))] = 0
    return moved


def _bus_factor(operation: Int32s, size: Int64s, strings: StringTable) -> Float64s:
    """The factor by which nccl-tests multiplies the algorithm bandwidth to get the bus bandwidth."""
    members = size.astype(np.float64)
    members[members <= 0] = np.nan
    others = (members - 1) / members
    factor = np.ones(len(operation))
    doubled = is_one_of(operation, strings, (Operation.ALL_REDUCE,))
    factor[doubled] = 2 * others[doubled]
    shared = is_one_of(
        operation,
        strings,
        (
            Operation.ALL_GATHER,
            Operation.REDUCE_SCATTER,
            Operation.ALL_TO_ALL,
            Operation.GATHER,
            Operation.SCATTER,
        ),
    )
    factor[shared] = others[shared]
    return factor


# Crossings: what matched collectives and messages imply about the ranks' clocks.


FROM_ROOT = (Operation.BROADCAST, Operation.SCATTER)
TO_ROOT = (Operation.REDUCE, Operation.GATHER)


def crossings_of_collectives(
    stack: Stack, groups: Groups, matching: Matching, verdicts: Verdicts
) -> Crossings:
    """Rows of collectives in which ranks wait for each other."""
    calls = matching.calls
    waits, awaited, all_wait = _roles(stack, groups, matching, verdicts)
    certain = ~matching.ambiguous & ~matching.uncertain
    certain &= verdicts.verdict != stack.strings[Verdict.MISMATCH.value]
    used = certain[matching.collective] & (waits | awaited)
    has_start = np.isin(calls.evidence, (Evidence.KERNEL, Evidence.ANNOTATION)) & (calls.start != NO_TIME)
    left = np.where(calls.evidence > Evidence.NONE, calls.end, NO_TIME)
    simultaneous = all_wait & _all(has_start & (left != NO_TIME), matching)
    return Crossings(
        matching.collective[used],
        matching.rank[used],
        np.where(has_start, calls.start, calls.enqueued)[used],
        left[used],
        waits[used],
        awaited[used],
        simultaneous[used],
    )


def crossings_of_messages(strings: StringTable, messages: Messages) -> Crossings:
    """Two rows for each complete message: its receive does not end before its send starts."""
    complete = np.flatnonzero((messages.sent != NO_TIME) & (messages.received != NO_TIME))
    complete = complete[messages.verdict[complete] == strings[Verdict.COMPLETE.value]]
    pair, unknown = np.arange(len(complete)), np.full(len(complete), NO_TIME)
    yes, no = np.ones(len(complete), np.bool_), np.zeros(len(complete), np.bool_)
    source, target = messages.source[complete], messages.target[complete]
    return Crossings.concatenate(
        [
            Crossings(pair, source, messages.sent[complete], unknown, no, yes, no),
            Crossings(pair, target, unknown, messages.received[complete], yes, no, no),
        ]
    )


def crossings_of_round_trips(round_trips: Mapping[int, RoundTrips]) -> Crossings:
    """Three meetings for each round trip of each rank.

    A message to rank 0, one back, and the middle of both at the time of the answer: the most likely offset.
    """
    return Crossings.concatenate(list(_round_trips(round_trips)))


def _round_trips(round_trips: Mapping[int, RoundTrips]) -> Iterator[Crossings]:
    meeting = 0
    for rank, trips in round_trips.items():
        count = len(trips)
        numbers, unknown = meeting + np.arange(count), np.full(count, NO_TIME)
        middle = trips.sent + (trips.received - trips.sent) // 2
        meeting += 3 * count
        yes, no = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        own, reference = np.full(count, rank, np.int32), np.zeros(count, np.int32)
        yield Crossings(numbers, own, trips.sent, unknown, no, yes, no)
        yield Crossings(numbers, reference, unknown, trips.answered, yes, no, no)
        yield Crossings(numbers + count, reference, trips.answered, unknown, no, yes, no)
        yield Crossings(numbers + count, own, unknown, trips.received, yes, no, no)
        yield Crossings(numbers + 2 * count, reference, unknown, trips.answered, yes, no, yes)
        yield Crossings(numbers + 2 * count, own, unknown, middle, yes, no, yes)


def _roles(
    stack: Stack, groups: Groups, matching: Matching, verdicts: Verdicts
) -> tuple[Bools, Bools, Bools]:
    """True for parts that wait for others, for parts that others wait for, and for those of which all wait for all."""
    typical, calls, strings = verdicts.typical, matching.calls, stack.strings
    operation = calls.operation[typical]
    empty = np.maximum(calls.elements_in, calls.elements_out)[typical] == 0
    empty &= ~is_one_of(operation, strings, (Operation.BARRIER,))
    all_wait = is_one_of(operation, strings, tuple(SYNCHRONIZING)) & ~empty
    all_wait &= ~is_one_of(operation, strings, (Operation.ALL_TO_ALL,)) | _even(matching)
    all_wait = all_wait[matching.collective]
    root = _root_ranks(groups, matching, typical)[matching.collective]
    rooted = (root != UNKNOWN) & ~empty[matching.collective]
    from_root = is_one_of(operation, strings, FROM_ROOT)[matching.collective] & rooted
    to_root = is_one_of(operation, strings, TO_ROOT)[matching.collective] & rooted
    is_root = matching.rank == root
    waits = all_wait | (from_root & ~is_root) | (to_root & is_root)
    awaited = all_wait | (from_root & is_root) | (to_root & ~is_root)
    return waits, awaited, all_wait


def _root_ranks(groups: Groups, matching: Matching, typical: Int64s) -> Int64s:
    calls = matching.calls
    return Members.of(groups).rank_of(matching.group, calls.source[typical], calls.global_ranks[typical])


def _even(matching: Matching) -> Bools:
    """True if all parts have equal inputs."""
    if not len(matching):
        return np.zeros(0, np.bool_)
    elements_in = matching.calls.elements_in
    least = np.minimum.reduceat(elements_in, matching.starts)
    even: Bools = (least > 0) & (least == np.maximum.reduceat(elements_in, matching.starts))
    return even


def _all(chosen: Bools, matching: Matching) -> Bools:
    """For each part, whether all parts of its collective are chosen."""
    if not len(matching):
        return chosen
    result: Bools = np.logical_and.reduceat(chosen, matching.starts)[matching.collective]
    return result
