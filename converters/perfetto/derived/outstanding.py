"""Outstanding kernels: how much work of each stream has been launched and has not ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracelink.converters.perfetto.derived.levels import levels_of, thinned
from tracelink.converters.perfetto.layout import stream_name
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.events import (
    COUNT,
    GPU_WORK,
    NO_TIME,
    UNFINISHED,
    Counters,
    Int64s,
    Relation,
    Track,
    TrackKind,
)
from tracelink.graph import EventGraph

WHAT = "outstanding kernels"


def with_outstanding(graph: EventGraph, numbering: Numbering) -> EventGraph:
    """The graph of one rank with a counter for each stream that has work: +1 where it is launched, -1 at its end."""
    work = np.flatnonzero(graph.events.of_kind(*GPU_WORK) & graph.events.timed)
    counters, counter_of_track = _counters(graph, work, numbering)
    if not counters:
        return graph
    counter = counter_of_track[graph.events.track[work]]
    work, counter = work[counter >= 0], counter[counter >= 0]
    ended = graph.events.duration[work] != UNFINISHED
    levels = levels_of(
        np.concatenate([counter, counter[ended]]),
        np.concatenate([_launched(graph)[work], graph.events.end[work[ended]]]),
        np.repeat([1, -1], [len(work), int(np.count_nonzero(ended))]),
    )
    levels = thinned(levels, len(graph))
    first = len(graph.tracks)
    samples = Counters(
        (first + levels.counter).astype(np.int32), levels.time, levels.value.astype(np.float64)
    )
    return replace(
        graph,
        tracks=[*graph.tracks, *counters],
        counters=Counters.concatenate([graph.counters, samples]),
    )


def _launched(graph: EventGraph) -> Int64s:
    """When each event was launched: its innermost launch began last; without one, when it began itself."""
    events, launches = graph.events, graph.edges.where(Relation.LAUNCHES)
    launched = np.full(len(events), NO_TIME)
    np.maximum.at(launched, launches.target, events.start[launches.source])
    known = launched != NO_TIME
    return np.where(known, np.minimum(launched, events.start), events.start)


def _counters(graph: EventGraph, work: Int64s, numbering: Numbering) -> tuple[Sequence[Track], Int64s]:
    """A counter for each stream with work, and which of them each track has, or -1; two tracks can be one stream."""
    counters: dict[tuple[str, str], Track] = {}
    numbers = np.full(len(graph.tracks), -1, np.int64)
    for row in np.unique(graph.events.track[work]).tolist():
        track = graph.tracks[row]
        if track.kind != TrackKind.STREAM:
            continue
        stream = track.process, track.identity
        if stream not in counters:
            label = f"rank {numbering.rank(track.rank)} {WHAT}, {stream_name(track)}"
            counters[stream] = Track(TrackKind.COUNTER, *stream, label, track.rank, unit=COUNT)
        numbers[row] = list(counters).index(stream)
    return list(counters.values()), numbers
