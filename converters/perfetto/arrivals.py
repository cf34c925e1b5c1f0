"""Who entered each collective last, and when: instants within slices, where ranks did not all enter at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.text import micros, numbers
from tracelink.events import Bools, Int64s
from tracelink.job import Job


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The last arrivals, in the order of their collectives."""

    place: Int64s
    """Of the collective among those that are drawn."""
    time: Int64s
    rank: Int64s
    skew: Int64s

    def __len__(self) -> int:
        return len(self.place)

    def within(self, low: int, high: int) -> Arrivals:
        """Those of some of the collectives that are drawn."""
        some = slice(*np.searchsorted(self.place, [low, high]).tolist())
        return Arrivals(self.place[some], self.time[some], self.rank[some], self.skew[some])

    def names(self) -> tuple[list[str], Int64s]:
        """The distinct names, and which one each has."""
        ranks, which = np.unique(self.rank, return_inverse=True)
        return [f"rank {rank} last" for rank in ranks.tolist()], which

    def facts(self) -> list[bytes]:
        """The arguments of each, as JSON objects."""
        known = zip(numbers(self.rank), micros(self.skew), strict=True)
        return [b'{"rank":%s,"skew_us":%s}' % pair for pair in known]


def arrivals_of(job: Job, row: Int64s, start: Int64s, end: Int64s, awaited: Bools) -> Arrivals:
    """Of these collectives, drawn from `start` to `end`; in those that are `awaited` nobody is the last yet."""
    skew, rank = job.collectives.skew[row], job.collectives.last_rank[row].astype(np.int64)
    place = np.flatnonzero((skew > 0) & (rank != UNKNOWN) & ~awaited & (end > start))
    time = np.minimum(start[place] + skew[place], end[place] - 1)
    return Arrivals(place, time, rank[place], skew[place])
