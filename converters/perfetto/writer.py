"""Writes an event graph as one JSON trace for Perfetto's UI, which is also a Kineto trace for other tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.drawing import Drawing, draw
from tracelink.converters.perfetto.flows import Flows, flows_of
from tracelink.converters.perfetto.lanes import Lanes, assign_lanes, halves
from tracelink.converters.perfetto.layout import Layout, Seats, lay_out, metadata, seats
from tracelink.converters.perfetto.marks import drawn_samples, write_counters, write_flows
from tracelink.converters.perfetto.parts import Part, write_parts
from tracelink.converters.perfetto.slices import sheet, write_rows
from tracelink.engine import Engine
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph
from tracelink.plugins import Output, Target

PART_ROWS = 1 << 17
"""Rows of a part at least: less is not worth a process."""

MOST_PARTS = 64


class PerfettoJsonWriter:
    """One trace of all ranks, in the JSON that Perfetto's UI and other readers of Kineto traces load."""

    name = "perfetto-json"
    summary = "One trace of all ranks for Perfetto's UI, as Chrome JSON"
    suffixes = (".json", ".json.gz")
    one_file_per_rank = False

    def write(self, graph: EventGraph, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole graph."""
        picture = _picture(graph)
        path = target.path(FILE_NAME)
        with target.file(FILE_NAME) as stream:
            stream.write(header.opening(graph, picture.drawing.base) + header.EVENTS)
            stream.write(header.unclosed(metadata(picture.layout, picture.seats)))
            alone = replace(engine, jobs=1) if len(graph) < PART_ROWS else engine
            write_parts(_parts(picture), stream, os.path.dirname(path) or None, alone)
            stream.write((header.LAST if picture.layout.processes else b"") + header.END)
        return [
            Output(
                path,
                self.name,
                graph.ranks[0].rank if len(graph.ranks) == 1 else None,
                target.size(FILE_NAME),
                picture.events,
                _findings(picture),
            )
        ]


FILE_NAME = "trace.json"
"""The name in a directory."""


@dataclass(frozen=True, slots=True)
class _Picture:
    """Where and when everything stands that will be written."""

    graph: EventGraph
    drawing: Drawing
    layout: Layout
    lanes: Lanes
    seats: Seats
    seat: Int64s
    flows: Flows

    @property
    def events(self) -> int:
        return int(np.count_nonzero(self.drawing.shown))


def _picture(graph: EventGraph) -> _Picture:
    drawing = draw(graph)
    rows = np.flatnonzero(drawing.shown)
    tracks = np.unique(graph.events.track[rows]).tolist()
    samples = np.unique(graph.counters.track[drawn_samples(graph)]).tolist()
    layout = lay_out(graph, tracks, samples)
    thread = layout.thread_of_track[graph.events.track[rows]]
    start, end = halves(drawing.start[rows], drawing.duration[rows])
    lanes = assign_lanes(thread, start, end)
    used = np.ones(len(layout.threads), np.int64)
    if lanes.lane.any():
        np.maximum.at(used, thread, lanes.lane + 1)
    places = seats(layout, used)
    seat = np.zeros(len(graph), np.int64)
    seat[rows] = places.first[thread] + lanes.lane
    flows = flows_of(graph, drawing, seat, rows[lanes.order])
    return _Picture(graph, drawing, layout, lanes, places, seat, flows)


def _parts(picture: _Picture) -> Sequence[Part]:
    """Slices and instants by source and rows, then arrows, then counters."""
    graph, drawing = picture.graph, picture.drawing
    texts = sheet(graph, drawing, picture.seats, picture.seat, picture.flows.bindings)
    parts: list[Part] = [
        partial(write_rows, texts, source, low, high)
        for source, (begin, end) in enumerate(pairwise(graph.bounds))
        for low, high in _pieces(begin, end, max(PART_ROWS, len(graph) // MOST_PARTS))
    ]
    if len(picture.flows.arrows):
        parts.append(partial(write_flows, picture.flows, drawing, picture.seats, picture.seat))
    if len(graph.counters):
        parts.append(partial(write_counters, graph, picture.layout.process_of_counter, drawing.base))
    return parts


def _pieces(begin: int, end: int, most: int) -> list[tuple[int, int]]:
    """Equal pieces of at most `most` rows; the same however many work on them."""
    count = -(-(end - begin) // most)
    cuts = [begin + (end - begin) * number // count for number in range(count + 1)] if count else []
    return list(pairwise(cuts))


def _findings(picture: _Picture) -> tuple[Finding, ...]:
    findings = [*picture.drawing.findings, *picture.flows.findings]
    moved = int(np.count_nonzero(picture.lanes.lane))
    if moved:
        findings.append(
            Finding(
                Severity.INFO,
                "overlap",
                "slices that overlap others of their thread without nesting stand in lanes of their own",
                count=moved,
            )
        )
    unwritten = len(picture.graph.counters) - int(np.count_nonzero(drawn_samples(picture.graph)))
    if unwritten:
        findings.append(
            Finding(
                Severity.INFO, "counter_not_finite", "samples that are no numbers are not drawn", unwritten
            )
        )
    return tuple(findings)
