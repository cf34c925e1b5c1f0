"""Disagreements: collectives in which ranks request different things, and the problems they show.

Compared are operations, dtypes and sizes of requests, and roots (known from profiles). `sizes` adds those whose sizes
do not fit together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.deviations import Deviation, Deviations, deviation_problem
from tracelink.diagnosis.journal import Journal, operation_names
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.participation import Outcome, Parts
from tracelink.diagnosis.programs import (
    Aspect,
    Comparison,
    Programs,
    expected_code,
    similar_groups,
)
from tracelink.diagnosis.waits import Wait, with_device_waits
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, Table, distinct, starts_of
from tracelink.model.operations import ROOTED, Operation, operation_of
from tracelink.model.records import State
from tracelink.model.text import collective_in_words, lowered, operation_in_words, ranks_in_words
from tracelink.model.trace import ProcessGroup

KIND_OF_ASPECT = {
    Aspect.OPERATION: Kind.OPERATION_MISMATCH,
    Aspect.DTYPE: Kind.DTYPE_MISMATCH,
    Aspect.SIZE: Kind.SIZE_MISMATCH,
    Aspect.ROOT: Kind.PEER_MISMATCH,
    Aspect.FIT: Kind.SIZE_MISMATCH,
}


# Collectives whose requests differ.


class Disagreement(Struct, frozen=True):
    """One collective in which ranks differ."""

    group: int
    sequence: int
    collective: int
    aspect: Aspect
    culprits: tuple[int, ...]
    """The ranks outside the majority; all ranks without a majority."""
    tie: bool
    typical: int
    """A part that agrees with the majority."""
    deviating: int
    """A part that does not."""
    detail: str = ""
    """What more is known, for people."""


def disagreements_of(parts: Parts, comparisons: Sequence[Comparison]) -> list[Disagreement]:
    """All collectives whose parts differ in anything that is compared."""
    if not len(parts):
        return []
    starts = starts_of(parts.collective)
    lengths = np.diff(np.append(starts, len(parts)))
    differing = [_differing(comparison.value[parts.request], starts, lengths) for comparison in comparisons]
    found = np.flatnonzero(np.logical_or.reduce(differing))
    disagreements = []
    for number in found.tolist():
        aspect = min(
            comparison.aspect
            for comparison, differs in zip(comparisons, differing, strict=True)
            if differs[number]
        )
        rows = np.arange(starts[number], starts[number] + lengths[number])
        columns = [comparison.value[parts.request[rows]] for comparison in comparisons]
        disagreements.append(_disagreement(parts, rows, aspect, columns))
    return disagreements


def _differing(column: Int64s, starts: Int64s, lengths: Int64s) -> Bools:
    """For each run of rows whether two known values differ."""
    known = column != UNKNOWN
    highest = np.maximum.reduceat(np.where(known, column, np.iinfo(np.int64).min), starts)
    lowest = np.minimum.reduceat(np.where(known, column, np.iinfo(np.int64).max), starts)
    differing: Bools = (highest != lowest) & (np.add.reduceat(known, starts) > 1) & (lengths > 1)
    return differing


def _disagreement(parts: Parts, rows: Int64s, aspect: Aspect, columns: Sequence[Int64s]) -> Disagreement:
    label, first = distinct(*(_completed(column) for column in columns))
    count = np.bincount(label)
    most = int(count.argmax())
    tie = bool(np.count_nonzero(count == count[most]) > 1)
    deviating = rows if tie else rows[label != most]
    return Disagreement(
        int(parts.group[rows[0]]),
        int(parts.sequence[rows[0]]),
        int(parts.collective[rows[0]]),
        aspect,
        tuple(parts.rank[deviating].tolist()),
        tie,
        int(rows[first[most]]),
        int(rows[label != most][0]),
    )


def _completed(column: Int64s) -> Int64s:
    """Unknown values count as what most ranks have."""
    known = column[column != UNKNOWN]
    if not len(known) or len(known) == len(column):
        return column
    values, count = np.unique(known, return_counts=True)
    return np.where(column == UNKNOWN, values[count.argmax()], column)


# Roots: dumps do not contain them; profiles and execution traces do.


class Roots(Table, frozen=True):
    """One row for each call with a known root."""

    group: Int32s
    """Row of the journal's groups."""
    sequence: Int64s
    rank: Int32s
    root: Int64s
    """Position of the root in the group."""

    @classmethod
    def of_rows(cls, rows: Collection[tuple[int, int, int, int]]) -> Roots:
        """Roots from rows of group, sequence number, rank and root."""
        table = np.array(list(rows), np.int64).reshape(-1, 4)
        return cls(table[:, 0].astype(np.int32), table[:, 1], table[:, 2].astype(np.int32), table[:, 3])


NO_ROOTS = Roots.empty()


def root_disagreements(
    journal: Journal, parts: Parts, roots: Roots, known: Collection[int]
) -> list[Disagreement]:
    """Collectives whose ranks name different roots, except the `known` ones."""
    if not len(roots):
        return []
    root = _root_of_parts(parts, roots)
    rows = np.flatnonzero(root != UNKNOWN)
    starts = starts_of(parts.collective[rows])
    if not len(starts):
        return []
    differ = np.maximum.reduceat(root[rows], starts) != np.minimum.reduceat(root[rows], starts)
    ends = np.append(starts[1:], len(rows))
    found = (
        _root_disagreement(journal, parts, rows[starts[number] : ends[number]], root)
        for number in np.flatnonzero(differ).tolist()
        if int(parts.collective[rows[starts[number]]]) not in known
    )
    return [disagreement for disagreement in found if disagreement]


def _root_of_parts(parts: Parts, roots: Roots) -> Int64s:
    """The root of each part, or UNKNOWN."""
    count = len(parts)
    columns: list[Any] = [
        np.concatenate([getattr(parts, name), getattr(roots, name)]) for name in ("group", "sequence", "rank")
    ]
    number = distinct(*columns)[0] if len(columns[0]) else columns[0]
    root = np.full(int(number.max(initial=-1)) + 1, UNKNOWN, np.int64)
    root[number[count:]] = roots.root
    found: Int64s = root[number[:count]]
    return found


def _root_disagreement(journal: Journal, parts: Parts, rows: Int64s, root: Int64s) -> Disagreement | None:
    group = journal.groups[int(parts.group[rows[0]])]
    if _all_name_themselves(group, parts.rank[rows].tolist(), root[rows].tolist()):
        return None
    values, label, count = np.unique(root[rows], return_inverse=True, return_counts=True)
    most = int(count.argmax())
    tie = bool(np.count_nonzero(count == count[most]) > 1)
    deviating = int(rows[label != most][0])
    own, others = _rank_at(group, int(root[deviating])), _rank_at(group, int(values[most]))
    return Disagreement(
        int(parts.group[deviating]),
        int(parts.sequence[deviating]),
        int(parts.collective[deviating]),
        Aspect.ROOT,
        tuple(parts.rank[rows if tie else rows[label != most]].tolist()),
        tie,
        int(rows[label == most][0]),
        deviating,
        f"root {own} or root {others}" if tie else f"root {own}, the others with root {others}",
    )


def _all_name_themselves(group: ProcessGroup, ranks: list[int], roots: list[int]) -> bool:
    """Old profiles name the rank itself instead of the root."""
    return all(_rank_at(group, root) == rank for rank, root in zip(ranks, roots, strict=True))


def _rank_at(group: ProcessGroup, position: int) -> int:
    return group.ranks[position] if position < len(group.ranks) else position


def rooted_entries(journal: Journal) -> Bools:
    """Which entries of the journal request an operation with a root."""
    rooted = [name in ROOTED for name in operation_names(journal)]
    found: Bools = np.array([*rooted, False], np.bool_)[journal.records.request]
    return found


def hangs_with_a_root(journal: Journal) -> bool:
    """Whether the last entry of a rank has a root and is not finished."""
    last = journal.bounds[1:][np.diff(journal.bounds) > 0] - 1
    unfinished = (journal.records.state[last] < State.COMPLETED) & (journal.records.retired[last] != 1)
    return bool((rooted_entries(journal)[last] & unfinished).any())


# From disagreements to problems.


class _Series(Struct, frozen=True):
    """Disagreements of the same ranks in one group."""

    first: Disagreement
    count: int


def mismatch_problems(
    journal: Journal,
    parts: Parts,
    disagreements: Sequence[Disagreement],
    programs: Programs,
    waits: Sequence[Wait],
    deviations: Deviations,
) -> list[Problem]:
    """A problem for each group and set of culprits, however many collectives show it.

    A rank that skipped a call, or made an extra one, disagrees with all later ones of the group: that is one problem.
    """
    by_culprits: dict[tuple[int, tuple[int, ...]], list[Disagreement]] = {}
    for disagreement in disagreements:
        by_culprits.setdefault((disagreement.group, disagreement.culprits), []).append(disagreement)
    series = [_Series(min(each, key=lambda one: one.sequence), len(each)) for each in by_culprits.values()]
    shifts = _Shifts.of(journal, parts, series, waits, deviations)
    behind = [(each, shifts.behind(each)) for each in sorted(series, key=lambda each: each.first.sequence)]
    return [
        *_shift_problems(journal, parts, behind, waits),
        *(
            _mismatch_problem(journal, parts, programs.comparisons, _decided(programs, parts, each), waits)
            for each, found in behind
            if not found
        ),
    ]


class _Shifts(Struct, frozen=True):
    """Which disagreements are because ranks have skipped calls before, or made extra ones."""

    journal: Journal
    parts: Parts
    deviations: Deviations
    found: Sequence[Deviation]

    @classmethod
    def of(
        cls,
        journal: Journal,
        parts: Parts,
        series: Sequence[_Series],
        waits: Sequence[Wait],
        deviations: Deviations,
    ) -> _Shifts:
        """Looks for the deviations of all ranks that disagree."""
        disputed = [
            (rank, each.first.group)
            for each in series
            for rank in parts.rank[_parts_of_collective(parts, each.first)].tolist()
        ]
        found = deviations.behind(with_device_waits(journal, waits, lambda _: True), disputed)
        return cls(journal, parts, deviations, found if disputed else [])

    def behind(self, series: _Series) -> list[Deviation]:
        """The deviations before the first disagreement, in all groups of the ranks, else in this one."""
        if series.first.aspect in (Aspect.ROOT, Aspect.FIT):
            return []
        return self._before(series, self.found) or self._before(
            series, self.deviations.in_group(series.first.group)
        )

    def _before(self, series: _Series, found: Sequence[Deviation]) -> list[Deviation]:
        rows = _parts_of_collective(self.parts, series.first)
        last = dict(zip(self.parts.rank[rows].tolist(), self.parts.row[rows].tolist(), strict=True))
        groups = similar_groups(self.journal.groups, series.first.group)
        return [
            each
            for each in found
            if each.row <= last.get(each.rank, UNKNOWN)
            and each.agreeing
            and int(self.journal.records.group[each.first]) in groups
        ]


def _shift_problems(
    journal: Journal,
    parts: Parts,
    behind: Sequence[tuple[_Series, list[Deviation]]],
    waits: Sequence[Wait],
) -> list[Problem]:
    """A problem for each set of skipped or extra calls."""
    alike: dict[tuple[int, int, int], tuple[dict[int, Deviation], list[_Series]]] = {}
    for series, found in behind:
        for each in found:
            by_rank, shown = alike.setdefault((each.usual, each.skipped, each.extra), ({}, []))
            by_rank[each.rank] = each
            shown.append(series)
    problems = []
    for by_rank, shown in alike.values():
        groups = {each.first.group for each in shown}
        waiting = {rank for each in shown for rank in _waiting(parts, each.first, waits)}
        for wait in waits:
            if wait.group in groups and not wait.message and not by_rank.keys().isdisjoint(wait.awaited):
                waiting.update(wait.rows)
        count = sum(each.count for each in shown)
        problems.append(deviation_problem(journal, list(by_rank.values()), waiting, count=count))
    return problems


def _decided(programs: Programs, parts: Parts, series: _Series) -> _Series:
    """Without a majority, what was expected decides which ranks are the culprits."""
    first = series.first
    if not first.tie or first.detail:
        return series
    expected = expected_code(programs, first.group, first.sequence)
    rows = _parts_of_collective(parts, first)
    right = rows[programs.codes_of(rows) == expected]
    wrong = rows[programs.codes_of(rows) != expected]
    if expected == UNKNOWN or not len(right) or not len(wrong):
        return series
    culprits = tuple(parts.rank[wrong].tolist())
    decided = replace(first, culprits=culprits, tie=False, typical=int(right[0]), deviating=int(wrong[0]))
    return _Series(decided, series.count)


def _mismatch_problem(
    journal: Journal, parts: Parts, comparisons: Sequence[Comparison], series: _Series, waits: Sequence[Wait]
) -> Problem:
    first = series.first
    group = journal.groups[first.group]
    typical, deviating, member = _shown_entries(journal, parts, comparisons, first)
    difference = Difference(
        first.aspect,
        first.sequence,
        group,
        first.culprits,
        typical,
        deviating,
        series.count,
        first.tie,
        first.detail,
        member,
    )
    return Problem.at(
        KIND_OF_ASPECT[first.aspect],
        group,
        first.sequence,
        journal.operation(typical),
        culprits=first.culprits,
        waiting=_waiting(parts, first, waits),
        message=message_of(journal, difference),
        tie=first.tie,
        count=series.count,
        rows={int(parts.rank[first.deviating]): deviating, int(parts.rank[first.typical]): typical},
    )


def _shown_entries(
    journal: Journal, parts: Parts, comparisons: Sequence[Comparison], disagreement: Disagreement
) -> tuple[int, int, str]:
    """The entries that show the difference, of a typical and of a deviating part, and where in a coalesced call."""
    both = disagreement.typical, disagreement.deviating
    first_composition = len(journal.requests)
    requests = [int(parts.request[part]) for part in both]
    rows, deviating_rows = (entries_of(journal, parts, part) for part in both)
    if disagreement.detail or min(requests) < first_composition or len(rows) != len(deviating_rows):
        return int(rows[0]), int(deviating_rows[0]), ""
    values = [comparison.value for comparison in comparisons if comparison.aspect is disagreement.aspect]
    members = zip(*(parts.compositions[request - first_composition] for request in requests), strict=True)
    differ = [any(value[own] != value[other] for value in values) for own, other in members]
    number = differ.index(True) if True in differ else 0
    tensors = sum(operation_of(journal.operation(row)) != Operation.COALESCED for row in rows.tolist())
    return int(rows[number]), int(deviating_rows[number]), f" in tensor {number + 1} of {tensors}"


def entries_of(journal: Journal, parts: Parts, part: int) -> Int64s:
    """All entries of a part; entries of other groups may be between them."""
    rows = np.arange(parts.row[part], parts.last[part] + 1)
    records = journal.records
    own: Int64s = rows[
        (records.group[rows] == parts.group[part])
        & (records.sequence[rows] == parts.sequence[part])
        & ~records.point_to_point[rows]
    ]
    return own


def _parts_of_collective(
    parts: Parts, disagreement: Disagreement
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    first, last = np.searchsorted(
        parts.collective,
        [parts.collective[disagreement.deviating], parts.collective[disagreement.deviating] + 1],
    ).tolist()
    return np.arange(first, last)


def _waiting(parts: Parts, disagreement: Disagreement, waits: Sequence[Wait]) -> tuple[int, ...]:
    """The other ranks that have not finished it, or only retired it and did nothing in the group since."""
    for wait in waits:
        if (wait.group, wait.sequence, wait.message) == (disagreement.group, disagreement.sequence, False):
            return tuple(rank for rank in wait.ranks if rank not in disagreement.culprits)
    rows = _parts_of_collective(parts, disagreement)
    of_group = slice(*np.searchsorted(parts.group, [disagreement.group, disagreement.group + 1]).tolist())
    last = dict(zip(parts.rank[of_group].tolist(), parts.sequence[of_group].tolist(), strict=True))
    retired = rows[parts.outcome[rows] == Outcome.RETIRED]
    ranks = [rank for rank in parts.rank[retired].tolist() if last[rank] == disagreement.sequence]
    return tuple(rank for rank in ranks if rank not in disagreement.culprits)


# Differences in words.


class Difference(Struct, frozen=True):
    """The difference between two entries of the journal, of which `typical` agrees with the majority."""

    aspect: Aspect
    sequence: int
    group: ProcessGroup
    culprits: Sequence[int]
    typical: int
    deviating: int
    count: int
    tie: bool
    detail: str = ""
    member: str = ""
    """Which tensor of a coalesced call differs: ` in tensor 4 of 4`."""


def message_of(journal: Journal, difference: Difference) -> str:
    """`Rank 1 called all_reduce #5 of group 0 (default_pg) with Int, the others with Float`, without the full stop."""
    ranks = ranks_in_words(difference.culprits)
    what = collective_in_words(journal.operation(difference.typical), difference.sequence, difference.group)
    shown = f" ({difference.count} collectives show it)" if difference.count > 1 else ""
    if difference.aspect in (Aspect.ROOT, Aspect.FIT):
        if difference.tie:
            return f"{ranks} do not agree in {what}: {difference.detail}. It is unknown which rank is wrong{shown}"
        return f"{ranks} called {what} with {difference.detail}{shown}"
    if difference.detail:
        wrong = (
            "it is unknown which rank is wrong" if difference.tie else f"{lowered(ranks)} has the wrong sizes"
        )
        return f"Sizes do not match in {what}: {difference.detail}; {wrong}{shown}"
    own, others = _differences_in_words(journal, difference)
    if own == others:
        often = "equally often" if difference.tie else "as often as the others"
        return f"{ranks} did not call {what} {often} under this sequence number{shown}"
    if difference.tie:
        differing = f"{own} or {others}{difference.member}"
        return f"{ranks} do not agree in {what}: {differing}. It is unknown which rank is wrong{shown}"
    if difference.aspect is Aspect.OPERATION:
        return f"{ranks} called {own} instead of {what}, the others called {others}{shown}"
    return f"{ranks} called {what} with {own}{difference.member}, the others with {others}{shown}"


def _differences_in_words(journal: Journal, difference: Difference) -> tuple[str, str]:
    """What the deviating rank requested, and what the others did, as far as they differ."""
    rows = difference.deviating, difference.typical
    match difference.aspect:
        case Aspect.OPERATION:
            own, others = (_request_in_words(journal, row) for row in rows)
            recorded = journal.operation(rows[0]), journal.operation(rows[1])
            return recorded if own == others and recorded[0] != recorded[1] else (own, others)
        case Aspect.DTYPE:
            own, others = (_type(journal, row) for row in rows)
            return (own, others) if own != others else _types_out(journal, *rows)
        case _:
            return _sizes(journal, *rows)


def _request_in_words(journal: Journal, row: int) -> str:
    """`broadcast of 256 Float`."""
    elements = _elements(journal, row)
    size = f" of {elements:,} {_type(journal, row)}" if elements != UNKNOWN else ""
    return f"{operation_in_words(journal.operation(row))}{size}".rstrip()


def _elements(journal: Journal, row: int) -> int:
    request = int(journal.records.request[row])
    given = int(journal.requests.elements_in[request])
    return given if given != UNKNOWN else int(journal.requests.elements_out[request])


def _type(journal: Journal, row: int) -> str:
    request = int(journal.records.request[row])
    given = int(journal.requests.type_in[request])
    kind = given if given != UNKNOWN else int(journal.requests.type_out[request])
    return _type_name(journal, kind)


def _types_out(journal: Journal, deviating: int, typical: int) -> tuple[str, str]:
    own, others = (
        int(journal.requests.type_out[journal.records.request[row]]) for row in (deviating, typical)
    )
    return f"output of {_type_name(journal, own)}", _type_name(journal, others)


def _type_name(journal: Journal, code: int) -> str:
    return journal.strings[code] if code != UNKNOWN else "no type"


def _sizes(journal: Journal, deviating: int, typical: int) -> tuple[str, str]:
    own, others = _elements(journal, deviating), _elements(journal, typical)
    if own != others:
        return elements_in_words(own), f"{others:,}"
    own, others = (
        int(journal.requests.elements_out[journal.records.request[row]]) for row in (deviating, typical)
    )
    if own != others:
        return f"{elements_in_words(own)} of output", f"{others:,}"
    size = elements_in_words(_elements(journal, deviating))
    return f"another tensor shape (also {size})", "one shape"


def elements_in_words(elements: int) -> str:
    """`1 element`, `2,048 elements`."""
    return "1 element" if elements == 1 else f"{elements:,} elements"
