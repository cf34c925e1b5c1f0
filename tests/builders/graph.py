"""Event graphs by hand: tracks, then events rank by rank, then edges."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from tracelink.model.collectives import Collectives, Messages, Participations, Verdict
from tracelink.model.columns import NO_TIME, UNKNOWN, StringTable
from tracelink.model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink.model.graph import EventGraph, Rank, source_bounds
from tracelink.model.trace import ListedPayloads, ProcessGroup, SourceInfo

START = 1_700_000_000_000_000_000
"""The time that 0 stands for in a built graph."""


@dataclass
class GraphBuilder:
    """Collects events and edges; times are ns after `START`, and None means: has no time."""

    header: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    tracks: list[Track] = field(default_factory=list)
    texts: StringTable = field(default_factory=StringTable)
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    keys: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    samples: list[tuple[int, int, float]] = field(default_factory=list)
    groups: list[ProcessGroup] = field(default_factory=list)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    participations: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def track(
        self,
        kind: TrackKind = TrackKind.THREAD,
        rank: int = 0,
        process: str = "100",
        identity: str = "101",
        label: str = "",
    ) -> int:
        """A track; returns its row."""
        self.tracks.append(Track(kind, process, identity, label, rank))
        return len(self.tracks) - 1

    def add(
        self,
        track: int,
        name: str,
        start: int | None,
        duration: int = 0,
        kind: EventKind = EventKind.OPERATOR,
        args: dict[str, Any] | bytes | None = None,
        keys: dict[Key, int | str] | None = None,
    ) -> int:
        """An event; returns its row."""
        row = len(self.rows)
        time = int(np.iinfo(np.int64).min) if start is None else START + start
        self.rows.append((int(kind), self.texts[name], track, time, duration))
        text = args if isinstance(args, bytes) else json.dumps(args, ensure_ascii=False).encode()
        self.payloads.append(b"" if args is None else text)
        for key, value in (keys or {}).items():
            code = self.texts[value] if isinstance(value, str) else value
            self.keys.setdefault(key, []).append((row, code))
        return row

    def edge(self, source: int, relation: Relation, target: int) -> None:
        """An edge between two rows."""
        self.edges.append((source, target, int(relation)))

    def sample(self, track: int, time: int, value: float) -> None:
        """A sample of a counter."""
        self.samples.append((track, START + time, value))

    def group(self, *ranks: int, description: str = "", name: str = "") -> int:
        """A process group; returns its row."""
        self.groups.append(ProcessGroup(name or str(len(self.groups)), description, ranks, len(ranks)))
        return len(self.groups) - 1

    def together(
        self, group: int, *rows: int, operation: str = "all_reduce", as_what: str = "kernel", **said: Any
    ) -> int:
        """A collective of a group, in which these events are the parts of their ranks; returns its row."""
        number = len(self.collectives)
        starts, ends = [self.rows[row][3] for row in rows], [self._end(row) for row in rows]
        last = max(starts)
        self.participations += [
            {
                "collective": number,
                "rank": self._rank(row),
                as_what: row,
                "start": start,
                "end": end,
                "wait": last - start,
            }
            for row, start, end in zip(rows, starts, ends, strict=True)
        ]
        known = {
            "group": group,
            "sequence": number,
            "order": number,
            "operation": self.texts[operation],
            "start": min(starts),
            "end": max(ends),
            "last_rank": self._rank(rows[starts.index(last)]),
            "skew": last - min(starts),
            "duration": max(ends) - last,
            "verdict": self.texts[Verdict.COMPLETE],
        }
        self.collectives.append(known | said)
        return number

    def message(self, group: int, send: int, receive: int, **said: Any) -> None:
        """A message: the event that sends it, and the one that receives it."""
        known = {
            "group": group,
            "source": self._rank(send),
            "target": self._rank(receive),
            "order": len(self.messages),
            "send": send,
            "receive": receive,
            "sent": self.rows[send][3],
            "received": self._end(receive),
        }
        self.messages.append(known | said)

    def _rank(self, row: int) -> int:
        return self.tracks[self.rows[row][2]].rank

    def _end(self, row: int) -> int:
        start, duration = self.rows[row][3:]
        return NO_TIME if duration == UNKNOWN else start + duration

    def build(self) -> EventGraph:
        """The graph: one source for each rank."""
        ranks = sorted({track.rank for track in self.tracks})
        kind, name, track, start, duration = zip(*self.rows, strict=True) if self.rows else [()] * 5
        source = [ranks.index(self.tracks[row].rank) for row in track]
        bounds = source_bounds(np.array(source, np.int32), len(ranks))
        within = [row - bounds[of] for row, of in enumerate(source)]
        events = Events.of(
            kind=kind,
            name=name,
            track=track,
            start=start,
            duration=duration,
            source=source,
            payload=within,
        )
        edges = np.array(self.edges, np.int64).reshape(-1, 3)
        samples = list(zip(*self.samples, strict=True)) if self.samples else [()] * 3
        info = SourceInfo("made", "kineto", host=self.host, header=self.header)
        return EventGraph(
            strings=self.texts.texts(),
            events=events,
            edges=Edges(edges[:, 0], edges[:, 1], edges[:, 2].astype(np.uint8)),
            tracks=self.tracks,
            ranks=[Rank(rank, host=self.host) for rank in ranks],
            sources=[replace(info, rank=rank) for rank in ranks],
            bounds=bounds,
            keys={
                key: KeyColumn.of(rows=[row for row, _ in pairs], values=[value for _, value in pairs])
                for key, pairs in self.keys.items()
            },
            counters=Counters(
                np.array(samples[0], np.int32),
                np.array(samples[1], np.int64),
                np.array(samples[2], np.float64),
            ),
            groups=self.groups,
            collectives=_table(Collectives, self.collectives),
            participations=_table(Participations, self.participations),
            messages=_table(Messages, self.messages),
            payloads=[ListedPayloads(self.payloads[low:high]) for low, high in pairwise(bounds)],
        )


def _table(table: Any, rows: list[dict[str, Any]]) -> Any:
    """A table of rows, in which what a row does not say is unknown."""
    unknown = table.of(1)
    columns = {
        name: [row.get(name, getattr(unknown, name)[0]) for row in rows] for name in table.__struct_fields__
    }
    return table.of(len(rows), **columns)
