"""What the events of a rank say of the collectives that they are parts of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tracelink.collectives import Collectives
from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.schema import (
    AWAITED_ARGUMENT,
    COLLECTIVE_ARGUMENT,
    LAST_ARGUMENT,
    WAIT_ARGUMENT,
)
from tracelink.converters.perfetto.text import micros, quoted
from tracelink.events import Int64s
from tracelink.job import Job, event_of
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
    """For the rows that stand for participations of a rank: members to add to their arguments."""
    mine = np.flatnonzero(job.participations.rank == rank)
    row = event_of(job.participations)[mine] if len(mine) else mine
    mine, row = mine[row != UNKNOWN], row[row != UNKNOWN]
    which = job.participations.collective[mine]
    last = np.where(job.collectives.skew[which] == UNKNOWN, UNKNOWN, job.collectives.last_rank[which])
    labels = [group_label(group) for group in job.groups]
    names: dict[int, list[str]] = {}
    rest: dict[int, bytes] = {}
    for event, group, number, (waited, last_rank) in zip(
        row.tolist(),
        job.collectives.group[which].tolist(),
        numbers_in_group(job.collectives, which).tolist(),
        _waits(job.participations.wait[mine], last),
        strict=True,
    ):
        names.setdefault(event, []).append(f"{labels[group]} #{number}")
        rest[event] = waited + _lastness(last_rank, rank)
    return {
        event: b'"%s":%s%s' % (COLLECTIVE_ARGUMENT.encode(), quoted(", ".join(of)), rest[event])
        for event, of in names.items()
    }


def _waits(wait: Int64s, last: Int64s) -> Iterator[tuple[bytes, int]]:
    """What is said of each waiting, and who came last."""
    key = b',"%s":' % WAIT_ARGUMENT.encode()
    for text, known, rank in zip(micros(wait), (wait != UNKNOWN).tolist(), last.tolist(), strict=True):
        yield key + text if known else b"", rank


def _lastness(last_rank: int, rank: int) -> bytes:
    if last_rank == UNKNOWN:
        return b""
    if last_rank == rank:
        return b',"%s":true' % LAST_ARGUMENT.encode()
    return b',"%s":%d' % (AWAITED_ARGUMENT.encode(), last_rank)
