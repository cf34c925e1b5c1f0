"""EventGraph, Rank, tables as frames, what encloses what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.errors import Finding
from tracelink.model.clock import Clock
from tracelink.model.collectives import Collectives, Messages, Participations
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s, arrow_table, frame
from tracelink.model.communications import Evidence
from tracelink.model.events import Counters, Edges, EventKind, Events, Key, KeyColumn, Relation, Track
from tracelink.model.trace import Payload, Payloads, ProcessGroup, SourceInfo

if TYPE_CHECKING:
    import networkx
    import pandas
    import pyarrow

    from tracelink.model.job import Job


# Shared definitions


STATED = "stated by the source"
"""The note on edges that no linker had to find."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """How one relation was linked on one rank: `linked` of `candidates`, and why the others were not."""

    relation: str
    linked: int
    candidates: int
    unlinked: Mapping[str, int] = field(default_factory=dict)
    """Reason to count; the counts of the reasons explain `candidates - linked`."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Anything else worth counting: events left out of the candidates, ids that agree, names that differ."""


# Tables of a job as columns to read: texts instead of codes, rows of plain values.


Objects = npt.NDArray[np.object_]


def shared_table(of: EventGraph | Job, name: str) -> dict[str, Any]:
    """The columns of a table that a graph and a job share; KeyError where there is no such table."""
    match name:
        case "collectives" | "participations" | "messages":
            return _readable(getattr(of, name), of)
        case "sources":
            return listed(SourceInfo, of.sources)
        case "groups":
            return listed(ProcessGroup, of.groups)
        case "findings":
            return listed(Finding, of.findings)
        case _:
            raise KeyError(name)


def listed(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """The columns of a table whose rows are of a kind."""
    plain = msgspec.to_builtins(list(rows))
    return {column.name: [row[column.name] for row in plain] for column in fields(kind)}


def texts_of(names: Sequence[str], codes: npt.NDArray[Any]) -> Objects:
    """The text of each code; None where it is unknown."""
    texts: Objects = np.array([*names, None], dtype=object)[codes]
    return texts


def evidence_of(codes: npt.NDArray[Any]) -> Objects:
    """The word for what the times of participations rest on."""
    names = [evidence.name.lower() for evidence in Evidence]
    return texts_of(names, np.maximum(codes, Evidence.NONE))


def _readable(table: Collectives | Participations | Messages, of: EventGraph | Job) -> dict[str, Any]:
    columns: dict[str, Any] = {name: _known(column) for name, column in table.columns().items()}
    columns.update({name: texts_of(of.strings, getattr(table, name)) for name in table.text_columns()})
    if isinstance(table, Participations):
        columns["evidence"] = evidence_of(table.evidence)
    else:
        columns["group_name"] = texts_of([group.name for group in of.groups], table.group)
    return columns


def _known(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column with what is not known masked, so that no sum or mean takes it for a number."""
    if not np.issubdtype(column.dtype, np.integer):
        return column
    masked: npt.NDArray[Any] = np.ma.masked_array(column, (column == UNKNOWN) | (column == NO_TIME))
    return masked


# The event graph: every event of every rank, and why it happened.


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the job, and where its clock stands relative to the reference clock."""

    rank: int
    host: str = ""
    world_size: int | None = None
    clock_offset_ns: int = 0
    """What its clock shows more than the reference clock, at `clock_reference_ns`."""
    clock_uncertainty_ns: int | None = None
    clock_drift_ppm: float = 0.0
    clock_low_ns: int | None = None
    clock_high_ns: int | None = None
    """The offset must lie between these; None where nothing bounds it."""
    clock_constraints: int = 0
    clock_reference_ns: int = 0

    @classmethod
    def with_clock(cls, clock: Clock, world_size: int | None = None) -> Rank:
        """A rank whose clock is known."""
        return cls(
            clock.rank,
            clock.host,
            world_size,
            clock.offset_ns,
            clock.uncertainty_ns,
            clock.drift_ppm,
            clock.low_ns,
            clock.high_ns,
            clock.constraints,
            clock.reference_ns,
        )

    @property
    def clock(self) -> Clock:
        """The estimate of this rank\'s clock."""
        return Clock(
            self.rank,
            self.host,
            self.clock_offset_ns,
            self.clock_drift_ppm,
            self.clock_low_ns,
            self.clock_high_ns,
            self.clock_constraints,
            self.clock_reference_ns,
        )


@dataclass(frozen=True, slots=True)
class EventGraph:
    """Events of all ranks on one clock, and the edges between them.

    Events of one source stand together and in the order of the source; `bounds[i]:bounds[i + 1]` are the rows
    of source `i`. Columns of events in `participations` and `messages` are rows, or -1.
    """

    strings: Sequence[str]
    events: Events
    edges: Edges
    tracks: Sequence[Track]
    ranks: Sequence[Rank]
    sources: Sequence[SourceInfo]
    bounds: Sequence[int]
    keys: Mapping[Key, KeyColumn] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters.empty)
    groups: Sequence[ProcessGroup] = ()
    collectives: Collectives = field(default_factory=lambda: Collectives.of(0))
    participations: Participations = field(default_factory=lambda: Participations.of(0))
    messages: Messages = field(default_factory=lambda: Messages.of(0))
    payloads: Sequence[Payloads] = ()
    findings: Sequence[Finding] = ()
    reports: Mapping[int, Sequence[LinkReport]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.events)

    def name(self, row: int) -> str:
        """The name of one event."""
        return self.strings[int(self.events.name[row])]

    @property
    def span(self) -> tuple[int, int] | tuple[None, None]:
        """The times of the first and the last event or sample; None where nothing has a time."""
        timed, samples = self.events.timed, self.counters.time
        begins = [int(times.min()) for times in (self.events.start[timed], samples) if len(times)]
        ends = [int(times.max()) for times in (self.events.end[timed], samples) if len(times)]
        return (min(begins), max(ends)) if begins else (None, None)

    def rank_of_events(self) -> npt.NDArray[np.int32]:
        """The rank of each event."""
        return np.array([track.rank for track in self.tracks], np.int32)[self.events.track]

    def key(self, key: Key) -> KeyColumn:
        """The column of a link key; empty where no source has it."""
        return self.keys.get(key) or KeyColumn.empty()

    def rows_of_source(self, source: int) -> slice:
        """The rows of one source."""
        return slice(self.bounds[source], self.bounds[source + 1])

    def arguments(self, row: int) -> dict[str, Any]:
        """The event's own arguments, as its source recorded them."""
        source, number = int(self.events.source[row]), int(self.events.payload[row])
        for first, texts in self.payloads[source].batches(number, number + 1):
            text = texts[number - first]
            decoded = msgspec.json.decode(text) if len(text) else {}
            return decoded if isinstance(decoded, dict) else {"value": decoded}
        return {}

    def targets(self, row: int, relation: Relation) -> Int64s:
        """The events that stand in `relation` to `row`, seen from `row`."""
        edges = self.edges
        targets: Int64s = edges.target[(edges.source == row) & (edges.relation == relation)]
        return targets

    def to_networkx(
        self, selection: Iterable[int] | npt.NDArray[Any] | None = None
    ) -> networkx.MultiDiGraph[int]:
        """The selected events (row numbers, or one boolean for each event) and the edges between them."""
        import networkx

        rows = _rows(selection, len(self))
        chosen = np.zeros(len(self), np.bool_)
        chosen[rows] = True
        result: networkx.MultiDiGraph[int] = networkx.MultiDiGraph()
        ranks = self.rank_of_events() if len(self) else np.empty(0, np.int32)
        for row in rows.tolist():
            result.add_node(
                row,
                name=self.name(row),
                kind=EventKind(self.events.kind[row]).name.lower(),
                rank=int(ranks[row]),
                start=int(self.events.start[row]),
                duration=int(self.events.duration[row]),
            )
        inside = chosen[self.edges.source] & chosen[self.edges.target]
        for source, target, relation in zip(
            self.edges.source[inside].tolist(),
            self.edges.target[inside].tolist(),
            self.edges.relation[inside].tolist(),
            strict=True,
        ):
            result.add_edge(source, target, relation=Relation(relation).name.lower())
        return result

    def to_pandas(self, table: str = "events") -> pandas.DataFrame:
        """One table as a pandas frame, with texts instead of codes (needs the extra `pandas`)."""
        return frame(self.table(table))

    def to_arrow(self, table: str = "events") -> pyarrow.Table:
        """One table as an Arrow table, with texts instead of codes (needs the extra `arrow`)."""
        return arrow_table(self.table(table))

    def table(self, name: str) -> dict[str, Any]:
        """The columns of one table, with texts instead of codes.

        `events`, `edges`, `counters`, `tracks`, `ranks`, `sources`, `groups`, `collectives`, `participations`,
        `messages` or `findings`. What is unknown of collectives, participations and messages is masked (missing in
        frames); rates are NaN, texts None. `group` is the row of `groups`; `group_name` is its name.
        """
        match name:
            case "events":
                kinds = [kind.name.lower() for kind in EventKind]
                columns = self.events.columns()
                return {
                    **columns,
                    "kind": texts_of(kinds, columns["kind"]),
                    "name": texts_of(self.strings, columns["name"]),
                    "rank": self.rank_of_events(),
                }
            case "edges":
                relations = [relation.name.lower() for relation in Relation]
                return {**self.edges.columns(), "relation": texts_of(relations, self.edges.relation)}
            case "counters":
                return self.counters.columns()
            case "tracks":
                return listed(Track, self.tracks)
            case "ranks":
                return listed(Rank, self.ranks)
            case _:
                return shared_table(self, name)


def source_bounds(source: npt.NDArray[np.int32], sources: int) -> list[int]:
    """Where each source's rows begin, for events that are grouped by source; one more entry for the end."""
    bounds: list[int] = np.searchsorted(source, np.arange(sources + 1)).tolist()
    assert all(before <= after for before, after in pairwise(bounds))
    return bounds


def _rows(selection: Iterable[int] | npt.NDArray[Any] | None, length: int) -> Int64s:
    if selection is None:
        return np.arange(length)
    chosen = np.asarray(selection if isinstance(selection, np.ndarray) else list(selection))
    if chosen.dtype == np.bool_:
        return np.flatnonzero(chosen)
    return chosen.astype(np.int64)


# One rank's events, as what is written of them asks for them.


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A graph of one rank."""

    graph: EventGraph

    @property
    def events(self) -> Events:
        """The rank's events."""
        return self.graph.events

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        return self.graph.edges.where(relation)

    def key(self, key: Key, default: int) -> Int64s:
        """The values of a link key, one for each row."""
        return self.graph.key(key).dense(len(self.events), default)

    def rows(self, *kinds: EventKind) -> Int64s:
        """The rows of these kinds."""
        return np.flatnonzero(self.events.of_kind(*kinds))


def texts_of_excerpt(graph: EventGraph, rows: Int64s) -> Iterator[tuple[int, Payload]]:
    """What the sources recorded of these rows, in the order of the sources; each stretch of a source is read once."""
    events = graph.events
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(events.payload[mine], kind="stable")]
        numbers = events.payload[mine]
        for first, texts in graph.payloads[source].batches(int(numbers[0]), int(numbers[-1]) + 1):
            begin, end = np.searchsorted(numbers, [first, first + len(texts)]).tolist()
            for row, number in zip(mine[begin:end].tolist(), numbers[begin:end].tolist(), strict=True):
                yield row, texts[number - first]


def execution_traces(graph: EventGraph) -> list[int]:
    """The sources that hold nodes, the one with the most nodes first."""
    nodes = graph.events.source[graph.events.of_kind(EventKind.NODE)]
    sources, counts = np.unique(nodes, return_counts=True)
    order: list[int] = sources[np.argsort(-counts, kind="stable")].tolist()
    return order


# Which operator encloses what, for whole columns at once.


def callers(part: Excerpt) -> Int64s:
    """The caller of each row, or -1."""
    calls = part.where(Relation.CALLS)
    caller = np.full(len(part.events), UNKNOWN, np.int64)
    caller[calls.target] = calls.source
    return caller


def innermost(caller: Int64s, marked: Bools) -> Int64s:
    """For each row the nearest marked one among itself and what encloses it, or -1.

    Every step doubles how far each row has looked, so that depth costs little and a circle ends.
    """
    nowhere = len(caller)
    place = np.where(marked, np.arange(nowhere), np.where(caller == UNKNOWN, nowhere, caller))
    place = np.append(place, nowhere)
    for _ in range(nowhere.bit_length()):
        further = place[place]
        if np.array_equal(further, place):
            break
        place = further
    found = place[:nowhere]
    return np.where(np.append(marked, False)[found], found, UNKNOWN)


def outside(caller: Int64s, nearest: Int64s) -> Int64s:
    """For each row the nearest marked one around it, itself left out, or -1."""
    return np.where(caller == UNKNOWN, UNKNOWN, nearest[caller])


def depths(parent: Int64s) -> Int64s:
    """How many enclose each; every step doubles how far it looks, so that a circle ends too."""
    hop = np.append(parent, UNKNOWN)
    depth: Int64s = (hop != UNKNOWN).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        inside = np.flatnonzero(hop != UNKNOWN)
        if not len(inside):
            break
        depth[inside] += depth[hop[inside]]
        hop[inside] = hop[hop[inside]]
    return depth[: len(parent)]


def greatest_inside(parent: Int64s, values: Int64s) -> Int64s:
    """For each the greatest value of itself and of all that it encloses; every step looks twice as far down."""
    nowhere = len(parent)
    greatest = np.append(values, np.iinfo(np.int64).min)
    above = np.append(np.where(parent == UNKNOWN, nowhere, parent), nowhere)
    for _ in range(nowhere.bit_length()):
        if (above == nowhere).all():
            break
        seen = greatest.copy()
        np.maximum.at(seen, above, greatest)
        greatest = seen
        above = above[above]
    return greatest[:nowhere]


def exclusive_time(start: Int64s, end: Int64s, around: Int64s) -> Int64s:
    """Length of each interval without the union of those directly inside it; `around` is the row of each parent."""
    inner = np.flatnonzero(around != UNKNOWN)
    outer = around[inner]
    left = np.clip(start[inner], start[outer], end[outer])
    right = np.clip(end[inner], start[outer], end[outer])
    order = np.lexsort((left, outer))
    outer, left, right = outer[order], left[order], right[order]
    reached = np.maximum(_reached_before(outer, right), left)
    covered = np.zeros(len(start), np.int64)
    np.add.at(covered, outer, np.maximum(right - reached, 0))
    return end - start - covered


def _reached_before(group: Int64s, right: Int64s) -> Int64s:
    """The latest end among the earlier ones of the same group; the lowest number where there are none.

    Ends are replaced by their rank, so that group and end fit one number that only grows.
    """
    ends, rank = np.unique(right, return_inverse=True)
    _, number = np.unique(group, return_inverse=True)
    latest = np.maximum.accumulate(number * len(ends) + rank)
    before = np.append(UNKNOWN, latest[:-1])[: len(group)]
    same = before >= number * len(ends)
    lowest = np.iinfo(np.int64).min
    if not len(ends):
        return right
    return np.where(same, ends[np.where(same, before % len(ends), 0)], lowest)
