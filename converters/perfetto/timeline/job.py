"""A whole job as one timeline: its options, its ranks, and the format that writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import BinaryIO, Protocol

from msgspec import Struct, structs

from tracelink._io.engine import Engine, worker_of
from tracelink._io.targets import Target, spool_folder
from tracelink._io.temporary import GzipStream
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding
from tracelink._model.job import Job
from tracelink._model.ranges import Numbers
from tracelink.converters.perfetto.timeline.blocks import Block, BlockWriter, Section, Stream
from tracelink.converters.perfetto.timeline.flows import (
    CrossRankEnds,
    SharedEvents,
    cross_rank_ends,
    shared_events_of,
)
from tracelink.converters.perfetto.timeline.hangs import Hangs
from tracelink.converters.perfetto.timeline.layout import Numbering, rank_digits
from tracelink.converters.perfetto.timeline.rank import RankTimeline, rank_timeline_of
from tracelink.converters.perfetto.timeline.summary import AllWaits
from tracelink.plugins import Output

# Options, equal in both formats.


class ArgumentChoice(StrEnum):
    """Which arguments are written: they are most of what the UI has to load."""

    ALL = "all"
    LINK = "link"
    """Only those that tracelink adds."""
    NONE = "none"


YES, NO = "yes", "no"


class TimelineOptions(Struct, frozen=True):
    """Chosen options."""

    args: ArgumentChoice = ArgumentChoice.ALL
    python: bool = True
    """Whether calls of Python functions are drawn."""
    compressed: bool = False
    """Whether the file is gzip under any name."""
    critical_path: bool = False
    """Whether the critical path is drawn."""

    def with_options(self, options: Mapping[str, str]) -> TimelineOptions:
        """These options, changed by those that are given."""
        return TimelineOptions(
            ArgumentChoice(options.get("args", self.args)),
            options["python"] == YES if "python" in options else self.python,
            options["compress"] == YES if "compress" in options else self.compressed,
            options["critical_path"] == YES if "critical_path" in options else self.critical_path,
        )

    def drawn(self, job: Job, engine: Engine) -> tuple[Job, tuple[Finding, ...]]:
        """The job with its critical path if that is wanted, and what cannot be drawn."""
        if not self.critical_path:
            return job, ()
        from tracelink.converters.perfetto.timeline.critical_path import with_critical_path

        return with_critical_path(job, engine)

    @property
    def excluded(self) -> frozenset[EventKind]:
        """Kinds of events that are not drawn."""
        return frozenset() if self.python else frozenset({EventKind.PYTHON})


# A job and the format that writes it.


class Timeline(Struct, frozen=True):
    """What every format needs to know of a job."""

    job: Job
    base: int | None
    """The time that becomes 0; None if no event has a time."""
    shared_events: SharedEvents
    excluded: Collection[EventKind]
    hangs: Hangs
    waits: AllWaits

    @classmethod
    def of(cls, job: Job, base: int | None, excluded: Collection[EventKind]) -> Timeline:
        """The timeline of a job without the excluded kinds of events."""
        hangs = Hangs.of(job)
        return cls(job, base, shared_events_of(job), excluded, hangs, AllWaits.of(job, hangs))

    def numbering(self, index: int) -> Numbering:
        """The numbers of the rank at an index."""
        return Numbering(index, len(self.job.parts) + 1, rank_digits(self.job))

    @property
    def common(self) -> Numbering:
        """The numbers of what belongs to no single rank."""
        return self.numbering(len(self.job.parts))


class TimelineFormat(Protocol):
    """Writes the timeline of a job in one format: a block for each rank, then one for all process groups."""

    @property
    def separator(self) -> bytes:
        """The text between two blocks."""
        ...

    @property
    def summarizes(self) -> bool:
        """Whether every rank has a track that shows at a glance what it does."""
        ...

    def opening(self) -> bytes:
        """Everything before the first block."""
        ...

    def closing(self, started: bool) -> bytes:
        """Everything after the last block; `started`: at least one block was written."""
        ...

    def numbered(self, rank_timeline: RankTimeline) -> RankTimeline:
        """The timeline of a rank with the numbers that the format has for its threads."""
        ...

    def rank(self, index: int, rank_timeline: RankTimeline) -> Block[Sequence[Finding]]:
        """The block of the rank at an index."""
        ...

    def groups(self) -> Block[list[Finding]]:
        """The tracks of process groups."""
        ...

    def cross_rank(self, ends: CrossRankEnds) -> tuple[list[Section], list[Finding]]:
        """The flows between ranks."""
        ...


class OutputFile(Struct, frozen=True):
    """The written file."""

    format: str
    name: str
    """Its name within a directory."""
    compressed: bool = False
    """Whether it is gzip under any name."""


class _WrittenRank(Struct, frozen=True):
    """What is kept of a rank after it was written."""

    events: int
    findings: Sequence[Finding]
    ends: CrossRankEnds


def write_timeline(
    timeline: Timeline, timeline_format: TimelineFormat, output: OutputFile, target: Target, engine: Engine
) -> list[Output]:
    """Writes a whole job; at most one rank for each process of the engine is in memory."""
    job, path = timeline.job, target.path(output.name)
    with target.file(output.name) as plain, _stream(plain, output.compressed) as stream:
        stream.write(timeline_format.opening())
        blocks = BlockWriter(stream, spool_folder(path), engine, timeline_format.separator)
        makers: list[Callable[[], Block[_WrittenRank]]] = [
            partial(_rank_block, timeline, timeline_format, index) for index in range(len(job.parts))
        ]
        ranks = blocks.add(makers, [worker_of(part) for part in job.parts])
        common = (
            _write_common(timeline_format, blocks, [rank.ends for rank in ranks]) if len(ranks) > 1 else []
        )
        stream.write(timeline_format.closing(blocks.started))
    findings = {part.rank: rank.findings for part, rank in zip(job.parts, ranks, strict=True)}
    return [
        Output(
            path,
            output.format,
            job.ranks[0].rank if len(job.ranks) == 1 else None,
            target.size(output.name),
            sum(rank.events for rank in ranks),
            (*merged_findings(findings), *common),
        )
    ]


def with_findings(outputs: Sequence[Output], findings: Sequence[Finding]) -> list[Output]:
    """The outputs, of which the first has these findings too."""
    return [
        structs.replace(output, findings=(*output.findings, *findings)) if index == 0 else output
        for index, output in enumerate(outputs)
    ]


@contextmanager
def _stream(plain: BinaryIO, compressed: bool) -> Iterator[Stream]:
    if not compressed or isinstance(plain, GzipStream):
        yield plain
        return
    with GzipStream(plain) as stream:
        yield stream


def _rank_block(timeline: Timeline, timeline_format: TimelineFormat, index: int) -> Block[_WrittenRank]:
    part = timeline.job.parts[index]
    rank_timeline = rank_timeline_of(
        part.load(),
        timeline.base,
        timeline.numbering(index),
        timeline.excluded,
        timeline.hangs.of_rank(part.rank),
        timeline.waits if timeline_format.summarizes else None,
    )
    rank_timeline = timeline_format.numbered(rank_timeline)
    block = timeline_format.rank(index, rank_timeline)
    ends = cross_rank_ends(rank_timeline, timeline.shared_events.of_part(index))
    written = _WrittenRank(rank_timeline.events, [*rank_timeline.findings, *block.result], ends)
    return Block(block.head, block.sections, block.large, written)


def _write_common(
    timeline_format: TimelineFormat, blocks: BlockWriter, ends: Sequence[CrossRankEnds]
) -> list[Finding]:
    """Writes what belongs to no single rank: the tracks of process groups and the flows between ranks."""
    (findings,) = blocks.add([timeline_format.groups])
    sections, undrawn = timeline_format.cross_rank(CrossRankEnds.concatenate(ends))
    blocks.add_sections(sections)
    return [*findings, *undrawn]


def merged_findings(findings: Mapping[int, Sequence[Finding]]) -> tuple[Finding, ...]:
    """Equal findings of several ranks as one, with their counts added, and the ranks unless it is all of them."""
    equal: dict[tuple[str, str, str], list[tuple[int, Finding]]] = {}
    for rank, found in findings.items():
        for finding in found:
            equal.setdefault((finding.severity, finding.reason, finding.message), []).append((rank, finding))
    return tuple(_merged(found, len(findings)) for found in equal.values())


def _merged(found: Sequence[tuple[int, Finding]], ranks: int) -> Finding:
    affected = {rank for rank, _ in found}
    first = found[0][1]
    message = first.message if len(affected) == ranks else f"{first.message} (rank {Numbers.of(affected)})"
    return structs.replace(first, message=message, count=sum(finding.count for _, finding in found))
