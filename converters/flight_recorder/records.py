"""Entries to records, groups, events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.entries import EntryRequests, Fields, GroupName
from tracelink.converters.flight_recorder.schema import (
    GROUP_CONFIG,
    GROUP_STATUS,
    LAST_COMPLETED,
    LAST_ENQUEUED,
    LAST_STARTED,
    Dump,
)
from tracelink.io.sources import LARGEST_RANK
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int8s, Int32s, Int64s, StringTable
from tracelink.model.communications import Communications
from tracelink.model.errors import Finding, Severity
from tracelink.model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink.model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.model.records import Progress, Records, State
from tracelink.model.trace import ProcessGroup

# What entries say as records.


STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
}
LATEST = 1 << 62
"""No time and no timeout is as large."""


def records_of(fields: Fields, strings: StringTable) -> Records:
    """One record for each entry."""
    names = strings.encode([name for name, _ in fields.groups])
    started, completed = _time(fields.started), _time(fields.completed)
    message = _messages(fields, strings)
    return Records.of(
        len(fields),
        group=names[fields.group],
        request=fields.requests.request,
        sequence=np.where(message, fields.p2p, fields.collective),
        point_to_point=message,
        state=_states(fields, started, completed, strings),
        retired=fields.retired,
        created=np.where(fields.created > 0, fields.created, NO_TIME),
        started=started,
        completed=completed,
        timeout_ms=np.where(fields.timeout < LATEST, fields.timeout, UNKNOWN),
        place=fields.place,
    )


def _time(told: Int64s) -> Int64s:
    return np.where((told > 0) & (told < LATEST), told, NO_TIME)


def _states(fields: Fields, started: Int64s, completed: Int64s, strings: StringTable) -> Int8s:
    """As said; a time of completion or of starting says it too."""
    said = np.full(len(strings) + 1, State.UNKNOWN, np.int8)
    for text, state in STATES.items():
        said[strings.find(text)] = state
    said[UNKNOWN] = State.UNKNOWN
    states: Int8s = said[fields.state]
    for times, state in ((started, State.STARTED), (completed, State.COMPLETED)):
        np.maximum(states, np.int8(state), out=states, where=times != NO_TIME)
    return states


def _messages(fields: Fields, strings: StringTable) -> Bools:
    """Which entries are counted with the messages of their group."""
    texts = strings.texts()
    operations = [operation_of(texts[code]) for code in fields.requests.distinct.operation.tolist()]
    message = np.array([operation in POINT_TO_POINT for operation in operations], np.bool_)[
        fields.requests.request
    ]
    message |= fields.is_message
    closes = np.array([operation == Operation.COALESCED for operation in operations], np.bool_)
    message |= _closing_messages(closes[fields.requests.request] & ~message, message, fields)
    return message


def _closing_messages(closes: Bools, message: Bools, fields: Fields) -> Bools:
    """Which entries end a batch of messages, though they are not marked: they follow the last with its numbers.

    Of a group's first entry that is kept, what it ends may be forgotten: a batch if there were messages before.
    """
    if not closes.any():
        return closes
    row = np.argsort(fields.group, kind="stable")
    last, next_one = row[:-1], row[1:]
    same = fields.group[last] == fields.group[next_one]
    alike = same.copy()
    for numbers in (fields.collective, fields.p2p):
        alike &= numbers[last] == numbers[next_one]
    ends = fields.p2p > 0
    ends[next_one[same]] = (message[last] & alike)[same]
    return ends & closes


# Records to the columns of events: one event for each, on the track of its group.


def events_of(fields: Fields, records: Records) -> Events:
    """The entries, from their creation to when their completion was seen."""
    count = len(records)
    tracks = {name: track for track, name in enumerate(dict.fromkeys(name for name, _ in fields.groups))}
    track_of_group = np.array([tracks[name] for name, _ in fields.groups], np.int32)
    took = np.maximum(fields.completed - fields.created, 0)
    return Events(
        kind=np.full(count, EventKind.RECORD, np.uint8),
        name=fields.requests.distinct.operation[records.request],
        track=track_of_group[fields.group],
        start=records.created,
        duration=np.where((fields.completed > 0) & (fields.created > 0), took, UNKNOWN),
        source=np.zeros(count, np.int32),
        payload=records.place,
    )


def keys_of(fields: Fields, records: Records) -> dict[Key, KeyColumn]:
    """What links the entries to other events."""
    columns = {
        Key.GROUP: KeyColumn(np.arange(len(records)), records.group.astype(np.int64)),
        Key.COLLECTIVE_SEQUENCE: _known(fields.collective),
        Key.P2P_SEQUENCE: _known(fields.p2p),
        Key.STATE: _known(fields.state.astype(np.int64)),
    }
    return {key: column for key, column in columns.items() if len(column)}


def _known(values: Int64s) -> KeyColumn:
    rows = np.flatnonzero(values != UNKNOWN)
    return KeyColumn(rows, values[rows])


def tracks_of(groups: Iterable[GroupName]) -> list[Track]:
    """One for each name of a group."""
    descriptions: dict[str, str] = {}
    for name, text in groups:
        descriptions[name] = descriptions.get(name) or text
    return [
        Track(TrackKind.COMMUNICATOR, process="", identity=name, label=f"{name} ({text})" if text else name)
        for name, text in descriptions.items()
    ]


# How far a process says it got in each group.


def progress_of(dump: Dump, fields: Fields) -> dict[str, Progress]:
    """By the name of the group, as far as an entry tells which name a number of the process stands for.

    A group has a status once it is used. So one that is described, and is none of those whose names were
    overwritten, was never used.
    """
    status = dump.header.get(GROUP_STATUS)
    if type(status) is not dict or not dump.layout.group:
        return {}
    names = _names(fields)
    told = {names[key]: _progress(value) for key, value in status.items() if key in names}
    nameless = [_progress(value) for key, value in status.items() if key not in names]
    if status and all(one.enqueued < 0 for one in nameless):
        config = dump.header.get(GROUP_CONFIG)
        described = config if type(config) is dict else {}
        told |= {name: Progress() for name in described if type(name) is str and name not in told}
    return told


def _names(fields: Fields) -> dict[str, str]:
    """The name of each group by its number as text; the last entry with a number tells."""
    numbers, last = np.unique(fields.group_id[::-1], return_index=True)
    groups = fields.group[::-1][last]
    pairs = zip(numbers.tolist(), groups.tolist(), strict=True)
    return {str(number): fields.groups[group][0] for number, group in pairs}


def _progress(value: Any) -> Progress:
    said = value if type(value) is dict else {}
    return Progress(*(_number(said.get(name)) for name in (LAST_ENQUEUED, LAST_STARTED, LAST_COMPLETED)))


def _number(value: Any) -> int:
    """The JSON variant writes numbers as texts."""
    try:
        return max(int(value), -1) if type(value) in (int, str) else -1
    except ValueError:
        return -1


# The process groups that a dump describes, and those that its entries name.


Ranks = tuple[int, ...]

KEPT_LISTS = 64
"""All dumps of a job spell the same long lists of members: so many that were met last are not parsed again."""


def groups_of(config: Any, named: Sequence[GroupName], path: str) -> tuple[list[ProcessGroup], list[Finding]]:
    """Every group once: described by the dump, or only named by an entry, which alone knows descriptions."""
    descriptions: dict[str, str] = {}
    for name, text in named:
        descriptions[name] = descriptions.get(name) or text
    described, wrong = _described(config)
    groups = [
        _group(name, text or descriptions.get(name, ""), ranks) for name, (text, ranks) in described.items()
    ]
    groups += [_group(name, text, ()) for name, text in descriptions.items() if name not in described]
    if not wrong:
        return groups, []
    message = (
        f"{schema.GROUP_CONFIG} does not list the ranks of {len(wrong)} groups in a way that can be read"
    )
    return groups, [Finding(Severity.WARNING, "group-members", message, len(wrong), path, wrong[0])]


def _group(name: str, description: str, ranks: Ranks) -> ProcessGroup:
    return ProcessGroup(name, description, ranks, size=len(ranks))


def _described(config: Any) -> tuple[dict[str, tuple[str, Ranks]], list[str]]:
    """Description and ranks by name, and the names of groups whose ranks cannot be read."""
    if type(config) is not dict:
        return {}, []
    described: dict[str, tuple[str, Ranks]] = {}
    wrong: list[str] = []
    read: dict[int, Ranks | None] = {}
    for key, value in config.items():
        if type(key) not in (str, int):
            continue
        name, description, ranks = _spelt(key, value)
        if id(ranks) not in read:  # many groups may share one list, which is read once
            read[id(ranks)] = _ranks(ranks)
        members = read[id(ranks)]
        if members is None:
            wrong.append(name)
        if name or members:  # torch on gloo describes one group without a name and without ranks: no group
            described[name] = (description, members or ())
    return described, wrong


def _spelt(key: str | int, value: Any) -> tuple[str, str, Any]:
    """Name, description and ranks, whichever way they are written down."""
    if not isinstance(value, Mapping):
        return str(key), "", value
    name = value.get(schema.GROUP_NAME, key)
    description = value.get(schema.GROUP_DESCRIPTION, "")
    return (
        name if type(name) is str else str(key),
        description if type(description) is str else "",
        value.get(schema.GROUP_RANKS, ()),
    )


def _ranks(value: Any) -> Ranks | None:
    return _listed(value) if type(value) is str else _checked(value)


@lru_cache(maxsize=KEPT_LISTS)
def _listed(text: str) -> Ranks | None:
    try:
        return _checked(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _checked(value: Any) -> Ranks | None:
    if type(value) not in (list, tuple) or not all(
        type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in value
    ):
        return None
    return tuple(value)


# What entries say of communication: whom with, in which order, and how much of what.


SHAPED = ("gloo:", "mpi:", "ucc:")
"""Backends whose other records name no group: there only the shapes tell operations apart."""


def communications_of(
    records: Records, entry_requests: EntryRequests, groups: Sequence[ProcessGroup], strings: StringTable
) -> Communications:
    """One row for each record."""
    requests = entry_requests.distinct.take(entry_requests.request)
    return Communications.of(
        row=np.arange(len(records)),
        operation=requests.operation,
        group=records.group,
        sequence=records.sequence,
        point_to_point=records.point_to_point,
        source=requests.source,
        target=requests.target,
        elements_in=requests.elements_in,
        elements_out=requests.elements_out,
        type=requests.type_in,
        size=_group_sizes(groups, strings)[records.group],
        shape=_shapes(entry_requests, strings)[records.request],
    )


def _group_sizes(groups: Sequence[ProcessGroup], strings: StringTable) -> Int32s:
    """How many ranks a group has, by the code of its name."""
    size = np.full(len(strings), UNKNOWN, np.int32)
    for group in groups:
        if group.size and (code := strings.find(group.name)) != UNKNOWN:
            size[code] = group.size
    return size


def _shapes(entry_requests: EntryRequests, strings: StringTable) -> Int32s:
    """The sizes of each request as text, where they are needed."""
    texts = strings.texts()
    requests = entry_requests.distinct
    shapes = np.full(len(requests), UNKNOWN, np.int32)
    for row, (code, sizes) in enumerate(zip(requests.operation.tolist(), entry_requests.sizes, strict=True)):
        if requests.elements_in[row] != UNKNOWN and texts[code].startswith(SHAPED):
            shapes[row] = strings[orjson.dumps(sizes).decode()]
    return shapes
