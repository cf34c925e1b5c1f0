"""What of a rank communicates: operators, annotations, nodes and kernels, and what of it encloses what."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Edges, EventKind, Int32s, Int64s, Key
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.linking.nesting import nest, sort_outer_first
from tracelink.operations import Operation, operation_of
from tracelink.strings import StringTable
from tracelink.trace import RankTrace

RECORDED = "record_param_comms"
OF_CPU = re.compile(r"^(gloo|mpi|ucc)\b")
"""Backends whose annotation is around the work itself; the others only put work on a device inside it."""
FUNCTIONAL = re.compile(r"^_?c10d_functional")
"""Operators that call those of a backend where they run at all."""
NO_CALLS = frozenset({Operation.WAIT.value, "init", "broadcastUniqueNCCLID", "allgatherUniqueNCCLIDs"})
"""What operators of communication do that moves no data."""
KNOWN_OPERATIONS = frozenset(operation.value for operation in Operation)


@dataclass(frozen=True, slots=True)
class Words:
    """What the texts of a trace mean; each that occurs is looked at once, however many events have it."""

    strings: StringTable

    def matching(self, pattern: re.Pattern[str], codes: Int32s) -> Bools:
        """Whether the text of each code matches."""
        found: Bools = self._each(codes, lambda text: pattern.search(text) is not None, np.bool_, False)
        return found

    def operations(self, codes: Int32s) -> Int32s:
        """The code of the operation that each text stands for."""
        found: Int32s = self._each(codes, lambda text: self.strings[operation_of(text)], np.int32, UNKNOWN)
        return found

    def known(self, operations: Int32s) -> Bools:
        """Whether each operation is one that is known here."""
        found: Bools = self._each(operations, KNOWN_OPERATIONS.__contains__, np.bool_, False)
        return found

    def only_waits(self, codes: Int32s) -> Bools:
        """Whether each text names what moves no data."""
        found: Bools = self._each(codes, lambda text: operation_of(text) in NO_CALLS, np.bool_, False)
        return found

    def _each(self, codes: Int32s, meaning: Callable[[str], Any], kind: Any, unknown: Any) -> Any:
        texts = self.strings.texts()
        occurs = np.zeros(len(texts) + 1, np.bool_)
        occurs[codes] = True
        table = np.full(len(texts) + 1, unknown, kind)
        for code in np.flatnonzero(occurs[:-1]).tolist():
            table[code] = meaning(texts[code])
        return table[codes]


def spelled(trace: RankTrace, words: Words, rows: Int64s) -> Int32s:
    """How each event spells its operation; UNKNOWN where it says none, as `record_param_comms` of old profiles."""
    table = trace.communications
    said: Int32s = values_at(table.operation, lookup(table.row, rows))
    return np.where(said == words.strings.find(RECORDED), np.int32(UNKNOWN), said)


def as_gloo_does(words: Words, operation: Int32s, elements: Int64s) -> tuple[Int32s, Int64s]:
    """What gloo annotates and records: it has no reduce_scatter of its own, and no tensor for a barrier."""
    asked, done = (words.strings[name.value] for name in (Operation.REDUCE_SCATTER, Operation.ALL_REDUCE))
    barrier = operation == words.strings.find(Operation.BARRIER.value)
    return np.where(operation == asked, np.int32(done), operation), np.where(barrier, UNKNOWN, elements)


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators that communicate, thread by thread and by start; what encloses others comes before them."""

    rows: Int64s
    track: Int64s
    start: Int64s
    end: Int64s
    parent: Int64s
    """Position of the nearest one around, or NONE."""
    innermost: Bools

    def issuing(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the innermost operator to which belongs what happens on each track at a time, or NONE.

        Between two operators inside a third it is the one before: it put off what now happens.
        """
        if not len(self.rows):
            return np.full(len(track), NONE, np.int64)
        latest = self._latest(track, time)
        around = latest.copy()
        over = (around != NONE) & (self.end[around] < time)
        while over.any():
            around[over] = self.parent[around[over]]
            over = (around != NONE) & (self.end[around] < time)
        inner = np.flatnonzero(self.innermost)
        before = values_at(inner, np.searchsorted(inner, latest, side="right") - 1)
        after = values_at(inner, np.searchsorted(inner, around))
        return np.where(around == NONE, NONE, np.where(before >= around, before, after))

    def issuing_starts(self, trace: RankTrace, rows: Int64s) -> Int64s:
        """The same for the starts of events; NONE where there is no event."""
        position = np.full(len(rows), NONE, np.int64)
        there = np.flatnonzero(rows != NONE)
        events = trace.events
        track, start = events.track[rows[there]].astype(np.int64), events.start[rows[there]]
        position[there] = self.issuing(track, start)
        return position

    def _latest(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the last operator that has begun on each track at a time, or NONE."""
        found = np.full(len(track), NONE, np.int64)
        for thread in np.unique(self.track):
            asked = np.flatnonzero(track == thread)
            first, last = np.searchsorted(self.track, [thread, thread + 1])
            place = first + np.searchsorted(self.start[first:last], time[asked], side="right") - 1
            found[asked] = np.where(place < first, NONE, place)
        return found


def operators_of(trace: RankTrace, words: Words, rows: Int64s) -> Operators:
    """The given operators as they enclose each other."""
    events = trace.events
    track, start, end = events.track[rows].astype(np.int64), events.start[rows], events.end[rows]
    recorded = words.strings.find(RECORDED)
    order = sort_outer_first(track, start, end, (events.name[rows] == recorded).astype(np.int64))
    rows, track, start, end = rows[order], track[order], start[order], end[order]
    parent = nest(track, start, end).parent
    return Operators(rows, track, start, end, parent, _innermost(parent))


@dataclass(frozen=True, slots=True)
class Nodes:
    """The execution-trace nodes of operators that communicate."""

    rows: Int64s
    event: Int64s
    """The event of the profile that each is the same as, or NONE."""
    parent: Int64s
    """The place of the node around each, or NONE."""
    innermost: Bools

    def of(self, events: Int64s) -> Int64s:
        """The node of each event, or NONE."""
        linked = self.event != NONE
        return values_at(self.rows[linked], lookup(self.event[linked], events))

    @property
    def unseen(self) -> Int64s:
        """Places of the innermost ones of which, and of all around them, a profile saw nothing."""
        place = np.flatnonzero(self.innermost)
        unseen = np.append(self.event == NONE, True)
        alone, above = unseen[place], self.parent[place]
        while (above != NONE).any():
            alone &= unseen[above]
            above = np.where(above == NONE, NONE, self.parent[above])
        found: Int64s = place[alone]
        return found


def nodes_of(trace: RankTrace, words: Words, rows: Int64s, same: Edges) -> Nodes:
    """The given nodes as they enclose each other.

    Parents are wrong now and then where work runs on other threads: an operator encloses `record_param_comms`,
    or another that does the same.
    """
    event = values_at(same.target, lookup(same.source, rows))
    identity, above = trace.key(Key.NODE_ID), trace.key(Key.NODE_PARENT)
    own = values_at(identity.values, lookup(identity.rows, rows))
    caller = values_at(above.values, lookup(above.rows, rows))
    parent = np.where(caller == NONE, NONE, lookup(own, caller))
    name = trace.events.name[rows]
    operation = words.operations(name)
    alike = (name == words.strings.find(RECORDED)) | (operation == operation[parent])
    parent[~alike] = NONE
    return Nodes(rows, event, parent, _innermost(parent))


def _innermost(parent: Int64s) -> Bools:
    innermost = np.ones(len(parent), np.bool_)
    innermost[parent[parent != NONE]] = False
    return innermost


def chains(places: Int64s, parent: Int64s) -> list[Int64s]:
    """The given places, then those around each of them as long as they are around no other."""
    levels, place = [places], places
    inside = np.zeros(len(parent) + 1, np.int64)
    while (place != NONE).any():
        place = np.where(place == NONE, NONE, values_at(parent, place))
        inside += np.bincount(np.where(place == NONE, len(parent), place), minlength=len(inside))
        levels.append(place)
    alone = inside == 1
    return [levels[0], *(np.where(alone[level], level, NONE) for level in levels[1:-1])]


def named(trace: RankTrace, words: Words, pattern: re.Pattern[str], kind: EventKind) -> Int64s:
    """Events of a kind whose name matches."""
    rows = np.flatnonzero(trace.events.kind == kind)
    if not len(rows):
        return rows
    return rows[words.matching(pattern, trace.events.name[rows])]
