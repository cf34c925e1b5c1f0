"""Writes a job as one JSON trace for Perfetto's UI; a trace of one rank is also a Kineto trace for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import Bools, Int64s
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
    Column,
    NamedThread,
    RankSlices,
    ShownProcess,
    flow_events,
    flow_events_at_instants,
    interleave,
    process_of,
    sample_events,
    unclosed,
    write_flows,
    write_samples,
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
        slices = RankSlices.of(rank_timeline, flows.slice_flows, added, self.args, widest)
        sections: list[Section] = [
            partial(slices.write, source, low, high)
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


def _group_block(timeline: Timeline, args: ArgumentChoice) -> Block[list[Finding]]:
    job = timeline.job
    tracks = group_tracks(job, timeline.hangs, timeline.common)
    waits = timeline.waits.of_rank(ALL_RANKS)
    counters = group_counters(job, tracks, timeline.common)
    process, tracks = _in_one_process(timeline, tracks, summarized=bool(len(waits)))
    head = unclosed(process.metadata()) if tracks.tids else b""
    parts = PartsByCollective.of(job)
    sections: list[Section] = [
        partial(_collectives, timeline, tracks, parts, args, low, high)
        for low, high in row_ranges(0, len(tracks.track), COLLECTIVES_PER_SECTION)
    ]
    large = len(sections) > 1
    if tracks.tids:
        sections.append(partial(_group_samples, counters, tracks.process, timeline.base or 0))
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


def _collectives(
    timeline: Timeline,
    tracks: GroupTracks,
    parts: PartsByCollective,
    args: ArgumentChoice,
    low: int,
    high: int,
) -> Iterator[bytes]:
    """The slices of the collectives from `low` to `high`, and their last arrivals."""
    drawn, job, base = tracks.drawn, timeline.job, timeline.base or 0
    with_arguments = args != ArgumentChoice.NONE
    for at in range(low, high, SLICES_PER_CHUNK):
        some = slice(at, min(at + SLICES_PER_CHUNK, high))
        rows, start = drawn.row[some], drawn.start[some]
        of_slices = collective_arguments(job, parts, rows, drawn.open_ended[some]) if with_arguments else ()
        yield _event_texts(
            _openings(json_events.SLICE, schema.COLLECTIVE_CATEGORY, tracks, tracks.track[some]),
            *collective_names(job, rows, timeline.hangs),
            [*_times(start - base, drawn.end[some] - start), _hung(drawn.hung[some])],
            of_slices,
        )
        if len(arrivals := tracks.arrivals.within(some.start, some.stop)):
            yield _event_texts(
                _openings(json_events.INSTANT, schema.ARRIVAL_CATEGORY, tracks, tracks.track[arrivals.index]),
                *arrivals.names(),
                _times(arrivals.time - base),
                arrival_arguments(arrivals) if with_arguments else (),
            )


def _openings(phase: bytes, category: str, tracks: GroupTracks, track: Int64s) -> list[bytes]:
    """The texts of events on these threads up to their names."""
    opening = partial(json_events.event_opening, phase, quoted(category), b"%d" % tracks.process)
    of_threads = [opening(b"%d" % tid) for tid in tracks.tids]
    return [of_threads[thread] for thread in track.tolist()]


def _times(start: Int64s, duration: Int64s | None = None) -> list[Column]:
    """Columns with the time of slices, or of instants without a duration."""
    start_texts: list[Column] = [json_events.TIME, micros(start)]
    return start_texts if duration is None else [*start_texts, json_events.DURATION, micros(duration)]


def _hung(hung: Bools) -> list[bytes]:
    return [json_events.HUNG_COLOUR if one else b"" for one in hung.tolist()]


def _event_texts(
    openings: Sequence[bytes],
    names: Sequence[str],
    name: Int64s,
    times: Sequence[Column],
    arguments: Sequence[bytes],
) -> bytes:
    """The texts of events on tracks of groups, by the index of each one's name; `arguments` can be missing."""
    quoted_names = [quoted(text) for text in names]
    named = [quoted_names[number] for number in name.tolist()]
    argued: list[Column] = [json_events.ARGUMENTS, arguments] if arguments else []
    return b"".join(interleave(len(openings), openings, named, *times, *argued))


def _group_samples(counters: GroupCounters, process: int, base: int) -> Iterator[bytes]:
    openings = _table(json_events.sample_opening(name, process) for name in counters.names)
    yield from sample_events(openings, counters.counter, counters.time - base, counters.value)


def _waits(timeline: Timeline, tracks: GroupTracks, waits: Waits) -> Iterator[bytes]:
    """The waits of any rank."""
    if not len(waits):
        return
    process, thread = b"%d" % tracks.process, b"%d" % tracks.summary
    opening = json_events.event_opening(json_events.SLICE, quoted(schema.SUMMARY_CATEGORY), process, thread)
    times = _times(waits.start - (timeline.base or 0), waits.end - waits.start)
    names = timeline.waits.names, waits.name
    yield _event_texts([opening] * len(waits), *names, [*times, _hung(waits.hung)], ())


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
