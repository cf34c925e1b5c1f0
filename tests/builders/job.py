"""Jobs by hand: what happened on the threads and streams of ranks, what led to what, what ranks did together.

    job = JobBuilder(unit=1000)
    step = job.op("step", 0, 100)
    job.work("gemm", 40, 50, launched=20, inside=step)
    assert len(job.build()) == 3

is a rank with an operator, the call in it that launched a kernel, and the kernel; times are in units of ns after
`START`. Events of a rank must be given before those of the next one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from tracelink._model.clock import Clock
from tracelink._model.columns import NO_TIME, UNKNOWN, StringTable
from tracelink._model.communications import Collectives, Evidence, Messages, Participations, Verdict
from tracelink._model.events import (
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
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph, Rank, source_bounds
from tracelink._model.job import LinkedJob, Part
from tracelink._model.trace import ListedPayloads, ProcessGroup, SourceInfo

START = 1_700_000_000_000_000_000
"""The instant of time 0."""

MAIN = "main"
EVIDENCE = {"kernel": Evidence.KERNEL, "annotation": Evidence.ANNOTATION, "record": Evidence.RECORDER}
"""What the times of a participation rest on, by the column of its event."""

Keys = dict[Key, int | str]


@dataclass(frozen=True)
class HeldPart:
    """A rank whose graph is at hand."""

    rank: int
    graph: EventGraph

    def load(self) -> EventGraph:
        return self.graph


@dataclass
class JobBuilder:
    """Collects events, edges, collectives and messages; what is not said of them is unknown."""

    clocks: Sequence[Clock] = ()
    findings: Sequence[Finding] = ()
    parts: list[Part] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    unit: int = 1
    origin: int = START
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

    # Events; each method returns the row of what it adds.

    def track(
        self,
        kind: TrackKind = TrackKind.THREAD,
        rank: int = 0,
        process: str = "100",
        identity: str = "101",
        label: str = "",
    ) -> int:
        self.tracks.append(Track(kind, process, identity, label, rank))
        return len(self.tracks) - 1

    def add(
        self,
        track: int,
        name: str,
        start: float | None,
        duration: float = 0,
        kind: EventKind = EventKind.OPERATOR,
        args: dict[str, Any] | bytes | None = None,
        keys: Keys | None = None,
    ) -> int:
        """An event on a track; a start of None means: has no time."""
        row = len(self.rows)
        time = NO_TIME if start is None else self.origin + round(start * self.unit)
        length = UNKNOWN if duration == UNKNOWN else round(duration * self.unit)
        self.rows.append((int(kind), self.texts[name], track, time, length))
        text = args if isinstance(args, bytes) else json.dumps(args, ensure_ascii=False).encode()
        self.payloads.append(b"" if args is None else text)
        for key, value in (keys or {}).items():
            code = self.texts[value] if isinstance(value, str) else value
            self.keys.setdefault(key, []).append((row, code))
        return row

    def thread(self, name: str = MAIN, rank: int = 0) -> int:
        return self._known(Track(TrackKind.THREAD, "100", name, "", rank))

    def stream(self, number: int = 7, rank: int = 0, device: int | None = None) -> int:
        """The track of a stream; each rank has a device of its own unless another is given."""
        process = str(rank if device is None else device)
        return self._known(Track(TrackKind.STREAM, process, str(number), "", rank))

    def _known(self, track: Track) -> int:
        if track not in self.tracks:
            self.tracks.append(track)
        return self.tracks.index(track)

    def op(
        self,
        name: str,
        start: float,
        end: float,
        thread: str = MAIN,
        *,
        rank: int = 0,
        inside: int | None = None,
        kind: EventKind = EventKind.OPERATOR,
        keys: Keys | None = None,
    ) -> int:
        """Something on a thread, called by what it is inside of."""
        row = self.add(self.thread(thread, rank), name, start, end - start, kind, keys=keys)
        if inside is not None:
            self.edge(inside, Relation.CALLS, row)
        return row

    def note(self, name: str, start: float, end: float, thread: str = MAIN, **more: Any) -> int:
        return self.op(name, start, end, thread, kind=EventKind.ANNOTATION, **more)

    def call(
        self,
        name: str,
        start: float,
        end: float | None = None,
        thread: str = MAIN,
        *,
        correlation: int | None = None,
        **more: Any,
    ) -> int:
        """A call of the runtime, of one unit if it has no end."""
        keys: Keys | None = None if correlation is None else {Key.CORRELATION: correlation}
        until = start + 1 if end is None else end
        return self.op(name, start, until, thread, kind=EventKind.RUNTIME, keys=keys, **more)

    def work(
        self,
        name: str,
        start: float,
        end: float,
        stream: int = 7,
        *,
        rank: int = 0,
        device: int | None = None,
        kind: EventKind = EventKind.KERNEL,
        args: dict[str, Any] | None = None,
        by: int | None = None,
        launched: float | None = None,
        **call: Any,
    ) -> int:
        """Work on a device; `launched` is when the call began, `by` a call that launches more than this."""
        row = self.add(self.stream(stream, rank, device), name, start, end - start, kind, args)
        if launched is not None:
            by = self.call("cudaLaunchKernel", launched, rank=rank, **call)
        if by is not None:
            self.edge(by, Relation.LAUNCHES, row)
        return row

    def edge(self, source: int, relation: Relation, target: int) -> None:
        self.edges.append((source, target, int(relation)))

    def sample(self, track: int, time: int, value: float) -> None:
        self.samples.append((track, START + time, value))

    # What ranks did together; each method returns a row of a table.

    def group(self, *ranks: int, description: str = "", name: str = "") -> int:
        self.groups.append(ProcessGroup(name or str(len(self.groups)), description, ranks, len(ranks)))
        return len(self.groups) - 1

    def together(
        self,
        group: int,
        *rows: int,
        operation: str = "all_reduce",
        as_what: str = "kernel",
        elements: tuple[int, int] | None = None,
        **said: Any,
    ) -> int:
        """A collective of a group, in which these events are the parts of their ranks."""
        number = len(self.collectives)
        starts, ends = [self.rows[row][3] for row in rows], [self._end(row) for row in rows]
        last = max(starts)
        sizes = {} if elements is None else dict(zip(("bytes_in", "bytes_out"), elements, strict=True))
        self.participations += [
            {
                "collective": number,
                "rank": self._rank(row),
                as_what: row,
                "evidence": EVIDENCE.get(as_what, Evidence.NONE),
                "start": start,
                "end": end,
                "wait": last - start,
                **sizes,
            }
            for row, start, end in zip(rows, starts, ends, strict=True)
        ]
        known = self._met(operation, min(starts), max(ends), self._rank(rows[starts.index(last)]), last)
        self.collectives.append({"group": group, "sequence": number, "order": number} | known | said)
        return number

    def collective(
        self,
        group: int,
        spans: Mapping[int, tuple[int, int]],
        operation: str = "all_reduce",
        verdict: Verdict = Verdict.COMPLETE,
        state: str = "completed",
        kernels: Mapping[int, int] | None = None,
        **said: Any,
    ) -> int:
        """A collective without events: when each rank entered and left it."""
        starts = {rank: START + start for rank, (start, _) in spans.items()}
        last = max(starts, key=lambda rank: starts[rank])
        end = START + max(end for _, end in spans.values())
        known = self._met(operation, min(starts.values()), end, last, starts[last], verdict)
        sequence = len([row for row in self.collectives if row["group"] == group])
        self.participations += [
            {
                "collective": len(self.collectives),
                "rank": rank,
                "enqueued": starts[rank],
                "start": starts[rank],
                "end": START + end,
                "evidence": Evidence.KERNEL,
                "wait": starts[last] - starts[rank],
                "state": self.texts[state],
                "kernel": (kernels or {}).get(rank, UNKNOWN),
            }
            for rank, (_, end) in spans.items()
        ]
        self.collectives.append({"group": group, "sequence": sequence} | known | said)
        return len(self.collectives) - 1

    def _met(
        self, operation: str, start: int, end: int, rank: int, last: int, verdict: Verdict = Verdict.COMPLETE
    ) -> dict[str, Any]:
        return {
            "operation": self.texts[operation],
            "verdict": self.texts[verdict],
            "start": start,
            "end": end,
            "last_rank": rank,
            "skew": last - start,
            "duration": end - last,
        }

    def unmatched(self, group: int, rank: int, operation: str = "all_reduce", **said: Any) -> int:
        """A call of one rank that no other could be matched with, of which no time is known."""
        codes = {"operation": self.texts[operation], "verdict": self.texts[Verdict.UNMATCHED]}
        self.collectives.append({"group": group, **codes, **said})
        self.participations.append({"collective": len(self.collectives) - 1, "rank": rank})
        return len(self.collectives) - 1

    def message(self, group: int, send: int, receive: int, **said: Any) -> int:
        """A message: the event that sends it, and the one that receives it."""
        known = {
            "order": len(self.messages),
            "source": self._rank(send),
            "target": self._rank(receive),
            "send": send,
            "receive": receive,
            "sent": self.rows[send][3],
            "received": self._end(receive),
        }
        self.messages.append({"group": group} | known | said)
        return len(self.messages) - 1

    def sent(
        self, group: int, source: int, target: int, sent: int | None, received: int | None, **said: Any
    ) -> int:
        """A message without events, by its ranks and times."""
        times = {
            "sent": NO_TIME if sent is None else START + sent,
            "received": NO_TIME if received is None else START + received,
        }
        verdict = self.texts[Verdict.UNMATCHED if None in (sent, received) else Verdict.COMPLETE]
        known = {"group": group, "source": source, "target": target, "verdict": verdict}
        self.messages.append(known | times | said)
        return len(self.messages) - 1

    def _rank(self, row: int) -> int:
        return self.tracks[self.rows[row][2]].rank

    def _end(self, row: int) -> int:
        start, duration = self.rows[row][3:]
        return NO_TIME if duration == UNKNOWN else start + duration

    # The whole.

    def build(self) -> EventGraph:
        """The graph: one source for each rank."""
        ranks = sorted({track.rank for track in self.tracks})
        source = [ranks.index(self.tracks[row[2]].rank) for row in self.rows]
        bounds = source_bounds(np.array(source, np.int32), len(ranks))
        samples = list(zip(*self.samples, strict=True)) if self.samples else [()] * 3
        info = SourceInfo("made", "kineto", host=self.host, header=self.header)
        return EventGraph(
            strings=self.texts.texts(),
            events=self.events(source, [row - bounds[of] for row, of in enumerate(source)]),
            edges=self.all_edges(),
            tracks=self.tracks,
            ranks=[Rank(rank, host=self.host) for rank in ranks],
            sources=[replace(info, rank=rank) for rank in ranks],
            bounds=bounds,
            keys=self.all_keys(),
            counters=Counters(
                *(np.array(column, kind) for column, kind in zip(samples, ("i4", "i8", "f8"), strict=True))
            ),
            groups=self.groups,
            **self._tables(),
            payloads=[ListedPayloads(self.payloads[low:high]) for low, high in pairwise(bounds)],
        )

    def events(self, source: Sequence[int], payload: Sequence[int]) -> Events:
        """The table of events with these sources and payloads."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * 5
        names = ("kind", "name", "track", "start", "duration")
        return Events.of(**dict(zip(names, columns, strict=True)), source=source, payload=payload)

    def all_edges(self) -> Edges:
        edges = np.array(self.edges, np.int64).reshape(-1, 3)
        return Edges(edges[:, 0], edges[:, 1], edges[:, 2].astype(np.uint8))

    def all_keys(self) -> dict[Key, KeyColumn]:
        return {
            key: KeyColumn.of(rows=[row for row, _ in pairs], values=[value for _, value in pairs])
            for key, pairs in self.keys.items()
        }

    def job(self) -> LinkedJob:
        """The job without the events, but for those of its parts; it begins at `START`."""
        parties = {row["rank"] for row in self.participations}
        clocks = self.clocks or [Clock(rank, low_ns=0, high_ns=0) for rank in sorted(parties)]
        return LinkedJob(
            parts=self.parts,
            ranks=[Rank.with_clock(clock) for clock in clocks],
            sources=[SourceInfo(f"k_{clock.rank}.json", "kineto", rank=clock.rank) for clock in clocks],
            strings=self.texts.texts(),
            groups=self.groups,
            **self._tables(),
            findings=self.findings,
            first_ns=START,
            events=sum(len(part.load()) for part in self.parts),
        )

    def _tables(self) -> dict[str, Any]:
        tables = {
            "collectives": (Collectives, self.collectives),
            "participations": (Participations, self.participations),
            "messages": (Messages, self.messages),
        }
        return {name: _table(kind, rows) for name, (kind, rows) in tables.items()}


def _table(kind: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The columns of rows, in which what a row does not say is unknown."""
    unknown = kind.of(1)
    columns = {
        name: [row.get(name, getattr(unknown, name)[0]) for row in rows] for name in kind.__struct_fields__
    }
    return kind.of(len(rows), **columns)
