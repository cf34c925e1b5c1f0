"""Entries of all ranks side by side, in program order."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.messages import MessageEnds, match_messages, message_ends
from tracelink.diagnosis.participation import Outcome, outcomes, parts_of
from tracelink.diagnosis.programs import comparisons_of
from tracelink.linking.groups import UNDEFINED
from tracelink.model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Columns,
    Int32s,
    Int64s,
    distinct,
    stable_order,
    starts_of,
)
from tracelink.model.trace import ProcessGroup

# Which entries of different ranks belong together: one collective, or the two ends of one message.


COALESCED = "coalesced"
"""How operations are called that close others: `nccl:coalesced`, `nccl:ALLGATHER_coalesced`."""


@dataclass(frozen=True, slots=True)
class Belonging(Columns):
    """One row for each entry of the journal."""

    number: Int64s
    """Equal where entries belong together; UNKNOWN for those that only close others."""
    alike: Int64s
    """Equal also where groups side by side do the same under one number."""
    closing: Int64s
    """The entry that closes it and what was issued with it, and alone tells what became of them; or UNKNOWN."""
    source: Int64s
    target: Int64s
    """The ranks of the job at both ends of a message, or UNKNOWN."""
    message: Bools
    of_all: Bools
    """Whether all members of the group have to take part."""

    def __len__(self) -> int:
        return len(self.number)


def belonging_of(journal: Journal) -> Belonging:
    """What belongs to what, over all ranks."""
    ends = message_ends(journal, outcomes(journal))
    message = np.zeros(len(journal), np.bool_)
    message[ends.row] = True
    closes = _closes(journal)
    closing = _closings(journal, closes)
    closing[ends.row] = np.where(ends.batched, ends.closing, UNKNOWN)
    number, alike = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    alone = ~message
    alone[closing[closing != UNKNOWN]] = False
    number[alone], alike[alone] = _of_collectives(journal, np.flatnonzero(alone))
    for column, own in zip((number, alike), _of_messages(journal, ends), strict=True):
        column[ends.row] = column.max(initial=UNKNOWN) + 1 + own
    source, target = (np.full(len(journal), UNKNOWN, np.int64) for _ in range(2))
    source[ends.row] = np.where(ends.sends, ends.rank, ends.peer)
    target[ends.row] = np.where(ends.sends, ends.peer, ends.rank)
    of_all = ~message & ~closes & ~journal.records.point_to_point
    return Belonging(number, alike, closing, source, target, message, of_all)


def agreement(journal: Journal) -> Int64s:
    """For each request a number, equal where ranks agree that ask for it under one number."""
    compared = [one.value for one in comparisons_of(journal, ())]
    return distinct(*compared)[0] if compared else np.empty(0, np.int64)


def _closes(journal: Journal) -> Bools:
    """Which entries are without tensors and close what was issued under their number."""
    requests = journal.requests
    texts = [journal.strings[code].endswith(COALESCED) for code in requests.operation.tolist()]
    empty = (requests.elements_in < 0) & (requests.elements_out < 0)
    closes: Bools = (np.array(texts, np.bool_) & empty)[journal.records.request]
    return closes


def _closings(journal: Journal, closes: Bools) -> Int64s:
    """For each entry the one that closes it."""
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


def _of_collectives(journal: Journal, rows: Int64s) -> tuple[Int64s, Int64s]:
    """What is one by group and number, and what is alike; what one rank has twice is told apart by its order."""
    if not len(rows):
        return rows, rows
    records, rank = journal.records, journal.rank[rows]
    group, sequence = records.group[rows], records.sequence[rows]
    message = records.point_to_point[rows].astype(np.int8)
    alone = np.where((group == UNKNOWN) | (sequence < 0), rank, UNKNOWN)
    number, _ = distinct(group, message, sequence, alone)
    place = _place_among_equal(journal, rows, number)
    number, first = distinct(number, place)
    family, several = families(journal.groups)
    asked = np.where(several[group[first]], agreement(journal)[records.request[rows[first]]], UNKNOWN)
    columns = (family[group[first]], message[first], sequence[first], alone[first], place[first], asked)
    return number, distinct(*columns)[0][number]


def families(groups: Sequence[ProcessGroup]) -> tuple[Int64s, Bools]:
    """For each group, and for none at the end, a number that groups side by side share; and which ones do.

    Groups are side by side that are described alike and have no rank in common.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        if group.description not in ("", UNDEFINED):
            alike[group.description].append(row)
    family = np.append(np.arange(len(groups)), UNKNOWN)
    several = np.zeros(len(groups) + 1, np.bool_)
    for rows in alike.values():
        ranks = Counter(rank for row in rows for rank in groups[row].ranks)
        if len(rows) > 1 and max(ranks.values(), default=0) == 1 and all(groups[row].ranks for row in rows):
            family[rows] = rows[0]
            several[rows] = True
    return family, several


def _place_among_equal(journal: Journal, rows: Int64s, number: Int64s) -> Int64s:
    """How many of the same number and rank were issued before each."""
    order = stable_order(number)
    run, _ = distinct(number[order], journal.rank[rows[order]])
    starts = starts_of(run)
    length = np.diff(np.append(starts, len(rows)))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(
        starts - _forgotten(journal, rows[order], starts, length, number[order]), length
    )
    return place


def _forgotten(journal: Journal, rows: Int64s, starts: Int64s, length: Int64s, number: Int64s) -> Int64s:
    """How many a ring buffer forgot of each run: only of that in which it begins, and as many as others have more."""
    most = np.zeros(int(number[-1]) + 1, np.int64)
    np.maximum.at(most, number[starts], length)
    wrapped = [rank for rank, one in journal.recordings.items() if one.overwritten]
    begins = journal.bounds[:-1][np.isin(journal.ranks, wrapped)]
    forgotten: Int64s = np.where(np.isin(rows[starts], begins), most[number[starts]] - length, 0)
    return forgotten


def _of_messages(journal: Journal, ends: MessageEnds) -> tuple[Int64s, Int64s]:
    """What is one message, unless a rank sends it to itself; and what is alike, by its first end."""
    own = np.arange(len(ends))
    if not len(own):
        return own, own
    partner = match_messages(journal, parts_of(journal), ends).partner
    other = np.where((partner == UNKNOWN) | (ends.rank == ends.peer), own, partner)
    number = np.minimum(own, other)
    family, several = families(journal.groups)
    shared = several[ends.group[number]]
    columns = (family[ends.group[number]], ends.request[number], journal.records.sequence[ends.row[number]])
    return number, distinct(*columns, np.where(shared, UNKNOWN, number))[0]


# What ranks do together, line by line, in an order that is that of every rank's program.


@dataclass(frozen=True, slots=True)
class Programs:
    """What each rank does, one rank after the other and each in its order; one row for each thing that it does."""

    number: Int64s
    """Equal for what is done together."""
    alike: Int64s
    """Equal for what may share a line of a table, because different ranks do the same."""
    unit: Int64s
    """Equal for what a rank does one after the other, but in no order."""
    time: Int64s
    bounds: Int64s
    """Where each rank begins; one more for the end."""


def last_lines(programs: Programs, most: int | None) -> list[list[int]]:
    """The last `most` lines of a table of what is done, in an order that is that of each rank.

    What no rank orders is ordered by time. Where ranks contradict each other, most of them are right.
    """
    return list(reversed(_Backwards(programs, most).lines()))


class _Backwards:
    """Takes from the ends of all ranks what no rank does anything after, and writes lines from the last upwards."""

    def __init__(self, programs: Programs, most: int | None) -> None:
        self._programs = programs
        self._most = len(programs.number) if most is None else most
        self._first = programs.bounds[:-1].tolist()
        self._next = programs.bounds[1:].tolist()
        """Where the part of each rank ends that was not looked at yet."""
        self._open = [0] * len(self._next)
        """How many of the unit that each rank has come to are not taken yet."""
        self._top = [-1] * len(self._next)
        """The uppermost line of each rank."""
        self._below = set(range(len(self._next)))
        """The ranks that can still have something in the lines that are wanted."""
        count = int(programs.number.max(initial=-1)) + 1
        self._ranks = np.bincount(programs.number, minlength=count)
        self._alike = np.zeros(count, np.int64)
        self._alike[programs.number] = programs.alike
        self._time = _latest(programs)
        self._waiting: dict[int, list[int]] = defaultdict(list)
        """The ranks that have come to each number."""
        self._free: list[tuple[int, int]] = []
        self._taken: set[int] = set()
        self._lines: list[list[int]] = []
        self._lines_of: dict[int, list[int]] = defaultdict(list)
        """The lines of what is alike, upwards."""

    def lines(self) -> list[list[int]]:
        """The last first."""
        for rank in range(len(self._first)):
            self._step(rank)
        while self._below:
            number = -heappop(self._free)[1] if self._free else self._contradictory()
            self._taken.add(number)
            ranks = self._waiting.pop(number)
            self._write(number, ranks)
            for rank in ranks:
                self._open[rank] -= 1
                if not self._open[rank]:
                    self._step(rank)
        return self._lines[: self._most]

    def _write(self, number: int, ranks: Sequence[int]) -> None:
        """Into a line of what is alike above all that its ranks have, if there is one; else into a new one."""
        alike = self._lines_of[int(self._alike[number])]
        place = bisect(alike, max(self._top[rank] for rank in ranks))
        if place == len(alike):
            alike.append(len(self._lines))
            self._lines.append([])
        line = alike[place]
        self._lines[line].append(number)
        for rank in ranks:
            self._top[rank] = line
            if line >= self._most:
                self._below.discard(rank)

    def _step(self, rank: int) -> None:
        """Goes back to the unit before, or further where that is taken already."""
        while not self._open[rank] and self._next[rank] > self._first[rank]:
            unit = self._programs.unit[self._next[rank] - 1]
            while self._next[rank] > self._first[rank] and self._programs.unit[self._next[rank] - 1] == unit:
                self._next[rank] -= 1
                self._come(rank, int(self._programs.number[self._next[rank]]))
        if not self._open[rank]:
            self._below.discard(rank)

    def _come(self, rank: int, number: int) -> None:
        if number in self._taken:
            return
        self._open[rank] += 1
        waiting = self._waiting[number]
        waiting.append(rank)
        if len(waiting) == self._ranks[number]:
            heappush(self._free, (-int(self._time[number]), -number))

    def _contradictory(self) -> int:
        """What most ranks have come to, where no rank has come to anything that all agree on."""
        return max(
            self._waiting,
            key=lambda number: (len(self._waiting[number]), int(self._time[number]), number),
        )


def _latest(programs: Programs) -> Int64s:
    """For each number the latest time of all that is alike: so its order is the same for all who do it."""
    alike = np.full(int(programs.alike.max(initial=-1)) + 1, NO_TIME, np.int64)
    np.maximum.at(alike, programs.alike, programs.time)
    latest = np.full(int(programs.number.max(initial=-1)) + 1, NO_TIME, np.int64)
    latest[programs.number] = alike[programs.alike]
    return latest


# The entries of all ranks side by side: what belongs together in one row, in the order of the program.


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
