"""Which calls of which ranks are one collective: by group and number, or by alignment where there is no number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracelink.communications import UNKNOWN, Calls, Evidence
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.coalescing import one_part_for_each_rank
from tracelink.linking.coding import distinct, stable_order, starts_of
from tracelink.linking.groups import Groups
from tracelink.linking.labels import labels_of
from tracelink.linking.sequences import align_tracks
from tracelink.linking.sizes import common_size, is_one_of
from tracelink.linking.stacking import Stack
from tracelink.linking.timing import Track
from tracelink.operations import POINT_TO_POINT, SYNCHRONIZING, Operation

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
