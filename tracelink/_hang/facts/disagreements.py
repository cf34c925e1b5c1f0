"""Disagreements: collectives in which ranks request different things.

Compared are operations, dtypes and sizes of requests, the split sizes of all-to-alls, and roots (known from profiles).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._hang.facts.journal import Journal, mark_requests, operation_names, reread_entries
from tracelink._hang.facts.participation import Outcome, Parts
from tracelink._hang.facts.programs import Aspect, Comparison
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, Table, distinct, starts_of
from tracelink._model.findings import Finding
from tracelink._model.operations import ROOTED, Operation
from tracelink._model.records import Entry, State


class Split(Struct, frozen=True):
    """What ranks of an all-to-all send, and what the receivers expect."""

    sent: int
    expected: int
    sender: int = UNKNOWN
    """UNKNOWN if only the sums of all ranks are known."""
    receiver: int = UNKNOWN


MOST_READ = 64
"""All-to-alls whose entries are read again: the last ones."""


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
    detail: Split | tuple[int, int] | None = None
    """Split sizes that do not match; or the root that a culprit names, and that of the others."""
    count: int = 1
    """How many collectives of the group show the same culprits."""


def disagreements_of(
    journal: Journal, parts: Parts, comparisons: Sequence[Comparison], roots: Roots
) -> list[Disagreement]:
    """All collectives whose parts differ in anything that is compared."""
    if not len(parts):
        return []
    compared = [(each.aspect, each.value, parts.request) for each in comparisons]
    if len(roots):
        compared.append((Aspect.ROOT, _root_ranks(journal, parts, roots), np.arange(len(parts))))
    starts = starts_of(parts.collective)
    lengths = np.diff(np.append(starts, len(parts)))
    differing = [_differing(value[number], starts, lengths) for _, value, number in compared]
    disagreements = []
    for collective in np.flatnonzero(np.logical_or.reduce(differing)).tolist():
        rows = np.arange(starts[collective], starts[collective] + lengths[collective])
        aspect = min(
            each for (each, *_), differs in zip(compared, differing, strict=True) if differs[collective]
        )
        columns = [value[number[rows]] for _, value, number in compared]
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
    other = label != most
    roots = int(columns[-1][other][0]), int(columns[-1][first[most]])
    return Disagreement(
        int(parts.group[rows[0]]),
        int(parts.sequence[rows[0]]),
        int(parts.collective[rows[0]]),
        aspect,
        tuple(parts.rank[rows if tie else rows[other]].tolist()),
        tie,
        int(rows[first[most]]),
        int(rows[other][0]),
        roots if aspect is Aspect.ROOT else None,
    )


def _completed(column: Int64s) -> Int64s:
    """Unknown values count as what most ranks have."""
    known = column[column != UNKNOWN]
    if not len(known) or len(known) == len(column):
        return column
    values, count = np.unique(known, return_counts=True)
    return np.where(column == UNKNOWN, values[count.argmax()], column)


# Split sizes: each rank of an all-to-all has to send what the receiver expects.


def compare_exchanges(journal: Journal, parts: Parts) -> tuple[list[Disagreement], list[Finding]]:
    """All-to-alls whose split sizes do not match, and findings on entries that could not be read again."""
    suspects = _suspect_exchanges(journal, parts)
    rows = [int(parts.row[part]) for exchange in suspects[-MOST_READ:] for part in exchange.parts.tolist()]
    entries, findings = reread_entries(journal, np.array(rows, np.int64))
    found = (_exchange_disagreement(journal, parts, exchange, entries) for exchange in suspects)
    return [disagreement for disagreement in found if disagreement], findings


class _Exchange(Struct, frozen=True):
    """An all-to-all of all members of a group."""

    parts: Int64s
    """One for each member, sorted by rank."""
    sent: int
    received: int
    """Total number of elements that the members expect."""


def _suspect_exchanges(journal: Journal, parts: Parts) -> list[_Exchange]:
    """Those whose sums differ, and those that are not finished."""
    rows = np.flatnonzero(_exchanging(journal, parts))
    starts = starts_of(parts.collective[rows])
    if not len(starts):
        return []
    lengths = np.diff(np.append(starts, len(rows)))
    members = np.array([len(group.ranks) for group in journal.groups], np.int64)[parts.group[rows[starts]]]
    request = parts.request[rows]
    sent, received = journal.requests.elements_in[request], journal.requests.elements_out[request]
    total_sent, total_received = np.add.reduceat(sent, starts), np.add.reduceat(received, starts)
    known = np.minimum.reduceat(np.minimum(sent, received), starts) >= 0
    unfinished = np.minimum.reduceat(parts.outcome[rows], starts) < Outcome.RETIRED
    last = np.logical_and.reduceat(np.isin(parts.last[rows], journal.bounds[1:] - 1), starts)
    suspect = (lengths == members) & known & ((total_sent != total_received) | unfinished | last)
    return [
        _Exchange(
            rows[starts[number] : starts[number] + lengths[number]],
            int(total_sent[number]),
            int(total_received[number]),
        )
        for number in np.flatnonzero(suspect).tolist()
    ]


def _exchanging(journal: Journal, parts: Parts) -> Bools:
    names = operation_names(journal)
    exchanging = np.array([name == Operation.ALL_TO_ALL for name in names] + [False], np.bool_)
    found: Bools = exchanging[np.minimum(parts.request, len(names))]
    return found


def _exchange_disagreement(
    journal: Journal, parts: Parts, exchange: _Exchange, entries: Mapping[int, Entry]
) -> Disagreement | None:
    """The culprits are the ranks that are part of every wrong pair."""
    members = exchange.parts
    own = [entry for row in parts.row[members].tolist() if (entry := entries.get(row))]
    wrong = _wrong_splits(own, parts.rank[members].tolist()) if len(own) == len(members) else []
    if not wrong and exchange.sent == exchange.received:
        return None
    in_all = set.intersection(*({split.sender, split.receiver} for split in wrong)) if wrong else set()
    culprit = np.isin(parts.rank[members], list(in_all)) if in_all else np.ones(len(members), np.bool_)
    first = int(members[0])
    return Disagreement(
        int(parts.group[first]),
        int(parts.sequence[first]),
        int(parts.collective[first]),
        Aspect.SIZE,
        tuple(parts.rank[members[culprit]].tolist()),
        len(in_all) != 1,
        int(members[~culprit][0]) if not culprit.all() else first,
        int(members[culprit][0]),
        wrong[0] if wrong else Split(exchange.sent, exchange.received),
    )


def _wrong_splits(entries: Sequence[Entry], ranks: Sequence[int]) -> list[Split]:
    """The pairs whose receiver expects another size than is sent; empty if sizes are not recorded for each pair."""
    count = len(entries)
    sent = [[prod(size) for size in entry.input_sizes] for entry in entries]
    expected = [[prod(size) for size in entry.output_sizes] for entry in entries]
    if any(len(sizes) != count for sizes in (*sent, *expected)):
        return []
    return [
        Split(sent[sender][receiver], expected[receiver][sender], ranks[sender], ranks[receiver])
        for sender, receiver in product(range(count), repeat=2)
        if sent[sender][receiver] != expected[receiver][sender]
    ]


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


def _root_ranks(journal: Journal, parts: Parts, roots: Roots) -> Int64s:
    """The rank that each part names as the root, or UNKNOWN; old profiles name the rank itself: that shows nothing."""
    count = len(parts)
    columns: list[Any] = [
        np.concatenate([getattr(parts, name), getattr(roots, name)]) for name in ("group", "sequence", "rank")
    ]
    number = distinct(*columns)[0]
    root = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
    root[number[count:]] = roots.root
    named = root[number[:count]]
    for part in np.flatnonzero(named != UNKNOWN).tolist():
        ranks = journal.groups[int(parts.group[part])].ranks
        named[part] = ranks[named[part]] if named[part] < len(ranks) else named[part]
    of_others = (named != UNKNOWN) & (named != parts.rank)
    named[~np.isin(parts.collective, parts.collective[of_others])] = UNKNOWN
    return named


def mark_rooted_entries(journal: Journal) -> Bools:
    """True where an entry of the journal requests an operation with a root."""
    found: Bools = np.append(mark_requests(journal, ROOTED), False)[journal.records.request]
    return found


def hangs_with_a_root(journal: Journal) -> bool:
    """True if the last entry of a rank has a root and is not finished."""
    last = journal.bounds[1:][np.diff(journal.bounds) > 0] - 1
    unfinished = (journal.records.state[last] < State.COMPLETED) & (journal.records.retired[last] != 1)
    return bool((mark_rooted_entries(journal)[last] & unfinished).any())
