"""What a reader returns, built an event or a column at a time; and what is wrong with a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
import numpy as np

from tracelink._model.columns import NO_TIME, UNKNOWN, Codes, StringTable, Table
from tracelink._model.communications import (
    LARGEST_NUMBER,
    Statement,
    communications,
)
from tracelink._model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
    member,
)
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.trace import ListedPayloads, NoPayloads, ProcessGroup, RankTrace, SourceInfo

if TYPE_CHECKING:
    from tracelink._io.sources import Source

MAIN = "main"
"""The thread of events without a track."""


class Stated(TypedDict, total=False):
    """What a file says of itself; see `SourceInfo`."""

    version: str
    rank: int | None
    host: str
    world_size: int | None
    pid: int | None
    device: int | None
    records: int
    """Everything that the file lists; by default its events."""
    start_ns: int | None
    end_ns: int | None
    """The first and the last time, both or none; by default those of events, or of samples alone."""
    local_time_ns: int | None
    zero_ns: int
    header: Mapping[str, Any]
    recorder: tuple[str, ...]


class TraceBuilder:
    """Collects events, samples and findings of one file, and makes the trace of them that a reader returns.

    Times are integers: nanoseconds since 1970. None is an unknown time, or a duration whose end is unknown.
    """

    def __init__(self, source: Source, format_name: str, **stated: Unpack[Stated]) -> None:
        self.stated: dict[str, Any] = {
            "path": source.path,
            "format": format_name,
            "bytes": source.bytes,
            **stated,
        }
        self.strings = StringTable()
        self.tracks: list[Track] = []
        self.groups: list[ProcessGroup] = []
        self.findings: list[Finding] = []
        self._track_numbers: dict[tuple[str, ...], int] = {}
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._parts: list[Events] = []
        self._count = 0
        self._arguments: dict[int, bytes] = {}
        self._samples: list[tuple[int, int, float]] = []
        self._edges: list[tuple[int, int, int]] = []
        self._statements: dict[int, Statement] = {}
        self._keys: dict[Key, KeyColumn] = {}

    def __len__(self) -> int:
        return self._count

    def track(
        self,
        name: str,
        kind: TrackKind | str = TrackKind.THREAD,
        *,
        process: str = "",
        label: str = "",
        unit: str = "",
    ) -> int:
        """The number of a track, which is added if it is new.

        Args:
            name: The thread, the number of the stream, or the name of the counter.
            kind: `thread`, `stream`, `communicator`, `process`, `nodes` or `counter`.
            process: The id of the process; of a stream, the number of the device.
            label: The name to show, if it is another one.
            unit: Of a counter.
        """
        identity = (name, kind, process, label, unit)
        if identity not in self._track_numbers:
            self._track_numbers[identity] = len(self.tracks)
            self.tracks.append(Track(TrackKind(kind), process, name, label or name, unit=unit))
        return self._track_numbers[identity]

    def event(
        self,
        name: str,
        start_ns: int | None,
        duration_ns: int | None = None,
        *,
        kind: EventKind | str = EventKind.ANNOTATION,
        track: int | str = MAIN,
        args: Mapping[str, Any] | None = None,
        caused_by: int | None = None,
    ) -> int:
        """Adds an event, and returns its row.

        Args:
            name: The name to show.
            start_ns: When it began.
            duration_ns: How long it took.
            kind: `operator`, `annotation`, `runtime`, `kernel`, `instant`, ...: a name of `EventKind`.
            track: A number that `track` returned, or the name of a thread.
            args: What else is known of it.
            caused_by: The row of the event that launched it. Calls on one thread need none: they are nested.

        Raises:
            ValueError: A time does not fit into 64 bits, or a duration is negative.
        """
        where = self.track(track) if isinstance(track, str) else track
        row = self._count
        self._rows.append(
            (
                _KINDS[kind] if isinstance(kind, str) else kind,
                self.strings[name],
                where,
                NO_TIME if start_ns in (None, NO_TIME) else _time(start_ns, -LARGEST_NUMBER, "time"),
                UNKNOWN if duration_ns in (None, UNKNOWN) else _time(duration_ns, 0, "duration"),
            )
        )
        self._count += 1
        if args:
            self._arguments[row] = msgspec.json.encode(args)
        if caused_by is not None:
            self.edge(caused_by, row)
        return row

    def events(
        self,
        name: Codes | Sequence[str] | str,
        start_ns: Any,
        duration_ns: Any,
        *,
        kind: Any = EventKind.ANNOTATION,
        track: Any = MAIN,
        payload: Any = None,
    ) -> range:
        """Adds columns of events, and returns their rows; a single value is that of all rows.

        Args:
            name: Names, or their codes in `strings`.
            start_ns: NumPy's int64 or integers; `NO_TIME` if unknown.
            duration_ns: As `start_ns`; `UNKNOWN` if the end is.
            kind: Values of `EventKind`.
            track: Numbers that `track` returned.
            payload: By which number the payloads that `build` gets know each event; by default its row.
        """
        self._close_part()
        if isinstance(name, str):
            name = np.full(np.size(start_ns), self.strings[name], np.int32)
        codes = name if isinstance(name, np.ndarray) else self.strings.encode(name)
        where = self.track(track) if isinstance(track, str) else track
        rows = range(self._count, self._count + len(codes))
        self._count = rows.stop
        self._add_part((kind, codes, where, start_ns, duration_ns), rows, payload)
        return rows

    def sample(self, counter: int | str, time_ns: int, value: float) -> None:
        """Adds a value of a counter: a number that `track` returned, or a name."""
        where = self.track(counter, TrackKind.COUNTER) if isinstance(counter, str) else counter
        self._samples.append((where, _time(time_ns, -LARGEST_NUMBER, "time"), float(value)))

    def edge(self, source: int, target: int, relation: Relation | str = Relation.LAUNCHES) -> None:
        """Adds an edge between two rows: `source` <relation> `target`."""
        self._edges.append((index(source), index(target), member(Relation, relation, "relation")))

    def key(self, key: Key | str, rows: Any, values: Any) -> None:
        """Adds ids that the file gives to these rows, by which they are linked: equal `correlation`s are a launch."""
        self._keys[Key(key)] = KeyColumn.of(rows=rows, values=values)

    def communication(self, row: int, operation: str, **stated: Any) -> None:
        """Says what communication an event is, by which it is matched with those of other ranks.

        Args:
            row: The event, of kind `kernel`, `record` or `annotation`.
            operation: Such as `all_reduce` or `send`.
            **stated: `group` (its name), `sequence`, `elements_in`, `elements_out`, `type`, `size`: see `Statement`.
        """
        self._statements[row] = Statement(operation, **stated)

    def finding(
        self, message: str, *, severity: str = "warning", reason: str = "damaged", count: int = 1
    ) -> None:
        """Says what did not fit: nothing is dropped in silence."""
        self.findings.append(Finding(Severity(severity), reason, message, count, source=self.stated["path"]))

    def truncated(self, why: str) -> None:
        """Says that the file ends early; nothing if `why` is empty."""
        if why:
            self.findings.append(Truncated(self.stated["path"], why, self._count, "event").finding())

    def build(self, **parts: Any) -> RankTrace:
        """The trace; `parts` are fields of a `RankTrace` that the reader has made itself: `keys`, `payloads`, ..."""
        self._close_part()
        statements = list(self._statements), list(self._statements.values())
        own = {
            "strings": self.strings,
            "events": self._parts[0] if len(self._parts) == 1 else Events.concatenate(self._parts),
            "tracks": self.tracks,
            "counters": Counters.of(**_columns(self._samples, Counters.__struct_fields__)),
            "groups": self.groups,
            "keys": self._keys,
            "communications": communications(*statements, self.strings),
            "edges": Edges.of(**_columns(self._edges, Edges.__struct_fields__)),
            "payloads": [self._payloads()],
            "findings": self.findings,
        }
        known = {**own, **parts}
        return RankTrace(sources=[self._info(known["events"], known["counters"])], **known)

    def _info(self, events: Events, counters: Counters) -> SourceInfo:
        known = {"events": len(events), "records": len(events), **self.stated}
        if "start_ns" not in known:
            # The window of a profiler and its overhead are no work of the program.
            timed = events.timed & ~events.of_kind(EventKind.SPAN, EventKind.OVERHEAD)
            starts, ends = counters.time, counters.time
            if timed.any():
                starts, ends = events.start[timed], events.end[timed]
            known["start_ns"] = int(starts.min()) if len(starts) else None
            known["end_ns"] = int(ends.max()) if len(ends) else None
        return SourceInfo(**known)

    def _payloads(self) -> ListedPayloads | NoPayloads:
        if not self._arguments:
            return NoPayloads()
        return ListedPayloads([self._arguments.get(row, b"") for row in range(self._count)])

    def _close_part(self) -> None:
        """Makes columns of the single events so far."""
        if self._rows:
            first = self._count - len(self._rows)
            self._add_part(tuple(zip(*self._rows, strict=True)), range(first, self._count))
            self._rows = []

    def _add_part(self, columns: Sequence[Any], rows: range, payload: Any = None) -> None:
        kind, name, track, start, duration = columns
        self._parts.append(
            Events.of(
                len(rows),
                kind=kind,
                name=name,
                track=track,
                start=_whole_numbers(start, "start_ns"),
                duration=_whole_numbers(duration, "duration_ns"),
                source=0,
                payload=rows if payload is None else payload,
            )
        )


_KINDS = {kind.name.lower(): kind for kind in EventKind}


def _time(value: Any, least: int, what: str) -> int:
    number = index(value)
    if not least <= number <= LARGEST_NUMBER:
        raise ValueError(f"{value} is no {what} in nanoseconds")
    return number


def _whole_numbers(values: Any, name: str) -> Any:
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        raise TypeError(f"{name}: times are integers, in nanoseconds, not {found.dtype}")
    return found if found.ndim else found[()]


def _columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))


# What is wrong with a trace.


def trace_problems(trace: RankTrace, path: str, format_name: str) -> Iterator[str]:
    """What in the trace of a reader others could not work with, in words: such a trace is a bug of the reader."""
    if not isinstance(trace, RankTrace):
        yield f"it returned {trace!r:.60}: return `TraceBuilder.build()`"
        return
    if len(trace.sources) != 1:
        yield f"it has {len(trace.sources)} sources, and must have one"
        return
    info, events = trace.sources[0], trace.events
    for name, value, right in (("path", info.path, path), ("format", info.format, format_name)):
        if value != right:
            yield f"the {name} of its source is {value!r}, not {right!r}"
    if info.events != len(events):
        yield f"its source states {info.events} events, and there are {len(events)}"
    if info.rank is not None and (not isinstance(info.rank, int) or info.rank < 0):
        yield f"its rank is {info.rank!r}: ranks are numbers from 0, or None"
    tables = {"events": events, "edges": trace.edges, "counters": trace.counters}
    tables |= {"communications": trace.communications}
    tables |= {f"the key {key}": column for key, column in trace.keys.items()}
    for title, table in tables.items():
        yield from _table_problems(title, table)
    yield from _reference_problems(trace)
    if len(trace.payloads) != 1 or not hasattr(trace.payloads[0], "batches"):
        yield "its payloads must be one object with the method `batches`, as `NoPayloads()` is"
    if (events.duration < UNKNOWN).any():
        yield f"{np.count_nonzero(events.duration < UNKNOWN)} events have a negative duration"


def _table_problems(title: str, table: Table) -> Iterator[str]:
    wanted = type(table).empty().columns()
    lengths = {name: len(column) for name, column in table.columns().items()}
    if len(set(lengths.values())) > 1:
        yield f"the columns of {title} have different lengths: {lengths}"
    for name, column in table.columns().items():
        if column.dtype != wanted[name].dtype:
            yield f"{name} of {title} is of {column.dtype}, not of {wanted[name].dtype}"


def _reference_problems(trace: RankTrace) -> Iterator[str]:
    count, texts, tracks = len(trace.events), len(trace.strings), len(trace.tracks)
    used: list[tuple[str, Any, int, str]] = [
        ("names of events", trace.events.name, texts, "strings"),
        ("tracks of events", trace.events.track, tracks, "tracks"),
        ("kinds of events", trace.events.kind, len(EventKind), "kinds"),
        ("tracks of samples", trace.counters.track, tracks, "tracks"),
        ("sources of edges", trace.edges.source, count, "events"),
        ("targets of edges", trace.edges.target, count, "events"),
        ("rows of communications", trace.communications.row, count, "events"),
    ]
    used += [(f"rows of the key {key}", column.rows, count, "events") for key, column in trace.keys.items()]
    for what, column, most, thing in used:
        if len(column) and (column.min() < 0 or column.max() >= most):
            wrong = column[(column < 0) | (column >= most)][0]
            yield f"{what}: {wrong} is none of the {most} {thing}"
