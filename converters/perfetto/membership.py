"""What the events of a rank say of the collectives that they are parts of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelink.collectives import Collectives
from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.schema import (
    AWAITED_ARGUMENT,
    GROUP_ARGUMENT,
    LAST_ARGUMENT,
    WAIT_ARGUMENT,
)
from tracelink.converters.perfetto.text import micros, quoted
from tracelink.events import Int64s
from tracelink.job import PARTICIPATION_ROWS, Job
from tracelink.trace import ProcessGroup

UNDEFINED = frozenset({"", "undefined"})
"""What torch describes a group as where nobody else does."""


def group_label(group: ProcessGroup) -> str:
    """How a group is called: by what it is for, else by its name."""
    return group.name if group.description in UNDEFINED else group.description


def numbers_in_group(collectives: Collectives, rows: Int64s) -> Int64s:
    """What collectives are called within their group: the number that sources give, else the place."""
    given = collectives.sequence[rows]
    return np.where(given == UNKNOWN, collectives.order[rows], given)


def memberships(job: Job, rank: int) -> Mapping[int, bytes]:
    """For the rows of a rank that stand for its part in a collective: members of a JSON object."""
    mine = np.flatnonzero(job.participations.rank == rank)
    which = job.participations.collective[mine]
    last = np.where(job.collectives.skew[which] == UNKNOWN, UNKNOWN, job.collectives.last_rank[which])
    rest = [
        waited + _lastness(last_rank, rank)
        for waited, last_rank in zip(_waits(job.participations.wait[mine]), last.tolist(), strict=True)
    ]
    labels = [group_label(group) for group in job.groups]
    groups = job.collectives.group[which].tolist()
    numbers = numbers_in_group(job.collectives, which).tolist()
    names = [f"{labels[group]} #{number}" for group, number in zip(groups, numbers, strict=True)]
    places: dict[int, list[int]] = {}
    for column in PARTICIPATION_ROWS:
        rows = getattr(job.participations, column)[mine]
        known = np.flatnonzero(rows != UNKNOWN)
        for place, row in zip(known.tolist(), rows[known].tolist(), strict=True):
            places.setdefault(row, []).append(place)
    key = b'"%s":' % GROUP_ARGUMENT.encode()
    return {
        row: key + quoted(", ".join([names[place] for place in of])) + rest[of[-1]]
        for row, of in places.items()
    }


def _waits(wait: Int64s) -> list[bytes]:
    key = b',"%s":' % WAIT_ARGUMENT.encode()
    return [
        key + text if known else b""
        for text, known in zip(micros(wait), (wait != UNKNOWN).tolist(), strict=True)
    ]


def _lastness(last_rank: int, rank: int) -> bytes:
    if last_rank == UNKNOWN:
        return b""
    if last_rank == rank:
        return b',"%s":true' % LAST_ARGUMENT.encode()
    return b',"%s":%d' % (AWAITED_ARGUMENT.encode(), last_rank)
