"""The entries of all ranks side by side: what belongs together in one row, in the order of the program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.analysis.belonging import closings, ends_of, is_message, numbers_of
from tracelink.analysis.program_order import last_in_order
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct

Cells = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A row for each collective and each message, a column for each rank."""

    ranks: Int32s
    entry: Cells
    """The entry of the journal, or UNKNOWN."""
    closing: Cells
    """The entry that closes it and what was issued with it, and alone tells what became of it; or UNKNOWN."""
    member: Marks
    """Whether the rank has to take part."""
    lost: Marks
    """Whether the rank may have taken part, and its dump no longer tells."""
    sample: Int64s
    """One entry of each row."""
    earlier: int
    """Rows before the first."""

    def __len__(self) -> int:
        return len(self.entry)


def matrix_of(journal: Journal, chosen: Bools, ranks: Int32s, last: int | None) -> Matrix:
    """The last rows of the chosen entries of some ranks; of all of them, if `last` is None."""
    closing = closings(journal)
    closes = np.zeros(len(journal) + 1, np.bool_)
    closes[closing] = True
    rows = np.flatnonzero(chosen & ~closes[:-1] & np.isin(journal.rank, ranks))
    number = numbers_of(journal, rows)
    bounds = np.searchsorted(journal.rank[rows], [*ranks.tolist(), int(ranks.max(initial=0)) + 1])
    order = last_in_order(number, bounds, journal.records.created[rows], last)
    place = np.full(int(number.max(initial=0)) + 1, UNKNOWN, np.int64)
    place[order] = np.arange(len(order))
    shown = place[number] != UNKNOWN
    at = place[number[shown]], np.searchsorted(ranks, journal.rank[rows[shown]])
    entry = np.full((len(order), len(ranks)), UNKNOWN, np.int64)
    entry[at] = rows[shown]
    sample = entry.max(axis=1, initial=UNKNOWN)
    member = _members(journal, entry, ranks)
    return Matrix(
        ranks,
        entry,
        np.append(closing, UNKNOWN)[entry],
        member,
        member & _lost(journal, entry, np.diff(bounds), ranks),
        sample,
        len(np.unique(number)) - len(order),
    )


def _members(journal: Journal, entry: Cells, ranks: Int32s) -> Marks:
    """Who has to take part in each row: the members of the groups that are in it, or the ends of a message."""
    known = [np.isin(ranks, group.ranks) for group in journal.groups]
    of_group = np.array([*known, np.zeros(len(ranks), np.bool_)], np.bool_)
    row, column = np.nonzero(entry != UNKNOWN)
    entries = entry[row, column]
    group = journal.records.group[entries]
    message = is_message(journal, entries)
    member = np.zeros(entry.shape, np.bool_)
    _, first = distinct(row, group)
    for one in first[~message[first]].tolist():
        member[row[one]] |= of_group[group[one]]
    for end in ends_of(journal, entries[message]):
        member[row[message]] |= end[:, None] == ranks
    return member


def _lost(journal: Journal, entry: Cells, count: Int64s, ranks: Int32s) -> Marks:
    """What stands before the first entry of a buffer that wrapped, or after the last of a broken dump."""
    there = entry != UNKNOWN
    wrapped = np.array([journal.recordings[rank].overwritten > 0 for rank in ranks.tolist()], np.bool_)
    broken = np.array([journal.recordings[rank].broken_off for rank in ranks.tolist()], np.bool_)
    all_shown = there.sum(axis=0) == count
    before = np.logical_or.accumulate(there, axis=0)
    after = np.logical_or.accumulate(there[::-1], axis=0)[::-1]
    lost: Marks = (wrapped & all_shown & ~before) | (broken & ~after)
    return lost
