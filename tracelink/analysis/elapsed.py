"""How long entries have not been finished, as far as the times of any recorder tell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tracelink.analysis.recorder_clocks import Lags, lags_of
from tracelink.analysis.usual_times import longest_finished
from tracelink.events import NO_TIME, Int64s
from tracelink.journal import Journal


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
