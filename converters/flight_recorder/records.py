"""What entries say as records."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.flight_recorder.fields import Fields
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.records import Int8s, Records, State
from tracelink.strings import StringTable

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
        request=fields.asked.request,
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
    operations = [operation_of(texts[code]) for code in fields.asked.requests.operation.tolist()]
    message = np.array([operation in POINT_TO_POINT for operation in operations], np.bool_)[
        fields.asked.request
    ]
    message |= fields.is_message
    closes = np.array([operation == Operation.COALESCED for operation in operations], np.bool_)
    message |= _closing_messages(closes[fields.asked.request] & ~message, message, fields)
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
