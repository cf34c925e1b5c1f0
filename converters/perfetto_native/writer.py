"""Writes a job as one trace in Perfetto's own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tracelink.converters.perfetto.drawing import base_of
from tracelink.converters.perfetto.flows import arrows_of
from tracelink.converters.perfetto.forecast import Typical, Way, forecast_of
from tracelink.converters.perfetto.links import said_of
from tracelink.converters.perfetto.parts import Block, Piece
from tracelink.converters.perfetto.picture import Picture
from tracelink.converters.perfetto.ties import Ends
from tracelink.converters.perfetto.wanted import OPTIONS, Choices, Wanted
from tracelink.converters.perfetto.whole import Sheets, Sort, write_whole
from tracelink.converters.perfetto_native.arrows import LEAVES, arrow_fields, fields, joined_by_row
from tracelink.converters.perfetto_native.bundles import Packing
from tracelink.converters.perfetto_native.common import Leaving, group_packets, tie_pieces
from tracelink.converters.perfetto_native.facts import ArrowFact, arrow_facts, header_packet, rank_packet
from tracelink.converters.perfetto_native.interleaving import Interleaved
from tracelink.converters.perfetto_native.order import Packets, packets_of
from tracelink.converters.perfetto_native.rank_packets import Sheet, pieces_of
from tracelink.converters.perfetto_native.schema import Type
from tracelink.converters.perfetto_native.tracks import counter_numbers, declared
from tracelink.converters.perfetto_native.tree import tree_of
from tracelink.converters.perfetto_native.zero import zero_of
from tracelink.engine import Engine
from tracelink.findings import Finding
from tracelink.job import Job
from tracelink.plugins import Files, Forecast, Output, Target

FILE_NAME = "trace.pftrace"
"""The name in a directory."""

TYPICAL = Typical(
    track=55,
    arrow=20,
    tie=60,
    said=65,
    node=36,
    collective=150,
    participation=8,
    arrival=55,
    sample=26,
)
DENSER = 0.8
"""Of the bytes of bundles, as measured, where they are deflated harder."""

BARE = Typical(
    track=55,
    arrow=20,
    tie=40,
    said=0,
    node=0,
    collective=22,
    participation=0,
    arrival=24,
    sample=26,
)
"""Without arguments."""


@dataclass(frozen=True, slots=True)
class PerfettoWriter:
    """One trace of all ranks, exact to the nanosecond."""

    choices: Choices = field(default_factory=Choices)
    packing: Packing = Packing.BUNDLED

    name = "perfetto"
    summary = "One trace of all ranks in Perfetto's own format: exact times, small files"
    suffixes = (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz")
    files = Files.ONE
    options: ClassVar[Mapping[str, Sequence[str]]] = OPTIONS

    def configured(self, **options: str) -> PerfettoWriter:
        """A writer of fewer arguments, events or bytes."""
        return replace(self, choices=self.choices.changed(options))

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the trace will be."""
        typical = BARE if self.choices.args == Wanted.NONE else TYPICAL
        compressed = compressed or self.choices.compressed or self.packing is not Packing.PLAIN
        plain = PerfettoWriter(replace(self.choices, compressed=False), Packing.PLAIN)
        way = Way(plain.write, typical, self.choices.args == Wanted.ALL)
        forecast = forecast_of(job, engine, way, compressed=compressed)
        return (
            replace(forecast, bytes=round(forecast.bytes * DENSER)) if self.choices.compressed else forecast
        )

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job, with as many ranks in memory as work at once."""
        sheets = Sheets.of(job, base_of(job), self.choices.left_out)
        pen = _NativePen(sheets, self.choices.args, Leaving.of(sheets.meetings, sheets.common))
        packing = Packing.DENSE if self.choices.compressed else self.packing
        return write_whole(sheets, pen, Sort(self.name, FILE_NAME), Interleaved(target, packing), engine)


@dataclass(frozen=True, slots=True)
class _NativePen:
    sheets: Sheets
    wanted: Wanted
    leaving: Leaving
    separator: bytes = b""

    def opening(self) -> bytes:
        return header_packet(self.sheets.job, zero_of(self.sheets.base))

    def closing(self, started: bool) -> bytes:
        return b""

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        layout, seats, numbering = picture.layout, picture.seats, self.sheets.numbering(place)
        if not layout.processes:
            return Block(b"", (), False, ())
        counters = counter_numbers(layout, seats, numbering)
        packets, findings = packets_of(picture), list[Finding]()
        arrows, meaning = self._arrows(place, picture, packets, findings)
        head = rank_packet(picture, counters, meaning, numbering.first_arrow)
        tree = tree_of(picture.graph, layout, seats, counters, numbering)
        head += declared(tree, zero_of(self.sheets.base))
        said = said_of(picture.graph, picture.drawing, self.sheets.job, self.wanted)
        sheet = Sheet(picture, packets, arrows, said, counters, self.wanted, place)
        return Block(head, pieces_of(sheet), picture.large, findings)

    def groups(self) -> Block[list[Finding]]:
        return group_packets(self.sheets, self.wanted)

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        return tie_pieces(self.sheets, ends, self.wanted)

    def _arrows(
        self, place: int, picture: Picture, packets: Packets, findings: list[Finding]
    ) -> tuple[Mapping[int, bytes], Sequence[ArrowFact]]:
        arrows = arrows_of(picture.graph, picture.drawing, findings)
        met = np.zeros(len(picture.graph), np.int64)
        begins = np.flatnonzero(packets.type != Type.END)
        met[packets.row[begins]] = begins
        turned = met[arrows.source] > met[arrows.target]
        meaning = arrow_facts(arrows, turned)
        arrows = arrows.where(np.lexsort((turned, arrows.relation)))
        first = self.sheets.numbering(place).first_arrow
        rows, within = arrow_fields(arrows.source, arrows.target, met, first)
        causes, numbers = self.leaving.of_part(self.sheets.meetings, place)
        return joined_by_row(
            np.concatenate([rows, causes]), np.concatenate([within, fields(LEAVES, numbers)])
        ), meaning
