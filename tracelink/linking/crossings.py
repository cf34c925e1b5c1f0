"""What matched collectives and messages tell of the ranks' clocks."""

from __future__ import annotations

import numpy as np

from tracelink.clock import Crossings
from tracelink.collectives import Messages, Verdict
from tracelink.communications import UNKNOWN, Evidence
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.collectives import Matching
from tracelink.linking.groups import Groups
from tracelink.linking.members import Members
from tracelink.linking.sizes import is_one_of
from tracelink.linking.stacking import Stack
from tracelink.linking.verdicts import Judged
from tracelink.operations import SYNCHRONIZING, Operation

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
    root = _roots(groups, matching, typical)[matching.collective]
    rooted = (root != UNKNOWN) & ~empty[matching.collective]
    from_root = is_one_of(operation, strings, FROM_ROOT)[matching.collective] & rooted
    to_root = is_one_of(operation, strings, TO_ROOT)[matching.collective] & rooted
    is_root = matching.rank == root
    waits = everybody | (from_root & ~is_root) | (to_root & is_root)
    awaited = everybody | (from_root & is_root) | (to_root & ~is_root)
    return waits, awaited, everybody


def _roots(groups: Groups, matching: Matching, typical: Int64s) -> Int64s:
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
