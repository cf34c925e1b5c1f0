"""Disagreements to problems: one for each culprit and group, however many collectives show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.comparing import Aspect
from tracelink.analysis.disagreements import Disagreement
from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.waits import Wait
from tracelink.analysis.wording import collective_in_words, operation_in_words, ranks_in_words
from tracelink.diagnosis import Kind, Problem
from tracelink.journal import Journal

KINDS = {
    Aspect.OPERATION: Kind.OPERATION_MISMATCH,
    Aspect.DTYPE: Kind.DTYPE_MISMATCH,
    Aspect.SIZE: Kind.SIZE_MISMATCH,
}


@dataclass(slots=True)
class _Series:
    """What the same ranks do otherwise than others in one group."""

    first: Disagreement
    all: list[Disagreement] = field(default_factory=list)


def mismatch_problems(
    journal: Journal, parts: Parts, disagreements: Sequence[Disagreement], waits: Sequence[Wait]
) -> list[Problem]:
    """A problem for each group and culprits."""
    series: dict[tuple[int, tuple[int, ...]], _Series] = {}
    for one in disagreements:
        series.setdefault((one.group, one.culprits), _Series(one)).all.append(one)
    waiting = {(wait.group, wait.sequence): wait for wait in waits}
    return [_problem(journal, parts, one, waiting) for one in series.values()]


def _problem(journal: Journal, parts: Parts, series: _Series, waits: dict[tuple[int, int], Wait]) -> Problem:
    first = series.first
    group = journal.groups[first.group]
    typical, odd = int(parts.row[first.typical]), int(parts.row[first.odd])
    operation = journal.operation(typical)
    rest = f", and in {len(series.all) - 1} more" if len(series.all) > 1 else ""
    message = (
        f"{ranks_in_words(first.culprits)} disagree{'s' if len(first.culprits) == 1 else ''} on "
        f"{first.aspect.name.lower()} in {collective_in_words(operation, first.sequence, group)}{rest}: "
        f"{operation_in_words(journal.operation(odd))}, others {operation_in_words(operation)}."
    )
    return Problem(
        KINDS[first.aspect],
        group.name,
        group.description,
        first.sequence,
        operation,
        first.culprits,
        _waiting(parts, first, waits),
        message,
        tie=first.tie,
        count=len(series.all),
        rows={int(parts.rank[first.odd]): odd, int(parts.rank[first.typical]): typical},
    )


def _waiting(parts: Parts, one: Disagreement, waits: dict[tuple[int, int], Wait]) -> tuple[int, ...]:
    """Those in it who have not finished it, or who only retired it and did nothing in the group since."""
    if wait := waits.get((one.group, one.sequence)):
        return tuple(rank for rank in wait.ranks if rank not in one.culprits)
    begin, end = np.searchsorted(parts.round, [parts.round[one.odd], parts.round[one.odd] + 1]).tolist()
    rows = np.arange(begin, end)
    of_group = slice(*np.searchsorted(parts.group, [one.group, one.group + 1]).tolist())
    last = {
        rank: row
        for rank, row in zip(parts.rank[of_group].tolist(), parts.sequence[of_group].tolist(), strict=True)
    }
    retired = rows[parts.outcome[rows] == Outcome.RETIRED]
    ranks = [rank for rank in parts.rank[retired].tolist() if last[rank] == one.sequence]
    return tuple(rank for rank in ranks if rank not in one.culprits)
