"""What ran when on a rank: computation, communication and copies as stretches of time, and how they cover windows.

Computation covers communication, and both cover copies; what is left of a window is idle. So the parts of a window
add up to its length.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import Int64s
from tracelink._model.events import ON_THREAD, EventKind
from tracelink._model.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_OPERATOR
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import NOTHING, covered, difference, union
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.host import DATA_LOADER, compiling
from tracelink._time.rank.steps import Windows
from tracelink._time.rank.view import COMMUNICATION, COMPUTE, COPY, RankView, matching


class Breakdown(Struct, frozen=True):
    """When a rank computed, communicated and copied."""

    work: WorkIn
    compute: Spans
    communication: Spans
    """All of it, also what computation covers."""
    copies: Spans
    exposed_communication: Spans
    exposed_copies: Spans
    busy: Spans

    @classmethod
    def of(cls, work: WorkIn, compute: Spans, communication: Spans, copies: Spans) -> Breakdown:
        """The breakdown of these stretches."""
        exposed = difference(communication, compute)
        kernels = union(compute, exposed)
        exposed_copies = difference(copies, kernels)
        busy = union(kernels, exposed_copies)
        return cls(work, compute, communication, copies, exposed, exposed_copies, busy)

    def idle(self, windows: Windows) -> Spans:
        """When nothing ran within the windows."""
        return difference(Spans.of(windows.start, windows.end), self.busy)

    def parts(self, windows: Windows) -> dict[str, Int64s]:
        """For each window its duration and its parts, by the names of the fields of `Step`."""
        shares = {
            "compute_ns": self.compute,
            "exposed_communication_ns": self.exposed_communication,
            "exposed_copy_ns": self.exposed_copies,
            "communication_ns": self.communication,
            "copy_ns": self.copies,
        }
        duration = windows.end - windows.start
        idle = duration - covered(self.busy, windows.start, windows.end)
        parts = {name: covered(spans, windows.start, windows.end) for name, spans in shares.items()}
        return {"duration_ns": duration, "idle_ns": idle, **parts}


def breakdown_of(view: RankView) -> Breakdown:
    """The breakdown of a rank by its device work; by the operators on its threads if it has none."""
    work = view.work
    if len(work):
        parts = (COMPUTE, COMMUNICATION, COPY)
        marked = [work.part == part for part in parts]
        return Breakdown.of(WorkIn.KERNELS, *(Spans.of(work.start[mine], work.end[mine]) for mine in marked))
    if view.events.of_kind(*ON_THREAD).any():
        return Breakdown.of(WorkIn.OPERATORS, *_on_threads(view), NOTHING)
    return Breakdown.of(WorkIn.NOTHING, NOTHING, NOTHING, NOTHING)


def _on_threads(view: RankView) -> tuple[Spans, Spans]:
    """Computation and communication of a rank without device work.

    Communication are its operators and the annotations of backends; computation are all other operators but those of
    data loaders, without the communication of the same thread and without phases of torch.compile.
    """
    events = view.events
    operators, annotations = view.rows(EventKind.OPERATOR), view.rows(EventKind.ANNOTATION)
    communicates = view.named(operators, matching(COLLECTIVE_OPERATOR))
    loads = view.named(operators, lambda text: DATA_LOADER in text)
    talking = np.append(
        operators[communicates], annotations[view.named(annotations, matching(COLLECTIVE_ANNOTATION))]
    )
    computing = operators[~communicates & ~loads]
    other = np.append(talking, compiling(view))
    lane = view.lane[events.track]
    found = []
    for number in np.unique(lane[computing]).tolist():
        mine, theirs = (
            Spans.of(events.start[some], events.end_of(some))
            for some in (computing[lane[computing] == number], other[lane[other] == number])
        )
        found.append(difference(mine, theirs))
    return union(*found), Spans.of(events.start[talking], events.end_of(talking))
