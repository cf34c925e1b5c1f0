"""Counters of what ranks do together: how many collectives are open, and how fast each group's are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelink.converters.perfetto.derived.levels import Levels, levels_of, thinned
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.text import Float64s
from tracelink.events import COUNT, Int64s
from tracelink.job import Job

if TYPE_CHECKING:
    from tracelink.converters.perfetto.group_tracks import GroupSeats

GIGABYTES_A_SECOND = "GB/s"

IN_FLIGHT = "collectives in flight"

KILOBYTES = 10**6
"""Of a gigabyte: rates are added up as whole numbers, so that nothing is left when all have ended."""


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """Counters of the process of all groups, and their samples."""

    numbers: Sequence[int]
    """Those of their tracks, behind those of all lanes."""
    names: Sequence[str]
    units: Sequence[str]
    counter: Int64s
    """For each sample the place of its counter."""
    time: Int64s
    value: Float64s


def group_counters(job: Job, seats: GroupSeats, numbering: Numbering) -> GroupCounters:
    """Collectives of all groups in flight, and the bus bandwidth of each group of which one is known."""
    open_now = _in_flight(seats)
    speed, groups = _bus_bandwidth(job, seats)
    levels = thinned(
        Levels(
            np.concatenate([open_now.counter, speed.counter + 1]),
            np.concatenate([open_now.time, speed.time]),
            np.concatenate([open_now.value, speed.value]),
        ),
        job.events,
    )
    counters = [(IN_FLIGHT, COUNT)]
    counters += [(f"bus {GIGABYTES_A_SECOND}, {group}", GIGABYTES_A_SECOND) for group in groups]
    used, counter = np.unique(levels.counter, return_inverse=True)
    first = 2 + len(seats.tids)
    return GroupCounters(
        [numbering.seat(number) for number in range(first, first + len(used))],
        [counters[place][0] for place in used.tolist()],
        [counters[place][1] for place in used.tolist()],
        counter,
        levels.time,
        np.where(levels.counter == 0, levels.value, levels.value / KILOBYTES),
    )


def _in_flight(seats: GroupSeats) -> Levels:
    """+1 when the first rank enters, -1 when the last has left; one that never ends stays in flight."""
    drawn = seats.drawn
    ends = drawn.end[~drawn.open_ended]
    return levels_of(
        np.zeros(len(drawn.start) + len(ends), np.int64),
        np.concatenate([drawn.start, ends]),
        np.repeat([1, -1], [len(drawn.start), len(ends)]),
    )


def _bus_bandwidth(job: Job, seats: GroupSeats) -> tuple[Levels, list[str]]:
    """The rate from the last entering to the last leaving, over which it was measured, and 0 between collectives."""
    rows = seats.drawn.row
    rate = np.nan_to_num(job.collectives.bus_gb_s[rows] * KILOBYTES, posinf=0).round().astype(np.int64)
    rated = np.flatnonzero(rate)
    _, first, counter = np.unique(job.collectives.group[rows[rated]], return_index=True, return_inverse=True)
    end, duration = job.collectives.end[rows[rated]], job.collectives.duration[rows[rated]]
    levels = levels_of(
        np.tile(counter, 2),
        np.concatenate([end - duration, end]),
        np.concatenate([rate[rated], -rate[rated]]),
    )
    return levels, [seats.titles[seat] for seat in seats.seat[rated[first]].tolist()]
