"""What of a job a user wants to see: ranks, a stretch of time, steps, kinds of events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from tracelink.errors import UsageError
from tracelink.events import Bools, Counters, Edges, EventKind, Int64s, Key, Relation
from tracelink.graph import EventGraph
from tracelink.ranges import Numbers
from tracelink.spans import LATEST, Spans
from tracelink.steps import steps_of

UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
}
MOMENT = re.compile(rf"(\d{{1,15}}(?:\.\d+)?)\s*({'|'.join(UNITS)})|0", re.ASCII)

COLLECTIVES = "collectives"
COUNTERS = "counters"

KINDS: Mapping[str, Sequence[EventKind]] = {
    "operators": (EventKind.OPERATOR,),
    "annotations": (EventKind.ANNOTATION, EventKind.GPU_ANNOTATION),
    "python": (EventKind.PYTHON,),
    "runtime": (EventKind.RUNTIME, EventKind.SYNCHRONIZATION),
    "kernels": (EventKind.KERNEL,),
    "copies": (EventKind.MEMCPY, EventKind.MEMSET),
    "gpu": (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.GPU_ANNOTATION),
    COLLECTIVES: (),
    "memory": (EventKind.MEMORY,),
    COUNTERS: (),
    "nodes": (EventKind.NODE,),
    "records": (EventKind.RECORD,),
    "other": (EventKind.OVERHEAD, EventKind.SPAN, EventKind.INSTANT, EventKind.OTHER),
}
"""The words that choose events by their kind. Collectives are whatever takes part in one, of any kind."""

RUNNING = "started"
"""The recorder's word for what has begun and not ended; entries of gloo are never more than scheduled."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, in ns after the first event of the job; None where it has no bound."""

    first_ns: int | None = None
    last_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window such as `2.5s..3.1s`, `2.5s..` or `..800ms`."""
        first, separator, last = (part.strip() for part in text.partition(".."))
        if not separator or not (first or last):
            raise UsageError(
                f"--window: {text!r} is not a stretch of time",
                advice="Write, for example, --window 2.5s..3.1s, 2.5s.. or ..3.1s",
            )
        window = cls(_moment(first), _moment(last))
        if window.first_ns is not None and window.last_ns is not None and window.first_ns >= window.last_ns:
            raise UsageError(
                f"--window: {text!r} ends before it begins", advice="Give the earlier time first."
            )
        return window

    def after(self, origin_ns: int) -> tuple[int | None, int | None]:
        """Its bounds as times, where the job begins at `origin_ns`."""
        first = None if self.first_ns is None else origin_ns + self.first_ns
        return first, None if self.last_ns is None else origin_ns + self.last_ns


def _moment(text: str) -> int | None:
    if not text:
        return None
    match = MOMENT.fullmatch(text)
    if not match:
        raise UsageError(
            f"--window: {text!r} is not a time after the job's beginning",
            advice=f"Write a number and a unit: {', '.join(UNITS)}.",
        )
    return int(Decimal(match[1]) * UNITS[match[2]]) if match[1] else 0


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; None where nothing is said, and then all of it is."""

    ranks: Numbers | None = None
    window: Window | None = None
    steps: Numbers | None = None
    only: frozenset[str] | None = None
    """Words of `KINDS`."""

    @classmethod
    def parse(
        cls,
        *,
        ranks: str | None = None,
        window: str | None = None,
        steps: str | None = None,
        only: str | None = None,
    ) -> Selection:
        """A selection as the options of `tracelink merge` spell it."""
        return cls(
            None if ranks is None else Numbers.parse(ranks, "--ranks"),
            None if window is None else Window.parse(window),
            None if steps is None else Numbers.parse(steps, "--steps"),
            None if only is None else _words(only),
        )

    @property
    def cuts(self) -> bool:
        """Whether it leaves out events of the ranks that it keeps."""
        return not (self.window is None and self.steps is None and self.only is None)

    def keeps(self, word: str) -> bool:
        """Whether what `word` stands for is wanted."""
        return self.only is None or word in self.only


def _words(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in KINDS:
            raise UsageError(
                f"--only: there is no kind of events {word!r}", advice=f"There are: {', '.join(KINDS)}."
            )
    return frozenset(words)


def apply(
    selection: Selection, graph: EventGraph, first_ns: int, communication_rows: Int64s
) -> tuple[EventGraph, Int64s]:
    """What is wanted of the graph of one rank, and the old row of each of its events.

    `first_ns` is when the job begins, `communication_rows` are the events that take part in collectives
    and messages.
    """
    if not selection.cuts:
        return graph, np.arange(len(graph))
    events, samples = _of_time(selection, graph, first_ns)
    events &= _of_kind(selection, graph, communication_rows)
    samples &= selection.keeps(COUNTERS)
    return _taken(graph, events, samples), np.flatnonzero(events)


def _of_kind(selection: Selection, graph: EventGraph, communication_rows: Int64s) -> Bools:
    if selection.only is None:
        return np.ones(len(graph), np.bool_)
    wanted = graph.events.of_kind(*(kind for word in selection.only for kind in KINDS[word]))
    if selection.keeps(COLLECTIVES):
        wanted[communication_rows] = True
    return wanted


def _of_time(selection: Selection, graph: EventGraph, first_ns: int) -> tuple[Bools, Bools]:
    """Which events and which samples lie in the wanted time."""
    if selection.window is None and selection.steps is None:
        return np.ones(len(graph), np.bool_), np.ones(len(graph.counters), np.bool_)
    bounds = (selection.window or Window()).after(first_ns)
    wanted = window = Spans.between(*bounds)
    if selection.steps is not None:
        wanted = steps_of(graph).spans(selection.steps).within(*bounds)
    events, end = graph.events, _end(graph)
    inside = events.timed & wanted.overlap(events.start, end)
    if selection.steps is not None:
        # what a step puts on the GPU often runs after the step's end on the CPU
        launched = _targets(graph, Relation.LAUNCHES, inside)
        inside |= launched & events.timed & window.overlap(events.start, end)
    vague = ~events.timed | (events.duration < 0)
    inside |= vague & (_targets(graph, Relation.SAME, inside) | _sources(graph, Relation.SAME, inside))
    times = graph.counters.time
    return inside, wanted.overlap(times, times)


def _end(graph: EventGraph) -> Int64s:
    """When each event ended: never, if it is known to have been running when the recording stopped."""
    events = graph.events
    marks = events.of_kind(EventKind.INSTANT, EventKind.MEMORY)
    running = events.timed & (events.duration < 0) & ~marks
    if running.any():
        records = events.of_kind(EventKind.RECORD)
        begun = np.array([*(text == RUNNING for text in graph.strings), False])
        running &= ~records | begun[graph.key(Key.STATE).dense(len(events), -1)]
    return np.where(running, LATEST, events.end)


def _targets(graph: EventGraph, relation: Relation, sources: Bools) -> Bools:
    """The events to which an edge leads from one of `sources`."""
    edges = graph.edges.where(relation)
    return _marked(len(graph), edges.target[sources[edges.source]])


def _sources(graph: EventGraph, relation: Relation, targets: Bools) -> Bools:
    edges = graph.edges.where(relation)
    return _marked(len(graph), edges.source[targets[edges.target]])


def _marked(count: int, rows: Int64s) -> Bools:
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked


def _taken(graph: EventGraph, kept: Bools, samples: Bools) -> EventGraph:
    """The graph of these events and samples; tracks, sources and payloads stay."""
    place = np.cumsum(kept) - 1
    edges, counters = graph.edges, graph.counters
    whole = kept[edges.source] & kept[edges.target]
    keys = {key: column.where(kept[column.rows]) for key, column in graph.keys.items()}
    return replace(
        graph,
        events=graph.events.take(kept),
        edges=Edges(place[edges.source[whole]], place[edges.target[whole]], edges.relation[whole]),
        bounds=np.searchsorted(np.flatnonzero(kept), graph.bounds).tolist(),
        keys={key: replace(column, rows=place[column.rows]) for key, column in keys.items()},
        counters=Counters(counters.track[samples], counters.time[samples], counters.value[samples]),
    )
