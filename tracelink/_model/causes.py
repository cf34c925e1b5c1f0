"""Single events: their edges without a scan, their causes and effects, the stack around them, tables of them.

The edges are sorted once, when they are first asked for; after that an event costs as much as it has edges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from tracelink._model.columns import UNKNOWN, Bools, Int64s, ranges, scatter, stable_order
from tracelink._model.events import Edges, EventKind, Relation
from tracelink._model.fields import Doc, Identifier, Nanoseconds, RankNumber, Row, UnixNanoseconds
from tracelink._model.results import ResultTable
from tracelink._model.tables import texts_of

if TYPE_CHECKING:
    from tracelink._model.graph import EventGraph


from tracelink._model.graph import Excerpt

CAUSE_IS_TARGET = frozenset({Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR})
"""Relations whose edges run from the effect to the cause; all others run from the cause to the effect."""


class Causes:
    """The edges of a graph, sorted by where they start and by where they end."""

    def __init__(self, edges: Edges, events: int) -> None:
        self.edges = edges
        self.events = events
        self._lookups: dict[tuple[Relation, bool], _Lookup] = {}
        self._reach: dict[tuple[frozenset[Relation], bool], _Lookup] = {}

    def __reduce__(self) -> tuple[type[Causes], tuple[Edges, int]]:
        """What is sorted is not pickled."""
        return Causes, (self.edges, self.events)

    def targets(self, rows: Int64s, relation: Relation) -> Int64s:
        """The targets of the edges of one relation that start at one of these events, event by event."""
        return self._lookup(relation, forward=True).of(rows)

    def sources(self, rows: Int64s, relation: Relation) -> Int64s:
        """The sources of the edges of one relation that end at one of these events, event by event."""
        return self._lookup(relation, forward=False).of(rows)

    def reached(self, rows: Int64s, relations: Iterable[Relation], *, effects: bool) -> Int64s:
        """All effects, or else all causes, of these events by edges of these relations, in ascending order.

        An event of `rows` is among them only if it is an effect or a cause of another one, or of itself.
        """
        lookup = self._towards(frozenset(relations), effects)
        seen = np.zeros(self.events, np.bool_)
        pending = rows.tolist()
        while pending:
            if len(pending) > _FEW:
                found = np.unique(lookup.of(np.array(pending)))
                pending = found[~seen[found]].tolist()
            else:
                last = pending.pop()
                pending += {row for row in lookup.of_one(last) if not seen[row]}
            seen[pending] = True
        return np.flatnonzero(seen)

    def _towards(self, relations: frozenset[Relation], effects: bool) -> _Lookup:
        """The effects or the causes of events by edges of some relations."""
        if (relations, effects) not in self._reach:
            edges, kinds = self.edges, np.array([*relations], np.uint8)
            chosen = np.isin(edges.relation, kinds)
            backwards = np.isin(edges.relation, [*CAUSE_IS_TARGET]) == effects
            near = np.where(backwards, edges.target, edges.source)[chosen]
            far = np.where(backwards, edges.source, edges.target)[chosen]
            self._reach[relations, effects] = _Lookup.of_edges(near, far)
        return self._reach[relations, effects]

    def stack(self, row: int, *, forward: bool) -> list[tuple[int, Relation | None]]:
        """What was under way when an event happened, the outermost event first, and the event itself.

        Each with the relation to the next one. Where nothing called a backward operator, or what is around it, the
        forward operator comes before it if `forward` is set.
        """
        found: list[tuple[int, Relation | None]] = [(row, None)]
        seen = {row}
        while step := self._around(row) or (self._forward([row for row, _ in found]) if forward else None):
            row, relation = step
            if row in seen:
                break
            seen.add(row)
            found.append((row, relation))
        return found[::-1]

    def _around(self, row: int) -> tuple[int, Relation] | None:
        if (caller := int(self.callers[row])) != UNKNOWN:
            return caller, Relation.CALLS
        if (launcher := int(self.launchers[row])) != UNKNOWN:
            return launcher, Relation.LAUNCHES
        return None

    def _forward(self, rows: Sequence[int]) -> tuple[int, Relation] | None:
        """The forward operator of the outermost of these events that has one."""
        operators = self.targets(np.array(rows[::-1]), Relation.BACKWARD_OF)
        return (int(operators[0]), Relation.BACKWARD_OF) if len(operators) else None

    def launching(self, rows: Int64s, wanted: Bools) -> Int64s:
        """For each event the innermost wanted event among the call that launched it and what called that."""
        calls = self.launchers[rows]
        if len(rows) > _FEW:
            nearest = np.append(innermost(self.callers, wanted), UNKNOWN)
            return nearest[calls]
        return np.array([self._innermost(call, wanted) for call in calls.tolist()], np.int64)

    def _innermost(self, row: int, wanted: Bools) -> int:
        steps = self.events  # a cycle of edges ends too
        while row != UNKNOWN and not wanted[row] and steps:
            row, steps = int(self.callers[row]), steps - 1
        return row if row != UNKNOWN and wanted[row] else UNKNOWN

    @cached_property
    def callers(self) -> Int64s:
        """What called each event, or UNKNOWN."""
        return self._sole_sources(Relation.CALLS)

    @cached_property
    def launchers(self) -> Int64s:
        """The call that launched each event, or UNKNOWN."""
        return self._sole_sources(Relation.LAUNCHES)

    def _sole_sources(self, relation: Relation) -> Int64s:
        edges = self.edges.where(relation)
        return scatter(self.events, edges.target, edges.source)

    def _lookup(self, relation: Relation, forward: bool) -> _Lookup:
        key = relation, forward
        if key not in self._lookups:
            edges = self.edges.where(relation)
            ends = (edges.source, edges.target) if forward else (edges.target, edges.source)
            self._lookups[key] = _Lookup.of_edges(*ends)
        return self._lookups[key]


_FEW = 16
"""Up to so many events are followed one by one."""


class _Lookup(NamedTuple):
    """The other ends of edges, sorted by the end that is asked for."""

    near: Int64s
    far: Int64s

    @classmethod
    def of_edges(cls, near: Int64s, far: Int64s) -> _Lookup:
        """The look-up of edges with these ends."""
        order = stable_order(near)
        return cls(near[order], far[order])

    def of_one(self, row: int) -> list[int]:
        """The other ends of the edges of one event."""
        begin = bisect_left(self.near, row)
        return self.far[begin : bisect_right(self.near, row, begin)].tolist()

    def of(self, rows: Int64s) -> Int64s:
        """The other ends of the edges of these events."""
        begin = np.searchsorted(self.near, rows)
        lengths = np.searchsorted(self.near, rows, side="right") - begin
        return self.far[ranges(begin, lengths)]


# Events as tables


class EventEntry(Row, frozen=True):
    """One event for people: a row of `EventGraph.describe`."""

    row: Identifier
    kind: str
    name: str
    rank: RankNumber
    start_ns: UnixNanoseconds | None
    duration_ns: Nanoseconds | None


class StackEntry(EventEntry, frozen=True):
    """One event of a stack, a row of `EventGraph.stack`."""

    relation: Annotated[
        str | None,
        Doc(
            'What it does to the event after it: "calls", "launches", or "forward of"; null for the last one.'
        ),
    ]


FORWARD_OF = "forward of"
"""The relation of a forward operator to its backward operator, of which edges have the opposite."""


def event_table(graph: EventGraph, rows: Int64s) -> ResultTable[EventEntry]:
    """These events for people."""
    return ResultTable.of(EventEntry, _described(graph, rows), title="Events")


def stack_table(graph: EventGraph, stack: Sequence[tuple[int, Relation | None]]) -> ResultTable[StackEntry]:
    """A stack for people."""
    words: dict[Relation | None, str | None] = {one: one.name.lower() for one in Relation}
    words |= {None: None, Relation.BACKWARD_OF: FORWARD_OF}
    columns = _described(graph, np.array([row for row, _ in stack]))
    return ResultTable.of(
        StackEntry, {**columns, "relation": [words[relation] for _, relation in stack]}, title="Stack"
    )


def _described(graph: EventGraph, rows: Int64s) -> dict[str, Any]:
    events = graph.events.take(rows)
    columns = events.masked()
    return {
        "row": rows,
        "kind": texts_of([kind.name.lower() for kind in EventKind], events.kind),
        "name": texts_of(graph.strings, events.name),
        "rank": np.array([track.rank for track in graph.tracks], np.int64)[events.track],
        "start_ns": columns["start"],
        "duration_ns": columns["duration"],
    }


def callers(part: Excerpt) -> Int64s:
    """The caller of each event, or UNKNOWN."""
    edges = part.graph.edges
    calls = np.flatnonzero(edges.relation == Relation.CALLS)
    return scatter(len(part.events), edges.target[calls], edges.source[calls])


def innermost(caller: Int64s, marked: Bools) -> Int64s:
    """For each event the nearest marked one among itself and all that enclose it, or UNKNOWN."""
    count = len(caller)
    row = np.where(marked, np.arange(count), np.where(caller == UNKNOWN, count, caller))
    row = np.append(row, count)
    for _ in range(count.bit_length()):
        further = row[row]
        if np.array_equal(further, row):
            break
        row = further
    found = row[:count]
    return np.where(np.append(marked, False)[found], found, UNKNOWN)


def outside(caller: Int64s, nearest: Int64s) -> Int64s:
    """For each event the nearest marked one that encloses it, itself excluded, or UNKNOWN."""
    return np.where(caller == UNKNOWN, UNKNOWN, nearest[caller])


def depths(parent: Int64s) -> Int64s:
    """For each event the number of events that enclose it."""
    hop = np.append(parent, UNKNOWN)
    depth = (hop != UNKNOWN).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        inside = np.flatnonzero(hop != UNKNOWN)
        if not len(inside):
            break
        depth[inside] += depth[hop[inside]]
        hop[inside] = hop[hop[inside]]
    return depth[: len(parent)]


def greatest_inside(parent: Int64s, values: Int64s) -> Int64s:
    """For each event the greatest value of itself and of all that it encloses."""
    count = len(parent)
    greatest = np.append(values, np.iinfo(np.int64).min)
    above = np.append(np.where(parent == UNKNOWN, count, parent), count)
    for _ in range(count.bit_length()):
        if (above == count).all():
            break
        seen = greatest.copy()
        np.maximum.at(seen, above, greatest)
        greatest = seen
        above = above[above]
    return greatest[:count]


def exclusive_time(start: Int64s, end: Int64s, around: Int64s) -> Int64s:
    """Length of each interval without the union of those directly inside it; `around` is the row of each parent."""
    inner = np.flatnonzero(around != UNKNOWN)
    outer = around[inner]
    left = np.clip(start[inner], start[outer], end[outer])
    right = np.clip(end[inner], start[outer], end[outer])
    order = np.lexsort((left, outer))
    outer, left, right = outer[order], left[order], right[order]
    reached = np.maximum(_reached_before(outer, right), left)
    covered = np.zeros(len(start), np.int64)
    np.add.at(covered, outer, np.maximum(right - reached, 0))
    return end - start - covered


def _reached_before(group: Int64s, right: Int64s) -> Int64s:
    """The latest end among the earlier ones of the same group; the lowest number where there are none.

    Ends are replaced by their rank, so that group and end fit one number that only grows.
    """
    ends, rank = np.unique(right, return_inverse=True)
    _, number = np.unique(group, return_inverse=True)
    latest = np.maximum.accumulate(number * len(ends) + rank)
    before = np.append(UNKNOWN, latest[:-1])[: len(group)]
    same = before >= number * len(ends)
    lowest = np.iinfo(np.int64).min
    if not len(ends):
        return right
    return np.where(same, ends[np.where(same, before % len(ends), 0)], lowest)
