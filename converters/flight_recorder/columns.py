"""Records to the columns of events: one event for each, on the track of its group."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.flight_recorder.fields import Fields
from tracelink.converters.flight_recorder.values import GroupName
from tracelink.events import UNFINISHED, EventKind, Events, Int64s, Key, KeyColumn, Track, TrackKind
from tracelink.records import Records


def events_of(fields: Fields, records: Records) -> Events:
    """The entries, from their creation to when their completion was seen."""
    count = len(records)
    tracks = {name: track for track, name in enumerate(dict.fromkeys(name for name, _ in fields.groups))}
    track_of_group = np.array([tracks[name] for name, _ in fields.groups], np.int32)
    took = np.maximum(fields.completed - fields.created, 0)
    return Events(
        kind=np.full(count, EventKind.RECORD, np.uint8),
        name=fields.asked.requests.operation[records.request],
        track=track_of_group[fields.group],
        start=records.created,
        duration=np.where((fields.completed > 0) & (fields.created > 0), took, UNFINISHED),
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
