"""The timeline of one rank, ready to be written; the recorded arguments of its events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import Int64s
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.trace import Payload, Payloads
from tracelink.converters.perfetto.timeline.counters import with_outstanding
from tracelink.converters.perfetto.timeline.drawing import (
    Drawing,
    Lanes,
    OpeningOrder,
    assign_lanes,
    draw,
    drawn_samples,
    in_half_nanoseconds,
    never_closed,
    opening_order_of,
    side_by_side,
)
from tracelink.converters.perfetto.timeline.hangs import NO_HANG, RankHang, hung_rows, with_hung_names
from tracelink.converters.perfetto.timeline.layout import (
    SUMMARY,
    Layout,
    Numbering,
    OutputThreads,
    lay_out,
    output_threads,
)
from tracelink.converters.perfetto.timeline.summary import AllWaits, with_summary

SECTION_ROWS = 1 << 15
"""Least rows of a section."""

LARGE = 1 << 16
"""Fewer rows are not worth several processes."""

MAX_SECTIONS = 64


class RankTimeline(Struct, frozen=True):
    """The position and time of every event and sample of one rank that will be written."""

    graph: EventGraph
    drawing: Drawing
    layout: Layout
    lanes: Lanes
    threads: OutputThreads
    thread: Int64s
    """For each row its index in `threads`."""
    opening_order: OpeningOrder

    @property
    def events(self) -> int:
        """The number of events that are drawn, without those of the summary."""
        summary = [track.identity == SUMMARY for track in self.graph.tracks]
        return int(np.count_nonzero(self.drawing.shown & ~np.array(summary, bool)[self.graph.events.track]))

    @property
    def large(self) -> bool:
        """Whether it is worth several processes."""
        return len(self.graph) >= LARGE

    @property
    def findings(self) -> list[Finding]:
        """What is drawn differently from how it was recorded, or not at all."""
        found = [*self.drawing.findings]
        if moved := int(np.count_nonzero(self.lanes.lane)):
            message = "slices that partly overlap another slice of their thread are on a lane of their own"
            found.append(Finding(Severity.INFO, "overlap", message, moved))
        if unwritten := len(self.graph.counters) - int(np.count_nonzero(drawn_samples(self.graph))):
            message = "counter samples that are not finite numbers are not drawn"
            found.append(Finding(Severity.INFO, "counter_not_finite", message, unwritten))
        return found


def rank_timeline_of(
    graph: EventGraph,
    base: int | None,
    numbering: Numbering,
    excluded: Collection[EventKind] = (),
    hang: RankHang = NO_HANG,
    waits: AllWaits | None = None,
) -> RankTimeline:
    """The timeline of the graph of one rank, without the excluded kinds of events; times count from `base`.

    With `waits` it has a summary: the steps of the rank and what it waits in.
    """
    graph = with_outstanding(graph, numbering)
    hung = hung_rows(graph, hang)
    graph = with_hung_names(graph, hung)
    waiting: Collection[int] = ()
    if base is not None and waits is not None:
        graph, waiting = with_summary(graph, waits)
    drawing = draw(graph, base, excluded, hung, hang.end)
    drawing = replace(drawing, hung=drawing.hung.union(waiting))
    rows = np.flatnonzero(drawing.shown)
    tracks = np.unique(graph.events.track[rows]).tolist()
    samples = np.unique(graph.counters.track[drawn_samples(graph)]).tolist()
    layout = lay_out(graph, tracks, samples, numbering)
    thread_of_row = layout.thread_of_track[graph.events.track[rows]]
    start, end = in_half_nanoseconds(drawing.start[rows], drawing.duration[rows])
    lanes = assign_lanes(thread_of_row, start, end, never_closed(graph, drawing)[rows])
    recorders = np.array([thread.kind == TrackKind.COMMUNICATOR for thread in layout.threads], np.bool_)
    if recorders.any():
        lanes = side_by_side(lanes, thread_of_row, start, end, recorders[thread_of_row])
    lane_counts = np.ones(len(layout.threads), np.int64)
    if lanes.lane.any():
        np.maximum.at(lane_counts, thread_of_row, lanes.lane + 1)
    threads = output_threads(layout, lane_counts, numbering)
    thread = np.zeros(len(graph), np.int64)
    thread[rows] = threads.first[thread_of_row] + lanes.lane
    opening_order = opening_order_of(drawing, thread, rows[lanes.order])
    return RankTimeline(graph, drawing, layout, lanes, threads, thread, opening_order)


# Recorded arguments, in the order of the events that have them.


def payload_runs(payloads: Payloads | None, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
    """The payloads of these numbers in runs: the index at which a run starts, and its payloads; empty if missing."""
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
    """Payloads of events that are not in the order of their payloads."""
    result: list[Payload] = [b""] * len(numbers)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for first, texts in payloads.batches(max(0, int(ordered[0])), int(ordered[-1]) + 1):
        low, high = np.searchsorted(ordered, [first, first + len(texts)]).tolist()
        for index, number in zip(order[low:high].tolist(), ordered[low:high].tolist(), strict=True):
            result[index] = texts[number - first]
    return result
