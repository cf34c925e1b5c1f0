"""Clocks of recorders; how long something lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.clock.observations import Floats
from tracelink.diagnosis.journal import Journal
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s, ranges, stable_order, starts_of

# How the times of ranks' recorders compare: whose come later than those of others, by its clock or by its habit.


NEWEST = 256
"""So many of the newest entries of each rank are looked at."""
MOST_ROUNDS = 32
"""And of a group so many of the newest rounds."""
NEARLY_ALWAYS = 0.25
"""A clock that is ahead is so in every round, who is late is so in some. Of two it cannot be told who is late."""


@dataclass(frozen=True, slots=True)
class Lags:
    """For each place among the journal's ranks how much later its times are than those of others."""

    lag: Floats
    """In ns."""
    union: Int64s
    """Lags compare where these are equal."""


def lags_of(journal: Journal) -> Lags:
    """By when ranks came to the same collectives, from group to group."""
    lag, union = np.zeros(len(journal.ranks)), np.arange(len(journal.ranks))
    for places, times in _meetings(journal):
        unions, count = np.unique(union[places], return_counts=True)
        if len(unions) == 1:
            continue
        rest = times - lag[places]
        largest = union[places] == unions[count.argmax()]
        settled = largest if count.max() > 1 else np.ones(len(places), np.bool_)
        later = rest - np.median(rest[:, settled], axis=1)[:, None]
        shift = np.quantile(later, NEARLY_ALWAYS if len(places) > 2 else 0.5, axis=0)
        for one in unions.tolist():
            members = union[places] == one
            if not (largest & members).any() or settled.all():
                lag[union == one] += np.median(shift[members])
        union[np.isin(union, unions)] = unions[0]
    return Lags(lag, union)


def _meetings(journal: Journal) -> Iterator[tuple[Int64s, Floats]]:
    """Of each group, the largest first, the places of its ranks and the times at which they came, round by round."""
    rows = _newest(journal)
    if not len(rows):
        return
    rows = rows[stable_order(journal.records.group[rows])]
    groups = np.split(rows, starts_of(journal.records.group[rows])[1:])
    places = [np.unique(np.searchsorted(journal.ranks, journal.rank[one])) for one in groups]
    for number in sorted(range(len(groups)), key=lambda number: -len(places[number])):
        if len(places[number]) > 1:
            times = _rounds(journal, groups[number], places[number])
            if len(times):
                yield places[number], times


def _newest(journal: Journal) -> Int64s:
    """The newest entries of each rank that tell when it came to a collective."""
    records, ends = journal.records, journal.bounds[1:]
    lengths = np.minimum(np.diff(journal.bounds), NEWEST)
    rows = ranges(ends - lengths, lengths)
    told = (records.sequence[rows] >= 0) & (records.created[rows] != NO_TIME)
    newest: Int64s = rows[told & ~records.point_to_point[rows] & (records.group[rows] != UNKNOWN)]
    return newest


def _rounds(journal: Journal, rows: Int64s, places: Int64s) -> Floats:
    """The times of the newest rounds in which all of these took part; a row for each round."""
    records = journal.records
    sequences, round_of = np.unique(records.sequence[rows], return_inverse=True)
    column = np.searchsorted(places, np.searchsorted(journal.ranks, journal.rank[rows]))
    times = np.full((len(sequences), len(places)), np.nan)
    first = int(records.created[rows].min())
    # of several entries of one collective the first counts
    times[round_of[::-1], column[::-1]] = records.created[rows][::-1] - first
    complete: Floats = times[~np.isnan(times).any(axis=1)]
    return complete[-MOST_ROUNDS:]


# How long what ranks do in a group takes, as far as it was finished.


def longest_finished(journal: Journal) -> Int64s:
    """For each group the longest time that any rank needed for anything, in ns; UNKNOWN where entries do not tell.

    Where its backend does not tell when it is over: until the rank went on to the next.
    """
    records = journal.records
    rows = np.flatnonzero((records.group != UNKNOWN) & (records.created != NO_TIME) & (records.retired == 1))
    completed = rows[records.completed[rows] != NO_TIME]
    longest = _longest(journal, completed, records.completed[completed])
    following = rows[_goes_on(journal, rows)]
    until_next = _longest(journal, following, records.created[following + 1])
    return np.where(longest == UNKNOWN, until_next, longest)


def _longest(journal: Journal, rows: Int64s, ends: Int64s) -> Int64s:
    longest = np.full(len(journal.groups), UNKNOWN, np.int64)
    np.maximum.at(longest, journal.records.group[rows], ends - journal.records.created[rows])
    return longest


def _goes_on(journal: Journal, rows: Int64s) -> Bools:
    """Whether the rank has another entry with a time after each of these."""
    after = np.minimum(rows + 1, len(journal) - 1)
    known = journal.records.created[after] != NO_TIME
    goes_on: Bools = (after > rows) & known & (journal.rank[after] == journal.rank[rows])
    return goes_on


# How long entries have not been finished, as far as the times of any recorder tell.


class Elapsed:
    """What recorders saw last, and how their clocks compare."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @cached_property
    def latest(self) -> Int64s:
        """The last time that each recorder tells, by place among the ranks; NO_TIME where it tells none."""
        records, bounds = self.journal.records, self.journal.bounds
        latest = np.full(len(self.journal.ranks), NO_TIME, np.int64)
        filled = np.diff(bounds) > 0
        for times in (records.created, records.started, records.completed) if filled.any() else ():
            latest[filled] = np.maximum(latest[filled], np.maximum.reduceat(times, bounds[:-1][filled]))
        return latest

    @cached_property
    def lags(self) -> Lags:
        """How much later than others each rank usually is, or its clock."""
        return lags_of(self.journal)

    @cached_property
    def usual(self) -> Int64s:
        """For each group how long the longest took that was finished there, in ns; UNKNOWN where nothing tells."""
        return longest_finished(self.journal)

    def since(self, rows: Mapping[int, int]) -> dict[int, int]:
        """For each rank how long ago it created this entry when anybody did anything last; at least, in ns.

        A recorder that is usually late may have a clock that is ahead: what it saw last counts from when the others
        would have seen it.
        """
        found = {}
        for rank, row in rows.items():
            created = int(self.journal.records.created[row])
            if created == NO_TIME:
                continue
            place = int(np.searchsorted(self.journal.ranks, rank))
            comparable = (self.lags.union == self.lags.union[place]) & (self.latest != NO_TIME)
            ahead = np.maximum(self.lags.lag[comparable] - self.lags.lag[place], 0)
            found[rank] = int((self.latest[comparable] - created - ahead.astype(np.int64)).max())
        return found

    def longest(self, rows: Mapping[int, int]) -> int | None:
        """Since the first of them was created; None where nothing tells of any time after that."""
        return max(self.since(rows).values(), default=0) or None
