"""A whole job as one timeline: its options, each of its ranks, and the format that writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import BinaryIO, ClassVar, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.engine import Engine, worker_of
from tracelink._io.targets import Target, spool_folder
from tracelink._io.temporary import GzipStream
from tracelink._model.columns import Int64s
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.trace import Payload, Payloads
from tracelink.converters.perfetto.timeline.blocks import Block, BlockWriter, Section, Stream
from tracelink.converters.perfetto.timeline.drawing import (
    Drawing,
    Lanes,
    OpeningOrder,
    assign_lanes,
    base_of,
    draw,
    drawn_samples,
    in_half_nanoseconds,
    never_closed,
    opening_order_of,
    side_by_side,
)
from tracelink.converters.perfetto.timeline.flows import (
    CrossRankEnds,
    SharedEvents,
    shared_events_of,
)
from tracelink.converters.perfetto.timeline.groups import with_outstanding
from tracelink.converters.perfetto.timeline.hangs import NO_HANG, Hangs, RankHang, hung_rows, with_hung_names
from tracelink.converters.perfetto.timeline.layout import (
    SUMMARY,
    Layout,
    Numbering,
    OutputThreads,
    lay_out,
    output_threads,
    rank_digits,
)
from tracelink.converters.perfetto.timeline.schema import TypicalSizes
from tracelink.converters.perfetto.timeline.summary import AllWaits, with_summary
from tracelink.plugins import Forecast, Output

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
    """True if calls of Python functions are drawn."""
    compressed: bool = False
    """True if the file is gzip under any name."""
    critical_path: bool = False
    """True if the critical path is drawn."""

    def with_options(self, options: Mapping[str, str]) -> TimelineOptions:
        """These options, changed by those that are given."""
        return TimelineOptions(
            ArgumentChoice(options.get("args", self.args)),
            options["python"] == YES if "python" in options else self.python,
            options["compress"] == YES if "compress" in options else self.compressed,
            options["critical_path"] == YES if "critical_path" in options else self.critical_path,
        )

    def drawn(self, job: LinkedJob, engine: Engine) -> tuple[LinkedJob, tuple[Finding, ...]]:
        """The job with its critical path if that is wanted, and what cannot be drawn."""
        if not self.critical_path:
            return job, ()
        from tracelink.converters.perfetto.timeline.critical_path import with_critical_path

        return with_critical_path(job, engine)

    @property
    def excluded(self) -> frozenset[EventKind]:
        """Kinds of events that are not drawn."""
        return frozenset() if self.python else frozenset({EventKind.PYTHON})


# One rank, ready to be written.


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
        """True if it is worth several processes."""
        return len(self.graph) >= LARGE

    @property
    def findings(self) -> list[Finding]:
        """Findings on events that are drawn differently from how they were recorded, or not at all."""
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


def cross_rank_ends(rank_timeline: RankTimeline, rows: Int64s) -> CrossRankEnds:
    """Thread and time of these rows of one rank."""
    drawing, threads = rank_timeline.drawing, rank_timeline.threads
    start = drawing.start[rows]
    thread = np.where(drawing.shown[rows], rank_timeline.thread[rows], len(threads.tid))
    return CrossRankEnds(
        np.array([*threads.pid, 0], np.int64)[thread],
        np.array([*threads.tid, 0], np.int64)[thread],
        start,
        np.maximum(start + drawing.duration[rows] - 1, start),
        drawing.shown[rows],
        ~np.isin(rows, drawing.open_ended),
        rank_timeline.opening_order.last[rows],
    )


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


# A job and the format that writes it.


class Timeline(Struct, frozen=True):
    """The facts of a job that every format needs."""

    job: LinkedJob
    base: int | None
    """The time that becomes 0; None if no event has a time."""
    shared_events: SharedEvents
    excluded: Collection[EventKind]
    hangs: Hangs
    waits: AllWaits

    @classmethod
    def of(cls, job: LinkedJob, base: int | None, excluded: Collection[EventKind]) -> Timeline:
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


class TimelineFormat(Struct, frozen=True):
    """Writes the timeline of a job in one format: a block for each rank, then one for all process groups."""

    timeline: Timeline
    args: ArgumentChoice

    separator: ClassVar[bytes] = b""
    """The text between two blocks."""

    @classmethod
    def of(cls, timeline: Timeline, args: ArgumentChoice) -> Self:
        """The format of a job."""
        return cls(timeline, args)

    @property
    def summarizes(self) -> bool:
        """True if every rank has a track that shows at a glance what it does."""
        return True

    def opening(self) -> bytes:
        """Everything before the first block."""
        raise NotImplementedError

    def closing(self, started: bool) -> bytes:
        """Everything after the last block; `started`: at least one block was written."""
        return b""

    def numbered(self, rank_timeline: RankTimeline) -> RankTimeline:
        """The timeline of a rank with the numbers that the format has for its threads."""
        return rank_timeline

    def rank(self, index: int, rank_timeline: RankTimeline) -> Block[Sequence[Finding]]:
        """The block of the rank at an index."""
        raise NotImplementedError

    def groups(self) -> Block[list[Finding]]:
        """The tracks of process groups."""
        raise NotImplementedError

    def cross_rank(self, ends: CrossRankEnds) -> tuple[list[Section], list[Finding]]:
        """The flows between ranks."""
        raise NotImplementedError


class _WrittenRank(Struct, frozen=True):
    """The part of a rank that is kept after it was written."""

    events: int
    findings: Sequence[Finding]
    ends: CrossRankEnds


class TimelineWriter(Struct, frozen=True):
    """One trace of all ranks."""

    choices: TimelineOptions = field(default_factory=TimelineOptions)

    name: ClassVar[str]
    file_name: ClassVar[str]
    """The name of the file in a directory."""
    format: ClassVar[type[TimelineFormat]]
    sizes: ClassVar[TypicalSizes]

    def configured(self, **options: str) -> Self:
        """A writer with these options."""
        return replace(self, choices=self.choices.with_options(options))

    @property
    def uncompressed(self) -> Self:
        """The same without compression."""
        return replace(self, choices=replace(self.choices, compressed=False))

    def forecast(self, job: LinkedJob, engine: Engine, *, compressed: bool) -> Forecast:
        """The expected size of the trace."""
        # Few traces are forecast: only those that a person waits for.
        from tracelink.converters.perfetto.timeline.forecast import SizeModel, forecast_of

        model = SizeModel(self.uncompressed.write, self.sizes, self.choices.args)
        return forecast_of(job, engine, model, compressed=compressed or self.choices.compressed)

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job; at most one rank for each process of the engine is in memory."""
        job, undrawn = self.choices.drawn(job, engine)
        timeline = Timeline.of(job, base_of(job), self.choices.excluded)
        written = self.format.of(timeline, self.choices.args)
        path = target.path(self.file_name)
        with target.file(self.file_name) as plain, self._stream(plain) as stream:
            stream.write(written.opening())
            blocks = BlockWriter(stream, spool_folder(path), engine, written.separator)
            makers: list[Callable[[], Block[_WrittenRank]]] = [
                partial(_rank_block, written, index) for index in range(len(job.parts))
            ]
            ranks = blocks.add(makers, [worker_of(part) for part in job.parts])
            common = _write_common(written, blocks, [rank.ends for rank in ranks]) if len(ranks) > 1 else []
            stream.write(written.closing(blocks.started))
        findings = {part.rank: rank.findings for part, rank in zip(job.parts, ranks, strict=True)}
        return [
            Output(
                path,
                self.name,
                job.ranks[0].rank if len(job.ranks) == 1 else None,
                target.size(self.file_name),
                sum(rank.events for rank in ranks),
                (*merged_findings(findings), *common, *undrawn),
            )
        ]

    @contextmanager
    def _stream(self, plain: BinaryIO) -> Iterator[Stream]:
        """The stream of the file: gzip under any name if that is chosen."""
        if not self.choices.compressed or isinstance(plain, GzipStream):
            yield plain
            return
        with GzipStream(plain) as stream:
            yield stream


def _rank_block(timeline_format: TimelineFormat, index: int) -> Block[_WrittenRank]:
    timeline = timeline_format.timeline
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
    return replace(first, message=message, count=sum(finding.count for _, finding in found))
