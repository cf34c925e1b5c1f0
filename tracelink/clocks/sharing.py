"""Which ranks share a clock: those of one host, unless what they did together says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.events import NO_TIME, Int64s

TOLERANCE_NS = 100_000
"""Times of one clock that were brought to it from elsewhere (a GPU's) can be off by tens of microseconds."""

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Difference:
    """Two ranks of one host that cannot have the same clock: one left before the other had entered."""

    one: int
    other: int
    early_ns: int


@dataclass(frozen=True, slots=True)
class Shared:
    """For each rank the number of its clock; clocks are numbered by their lowest ranks."""

    clock: Int64s
    differences: list[Difference]


def share_clocks(
    meeting: Int64s, rank: Int64s, entered: Int64s, left: Int64s, hosts: Sequence[str]
) -> Shared:
    """The clocks of ranks with these hosts; one without a host has its own."""
    host = _hosts(hosts)
    differences = _differences(meeting, rank, entered, left, host)
    split = np.isin(host, host[[difference.one for difference in differences]])
    # a rank on its own is numbered after itself, a host after its lowest rank
    owner = np.where(split, np.arange(len(host)), host)
    return Shared(np.unique(owner, return_inverse=True)[1], differences)


def _hosts(hosts: Sequence[str]) -> Int64s:
    """For each rank the lowest rank of its host."""
    lowest: dict[str, int] = {}
    return np.array(
        [lowest.setdefault(name, rank) if name else rank for rank, name in enumerate(hosts)], np.int64
    )


def _differences(
    meeting: Int64s, rank: Int64s, entered: Int64s, left: Int64s, host: Int64s
) -> list[Difference]:
    """For each host whose ranks contradict each other the worst pair."""
    order = np.lexsort((host[rank], meeting))
    where, whose = meeting[order], host[rank[order]]
    new = np.append(True, (where[1:] != where[:-1]) | (whose[1:] != whose[:-1]))[: len(order)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return []
    waits = np.where(left[order] == NO_TIME, _NEVER, left[order])
    first, last = np.minimum.reduceat(waits, starts), np.maximum.reduceat(entered[order], starts)
    known = (first != _NEVER) & (last != NO_TIME)
    early = np.where(known, last, 0) - np.where(known, first, 0)
    bad = np.flatnonzero(early > TOLERANCE_NS)
    bad = bad[np.lexsort((-early[bad], whose[starts[bad]]))]
    bad = bad[np.unique(whose[starts[bad]], return_index=True)[1]]
    stops = np.append(starts[1:], len(order))
    return [_worst(order[starts[number] : stops[number]], rank, entered, left) for number in bad.tolist()]


def _worst(rows: Int64s, rank: Int64s, entered: Int64s, left: Int64s) -> Difference:
    """The first to leave and the last to enter of these rows."""
    one = rows[np.where(left[rows] == NO_TIME, _NEVER, left[rows]).argmin()]
    other = rows[entered[rows].argmax()]
    return Difference(int(rank[one]), int(rank[other]), int(entered[other] - left[one]))
