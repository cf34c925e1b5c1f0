"""Work on devices in the order in which it was launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.ordering.lanes import lane_of_tracks
from tracelink.events import GPU_WORK, NO_TIME, Columns, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class Launched(Columns):
    """A row for each kernel, copy and memset; a stream works them off in the order of their launches."""

    row: Int64s
    call: Int64s
    """The row of the call that launched it, or NONE: it was launched before the recording."""
    begun: Int64s
    """When the call began; NO_TIME, which is before all times, where there is none."""
    thread: Int64s
    """The lane of the call, or NONE."""
    stream: Int64s
    """The lane of the work."""

    def __len__(self) -> int:
        return len(self.row)


def launched_work(part: Excerpt) -> Launched:
    """All work of a rank; of one launch (a graph) in the order in which it started."""
    events = part.events
    work = part.rows(*GPU_WORK)
    work = work[events.timed[work]]
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(events), NONE, np.int64)
    launch[launches.target] = launches.source
    lane = lane_of_tracks(part.graph.tracks)
    call = launch[work]
    begun = np.where(call == NONE, NO_TIME, events.start[call]) if len(work) else work
    order = np.lexsort((work, events.start[work], begun))
    work, call, begun = work[order], call[order], begun[order]
    if not len(work):
        return Launched(work, call, begun, work, work)
    thread = np.where(call == NONE, NONE, lane[events.track[call]])
    return Launched(work, call, begun, thread, lane[events.track[work]])
