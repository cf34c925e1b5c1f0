"""Writes a job as one JSON trace for Perfetto's UI, which of one rank is also a Kineto trace for other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.drawing import base_of
from tracelink.converters.perfetto.flows import flows_of
from tracelink.converters.perfetto.forecast import Typical, Way, forecast_of
from tracelink.converters.perfetto.group_tracks import group_tracks
from tracelink.converters.perfetto.layout import metadata
from tracelink.converters.perfetto.links import said_of
from tracelink.converters.perfetto.parts import Block, Piece
from tracelink.converters.perfetto.picture import Picture, pieces_of
from tracelink.converters.perfetto.slices import NEXT
from tracelink.converters.perfetto.ties import Ends, tie_pieces
from tracelink.converters.perfetto.wanted import OPTIONS, Choices, Wanted
from tracelink.converters.perfetto.whole import Sheets, Sort, write_whole
from tracelink.engine import Engine
from tracelink.findings import Finding
from tracelink.job import Job
from tracelink.plugins import Files, Forecast, Output, Target

FILE_NAME = "trace.json"
"""The name in a directory."""

TYPICAL = Typical(
    track=250,
    arrow=180,
    tie=235,
    said=75,
    node=47,
    collective=280,
    participation=14,
    arrival=132,
    sample=108,
)
BARE = Typical(
    track=250,
    arrow=180,
    tie=205,
    said=0,
    node=0,
    collective=114,
    participation=0,
    arrival=97,
    sample=108,
)
"""Without arguments."""


@dataclass(frozen=True, slots=True)
class PerfettoJsonWriter:
    """One trace of all ranks, in the JSON that Perfetto's UI and other readers of Kineto traces load."""

    choices: Choices = field(default_factory=Choices)

    name = "perfetto-json"
    summary = "One trace of all ranks for Perfetto's UI, as Chrome JSON"
    suffixes = (".json", ".json.gz")
    files = Files.ONE
    options: ClassVar[Mapping[str, Sequence[str]]] = OPTIONS

    def configured(self, **options: str) -> PerfettoJsonWriter:
        """A writer of fewer arguments or events, or of gzip."""
        return PerfettoJsonWriter(self.choices.changed(options))

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the trace will be."""
        typical = BARE if self.choices.args == Wanted.NONE else TYPICAL
        compressed = compressed or self.choices.compressed
        plain = PerfettoJsonWriter(replace(self.choices, compressed=False))
        way = Way(plain.write, typical, self.choices.args == Wanted.ALL)
        return forecast_of(job, engine, way, compressed=compressed)

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job, with as many ranks in memory as work at once."""
        sheets = Sheets.of(job, base_of(job), self.choices.left_out)
        pen = _JsonPen(sheets, self.choices.args)
        return write_whole(sheets, pen, Sort(self.name, FILE_NAME, self.choices.compressed), target, engine)


@dataclass(frozen=True, slots=True)
class _JsonPen:
    sheets: Sheets
    wanted: Wanted
    separator: bytes = NEXT

    def opening(self) -> bytes:
        return header.opening(self.sheets.job, self.sheets.base or 0) + header.EVENTS

    def closing(self, started: bool) -> bytes:
        return (header.LAST if started else b"") + header.END

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        job, numbering = self.sheets.job, self.sheets.numbering(place)
        flows = flows_of(picture.graph, picture.drawing, picture.openings, numbering)
        head = header.unclosed(metadata(picture.layout, picture.seats))
        if not head:
            return Block(head, (), picture.large, flows.findings)
        said = said_of(picture.graph, picture.drawing, job, self.wanted)
        return Block(head, pieces_of(picture, flows, said, self.wanted), picture.large, flows.findings)

    def groups(self) -> Block[list[Finding]]:
        sheets = self.sheets
        return group_tracks(sheets.job, sheets.hangs, sheets.base or 0, sheets.common, self.wanted)

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        return tie_pieces(self.sheets.job, self.sheets.meetings, ends, self.sheets.common, self.wanted)
