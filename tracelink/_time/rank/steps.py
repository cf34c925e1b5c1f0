"""Windows of time that numbers are given for: the steps of a rank, else all that was recorded."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, KnownInt64s, Table, Times
from tracelink._model.events import GPU_WORK, ON_THREAD, EventKind, Relation
from tracelink._model.graph import EventGraph
from tracelink._model.selection import EARLIEST, Numbers, steps_of

RECORDED = (*ON_THREAD, *GPU_WORK, EventKind.SYNCHRONIZATION)
"""Kinds of events that a profiler records while the program runs, unlike dumps and logs of the whole process."""


class Windows(Table, frozen=True):
    """One row for each step, in the order of time; windows do not overlap."""

    number: KnownInt64s
    """The number of the step; UNKNOWN for a recording without steps."""
    start: Times
    end: Times
    own_end: Times
    """When the annotation of the step ended on the host."""


class StepWindows(Struct, frozen=True):
    """The windows of a rank, and what is not exact about them."""

    windows: Windows
    recorded: tuple[int, int] | None
    """The first and the last time that the profiler recorded; None if it recorded nothing with a time."""
    nested: int = 0
    """Steps within other steps, which have no window."""


def windows_of(graph: EventGraph) -> StepWindows:
    """The windows of a rank.

    A step lasts from its start on the host to the start of the next one. The last one lasts until its own end, or
    until the end of the device work that it launched.
    """
    recorded = _recorded_span(graph)
    steps = steps_of(graph)
    if recorded is None:
        return StepWindows(Windows.empty(), None)
    if not len(steps.number):
        first, last = recorded
        whole = Windows.of(number=[UNKNOWN], start=[first], end=[last], own_end=[last])
        return StepWindows(whole, recorded)
    order = np.lexsort((-steps.end, steps.start))
    number, start = steps.number[order], steps.start[order]
    end = np.minimum(steps.end[order], recorded[1])
    outer = end > np.append(EARLIEST, np.maximum.accumulate(end)[:-1])
    number, start, end = number[outer], start[outer], end[outer]
    last = max(int(end[-1]), _end_of_launched(graph, int(start[-1]), int(end[-1])))
    windows = Windows(number, start, np.append(start[1:], last), end)
    return StepWindows(windows, recorded, int(np.count_nonzero(~outer)))


def _recorded_span(graph: EventGraph) -> tuple[int, int] | None:
    """The first start and the last end of what profilers record of a running program."""
    events = graph.events
    rows = np.flatnonzero(events.of_kind(*RECORDED) & events.timed)
    if not len(rows):
        return None
    return int(events.start[rows].min()), int(events.end_of(rows).max())


def _end_of_launched(graph: EventGraph, start: int, end: int) -> int:
    """When the last device work ended that was launched between these times; the end if there is none."""
    events = graph.events
    launches = graph.edges.where(Relation.LAUNCHES)
    on_device = events.of_kind(*GPU_WORK)[launches.target]
    launched_at = events.start[launches.source]
    inside = on_device & (launched_at >= start) & (launched_at < end)
    return int(events.end_of(launches.target[inside]).max(initial=end))


def only_steps(windows: Windows, wanted: Numbers) -> Windows:
    """The windows of these steps."""
    return windows.take(wanted.mark(windows.number))
