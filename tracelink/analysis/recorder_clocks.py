"""How the times of ranks' recorders compare: whose come later than those of others, by its clock or by its habit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracelink.clocks.segments import Floats
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import ranges, stable_order, starts_of

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
