"""Which calls are one collective; verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.linking.alignment import Track
from tracelink.linking.groups import Groups, Members
from tracelink.linking.sequences import align_tracks
from tracelink.linking.stack import Stack, common_size, is_one_of
from tracelink.model.collectives import Verdict
from tracelink.model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    distinct,
    ranges,
    stable_order,
    starts_of,
)
from tracelink.model.communications import CALL_ROWS, Calls, Evidence
from tracelink.model.operations import POINT_TO_POINT, SYNCHRONIZING, Operation

# Calls that a rank issued as one: they share a number, and a last one closes them.


LATEST = int(np.iinfo(np.int64).max)


def one_part_for_each_rank(stack: Stack, rows: Int64s, number: Int64s) -> tuple[Int64s, Calls, Int64s]:
    """The first call of each rank in each collective, with what was coalesced with it; and what is repeated."""
    rank = stack.rank[rows]
    change = np.ones(len(rows), np.bool_)
    change[1:] = (number[1:] != number[:-1]) | (rank[1:] != rank[:-1])
    parts = np.flatnonzero(change)
    calls = stack.calls.take(rows[parts])
    if len(parts) == len(rows):
        return parts, calls, np.empty(0, np.int64)
    length = np.diff(np.append(parts, len(rows)))
    closing = is_one_of(stack.calls.operation[rows], stack.strings, (Operation.COALESCED,))
    empty = (stack.calls.elements_in[rows] <= 0) & (stack.calls.elements_out[rows] <= 0)
    closing |= empty & ~np.repeat(np.logical_and.reduceat(empty, parts), length)
    together = np.logical_or.reduceat(closing, parts) | _others_have_several(number[parts], length)
    coalesced = np.flatnonzero((length > 1) & together)
    if len(coalesced):
        inside = ranges(parts[coalesced], length[coalesced])
        _write(calls, coalesced, stack.calls.take(rows[inside]), closing[inside], length[coalesced])
    length[coalesced] = 1
    return parts, calls, parts[length > 1]


def _others_have_several(number: Int64s, length: Int64s) -> Bools:
    """Whether another part of the same collective is of several calls too, or there is no other."""
    starts = starts_of(number)
    count = np.diff(np.append(starts, len(number)))
    several = np.add.reduceat(length > 1, starts)
    together: Bools = np.repeat((several > 1) | (count == 1), count)
    return together


def _write(calls: Calls, parts: Int64s, every: Calls, closing: Bools, length: Int64s) -> None:
    """Writes each run of `every` as one call into `calls`."""
    begin = np.cumsum(length) - length
    members = ~closing | np.repeat(np.logical_and.reduceat(closing, begin), length)
    first = _first(members, begin)
    for name in ("operation", "type", "shape", "source", "target", "global_ranks"):
        getattr(calls, name)[parts] = getattr(every, name)[first]
    for name in ("elements_in", "elements_out"):
        elements = np.where(members, getattr(every, name), UNKNOWN)
        total = np.add.reduceat(np.maximum(elements, 0), begin)
        getattr(calls, name)[parts] = np.where(np.maximum.reduceat(elements, begin) >= 0, total, UNKNOWN)
    for name in CALL_ROWS:
        column = getattr(every, name)
        getattr(calls, name)[parts] = column[_first(column != UNKNOWN, begin)]
    calls.state[parts] = every.state[begin + length - 1]
    calls.enqueued[parts] = _earliest(every.enqueued, begin)
    calls.evidence[parts] = np.maximum.reduceat(every.evidence, begin)
    best = every.evidence == np.repeat(calls.evidence[parts], length)
    calls.start[parts] = _earliest(np.where(best, every.start, NO_TIME), begin)
    calls.end[parts] = np.maximum.reduceat(np.where(best, every.end, NO_TIME), begin)


def _first(chosen: Bools, begin: Int64s) -> Int64s:
    """Of each run the first row that is chosen, else its first."""
    rows = np.where(chosen, np.arange(len(chosen)), LATEST)
    first: Any = np.minimum.reduceat(rows, begin)
    return np.where(first == LATEST, begin, first)


def _earliest(times: Int64s, begin: Int64s) -> Int64s:
    first: Any = np.minimum.reduceat(np.where(times == NO_TIME, LATEST, times), begin)
    return np.where(first == LATEST, NO_TIME, first)


# Labels that tell calls apart where nobody numbers them: operation, size and type, as far as they are known.


def labels_of(operation: Int32s, size: Int64s, type_: Int32s) -> tuple[Int64s, Bools]:
    """The label of each call, and whether it could have one of several: a source may tell less than others do.

    What a call lacks is taken from the only full label that it can be.
    """
    label, first = distinct(operation, size, type_)
    full = (size[first] != UNKNOWN) & (type_[first] != UNKNOWN)
    vague = np.zeros(len(first), np.bool_)
    meant = np.arange(len(first))
    for number in np.flatnonzero(~full).tolist():
        one = first[number]
        fits = full & (operation[first] == operation[one])
        fits &= (size[one] == UNKNOWN) | (size[first] == size[one])
        fits &= (type_[one] == UNKNOWN) | (type_[first] == type_[one])
        candidates = np.flatnonzero(fits)
        vague[number] = len(candidates) > 1
        if len(candidates) == 1:
            meant[number] = candidates[0]
    return meant[label], vague[label]


# Which calls of which ranks are one collective: by group and number, or by alignment where there is no number.


FEW = 8
"""So many ranks are named in one text."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Collectives, by group and order, and who took part in each, by collective and rank."""

    group: Int32s
    sequence: Int64s
    order: Int64s
    lonely: Bools
    """Whether it is one call that could belong to several others."""
    doubtful: Bools
    """Whether a lonely call could belong to it."""
    collective: Int64s
    """Of each part."""
    rank: Int32s
    """Of each part."""
    calls: Calls
    """Of each part; calls that were issued as one are one."""
    findings: Sequence[Finding] = ()

    def __len__(self) -> int:
        return len(self.group)

    @property
    def starts(self) -> Int64s:
        """Where the parts of each collective begin."""
        return starts_of(self.collective)


def match_collectives(stack: Stack, groups: Groups) -> Matching:
    """Matches the calls of all ranks that are of collectives and whose group is known."""
    calls = stack.calls
    message = is_one_of(calls.operation, stack.strings, tuple(POINT_TO_POINT))
    message |= is_one_of(calls.operation, stack.strings, (Operation.COALESCED,)) & calls.point_to_point
    wait = is_one_of(calls.operation, stack.strings, (Operation.WAIT,))
    rows = np.flatnonzero(~message & ~wait & (groups.of_call != UNKNOWN))
    group, place = groups.of_call[rows], calls.sequence[rows]
    lonely, doubtful = np.zeros((2, len(rows)), np.bool_)
    sequence = place
    findings: list[Finding] = []
    unnumbered = np.bincount(group, place == UNKNOWN, minlength=len(groups.rows)) > 0
    if unnumbered.any():
        place, sequence = place.copy(), place.copy()
        for row in np.flatnonzero(unnumbered).tolist():
            chosen = np.flatnonzero(group == row)
            aligned = _align_group(stack, rows[chosen])
            place[chosen], sequence[chosen], lonely[chosen], doubtful[chosen] = aligned
            findings += _ambiguous(groups, row, stack.rank[rows[chosen[lonely[chosen]]]])
    number, first = distinct(group, place)
    order = stable_order(number)
    parts, merged, repeats = one_part_for_each_rank(stack, rows[order], number[order])
    starts = starts_of(group[first])
    return Matching(
        group[first],
        _known_sequence(sequence[order], number[order]),
        np.arange(len(first)) - np.repeat(starts, np.diff(np.append(starts, len(first)))),
        lonely[first],
        doubtful[first],
        number[order][parts],
        stack.rank[rows[order]][parts],
        merged,
        [*findings, *_repeated(stack, groups, rows[order], group[order], repeats)],
    )


def _known_sequence(sequence: Int64s, number: Int64s) -> Int64s:
    """The number that any of the calls of a collective has."""
    return np.maximum.reduceat(sequence, starts_of(number)) if len(number) else sequence


def _align_group(stack: Stack, rows: Int64s) -> tuple[Int64s, Int64s, Bools, Bools]:
    """Place, number, loneliness and doubt of the calls of one group.

    A call that tells too little of itself to be one of several is left alone, behind all others.
    """
    calls = stack.calls
    size = common_size(
        calls.operation[rows], calls.elements_in[rows], calls.elements_out[rows], stack.strings
    )
    label, vague = labels_of(calls.operation[rows], size, calls.type[rows])
    vague &= calls.sequence[rows] == UNKNOWN
    place = np.full(len(rows), UNKNOWN, np.int64)
    sequence = place.copy()
    lonely, doubtful = vague.copy(), np.zeros(len(rows), np.bool_)
    clear = np.flatnonzero(~vague)
    place[clear], sequence[clear], lonely[clear], doubtful[clear] = _aligned(stack, rows[clear], label[clear])
    place[vague] = place.max(initial=0) + 1 + np.arange(np.count_nonzero(vague))
    return place, sequence, lonely, doubtful


def _aligned(stack: Stack, rows: Int64s, label: Int64s) -> tuple[Int64s, Int64s, Bools, Bools]:
    calls = stack.calls
    time, entered = _times(stack, rows)
    whole = Track(label, time, calls.sequence[rows], entered)
    by_time = np.lexsort((_asked(calls, rows), stack.rank[rows]))
    bounds = np.append(starts_of(stack.rank[rows]), len(rows)).tolist()
    aligned = align_tracks([whole.take(by_time[begin:end]) for begin, end in pairwise(bounds)])
    place = np.empty(len(rows), np.int64)
    place[by_time] = np.concatenate(aligned.places)
    return place, aligned.sequence[place], aligned.lonely[place], aligned.doubtful[place]


def _asked(calls: Calls, rows: Int64s) -> Int64s:
    """A time to order the calls of one rank by: of one kind for all, or else their order as it is."""
    for column in (calls.enqueued, calls.start):
        if (column[rows] != NO_TIME).all():
            return column[rows]
    return np.arange(len(rows))


def _times(stack: Stack, rows: Int64s) -> tuple[Int64s, Int64s]:
    """When calls ended, or began, or were asked for, whatever most have; and when they began what all must begin."""
    calls = stack.calls
    trusted = calls.evidence[rows] >= Evidence.ANNOTATION
    end, start = (np.where(trusted, column[rows], NO_TIME) for column in (calls.end, calls.start))
    never = np.full(len(rows), NO_TIME, np.int64)
    for time in (end, start, calls.enqueued[rows]):
        if 2 * np.count_nonzero(time != NO_TIME) > len(rows):
            break
    together = is_one_of(calls.operation[rows], stack.strings, tuple(SYNCHRONIZING))
    return time, np.where(together, start, NO_TIME) if time is end else never


def _ambiguous(groups: Groups, row: int, ranks: Int32s) -> list[Finding]:
    if not len(ranks):
        return []
    message = (
        f"Group {groups.rows[row].name}: {len(ranks)} collectives of {_some(np.unique(ranks).tolist())} could each "
        "be several of the other ranks' and are matched with none. Flight-recorder dumps or execution traces of "
        "the same run would number them."
    )
    return [Finding(Severity.WARNING, "ambiguous_collectives", message, len(ranks))]


def _some(ranks: list[int]) -> str:
    named = ", ".join(map(str, ranks[:FEW]))
    return f"rank{'s' * (len(ranks) > 1)} {named}{f' and {len(ranks) - FEW} more' * (len(ranks) > FEW)}"


def _repeated(stack: Stack, groups: Groups, rows: Int64s, group: Int32s, repeats: Int64s) -> list[Finding]:
    if not len(repeats):
        return []
    first = int(repeats[0])
    number = int(stack.calls.sequence[rows[first]])
    example = f"rank {stack.rank[rows[first]]}, group {groups.rows[group[first]].name}, number {number}"
    message = f"{len(repeats)} times a rank has several calls under one number of a group; the first of them is used."
    return [Finding(Severity.WARNING, "repeated_collective", message, len(repeats), example=example)]


# Which part of the job each rank's sources tell of, so that what is missing there was truly not done.


FIRST_NUMBER = 1
"""The recorder counts the collectives of a group from one."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """For each rank, by number: does it have sources, when was its last call, does a recorder tell all of it."""

    here: Bools
    last: Int64s
    recorded: Bools
    from_the_beginning: Bools


def covered(stack: Stack, matching: Matching, collective: Int64s, rank: Int64s) -> Bools:
    """Whether the sources of a rank would show its part in a collective, had it taken part."""
    if not len(collective):
        return np.zeros(0, np.bool_)
    width = max(int(rank.max()), *(one.rank for one in stack.ranks)) + 1
    ranks = _ranks(stack, width)
    first, last, known = _reach(matching, width, matching.group[collective] * np.int64(width) + rank)
    order = matching.order[collective]
    inside = known & (first < order) & (order < last)
    latest = _latest(matching)[collective]
    after = known & (order > last) & (ranks.recorded[rank] | (ranks.last[rank] > latest))
    before = (~known | (order < first)) & ranks.from_the_beginning[rank]
    result: Bools = ranks.here[rank] & (inside | after | before)
    return result


def _ranks(stack: Stack, width: int) -> _Rank:
    result = _Rank(
        np.zeros(width, np.bool_),
        np.full(width, NO_TIME),
        np.zeros(width, np.bool_),
        np.zeros(width, np.bool_),
    )
    numbers = np.array([rank.rank for rank in stack.ranks], np.int64)
    broken = np.array([rank.broken_off for rank in stack.ranks], np.bool_)
    result.here[numbers] = True
    calls = stack.calls
    if not len(calls):
        return result
    starts = starts_of(stack.rank)
    having = stack.rank[starts]
    result.last[having] = np.maximum.reduceat(np.maximum(calls.enqueued, calls.start), starts)
    recorded = calls.record != UNKNOWN
    result.recorded[having] = np.logical_or.reduceat(recorded, starts)
    result.recorded[numbers[broken]] = False
    first = np.where(recorded & (calls.sequence != UNKNOWN) & ~calls.point_to_point, calls.sequence, LATEST)
    result.from_the_beginning[having] = np.minimum.reduceat(first, starts) <= FIRST_NUMBER
    return result


def _reach(matching: Matching, width: int, wanted: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """The first and the last place of a rank in a group, by keys of group and rank; and whether it has any."""
    key = matching.group[matching.collective].astype(np.int64) * width + matching.rank
    by_key = np.lexsort((matching.order[matching.collective], key))
    starts = starts_of(key[by_key])
    ends = np.append(starts[1:], len(key)) - 1
    order = matching.order[matching.collective[by_key]]
    at = np.minimum(np.searchsorted(key[by_key[starts]], wanted), len(starts) - 1)
    return order[starts[at]], order[ends[at]], key[by_key[starts[at]]] == wanted


def _latest(matching: Matching) -> Int64s:
    """The last time that anything is known of each collective."""
    calls = matching.calls
    times = np.maximum(np.maximum(calls.enqueued, calls.start), calls.end)
    latest: Int64s = np.maximum.reduceat(times, matching.starts)
    return latest


# What is to be said of each collective: whether all members took part, and did the same.


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on each collective, as codes of texts, and the part that stands for what most did."""

    verdict: Int32s
    typical: Int64s
    findings: Sequence[Finding]


def judge(stack: Stack, groups: Groups, matching: Matching) -> Judged:
    """Compares what the members did, and who did not."""
    codes = {verdict: stack.strings[verdict.value] for verdict in Verdict}
    typical, differing = _majority(stack, matching)
    missing, partial = _absent(stack, groups, matching)
    verdict = np.full(len(matching), codes[Verdict.COMPLETE], np.int32)
    verdict[partial] = codes[Verdict.PARTIAL]
    verdict[missing] = codes[Verdict.MISSING]
    verdict[differing] = codes[Verdict.MISMATCH]
    verdict[_alone(stack, groups, matching)] = codes[Verdict.UNMATCHED]
    return Judged(verdict, typical, _findings(stack, groups, matching, differing, missing))


def _alone(stack: Stack, groups: Groups, matching: Matching) -> Bools:
    """Calls that nothing can be matched with: they are ambiguous, or nobody knows who is in their group."""
    nobody = np.array([not group.ranks and not group.size for group in groups.rows] or [False], np.bool_)
    return matching.lonely | nobody[matching.group]


def _majority(stack: Stack, matching: Matching) -> tuple[Int64s, Bools]:
    """For each collective the first part that does what most do, and whether any does something else."""
    starts, calls = matching.starts, matching.calls
    length = np.diff(np.append(starts, len(calls)))
    coalesced = is_one_of(calls.operation, stack.strings, (Operation.COALESCED,))
    size = common_size(calls.operation, calls.elements_in, calls.elements_out, stack.strings)
    untyped = is_one_of(calls.operation, stack.strings, (Operation.BARRIER,))
    kind = np.where(untyped, UNKNOWN, calls.type)
    differs = np.zeros(len(calls), np.bool_)
    for column, known in ((calls.operation, ~coalesced), (size, size >= 0), (kind, kind != UNKNOWN)):
        differs |= _unlike_first(column, known & ~coalesced, starts, length)
    differing = np.logical_or.reduceat(differs, starts) if len(starts) else np.empty(0, np.bool_)
    typical = _first_known(~coalesced, starts)
    contested = np.flatnonzero(differing)
    if len(contested):
        rows = ranges(starts[contested], length[contested])
        label, _ = distinct(
            np.repeat(contested, length[contested]), calls.operation[rows], size[rows], kind[rows]
        )
        count = np.bincount(label)[label]
        count[coalesced[rows]] = 0
        best = np.lexsort((rows, -count, matching.collective[rows]))
        typical[contested] = rows[best[starts_of(matching.collective[rows][best])]]
    return typical, differing


def _unlike_first(column: Int64s | Int32s, known: Bools, starts: Int64s, length: Int64s) -> Bools:
    """Whether a row is known to hold something else than the first row of its run that is known to hold anything."""
    first = np.repeat(column[_first_known(known, starts)], length)
    unlike: Bools = known & (column != first)
    return unlike


def _first_known(known: Bools, starts: Int64s) -> Int64s:
    if not len(starts) or known[starts].all():
        return starts.copy()
    rows = np.where(known, np.arange(len(known)), len(known))
    first = np.minimum.reduceat(rows, starts)
    return np.where(first == len(known), starts, first)


def _absent(stack: Stack, groups: Groups, matching: Matching) -> tuple[Bools, Bools]:
    """Collectives that lack a member whose sources cover them, and those that lack any other."""
    missing = np.zeros(len(matching), np.bool_)
    sizes = np.array([groups.size(row) for row in range(len(groups.rows))] or [0], np.int64)
    taking_part = np.bincount(matching.collective, minlength=len(matching))
    partial = (taking_part < sizes[matching.group]) | (sizes[matching.group] == 0)
    incomplete = np.flatnonzero(partial & ~matching.lonely)
    collective, rank = Members.of(groups).all(matching.group[incomplete])
    collective = incomplete[collective]
    width = int(max(rank.max(initial=0), matching.rank.max(initial=0))) + 1
    concerned = np.zeros(len(matching), np.bool_)
    concerned[incomplete] = True
    parts = concerned[matching.collective]
    present = matching.collective[parts] * width + matching.rank[parts]
    absent = ~np.isin(collective * width + rank, present, kind="sort")
    collective, rank = collective[absent], rank[absent]
    there = covered(stack, matching, collective, rank)
    missing[collective[there & ~matching.doubtful[collective]]] = True
    return missing, partial


def _findings(
    stack: Stack, groups: Groups, matching: Matching, differing: Bools, missing: Bools
) -> list[Finding]:
    """What is wrong with the job itself; more than one line of it is for the analyses."""
    found = []
    for chosen, reason, what in (
        (differing, "mismatched_collectives", "in which ranks do different things"),
        (
            missing & ~differing,
            "missing_from_collectives",
            "in which a rank took no part although it was there",
        ),
    ):
        if chosen.any():
            first = int(np.flatnonzero(chosen)[0])
            number = int(matching.sequence[first])
            example = f"group {groups.rows[matching.group[first]].name}, " + (
                f"place {matching.order[first]}" if number == UNKNOWN else f"number {number}"
            )
            count = int(np.count_nonzero(chosen))
            message = f"There are {count} collectives {what}, first {example}."
            found.append(Finding(Severity.WARNING, reason, message, count, example=example))
    return found
