"""Who comes last, and what that costs the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.collectives import Collectives, Participations
from tracelink.communications import UNKNOWN
from tracelink.events import Columns, Int32s, Int64s


@dataclass(frozen=True, slots=True)
class Arrivals(Columns):
    """One row for each rank that takes part in a collective of which it is known who came when."""

    rank: Int32s
    collectives: Int64s
    """In how many of them it takes part."""
    last: Int64s
    """In how many it came last."""
    waited: Int64s
    """How long it waited for others in all, in ns."""
    waited_for: Int64s
    """How long others waited for it in all, in ns."""

    def __len__(self) -> int:
        return len(self.rank)


def arrivals(collectives: Collectives, participations: Participations) -> Arrivals:
    """Counts over all collectives; one in which all come at the same moment has no last rank."""
    compared = (collectives.skew > 0)[participations.collective] & (participations.wait != UNKNOWN)
    collective, wait = participations.collective[compared], participations.wait[compared]
    ranks, place = np.unique(participations.rank[compared], return_inverse=True)
    last = participations.rank[compared] == collectives.last_rank[collective]
    lost = lost_time(collectives, participations)
    waited, waited_for = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    np.add.at(waited, place, wait)
    np.add.at(waited_for, place[last], lost[collective[last]])
    return Arrivals(
        ranks,
        np.bincount(place, minlength=len(ranks)),
        np.bincount(place[last], minlength=len(ranks)),
        waited,
        waited_for,
    )


def lost_time(collectives: Collectives, participations: Participations) -> Int64s:
    """How long all ranks of each collective waited together, in ns, or UNKNOWN."""
    known = participations.wait != UNKNOWN
    lost = np.zeros(len(collectives), np.int64)
    np.add.at(lost, participations.collective[known], participations.wait[known])
    lost[np.bincount(participations.collective[known], minlength=len(collectives)) == 0] = UNKNOWN
    return lost
