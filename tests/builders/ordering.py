"""One rank's threads, streams, calls and work, and the waits that its profiler recorded; times are ns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from builders.job import JobBuilder
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Key
from tracelink._model.graph import Excerpt
from tracelink._model.trace import Awaited, Synchronizations
from tracelink._order.order import Order


@dataclass
class RankBuilder(JobBuilder):
    """Names of work and operators are what tests speak of."""

    waits: list[tuple[int, ...]] = field(default_factory=list)

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
        start, duration = self.rows[call][3:]
        correlation = dict(self.keys[Key.CORRELATION])[call]
        row = len(self.rows)
        self.rows.append(
            (int(EventKind.SYNCHRONIZATION), self.texts[awaited.name], self.stream(-1), start, duration)
        )
        self.payloads.append(b"")
        self.keys[Key.CORRELATION].append((row, correlation))
        self.waits.append((row, awaited, device, stream, event_stream, event_record))

    def part(self) -> Excerpt:
        return Excerpt(self.build())

    def synchronizations(self) -> Synchronizations:
        if not self.waits:
            return Synchronizations.empty()
        return Synchronizations(*np.array(self.waits, np.int64).T)


def named(part: Excerpt, order: Order) -> list[tuple[str, str]]:
    """The names of each pair, in alphabetical order."""
    pairs = zip(order.before.tolist(), order.after.tolist(), strict=True)
    return sorted((part.graph.name(before), part.graph.name(after)) for before, after in pairs)


def found(order: Order) -> dict[str, Any]:
    """The counts that are not zero."""
    return {reason: count for reason, count in order.counts.items() if count}
