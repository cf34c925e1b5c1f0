"""Mismatches judged by the lines of the program: who is further on than the others has left something out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from tracelink.analysis.wording import (
    collective_in_words,
    count_of_ranks,
    operation_in_words,
    ranks_in_words,
)
from tracelink.diagnosis import Diagnosis, Entry, Frame, Kind, Problem, Role
from tracelink.operations import POINT_TO_POINT, operation_of
from tracelink.trace import ProcessGroup

MISMATCHES = frozenset({Kind.OPERATION_MISMATCH, Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH})


def judged_by_line(diagnosis: Diagnosis) -> Diagnosis:
    """The same, where mismatches whose lines show that a collective was left out say so."""
    return replace(diagnosis, problems=[_judged(problem) for problem in diagnosis.problems])


def _judged(problem: Problem) -> Problem:
    own = next((one.entries[-1] for one in problem.evidence if one.role is Role.CULPRIT), None)
    other = next((one.entries[-1] for one in problem.evidence if one.role is Role.WAITING), None)
    if problem.kind not in MISMATCHES or problem.tie or own is None or other is None:
        return problem
    if operation_of(problem.operation) in POINT_TO_POINT:
        return problem
    if not _asks_for_else(own, other) or not _is_further_on(own.frames, other.frames):
        return problem
    return replace(problem, kind=Kind.SKIPPED, message=_message(problem, own))


def _asks_for_else(own: Entry, other: Entry) -> bool:
    """Whether more than the operation differs: two branches may well do different things with the same tensor."""
    return (own.input_sizes, own.input_types) != (other.input_sizes, other.input_types)


def _is_further_on(own: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Whether the first call in which two stacks differ stands later in the same function."""
    for mine, theirs in zip(reversed(own), reversed(other), strict=False):
        if mine != theirs:
            return (mine.filename, mine.name) == (theirs.filename, theirs.name) and mine.line > theirs.line
    return False


def _message(problem: Problem, own: Entry) -> str:
    group = ProcessGroup(problem.group, problem.description)
    what = collective_in_words(problem.operation, problem.sequence or 0, group)
    line = own.frames[0] if own.frames else Frame("", "", 0)
    waiting = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    return (
        f"{ranks_in_words(problem.culprits)} skipped {what}, and went on with "
        f"{operation_in_words(own.operation)} at {PurePath(line.filename).name}:{line.line}{waiting}."
    )
