"""Linked ranks to graphs: of one rank, still on its own clock, and of a whole job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.clock import Clock
from tracelink.events import Edges
from tracelink.graph import EventGraph, Rank, source_bounds
from tracelink.job import Job, recoded_texts, shifted_to_graph
from tracelink.keeping import Keeper, Place
from tracelink.linking.within import LinkedRank
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup, RankTrace, combine


def graph_of_rank(linked: LinkedRank) -> EventGraph:
    """A graph of one rank by its own clock, without anything that takes other ranks to know."""
    trace = linked.trace
    rank = next((source.rank for source in trace.sources if source.rank is not None), 0)
    host = next((source.host for source in trace.sources if source.host), "")
    world_size = next((source.world_size for source in trace.sources if source.world_size), None)
    return EventGraph(
        strings=trace.strings.texts(),
        events=trace.events,
        edges=linked.edges,
        tracks=trace.tracks,
        ranks=[Rank(rank, host, world_size)],
        sources=trace.sources,
        bounds=source_bounds(trace.events.source, len(trace.sources)),
        keys=trace.keys,
        counters=trace.counters,
        groups=trace.groups,
        payloads=trace.payloads,
        reports={rank: linked.reports},
    )


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A rank that is kept by its own clock, and put on the reference clock when it is loaded."""

    row: Rank
    clock: Clock
    groups: Sequence[ProcessGroup]
    keeper: Keeper
    place: Place[EventGraph] | None

    @property
    def rank(self) -> int:
        """Which rank."""
        return self.row.rank

    def load(self) -> EventGraph:
        """The rank's graph on the reference clock."""
        if self.place is None:
            raise ValueError("this job was read without its events")
        graph = self.keeper.get(self.place)
        events, counters = graph.events, graph.counters
        start = self.clock.corrected(events.start)
        if start is not events.start:
            end = self.clock.corrected(events.end)
            duration = np.where(events.timed & (events.duration >= 0), end - start, events.duration)
            events = replace(events, start=start, duration=duration)
            counters = replace(counters, time=self.clock.corrected(counters.time))
        return replace(graph, events=events, counters=counters, ranks=[self.row], groups=self.groups)


def assemble(job: Job) -> EventGraph:
    """One graph of all ranks in memory: rows renumbered, and what ties ranks together with them."""
    graphs = [part.load() for part in job.parts]
    whole = combine([_trace(graph) for graph in graphs])
    offsets = np.cumsum([0, *(len(graph) for graph in graphs)]).tolist()
    rows = {
        part.rank: slice(begin, end)
        for part, begin, end in zip(job.parts, offsets[:-1], offsets[1:], strict=True)
    }
    edges = [graph.edges.shifted(begin) for graph, begin in zip(graphs, offsets, strict=False)]
    codes = whole.strings.absorb(job.strings)
    return EventGraph(
        strings=whole.strings.texts(),
        events=whole.events,
        edges=Edges.concatenate([*edges, *_ties(job, rows)]),
        tracks=whole.tracks,
        ranks=job.ranks,
        sources=whole.sources,
        bounds=source_bounds(whole.events.source, len(whole.sources)),
        keys=whole.keys,
        counters=whole.counters,
        groups=job.groups,
        collectives=recoded_texts(job.collectives, codes),
        participations=shifted_to_graph(recoded_texts(job.participations, codes), rows),
        messages=shifted_to_graph(recoded_texts(job.messages, codes), rows),
        payloads=whole.payloads,
        findings=job.findings,
        reports=job.reports,
    )


def _ties(job: Job, rows: Mapping[int, slice]) -> list[Edges]:
    """The edges between ranks; like all edges that say why something waited, from effect to cause."""
    ties = job.ties
    if not len(ties):
        return []
    first = np.zeros(max(rows) + 1, np.int64)
    for rank, span in rows.items():
        first[rank] = span.start
    source, target = ties.effect + first[ties.effect_rank], ties.cause + first[ties.cause_rank]
    return [Edges(source, target, ties.relation.astype(np.uint8))]


def _trace(graph: EventGraph) -> RankTrace:
    return RankTrace(
        sources=list(graph.sources),
        strings=StringTable.of(graph.strings),
        events=graph.events,
        tracks=list(graph.tracks),
        keys=dict(graph.keys),
        counters=graph.counters,
        payloads=list(graph.payloads),
    )
