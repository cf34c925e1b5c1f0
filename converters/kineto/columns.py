"""Columns of one part of the event array, collected piece by piece, and parts joined to a file."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import Bools, Float64s, Int64s, StringTable, Table, int64s
from tracelink._model.communications import Communications, Statement, communications
from tracelink._model.events import EventKind, Key
from tracelink.converters.kineto import schema
from tracelink.converters.kineto.elements import TEXT_LANE, Decoded, Shapes, Stated

THREAD_KEYS: tuple[tuple[Key, str], ...] = (
    (Key.EXTERNAL_ID, "external_id"),
    (Key.RECORD_FUNCTION, "record_function"),
    (Key.SEQUENCE, "sequence"),
    (Key.FORWARD_THREAD, "forward_thread"),
    (Key.EVENT_INDEX, "event_index"),
)
LAUNCH_KEYS: tuple[tuple[Key, str], ...] = (
    (Key.CORRELATION, "correlation"),
    (Key.EXTERNAL_ID, "external_id"),
)
PYTHON_KEYS: tuple[tuple[Key, str], ...] = (
    (Key.PYTHON_ID, "python_id"),
    (Key.PYTHON_PARENT, "python_parent"),
    (Key.EVENT_INDEX, "event_index"),
)

KEYS_OF_KIND: dict[EventKind, tuple[tuple[Key, str], ...]] = {
    EventKind.OPERATOR: THREAD_KEYS,
    EventKind.ANNOTATION: THREAD_KEYS,
    EventKind.PYTHON: PYTHON_KEYS,
    EventKind.RUNTIME: LAUNCH_KEYS,
    EventKind.KERNEL: LAUNCH_KEYS,
    EventKind.MEMCPY: LAUNCH_KEYS,
    EventKind.MEMSET: LAUNCH_KEYS,
    EventKind.GPU_ANNOTATION: LAUNCH_KEYS,
    EventKind.SYNCHRONIZATION: LAUNCH_KEYS,
}
"""Which arguments are link keys, by kind of event: reading only those keeps the rest undecoded."""

OLD_NAMES = {"external_id": "external_id_2021", "event_index": "event_index_2022"}
"""Arguments that had another name; it counts where the one of today is missing."""

LARGEST_UNKNOWN = {
    Key.CORRELATION: 0,
    Key.EXTERNAL_ID: 0,
    Key.RECORD_FUNCTION: 0,
    Key.SEQUENCE: -1,
    Key.FORWARD_THREAD: 0,
    Key.PYTHON_ID: -1,
    Key.PYTHON_PARENT: -1,
    Key.EVENT_INDEX: -1,
}
"""Values up to this one mean that the event has no such key: for most keys the profiler writes 0."""

COLUMN_TYPES = {
    "index": np.int64,
    "shape": np.uint16,
    "name": np.int32,
    "pid": np.int64,
    "tid": np.int64,
    "start": np.int64,
    "duration": np.int64,
}
"""The columns of events while they are collected; `index` is the element's number in the file."""


class Metadata(Struct, frozen=True):
    """A metadata record: the name or sort index of a process or thread."""

    kind: str
    pid: int
    tid: int
    arguments: Mapping[str, Any]


class FlowEnds(Table, frozen=True):
    """Starts, steps and ends of flows, one row each."""

    shape: Int64s
    identity: Int64s
    pid: Int64s
    tid: Int64s
    time: Int64s
    to_next: Bools
    """Whether an end binds to the next slice, not to the slice around it."""


class Samples(Table, frozen=True):
    """Samples of counters, one row each."""

    counter: Int64s
    """Code of the name in `ElementColumns.counters`."""
    pid: Int64s
    time: Int64s
    value: Float64s


class Half(Struct, frozen=True):
    """A begin, an end or an instant of a slice that is recorded as two events."""

    ph: str
    cat: str
    name: str
    pid: int
    tid: int
    time: int
    identity: int
    index: int


class ElementColumns(Struct):
    """All elements of one part of the event array."""

    shapes: Shapes = field(default_factory=Shapes)
    names: StringTable = field(default_factory=StringTable)
    lanes: StringTable = field(default_factory=StringTable)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    """All chunks, once the part is complete."""
    keys: dict[Key, list[tuple[Int64s, Int64s]]] = field(default_factory=dict)
    """(index of the element, value) of each link key, chunk by chunk."""
    statements: list[Statement] = field(default_factory=list)
    """What events state on communication."""
    stated: list[Stated] = field(default_factory=list)
    """Which of these each event states, by the index of the element."""
    communications: Communications = field(default_factory=Communications.empty)
    """The same as a table; its rows are indexes of elements."""
    memory: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    launch_ends: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    """(shape, id) of the starts and ends of launch flows."""
    flows: list[FlowEnds] = field(default_factory=list)
    """The starts and ends of all other flows."""
    metadata: list[Metadata] = field(default_factory=list)
    counters: StringTable = field(default_factory=StringTable)
    """Names of sampled counters."""
    samples: list[Samples] = field(default_factory=list)
    halves: list[Half] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """The start of each piece in the file, and its number of elements."""
    unusable_durations: int = 0
    unusable_samples: int = 0
    """Values of counters that are no finite numbers."""
    not_events: int = 0
    total: int = 0

    def add(self, offset: int, piece: Decoded) -> None:
        """Adds one piece."""
        shape, events = piece.shape, piece.events
        indexes, shape_of_event = self.total + np.flatnonzero(piece.slices), shape[piece.slices]
        self.chunks.append(
            {
                "index": indexes,
                "shape": shape_of_event.astype(np.uint16),
                "name": piece.name,
                "pid": int64s([event.pid for event in events]),
                "tid": int64s([event.tid for event in events]),
                "start": piece.start,
                "duration": piece.duration,
            }
        )
        self.stated.append(replace(piece.stated, event=indexes[piece.stated.event]))
        self._add_keys(indexes, shape_of_event, events)
        self._add_memory(indexes, shape_of_event, events)
        self._add_flows(shape, piece)
        self._add_scopes(piece)
        self._add_samples(shape, piece)
        self._add_rest(shape, piece)
        self.offsets.append(offset)
        self.counts.append(len(shape))
        self.total += len(shape)
        self.unusable_durations += piece.unusable_durations
        self.not_events += piece.not_events

    def compact(self) -> None:
        """Joins the chunks into one table."""
        self.chunks = self.chunks or [{name: np.empty(0, kind) for name, kind in COLUMN_TYPES.items()}]
        self.table = {name: np.concatenate([chunk[name] for chunk in self.chunks]) for name in COLUMN_TYPES}
        self.chunks = []
        self.keys = {key: [_joined(chunks)] for key, chunks in self.keys.items()}
        if self.statements:
            self.communications = self._communications()
        self.statements, self.stated = [], []

    def _communications(self) -> Communications:
        stated = Stated.concatenate(self.stated)
        distinct = communications(range(len(self.statements)), self.statements, self.names)
        return replace(distinct.take(stated.statement), row=stated.event, sequence=stated.sequence)

    def _add_keys(self, indexes: Int64s, shape: Int64s, events: Sequence[schema.Element]) -> None:
        for key_group in (THREAD_KEYS, LAUNCH_KEYS, PYTHON_KEYS):
            kinds = frozenset(kind for kind, keys in KEYS_OF_KIND.items() if keys is key_group)
            chosen = self.shapes.have_kind(shape, kinds)
            if not chosen.any():
                continue
            arguments = [event.args for event in compress(events, chosen.tolist())]
            for key, name in key_group:
                values = _values(arguments, name)
                given = values > LARGEST_UNKNOWN[key]
                if given.any():
                    self.keys.setdefault(key, []).append((indexes[chosen][given], values[given]))

    def _add_memory(self, indexes: Int64s, shape: Int64s, events: Sequence[schema.Element]) -> None:
        instants = self.shapes.are(shape, schema.INSTANTS)
        if not instants.any():
            return
        arguments = [event.args for event in compress(events, instants.tolist())]
        table = int64s(
            [value for a in arguments for value in (a.allocated, a.reserved, a.device_type, a.device)]
        )
        table = table.reshape(-1, 4)
        has_memory = table[:, 0] >= 0
        self.memory.append((indexes[instants][has_memory], table[has_memory]))

    def _add_flows(self, shape: Int64s, piece: Decoded) -> None:
        """Of launch flows only the ids are needed; other flows are bound to events by thread and time."""
        launches = self.shapes.are(shape, schema.FLOWS) & self.shapes.in_category(shape, schema.LAUNCH_FLOWS)
        other_flows = self.shapes.are(shape, schema.FLOWS) & ~launches
        if launches.any():
            ids = [element.id for element in compress(piece.elements, launches.tolist())]
            self.launch_ends.append((shape[launches], int64s(ids)))
        if other_flows.any():
            ends = list(compress(piece.elements, other_flows.tolist()))
            self.flows.append(
                FlowEnds(
                    shape[other_flows],
                    int64s([end.id for end in ends]),
                    int64s([end.pid for end in ends]),
                    int64s([end.tid for end in ends]),
                    piece.times(ends),
                    np.isin(np.flatnonzero(other_flows), list(piece.bound_to_next)),
                )
            )

    def _add_scopes(self, piece: Decoded) -> None:
        if piece.scopes:
            indexes = np.array([index for index, _ in piece.scopes], np.int64) + self.total
            scopes = np.array([scope for _, scope in piece.scopes], np.int64)
            self.keys.setdefault(Key.INSTANT_SCOPE, []).append((indexes, scopes))

    def _add_samples(self, shape: Int64s, piece: Decoded) -> None:
        """One sample for each finite argument of a counter."""
        indexes = np.flatnonzero(self.shapes.are(shape, frozenset({schema.COUNTER})))
        if not len(indexes):
            return
        elements = [piece.elements[index] for index in indexes.tolist()]
        row, counter, value = array("q"), array("q"), array("d")
        for number, (index, element) in enumerate(zip(indexes.tolist(), elements, strict=True)):
            for key, recorded in piece.arguments.get(index, {}).items():
                try:
                    sampled = float(recorded)
                except (TypeError, ValueError, OverflowError):
                    sampled = math.nan
                if not math.isfinite(sampled):
                    self.unusable_samples += 1
                    continue
                row.append(number)
                counter.append(self.counters[f"{element.name} {key}".strip()])
                value.append(sampled)
        rows = np.array(row, np.int64)
        pid, time = int64s([element.pid for element in elements]), piece.times(elements)
        self.samples.append(Samples(np.array(counter, np.int64), pid[rows], time[rows], np.array(value)))

    def _add_rest(self, shape: Int64s, piece: Decoded) -> None:
        for index in np.flatnonzero(self.shapes.are(shape, frozenset({schema.METADATA}))).tolist():
            element, arguments = piece.elements[index], piece.arguments.get(index, {})
            self.metadata.append(Metadata(element.name, element.pid, element.tid, arguments))
        for index in np.flatnonzero(self.shapes.are(shape, schema.PAIRED)).tolist():
            element = piece.elements[index]
            time = int(piece.times([element])[0])
            half = (element.ph, element.cat, element.name, element.pid, element.tid, time, int(element.id))
            self.halves.append(Half(*half, self.total + index))


def _joined(chunks: Sequence[tuple[Int64s, Int64s]]) -> tuple[Int64s, Int64s]:
    return np.concatenate([indexes for indexes, _ in chunks]), np.concatenate(
        [values for _, values in chunks]
    )


def _values(arguments: Sequence[schema.Arguments], name: str) -> Int64s:
    if name == "python_parent":
        return int64s([-1 if a.python_parent is None else a.python_parent for a in arguments])
    values = int64s(list(map(attrgetter(name), arguments)))
    if name in OLD_NAMES and (old := np.flatnonzero(values < 0)).size:
        older = attrgetter(OLD_NAMES[name])
        values[old] = int64s([older(arguments[row]) for row in old.tolist()])
    return values


def join(parts: Sequence[ElementColumns]) -> ElementColumns:
    """The columns of a file from those of its parts, in order."""
    if len(parts) == 1:
        return parts[0]
    merged = ElementColumns()
    for part in parts:
        shapes = merged.shapes.table.absorb(part.shapes.table.texts()).astype(np.int64)
        names = merged.names.absorb(part.names.texts())
        lane = _lane_recoder(merged.lanes, part.lanes)
        merged.chunks.append(_renumbered(part, shapes, names, lane, merged.total))
        for key, columns in part.keys.items():
            merged.keys.setdefault(key, []).extend(
                (indexes + merged.total, values) for indexes, values in columns
            )
        merged.memory += [(indexes + merged.total, values) for indexes, values in part.memory]
        merged.launch_ends += [(shapes[shape], lane(ids)) for shape, ids in part.launch_ends]
        merged.flows += [
            FlowEnds(
                shapes[flow.shape],
                lane(flow.identity),
                lane(flow.pid),
                lane(flow.tid),
                flow.time,
                flow.to_next,
            )
            for flow in part.flows
        ]
        communications_of_part = part.communications.recoded(names)
        merged.communications = Communications.concatenate(
            [
                merged.communications,
                replace(communications_of_part, row=communications_of_part.row + merged.total),
            ]
        )
        _join_rest(merged, part, lane)
        merged.total += part.total
    merged.shapes.learn()
    merged.compact()
    return merged


def _renumbered(
    part: ElementColumns, shapes: Int64s, names: Any, lane: Callable[[Any], Any], offset: int
) -> dict[str, Any]:
    """The table of a part with the codes and element numbers of the file."""
    table = part.table
    return {
        **table,
        "index": table["index"] + offset,
        "shape": shapes[table["shape"]].astype(np.uint16) if len(shapes) else table["shape"],
        "name": names[table["name"]] if len(names) else table["name"],
        "pid": lane(table["pid"]),
        "tid": lane(table["tid"]),
    }


def _join_rest(merged: ElementColumns, part: ElementColumns, lane: Callable[[Any], Any]) -> None:
    merged.metadata += [
        Metadata(n.kind, int(lane(n.pid)), int(lane(n.tid)), n.arguments) for n in part.metadata
    ]
    counters = merged.counters.absorb(part.counters.texts()).astype(np.int64)
    merged.samples += [replace(s, counter=counters[s.counter], pid=lane(s.pid)) for s in part.samples]
    merged.halves += [
        Half(
            h.ph,
            h.cat,
            h.name,
            int(lane(h.pid)),
            int(lane(h.tid)),
            h.time,
            int(lane(h.identity)),
            h.index + merged.total,
        )
        for h in part.halves
    ]
    merged.offsets += part.offsets
    merged.counts += part.counts
    merged.unusable_durations += part.unusable_durations
    merged.unusable_samples += part.unusable_samples
    merged.not_events += part.not_events


def _lane_recoder(merged: StringTable, part: StringTable) -> Callable[[Any], Any]:
    codes = merged.absorb(part.texts())
    if not len(codes):
        return lambda ids: ids

    def recode(ids: Any) -> Any:
        values = np.asarray(ids)
        texts = (values <= TEXT_LANE) & (values > TEXT_LANE - len(codes))
        return np.where(
            texts, TEXT_LANE - codes.astype(np.int64)[np.where(texts, TEXT_LANE - values, 0)], values
        )

    return recode
