"""Ranks that ask for different things: found and worded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tracelink.diagnosis.journal import Journal, retold
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.participation import Outcome, Parts
from tracelink.diagnosis.programs import Aspect, Comparison, Programs, expected, inserted, left_out
from tracelink.diagnosis.waits import Wait
from tracelink.errors import Finding
from tracelink.model.columns import UNKNOWN, Bools, Columns, Int32s, Int64s, distinct, starts_of
from tracelink.model.operations import ROOTED, Operation, operation_of
from tracelink.model.records import Entry, State
from tracelink.model.trace import ProcessGroup
from tracelink.text import collective_in_words, lowered, operation_in_words, ranks_in_words

# Collectives in which ranks do not do the same, and who is alone with what it does.


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One collective in which ranks differ."""

    group: int
    sequence: int
    round: int
    aspect: Aspect
    culprits: tuple[int, ...]
    """Those who are not of the majority; all of them where there is none."""
    tie: bool
    typical: int
    """A part of one who does what most do."""
    odd: int
    """A part of one who does not."""
    detail: str = ""
    """What more there is to say, in words."""


def disagreements_of(parts: Parts, comparisons: Sequence[Comparison]) -> list[Disagreement]:
    """All collectives whose parts differ in anything that is compared."""
    if not len(parts):
        return []
    starts = starts_of(parts.round)
    lengths = np.diff(np.append(starts, len(parts)))
    differing = [_differing(one.value[parts.request], starts, lengths) for one in comparisons]
    found = np.flatnonzero(np.logical_or.reduce(differing))
    result = []
    for number in found.tolist():
        aspect = min(one.aspect for one, wrong in zip(comparisons, differing, strict=True) if wrong[number])
        rows = np.arange(starts[number], starts[number] + lengths[number])
        columns = [one.value[parts.request[rows]] for one in comparisons]
        result.append(_disagreement(parts, rows, aspect, columns))
    return result


def _differing(column: Int64s, starts: Int64s, lengths: Int64s) -> Bools:
    """For each run of rows whether two of them are known to differ."""
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
    odd = rows if tie else rows[label != most]
    return Disagreement(
        int(parts.group[rows[0]]),
        int(parts.sequence[rows[0]]),
        int(parts.round[rows[0]]),
        aspect,
        tuple(parts.rank[odd].tolist()),
        tie,
        int(rows[first[most]]),
        int(rows[label != most][0]),
    )


def _completed(column: Int64s) -> Int64s:
    """What a rank does not say counts as what most say."""
    known = column[column != UNKNOWN]
    if not len(known) or len(known) == len(column):
        return column
    values, count = np.unique(known, return_counts=True)
    return np.where(column == UNKNOWN, values[count.argmax()], column)


# What ranks disagree on, in words.


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two entries of the journal, one of which does what most do."""

    aspect: Aspect
    sequence: int
    group: ProcessGroup
    culprits: Sequence[int]
    typical: int
    odd: int
    count: int
    tie: bool
    detail: str = ""


def message_of(journal: Journal, one: Difference, *, skipped: int, extra: int) -> str:
    """`Rank 1 called all_reduce #5 of group 0 (default_pg) with Int, the others with Float`, without an end."""
    who = ranks_in_words(one.culprits)
    what = collective_in_words(journal.operation(one.typical), one.sequence, one.group)
    shown = f" ({one.count} collectives show it)" if one.count > 1 else ""
    if skipped:
        more = f" and the {skipped - 1} after it" if skipped > 1 else ""
        return f"{who} skipped {what}{more}, and went on with {_told_mismatch_words(journal, one.odd)}{shown}"
    if extra:
        more = "one collective" if extra == 1 else f"{extra} collectives"
        return f"{who} did {more} more than the others, {_told_mismatch_words(journal, one.odd)}, before {what}{shown}"
    if one.aspect is Aspect.ROOT:
        if one.tie:
            return f"{who} do not agree in {what}: {one.detail}? Nothing tells which is wrong{shown}"
        return f"{who} called {what} with {one.detail}{shown}"
    if one.detail:
        whose = "nothing tells whose sizes are wrong" if one.tie else f"{who} has sizes of its own"
        return f"Sizes do not fit in {what}: {one.detail}; {lowered(whose)}{shown}"
    own, others = _differing_mismatch_words(journal, one)
    if own == others:
        often = "equally often" if one.tie else "as often as the others"
        return f"{who} did not call {what} {often} under that number{shown}"
    if one.tie:
        return f"{who} do not agree in {what}: {own} or {others}? Nothing tells which is wrong{shown}"
    return f"{who} called {what} with {own}, the others with {others}{shown}"


def _differing_mismatch_words(journal: Journal, one: Difference) -> tuple[str, str]:
    """What the odd one did, and what the others did, as far as they differ."""
    match one.aspect:
        case Aspect.OPERATION:
            own, others = _told_mismatch_words(journal, one.odd), _told_mismatch_words(journal, one.typical)
            named = journal.operation(one.odd), journal.operation(one.typical)
            return named if own == others and named[0] != named[1] else (own, others)
        case Aspect.DTYPE:
            own, others = _type(journal, one.odd), _type(journal, one.typical)
            return (own, others) if own != others else _types_out(journal, one.odd, one.typical)
        case _:
            return _sizes(journal, one.odd, one.typical)


def _told_mismatch_words(journal: Journal, row: int) -> str:
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
    return _text(journal, kind)


def _types_out(journal: Journal, odd: int, typical: int) -> tuple[str, str]:
    own, others = (int(journal.requests.type_out[journal.records.request[row]]) for row in (odd, typical))
    return f"output of {_text(journal, own)}", _text(journal, others)


def _text(journal: Journal, kind: int) -> str:
    return journal.texts[kind] if kind != UNKNOWN else "no type"


def _sizes(journal: Journal, odd: int, typical: int) -> tuple[str, str]:
    own, others = _elements(journal, odd), _elements(journal, typical)
    if own != others:
        return counted(own), f"{others:,}"
    own, others = (int(journal.requests.elements_out[journal.records.request[row]]) for row in (odd, typical))
    if own != others:
        return f"{counted(own)} of output", f"{others:,}"
    return f"tensors of another shape, though of {counted(_elements(journal, odd))} too", "one shape"


def counted(elements: int) -> str:
    """`1 element`, `2,048 elements`."""
    return "1 element" if elements == 1 else f"{elements:,} elements"


# All-to-alls whose ranks do not expect what others send them, by the matrix of their split sizes.


MOST_READ = 64
"""Exchanges whose entries are read again; of more, the last."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One all-to-all of all members of a group: a part of each, in the order of ranks."""

    rows: Int64s
    given: int
    got: int


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one member sends to another, by their places in the group."""

    sender: int
    receiver: int
    sent: int
    expected: int


def exchange_disagreements(journal: Journal, parts: Parts) -> tuple[list[Disagreement], list[Finding]]:
    """Exchanges in which not as much is expected as is sent; and what could not be read again to tell."""
    doubtful = _doubtful(journal, parts)
    asked = [int(parts.row[row]) for one in doubtful[-MOST_READ:] for row in one.rows.tolist()]
    told, findings = retold(journal, np.array(asked, np.int64))
    found = (_judged(journal, parts, one, told) for one in doubtful)
    return [one for one in found if one], findings


def _doubtful(journal: Journal, parts: Parts) -> list[_Exchange]:
    """Those whose sums differ, and those that are not finished."""
    rows = np.flatnonzero(_exchanging(journal, parts))
    starts = starts_of(parts.round[rows])
    if not len(starts):
        return []
    lengths = np.diff(np.append(starts, len(rows)))
    members = np.array([len(group.ranks) for group in journal.groups], np.int64)[parts.group[rows[starts]]]
    request = parts.request[rows]
    given, got = journal.requests.elements_in[request], journal.requests.elements_out[request]
    sums = np.add.reduceat(given, starts), np.add.reduceat(got, starts)
    known = np.minimum.reduceat(np.minimum(given, got), starts) >= 0
    open_ended = np.minimum.reduceat(parts.outcome[rows], starts) < Outcome.RETIRED
    last = np.logical_and.reduceat(np.isin(parts.last[rows], journal.bounds[1:] - 1), starts)
    doubtful = (lengths == members) & known & ((sums[0] != sums[1]) | open_ended | last)
    return [
        _Exchange(rows[starts[one] : starts[one] + lengths[one]], int(sums[0][one]), int(sums[1][one]))
        for one in np.flatnonzero(doubtful).tolist()
    ]


def _exchanging(journal: Journal, parts: Parts) -> Bools:
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    exchanging = np.array([name == Operation.ALL_TO_ALL for name in names] + [False], np.bool_)
    found: Bools = exchanging[np.minimum(parts.request, len(names))]
    return found


def _judged(journal: Journal, parts: Parts, one: _Exchange, told: Mapping[int, Entry]) -> Disagreement | None:
    entries = [told.get(int(row)) for row in parts.row[one.rows]]
    known = [entry for entry in entries if entry is not None]
    cells = _wrong_cells(known) if len(known) == len(entries) else []
    if not cells and one.given == one.got:
        return None
    places = _in_all(cells) if cells else []
    culprits = [int(one.rows[place]) for place in places] or one.rows.tolist()
    group = journal.groups[int(parts.group[one.rows[0]])]
    detail = (
        f"all ranks together send {counted(one.given)} and expect {one.got:,}"
        if not cells
        else _told(cells[0], group.ranks)
    )
    return Disagreement(
        int(parts.group[one.rows[0]]),
        int(parts.sequence[one.rows[0]]),
        int(parts.round[one.rows[0]]),
        Aspect.SIZE,
        tuple(parts.rank[culprits].tolist()),
        len(places) != 1,
        next((row for row in one.rows.tolist() if row not in culprits), int(one.rows[0])),
        culprits[0],
        detail,
    )


def _wrong_cells(entries: Sequence[Entry]) -> list[_Cell]:
    """Where a member expects something else than is sent to it; none where sizes are not told one by one."""
    count = len(entries)
    sent = [[prod(size) for size in entry.input_sizes] for entry in entries]
    expected = [[prod(size) for size in entry.output_sizes] for entry in entries]
    if any(len(sizes) != count for sizes in (*sent, *expected)):
        return []
    return [
        _Cell(sender, receiver, sent[sender][receiver], expected[receiver][sender])
        for sender in range(count)
        for receiver in range(count)
        if sent[sender][receiver] != expected[receiver][sender]
    ]


def _in_all(cells: Sequence[_Cell]) -> list[int]:
    """The members that are in every wrong cell."""
    return sorted(set.intersection(*({cell.sender, cell.receiver} for cell in cells)))


def _told(cell: _Cell, ranks: Sequence[int]) -> str:
    return (
        f"rank {ranks[cell.sender]} sends {counted(cell.sent)} to rank {ranks[cell.receiver]}, "
        f"which expects {cell.expected:,}"
    )


# Collectives in which ranks do not name the same root. Dumps do not tell it; profiles and execution traces do.


@dataclass(frozen=True, slots=True)
class Roots(Columns):
    """One row for each call of which a root is known."""

    group: Int32s
    """Row of the journal's groups."""
    sequence: Int64s
    rank: Int32s
    root: Int64s
    """Its place in the group."""

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, rows: Collection[tuple[int, int, int, int]] = ()) -> Roots:
        """Roots from plain numbers."""
        table = np.array(list(rows), np.int64).reshape(-1, 4)
        return cls(table[:, 0].astype(np.int32), table[:, 1], table[:, 2].astype(np.int32), table[:, 3])


NO_ROOTS = Roots.of()


def root_disagreements(
    journal: Journal, parts: Parts, roots: Roots, judged: Collection[int]
) -> list[Disagreement]:
    """Those of all collectives but the ones that are `judged` already."""
    if not len(roots):
        return []
    root = _by_part(parts, roots)
    rows = np.flatnonzero(root != UNKNOWN)
    starts = starts_of(parts.round[rows])
    if not len(starts):
        return []
    differ = np.maximum.reduceat(root[rows], starts) != np.minimum.reduceat(root[rows], starts)
    ends = np.append(starts[1:], len(rows))
    found = (
        _disagreement_roots(journal, parts, rows[starts[one] : ends[one]], root)
        for one in np.flatnonzero(differ).tolist()
        if int(parts.round[rows[starts[one]]]) not in judged
    )
    return [one for one in found if one]


def rooted_entries(journal: Journal) -> Bools:
    """Which entries of the journal are of something that has a root."""
    rooted = [operation_of(journal.texts[code]) in ROOTED for code in journal.requests.operation.tolist()]
    found: Bools = np.array([*rooted, False], np.bool_)[journal.records.request]
    return found


def hangs_with_a_root(journal: Journal) -> bool:
    """Whether the last that some rank did has a root and is not finished."""
    last = journal.bounds[1:][np.diff(journal.bounds) > 0] - 1
    open_ended = (journal.records.state[last] < State.COMPLETED) & (journal.records.retired[last] != 1)
    return bool((rooted_entries(journal)[last] & open_ended).any())


def _by_part(parts: Parts, roots: Roots) -> Int64s:
    """The root that each part names, or UNKNOWN."""
    count = len(parts)
    columns: list[Any] = [
        np.concatenate([getattr(parts, name), getattr(roots, name)]) for name in ("group", "sequence", "rank")
    ]
    number = distinct(*columns)[0] if len(columns[0]) else columns[0]
    root = np.full(int(number.max(initial=-1)) + 1, UNKNOWN, np.int64)
    root[number[count:]] = roots.root
    found: Int64s = root[number[:count]]
    return found


def _disagreement_roots(journal: Journal, parts: Parts, rows: Int64s, root: Int64s) -> Disagreement | None:
    group = journal.groups[int(parts.group[rows[0]])]
    if _all_name_themselves(group, parts.rank[rows].tolist(), root[rows].tolist()):
        return None
    values, label, count = np.unique(root[rows], return_inverse=True, return_counts=True)
    most = int(count.argmax())
    tie = bool(np.count_nonzero(count == count[most]) > 1)
    odd = int(rows[label != most][0])
    others, own = _rank_at(group, int(values[most])), _rank_at(group, int(root[odd]))
    return Disagreement(
        int(parts.group[odd]),
        int(parts.sequence[odd]),
        int(parts.round[odd]),
        Aspect.ROOT,
        tuple(parts.rank[rows if tie else rows[label != most]].tolist()),
        tie,
        int(rows[label == most][0]),
        odd,
        f"root {own} or root {others}" if tie else f"root {own}, the others with root {others}",
    )


def _all_name_themselves(group: ProcessGroup, ranks: list[int], roots: list[int]) -> bool:
    """Old profiles name the rank itself where newer ones name the root."""
    return all(_rank_at(group, root) == rank for rank, root in zip(ranks, roots, strict=True))


def _rank_at(group: ProcessGroup, place: int) -> int:
    return group.ranks[place] if place < len(group.ranks) else place


# Disagreements to problems: one for each culprit and group, however many collectives show it.


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
