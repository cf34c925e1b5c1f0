"""Disagreements to problems: one for each culprit and group, however many collectives show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.analysis.comparing import Aspect
from tracelink.analysis.disagreements import Disagreement
from tracelink.analysis.mismatch_words import Difference, message_of
from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.programs import Programs, expected, inserted, left_out
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Kind, Problem
from tracelink.journal import Journal

KINDS = {
    Aspect.OPERATION: Kind.OPERATION_MISMATCH,
    Aspect.DTYPE: Kind.DTYPE_MISMATCH,
    Aspect.SIZE: Kind.SIZE_MISMATCH,
    Aspect.ROOT: Kind.PEER_MISMATCH,
}

Waits = Mapping[tuple[int, int], Wait]


@dataclass(frozen=True, slots=True)
class _Series:
    """What the same ranks do otherwise than others in one group."""

    first: Disagreement
    count: int
    skipped: int = 0
    """How many collectives they left out."""
    extra: int = 0
    """How many they did that nobody else does."""


def mismatch_problems(
    journal: Journal,
    parts: Parts,
    disagreements: Sequence[Disagreement],
    programs: Programs,
    waits: Sequence[Wait],
) -> list[Problem]:
    """A problem for each group and culprits."""
    together: dict[tuple[int, tuple[int, ...]], list[Disagreement]] = {}
    for one in disagreements:
        together.setdefault((one.group, one.culprits), []).append(one)
    waiting = {(wait.group, wait.sequence): wait for wait in waits if not wait.message}
    series = [_shifted(programs, _decided(programs, parts, all_of_them)) for all_of_them in together.values()]
    return [_problem(journal, parts, one, waiting) for one in _without_echoes(series)]


def _decided(programs: Programs, parts: Parts, alike: Sequence[Disagreement]) -> _Series:
    """Where as many do one thing as another, what was to be expected decides."""
    first = min(alike, key=lambda one: one.sequence)
    if not first.tie or first.detail:
        return _Series(first, len(alike))
    due = expected(programs, first.group, first.sequence)
    rows = _rows_of_round(parts, first)
    right = rows[programs.codes_of(rows) == due]
    wrong = rows[programs.codes_of(rows) != due]
    if due == UNKNOWN or not len(right) or not len(wrong):
        return _Series(first, len(alike))
    culprits = tuple(parts.rank[wrong].tolist())
    return _Series(
        replace(first, culprits=culprits, tie=False, typical=int(right[0]), odd=int(wrong[0])), len(alike)
    )


def _shifted(programs: Programs, series: _Series) -> _Series:
    """Whether what the culprits do is what others do later, or earlier."""
    first = series.first
    if first.tie or first.detail:
        return series
    whole = programs.of_group(first.group, without=first.culprits)
    typical, before = whole.from_number(first.sequence), whole.before(first.sequence)
    own = [programs.of_rank(first.group, rank).from_number(first.sequence) for rank in first.culprits]
    skipped = {left_out(one, typical, before) for one in own}
    extra = {inserted(one, typical) for one in own}
    if len(skipped) == 1 and (count := skipped.pop()):
        return replace(series, skipped=count)
    if len(extra) == 1 and (count := extra.pop()):
        return replace(series, extra=count)
    return series


def _without_echoes(series: Sequence[_Series]) -> list[_Series]:
    """Once a rank is shifted, what it does in the group agrees with nobody: that is one problem."""
    kept: list[_Series] = []
    for one in sorted(series, key=lambda each: each.first.sequence):
        if not any(
            (before.skipped or before.extra)
            and before.first.group == one.first.group
            and set(before.first.culprits) & set(one.first.culprits)
            for before in kept
        ):
            kept.append(one)
    return kept


def _problem(journal: Journal, parts: Parts, series: _Series, waits: Waits) -> Problem:
    first = series.first
    group = journal.groups[first.group]
    typical, odd = int(parts.row[first.typical]), int(parts.row[first.odd])
    difference = Difference(
        first.aspect,
        first.sequence,
        group,
        first.culprits,
        typical,
        odd,
        series.count,
        first.tie,
        first.detail,
    )
    return Problem(
        Kind.SKIPPED if series.skipped else KINDS[first.aspect],
        group.name,
        group.description,
        first.sequence,
        journal.operation(typical),
        first.culprits,
        _waiting(parts, first, waits),
        message_of(journal, difference, skipped=series.skipped, extra=series.extra),
        tie=first.tie,
        count=series.count,
        rows={int(parts.rank[first.odd]): odd, int(parts.rank[first.typical]): typical},
    )


def _rows_of_round(parts: Parts, one: Disagreement) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    begin, end = np.searchsorted(parts.round, [parts.round[one.odd], parts.round[one.odd] + 1]).tolist()
    return np.arange(begin, end)


def _waiting(parts: Parts, one: Disagreement, waits: Waits) -> tuple[int, ...]:
    """Those in it who have not finished it, or who only retired it and did nothing in the group since."""
    if wait := waits.get((one.group, one.sequence)):
        return tuple(rank for rank in wait.ranks if rank not in one.culprits)
    rows = _rows_of_round(parts, one)
    of_group = slice(*np.searchsorted(parts.group, [one.group, one.group + 1]).tolist())
    last = dict(zip(parts.rank[of_group].tolist(), parts.sequence[of_group].tolist(), strict=True))
    retired = rows[parts.outcome[rows] == Outcome.RETIRED]
    ranks = [rank for rank in parts.rank[retired].tolist() if last[rank] == one.sequence]
    return tuple(rank for rank in ranks if rank not in one.culprits)
