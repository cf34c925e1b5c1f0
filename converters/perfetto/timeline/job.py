"""A whole job as one timeline: its options, its ranks, and the format that writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import BinaryIO, Protocol

from tracelink.converters.perfetto.timeline.blocks import Block, Joint, Piece, Stream
from tracelink.converters.perfetto.timeline.flows import Ends, Meetings, ends_of, meetings_of
from tracelink.converters.perfetto.timeline.hangs import Hangs
from tracelink.converters.perfetto.timeline.layout import Numbering, rank_digits
from tracelink.converters.perfetto.timeline.rank import Picture, picture_of
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.io.targets import GzipStream
from tracelink.model.events import EventKind
from tracelink.model.job import Job
from tracelink.plugins import Output, Target
from tracelink.ranges import Numbers

# Options, equal in both formats.


class Wanted(StrEnum):
    """How many arguments are written: they are most of what the UI has to load."""

    ALL = "all"
    LINK = "link"
    """Only what tracelink found out."""
    NONE = "none"


YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Choices:
    """What was chosen."""

    args: Wanted = Wanted.ALL
    python: bool = True
    """Whether the calls of Python functions are drawn."""
    compressed: bool = False
    """Whether the file is gzip under any name."""

    def changed(self, options: Mapping[str, str]) -> Choices:
        """The same but for these options."""
        return Choices(
            Wanted(options.get("args", self.args)),
            options["python"] == YES if "python" in options else self.python,
            options["compress"] == YES if "compress" in options else self.compressed,
        )

    @property
    def left_out(self) -> frozenset[EventKind]:
        """The kinds of events that are not drawn."""
        return frozenset() if self.python else frozenset({EventKind.PYTHON})


# Findings of many ranks as those of the job: one for each reason, with the ranks where it is not all.


def merged_findings(findings: Mapping[int, Sequence[Finding]]) -> tuple[Finding, ...]:
    """Alike findings of several ranks as one, with their counts added."""
    alike: dict[tuple[str, str, str], list[tuple[int, Finding]]] = {}
    for rank, found in findings.items():
        for finding in found:
            alike.setdefault((finding.severity, finding.reason, finding.message), []).append((rank, finding))
    return tuple(_one(ranks, len(findings)) for ranks in alike.values())


def _one(found: Sequence[tuple[int, Finding]], ranks: int) -> Finding:
    where = {rank for rank, _ in found}
    first = found[0][1]
    message = first.message if len(where) == ranks else f"{first.message} (rank {Numbers.of(where)})"
    return replace(first, message=message, count=sum(finding.count for _, finding in found))


# A whole job in one file: a block for each rank, then what no rank has alone; what it looks like is the pen's.


class Pen(Protocol):
    """How a job is written in one format."""

    @property
    def separator(self) -> bytes:
        """What stands between blocks."""
        ...

    def opening(self) -> bytes:
        """Everything before the first block."""
        ...

    def closing(self, started: bool) -> bytes:
        """Everything behind the last block; `started` says whether there is one."""
        ...

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        """The block of a rank."""
        ...

    def groups(self) -> Block[list[Finding]]:
        """What ranks did together."""
        ...

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        """The arrows between ranks."""
        ...


@dataclass(frozen=True, slots=True)
class Sheets:
    """What pens of all formats know of a job."""

    job: Job
    base: int | None
    meetings: Meetings
    left_out: Collection[EventKind]
    hangs: Hangs

    @classmethod
    def of(cls, job: Job, base: int | None, left_out: Collection[EventKind]) -> Sheets:
        """A job with times relative to `base`, without these kinds of events."""
        return cls(job, base, meetings_of(job), left_out, Hangs.of(job))

    def numbering(self, place: int) -> Numbering:
        """The numbers of one rank."""
        return Numbering(place, len(self.job.parts) + 1, rank_digits(self.job))

    @property
    def common(self) -> Numbering:
        """The numbers of what no rank has alone."""
        return self.numbering(len(self.job.parts))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What is left to know of a rank once it is written."""

    events: int
    findings: Sequence[Finding]
    ends: Ends


@dataclass(frozen=True, slots=True)
class Sort:
    """What is written: a format, how a file of it is called in a directory, and whether it is gzip under any name."""

    format: str
    file_name: str
    compressed: bool = False


def write_whole(sheets: Sheets, pen: Pen, sort: Sort, target: Target, engine: Engine) -> list[Output]:
    """Writes a whole job, with as many ranks in memory as work at once."""
    job, path = sheets.job, target.path(sort.file_name)
    with target.file(sort.file_name) as plain, _stream(plain, sort.compressed) as stream:
        stream.write(pen.opening())
        joint = Joint(stream, os.path.dirname(path) or None, engine, pen.separator)
        makers: list[Callable[[], Block[_Drawn]]] = [
            partial(_draw, sheets, pen, place) for place in range(len(job.parts))
        ]
        drawn = joint.add(makers)
        common = _write_common(pen, joint, [rank.ends for rank in drawn]) if len(drawn) > 1 else []
        stream.write(pen.closing(joint.started))
    found = {part.rank: rank.findings for part, rank in zip(job.parts, drawn, strict=True)}
    return [
        Output(
            path,
            sort.format,
            job.ranks[0].rank if len(job.ranks) == 1 else None,
            target.size(sort.file_name),
            sum(rank.events for rank in drawn),
            (*merged_findings(found), *common),
        )
    ]


@contextmanager
def _stream(plain: BinaryIO, compressed: bool) -> Iterator[Stream]:
    if not compressed or isinstance(plain, GzipStream):
        yield plain
        return
    with GzipStream(plain) as stream:
        yield stream


def _draw(sheets: Sheets, pen: Pen, place: int) -> Block[_Drawn]:
    graph, numbering = sheets.job.parts[place].load(), sheets.numbering(place)
    caught = sheets.hangs.of_rank(sheets.job.parts[place].rank)
    picture = picture_of(graph, sheets.base, numbering, sheets.left_out, caught)
    block = pen.rank(place, picture)
    ends = ends_of(picture, sheets.meetings.of_part(place))
    drawn = _Drawn(picture.events, [*picture.findings, *block.result], ends)
    return Block(block.head, block.pieces, block.large, drawn)


def _write_common(pen: Pen, joint: Joint, ends: Sequence[Ends]) -> list[Finding]:
    """Writes what no rank has alone: the tracks of groups, and the arrows between ranks."""
    (findings,) = joint.add([pen.groups])
    pieces, lost = pen.ties(Ends.concatenate(ends))
    joint.add_pieces(pieces)
    return [*findings, *lost]
