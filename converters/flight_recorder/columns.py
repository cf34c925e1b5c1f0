"""Entries to columns: one row for each entry whose fields are usable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from tracelink.communications import UNKNOWN, Communications
from tracelink.converters.flight_recorder.communication import (
    Order,
    Tensors,
    communications_of,
    first_types,
)
from tracelink.converters.flight_recorder.records import Told, fingerprints, records_of
from tracelink.converters.flight_recorder.schema import Dump
from tracelink.events import NO_TIME, UNFINISHED, EventKind, Events, Int64s, Key, KeyColumn, Track, TrackKind
from tracelink.records import Records, Requests
from tracelink.strings import StringTable

TEXT = frozenset({str})
NUMBER = frozenset({int})
ABSENT = frozenset({type(None)})
LARGEST = int(np.iinfo(np.int64).max)

Value = TypeVar("Value", int, str)

GroupName = tuple[str, str]
"""Name and description."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The usable entries as columns, the groups they name, and what was left out."""

    events: Events
    keys: dict[Key, KeyColumn]
    tracks: list[Track]
    groups: list[GroupName]
    first_record: int
    communications: Communications
    records: Records
    requests: Requests
    skipped: int
    example: str
    unreadable_sizes: int


@dataclass(slots=True)
class _Fields:
    """One list for each field of the entries, and the places of those that are usable."""

    place: list[int]
    name: list[str]
    created: list[int]
    completed: list[int | None]
    group: list[Any]
    collective: list[int | None]
    p2p: list[int | None]
    state: list[str | None]
    record: list[int | None]
    is_message: list[Any]
    started: list[Any]
    retired: list[Any]
    timeout: list[Any]
    tensors: Tensors


def rows_of(dump: Dump, strings: StringTable) -> Rows:
    """The columns of a dump's entries."""
    entries, place, example = _distinct_dicts(dump.entries)
    fields = _fields(dump, entries, place)
    if wrong := _unusable(dump, fields):
        example = example or wrong[min(wrong)]
        kept = [row for row in range(len(entries)) if row not in wrong]
        fields = _fields(dump, [entries[row] for row in kept], [place[row] for row in kept])
    groups = _group_names(fields)
    codes = {group: code for code, group in enumerate(dict.fromkeys(groups))}
    names: dict[str, int] = {}
    track_of_group = np.array([names.setdefault(name, len(names)) for name, _ in codes], dtype=np.int32)
    track = track_of_group[np.array(list(map(codes.__getitem__, groups)), dtype=np.int64)]
    events = _events(dump, fields, strings, track)
    keys = _keys(fields, strings, strings.encode(names)[track].astype(np.int64))
    communications, unreadable = _communications(fields, events, keys, strings)
    records, requests = _records(fields, events, communications, strings)
    return Rows(
        events=events,
        keys=keys,
        tracks=[_track(name, codes) for name in names],
        groups=list(codes),
        first_record=(fields.record[0] or 0) if fields.record else 0,
        communications=communications,
        records=records,
        requests=requests,
        skipped=len(dump.entries) - len(fields.place),
        example=example,
        unreadable_sizes=unreadable,
    )


def _distinct_dicts(entries: Sequence[Any]) -> tuple[list[dict[Any, Any]], list[int], str]:
    """An entry that is no dict, or is one that was there before, is no entry; both are rare."""
    identities = np.fromiter(map(id, entries), np.int64, len(entries))
    unique, first = np.unique(identities, return_index=True)
    if len(unique) == len(entries) and set(map(type, entries)) <= {dict}:
        return list(entries), list(range(len(entries))), ""
    place = [int(row) for row in np.sort(first) if type(entries[row]) is dict]
    return [entries[row] for row in place], place, "an entry that is not a dict of its own"


def _fields(dump: Dump, entries: Sequence[dict[Any, Any]], place: list[int]) -> _Fields:
    layout = dump.layout
    name, created, completed, group, collective, p2p, state, record, is_message, *others = _columns(
        entries,
        (
            layout.name,
            layout.created,
            layout.completed,
            layout.group or layout.group_id,
            layout.collective_sequence,
            layout.p2p_sequence,
            layout.state,
            layout.record,
            layout.is_message,
            layout.started,
            layout.retired,
            layout.timeout,
            layout.input_sizes,
            layout.output_sizes,
            layout.input_types,
            layout.output_types,
        ),
    )
    numbers = collective, p2p, state, record
    return _Fields(
        place, name, created, completed, group, *numbers, is_message, *others[:3], Tensors(*others[3:])
    )


def _columns(entries: Sequence[dict[Any, Any]], names: Sequence[str]) -> list[list[Any]]:
    """The values of each field, None where an entry does not have it; all at once where all have all."""
    try:
        return list(map(list, zip(*map(itemgetter(*names), entries), strict=True))) or [[] for _ in names]
    except KeyError:
        return [[entry.get(name) for entry in entries] for name in names]


def _unusable(dump: Dump, fields: _Fields) -> dict[int, str]:
    """Rows with a field that cannot be used, and why."""
    wrong: dict[int, str] = {}
    layout = dump.layout
    _mistyped(layout.name, fields.name, TEXT, wrong)
    _mistyped(layout.created, fields.created, NUMBER, wrong, LARGEST // layout.created_unit_ns)
    _mistyped(layout.completed, fields.completed, NUMBER | ABSENT, wrong)
    _mistyped(layout.collective_sequence, fields.collective, NUMBER | ABSENT, wrong)
    _mistyped(layout.p2p_sequence, fields.p2p, NUMBER | ABSENT, wrong)
    _mistyped(layout.state, fields.state, TEXT | ABSENT, wrong)
    _mistyped(layout.record, fields.record, NUMBER | ABSENT, wrong)
    if layout.group and not _are_group_names(fields.group):
        for row, group in enumerate(fields.group):
            if not _is_group_name(group):
                wrong.setdefault(row, f"{layout.group} is not a name and a description")
    if not layout.group:
        _mistyped(layout.group_id, fields.group, NUMBER | TEXT, wrong)
    return wrong


def _mistyped(
    field: str,
    column: Sequence[Any],
    allowed: Collection[type],
    wrong: dict[int, str],
    largest: int = LARGEST,
) -> None:
    """Notes the rows whose value is of another type, or a number that is negative or too large."""
    types = set(map(type, column))
    if types <= set(allowed) and (int not in types or _in_range(column, largest)):
        return
    for row, value in enumerate(column):
        if type(value) not in allowed:
            wrong.setdefault(row, f"{field} is of type {type(value).__name__}")
        elif type(value) is int and not 0 <= value <= largest:
            wrong.setdefault(row, f"{field} is {value}")


def _in_range(column: Sequence[int | None], largest: int) -> bool:
    numbers = _given(column)
    return min(numbers) >= 0 and max(numbers) <= largest


def _given(values: Sequence[Value | None]) -> Sequence[Value]:
    if None not in values:
        return values  # type: ignore[return-value]
    return [value for value in values if value is not None]


def _are_group_names(groups: Sequence[Any]) -> bool:
    """Whether all are tuples of two texts, as pickles have them; the few different ones are looked at."""
    try:
        return set(map(type, groups)) <= {tuple} and all(map(_is_group_name, set(groups)))
    except TypeError:
        return False


def _is_group_name(group: Any) -> bool:
    return (
        (type(group) is tuple or type(group) is list)
        and len(group) == 2
        and type(group[0]) is str
        and type(group[1]) is str
    )


def _group_names(fields: _Fields) -> list[GroupName]:
    if set(map(type, fields.group)) <= {tuple}:
        return fields.group
    return [tuple(group) if type(group) is list else (str(group), "") for group in fields.group]


def _track(name: str, groups: Iterable[GroupName]) -> Track:
    description = next((text for other, text in groups if other == name and text), "")
    label = f"{name} ({description})" if description else name
    return Track(TrackKind.COMMUNICATOR, process="", identity=name, label=label)


def _events(dump: Dump, fields: _Fields, strings: StringTable, track: Any) -> Events:
    count = len(fields.place)
    created = np.array(fields.created, dtype=np.int64) * dump.layout.created_unit_ns
    completed = _present(fields.completed).dense(count, 0)
    took = np.maximum(completed - created, 0)
    return Events(
        kind=np.full(count, EventKind.RECORD, np.uint8),
        name=strings.encode(fields.name),
        track=track,
        start=np.where(created > 0, created, NO_TIME),
        duration=np.where((completed > 0) & (created > 0), took, UNFINISHED),
        source=np.zeros(count, np.int32),
        payload=np.array(fields.place, dtype=np.int64),
    )


def _keys(fields: _Fields, strings: StringTable, group: Int64s) -> dict[Key, KeyColumn]:
    states = strings.encode(_given(fields.state)).astype(np.int64)
    columns = {
        Key.GROUP: KeyColumn(np.arange(len(group), dtype=np.int64), group),
        Key.COLLECTIVE_SEQUENCE: _present(fields.collective),
        Key.P2P_SEQUENCE: _present(fields.p2p),
        Key.STATE: KeyColumn(_rows_given(fields.state), states),
    }
    return {key: column for key, column in columns.items() if len(column)}


def _communications(
    fields: _Fields, events: Events, keys: Mapping[Key, KeyColumn], strings: StringTable
) -> tuple[Communications, int]:
    def numbers(key: Key) -> Int64s:
        return keys.get(key, KeyColumn.empty()).dense(len(events), UNKNOWN)

    order = Order(numbers(Key.COLLECTIVE_SEQUENCE), numbers(Key.P2P_SEQUENCE), fields.is_message)
    group = numbers(Key.GROUP).astype(np.int32)
    return communications_of(events.name, group, order, fields.tensors, strings)


def _records(
    fields: _Fields, events: Events, communications: Communications, strings: StringTable
) -> tuple[Records, Requests]:
    told = Told(
        fields.state, fields.retired, fields.started, fields.completed, fields.timeout, fields.place, events.start
    )
    tensors = fields.tensors
    shapes = fingerprints(tensors.input_sizes), fingerprints(tensors.output_sizes)
    return records_of(communications, told, shapes, first_types(tensors.output_types, strings))


def _present(values: Sequence[int | None]) -> KeyColumn:
    return KeyColumn(_rows_given(values), np.array(_given(values), dtype=np.int64))


def _rows_given(values: Sequence[object]) -> Int64s:
    if None not in values:
        return np.arange(len(values), dtype=np.int64)
    return np.array([row for row, value in enumerate(values) if value is not None], dtype=np.int64)
