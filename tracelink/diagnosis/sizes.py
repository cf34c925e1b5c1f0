"""Sizes that have to fit together within one collective.

In an all-to-all each rank sends what the receiver expects. What is gathered is the input of all ranks, and what is
reduced and scattered is the output of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.disagreements import Disagreement, elements_in_words, entries_of
from tracelink.diagnosis.journal import Journal, operation_names, reread_entries
from tracelink.diagnosis.participation import Outcome, Parts
from tracelink.diagnosis.programs import Aspect
from tracelink.model.columns import UNKNOWN, Bools, Int8s, Int64s, distinct, starts_of
from tracelink.model.findings import Finding
from tracelink.model.operations import Operation, operation_of
from tracelink.model.records import Entry
from tracelink.model.text import collective_in_words, counted, operation_in_words

MOST_READ = 64
"""All-to-alls whose entries are read again: the last ones."""
UNEVEN_BY_NAME = ("v", "v_single")
"""How the names of gathers and scatters end whose ranks may pass different sizes."""


# All-to-alls: what each rank sends, and what the receiver expects.


def exchange_disagreements(journal: Journal, parts: Parts) -> tuple[list[Disagreement], list[Finding]]:
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
    own = [entries.get(int(row)) for row in parts.row[exchange.parts]]
    known = [entry for entry in own if entry is not None]
    cells = _wrong_cells(known) if len(known) == len(own) else []
    if not cells and exchange.sent == exchange.received:
        return None
    positions = _in_all(cells) if cells else []
    culprits = [int(exchange.parts[position]) for position in positions] or exchange.parts.tolist()
    first = int(exchange.parts[0])
    if cells:
        detail = _cell_in_words(cells[0], journal.groups[int(parts.group[first])].ranks)
    else:
        sent = elements_in_words(exchange.sent)
        detail = f"all ranks together send {sent} and expect {exchange.received:,}"
    return Disagreement(
        int(parts.group[first]),
        int(parts.sequence[first]),
        int(parts.collective[first]),
        Aspect.SIZE,
        tuple(parts.rank[culprits].tolist()),
        len(positions) != 1,
        next((part for part in exchange.parts.tolist() if part not in culprits), first),
        culprits[0],
        detail,
    )


class _Cell(Struct, frozen=True):
    """What one member sends to another, by their positions in the group."""

    sender: int
    receiver: int
    sent: int
    expected: int


def _wrong_cells(entries: Sequence[Entry]) -> list[_Cell]:
    """The pairs whose receiver expects another size than is sent; empty if sizes are not recorded for each pair."""
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
    """The members that are part of every wrong pair."""
    return sorted(set.intersection(*({cell.sender, cell.receiver} for cell in cells)))


def _cell_in_words(cell: _Cell, ranks: Sequence[int]) -> str:
    return (
        f"rank {ranks[cell.sender]} sends {elements_in_words(cell.sent)} to rank {ranks[cell.receiver]}, "
        f"which expects {cell.expected:,}"
    )


# Gathers and scatters: each rank by itself, input and output.


class _Fits(Struct, frozen=True):
    """Entries that gather from all ranks, or scatter to all, with known sizes."""

    rows: Int64s
    """Rows of the journal."""
    fit: Bools
    """Whether the larger tensor is as large as the smaller ones of all ranks."""

    def of_operations(self, journal: Journal, codes: Int64s) -> _Fits:
        """The entries of these operations."""
        kept = np.isin(_operations(journal, self.rows), codes)
        return _Fits(self.rows[kept], self.fit[kept])


def with_misfits(
    journal: Journal, parts: Parts, found: Sequence[Disagreement]
) -> tuple[list[Disagreement], list[str]]:
    """The disagreements and those of ranks whose own sizes do not fit; notes on operations that never fit.

    A misfit decides which of the ranks that disagree on sizes is wrong.
    """
    fits = _fits(journal)
    if fits.fit.all():
        return list(found), []
    operations = _operations(journal, fits.rows)
    wrong = np.unique(operations[~fits.fit])
    regular = np.intersect1d(wrong, operations[fits.fit])
    notes, judged = [], regular.tolist()
    for code in np.setdiff1d(wrong, regular).tolist():
        own = fits.of_operations(journal, np.array([code]))
        if _is_usual(journal, parts, own.rows):
            notes += _never_fits(journal, parts, own.rows)
        else:
            judged.append(code)
    known = {disagreement.collective: disagreement for disagreement in found}
    misfits = [
        misfit
        for misfit in _misfits(journal, parts, fits.of_operations(journal, np.array(judged, np.int64)))
        if _decides(misfit, known.get(misfit.collective)) and not _of_other_members(journal, parts, misfit)
    ]
    decided = {misfit.collective for misfit in misfits}
    return [*(each for each in found if each.collective not in decided), *misfits], notes


def _decides(misfit: Disagreement, other: Disagreement | None) -> bool:
    """Whether it shows more than ranks that disagree on sizes: that the sizes of some of them are right."""
    return other is None or (other.aspect is Aspect.SIZE and misfit.typical != misfit.deviating)


def _of_other_members(journal: Journal, parts: Parts, misfit: Disagreement) -> bool:
    """Whether it finished and fits to another number of ranks on all of them: the group had other members then."""
    if misfit.typical != misfit.deviating or not (_of_collective(parts, misfit) >= Outcome.RETIRED).any():
        return False
    small, large = _per_rank_and_in_all(journal)
    request = journal.records.request[parts.row[misfit.deviating]]
    return bool(small[request]) and int(large[request]) % int(small[request]) == 0


def _of_collective(parts: Parts, misfit: Disagreement) -> Int8s:
    """The outcomes of all parts of a collective."""
    first, end = np.searchsorted(parts.collective, [misfit.collective, misfit.collective + 1]).tolist()
    return parts.outcome[first:end]


def _operations(journal: Journal, rows: Int64s) -> Int64s:
    codes: Int64s = journal.requests.operation[journal.records.request[rows]].astype(np.int64)
    return codes


def _fits(journal: Journal) -> _Fits:
    """Only groups whose members a dump lists: others may have more members than are known."""
    small, large = _per_rank_and_in_all(journal)
    records = journal.records
    usable = np.append(small > 0, False)[records.request] & (records.group != UNKNOWN)
    rows = np.flatnonzero(usable & ~records.point_to_point & (records.sequence >= 0))
    if not len(rows):
        return _Fits(rows, np.ones(0, np.bool_))
    members = np.array([len(group.ranks) for group in journal.groups], np.int64)[records.group[rows]]
    own, all_ranks = small[records.request[rows]], large[records.request[rows]]
    fit = (all_ranks // np.maximum(members, 1) == own) & (all_ranks % np.maximum(members, 1) == 0)
    if fit.all():
        return _Fits(rows, fit)
    names = {
        group.name for recording in journal.recordings.values() for group in recording.groups if group.ranks
    }
    listed = np.array([group.name in names for group in journal.groups], np.bool_)[records.group[rows]]
    return _Fits(rows[listed], fit[listed])


def _per_rank_and_in_all(journal: Journal) -> tuple[Int64s, Int64s]:
    """For each request the elements of one rank and those of all ranks; 0 if one is unknown, or sizes may differ."""
    requests = journal.requests
    names = operation_names(journal)
    operations = [journal.strings[code] for code in requests.operation.tolist()]
    even = np.array([not name.endswith(UNEVEN_BY_NAME) for name in operations], np.bool_)
    gathers = np.array([name == Operation.ALL_GATHER for name in names], np.bool_)
    scatters = np.array([name == Operation.REDUCE_SCATTER for name in names], np.bool_)
    small = np.where(gathers, requests.elements_in, requests.elements_out)
    large = np.where(gathers, requests.elements_out, requests.elements_in)
    known = even & (gathers | scatters) & (small > 0) & (large > 0) & (requests.type_in == requests.type_out)
    return np.where(known, small, 0), np.where(known, large, 0)


def _is_usual(journal: Journal, parts: Parts, rows: Int64s) -> bool:
    """Whether an operation that never fits is recorded in another way: it finishes, or shows one tensor of several."""
    small, large = _per_rank_and_in_all(journal)
    request = journal.records.request[rows]
    finished = np.isin(rows, parts.last[parts.outcome >= Outcome.RETIRED])
    return bool(finished.any() or (small[request] == large[request]).all())


def _never_fits(journal: Journal, parts: Parts, rows: Int64s) -> list[str]:
    """A note, except on backends that record one tensor of several."""
    small, large = _per_rank_and_in_all(journal)
    request = journal.records.request[rows]
    if (small[request] == large[request]).all():
        return []
    row = int(rows[0])
    group = journal.groups[int(journal.records.group[row])]
    what = collective_in_words(journal.operation(row), int(journal.records.sequence[row]), group)
    return [
        f"Sizes fit in none of {counted(len(rows), 'call')} of {operation_in_words(journal.operation(row))}, some of "
        f"which finished: {what} has {_misfit_in_words(journal, row)}."
    ]


def _misfits(journal: Journal, parts: Parts, fits: _Fits) -> list[Disagreement]:
    """A disagreement for each collective with a misfit; the culprits are all ranks whose sizes do not fit."""
    part = _parts_of_rows(journal, parts, fits.rows)
    wrong = np.unique(part[~fits.fit])
    right = np.setdiff1d(part[fits.fit], wrong)
    disagreements = []
    for own in np.split(wrong, starts_of(parts.collective[wrong])[1:]) if len(wrong) else []:
        collective = int(parts.collective[own[0]])
        fitting = right[slice(*np.searchsorted(parts.collective[right], [collective, collective + 1]))]
        typical = int(fitting[0]) if len(fitting) else int(own[0])
        disagreements.append(
            Disagreement(
                int(parts.group[own[0]]),
                int(parts.sequence[own[0]]),
                collective,
                Aspect.FIT,
                tuple(parts.rank[own].tolist()),
                False,
                typical,
                int(own[0]),
                _detail(journal, parts, int(own[0]), fits),
            )
        )
    return disagreements


def _parts_of_rows(journal: Journal, parts: Parts, rows: Int64s) -> Int64s:
    """The part of each entry."""
    records = journal.records
    number, _ = distinct(
        np.concatenate([parts.group, records.group[rows]]),
        np.concatenate([parts.sequence, records.sequence[rows]]),
        np.concatenate([parts.rank, journal.rank[rows]]),
    )
    part_of = np.full(int(number.max(initial=-1)) + 1, UNKNOWN, np.int64)
    part_of[number[: len(parts)]] = np.arange(len(parts))
    found: Int64s = part_of[number[len(parts) :]]
    return found


def _detail(journal: Journal, parts: Parts, part: int, fits: _Fits) -> str:
    entries = entries_of(journal, parts, part)
    row = int(np.intersect1d(entries, fits.rows[~fits.fit])[0])
    tensors = [
        each for each in entries.tolist() if operation_of(journal.operation(each)) != Operation.COALESCED
    ]
    member = f" (call {tensors.index(row) + 1} of {len(tensors)})" if len(tensors) > 1 else ""
    return f"{_misfit_in_words(journal, row)}{member}"


def _misfit_in_words(journal: Journal, row: int) -> str:
    """`8 elements of input and 60 of output, but 8 ranks of 8 elements each give 64`."""
    request = int(journal.records.request[row])
    given, received = (
        int(column[request]) for column in (journal.requests.elements_in, journal.requests.elements_out)
    )
    members = len(journal.groups[int(journal.records.group[row])].ranks)
    gathers = operation_of(journal.operation(row)) == Operation.ALL_GATHER
    own, verb = (given, "give") if gathers else (received, "need")
    return (
        f"{elements_in_words(given)} of input and {received:,} of output, but {counted(members, 'rank')} of "
        f"{elements_in_words(own)} each {verb} {own * members:,}"
    )
