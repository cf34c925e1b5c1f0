"""How long what ranks do in a group takes, as far as it was finished."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.journal import Journal


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
