"""All-to-alls whose ranks do not expect what others send them, by the matrix of their split sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tracelink.analysis.comparing import Aspect
from tracelink.analysis.disagreements import Disagreement
from tracelink.analysis.mismatch_words import counted
from tracelink.analysis.parts import Outcome, Parts
from tracelink.analysis.retold import retold
from tracelink.diagnosis import Entry
from tracelink.events import Bools, Int64s
from tracelink.findings import Finding
from tracelink.journal import Journal
from tracelink.linking.coding import starts_of
from tracelink.operations import Operation, operation_of

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
