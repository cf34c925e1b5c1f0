"""Rank traces in a few lines: events by hand, without files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from builders.job import JobBuilder
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.communications import Calls, Communications, Statement
from tracelink._model.events import Edges, EventKind, Key, Relation, Track, TrackKind
from tracelink._model.trace import NoPayloads, RankTrace, SourceInfo

MAIN = Track(TrackKind.THREAD, "100", "100")


@dataclass
class TraceBuilder(JobBuilder):
    """Collects events of a rank; times are as they are. Every method returns the row of the event that it adds."""

    origin: int = 0
    tracks: list[Track] = field(default_factory=lambda: [MAIN])
    said: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def lane(self, kind: TrackKind, identity: str) -> int:
        """A new track of the process."""
        return self.track(kind, process="100", identity=identity)

    def event(
        self, kind: EventKind, name: str, start: int, end: int, track: int = 0, **keys: int | str
    ) -> int:
        known = {Key(key): value for key, value in keys.items()}
        return self.add(track, name, start, end - start, kind, keys=known)

    def op(self, name: str, start: int, end: int, track: int = 0, **keys: int | str) -> int:  # type: ignore[override]
        return self.event(EventKind.OPERATOR, name, start, end, track, **keys)

    def annotation(self, name: str, start: int, end: int, track: int = 0, **keys: int | str) -> int:
        return self.event(EventKind.ANNOTATION, name, start, end, track, **keys)

    def kernel(self, name: str, start: int, end: int, track: int, **keys: int | str) -> int:
        return self.event(EventKind.KERNEL, name, start, end, track, **keys)

    def record(self, name: str, created: int, completed: int | None = None, **keys: int | str) -> int:
        end = created + UNKNOWN if completed is None else completed
        return self.event(EventKind.RECORD, name, created, end, **keys)

    def node(self, name: str, identity: int, thread: int = 1, **keys: int | str) -> int:
        known: dict[Key, int | str] = {Key.NODE_ID: identity, Key.LOGICAL_THREAD: thread}
        known |= {Key(key): value for key, value in keys.items()}
        return self.add(0, name, None, UNKNOWN, EventKind.NODE, keys=known)

    def communication(self, row: int, **columns: Any) -> int:
        """What an event says of communication; texts as they are. Returns the event's row."""
        self.said.append((row, columns))
        return row

    def trace(self) -> RankTrace:
        communications = self._communications()
        return RankTrace(
            [SourceInfo("built.json", "built", rank=0)],
            self.texts,
            self.events([0] * len(self.rows), range(len(self.rows))),
            list(self.tracks),
            self.all_keys(),
            communications=communications,
            edges=self.all_edges(),
            payloads=[NoPayloads()],
        )

    def _communications(self) -> Communications:
        if not self.said:
            return Communications.empty()
        columns: dict[str, list[Any]] = {
            name: [] for name in Communications.empty().columns() if name != "row"
        }
        for _, given in self.said:
            for name, values in columns.items():
                unknown = False if name in ("point_to_point", "global_ranks") else UNKNOWN
                value = given.get(name, unknown)
                values.append(self.texts[value] if isinstance(value, str) else value)
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
    return np.array(values, np.int64)


def stated(result: RankTrace) -> list[tuple[int, Statement]]:
    """The row of the event and the whole statement, for each row of the table."""
    table, texts = result.communications, result.strings.texts()
    columns = {name: column.tolist() for name, column in table.columns().items() if name != "row"}
    for name in table.text_columns():
        columns[name] = ["" if code == UNKNOWN else texts[code] for code in columns[name]]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return list(zip(table.row.tolist(), (Statement(**row) for row in rows), strict=True))


def statements(result: RankTrace) -> list[Statement]:
    return [statement for _, statement in stated(result)]
