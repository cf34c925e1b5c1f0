"""Rank traces in a few lines: events by hand, without files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.events import (
    NO_TIME,
    UNFINISHED,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink.strings import StringTable
from tracelink.trace import NoPayloads, RankTrace, SourceInfo

MAIN = Track(TrackKind.THREAD, "100", "100")


@dataclass
class TraceBuilder:
    """Collects events; every method returns the row of the event that it adds."""

    tracks: list[Track] = field(default_factory=lambda: [MAIN])
    rows: list[tuple[EventKind, str, int, int, int, dict[Key, int]]] = field(default_factory=list)

    def track(self, kind: TrackKind, identity: str) -> int:
        self.tracks.append(Track(kind, "100", identity))
        return len(self.tracks) - 1

    def event(self, kind: EventKind, name: str, start: int, end: int, track: int = 0, **keys: int) -> int:
        self.rows.append(
            (kind, name, track, start, end - start, {Key(key): value for key, value in keys.items()})
        )
        return len(self.rows) - 1

    def op(self, name: str, start: int, end: int, track: int = 0, **keys: int) -> int:
        return self.event(EventKind.OPERATOR, name, start, end, track, **keys)

    def node(self, name: str, identity: int, thread: int = 1, **keys: int) -> int:
        row = self.event(EventKind.NODE, name, 0, 0, 0, node_id=identity, logical_thread=thread, **keys)
        self.rows[row] = (EventKind.NODE, name, 0, NO_TIME, UNFINISHED, self.rows[row][-1])
        return row

    def build(self) -> RankTrace:
        strings = StringTable()
        events = Events.of(
            kind=[row[0] for row in self.rows],
            name=[strings[row[1]] for row in self.rows],
            track=[row[2] for row in self.rows],
            start=[row[3] for row in self.rows],
            duration=[row[4] for row in self.rows],
            source=[0] * len(self.rows),
            payload=list(range(len(self.rows))),
        )
        return RankTrace(
            [SourceInfo("built.json", "built", rank=0)],
            strings,
            events,
            list(self.tracks),
            self._keys(),
            payloads=[NoPayloads()],
        )

    def _keys(self) -> dict[Key, KeyColumn]:
        found: dict[Key, tuple[list[int], list[int]]] = {}
        for row, (*_, keys) in enumerate(self.rows):
            for key, value in keys.items():
                rows, values = found.setdefault(key, ([], []))
                rows.append(row)
                values.append(value)
        return {key: KeyColumn.of(rows, values) for key, (rows, values) in found.items()}


def pairs(edges: Edges, relation: Relation | None = None) -> list[tuple[int, int]]:
    """(source, target) of each edge, sorted."""
    chosen = edges if relation is None else edges.where(relation)
    return sorted(zip(chosen.source.tolist(), chosen.target.tolist(), strict=True))


def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column of whole numbers."""
    return np.array(values, np.int64)
