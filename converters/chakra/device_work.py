"""Which node put which work on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.excerpt import NONE, Excerpt
from tracelink.events import GPU_WORK, Int64s, Relation


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Work on devices, by the place of its node and then by start."""

    rows: Int64s
    node: Int64s
    """The place of the node for each."""
    unlaunched: int
    """Work that no recorded call launched."""
    unlinked: int
    """Work whose launch no node of the execution trace encloses."""


def device_work(part: Excerpt, node_around: Int64s) -> DeviceWork:
    """All work of a rank; `node_around` is the place of the innermost node around each row, itself included."""
    work = part.rows(*GPU_WORK)
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(part.events), NONE, np.int64)
    launch[launches.target] = launches.source
    call = launch[work]
    node = np.where(call == NONE, NONE, node_around[call])
    chosen = np.flatnonzero(node != NONE)
    order = np.lexsort((work[chosen], part.events.start[work[chosen]], node[chosen]))
    unlaunched = int(np.count_nonzero(call == NONE))
    return DeviceWork(
        work[chosen][order], node[chosen][order], unlaunched, len(work) - len(chosen) - unlaunched
    )
