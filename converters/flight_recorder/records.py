"""Fields of entries as records, events, process groups, progress and communications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import orjson

from tracelink._io.sources import LARGEST_RANK
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int8s, Int32s, Int64s, StringTable
from tracelink._model.communications import Communications
from tracelink._model.errors import encodable
from tracelink._model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind, known_keys
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.records import Progress, Records, State
from tracelink._model.trace import ProcessGroup, shared_ranks
from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.entries import LATEST, EntryRequests, Fields, GroupName

_STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
}
_LONGEST_TIMEOUT = 1 << 62

_SHAPED_BACKENDS = ("gloo:", "mpi:", "ucc:")
"""Backends whose Kineto events name no group: only the shapes distinguish their operations."""

_CACHED_LISTS = 512
"""All dumps of a job contain the same long lists of members: the most recent ones are parsed once."""

_EARLY = 2
"""A number up to this one, after larger ones, begins a new life of the group; threads swap neighbours only."""
_MOST_LIVES = 127
_LONGEST_NUMBER = 19
"""Names of groups with more digits are not counted."""

_BITS = 32
_LOW = (1 << _BITS) - 1
"""A group and the code of an operation as one number."""

_Ranks = tuple[int, ...]


# Records


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
        number=fields.operation_number,
        life=_lives(fields, names[fields.group], message),
        point_to_point=message,
        state=_states(fields, started, completed, strings),
        retired=fields.retired,
        created=np.where(fields.created > 0, fields.created, NO_TIME),
        started=started,
        completed=completed,
        timeout_ms=np.where(fields.timeout < _LONGEST_TIMEOUT, fields.timeout, UNKNOWN),
        place=fields.index,
        record=np.where(fields.record_id == UNKNOWN, fields.index, fields.record_id),
        site=fields.site,
    )


def _time(times: Int64s) -> Int64s:
    return np.where((times > 0) & (times <= LATEST), times, NO_TIME)


def _states(fields: Fields, started: Int64s, completed: Int64s, strings: StringTable) -> Int8s:
    """The recorded state, or a later one that follows from the times of starting and completion."""
    state_of = np.full(len(strings) + 1, State.UNKNOWN, np.int8)
    for name, state in _STATES.items():
        state_of[strings.find(name)] = state
    state_of[UNKNOWN] = State.UNKNOWN
    states: Int8s = state_of[fields.state]
    for times, state in ((started, State.STARTED), (completed, State.COMPLETED)):
        np.maximum(states, np.int8(state), out=states, where=times != NO_TIME)
    return states


def _messages(fields: Fields, strings: StringTable) -> Bools:
    """Entries whose sequence number counts messages."""
    names = strings.texts()
    operations = [operation_of(names[code]) for code in fields.requests.distinct.operation.tolist()]
    message = np.array([operation in POINT_TO_POINT for operation in operations], np.bool_)[
        fields.requests.request
    ]
    message |= fields.is_message
    closes = np.array([operation == Operation.COALESCED for operation in operations], np.bool_)
    message |= _closing_messages(closes[fields.requests.request] & ~message, message, fields)
    return message


def _closing_messages(closes: Bools, message: Bools, fields: Fields) -> Bools:
    """Entries that close a batch of messages without a mark: they follow the last message and have its numbers.

    The batch of a group's first kept entry may be overwritten: it was one of messages if the group counted any.
    """
    if not closes.any():
        return closes
    row = np.argsort(fields.group, kind="stable")
    previous, current = row[:-1], row[1:]
    same_group = fields.group[previous] == fields.group[current]
    same_numbers = same_group.copy()
    for numbers in (fields.collective, fields.p2p):
        same_numbers &= numbers[previous] == numbers[current]
    after_message = fields.p2p > 0
    after_message[current[same_group]] = (message[previous] & same_numbers)[same_group]
    return after_message & closes


# Lives of groups: a group that is destroyed and made again, under the same name, counts from 1 again


def _lives(fields: Fields, name: Int32s, message: Bools) -> Int8s:
    """For each entry which life of the group of this name it is of, from 0."""
    lives = np.zeros(len(fields), np.int8)
    order = np.argsort(name, kind="stable")
    for group in _groups_that_may_restart(fields, name, message, order):
        rows = order[np.searchsorted(name[order], group) : np.searchsorted(name[order], group, side="right")]
        lives[rows] = _lives_of_group(fields, rows, message)
    return lives


def _groups_that_may_restart(fields: Fields, name: Int32s, message: Bools, order: Int64s) -> list[int]:
    """The groups with several process-local numbers, or with sequence numbers that fall."""
    restarted = [
        _falling(name[order], fields.group_id[order]),
        _falling(name[order], -fields.group_id[order]),
    ]
    for rows, numbers in ((order[~message[order]], fields.collective), (order[message[order]], fields.p2p)):
        restarted.append(_falling(name[rows], numbers[rows]))
    found: list[int] = np.unique(np.concatenate(restarted)).tolist()
    return found


def _falling(group: Int32s, value: Int64s) -> Int32s:
    """The groups in which a value is smaller than the one before it."""
    found: Int32s = group[1:][(group[1:] == group[:-1]) & (value[1:] < value[:-1])]
    return found


def _lives_of_group(fields: Fields, rows: Int64s, message: Bools) -> list[int]:
    """The lives of entries of one group, in the order in which they begin."""
    begun: dict[tuple[int, int], int] = {}
    restarts: dict[int, int] = {}
    highest: dict[tuple[int, bool], int] = {}
    lives = []
    identities, numbers = fields.group_id[rows], np.where(message, fields.p2p, fields.collective)[rows]
    for identity, is_message, number in zip(
        identities.tolist(), message[rows].tolist(), numbers.tolist(), strict=True
    ):
        if UNKNOWN < number <= _EARLY and highest.get((identity, is_message), 0) - number >= _EARLY:
            restarts[identity] = restarts.get(identity, 0) + 1
            highest[identity, True] = highest[identity, False] = 0
        highest[identity, is_message] = max(highest.get((identity, is_message), 0), number)
        life = begun.setdefault((identity, restarts.get(identity, 0)), len(begun))
        lives.append(min(life, _MOST_LIVES))
    return lives


# Events, on the tracks of their groups


def events_of(fields: Fields, records: Records) -> Events:
    """One event for each entry, from its creation until its completion was observed."""
    tracks = {name: track for track, name in enumerate(dict.fromkeys(name for name, _ in fields.groups))}
    track_of_group = np.array([tracks[name] for name, _ in fields.groups], np.int32)
    known = (records.completed != NO_TIME) & (records.created != NO_TIME)
    duration = np.maximum(records.completed - records.created, 0)
    return Events.of(
        len(records),
        kind=EventKind.RECORD,
        name=fields.requests.distinct.operation[records.request],
        track=track_of_group[fields.group],
        start=records.created,
        duration=np.where(known, duration, UNKNOWN),
        source=0,
        payload=records.place,
    )


def keys_of(fields: Fields, records: Records) -> dict[Key, KeyColumn]:
    """Keys that link the entries to other events."""
    return known_keys(
        {
            Key.GROUP: records.group,
            Key.COLLECTIVE_SEQUENCE: fields.collective,
            Key.P2P_SEQUENCE: fields.p2p,
            Key.STATE: fields.state,
        }
    )


def tracks_of(groups: Iterable[GroupName]) -> list[Track]:
    """One track for each group name."""
    descriptions: dict[str, str] = {}
    for name, text in groups:
        descriptions[name] = descriptions.get(name) or text
    return [
        Track(TrackKind.COMMUNICATOR, process="", identity=name, label=f"{name} ({text})" if text else name)
        for name, text in descriptions.items()
    ]


# Progress of the process in each group


def holds_only_active(dump: schema.Dump, fields: Fields, records: Records) -> bool:
    """True if a dump leaves out completed calls, as NCCL's watchdog does (`includeCompleted` is off).

    Such a dump has no completed entry, and either gaps between its entries, or no more calls than are not completed
    according to the status of each group. That is updated later than the states of entries. (A ring buffer in which
    nothing is completed has not wrapped: devices do not queue as many calls as it holds.)
    """
    if (records.state == State.COMPLETED).any() or (records.retired == 1).any():
        return False
    if fields.has_gaps:
        return True
    status = dump.header.get(schema.GROUP_STATUS)
    if type(status) is not dict or not status or not (fields.first_record or not dump.entries):
        return False
    ids, counts = np.unique(fields.group_id, return_counts=True)
    active = dict(zip(map(str, ids.tolist()), counts.tolist(), strict=True))
    pending = {
        str(key): (found := _progress(value)).enqueued - found.completed for key, value in status.items()
    }
    return all(pending.get(key, 0) >= count for key, count in active.items())


def progress_of(dump: schema.Dump, fields: Fields) -> dict[str, Progress]:
    """Progress by group name, for groups whose number is known to be theirs.

    A group gets a status when it is first used. If no used group is without a name (because its entries were
    overwritten), all described groups without a status were never used.
    """
    status = dump.header.get(schema.GROUP_STATUS)
    if type(status) is not dict or not dump.layout.group:
        return {}
    config = dump.header.get(schema.GROUP_CONFIG)
    described = [name for name in config if type(name) is str] if type(config) is dict else []
    names = _names(fields)
    newest = {name: key for key, name in names.items()}
    newest |= {name: key for key, name in _names_by_order(list(status), described, names).items()}
    progress = {name: _progress(status[key]) for name, key in newest.items() if key in status}
    known = {*names, *newest.values()}
    unnamed = [_progress(value) for key, value in status.items() if key not in known]
    if status and all(group.enqueued < 0 for group in unnamed):
        progress |= {name: Progress() for name in described if name not in progress}
    return progress


def _names_by_order(
    numbers: Sequence[Any], described: Sequence[str], names: Mapping[str, str]
) -> dict[str, str]:
    """The names of groups without entries, by number: a process numbers its groups in the order of their names.

    Empty if any group with entries contradicts this; then a single unknown number is that of a single unknown name.
    """
    unknown = [number for number in numbers if number not in names]
    ordered = sorted(described, key=_order_of_name)
    counted = all(name.isdecimal() for name in described) and all(map(_is_decimal, numbers))
    if counted and len(numbers) == len(ordered):  # all were used: groups of other ranks take numbers, too
        by_order = dict(zip(sorted(numbers, key=int), ordered, strict=True))
    else:
        by_order = {str(number): name for number, name in enumerate(ordered)} if names else {}
    if counted and all(by_order.get(number) == name for number, name in names.items()):
        return {number: by_order[number] for number in unknown if number in by_order}
    free = [name for name in described if name not in names.values()]
    return {unknown[0]: free[0]} if names and len(unknown) == len(free) == 1 else {}


def _is_decimal(number: Any) -> bool:
    return type(number) is str and number.isdecimal() and len(number) < _LONGEST_NUMBER


def _order_of_name(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() and len(name) < _LONGEST_NUMBER else 0, name)


def group_numbers_of(config: Any, fields: Fields) -> tuple[dict[str, int], int]:
    """The numbers of used groups by name, and how many groups the process made, if torch on gloo wrote the dump.

    It describes its last group without a name, and lists members only of its first one.
    """
    if type(config) is not dict or list(config) != [""]:
        return {}, UNKNOWN
    numbers = {name: int(number) for number, name in _names(fields).items()}
    if not any(ranks for _, ranks in _described(config)[0].values()):
        return numbers, UNKNOWN
    return {schema.DEFAULT_GROUP[0]: 0, **numbers}, 1


def _names(fields: Fields) -> dict[str, str]:
    """The name of each group by its number as a string, from the last entry with this number; the newest one last."""
    numbers, last = np.unique(fields.group_id[::-1], return_index=True)
    order = np.argsort(-last)
    groups = fields.group[::-1][last[order]]
    pairs = zip(numbers[order].tolist(), groups.tolist(), strict=True)
    return {str(number): fields.groups[group][0] for number, group in pairs}


def _progress(value: Any) -> Progress:
    status = value if type(value) is dict else {}
    return Progress(
        *(
            _number(status.get(name))
            for name in (schema.LAST_ENQUEUED, schema.LAST_STARTED, schema.LAST_COMPLETED)
        )
    )


def _number(value: Any) -> int:
    """The JSON variant writes numbers as strings."""
    try:
        return max(int(value), UNKNOWN) if type(value) in (int, str) else UNKNOWN
    except ValueError:
        return UNKNOWN


# Process groups: described by the dump, or only named by entries


def groups_of(config: Any, named: Sequence[GroupName], path: str) -> tuple[list[ProcessGroup], list[Finding]]:
    """Each group once. Descriptions may be missing in the dump's own list, and come from entries."""
    descriptions: dict[str, str] = {}
    for name, text in named:
        descriptions[name] = descriptions.get(name) or text
    described, invalid = _described(config)
    groups = [
        _group(name, text or descriptions.get(name, ""), ranks) for name, (text, ranks) in described.items()
    ]
    groups += [_group(name, text, ()) for name, text in descriptions.items() if name not in described]
    if not invalid:
        return groups, []
    message = (
        f"{schema.GROUP_CONFIG} has invalid lists of ranks for {len(invalid)} groups, "
        "whose members are treated as unknown"
    )
    return groups, [Finding(Severity.WARNING, "group-members", message, len(invalid), path, invalid[0])]


def _group(name: str, description: str, ranks: _Ranks) -> ProcessGroup:
    return ProcessGroup(name, description, ranks, size=len(ranks))


def _described(config: Any) -> tuple[dict[str, tuple[str, _Ranks]], list[str]]:
    """Description and ranks by name, and the names of groups with invalid ranks."""
    if type(config) is not dict:
        return {}, []
    described: dict[str, tuple[str, _Ranks]] = {}
    invalid: list[str] = []
    parsed: dict[int, _Ranks | None] = {}
    for key, value in config.items():
        if type(key) not in (str, int):
            continue
        name, description, ranks = _fields(key, value)
        name, description = encodable(name), encodable(description)
        if id(ranks) not in parsed:  # many groups may share one list, which is parsed once
            parsed[id(ranks)] = _ranks(ranks)
        members = parsed[id(ranks)]
        if members is None:
            invalid.append(name)
        if name or members != tuple(range(len(members or ()))):
            described[name] = (description, members or ())
        elif (
            members
        ):  # torch on gloo describes the group of all ranks without a name, others also without ranks
            default, text = schema.DEFAULT_GROUP
            described.setdefault(default, (text, members))
    return described, invalid


def _fields(key: str | int, value: Any) -> tuple[str, str, Any]:
    """Name, description and ranks, in any of the versions."""
    if not isinstance(value, Mapping):
        return str(key), "", value
    name = value.get(schema.GROUP_NAME, key)
    description = value.get(schema.GROUP_DESCRIPTION, "")
    return (
        name if type(name) is str else str(key),
        description if type(description) is str else "",
        value.get(schema.GROUP_RANKS, ()),
    )


def _ranks(value: Any) -> _Ranks | None:
    return _parsed_ranks(value) if type(value) is str else _checked_ranks(value)


@lru_cache(maxsize=_CACHED_LISTS)
def _parsed_ranks(text: str) -> _Ranks | None:
    try:
        return _checked_ranks(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _checked_ranks(value: Any) -> _Ranks | None:
    if type(value) not in (list, tuple) or not all(
        type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in value
    ):
        return None
    return shared_ranks(value)


def backends_of(fields: Fields, groups: Sequence[ProcessGroup], strings: StringTable) -> tuple[str, ...]:
    """The backends with their groups, as `nccl:0` for the group 0. An unused group is on each backend."""
    names = strings.texts()
    operation = fields.requests.distinct.operation[fields.requests.request].astype(np.int64)
    used = {
        (names[pair & _LOW].partition(":")[0], fields.groups[pair >> _BITS][0])
        for pair in np.unique(fields.group << _BITS | operation).tolist()
        if ":" in names[pair & _LOW]
    }
    named = {name for _, name in used}
    unused = {group.name for group in groups} - named
    return tuple(
        sorted(f"{backend}:{name}" for backend, name in {*used, *product({b for b, _ in used}, unused)})
    )


# Communications


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
    """Number of ranks of each group, by the code of its name."""
    size = np.full(len(strings), UNKNOWN, np.int32)
    for group in groups:
        if group.size and (code := strings.find(group.name)) != UNKNOWN:
            size[code] = group.size
    return size


def _shapes(entry_requests: EntryRequests, strings: StringTable) -> Int32s:
    """The sizes of each request as a string, for the backends that need them."""
    names = strings.texts()
    requests = entry_requests.distinct
    shapes = np.full(len(requests), UNKNOWN, np.int32)
    for row, (code, sizes) in enumerate(zip(requests.operation.tolist(), entry_requests.sizes, strict=True)):
        if requests.elements_in[row] != UNKNOWN and names[code].startswith(_SHAPED_BACKENDS):
            shapes[row] = strings[orjson.dumps(sizes).decode()]
    return shapes
