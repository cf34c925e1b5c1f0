"""Writes a job as one JSON trace for Perfetto's UI, which of one rank is also a Kineto trace for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.drawing import base_of
from tracelink.converters.perfetto.flows import flows_of
from tracelink.converters.perfetto.group_tracks import group_tracks
from tracelink.converters.perfetto.layout import metadata
from tracelink.converters.perfetto.membership import memberships
from tracelink.converters.perfetto.parts import Block, Piece
from tracelink.converters.perfetto.picture import Picture, pieces_of
from tracelink.converters.perfetto.slices import NEXT
from tracelink.converters.perfetto.ties import Ends, tie_pieces
from tracelink.converters.perfetto.whole import Sheets, Sort, write_whole
from tracelink.engine import Engine
from tracelink.findings import Finding
from tracelink.job import Job
from tracelink.plugins import Files, Output, Target

FILE_NAME = "trace.json"
"""The name in a directory."""


class PerfettoJsonWriter:
    """One trace of all ranks, in the JSON that Perfetto's UI and other readers of Kineto traces load."""

    name = "perfetto-json"
    summary = "One trace of all ranks for Perfetto's UI, as Chrome JSON"
    suffixes = (".json", ".json.gz")
    files = Files.ONE

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job, with as many ranks in memory as work at once."""
        sheets = Sheets.of(job, base_of(job))
        return write_whole(sheets, _JsonPen(sheets), Sort(self.name, FILE_NAME), target, engine)


@dataclass(frozen=True, slots=True)
class _JsonPen:
    sheets: Sheets
    separator: bytes = NEXT

    def opening(self) -> bytes:
        return header.opening(self.sheets.job, self.sheets.base or 0) + header.EVENTS

    def closing(self, started: bool) -> bytes:
        return (header.LAST if started else b"") + header.END

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        job, numbering = self.sheets.job, self.sheets.numbering(place)
        flows = flows_of(picture.graph, picture.drawing, picture.openings, numbering)
        head = header.unclosed(metadata(picture.layout, picture.seats))
        pieces = pieces_of(picture, flows, memberships(job, job.parts[place].rank)) if head else ()
        return Block(head, pieces, picture.large, flows.findings)

    def groups(self) -> Block[list[Finding]]:
        return group_tracks(self.sheets.job, self.sheets.base or 0, self.sheets.common)

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        return tie_pieces(self.sheets.job, self.sheets.meetings, ends, self.sheets.common)
