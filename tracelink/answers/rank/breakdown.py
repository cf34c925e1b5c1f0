"""What ran when on a rank: computation, communication and copies as stretches of time, and how they cover windows.

Computation covers communication, and both cover copies; what is left of a window is idle. So the parts of a window
add up to its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracelink.answers.model.intervals import NOTHING, covered, difference
from tracelink.answers.model.results import WorkIn
from tracelink.answers.rank.steps import Windows
from tracelink.model.columns import Bools, Int64s, KnownInt32s, KnownRows, Table, Times, UInt8s, for_each_text
from tracelink.model.events import GPU_WORK, ON_THREAD, EventKind
from tracelink.model.graph import EventGraph
from tracelink.model.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.model.ranges import Spans

COMPUTE, COMMUNICATION, COPY = range(3)
"""Values of `Work.part`."""

DATA_LOADER = re.compile(r"DataLoader")
"""In names of operators and annotations of `torch.utils.data`."""


@dataclass(frozen=True, slots=True)
class Work(Table):
    """One row for each kernel, copy and memset with a start and an end."""

    row: KnownRows
    track: KnownInt32s
    part: UInt8s
    start: Times
    end: Times


@dataclass(frozen=True, slots=True)
class Breakdown:
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
        kernels = Spans.of(np.append(compute.starts, exposed.starts), np.append(compute.ends, exposed.ends))
        exposed_copies = difference(copies, kernels)
        busy = Spans.of(
            np.append(kernels.starts, exposed_copies.starts), np.append(kernels.ends, exposed_copies.ends)
        )
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


def breakdown_of(graph: EventGraph) -> tuple[Breakdown, Work]:
    """The breakdown of a rank by its device work; by the operators on its threads if it has none."""
    work = device_work(graph)
    if len(work):
        return Breakdown.of(WorkIn.KERNELS, *(_spans(work, part) for part in range(3))), work
    if graph.events.of_kind(*ON_THREAD).any():
        return Breakdown.of(WorkIn.OPERATORS, *_on_threads(graph), NOTHING), work
    return Breakdown.of(WorkIn.NOTHING, NOTHING, NOTHING, NOTHING), work


def device_work(graph: EventGraph) -> Work:
    """The work on devices, in the order of the graph."""
    events = graph.events
    rows = np.flatnonzero(events.of_kind(*GPU_WORK) & events.timed & (events.duration >= 0))
    kernel = events.kind[rows] == EventKind.KERNEL
    part = np.where(kernel, COMPUTE, COPY).astype(np.uint8)
    part[kernel] = np.where(_named(graph, rows[kernel], COLLECTIVE_KERNEL), COMMUNICATION, COMPUTE)
    start = events.start[rows]
    return Work(rows, events.track[rows], part, start, start + events.duration[rows])


def _spans(work: Work, part: int) -> Spans:
    mine = work.part == part
    return Spans.of(work.start[mine], work.end[mine])


def _named(graph: EventGraph, rows: Int64s, pattern: re.Pattern[str]) -> Bools:
    return for_each_text(
        graph.strings, graph.events.name[rows], lambda text: pattern.search(text) is not None, np.bool_, False
    )


def _on_threads(graph: EventGraph) -> tuple[Spans, Spans]:
    """Computation and communication of a rank without device work.

    Communication are its operators and the annotations of backends; computation are all other operators but those of
    data loaders, without the communication of the same thread.
    """
    events = graph.events
    ended = events.timed & (events.duration >= 0)
    operators = np.flatnonzero((events.kind == EventKind.OPERATOR) & ended)
    annotations = np.flatnonzero((events.kind == EventKind.ANNOTATION) & ended)
    communicates = _named(graph, operators, COLLECTIVE_OPERATOR)
    loads = _named(graph, operators, DATA_LOADER)
    talking = np.append(
        operators[communicates], annotations[_named(graph, annotations, COLLECTIVE_ANNOTATION)]
    )
    computing = operators[~communicates & ~loads]
    found: list[Spans] = []
    for track in np.unique(events.track[computing]).tolist():
        mine, theirs = (
            Spans.of(events.start[some], events.end[some])
            for some in (computing[events.track[computing] == track], talking[events.track[talking] == track])
        )
        found.append(difference(mine, theirs))
    starts = np.concatenate([np.empty(0, np.int64), *(spans.starts for spans in found)])
    ends = np.concatenate([np.empty(0, np.int64), *(spans.ends for spans in found)])
    return Spans.of(starts, ends), Spans.of(events.start[talking], events.end[talking])
