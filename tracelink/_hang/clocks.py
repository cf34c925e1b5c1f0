"""Clocks of recorders: by how much they differ, and how long work has been unfinished by any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink._hang.journal import Journal
from tracelink._model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Float64s,
    Int64s,
    ranges,
    stable_order,
    starts_of,
)

NEWEST = 256
"""How many of the newest entries of each rank are used: a few steps; over longer times clocks drift."""
MOST_COLLECTIVES = 32
"""How many of the newest collectives of a group are used: a rank is on time in a quarter of them."""
NEARLY_ALWAYS = 0.25
"""Quantile of lags: a clock that is ahead is ahead in all collectives, a late rank is late in some.

With two ranks it cannot be known which of them is late.
"""


# Lags of ranks.


class Lags(Struct, frozen=True):
    """For each rank of the journal how much later its times are than those of others."""

    lag: Float64s
    """In ns."""
    component: Int64s
    """Lags are comparable where these are equal."""


def lags_of(journal: Journal, most: int = MOST_COLLECTIVES) -> Lags:
    """Lags from the times at which ranks joined the `most` newest collectives of each group, group by group."""
    lag, component = np.zeros(len(journal.ranks)), np.arange(len(journal.ranks))
    for ranks, times in _arrivals_by_group(journal, most):
        components, count = np.unique(component[ranks], return_counts=True)
        if len(components) == 1:
            continue
        corrected = times - lag[ranks]
        largest = component[ranks] == components[count.argmax()]
        reference = largest if count.max() > 1 else np.ones(len(ranks), np.bool_)
        later = corrected - np.median(corrected[:, reference], axis=1)[:, None]
        shift = np.quantile(later, NEARLY_ALWAYS if len(ranks) > 2 else 0.5, axis=0)
        for number in components.tolist():
            members = component[ranks] == number
            if not (largest & members).any() or reference.all():
                lag[component == number] += np.median(shift[members])
        component[np.isin(component, components)] = components[0]
    return Lags(lag, component)


def _arrivals_by_group(journal: Journal, most: int) -> Iterator[tuple[Int64s, Float64s]]:
    """For each group, the largest first: its rank indexes, and their arrival times, a row for each collective."""
    rows = _newest(journal)
    if not len(rows):
        return
    rows = rows[stable_order(journal.records.group[rows])]
    groups = np.split(rows, starts_of(journal.records.group[rows])[1:])
    ranks = [np.unique(np.searchsorted(journal.ranks, journal.rank[group])) for group in groups]
    for number in sorted(range(len(groups)), key=lambda number: -len(ranks[number])):
        if len(ranks[number]) > 1:
            times = _arrivals(journal, groups[number], ranks[number])[-most:]
            if len(times):
                yield ranks[number], times


def _newest(journal: Journal) -> Int64s:
    """The newest entries of each rank that show when it joined a collective."""
    records, ends = journal.records, journal.bounds[1:]
    lengths = np.minimum(np.diff(journal.bounds), NEWEST)
    rows = ranges(ends - lengths, lengths)
    known = (records.sequence[rows] >= 0) & (records.created[rows] != NO_TIME)
    newest: Int64s = rows[known & ~records.point_to_point[rows] & (records.group[rows] != UNKNOWN)]
    return newest


def _arrivals(journal: Journal, rows: Int64s, ranks: Int64s) -> Float64s:
    """Arrival times of the collectives that all of these ranks joined, a row for each, the newest last."""
    records = journal.records
    sequences, collective = np.unique(records.sequence[rows], return_inverse=True)
    column = np.searchsorted(ranks, np.searchsorted(journal.ranks, journal.rank[rows]))
    times = np.full((len(sequences), len(ranks)), np.nan)
    first = int(records.created[rows].min())
    # of several entries of one collective the first one counts
    times[collective[::-1], column[::-1]] = records.created[rows][::-1] - first
    complete: Float64s = times[~np.isnan(times).any(axis=1)]
    return complete


# Durations.


class Elapsed:
    """How long entries have been unfinished, by the times of all recorders."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @cached_property
    def latest(self) -> Int64s:
        """The latest time in each recording, by rank index; NO_TIME if it has none."""
        records, bounds = self.journal.records, self.journal.bounds
        latest = np.full(len(self.journal.ranks), NO_TIME, np.int64)
        filled = np.diff(bounds) > 0
        for times in (records.created, records.started, records.completed) if filled.any() else ():
            latest[filled] = np.maximum(latest[filled], np.maximum.reduceat(times, bounds[:-1][filled]))
        return latest

    @cached_property
    def lags(self) -> Lags:
        """By how much each rank, or its clock, usually is late."""
        return lags_of(self.journal)

    @cached_property
    def longest_finished(self) -> Int64s:
        """For each group the longest duration of finished work, in ns; UNKNOWN if none."""
        return longest_finished_work(self.journal)

    def since(self, rows: Mapping[int, int]) -> dict[int, int]:
        """For each rank how long its entry has existed at the last time that any recorder saw, at least, in ns.

        A rank that is usually late may have a clock that is ahead: its times are corrected by its lag.
        """
        elapsed = {}
        for rank, row in rows.items():
            created = int(self.journal.records.created[row])
            if created == NO_TIME:
                continue
            index = int(np.searchsorted(self.journal.ranks, rank))
            comparable = (self.lags.component == self.lags.component[index]) & (self.latest != NO_TIME)
            ahead = np.maximum(self.lags.lag[comparable] - self.lags.lag[index], 0)
            elapsed[rank] = int((self.latest[comparable] - created - ahead.astype(np.int64)).max())
        return elapsed

    def on_clock_of(self, other: int, rank: int, time: int) -> int:
        """A time of a rank by the clock of another one, unless their clocks cannot be compared."""
        own, there = np.searchsorted(self.journal.ranks, [rank, other]).tolist()
        comparable = time != NO_TIME and self.lags.component[own] == self.lags.component[there]
        return time + round(self.lags.lag[there] - self.lags.lag[own]) if comparable else time

    def longest(self, rows: Mapping[int, int]) -> int | None:
        """The longest of these; None if no recorder saw any later time."""
        return max(self.since(rows).values(), default=0) or None


def longest_finished_work(journal: Journal) -> Int64s:
    """For each group the longest duration of finished work on any rank, in ns; UNKNOWN if none.

    For backends that do not record completion: until the rank's next entry.
    """
    records = journal.records
    rows = np.flatnonzero((records.group != UNKNOWN) & (records.created != NO_TIME) & (records.retired == 1))
    completed = rows[records.completed[rows] != NO_TIME]
    longest = _longest(journal, completed, records.completed[completed])
    following = rows[_has_next(journal, rows)]
    until_next = _longest(journal, following, records.created[following + 1])
    return np.where(longest == UNKNOWN, until_next, longest)


def _longest(journal: Journal, rows: Int64s, ends: Int64s) -> Int64s:
    longest = np.full(len(journal.groups), UNKNOWN, np.int64)
    np.maximum.at(longest, journal.records.group[rows], ends - journal.records.created[rows])
    return longest


def _has_next(journal: Journal, rows: Int64s) -> Bools:
    """Whether the rank has a later entry with a time."""
    after = np.minimum(rows + 1, len(journal) - 1)
    known = journal.records.created[after] != NO_TIME
    goes_on: Bools = (after > rows) & known & (journal.rank[after] == journal.rank[rows])
    return goes_on
