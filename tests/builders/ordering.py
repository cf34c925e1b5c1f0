"""One rank's threads, streams, calls and work in a few lines; times are ns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from builders.graph import GraphBuilder
from tracelink.model.columns import UNKNOWN
from tracelink.model.events import EventKind, Key, Relation, TrackKind
from tracelink.model.graph import Excerpt
from tracelink.model.trace import Awaited, Synchronizations
from tracelink.ordering.order import Order

MAIN = "main"


@dataclass
class RankBuilder:
    """Collects what happened; names of work and operators are what tests speak of."""

    graph: GraphBuilder = field(default_factory=GraphBuilder)
    tracks: dict[tuple[str, str], int] = field(default_factory=dict)
    waits: list[tuple[int, ...]] = field(default_factory=list)

    def thread(self, name: str) -> int:
        return self._track(TrackKind.THREAD, "100", name)

    def stream(self, number: int, device: int = 0) -> int:
        return self._track(TrackKind.STREAM, str(device), str(number))

    def op(
        self,
        name: str,
        start: int,
        end: int,
        thread: str = MAIN,
        *,
        inside: int | None = None,
        kind: EventKind = EventKind.OPERATOR,
    ) -> int:
        return self._on_thread(name, start, end, thread, kind, inside)

    def call(
        self,
        name: str,
        start: int,
        end: int | None = None,
        thread: str = MAIN,
        *,
        inside: int | None = None,
        correlation: int | None = None,
    ) -> int:
        ended = start + 1 if end is None else end
        row = self._on_thread(name, start, ended, thread, EventKind.RUNTIME, inside)
        if correlation is not None:
            self.graph.keys.setdefault(Key.CORRELATION, []).append((row, correlation))
        return row

    def work(
        self,
        name: str,
        start: int,
        end: int,
        stream: int = 7,
        *,
        launched: int | None = None,
        thread: str = MAIN,
        inside: int | None = None,
        kind: EventKind = EventKind.KERNEL,
        device: int = 0,
        by: int | None = None,
    ) -> int:
        """Work on a device; `launched` is when the call began, `by` a call that launches more than this."""
        row = self.graph.add(self.stream(stream, device), name, start, end - start, kind)
        if launched is not None:
            by = self.call("cudaLaunchKernel", launched, thread=thread, inside=inside)
        if by is not None:
            self.graph.edge(by, Relation.LAUNCHES, row)
        return row

    def recorded(
        self,
        awaited: Awaited,
        call: int,
        *,
        stream: int = UNKNOWN,
        event_stream: int = UNKNOWN,
        event_record: int = UNKNOWN,
        device: int = 0,
    ) -> None:
        """What a profiler says of the wait that `call` is."""
        start, duration = self.graph.rows[call][3:]
        correlation = dict(self.graph.keys[Key.CORRELATION])[call]
        row = len(self.graph.rows)
        self.graph.rows.append(
            (int(EventKind.SYNCHRONIZATION), self.graph.texts[awaited.name], self.stream(-1), start, duration)
        )
        self.graph.payloads.append(b"")
        self.graph.keys[Key.CORRELATION].append((row, correlation))
        self.waits.append((row, awaited, device, stream, event_stream, event_record))

    def part(self) -> Excerpt:
        return Excerpt(self.graph.build())

    def synchronizations(self) -> Synchronizations:
        if not self.waits:
            return Synchronizations.empty()
        return Synchronizations(*np.array(self.waits, np.int64).T)

    def _on_thread(
        self, name: str, start: int, end: int, thread: str, kind: EventKind, inside: int | None
    ) -> int:
        row = self.graph.add(self.thread(thread), name, start, end - start, kind)
        if inside is not None:
            self.graph.edge(inside, Relation.CALLS, row)
        return row

    def _track(self, kind: TrackKind, process: str, identity: str) -> int:
        if (process, identity) not in self.tracks:
            self.tracks[process, identity] = self.graph.track(kind, process=process, identity=identity)
        return self.tracks[process, identity]


def named(part: Excerpt, order: Order) -> list[tuple[str, str]]:
    """The names of each pair, in alphabetical order."""
    pairs = zip(order.before.tolist(), order.after.tolist(), strict=True)
    return sorted((part.graph.name(before), part.graph.name(after)) for before, after in pairs)


def found(order: Order) -> dict[str, Any]:
    """The counts that are not zero."""
    return {reason: count for reason, count in order.counts.items() if count}
