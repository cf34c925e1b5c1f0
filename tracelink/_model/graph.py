"""The event graph: what happened on every rank, and why. Start here.

`EventGraph` is what `tracelink.load` returns. All times are on the reference clock (see `tracelink._model.clock`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._model import fields
from tracelink._model.clock import Clock
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s
from tracelink._model.communications import Collectives, Messages, Participations
from tracelink._model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    KindName,
    Relation,
    RelationName,
    Track,
    member,
)
from tracelink._model.fields import Count, Doc
from tracelink._model.findings import Finding
from tracelink._model.tables import (
    SHARED,
    Columns,
    GraphTable,
    argument_column,
    arguments_of,
    collecting_later,
    columns_of,
    shared_table,
    texts_of,
)
from tracelink._model.trace import Payload, Payloads, ProcessGroup, SourceInfo, payloads_near

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars
    import pyarrow

    from tracelink._model.causes import Causes, EventEntry, StackEntry
    from tracelink._model.results import ResultTable

Row = int | np.integer[Any]
Selected = Iterable[int] | npt.NDArray[Any]
"""Rows of events, or one boolean for each event."""


STATED = "stated by the source"
"""The note in reports on edges that a source declares, so that no linker had to find them."""


class LinkReport(fields.Row, frozen=True):
    """How many events of one rank were linked by one relation, and why the others were not."""

    relation: Annotated[str, Doc("The relation.")]
    linked: Annotated[Count, Doc("Events that have such an edge.")]
    candidates: Annotated[Count, Doc("Events that could have such an edge.")]
    unlinked: Annotated[
        Mapping[str, Count], Doc("Reason to count; the counts add up to `candidates - linked`.")
    ] = {}
    notes: Annotated[
        Mapping[str, Count],
        Doc("Other counts: events that are no candidates, ids that agree, names that differ."),
    ] = {}


class Links(Struct, frozen=True):
    """The edges of one relation on one rank, with the report on them."""

    edges: Edges
    report: LinkReport
    findings: tuple[Finding, ...] = ()


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    """The reasons or notes that occur."""
    return {reason: count for reason, count in counts.items() if count}


class Rank(Struct, frozen=True):
    """One rank of the job, and its clock (see `tracelink._model.clock.Clock`)."""

    rank: Annotated[int, Doc("The rank.")]
    host: Annotated[str, Doc("The host; null if unknown.")] = ""
    world_size: Annotated[int | None, Doc("The number of ranks that its sources state.")] = None
    clock_offset_ns: Annotated[int, Doc("Its clock minus the reference clock, at `clock_reference_ns`.")] = 0
    clock_uncertainty_ns: Annotated[
        int | None, Doc("The largest possible error of the offset; null if unbounded.")
    ] = None
    clock_drift_ppm: Annotated[float, Doc("How much faster than the reference clock it runs.")] = 0.0
    clock_low_ns: Annotated[int | None, Doc("The smallest possible offset; null if unbounded.")] = None
    clock_high_ns: Annotated[int | None, Doc("The largest possible offset; null if unbounded.")] = None
    clock_constraints: Annotated[int, Doc("Number of observations that the estimate is based on.")] = 0
    clock_reference_ns: Annotated[int, Doc("The time of the offset.")] = 0

    @classmethod
    def with_clock(cls, clock: Clock, world_size: int | None = None) -> Rank:
        """A rank with this clock."""
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


class JobTables(Struct, frozen=True, dict=True, kw_only=True):
    """The tables of a job, besides its events: base of the graph and of a job whose ranks are loaded one at a time."""

    strings: Sequence[str] = ()
    """Names and all other strings, by code."""
    ranks: Sequence[Rank]
    """The ranks in ascending order, with their clocks."""
    sources: Sequence[SourceInfo]
    """The inputs."""
    groups: Sequence[ProcessGroup] = ()
    """The process groups of the job."""
    collectives: Collectives = field(default_factory=Collectives.empty)
    """Collectives, matched across ranks."""
    participations: Participations = field(default_factory=Participations.empty)
    """Each rank's part in each collective."""
    messages: Messages = field(default_factory=Messages.empty)
    """Point-to-point messages, matched across ranks."""
    findings: Sequence[Finding] = ()
    """Everything that was wrong or unexpected in the inputs."""
    reports: Mapping[int, Sequence[LinkReport]] = field(default_factory=dict)
    """How events were linked, by rank."""

    tables: ClassVar[Sequence[str]] = ("ranks", *SHARED)
    """The names of the tables."""

    def table(self, name: GraphTable) -> Columns:
        """Returns one table as columns, with text instead of codes.

        Columns of integers that can be unknown are masked arrays, so that sums leave out what is unknown; unknown
        rates are NaN, unknown and empty texts None. All of it is missing in frames. `group` is the row of `groups`;
        `group_name` is its name.

        Args:
            name: "ranks", "sources", "groups", "collectives", "participations", "messages" or "findings"; of a graph
                also "events", "edges", "counters" or "tracks".

        Raises:
            UsageError: There is no such table.
        """
        return Columns(self._columns(name))

    def _columns(self, name: str) -> dict[str, Any]:
        return columns_of(Rank, self.ranks) if name == "ranks" else shared_table(self, name, self.tables)

    def to_pandas(self, table: GraphTable = "events") -> pandas.DataFrame:
        """Returns one table as a pandas frame, with text instead of codes (needs the extra `pandas`)."""
        return self.table(table).to_pandas()

    def to_polars(self, table: GraphTable = "events") -> polars.DataFrame:
        """Returns one table as a polars frame, with text instead of codes (needs polars and the extra `arrow`)."""
        return self.table(table).to_polars()

    def to_arrow(self, table: GraphTable = "events") -> pyarrow.Table:
        """Returns one table as an Arrow table, with text instead of codes (needs the extra `arrow`)."""
        return self.table(table).to_arrow()

    def _heading(self) -> str:
        raise NotImplementedError

    def _contents(self) -> dict[str, str]:
        from tracelink._model import results

        sizes = {name: len(getattr(self, name)) for name in self.tables}
        return results.contents(self.sources, sizes, self.findings)

    def __repr__(self) -> str:
        from tracelink._model import results

        return results.as_text(self._heading(), self._contents())

    def _repr_html_(self) -> str:
        from tracelink._model import results

        return results.as_html(self._heading(), self._contents())


class EventGraph(JobTables, frozen=True, dict=True, kw_only=True):
    """Events of all ranks on one clock, and the edges between them.

    Tables refer to events by row, to strings by code, and to tracks, sources and groups by index;
    unknown numbers are UNKNOWN (-1), unknown times NO_TIME. `table` and frames resolve all of it.
    """

    events: Events
    """What happened, grouped by source and in the order of each source."""
    edges: Edges
    """Why it happened: pairs of events and their relation."""
    tracks: Sequence[Track]
    """Where it happened; `events.track` is an index of this list."""
    bounds: Sequence[int]
    """Events `bounds[i]:bounds[i + 1]` are those of source `i`."""
    keys: Mapping[Key, KeyColumn] = field(default_factory=dict)
    """Ids that the sources recorded to link events."""
    counters: Counters = field(default_factory=Counters.empty)
    """Sampled values."""
    payloads: Sequence[Payloads] = ()
    """Arguments of events, one item for each source."""

    tables: ClassVar[Sequence[str]] = ("events", "edges", "counters", "tracks", "ranks", *SHARED)

    def __len__(self) -> int:
        return len(self.events)

    def _heading(self) -> str:
        from tracelink._model import results

        return results.heading("EventGraph", len(self), [rank.rank for rank in self.ranks], *self.span)

    def name(self, row: int) -> str:
        """Returns the name of one event.

        Args:
            row: The row of the event.
        """
        return self.strings[int(self.events.name[row])]

    @property
    def span(self) -> tuple[int, int] | tuple[None, None]:
        """The times of the first and the last event or sample; (None, None) if nothing has a time."""
        timed, samples = self.events.timed, self.counters.time
        begins = [int(times.min()) for times in (self.events.start[timed], samples) if len(times)]
        ends = [int(times.max()) for times in (self.events.end[timed], samples) if len(times)]
        return (min(begins), max(ends)) if begins else (None, None)

    def rank_of_events(self) -> npt.NDArray[np.int32]:
        """The rank of each event."""
        return np.array([track.rank for track in self.tracks], np.int32)[self.events.track]

    def key(self, key: Key | str) -> KeyColumn:
        """The column of a link key, such as `Key.CORRELATION` or "correlation"; empty if no source recorded it."""
        return self.keys.get(member(Key, key, "link key")) or KeyColumn.empty()

    def rows_of_source(self, source: int) -> slice:
        """The rows of one source."""
        return slice(self.bounds[source], self.bounds[source + 1])

    # Arguments of events

    @overload
    def arguments(self, rows: Row) -> dict[str, Any]: ...

    @overload
    def arguments(self, rows: Selected) -> list[dict[str, Any]]: ...

    def arguments(self, rows: Row | Selected) -> dict[str, Any] | list[dict[str, Any]]:
        """Returns the arguments of events as their sources recorded them; reads each source again, once.

        Args:
            rows: The row of one event; or many rows, or one boolean for each event.

        Returns:
            The arguments of the event by name, empty if the source recorded none; for many rows a list of these, in
            the order of the rows.
        """
        distinct, positions = np.unique(_rows(rows, len(self)), return_inverse=True)
        with collecting_later():
            found = [arguments_of(text) for text in self._payloads_of(distinct)]
        if isinstance(rows, int | np.integer):
            return found[0]
        repeated = len(found) < len(positions)
        return [dict(found[position]) if repeated else found[position] for position in positions.tolist()]

    def column(self, name: str, rows: Selected | None = None) -> npt.NDArray[Any]:
        """Returns one argument of many events as a column, as in `graph.column("stream", graph.find("nccl"))`.

        Args:
            name: The name of the argument in the source, such as "Input Dims".
            rows: Rows of events, or one boolean for each event; by default all events.

        Returns:
            One value for each row: a masked array if all values are numbers, in which missing ones are masked; else an
            array of objects, in which missing ones are None.

        Raises:
            UsageError: None of the events has such an argument.
        """
        distinct, positions = np.unique(_rows(rows, len(self)), return_inverse=True)
        return argument_column(self._payloads_of(distinct), name)[positions]

    def _payloads_of(self, rows: Int64s) -> list[Payload]:
        texts = dict(recorded_payloads(self, rows))
        return [texts.get(row, b"") for row in rows.tolist()]

    # Causes and effects

    def targets(self, row: Row, relation: Relation | RelationName) -> Int64s:
        """The targets of the edges of one relation that start at `row`."""
        return self._causes.targets(_rows(row, len(self)), member(Relation, relation, "relation"))

    def sources_of(self, row: Row, relation: Relation | RelationName) -> Int64s:
        """The sources of the edges of one relation that end at `row`."""
        return self._causes.sources(_rows(row, len(self)), member(Relation, relation, "relation"))

    def stack(self, row: Row, *, forward: bool = True) -> ResultTable[StackEntry]:
        """Returns what was under way when an event happened: Python functions, modules, operators and runtime calls.

        Args:
            row: The row of the event, such as a kernel.
            forward: Whether the forward operator, and what called that, precede a backward operator that nothing
                calls, because autograd runs it on a thread of its own.

        Returns:
            The events, the outermost first; the last one is the event itself.
        """
        from tracelink._model.causes import stack_table

        return stack_table(self, self._causes.stack(int(_rows(row, len(self))[0]), forward=forward))

    @overload
    def launched_by(self, rows: Row, kind: EventKind | KindName = "operator") -> int | None: ...

    @overload
    def launched_by(self, rows: Selected, kind: EventKind | KindName = "operator") -> Int64s: ...

    def launched_by(
        self, rows: Row | Selected, kind: EventKind | KindName = "operator"
    ) -> int | Int64s | None:
        """Returns what launched kernels, copies and fills.

        Args:
            rows: The row of one event; or many rows, or one boolean for each event.
            kind: What is wanted: "operator" for the innermost operator around the launching call, "runtime" for
                the call itself, "python" for the innermost Python function, or any other kind of events.

        Returns:
            The row of the event, None if there is none; for many rows an array of rows, UNKNOWN (-1) where there is
            none.

        Raises:
            UsageError: There is no such kind.
        """
        found = self._causes.launching(_rows(rows, len(self)), self.events.of_kind(kind))
        if not isinstance(rows, int | np.integer):
            return found
        return None if found[0] == UNKNOWN else int(found[0])

    def ancestors(self, row: Row, *relations: Relation | RelationName) -> Int64s:
        """Returns the rows of all events that led to an event, on any rank, in ascending order.

        Args:
            row: The row of the event.
            *relations: The relations that are followed, such as "calls" and "launches"; by default all. Edges are
                followed from the effect to the cause.

        Raises:
            UsageError: There is no such relation.
        """
        return self._causes.reached(_rows(row, len(self)), _relations(relations), effects=False)

    def descendants(self, row: Row, *relations: Relation | RelationName) -> Int64s:
        """Returns the rows of all events that followed from an event, on any rank, in ascending order.

        Args:
            row: The row of the event.
            *relations: The relations that are followed, such as "calls" and "launches"; by default all. Edges are
                followed from the cause to the effect.

        Raises:
            UsageError: There is no such relation.
        """
        return self._causes.reached(_rows(row, len(self)), _relations(relations), effects=True)

    @cached_property
    def _causes(self) -> Causes:
        from tracelink._model.causes import Causes

        return Causes(self.edges, len(self))

    # Events by name

    def find(
        self,
        name: str | re.Pattern[str] = "",
        *,
        kind: EventKind | KindName | Collection[EventKind | KindName] = (),
        rank: Row | Collection[int] = (),
    ) -> Int64s:
        """Returns the rows of events by name, kind and rank: `graph.find("flash", kind="kernel")`.

        Args:
            name: A part of the name, whatever the case of its letters; or a compiled regular expression.
            kind: A kind of events, or some; by default all.
            rank: A rank, or some; by default all.

        Raises:
            UsageError: There is no such kind.
        """
        kinds = [kind] if isinstance(kind, str | EventKind) else list(kind)
        ranks = [int(rank)] if isinstance(rank, int | np.integer) else list(rank)
        chosen = self.events.of_kind(*kinds) if kinds else np.ones(len(self), np.bool_)
        if ranks:
            chosen = chosen & np.isin(self.rank_of_events(), ranks)
        if name:
            search = (
                re.compile(re.escape(name), re.IGNORECASE).search if isinstance(name, str) else name.search
            )
            fitting = np.fromiter(
                (search(text) is not None for text in self.strings), np.bool_, len(self.strings)
            )
            chosen = chosen & fitting[self.events.name]
        return np.flatnonzero(chosen)

    def describe(self, rows: Row | Selected) -> ResultTable[EventEntry]:
        """Returns events as a table for people: `graph.describe(graph.find("flash"))`.

        Args:
            rows: The row of one event; or many rows, or one boolean for each event.
        """
        from tracelink._model.causes import event_table

        return event_table(self, _rows(rows, len(self)))

    def to_networkx(self, selection: Selected | None = None) -> networkx.MultiDiGraph[int]:
        """Returns events and the edges between them as a networkx graph; meant for small selections.

        Args:
            selection: Rows of events, or one boolean for each event; by default all.

        Returns:
            A graph whose nodes are rows with `name`, `kind`, `rank`, and `start` and `duration` if these are known, and
            whose edges have `relation`.
        """
        import networkx

        rows = _rows(selection, len(self))
        chosen = np.zeros(len(self), np.bool_)
        chosen[rows] = True
        result: networkx.MultiDiGraph[int] = networkx.MultiDiGraph()
        ranks = self.rank_of_events() if len(self) else np.empty(0, np.int32)
        for row in rows.tolist():
            start, duration = int(self.events.start[row]), int(self.events.duration[row])
            result.add_node(
                row,
                name=self.name(row),
                kind=EventKind(self.events.kind[row]).name.lower(),
                rank=int(ranks[row]),
                **({} if start == NO_TIME else {"start": start}),
                **({} if duration == UNKNOWN else {"duration": duration}),
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

    def _columns(self, name: str) -> dict[str, Any]:
        match name:
            case "events":
                kinds = [kind.name.lower() for kind in EventKind]
                columns = self.events.masked()
                return {
                    **columns,
                    "kind": texts_of(kinds, columns["kind"]),
                    "name": texts_of(self.strings, self.events.name),
                    "rank": self.rank_of_events(),
                }
            case "edges":
                relations = [relation.name.lower() for relation in Relation]
                return {**self.edges.masked(), "relation": texts_of(relations, self.edges.relation)}
            case "counters":
                return self.counters.masked()
            case "tracks":
                return columns_of(Track, self.tracks)
            case _:
                return super()._columns(name)


def source_bounds(source: npt.NDArray[np.int32], sources: int) -> list[int]:
    """The first row of each source, for events that are grouped by source; and the number of rows."""
    bounds = np.searchsorted(source, np.arange(sources + 1)).tolist()
    assert all(before <= after for before, after in pairwise(bounds))
    return bounds


def _relations(given: Collection[Relation | RelationName]) -> list[Relation]:
    return [member(Relation, relation, "relation") for relation in given or Relation]


def _rows(selection: Row | Selected | None, length: int) -> Int64s:
    """The rows that a selection names; raises `IndexError` for rows that are not there, such as UNKNOWN."""
    if selection is None:
        return np.arange(length)
    if isinstance(selection, int | np.integer):
        selection = [int(selection)]
    chosen = np.asarray(selection if isinstance(selection, np.ndarray) else list(selection))
    if chosen.dtype == np.bool_:
        return np.flatnonzero(chosen)
    wrong = chosen[(chosen < 0) | (chosen >= length)]
    if len(wrong):
        raise IndexError(f"there is no row {int(wrong[0])}: the graph has {length:,} events")
    return chosen.astype(np.int64)


# One rank of a graph


class Excerpt(Struct, frozen=True):
    """The graph of one rank, with shorthands for code that looks at columns."""

    graph: EventGraph

    @property
    def events(self) -> Events:
        """The events of the rank."""
        return self.graph.events

    def where(self, relation: Relation) -> Edges:
        """The edges of one relation."""
        return self.graph.edges.where(relation)

    def key(self, key: Key, default: int) -> Int64s:
        """The value of a link key for each event; `default` if the event has none."""
        return self.graph.key(key).dense(len(self.events), default)

    def rows(self, *kinds: EventKind) -> Int64s:
        """The rows of events of these kinds."""
        return np.flatnonzero(self.events.of_kind(*kinds))


def recorded_payloads(graph: EventGraph, rows: Int64s) -> Iterator[tuple[int, Payload]]:
    """Yields each of these rows with its arguments, source by source; each source is read once."""
    events = graph.events
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(events.payload[mine], kind="stable")]
        numbers = events.payload[mine]
        for first, texts in payloads_near(graph.payloads[source], numbers[numbers >= 0]):
            begin, end = np.searchsorted(numbers, [first, first + len(texts)]).tolist()
            for row, number in zip(mine[begin:end].tolist(), numbers[begin:end].tolist(), strict=True):
                yield row, texts[number - first]


def execution_traces(graph: EventGraph) -> list[int]:
    """The sources that contain nodes, the one with the most nodes first."""
    nodes = graph.events.source[graph.events.of_kind(EventKind.NODE)]
    sources, counts = np.unique(nodes, return_counts=True)
    return sources[np.argsort(-counts, kind="stable")].tolist()
