"""The entries of all ranks side by side: what belongs together in one row, in the order of the program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.analysis.belonging import Belonging, belonging_of
from tracelink.analysis.parts import Outcome, outcomes
from tracelink.analysis.program_order import Programs, last_lines
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
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
    message: Bools
    """Whether a row is a message."""
    source: Int64s
    target: Int64s
    """The ranks of the job at both ends of a message, or UNKNOWN."""
    earlier: int
    """Entries in rows before the first."""

    def __len__(self) -> int:
        return len(self.entry)


def matrix_of(journal: Journal, chosen: Bools, ranks: Int32s, last: int | None) -> Matrix:
    """The last rows of the chosen entries of some ranks; of all of them, if `last` is None."""
    belonging = belonging_of(journal)
    rows = np.flatnonzero(chosen & (belonging.number != UNKNOWN) & np.isin(journal.rank, ranks))
    at, count = _lines(journal, belonging, rows, ranks, last)
    column = np.searchsorted(ranks, journal.rank[rows])
    shown = at != UNKNOWN
    entry = np.full((count, len(ranks)), UNKNOWN, np.int64)
    entry[at[shown], column[shown]] = rows[shown]
    sample = entry.max(axis=1, initial=UNKNOWN)
    streams = _Streams(journal, belonging, ranks)
    stream = streams.of_cells(entry, sample)
    return Matrix(
        ranks,
        entry,
        np.append(belonging.closing, UNKNOWN)[entry],
        stream != UNKNOWN,
        (entry == UNKNOWN) & streams.lost(entry, stream, rows, at),
        sample,
        belonging.message[sample],
        belonging.source[sample],
        belonging.target[sample],
        int(np.count_nonzero(~shown)),
    )


def _lines(
    journal: Journal, belonging: Belonging, rows: Int64s, ranks: Int32s, last: int | None
) -> tuple[Int64s, int]:
    """The row of the matrix of each of these entries, UNKNOWN for those before the first; and how many there are."""
    if not len(rows):
        return rows, 0
    number, _ = distinct(belonging.number[rows])
    closing = belonging.closing[rows]
    unit = np.where(closing == UNKNOWN, rows, closing)
    bounds = np.searchsorted(journal.rank[rows], [*ranks.tolist(), int(ranks[-1]) + 1])
    programs = Programs(number, belonging.alike[rows], unit, journal.records.created[rows], bounds)
    lines = last_lines(programs, last)
    place = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
    for at, line in enumerate(lines):
        place[line] = at
    return place[number], len(lines)


class _Streams:
    """What ranks do one after the other: the collectives of a group, the messages between two of its ranks."""

    def __init__(self, journal: Journal, belonging: Belonging, ranks: Int32s) -> None:
        self._journal = journal
        self._ranks = ranks
        self._belonging = belonging
        message = belonging.message.astype(np.int8)
        group = journal.records.group
        columns = (group, message, belonging.source, belonging.target)
        self._number = distinct(*columns)[0] if len(journal) else np.empty(0, np.int64)

    def of_cells(self, entry: Cells, sample: Int64s) -> Cells:
        """For each cell the stream in which the rank has to take part in the row, or UNKNOWN."""
        stream = np.full(entry.shape, UNKNOWN, np.int64)
        row, column = np.nonzero(entry != UNKNOWN)
        entries = entry[row, column]
        stream[row, column] = self._number[entries]
        members = [np.isin(self._ranks, group.ranks) for group in self._journal.groups]
        of_group = np.array([*members, np.zeros(len(self._ranks), np.bool_)], np.bool_)
        group = self._journal.records.group[entries]
        _, first = distinct(row, group) if len(row) else (row, row)
        for one in first[self._belonging.of_all[entries[first]]].tolist():
            stream[row[one], of_group[group[one]]] = self._number[entries[one]]
        for end in (self._belonging.source, self._belonging.target):
            there = (end[sample, None] == self._ranks) & self._belonging.message[sample, None]
            stream = np.where(there, self._number[sample, None], stream)
        return stream

    def lost(self, entry: Cells, stream: Cells, rows: Int64s, at: Int64s) -> Marks:
        """Cells before the first entry of a buffer that wrapped, or after the last of a dump that breaks off."""
        recordings = [self._journal.recordings[rank] for rank in self._ranks.tolist()]
        wrapped = np.array([one.overwritten > 0 for one in recordings], np.bool_)
        broken = np.array([one.broken_off for one in recordings], np.bool_)
        if not len(rows) or not (wrapped.any() or broken.any()):
            return np.zeros(stream.shape, np.bool_)
        count = len(self._ranks)
        column = np.searchsorted(self._ranks, self._journal.rank[rows])
        known, first = distinct(self._number[rows], column)
        last = np.empty(len(first), np.int64)
        last[known] = np.arange(len(rows))
        keys = self._number[rows[first]] * count + column[first]
        wanted = stream * count + np.arange(count)
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        there = keys[found] == wanted
        place = np.arange(len(stream))[:, None]
        older, newer = self._beside(entry)
        before = np.where(there, place < at[first][found], older)
        after = np.where(there, place > at[last][found], newer)
        lost: Marks = (stream != UNKNOWN) & ((wrapped & before) | (broken & after))
        return lost

    def _beside(self, entry: Cells) -> tuple[Marks, Marks]:
        """Where a rank has none of a stream: whether it may have forgotten the row, or not come to tell of it.

        What others finished it was in; else times tell.
        """
        journal, belonging = self._journal, self._belonging
        told = np.where(
            np.append(belonging.closing, UNKNOWN)[entry] == UNKNOWN, entry, belonging.closing[entry]
        )
        finished = np.append(outcomes(journal), np.int8(Outcome.OPEN))[told].max(axis=1) >= Outcome.RETIRED
        created = np.append(journal.records.created, NO_TIME)
        time = created[entry].max(axis=1)[:, None]
        own = np.searchsorted(journal.ranks, self._ranks)
        begin, end = journal.bounds[own], journal.bounds[own + 1]
        since = created[np.where(begin < end, begin, UNKNOWN)]
        until = created[np.where(begin < end, end - 1, UNKNOWN)]
        return finished[:, None] | (time <= since), finished[:, None] | (time >= until)
