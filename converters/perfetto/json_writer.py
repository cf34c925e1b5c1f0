"""Writes a job as one JSON trace for Perfetto's UI; a trace of one rank is also a Kineto trace for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import Int64s
from tracelink._model.events import InstantScope, Relation
from tracelink._model.findings import Finding
from tracelink.converters.perfetto import json_events
from tracelink.converters.perfetto.facts import (
    PartsByCollective,
    Texts,
    added_arguments,
    arrival_arguments,
    collective_arguments,
    header,
    micros,
    quoted,
    table,
)
from tracelink.converters.perfetto.json_events import (
    RELATIONS,
    SLICES_PER_CHUNK,
    NamedThread,
    ShownProcess,
    flow_events,
    flow_events_at_instants,
    process_of,
    sample_events,
    slice_texts,
    unclosed,
    write_flows,
    write_samples,
    write_slices,
)
from tracelink.converters.perfetto.timeline import schema
from tracelink.converters.perfetto.timeline.blocks import Block, Section, row_ranges
from tracelink.converters.perfetto.timeline.flows import (
    BoundFlows,
    CrossRankEnds,
    bound_flows,
    drawable_flows,
)
from tracelink.converters.perfetto.timeline.groups import (
    WAITS_NAME,
    GroupCounters,
    GroupTracks,
    collective_names,
    group_counters,
    group_tracks,
)
from tracelink.converters.perfetto.timeline.hangs import LastArrivals
from tracelink.converters.perfetto.timeline.job import (
    MAX_SECTIONS,
    SECTION_ROWS,
    ArgumentChoice,
    RankTimeline,
    Timeline,
    TimelineFormat,
    TimelineWriter,
)
from tracelink.converters.perfetto.timeline.layout import world_size
from tracelink.converters.perfetto.timeline.summary import ALL_RANKS, Waits

PID_SHIFT = 31
"""Numbers of threads have fewer bits."""

COLLECTIVES_PER_SECTION = 1 << 14
"""Fewer collectives are not worth a process."""


class _JsonFormat(TimelineFormat, frozen=True):
    separator = json_events.NEXT

    @property
    def summarizes(self) -> bool:
        """A timeline of one rank is also a profile for other tools."""
        return len(self.timeline.job.parts) > 1

    def opening(self) -> bytes:
        return header(self.timeline.job, self.timeline.base or 0) + json_events.EVENTS

    def closing(self, started: bool) -> bytes:
        return (json_events.LAST if started else b"") + json_events.END

    def numbered(self, rank_timeline: RankTimeline) -> RankTimeline:
        """One process for each rank."""
        rank, threads = rank_timeline.graph.ranks[0].rank, rank_timeline.threads
        tids = process_of(rank, rank_timeline.layout, threads).tids
        return replace(rank_timeline, threads=replace(threads, pid=[rank] * len(tids), tid=tids))

    def rank(self, index: int, rank_timeline: RankTimeline) -> Block[Sequence[Finding]]:
        """Names of tracks, then slices and instants, flows, and counters."""
        graph, drawing = rank_timeline.graph, rank_timeline.drawing
        single = len(self.timeline.job.parts) == 1
        numbering = self.timeline.numbering(index)
        flows = bound_flows(graph, drawing, rank_timeline.opening_order, numbering, by_correlation=single)
        if not rank_timeline.layout.processes:
            return Block(b"", (), rank_timeline.large, flows.findings)
        process = process_of(graph.ranks[0].rank, rank_timeline.layout, rank_timeline.threads)
        head = unclosed(process.metadata())
        added = added_arguments(graph, drawing, self.timeline.job, self.args)
        widest = InstantScope.ALL if single else InstantScope.PROCESS
        texts = slice_texts(rank_timeline, flows.slice_flows, added, self.args, widest)
        sections: list[Section] = [
            partial(write_slices, texts, source, low, high)
            for source, (begin, end) in enumerate(pairwise(graph.bounds))
            for low, high in row_ranges(begin, end, max(SECTION_ROWS, len(graph) // MAX_SECTIONS))
        ]
        sections += _flow_and_counter_sections(rank_timeline, flows)
        return Block(head, sections, rank_timeline.large, flows.findings)

    def groups(self) -> Block[list[Finding]]:
        return _group_block(self.timeline, self.args)

    def cross_rank(self, ends: CrossRankEnds) -> tuple[list[Section], list[Finding]]:
        return _cross_rank_sections(self.timeline, ends, self.args)


class PerfettoJsonWriter(TimelineWriter, frozen=True):
    """One trace of all ranks, in the JSON that Perfetto's UI and other readers of Kineto traces load."""

    name = "perfetto-json"
    file_name = "trace.json"
    format = _JsonFormat
    sizes = schema.TypicalSizes(
        track=(250, 0),
        flow=(180, 0),
        cross_rank_flow=(205, 30),
        participating=(0, 75),
        node=(0, 47),
        collective=(114, 166),
        participation=(0, 14),
        arrival=(97, 35),
        sample=(108, 0),
    )


def _flow_and_counter_sections(rank_timeline: RankTimeline, flows: BoundFlows) -> Iterator[Section]:
    graph, drawing = rank_timeline.graph, rank_timeline.drawing
    if len(flows.flows):
        yield partial(write_flows, flows, drawing, rank_timeline.threads, rank_timeline.thread)
    if len(graph.counters):
        rank = graph.ranks[0].rank
        yield partial(write_samples, graph, rank_timeline.layout.process_of_counter, drawing.base, rank)


# Tracks of process groups.


class _CollectiveTexts(Struct, frozen=True):
    """The data of which the text of collectives is made."""

    timeline: Timeline
    tracks: GroupTracks
    openings: Sequence[bytes]
    parts: PartsByCollective
    args: ArgumentChoice

    @property
    def base(self) -> int:
        return self.timeline.base or 0


def _group_block(timeline: Timeline, args: ArgumentChoice) -> Block[list[Finding]]:
    job = timeline.job
    tracks = group_tracks(job, timeline.hangs, timeline.common)
    waits = timeline.waits.of_rank(ALL_RANKS)
    counters = group_counters(job, tracks, timeline.common)
    process, tracks = _in_one_process(timeline, tracks, summarized=bool(len(waits)))
    head = unclosed(process.metadata()) if tracks.tids else b""
    openings = _openings(json_events.SLICE, schema.COLLECTIVE_CATEGORY, tracks)
    texts = _CollectiveTexts(timeline, tracks, openings, PartsByCollective.of(job), args)
    sections: list[Section] = [
        partial(_collectives, texts, low, high)
        for low, high in row_ranges(0, len(tracks.track), COLLECTIVES_PER_SECTION)
    ]
    large = len(sections) > 1
    if tracks.tids:
        sections.append(partial(_group_samples, counters, tracks.process, texts.base))
        sections.append(partial(_waits, timeline, tracks, waits))
    return Block(head, sections, large, tracks.findings)


def _in_one_process(
    timeline: Timeline, tracks: GroupTracks, *, summarized: bool
) -> tuple[ShownProcess, GroupTracks]:
    """The process of all groups, and their tracks with its numbers."""
    names = [*([WAITS_NAME] if summarized else []), *tracks.names]
    threads = [NamedThread(name, None) for name in names]
    process = ShownProcess.of_groups(world_size(timeline.job), threads)
    first = int(summarized)
    return process, replace(
        tracks, process=process.pid, tids=process.tids[first:], summary=process.tids[0] if summarized else 0
    )


def _openings(phase: bytes, category: str, tracks: GroupTracks) -> list[bytes]:
    """For each thread the text of an event up to its name."""
    return [
        json_events.event_opening(phase, b'"%s"' % category.encode(), b"%d" % tracks.process, b"%d" % tid)
        for tid in tracks.tids
    ]


def _collectives(texts: _CollectiveTexts, low: int, high: int) -> Iterator[bytes]:
    """The slices of the collectives from `low` to `high`, and their last arrivals."""
    drawn, job = texts.tracks.drawn, texts.timeline.job
    for at in range(low, high, SLICES_PER_CHUNK):
        some = slice(at, min(at + SLICES_PER_CHUNK, high))
        rows = drawn.row[some]
        column = [b""] * (7 * len(rows))
        column[0::7] = [texts.openings[track] for track in texts.tracks.track[some].tolist()]
        names, which = collective_names(job, rows, texts.timeline.hangs)
        name_texts = [quoted(name) for name in names]
        column[1::7] = [name_texts[number] for number in which.tolist()]
        column[2::7] = [json_events.TIME] * len(rows)
        column[3::7] = micros(drawn.start[some] - texts.base)
        column[4::7] = [json_events.DURATION] * len(rows)
        column[5::7] = micros(drawn.end[some] - drawn.start[some])
        if texts.args != ArgumentChoice.NONE:
            arguments = collective_arguments(job, texts.parts, rows, drawn.open_ended[some])
            column[6::7] = [json_events.ARGUMENTS + text for text in arguments]
        for index in np.flatnonzero(drawn.hung[some]).tolist():
            column[7 * index + 6] = json_events.HUNG_COLOUR + column[7 * index + 6]
        yield b"".join([*column, *_arrivals(texts, texts.tracks.arrivals.within(some.start, some.stop))])


def _arrivals(texts: _CollectiveTexts, arrivals: LastArrivals) -> list[bytes]:
    """The text of the instants of last arrivals."""
    if not len(arrivals):
        return []
    openings = _openings(json_events.INSTANT, schema.ARRIVAL_CATEGORY, texts.tracks)
    names, which = arrivals.names()
    name_texts = [quoted(name) for name in names]
    column = [json_events.TIME] * (5 * len(arrivals))
    column[0::5] = [openings[track] for track in texts.tracks.track[arrivals.index].tolist()]
    column[1::5] = [name_texts[number] for number in which.tolist()]
    column[3::5] = micros(arrivals.time - texts.base)
    column[4::5] = (
        [b""] * len(arrivals)
        if texts.args == ArgumentChoice.NONE
        else [json_events.ARGUMENTS + text for text in arrival_arguments(arrivals)]
    )
    return column


def _group_samples(counters: GroupCounters, process: int, base: int) -> Iterator[bytes]:
    openings = _table(json_events.sample_opening(name, process) for name in counters.names)
    yield from sample_events(openings, counters.counter, counters.time - base, counters.value)


def _waits(timeline: Timeline, tracks: GroupTracks, waits: Waits) -> Iterator[bytes]:
    """What any rank waits in."""
    if not len(waits):
        return
    process, thread = b"%d" % tracks.process, b"%d" % tracks.summary
    opening = json_events.event_opening(json_events.SLICE, quoted(schema.SUMMARY_CATEGORY), process, thread)
    names = [quoted(name) for name in timeline.waits.names]
    column = [opening] * (6 * len(waits))
    column[1::6] = [names[index] + json_events.TIME for index in waits.name.tolist()]
    column[2::6] = micros(waits.start - (timeline.base or 0))
    column[3::6] = [json_events.DURATION] * len(waits)
    column[4::6] = micros(waits.end - waits.start)
    column[5::6] = [json_events.HUNG_COLOUR if hung else b"" for hung in waits.hung.tolist()]
    yield b"".join(column)


# Flows between ranks.


class _CrossRankFlows(Struct, frozen=True):
    """Flows that are drawn; cause and effect are indexes of their ends."""

    cause: Int64s
    effect: Int64s
    relation: Int64s
    number: Int64s
    cause_rank: Int64s


def _cross_rank_sections(
    timeline: Timeline, ends: CrossRankEnds, args: ArgumentChoice
) -> tuple[list[Section], list[Finding]]:
    """The text of all flows between ranks: first their starts, then their ends."""
    job, shared = timeline.job, timeline.shared_events
    possible, findings = drawable_flows(job, ends, shared, ends.opens_last[shared.cause])
    cause, relation = shared.cause[possible], job.ties.relation[possible].astype(np.int64)
    _, first, number = np.unique(cause * RELATIONS + relation, return_index=True, return_inverse=True)
    effect, cause_rank = shared.effect[possible], job.ties.cause_rank[possible].astype(np.int64)
    flows = _CrossRankFlows(cause, effect, relation, number + timeline.common.first_flow, cause_rank)
    return [*_flow_starts(ends, flows, first), *_flow_ends(ends, flows, args)], findings


def _flow_starts(ends: CrossRankEnds, flows: _CrossRankFlows, first: Int64s) -> list[Section]:
    """One start for all flows with the same number."""
    cause, number = flows.cause[first], flows.number[first]
    codes, kinds = _codes(ends, cause, flows.relation[first])
    openings = _table(
        json_events.flow_opening(json_events.FLOW_START, schema.CROSS_RANK_FLOW_NAMES[relation], pid, tid)
        for relation, pid, tid in kinds
    )
    return [
        partial(flow_events, openings, codes[low:high], number[low:high], ends.start[cause[low:high]])
        for low, high in row_ranges(0, len(cause), SECTION_ROWS)
    ]


def _flow_ends(ends: CrossRankEnds, flows: _CrossRankFlows, args: ArgumentChoice) -> list[Section]:
    """The end of each flow, after an instant just before the end of the event that waited or received."""
    with_argument = args != ArgumentChoice.NONE
    codes, kinds = _codes(ends, flows.effect, flows.relation)
    openings = _table(
        json_events.flow_opening(
            json_events.ENCLOSED_FLOW_END, schema.CROSS_RANK_FLOW_NAMES[relation], pid, tid
        )
        for relation, pid, tid in kinds
    )
    instants = _table(
        json_events.instant_opening(
            schema.CROSS_RANK_FLOW_NAMES[relation],
            name,
            argument if with_argument else None,
            pid,
            tid,
        )
        for relation, pid, tid in kinds
        for name, argument in [schema.CROSS_RANK_INSTANTS[relation]]
    )
    return [
        partial(
            flow_events_at_instants,
            instants,
            flows.cause_rank[low:high] if with_argument else None,
            openings,
            codes[low:high],
            flows.number[low:high],
            ends.end[flows.effect[low:high]],
        )
        for low, high in row_ranges(0, len(codes), SECTION_ROWS)
    ]


def _codes(
    ends: CrossRankEnds, events: Int64s, relation: Int64s
) -> tuple[Int64s, list[tuple[Relation, int, int]]]:
    """A code for each flow, and for each code its relation, process and thread."""
    _, threads = np.unique(ends.pid[events] << PID_SHIFT | ends.tid[events], return_inverse=True)
    keys = threads * RELATIONS + relation
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    relations = [Relation(code) for code in relation[first].tolist()]
    pids, tids = ends.pid[events[first]].tolist(), ends.tid[events[first]].tolist()
    return codes, list(zip(relations, pids, tids, strict=True))


def _table(texts: Iterable[bytes]) -> Texts:
    listed = list(texts)
    return table(listed, len(listed))
