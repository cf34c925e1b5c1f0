"""RankTrace, SourceInfo, ProcessGroup, Payloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tracelink.errors import Finding
from tracelink.model.columns import Int32s, Int64s, StringTable
from tracelink.model.communications import Communications
from tracelink.model.events import Counters, Edges, Events, Key, KeyColumn, Track

Payload = bytes | memoryview
"""The JSON text of one event's own arguments: an object, or nothing."""


class Payloads(Protocol):
    """Gives events their own arguments back, from the source, when someone asks."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive payloads in [first, last): the number of the first, and the JSON text of each."""
        ...


@runtime_checkable
class SparsePayloads(Payloads, Protocol):
    """Payloads of which a few cost less than all between them."""

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive payloads in which these, which are in order, are found."""
        ...


class NoPayloads:
    """Events that have no arguments of their own."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Nothing."""
        return iter(())


@dataclass(frozen=True, slots=True)
class ListedPayloads:
    """Payloads that are held in memory."""

    texts: Sequence[Payload]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """One run."""
        if chosen := self.texts[first:last]:
            yield first, chosen


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What is known of one input once it was read."""

    path: str
    format: str
    version: str = ""
    rank: int | None = None
    host: str = ""
    world_size: int | None = None
    pid: int | None = None
    events: int = 0
    records: int = 0
    """Everything that the file lists, events and what only describes or links them."""
    bytes: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    zero_ns: int = 0
    """What the file calls time 0."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """What the file says of itself as a whole: device properties, distributed info, schema."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group as one source describes it; `ranks` is empty where the source does not list them."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    size: int = 0
    backend: str = ""


@dataclass(slots=True)
class RankTrace:
    """Everything known of one rank: first from one source, then from all of them together.

    `events.source` is a row of `sources` and `payloads`, `events.track` a row of `tracks`.
    """

    sources: list[SourceInfo]
    strings: StringTable
    events: Events
    tracks: list[Track] = field(default_factory=list)
    keys: dict[Key, KeyColumn] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters.empty)
    groups: list[ProcessGroup] = field(default_factory=list)
    communications: Communications = field(default_factory=Communications.empty)
    launch_flows: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Correlations that a producer linked itself, by an arrow with both ends: a check on the launches."""
    edges: Edges = field(default_factory=Edges.empty)
    """What the sources say themselves of their events; each has at most one caller and one launch."""
    payloads: list[Payloads] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    derived_from: frozenset[str] = frozenset()
    """Formats of which a source was made: beside one of them its events would stand twice."""

    def key(self, key: Key) -> KeyColumn:
        """The column of a link key; empty where no source has it."""
        return self.keys.get(key) or KeyColumn.empty()

    @property
    def source(self) -> SourceInfo:
        """The source of a trace that comes from one."""
        (source,) = self.sources
        return source

    def with_rank(self, rank: int) -> RankTrace:
        """The same trace, as one of `rank`."""
        sources = [replace(source, rank=rank) for source in self.sources]
        return replace(self, sources=sources, tracks=[replace(track, rank=rank) for track in self.tracks])


def combine(traces: Sequence[RankTrace]) -> RankTrace:
    """One trace out of several: rows, tracks, texts and sources renumbered, nothing lost."""
    if len(traces) == 1:
        return traces[0]
    whole = RankTrace([], StringTable(), Events.empty())
    events: list[Events] = []
    edges: list[Edges] = []
    counters: list[Counters] = []
    keys: dict[Key, list[KeyColumn]] = {}
    communications: list[Communications] = []
    offset = 0
    for trace in traces:
        codes = whole.strings.absorb(trace.strings.texts())
        events.append(_behind(whole, trace.events, codes))
        edges.append(trace.edges.shifted(offset))
        for key, column in trace.keys.items():
            recoded = key in TEXT_KEYS and len(column)
            values = codes.astype(np.int64)[column.values] if recoded else column.values
            keys.setdefault(key, []).append(replace(column, values=values).shifted(offset))
        communications.append(trace.communications.recoded(codes).shifted(offset))
        counters.append(replace(trace.counters, track=trace.counters.track + np.int32(len(whole.tracks))))
        offset += len(trace.events)
        whole.tracks += trace.tracks
        whole.sources += trace.sources
        whole.payloads += trace.payloads
        whole.groups += trace.groups
        whole.findings += trace.findings
    whole.events = Events.concatenate(events)
    whole.edges = Edges.concatenate(edges)
    whole.counters = Counters.concatenate(counters)
    whole.communications = Communications.concatenate(communications)
    whole.launch_flows = (
        np.unique(np.concatenate([trace.launch_flows for trace in traces])) if traces else whole.launch_flows
    )
    whole.keys = {key: KeyColumn.concatenate(columns) for key, columns in keys.items()}
    return whole


TEXT_KEYS = frozenset({Key.GROUP, Key.STATE})
"""Link keys whose values are codes of the string table."""


def _behind(whole: RankTrace, events: Events, codes: Int32s) -> Events:
    """The same events where their tracks and sources stand behind those of `whole`, with texts by their new codes."""
    if not len(events):
        return events
    return replace(
        events,
        name=codes[events.name],
        track=events.track + np.int32(len(whole.tracks)),
        source=events.source + np.int32(len(whole.sources)),
    )
