"""Rank traces in a few lines: events by hand, without files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.model.columns import NO_TIME, UNKNOWN, StringTable
from tracelink.model.communications import Calls, Communications
from tracelink.model.events import Edges, EventKind, Events, Key, KeyColumn, Relation, Track, TrackKind
from tracelink.model.trace import NoPayloads, RankTrace, SourceInfo

MAIN = Track(TrackKind.THREAD, "100", "100")


@dataclass
class TraceBuilder:
    """Collects events; every method returns the row of the event that it adds."""

    tracks: list[Track] = field(default_factory=lambda: [MAIN])
    rows: list[tuple[EventKind, str, int, int, int, dict[Key, int | str]]] = field(default_factory=list)
    said: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    edges: list[tuple[Relation, int, int]] = field(default_factory=list)

    def track(self, kind: TrackKind, identity: str) -> int:
        self.tracks.append(Track(kind, "100", identity))
        return len(self.tracks) - 1

    def event(
        self, kind: EventKind, name: str, start: int, end: int, track: int = 0, **keys: int | str
    ) -> int:
        self.rows.append(
            (kind, name, track, start, end - start, {Key(key): value for key, value in keys.items()})
        )
        return len(self.rows) - 1

    def op(self, name: str, start: int, end: int, track: int = 0, **keys: int | str) -> int:
        return self.event(EventKind.OPERATOR, name, start, end, track, **keys)

    def annotation(self, name: str, start: int, end: int, track: int = 0, **keys: int | str) -> int:
        return self.event(EventKind.ANNOTATION, name, start, end, track, **keys)

    def kernel(self, name: str, start: int, end: int, track: int, **keys: int | str) -> int:
        return self.event(EventKind.KERNEL, name, start, end, track, **keys)

    def record(self, name: str, created: int, completed: int | None = None, **keys: int | str) -> int:
        """A flight-recorder entry."""
        end = created + UNKNOWN if completed is None else completed
        return self.event(EventKind.RECORD, name, created, end, **keys)

    def edge(self, relation: Relation, source: int, target: int) -> None:
        """What the source states itself."""
        self.edges.append((relation, source, target))

    def communication(self, row: int, **columns: Any) -> int:
        """What an event says of communication; texts as they are. Returns the event's row."""
        self.said.append((row, columns))
        return row

    def node(self, name: str, identity: int, thread: int = 1, **keys: int | str) -> int:
        row = self.event(EventKind.NODE, name, 0, 0, 0, node_id=identity, logical_thread=thread, **keys)
        self.rows[row] = (EventKind.NODE, name, 0, NO_TIME, UNKNOWN, self.rows[row][-1])
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
            self._keys(strings),
            communications=self._communications(strings),
            edges=Edges(
                column([source for _, source, _ in self.edges]),
                column([target for _, _, target in self.edges]),
                np.array([relation for relation, _, _ in self.edges], np.uint8),
            ),
            payloads=[NoPayloads()],
        )

    def _keys(self, strings: StringTable) -> dict[Key, KeyColumn]:
        found: dict[Key, tuple[list[int], list[int]]] = {}
        for row, (*_, keys) in enumerate(self.rows):
            for key, value in keys.items():
                rows, values = found.setdefault(key, ([], []))
                rows.append(row)
                values.append(strings[value] if isinstance(value, str) else value)
        return {key: KeyColumn.of(rows=rows, values=values) for key, (rows, values) in found.items()}

    def _communications(self, strings: StringTable) -> Communications:
        if not self.said:
            return Communications.empty()
        columns = {name: [] for name in Communications.empty().columns() if name != "row"}
        for _, given in self.said:
            for name, values in columns.items():
                unknown = False if name in ("point_to_point", "global_ranks") else UNKNOWN
                value = given.get(name, unknown)
                values.append(strings[value] if isinstance(value, str) else value)
        return Communications.of(row=[row for row, _ in self.said], **columns)


def rows_of(calls: Calls, trace: RankTrace) -> list[dict[str, Any]]:
    """Calls as what is known of each, texts as texts: what is not known or empty is left out."""
    texts = trace.strings.texts()
    known = []
    for place in range(len(calls)):
        row = {name: column[place].item() for name, column in calls.columns().items()}
        known.append(
            {
                name: texts[value] if name in Calls.text_columns() else value
                for name, value in row.items()
                if value is not False and value not in (UNKNOWN, NO_TIME)
            }
        )
    return known


def pairs(edges: Edges, relation: Relation | None = None) -> list[tuple[int, int]]:
    """(source, target) of each edge, sorted."""
    chosen = edges if relation is None else edges.where(relation)
    return sorted(zip(chosen.source.tolist(), chosen.target.tolist(), strict=True))


def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column of whole numbers."""
    return np.array(values, np.int64)
