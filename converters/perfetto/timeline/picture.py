"""One rank ready to be written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.timeline.derived import (
    NOT_CAUGHT,
    Caught,
    drawn_samples,
    hung_rows,
    with_hung_names,
    with_outstanding,
)
from tracelink.converters.perfetto.timeline.drawing import (
    Drawing,
    Lanes,
    Openings,
    assign_lanes,
    draw,
    halves,
    openings_of,
)
from tracelink.converters.perfetto.timeline.layout import Layout, Numbering, Seats, lay_out, seats
from tracelink.errors import Finding, Severity
from tracelink.model.columns import Int64s
from tracelink.model.events import EventKind
from tracelink.model.graph import EventGraph

PIECE_ROWS = 1 << 17
"""Rows of a piece at least: less is not worth a process."""

MOST_PIECES = 64


@dataclass(frozen=True, slots=True)
class Picture:
    """Where and when everything of one rank stands that will be written."""

    graph: EventGraph
    drawing: Drawing
    layout: Layout
    lanes: Lanes
    seats: Seats
    seat: Int64s
    openings: Openings

    @property
    def events(self) -> int:
        """How many events are drawn."""
        return int(np.count_nonzero(self.drawing.shown))

    @property
    def large(self) -> bool:
        """Whether it is worth several processes."""
        return len(self.graph) >= PIECE_ROWS

    @property
    def findings(self) -> list[Finding]:
        """What is not drawn as it is."""
        found = [*self.drawing.findings]
        if moved := int(np.count_nonzero(self.lanes.lane)):
            message = "slices that overlap others of their thread without nesting stand in lanes of their own"
            found.append(Finding(Severity.INFO, "overlap", message, moved))
        if unwritten := len(self.graph.counters) - int(np.count_nonzero(drawn_samples(self.graph))):
            message = "samples that are no numbers are not drawn"
            found.append(Finding(Severity.INFO, "counter_not_finite", message, unwritten))
        return found


def picture_of(
    graph: EventGraph,
    base: int | None,
    numbering: Numbering,
    left_out: Collection[EventKind] = (),
    caught: Caught = NOT_CAUGHT,
) -> Picture:
    """The picture of a graph of one rank without the kinds of events that are left out."""
    graph = with_outstanding(graph, numbering)
    hung = hung_rows(graph, caught)
    graph = with_hung_names(graph, hung)
    drawing = draw(graph, base, left_out, hung, caught.end)
    rows = np.flatnonzero(drawing.shown)
    tracks = np.unique(graph.events.track[rows]).tolist()
    samples = np.unique(graph.counters.track[drawn_samples(graph)]).tolist()
    layout = lay_out(graph, tracks, samples, numbering)
    thread = layout.thread_of_track[graph.events.track[rows]]
    start, end = halves(drawing.start[rows], drawing.duration[rows])
    lanes = assign_lanes(thread, start, end)
    used = np.ones(len(layout.threads), np.int64)
    if lanes.lane.any():
        np.maximum.at(used, thread, lanes.lane + 1)
    places = seats(layout, used, numbering)
    seat = np.zeros(len(graph), np.int64)
    seat[rows] = places.first[thread] + lanes.lane
    openings = openings_of(drawing, seat, rows[lanes.order])
    return Picture(graph, drawing, layout, lanes, places, seat, openings)
