"""The text of a native trace in JSON: its header, names, events, arrows and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.flows import Binding
from tracelink.converters.perfetto.layout import Seats, named
from tracelink.converters.perfetto.marks import mark_opening, marks, sample_opening, samples, write_flows
from tracelink.converters.perfetto.parts import Piece, spans
from tracelink.converters.perfetto.schema import INNER_END, TIE_NAMES
from tracelink.converters.perfetto.text import Texts, micros, table
from tracelink.converters.perfetto_native.reading.arrows import Bound, bound_arrows
from tracelink.converters.perfetto_native.reading.facts import ProcessFact, ThreadFact
from tracelink.converters.perfetto_native.reading.slices import Lane, Sheet, write_events
from tracelink.converters.perfetto_native.reading.trace import Native
from tracelink.events import Bools, Int32s, Int64s, Relation
from tracelink.sources import Source

STRETCHES = 8
"""Batches of a piece at most."""


@dataclass(frozen=True, slots=True)
class Document:
    """All that is written."""

    native: Native
    bound: Bound
    sheet: Sheet

    @classmethod
    def of(cls, source: Source, native: Native, count: Callable[[int], None]) -> Document:
        """The document of a file."""
        bound = bound_arrows(native)
        bindings: dict[int, Binding] = {}
        for flows in bound.flows:
            bindings |= flows.bindings
        threads = native.said.threads
        lanes = [Lane(b"%d" % thread.pid, b"%d" % thread.tid) for thread in threads]
        behind = _tie_ends(native, bound, threads)
        return cls(native, bound, Sheet(source, native, lanes, count, bindings, behind))

    @property
    def events(self) -> int:
        """How many slices and instants ranks have, without those at the ends of arrows between them."""
        blocks = self.native.said.blocks
        of_ranks = np.array([block.rank is not None for block in blocks for _ in block.threads], np.bool_)
        drawn = int(np.count_nonzero(of_ranks[self.native.events.seat]))
        return drawn - len(self.sheet.behind) - len(self.bound.ties.crowded)

    def opening(self) -> bytes:
        """Everything before the first slice."""
        head = header.unclosed_object(self.native.said.header or {}) + header.EVENTS
        return head + header.unclosed(self._names())

    def closing(self) -> bytes:
        """Everything behind the last event."""
        return (header.LAST if any(True for _ in self._names()) else b"") + header.END

    def pieces(self) -> list[Piece]:
        """Slices and instants, then arrows within ranks, samples, and where arrows between ranks begin.

        Instants at which such an arrow ends stand behind that where it begins and ends at once.
        """
        native, arrows = self.native, self.bound.ties.arrows
        start, seat = native.events.start, native.events.seat.astype(np.int64)
        late = np.zeros(len(native.events), np.bool_)
        late[arrows.target[start[arrows.source] == start[arrows.target]]] = True
        plain = ~late
        plain[self.bound.ties.crowded] = False
        seats, drawing = self._seats(), self.bound.drawing
        return [
            *self._slices(plain),
            *(partial(write_flows, flows, drawing, seats, seat) for flows in self.bound.flows),
            self._samples,
            self._tie_starts,
            *self._slices(late),
        ]

    def _slices(self, wanted: Bools) -> list[Piece]:
        """Those that are wanted, where there are any."""
        native = self.native
        first = np.array([stretch.first for stretch in native.stretches], np.int64)
        used = np.unique(np.searchsorted(first, native.events.packet[wanted], side="right") - 1)
        runs = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else []
        return [
            partial(write_events, self.sheet, low, high, wanted)
            for run in runs
            for low, high in spans(int(run[0]), int(run[-1]) + 1, STRETCHES)
        ]

    def _names(self) -> Iterator[dict[str, Any]]:
        """The names of processes and threads, and their order: what ranks did together stands before all."""
        for block in self.native.said.blocks:
            for process in block.processes:
                yield named("process_name", process.pid, 0, _own(process, "original pid"))
                yield named("process_labels", process.pid, 0, {"labels": process.label})
                order = 0 if block.rank is None else process.pid
                yield named("process_sort_index", process.pid, 0, {"sort_index": order})
            for thread in block.threads:
                yield named("thread_name", thread.pid, thread.tid, _own(thread, "original tid"))
                yield named("thread_sort_index", thread.pid, thread.tid, {"sort_index": thread.tid})

    def _seats(self) -> Seats:
        threads = self.native.said.threads
        first = np.arange(len(threads))
        return Seats(first, [one.pid for one in threads], [one.tid for one in threads], [], [])

    def _samples(self) -> Iterator[bytes]:
        drawn = self.native.samples
        openings = [sample_opening(counter.name, counter.pid) for counter in self.native.said.counters]
        yield from samples(table(openings, len(openings)), drawn.counter, drawn.time, drawn.value)

    def _tie_starts(self) -> Iterator[bytes]:
        """One for all arrows that have a number."""
        ties, events = self.bound.ties, self.native.events
        _, first = np.unique(ties.number, return_index=True)
        source, relation = ties.arrows.source[first], ties.arrows.relation[first]
        openings, codes = _mark_openings(b'"s"', self.native.said.threads, events.seat[source], relation)
        yield from marks(openings, codes, ties.number[first], events.start[source])


def _tie_ends(native: Native, bound: Bound, threads: Sequence[ThreadFact]) -> dict[int, bytes]:
    """What stands behind the instants at which arrows between ranks end."""
    ties, events = bound.ties, native.events
    target = ties.arrows.target
    openings, codes = _mark_openings(INNER_END, threads, events.seat[target], ties.arrows.relation)
    behind: dict[int, bytes] = {}
    texts = zip(
        target.tolist(),
        openings[codes].tolist(),
        ties.number.tolist(),
        micros(events.start[target]),
        strict=True,
    )
    for row, opening, number, time in texts:
        behind[row] = behind.get(row, b"") + b'%s%d,"ts":%s' % (opening, number, time)
    return behind


def _mark_openings(
    phase: bytes, threads: Sequence[ThreadFact], seat: Int32s, relation: Int64s
) -> tuple[Texts, Int64s]:
    """The texts of ends of arrows up to their numbers, and which of them each has."""
    places, which = np.unique(np.stack([seat, relation]), axis=1, return_inverse=True)
    openings = [
        mark_opening(phase, TIE_NAMES[Relation(kind)], threads[place].pid, threads[place].tid)
        for place, kind in places.T.tolist()
    ]
    return table(openings, len(openings)), which.ravel()


def _own(fact: ProcessFact | ThreadFact, original: str) -> dict[str, Any]:
    """The name, and the number in the source where there is one."""
    return {"name": fact.name} | ({} if fact.original is None else {original: fact.original})
