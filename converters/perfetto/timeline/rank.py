"""The timeline of one rank, ready to be written; the recorded arguments of its events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.timeline.counters import with_outstanding
from tracelink.converters.perfetto.timeline.drawing import (
    Drawing,
    Lanes,
    Openings,
    assign_lanes,
    draw,
    drawn_samples,
    halves,
    openings_of,
)
from tracelink.converters.perfetto.timeline.hangs import NOT_CAUGHT, Caught, hung_rows, with_hung_names
from tracelink.converters.perfetto.timeline.layout import Layout, Numbering, Seats, lay_out, seats
from tracelink.errors import Finding, Severity
from tracelink.model.columns import Int64s
from tracelink.model.events import EventKind
from tracelink.model.graph import EventGraph
from tracelink.model.trace import Payload, Payloads

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


# Recorded arguments, in the order of the events that have them.


def payload_runs(payloads: Payloads | None, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
    """A text for each of `numbers`, in runs: where the run begins and its texts. A missing one is empty."""
    if not len(numbers):
        return
    reached = np.maximum.accumulate(numbers)
    if payloads is None or reached[-1] < 0:
        yield 0, [b""] * len(numbers)
        return
    if (numbers[numbers >= 0] < reached[numbers >= 0]).any():
        yield 0, _scattered(payloads, numbers)
        return
    done = 0
    lowest = int(numbers[numbers >= 0][0])
    for first, texts in payloads.batches(lowest, int(reached[-1]) + 1):
        upto = int(np.searchsorted(reached, first + len(texts)))
        if upto > done:
            yield done, _picked(texts, numbers[done:upto] - first)
            done = upto
    if done < len(numbers):
        yield done, [b""] * (len(numbers) - done)


def _picked(texts: Sequence[Payload], wanted: Int64s) -> Sequence[Payload]:
    if np.array_equal(wanted, np.arange(len(texts))):
        return texts
    return [texts[index] if index >= 0 else b"" for index in wanted.tolist()]


def _scattered(payloads: Payloads, numbers: Int64s) -> Sequence[Payload]:
    """Texts of events that do not stand in the order of their payloads."""
    result: list[Payload] = [b""] * len(numbers)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for first, texts in payloads.batches(max(0, int(ordered[0])), int(ordered[-1]) + 1):
        low, high = np.searchsorted(ordered, [first, first + len(texts)]).tolist()
        for place, number in zip(order[low:high].tolist(), ordered[low:high].tolist(), strict=True):
            result[place] = texts[number - first]
    return result
