"""Writes a job as one JSON trace for Perfetto's UI, which of one rank is also a Kineto trace for other tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.drawing import base_of
from tracelink.converters.perfetto.group_tracks import group_tracks
from tracelink.converters.perfetto.layout import metadata
from tracelink.converters.perfetto.membership import memberships
from tracelink.converters.perfetto.merging import merged_findings
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Block, Joint
from tracelink.converters.perfetto.picture import picture_of, pieces_of
from tracelink.converters.perfetto.slices import NEXT
from tracelink.converters.perfetto.ties import Ends, Meetings, ends_of, meetings_of, tie_pieces
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
        base = base_of(job)
        path = target.path(FILE_NAME)
        with target.file(FILE_NAME) as stream:
            stream.write(header.opening(job, base or 0) + header.EVENTS)
            joint = Joint(stream, os.path.dirname(path) or None, engine, NEXT)
            meetings = meetings_of(job)
            makers = [partial(_draw, job, place, base, meetings) for place in range(len(job.parts))]
            drawn = joint.add(makers)
            common = _write_common(job, joint, base or 0, meetings, [rank.ends for rank in drawn])
            stream.write((header.LAST if joint.started else b"") + header.END)
        found = {part.rank: rank.findings for part, rank in zip(job.parts, drawn, strict=True)}
        return [
            Output(
                path,
                self.name,
                job.ranks[0].rank if len(job.ranks) == 1 else None,
                target.size(FILE_NAME),
                sum(rank.events for rank in drawn),
                (*merged_findings(found), *common),
            )
        ]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What is left to know of a rank once it is written."""

    events: int
    findings: Sequence[Finding]
    ends: Ends


def _draw(job: Job, place: int, base: int | None, meetings: Meetings) -> Block[_Drawn]:
    """The text of one rank."""
    part = job.parts[place]
    picture = picture_of(part.load(), base, Numbering(place, len(job.parts) + 1))
    head = header.unclosed(metadata(picture.layout, picture.seats))
    drawn = _Drawn(picture.events, picture.findings, ends_of(picture, meetings.of_part(place)))
    pieces = pieces_of(picture, memberships(job, part.rank)) if head else ()
    return Block(head, pieces, picture.large, drawn)


def _write_common(
    job: Job, joint: Joint, base: int, meetings: Meetings, ends: Sequence[Ends]
) -> list[Finding]:
    """Writes what no rank has alone: the tracks of groups, and the arrows between ranks."""
    if len(job.parts) < 2:
        return []
    numbering = Numbering(len(job.parts), len(job.parts) + 1)
    (findings,) = joint.add([partial(group_tracks, job, base, numbering)])
    pieces, lost = tie_pieces(job, meetings, Ends.concatenate(ends), numbering)
    joint.add_pieces(pieces)
    return [*findings, *lost]
