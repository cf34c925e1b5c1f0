"""The matrix of entries: a row for each collective or message, a column for each rank, in program order."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.members import group_by_description
from tracelink._hang.facts.messages import MessageEnds, find_message_ends, match_messages
from tracelink._hang.facts.participation import Outcome, find_outcomes, parts_of
from tracelink._hang.facts.programs import comparisons_of
from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int32s,
    Int64s,
    Table,
    distinct,
    stable_order,
    starts_of,
)
from tracelink._model.trace import ProcessGroup

COALESCED = "coalesced"
"""Suffix of entries that close others: `nccl:coalesced`, `nccl:ALLGATHER_coalesced`."""
Cells = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


# The matrix.


class Matrix(Struct, frozen=True):
    """A row for each collective and each message, a column for each rank."""

    ranks: Int32s
    entry: Cells
    """Entry of the journal, or UNKNOWN."""
    closing: Cells
    """The entry that closes it and has its final state, or UNKNOWN."""
    member: Marks
    """True where the rank has to take part."""
    lost: Marks
    """True where the rank may have taken part, and its dump does not show it."""
    sample: Int64s
    """One entry of each row."""
    message: Bools
    """True where a row is a message."""
    source: Int64s
    target: Int64s
    """The ranks of the job at both ends of a message, or UNKNOWN."""
    earlier: int
    """Number of entries in earlier rows."""

    def __len__(self) -> int:
        return len(self.entry)

    def part(self, begin: int, end: int) -> Matrix:
        """These rows."""
        names = ("entry", "closing", "member", "lost", "sample", "message", "source", "target")
        return replace(self, **{name: getattr(self, name)[begin:end] for name in names})


def matrix_of(journal: Journal, chosen: Bools, ranks: Int32s, last: int | None) -> Matrix:
    """The last rows of the chosen entries of some ranks; all rows if `last` is None."""
    matching = match_entries(journal)
    rows = np.flatnonzero(chosen & (matching.number != UNKNOWN) & np.isin(journal.rank, ranks))
    at, count = _line_of_entries(journal, matching, rows, ranks, last)
    column = np.searchsorted(ranks, journal.rank[rows])
    shown = at != UNKNOWN
    entry = np.full((count, len(ranks)), UNKNOWN, np.int64)
    entry[at[shown], column[shown]] = rows[shown]
    sample = entry.max(axis=1, initial=UNKNOWN)
    member = _members(journal, matching, ranks, entry, sample)
    return Matrix(
        ranks,
        entry,
        np.append(matching.closing, UNKNOWN)[entry],
        member,
        member & (entry == UNKNOWN) & _lost(journal, matching, ranks, entry, column, at),
        sample,
        matching.message[sample],
        matching.source[sample],
        matching.target[sample],
        int(np.count_nonzero(~shown)),
    )


def _line_of_entries(
    journal: Journal, matching: EntryMatching, rows: Int64s, ranks: Int32s, last: int | None
) -> tuple[Int64s, int]:
    """The row of each of these entries, UNKNOWN for earlier ones; and the number of rows."""
    if not len(rows):
        return rows, 0
    number, _ = distinct(matching.number[rows])
    closing = matching.closing[rows]
    unit = np.where(closing == UNKNOWN, rows, closing)
    bounds = np.searchsorted(journal.rank[rows], [*ranks.tolist(), int(ranks[-1]) + 1])
    order_of_ranks = ProgramOrder(number, matching.similar[rows], unit, journal.records.created[rows], bounds)
    lines = find_last_lines(order_of_ranks, last)
    line_of = np.full(int(number.max()) + 1, UNKNOWN, np.int64)
    for number_of_row, line in enumerate(lines):
        line_of[line] = number_of_row
    return line_of[number], len(lines)


def _members(journal: Journal, matching: EntryMatching, ranks: Int32s, entry: Cells, sample: Int64s) -> Marks:
    """True where the rank has to take part: in the collective of its group, or as an end of the message."""
    member: Marks = entry != UNKNOWN
    row, column = np.nonzero(member)
    collective = matching.collective[entry[row, column]]
    row, column = row[collective], column[collective]
    of_group = np.array([np.isin(ranks, group.ranks) for group in journal.groups], np.bool_)
    group = journal.records.group[entry[row, column]]
    pair = np.unique(row * (len(journal.groups) + 1) + group) if len(row) else row
    row, group = np.divmod(pair, len(journal.groups) + 1)
    np.logical_or.at(member, row, of_group[group] if len(pair) else member[:0])
    for end in (matching.source, matching.target):
        member |= (end[sample, None] == ranks) & matching.message[sample, None]
    return member


def _lost(
    journal: Journal, matching: EntryMatching, ranks: Int32s, entry: Cells, column: Int64s, at: Int64s
) -> Marks:
    """True where a buffer that wrapped, or a truncated dump, may have lost it.

    It is before the first entry that is left, or after the last one, or others have finished it.
    """
    recordings = [journal.recordings[rank] for rank in ranks.tolist()]
    wrapped = np.array([recording.overwritten > 0 for recording in recordings], np.bool_)
    broken = np.array([recording.broken_off for recording in recordings], np.bool_)
    if not (wrapped.any() or broken.any()):
        return np.zeros(entry.shape, np.bool_)
    first, last = np.full(len(ranks), len(entry)), np.full(len(ranks), UNKNOWN)
    np.minimum.at(first, column, at)
    np.maximum.at(last, column, at)
    closing = np.append(matching.closing, UNKNOWN)[entry]
    outcome = np.append(find_outcomes(journal), np.int8(Outcome.OPEN))[
        np.where(closing == UNKNOWN, entry, closing)
    ]
    best = outcome.max(axis=1, initial=Outcome.OPEN)[:, None]
    finished, retired = best >= Outcome.FINISHED, best >= Outcome.RETIRED
    line = np.arange(len(entry))[:, None]
    older, newer = (line < first) | (retired & (line < last)), (line > last) | (retired & (line > first))
    lost: Marks = (wrapped & (older | finished)) | (broken & (newer | finished))
    return lost


# Matching entries of different ranks.


class EntryMatching(Table, frozen=True):
    """Which entries of different ranks belong together: to one collective, or to one message. A row for each entry."""

    number: Int64s
    """Equal for entries that belong together; UNKNOWN for those that only close others."""
    similar: Int64s
    """Equal also for entries of groups side by side that do the same under one sequence number."""
    closing: Int64s
    """The entry that closes it and has its final state; or UNKNOWN."""
    source: Int64s
    target: Int64s
    """The ranks of the job at both ends of a message, or UNKNOWN."""
    message: Bools
    collective: Bools
    """True where all members of the group have to take part."""


def match_entries(journal: Journal) -> EntryMatching:
    """Matches the entries of all ranks."""
    ends = find_message_ends(journal, find_outcomes(journal))
    message = np.zeros(len(journal), np.bool_)
    message[ends.row] = True
    closes = _closes(journal)
    closing = _closings(journal, closes)
    closing[ends.row] = np.where(ends.batched, ends.closing, UNKNOWN)
    number, similar = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    single = ~message
    single[closing[closing != UNKNOWN]] = False
    number[single], similar[single] = _match_collectives(journal, np.flatnonzero(single))
    for column, own in zip((number, similar), _match_messages(journal, ends), strict=True):
        column[ends.row] = column.max(initial=UNKNOWN) + 1 + own
    source, target = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    source[ends.row] = np.where(ends.sends, ends.rank, ends.peer)
    target[ends.row] = np.where(ends.sends, ends.peer, ends.rank)
    collective = ~message & ~closes & ~journal.records.point_to_point
    return EntryMatching(number, similar, closing, source, target, message, collective)


def _closes(journal: Journal) -> Bools:
    """True where an entry has no tensors and closes what was issued under their number."""
    requests = journal.requests
    texts = [name.endswith(COALESCED) for name in journal.recorded_operations()]
    empty = (requests.elements_in < 0) & (requests.elements_out < 0)
    closes: Bools = (np.array(texts, np.bool_) & empty)[journal.records.request]
    return closes


def _closings(journal: Journal, closes: Bools) -> Int64s:
    """For each entry the one that closes it, or UNKNOWN."""
    records = journal.records
    closed = np.full(len(journal), UNKNOWN, np.int64)
    rows = np.flatnonzero(closes & (records.sequence >= 0))
    if not len(rows):
        return closed
    message = records.point_to_point.astype(np.int8)
    issued, _ = distinct(journal.rank, records.group, message, records.sequence)
    closing = np.full(int(issued.max()) + 1, UNKNOWN, np.int64)
    closing[issued[rows]] = rows
    others = np.flatnonzero(~closes & (records.sequence >= 0))
    closed[others] = closing[issued[others]]
    return closed


def _match_collectives(journal: Journal, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Numbers by group and sequence number, and similar numbers; repeated entries of a rank differ by their order."""
    if not len(rows):
        return rows, rows
    records, rank = journal.records, journal.rank[rows]
    group, sequence = records.group[rows], records.sequence[rows]
    message = records.point_to_point[rows].astype(np.int8)
    alone = np.where((group == UNKNOWN) | (sequence < 0), rank, UNKNOWN)
    number, _ = distinct(group, message, sequence, alone)
    occurrence = _occurrence(journal, rows, number)
    number, first = distinct(number, occurrence)
    family, has_siblings = group_families(journal.groups)
    agreeing, _ = distinct(*(comparison.value for comparison in comparisons_of(journal, ())))
    agreement = np.where(has_siblings[group[first]], agreeing[records.request[rows[first]]], UNKNOWN)
    columns = (family[group], message, sequence, alone, occurrence)
    return number, distinct(*(column[first] for column in columns), agreement)[0][number]


def group_families(groups: Sequence[ProcessGroup]) -> tuple[Int64s, Bools]:
    """For each group a number shared by groups side by side, and whether there are any; last for no group.

    Groups are side by side if they have the same description and no rank in common.
    """
    family = np.append(np.arange(len(groups)), UNKNOWN)
    has_siblings = np.zeros(len(groups) + 1, np.bool_)
    for rows in group_by_description(groups, range(len(groups))):
        ranks = Counter(rank for row in rows for rank in groups[row].ranks)
        if len(rows) > 1 and max(ranks.values(), default=0) == 1 and all(groups[row].ranks for row in rows):
            family[rows] = rows[0]
            has_siblings[rows] = True
    return family, has_siblings


def _occurrence(journal: Journal, rows: Int64s, number: Int64s) -> Int64s:
    """How many entries of the same number and rank come before each.

    If a ring buffer begins with them, it lost as many as another rank has more.
    """
    order = stable_order(number)
    run, _ = distinct(number[order], journal.rank[rows[order]])
    starts = starts_of(run)
    length = np.diff(np.append(starts, len(rows)))
    most = np.zeros(int(number.max()) + 1, np.int64)
    np.maximum.at(most, number[order][starts], length)
    wrapped = [rank for rank, recording in journal.recordings.items() if recording.overwritten]
    cut = np.isin(rows[order][starts], journal.bounds[:-1][np.isin(journal.ranks, wrapped)])
    lost = np.where(cut, most[number[order][starts]] - length, 0)
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = np.arange(len(rows)) - np.repeat(starts - lost, length)
    return occurrence


def _match_messages(journal: Journal, ends: MessageEnds) -> tuple[Int64s, Int64s]:
    """Numbers of messages, and similar numbers by their first end; a rank's message to itself is two ends."""
    own = np.arange(len(ends))
    if not len(own):
        return own, own
    partner = match_messages(journal, parts_of(journal), ends).partner
    partner_or_own = np.where((partner == UNKNOWN) | (ends.rank == ends.peer), own, partner)
    number = np.minimum(own, partner_or_own)
    family, has_siblings = group_families(journal.groups)
    shared = has_siblings[ends.group[number]]
    columns = (family[ends.group[number]], ends.request[number], journal.records.sequence[ends.row[number]])
    return number, distinct(*columns, np.where(shared, UNKNOWN, number))[0]


# Program order.


class ProgramOrder(Struct, frozen=True):
    """What each rank does, rank by rank and in its order; one row for each collective or message of a rank."""

    number: Int64s
    """Equal for what ranks do together."""
    similar: Int64s
    """Equal for what may share a line of a table."""
    unit: Int64s
    """Equal for consecutive work of a rank that has no order, such as a batch."""
    time: Int64s
    bounds: Int64s
    """The first row of each rank; one more for the end."""


def find_last_lines(order_of_ranks: ProgramOrder, most: int | None) -> list[list[int]]:
    """The last `most` lines of a table, in an order that agrees with that of each rank.

    Work that no rank orders is ordered by time. If ranks contradict each other, most of them are right.
    """
    return list(reversed(_LinesFromTheEnd(order_of_ranks, most).lines()))


class _LinesFromTheEnd:
    """Takes from the ends of all ranks the work that no rank does anything after, and writes lines upwards."""

    def __init__(self, order_of_ranks: ProgramOrder, most: int | None) -> None:
        self._programs = order_of_ranks
        self._most = len(order_of_ranks.number) if most is None else most
        self._first = order_of_ranks.bounds[:-1].tolist()
        self._next = order_of_ranks.bounds[1:].tolist()
        """The end of the rows of each rank that are still to be visited."""
        self._open = [0] * len(self._next)
        """How many of the current unit of each rank are not taken yet."""
        self._top = [-1] * len(self._next)
        """The highest line of each rank."""
        self._below = set(range(len(self._next)))
        """The ranks that may still have work in the requested lines."""
        count = int(order_of_ranks.number.max(initial=-1)) + 1
        self._ranks = np.bincount(order_of_ranks.number, minlength=count)
        self._alike = np.zeros(count, np.int64)
        self._alike[order_of_ranks.number] = order_of_ranks.similar
        self._time = _latest(order_of_ranks)
        self._waiting: dict[int, list[int]] = defaultdict(list)
        """The ranks that have reached each number."""
        self._free: list[tuple[int, int]] = []
        self._taken: set[int] = set()
        self._line_of_entries: list[list[int]] = []
        self._lines_of: dict[int, list[int]] = defaultdict(list)
        """The lines of similar work, upwards."""

    def lines(self) -> list[list[int]]:
        """The last line first."""
        for rank in range(len(self._first)):
            self._step(rank)
        while self._below:
            number = -heappop(self._free)[1] if self._free else self._most_reached()
            self._taken.add(number)
            ranks = self._waiting.pop(number)
            self._write(number, ranks)
            for rank in ranks:
                self._open[rank] -= 1
                if not self._open[rank]:
                    self._step(rank)
        return self._line_of_entries[: self._most]

    def _write(self, number: int, ranks: Sequence[int]) -> None:
        """Into a line of similar work above all lines of its ranks, if there is one; else into a new line."""
        lines = self._lines_of[int(self._alike[number])]
        index = bisect(lines, max(self._top[rank] for rank in ranks))
        if index == len(lines):
            lines.append(len(self._line_of_entries))
            self._line_of_entries.append([])
        line = lines[index]
        self._line_of_entries[line].append(number)
        for rank in ranks:
            self._top[rank] = line
            if line >= self._most:
                self._below.discard(rank)

    def _step(self, rank: int) -> None:
        """Goes back to the previous unit, skipping those that are taken."""
        while not self._open[rank] and self._next[rank] > self._first[rank]:
            unit = self._programs.unit[self._next[rank] - 1]
            while self._next[rank] > self._first[rank] and self._programs.unit[self._next[rank] - 1] == unit:
                self._next[rank] -= 1
                self._reach(rank, int(self._programs.number[self._next[rank]]))
        if not self._open[rank]:
            self._below.discard(rank)

    def _reach(self, rank: int, number: int) -> None:
        if number in self._taken:
            return
        self._open[rank] += 1
        waiting = self._waiting[number]
        waiting.append(rank)
        if len(waiting) == self._ranks[number]:
            heappush(self._free, (-int(self._time[number]), -number))

    def _most_reached(self) -> int:
        """What most ranks have reached, if no number was reached by all of its ranks."""
        return max(
            self._waiting,
            key=lambda number: (len(self._waiting[number]), int(self._time[number]), number),
        )


def _latest(order_of_ranks: ProgramOrder) -> Int64s:
    """For each number the latest time of all similar ones: so that its order is the same for all ranks."""
    similar = np.full(int(order_of_ranks.similar.max(initial=-1)) + 1, NO_TIME, np.int64)
    np.maximum.at(similar, order_of_ranks.similar, order_of_ranks.time)
    latest = np.full(int(order_of_ranks.number.max(initial=-1)) + 1, NO_TIME, np.int64)
    latest[order_of_ranks.number] = similar[order_of_ranks.similar]
    return latest
