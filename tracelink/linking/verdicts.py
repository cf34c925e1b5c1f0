"""What is to be said of each collective: whether all members took part, and did the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.collectives import Verdict
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.coding import distinct, ranges, starts_of
from tracelink.linking.collectives import Matching
from tracelink.linking.coverage import covered
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.linking.sizes import common_size, is_one_of
from tracelink.linking.stacking import Stack
from tracelink.operations import Operation


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
