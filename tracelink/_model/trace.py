"""What a reader returns: the events, tracks, groups and communications of one rank, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import Bools, Int32s, Int64s, StringTable, Table, Unknown
from tracelink._model.communications import Communications, RoundTrips
from tracelink._model.events import Counters, Edges, Events, Key, KeyColumn, Track, TrackKind
from tracelink._model.fields import (
    PATH,
    Bytes,
    Count,
    Doc,
    Identifier,
    RankNumber,
    Row,
    Shown,
    Text,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding

Payload = bytes | memoryview
"""The JSON text of one event's arguments: an object, or empty."""


class Payloads(Protocol):
    """Access to the arguments of events, which are read again from the source when they are needed."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads in [first, last): the number of the first, and the JSON text of each."""
        ...


@runtime_checkable
class SparsePayloads(Payloads, Protocol):
    """Payloads that can be read one at a time, without reading those between them."""

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads that contain these numbers, which are sorted."""
        ...


def payloads_near(payloads: Payloads, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
    """Yields runs of consecutive payloads that contain these numbers, which are sorted; few others where possible."""
    if not len(numbers):
        return iter(())
    if isinstance(payloads, SparsePayloads):
        return payloads.near(numbers)
    return payloads.batches(int(numbers[0]), int(numbers[-1]) + 1)


class NoPayloads:
    """Payloads of a source whose events have no arguments."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields no run."""
        return iter(())


class ListedPayloads(Struct, frozen=True):
    """Payloads held in memory."""

    texts: Sequence[Payload]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields one run."""
        if chosen := self.texts[first:last]:
            yield first, chosen


class Source(Row, frozen=True):
    """One input: a file, an archive member, or standard input."""

    path: Annotated[
        Text, Doc("As the user gave it; a member of an archive is `archive:member`."), Shown(longest=PATH)
    ]
    format: Annotated[str, Doc("The name of the reader: `kineto`, `execution-trace`, `flight-recorder`.")]
    version: Annotated[str, Doc("Of the format, as recorded; empty if unknown."), Shown(drop=2)] = ""
    rank: RankNumber | None = None
    host: Annotated[str, Doc("The host."), Shown(drop=3)] = ""
    world_size: Annotated[Count | None, Doc("The number of ranks that it states."), Shown(hidden=True)] = None
    pid: Annotated[Identifier | None, Doc("The process."), Shown(hidden=True)] = None
    device: Annotated[
        Identifier | None,
        Doc("The only device of the process; its rank if that is unknown."),
        Shown(hidden=True),
    ] = None
    events: Annotated[Count, Doc("Events in the graph.")] = 0
    records: Annotated[
        Count, Doc("Everything that the file lists, with what only links events."), Shown(hidden=True)
    ] = 0
    bytes: Annotated[
        Bytes,
        Doc("Size as stored; of a rank of a timeline of several, a share of it."),
        Shown("size", drop=1),
    ] = 0
    start_ns: Annotated[
        UnixNanoseconds | None,
        Doc("The time of the first event, by the clock of the rank; null if the source has no times."),
    ] = None
    end_ns: Annotated[
        UnixNanoseconds | None,
        Doc("The end of the last event, by the clock of the rank."),
        Shown(hidden=True),
    ] = None


class SourceInfo(Source, frozen=True):
    """One input after it was read."""

    local_time_ns: Annotated[
        UnixNanoseconds | None, Doc("When the recording started, if the time zone was UTC.")
    ] = None
    zero_ns: Annotated[UnixNanoseconds, Doc("The time that is 0 in the file.")] = 0
    header: Annotated[Mapping[str, Any], Doc("Properties of the whole file.")] = field(default_factory=dict)
    recorder: Annotated[tuple[str, ...], Doc("The groups of a recorder with their backends: `nccl:0`.")] = ()


class ProcessGroup(Struct, frozen=True):
    """A process group as one source describes it."""

    name: Annotated[str, Doc("The name that torch gives the group.")]
    description: Annotated[str, Doc("The description that the program gave: `default_pg`.")] = ""
    ranks: Annotated[tuple[int, ...], Doc("Its ranks, in the order of the group; null if unknown.")] = ()
    size: Annotated[int, Unknown(0), Doc("Number of ranks; null if unknown.")] = 0
    backend: Annotated[str, Doc("`nccl`, `gloo`, ...")] = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Many consecutive ranks are pickled as a range."""
        ranks = self.ranks
        if len(ranks) < MANY_RANKS or ranks != _consecutive(ranks[0], len(ranks)):
            return ProcessGroup, (self.name, self.description, ranks, self.size, self.backend)
        return _large_group, (self.name, self.description, ranks[0], len(ranks), self.size, self.backend)


MANY_RANKS = 10_000


def shared_ranks(ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks as a tuple; many consecutive ones, which the groups of all ranks list, are held once."""
    if len(ranks) >= MANY_RANKS and ranks[-1] - ranks[0] == len(ranks) - 1:
        consecutive = _consecutive(ranks[0], len(ranks))
        if consecutive == tuple(ranks):
            return consecutive
    return tuple(ranks)


def _large_group(
    name: str, description: str, first: int, count: int, size: int, backend: str
) -> ProcessGroup:
    return ProcessGroup(name, description, _consecutive(first, count), size, backend)


@lru_cache(maxsize=8)
def _consecutive(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


class RankTrace(Struct):
    """The events of one rank: of one source at first, of all its sources after `combine`.

    Readers fill it; linking adds edges. Times are by the clock of the rank.
    """

    sources: list[SourceInfo]
    """The inputs; `events.source` is an index of this list."""
    strings: StringTable = field(default_factory=StringTable)
    """Names of events and all other strings that columns refer to by code."""
    events: Events = field(default_factory=Events.empty)
    """What happened, grouped by source and in the order of each source."""
    tracks: list[Track] = field(default_factory=list)
    """Threads, streams and so on; `events.track` is an index of this list."""
    keys: dict[Key, KeyColumn] = field(default_factory=dict)
    """Ids that the sources recorded, by which linking finds the edges."""
    counters: Counters = field(default_factory=Counters.empty)
    """Sampled values."""
    groups: list[ProcessGroup] = field(default_factory=list)
    """Process groups as the sources describe them; may contain duplicates."""
    communications: Communications = field(default_factory=Communications.empty)
    """What events declare about communication."""
    round_trips: RoundTrips = field(default_factory=RoundTrips.empty)
    """Times at which the rank asked rank 0 for its clock."""
    launch_flows: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Correlation ids that the source itself linked by a flow with both ends: used to verify launches."""
    edges: Edges = field(default_factory=Edges.empty)
    """Edges that the sources declare; an event has at most one caller and one launch."""
    payloads: list[Payloads] = field(default_factory=list)
    """Arguments of events, one item for each source; `events.payload` is a number within it."""
    findings: list[Finding] = field(default_factory=list)
    derived_from: frozenset[str] = frozenset()
    """Formats that the source was made from. If a rank has a source of one of them too, this one is skipped."""

    def key(self, key: Key) -> KeyColumn:
        """The column of a link key; empty if no source recorded it."""
        return self.keys.get(key) or KeyColumn.empty()

    @property
    def source(self) -> SourceInfo:
        """The source of a trace that has exactly one."""
        (source,) = self.sources
        return source

    @property
    def devices(self) -> frozenset[str]:
        """Numbers of the GPUs whose streams are in it."""
        return frozenset(track.process for track in self.tracks if track.kind == TrackKind.STREAM)

    def with_rank(self, rank: int) -> RankTrace:
        """The same trace with sources and tracks of `rank`."""
        sources = [replace(source, rank=rank) for source in self.sources]
        return replace(self, sources=sources, tracks=[replace(track, rank=rank) for track in self.tracks])


def combine(traces: Sequence[RankTrace]) -> RankTrace:
    """One trace with the events of several: rows, tracks, strings and sources are renumbered."""
    if len(traces) == 1:
        return traces[0]
    whole = RankTrace([])
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
    whole.round_trips = RoundTrips.concatenate([trace.round_trips for trace in traces])
    whole.launch_flows = (
        np.unique(np.concatenate([trace.launch_flows for trace in traces])) if traces else whole.launch_flows
    )
    whole.keys = {key: KeyColumn.concatenate(columns) for key, columns in keys.items()}
    return whole


TEXT_KEYS = frozenset(
    {
        *(Key.GROUP, Key.STATE, Key.CATEGORY),
        *(Key.COMPILE_ID, Key.COMPILED_FUNCTION, Key.CACHE_KEY, Key.OUTPUT_CODE),
        *(Key.KERNEL_SOURCES, Key.KERNEL_FILES, Key.SOURCE_LINES),
    }
)
"""Link keys whose values are codes of strings."""


def _behind(whole: RankTrace, events: Events, codes: Int32s) -> Events:
    """The events with tracks and sources numbered after those of `whole`, and with their new codes of strings."""
    if not len(events):
        return events
    return replace(
        events,
        name=codes[events.name],
        track=events.track + np.int32(len(whole.tracks)),
        source=events.source + np.int32(len(whole.sources)),
    )


def scoped(trace: RankTrace, column: KeyColumn) -> Int64s:
    """The column's values, made different for each source: several sources may use the same ids."""
    source = trace.events.source[column.rows]
    if len(trace.sources) < 2 or not len(source) or source.min() == source.max():
        return column.values
    distinct, code = np.unique(column.values, return_inverse=True)
    return source.astype(np.int64) * len(distinct) + code


def scoped_pair(trace: RankTrace, first: KeyColumn, second: KeyColumn) -> tuple[Int64s, Int64s]:
    """`scoped` for two columns of the same ids, whose results can be compared."""
    both = KeyColumn(np.concatenate([first.rows, second.rows]), np.concatenate([first.values, second.values]))
    values = scoped(trace, both)
    return values[: len(first)], values[len(first) :]


# Recorded waits and uses of tensor storages: what sources contain about order, in addition to events


class Awaited(IntEnum):
    """What is waited for, and by whom."""

    STREAM = 0
    """The host waits for all that a stream has been given."""
    DEVICE = 1
    """The host waits for all that a device has been given."""
    EVENT = 2
    """The host waits for what a stream had been given when the event was recorded."""
    EVENT_BY_STREAM = 3
    """A stream waits for that."""


class Synchronizations(Table, frozen=True):
    """One row per wait that a profiler recorded; UNKNOWN where it was not recorded."""

    row: Int64s
    """The event of the record."""
    awaited: Int64s
    """A value of `Awaited`."""
    device: Int64s
    stream: Int64s
    """Number of the stream: of the one waited for, and where a stream waits, of that one."""
    event_stream: Int64s
    """Number of the stream on which the event was recorded."""
    event_record: Int64s
    """Correlation of the call that recorded the event."""

    def where(self, *awaited: Awaited) -> Synchronizations:
        """Those that wait for one of these."""
        return self.take(np.isin(self.awaited, awaited))


class StorageUses(Table, frozen=True):
    """One row per storage that a node of an execution trace reads or writes."""

    row: Int64s
    """The node."""
    storage: Int64s
    writes: Bools
