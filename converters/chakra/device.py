"""Work on devices, and which node of the host put it there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.host import Host
from tracelink.events import GPU_WORK, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class Device:
    """Kernels, copies and memsets, those of graphs and those without a recorded launch too."""

    row: Int64s
    parent: Int64s
    """The place on the host of the innermost node around the launch, or NONE."""
    after: Int64s
    """The place of the last node that began before the launch on the same thread, where none is around it."""

    def __len__(self) -> int:
        return len(self.row)


def device_of(part: Excerpt, host: Host) -> Device:
    """All work of a rank that has a time."""
    rows = part.rows(*GPU_WORK)
    rows = rows[part.events.timed[rows]]
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(part.events), NONE, np.int64)
    launch[launches.target] = launches.source
    call = launch[rows]
    parent = np.where(call == NONE, NONE, np.append(host.around, NONE)[call])
    outside = np.flatnonzero((parent == NONE) & (call != NONE))
    after = np.full(len(rows), NONE, np.int64)
    after[outside] = last_before(part, host, call[outside])
    return Device(rows, parent, after)


def last_before(part: Excerpt, host: Host, calls: Int64s) -> Int64s:
    """For each call the place of the last node of its thread that began before it, or NONE."""
    events = part.events
    track, time = events.track[calls].astype(np.int64), events.start[calls]
    found = np.full(len(calls), NONE, np.int64)
    for lane in np.unique(track).tolist():
        places = np.flatnonzero((host.lane == lane) & host.timed)
        places = places[np.argsort(host.start[places], kind="stable")]
        mine = np.flatnonzero(track == lane)
        before = np.searchsorted(host.start[places], time[mine], side="right") - 1
        if len(places):
            found[mine] = np.where(before < 0, NONE, places[before])
    return found
