"""One rank's picture: where and when everything of it stands, and the text of that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto.derived.outstanding import with_outstanding
from tracelink.converters.perfetto.drawing import Drawing, draw
from tracelink.converters.perfetto.flows import Flows
from tracelink.converters.perfetto.hung import NOT_CAUGHT, Caught, hung_rows, with_hung_names
from tracelink.converters.perfetto.lanes import Lanes, assign_lanes, halves
from tracelink.converters.perfetto.layout import Layout, Seats, lay_out, seats
from tracelink.converters.perfetto.links import SaidOf
from tracelink.converters.perfetto.marks import drawn_samples, write_counters, write_flows
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.openings import Openings, openings_of
from tracelink.converters.perfetto.parts import Piece, spans
from tracelink.converters.perfetto.slices import sheet, write_rows
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.events import EventKind, Int64s
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph

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


def pieces_of(picture: Picture, flows: Flows, said: SaidOf, wanted: Wanted) -> Sequence[Piece]:
    """Slices and instants by source and rows, then arrows, then counters; `said` are more arguments of some."""
    graph, drawing = picture.graph, picture.drawing
    texts = sheet(graph, drawing, picture.seats, picture.seat, flows.bindings, said, wanted)
    pieces: list[Piece] = [
        partial(write_rows, texts, source, low, high)
        for source, (begin, end) in enumerate(pairwise(graph.bounds))
        for low, high in spans(begin, end, max(PIECE_ROWS, len(graph) // MOST_PIECES))
    ]
    if len(flows.arrows):
        pieces.append(partial(write_flows, flows, drawing, picture.seats, picture.seat))
    if len(graph.counters):
        pieces.append(partial(write_counters, graph, picture.layout.process_of_counter, drawing.base))
    return pieces
