"""Collectives: which calls of all ranks are one collective, and the verdict on each.

`match_collectives` takes the stacked calls and the groups; `verdicts_of` compares the parts of each collective and
decides whether a missing part was really missing, or only not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._match.groups import Groups, Members
from tracelink._match.outlines import LATEST, NOTHING, Spans, Stack, Tally, common_size, is_one_of
from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    distinct,
    lookup,
    ranges,
    stable_order,
    starts_of,
)
from tracelink._model.communications import Calls, Evidence, Verdict
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, SYNCHRONIZING, Operation
from tracelink._model.text import subject

NAMED_RANKS = 8
"""The most ranks that a message names."""

# Matching: by group and number, or by alignment where calls have no number.


class Matching(Struct, frozen=True):
    """Collectives by group and order, and their parts by collective and rank."""

    group: Int32s
    sequence: Int64s
    order: Int64s
    position: Int64s
    """Numbers that are in the same order: known before others of the group are."""
    ambiguous: Bools
    """True if it is a single call that could belong to several other collectives."""
    uncertain: Bools
    """True if an ambiguous call could belong to it."""
    collective: Int64s
    """Of each part."""
    rank: Int32s
    """Of each part."""
    calls: Calls
    """Of each part; calls that were coalesced are merged."""
    findings: Sequence[Finding] = ()
    repeated: Tally = NOTHING
    """Calls with the number of an earlier one."""

    def __len__(self) -> int:
        return len(self.group)

    @property
    def starts(self) -> Int64s:
        """The first part of each collective."""
        return starts_of(self.collective)


def match_collectives(stack: Stack, groups: Groups) -> Matching:
    """Matches all calls of collectives whose group is known."""
    calls = stack.calls
    message = is_one_of(calls.operation, stack.strings, tuple(POINT_TO_POINT))
    message |= is_one_of(calls.operation, stack.strings, (Operation.COALESCED,)) & calls.point_to_point
    wait = is_one_of(calls.operation, stack.strings, (Operation.WAIT,))
    rows = np.flatnonzero(~message & ~wait & (stack.group != UNKNOWN))
    group, position = stack.group[rows], calls.sequence[rows]
    ambiguous, uncertain = np.zeros((2, len(rows)), np.bool_)
    sequence = position
    findings: list[Finding] = []
    unnumbered = np.bincount(group, position == UNKNOWN, minlength=len(groups.rows)) > 0
    if unnumbered.any():
        position, sequence = position.copy(), position.copy()
        by_group = stable_order(group)
        bounds = np.searchsorted(group[by_group], np.arange(len(groups.rows) + 1)).tolist()
        for row in np.flatnonzero(unnumbered).tolist():
            chosen = by_group[bounds[row] : bounds[row + 1]]
            aligned = _align_group(stack, rows[chosen])
            position[chosen], sequence[chosen], ambiguous[chosen], uncertain[chosen] = aligned
            findings += _ambiguous_finding(groups, row, stack.rank[rows[chosen[ambiguous[chosen]]]])
    number, first = distinct(group, position)
    order = stable_order(number)
    parts, merged, repeats = _merge_coalesced(stack, rows[order], number[order])
    starts = starts_of(group[first])
    return Matching(
        group[first],
        _known_sequence(sequence[order], number[order]),
        np.arange(len(first)) - np.repeat(starts, np.diff(np.append(starts, len(first)))),
        position[first],
        ambiguous[first],
        uncertain[first],
        number[order][parts],
        stack.rank[rows[order]][parts],
        merged,
        findings,
        _repeated(stack, groups, rows[order], group[order], repeats),
    )


def _known_sequence(sequence: Int64s, number: Int64s) -> Int64s:
    """The number of each collective, from any of its calls."""
    return np.maximum.reduceat(sequence, starts_of(number)) if len(number) else sequence


def _align_group(stack: Stack, rows: Int64s) -> tuple[Int64s, Int64s, Bools, Bools]:
    """Position, number, ambiguity and uncertainty of the calls of one group.

    A call with too few attributes, which could be one of several, stays unmatched behind all others.
    """
    calls = stack.calls
    size = common_size(
        calls.operation[rows], calls.elements_in[rows], calls.elements_out[rows], stack.strings
    )
    label, vague = call_labels(calls.operation[rows], size, calls.type[rows])
    vague &= calls.sequence[rows] == UNKNOWN
    position = np.full(len(rows), UNKNOWN, np.int64)
    sequence = position.copy()
    ambiguous, uncertain = vague.copy(), np.zeros(len(rows), np.bool_)
    clear = np.flatnonzero(~vague)
    position[clear], sequence[clear], ambiguous[clear], uncertain[clear] = _aligned(
        stack, rows[clear], label[clear]
    )
    position[vague] = position.max(initial=0) + 1 + np.arange(np.count_nonzero(vague))
    return position, sequence, ambiguous, uncertain


def _aligned(stack: Stack, rows: Int64s, label: Int64s) -> tuple[Int64s, Int64s, Bools, Bools]:
    from tracelink._match.sequences import align_sequences  # only without numbers: costs start-up time
    from tracelink._match.timing import CallSequence

    calls = stack.calls
    time, entered = _times(stack, rows)
    sequence = CallSequence(label, time, calls.sequence[rows], entered)
    by_time = np.lexsort((_order_time(calls, rows), stack.rank[rows]))
    bounds = np.append(starts_of(stack.rank[rows]), len(rows)).tolist()
    aligned = align_sequences([sequence.take(by_time[begin:end]) for begin, end in pairwise(bounds)])
    order = np.empty(len(rows), np.int64)
    order[by_time] = np.concatenate(aligned.order)
    return order, aligned.sequence[order], aligned.ambiguous[order], aligned.uncertain[order]


def _order_time(calls: Calls, rows: Int64s) -> Int64s:
    """Times of one kind for all calls, to sort the calls of a rank by; else their present order."""
    for column in (calls.enqueued, calls.start):
        if (column[rows] != NO_TIME).all():
            return column[rows]
    return np.arange(len(rows))


def _times(stack: Stack, rows: Int64s) -> tuple[Int64s, Int64s]:
    """The times when calls ended, started or were enqueued, whichever most have; and starts of synchronizing calls."""
    calls = stack.calls
    trusted = calls.evidence[rows] >= Evidence.ANNOTATION
    end, start = (np.where(trusted, column[rows], NO_TIME) for column in (calls.end, calls.start))
    unknown = np.full(len(rows), NO_TIME, np.int64)
    for time in (end, start, calls.enqueued[rows]):
        if 2 * np.count_nonzero(time != NO_TIME) > len(rows):
            break
    synchronizing = is_one_of(calls.operation[rows], stack.strings, tuple(SYNCHRONIZING))
    return time, np.where(synchronizing, start, NO_TIME) if time is end else unknown


def _ambiguous_finding(groups: Groups, row: int, ranks: Int32s) -> list[Finding]:
    if not len(ranks):
        return []
    message = (
        f"Group {groups.rows[row].name}: {len(ranks)} collectives of {_some(np.unique(ranks).tolist())} are unmatched: "
        "each could be one of several collectives of the other ranks. Add flight-recorder dumps or execution traces "
        "of the same run, which number them."
    )
    return [Finding(Severity.WARNING, "ambiguous_collectives", message, len(ranks))]


def _some(ranks: list[int]) -> str:
    named = ", ".join(map(str, ranks[:NAMED_RANKS]))
    return f"rank{'s' * (len(ranks) > 1)} {named}{f' and {len(ranks) - NAMED_RANKS} more' * (len(ranks) > NAMED_RANKS)}"


def _repeated(stack: Stack, groups: Groups, rows: Int64s, group: Int32s, repeats: Int64s) -> Tally:
    if not len(repeats):
        return NOTHING
    first = int(repeats[0])
    number = int(stack.calls.sequence[rows[first]])
    example = f"rank {stack.rank[rows[first]]}, group {groups.rows[group[first]].name}, number {number}"
    return Tally(len(repeats), example)


# Labels of calls without numbers: operation, size and type, as far as they are known.


def call_labels(operation: Int32s, size: Int64s, type_: Int32s) -> tuple[Int64s, Bools]:
    """The label of each call, and whether several labels are possible because attributes are unknown.

    Unknown attributes are filled in if only one complete label fits.
    """
    label, first = distinct(operation, size, type_)
    complete = (size[first] != UNKNOWN) & (type_[first] != UNKNOWN)
    vague = np.zeros(len(first), np.bool_)
    resolved = np.arange(len(first))
    for number in np.flatnonzero(~complete).tolist():
        row = first[number]
        fits = complete & (operation[first] == operation[row])
        fits &= (size[row] == UNKNOWN) | (size[first] == size[row])
        fits &= (type_[row] == UNKNOWN) | (type_[first] == type_[row])
        candidates = np.flatnonzero(fits)
        vague[number] = len(candidates) > 1
        if len(candidates) == 1:
            resolved[number] = candidates[0]
    return resolved[label], vague[label]


# Coalesced calls: a rank issued them as one, they share a number, and a last call closes them.


def _merge_coalesced(stack: Stack, rows: Int64s, number: Int64s) -> tuple[Int64s, Calls, Int64s]:
    """The first call of each rank in each collective, merged with those coalesced with it; and duplicate calls."""
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
    coalesces = np.logical_or.reduceat(closing, parts) | _others_have_several(number[parts], length)
    coalesced = np.flatnonzero((length > 1) & coalesces)
    if len(coalesced):
        inside = ranges(parts[coalesced], length[coalesced])
        _write_merged(calls, coalesced, stack.calls.take(rows[inside]), closing[inside], length[coalesced])
    length[coalesced] = 1
    return parts, calls, parts[length > 1]


def _others_have_several(number: Int64s, length: Int64s) -> Bools:
    """True if another part of the same collective has several calls too, or there is no other part."""
    starts = starts_of(number)
    count = np.diff(np.append(starts, len(number)))
    several = np.add.reduceat(length > 1, starts)
    result: Bools = np.repeat((several > 1) | (count == 1), count)
    return result


def _write_merged(calls: Calls, parts: Int64s, coalesced: Calls, closing: Bools, length: Int64s) -> None:
    """Writes each run of `coalesced` as one call into `calls`."""
    begin = np.cumsum(length) - length
    is_member = ~closing | np.repeat(np.logical_and.reduceat(closing, begin), length)
    first = _first(is_member, begin)
    for name in ("operation", "type", "shape", "source", "target", "global_ranks"):
        getattr(calls, name)[parts] = getattr(coalesced, name)[first]
    for name in ("elements_in", "elements_out"):
        elements = np.where(is_member, getattr(coalesced, name), UNKNOWN)
        total = np.add.reduceat(np.maximum(elements, 0), begin)
        getattr(calls, name)[parts] = np.where(np.maximum.reduceat(elements, begin) >= 0, total, UNKNOWN)
    for name in Calls.event_columns():
        column = getattr(coalesced, name)
        getattr(calls, name)[parts] = column[_first(column != UNKNOWN, begin)]
    calls.state[parts] = coalesced.state[begin + length - 1]
    calls.enqueued[parts] = _earliest(coalesced.enqueued, begin)
    calls.evidence[parts] = np.maximum.reduceat(coalesced.evidence, begin)
    best = coalesced.evidence == np.repeat(calls.evidence[parts], length)
    calls.start[parts] = _earliest(np.where(best, coalesced.start, NO_TIME), begin)
    calls.end[parts] = np.maximum.reduceat(np.where(best, coalesced.end, NO_TIME), begin)


def _first(chosen: Bools, begin: Int64s) -> Int64s:
    """The first chosen row of each run, else its first row."""
    rows = np.where(chosen, np.arange(len(chosen)), LATEST)
    first: Any = np.minimum.reduceat(rows, begin)
    return np.where(first == LATEST, begin, first)


def _earliest(times: Int64s, begin: Int64s) -> Int64s:
    first: Any = np.minimum.reduceat(np.where(times == NO_TIME, LATEST, times), begin)
    return np.where(first == LATEST, NO_TIME, first)


# Verdicts: whether all members took part, and whether they did the same.


class Verdicts(Struct, frozen=True):
    """The verdict on each collective, and what is wrong with how many."""

    verdict: Int32s
    """Codes of texts."""
    typical: Int64s
    """The first part that does what most parts do."""
    mismatched: Tally
    missing: Tally


def verdicts_of(stack: Stack, groups: Groups, matching: Matching) -> Verdicts:
    """Compares the parts of each collective, and finds members without a part."""
    codes = {verdict: stack.strings[verdict.value] for verdict in Verdict}
    typical, differing = _majority(stack, matching)
    missing, partial = _missing_members(stack, groups, matching)
    verdict = np.full(len(matching), codes[Verdict.COMPLETE], np.int32)
    verdict[partial] = codes[Verdict.PARTIAL]
    verdict[missing] = codes[Verdict.MISSING]
    verdict[differing] = codes[Verdict.MISMATCH]
    verdict[_unmatched(stack, groups, matching)] = codes[Verdict.UNMATCHED]
    return Verdicts(
        verdict,
        typical,
        _tally(groups, matching, differing),
        _tally(groups, matching, missing & ~differing),
    )


def _unmatched(stack: Stack, groups: Groups, matching: Matching) -> Bools:
    """Calls that cannot be matched: ambiguous ones, and those of groups with unknown members."""
    memberless = np.array([not group.ranks and not group.size for group in groups.rows] or [False], np.bool_)
    return matching.ambiguous | memberless[matching.group]


def _majority(stack: Stack, matching: Matching) -> tuple[Int64s, Bools]:
    """For each collective the first part that does what most do, and whether any part differs."""
    starts, calls = matching.starts, matching.calls
    length = np.diff(np.append(starts, len(calls)))
    coalesced = is_one_of(calls.operation, stack.strings, (Operation.COALESCED,))
    size = common_size(calls.operation, calls.elements_in, calls.elements_out, stack.strings)
    untyped = is_one_of(calls.operation, stack.strings, (Operation.BARRIER,))
    kind = np.where(untyped, UNKNOWN, calls.type)
    differs = np.zeros(len(calls), np.bool_)
    for column, known in ((calls.operation, ~coalesced), (size, size >= 0), (kind, kind != UNKNOWN)):
        differs |= _differs_from_first(column, known & ~coalesced, starts, length)
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


def _differs_from_first(column: Int64s | Int32s, known: Bools, starts: Int64s, length: Int64s) -> Bools:
    """True for known rows that differ from the first known row of their run."""
    first = np.repeat(column[_first_known(known, starts)], length)
    differs: Bools = known & (column != first)
    return differs


def _first_known(known: Bools, starts: Int64s) -> Int64s:
    if not len(starts) or known[starts].all():
        return starts.copy()
    rows = np.where(known, np.arange(len(known)), len(known))
    first = np.minimum.reduceat(rows, starts)
    return np.where(first == len(known), starts, first)


def _missing_members(stack: Stack, groups: Groups, matching: Matching) -> tuple[Bools, Bools]:
    """Collectives without a member whose sources cover them, and collectives without any other member."""
    missing = np.zeros(len(matching), np.bool_)
    sizes = np.array([groups.size(row) for row in range(len(groups.rows))] or [0], np.int64)
    taking_part = np.bincount(matching.collective, minlength=len(matching))
    partial = (taking_part < sizes[matching.group]) | (sizes[matching.group] == 0)
    incomplete = np.flatnonzero(partial & ~matching.ambiguous)
    collective, rank = Members.of(groups).all(matching.group[incomplete])
    collective = incomplete[collective]
    width = int(max(rank.max(initial=0), matching.rank.max(initial=0))) + 1
    is_incomplete = np.zeros(len(matching), np.bool_)
    is_incomplete[incomplete] = True
    parts = is_incomplete[matching.collective]
    present = matching.collective[parts] * width + matching.rank[parts]
    absent = ~np.isin(collective * width + rank, present, kind="sort")
    collective, rank = collective[absent], rank[absent]
    is_covered = covered(stack, matching, collective, rank)
    missing[collective[is_covered & ~matching.uncertain[collective]]] = True
    return missing, partial


def _tally(groups: Groups, matching: Matching, affected: Bools) -> Tally:
    if not affected.any():
        return NOTHING
    first = int(np.flatnonzero(affected)[0])
    number = int(matching.sequence[first])
    example = f"group {groups.rows[matching.group[first]].name}, " + (
        f"position {matching.order[first]}" if number == UNKNOWN else f"number {number}"
    )
    return Tally(int(np.count_nonzero(affected)), example)


def repeated_finding(repeated: Tally) -> list[Finding]:
    """Calls that are skipped."""
    description = "have the same number as an earlier call of their rank and group and are skipped."
    return repeated.finding("repeated_collective", f"{repeated.count} calls {description}")


def wrong_findings(mismatched: Tally, missing: Tally) -> list[Finding]:
    """The problems of the job itself, one line each; `diagnose` explains it."""
    found = []
    for tally, reason, description in (
        (mismatched, "mismatched_collectives", "not the same on all ranks in operation, size or type"),
        (missing, "missing_from_collectives", "missing a rank whose sources cover that time"),
    ):
        affected = subject(tally.count, "collective", "are")
        found += tally.finding(reason, f"{affected} {description}; first: {tally.example}.")
    return found


# Coverage: the part of the job that each rank's sources contain; a call missing there was really not made.


def covered(stack: Stack, matching: Matching, collective: Int64s, rank: Int64s) -> Bools:
    """True if the sources of a rank would contain its part in a collective, had it taken part."""
    if not len(collective):
        return np.zeros(0, np.bool_)
    coverage = stack.coverage
    row = lookup(coverage.rank, rank)
    has_source, last_call = row != UNKNOWN, coverage.last_call[row]
    recorded, from_start = coverage.recorded[row], coverage.from_start[row]
    first, last, known = _spans_of(stack, matching, matching.group[collective], rank)
    position = matching.position[collective]
    within = known & (first < position) & (position < last)
    latest = _latest_time(matching)[collective]
    after = known & (position > last) & (recorded | (last_call > latest))
    before = (~known | (position < first)) & from_start
    result: Bools = has_source & (within | after | before)
    return result


def _spans_of(stack: Stack, matching: Matching, group: Int32s, rank: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """The first and last position of each rank in a group; and whether it has any."""
    position = matching.position[matching.collective]
    own_group, own_rank = matching.group[matching.collective].astype(np.int64), matching.rank.astype(np.int64)
    divided = np.isin(own_group, stack.divided.group)
    spans = Spans.of(
        np.concatenate([own_group[~divided], stack.divided.group]),
        np.concatenate([own_rank[~divided], stack.divided.rank]),
        np.concatenate([position[~divided], stack.divided.first]),
        np.concatenate([position[~divided], stack.divided.last]),
    )
    width = int(max(rank.max(), spans.rank.max(initial=0))) + 1
    wanted, keys = group.astype(np.int64) * width + rank, spans.group * width + spans.rank
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return spans.first[at], spans.last[at], keys[at] == wanted


def _latest_time(matching: Matching) -> Int64s:
    """The latest known time of each collective."""
    calls = matching.calls
    times = np.maximum(np.maximum(calls.enqueued, calls.start), calls.end)
    latest: Int64s = np.maximum.reduceat(times, matching.starts)
    return latest
