"""Operators, nodes and kernels that communicate; draft calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tracelink.linking.nesting import nest, sort_outer_first
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, StringTable, lookup, values_at
from tracelink.model.events import GPU_WORK, Edges, EventKind, Key, Relation
from tracelink.model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    Operation,
    operation_of,
)
from tracelink.model.trace import RankTrace

# What of a rank communicates: operators, annotations, nodes and kernels, and what of it encloses what.


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
    """Position of the nearest one around, or UNKNOWN."""
    innermost: Bools

    def issuing(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the innermost operator to which belongs what happens on each track at a time, or UNKNOWN.

        Between two operators inside a third it is the one before: it put off what now happens.
        """
        if not len(self.rows):
            return np.full(len(track), UNKNOWN, np.int64)
        latest = self._latest(track, time)
        around = latest.copy()
        over = (around != UNKNOWN) & (self.end[around] < time)
        while over.any():
            around[over] = self.parent[around[over]]
            over = (around != UNKNOWN) & (self.end[around] < time)
        inner = np.flatnonzero(self.innermost)
        before = values_at(inner, np.searchsorted(inner, latest, side="right") - 1)
        after = values_at(inner, np.searchsorted(inner, around))
        return np.where(around == UNKNOWN, UNKNOWN, np.where(before >= around, before, after))

    def issuing_starts(self, trace: RankTrace, rows: Int64s) -> Int64s:
        """The same for the starts of events; UNKNOWN where there is no event."""
        position = np.full(len(rows), UNKNOWN, np.int64)
        there = np.flatnonzero(rows != UNKNOWN)
        events = trace.events
        track, start = events.track[rows[there]].astype(np.int64), events.start[rows[there]]
        position[there] = self.issuing(track, start)
        return position

    def _latest(self, track: Int64s, time: Int64s) -> Int64s:
        """The position of the last operator that has begun on each track at a time, or UNKNOWN."""
        found = np.full(len(track), UNKNOWN, np.int64)
        for thread in np.unique(self.track):
            asked = np.flatnonzero(track == thread)
            first, last = np.searchsorted(self.track, [thread, thread + 1])
            place = first + np.searchsorted(self.start[first:last], time[asked], side="right") - 1
            found[asked] = np.where(place < first, UNKNOWN, place)
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
    """The event of the profile that each is the same as, or UNKNOWN."""
    parent: Int64s
    """The place of the node around each, or UNKNOWN."""
    innermost: Bools

    def of(self, events: Int64s) -> Int64s:
        """The node of each event, or UNKNOWN."""
        linked = self.event != UNKNOWN
        return values_at(self.rows[linked], lookup(self.event[linked], events))

    @property
    def unseen(self) -> Int64s:
        """Places of the innermost ones of which, and of all around them, a profile saw nothing."""
        place = np.flatnonzero(self.innermost)
        unseen = np.append(self.event == UNKNOWN, True)
        alone, above = unseen[place], self.parent[place]
        while (above != UNKNOWN).any():
            alone &= unseen[above]
            above = np.where(above == UNKNOWN, UNKNOWN, self.parent[above])
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
    parent = np.where(caller == UNKNOWN, UNKNOWN, lookup(own, caller))
    name = trace.events.name[rows]
    operation = words.operations(name)
    alike = (name == words.strings.find(RECORDED)) | (operation == operation[parent])
    parent[~alike] = UNKNOWN
    return Nodes(rows, event, parent, _innermost(parent))


def _innermost(parent: Int64s) -> Bools:
    innermost = np.ones(len(parent), np.bool_)
    innermost[parent[parent != UNKNOWN]] = False
    return innermost


def chains(places: Int64s, parent: Int64s) -> list[Int64s]:
    """The given places, then those around each of them as long as they are around no other."""
    levels, place = [places], places
    inside = np.zeros(len(parent) + 1, np.int64)
    while (place != UNKNOWN).any():
        place = np.where(place == UNKNOWN, UNKNOWN, values_at(parent, place))
        inside += np.bincount(np.where(place == UNKNOWN, len(parent), place), minlength=len(inside))
        levels.append(place)
    alone = inside == 1
    return [levels[0], *(np.where(alone[level], level, UNKNOWN) for level in levels[1:-1])]


def named(trace: RankTrace, words: Words, pattern: re.Pattern[str], kind: EventKind) -> Int64s:
    """Events of a kind whose name matches."""
    rows = np.flatnonzero(trace.events.kind == kind)
    if not len(rows):
        return rows
    return rows[words.matching(pattern, trace.events.name[rows])]


# Calls in the making: which events belong together, before anything is known of what they did.


@dataclass(slots=True)
class Draft:
    """One row for each call: rows of its events, or UNKNOWN."""

    record: Int64s
    operator: Int64s
    issuer: Int64s
    """The place of the operator among the innermost ones."""
    node: Int64s
    annotation: Int64s
    kernel: Int64s
    kernels_end: Int64s
    """When the last kernel ends, or NO_TIME."""

    def __len__(self) -> int:
        return len(self.record)

    @classmethod
    def of(cls, count: int, **columns: Int64s) -> Draft:
        """`count` calls; what is not given is not there."""
        return cls(
            *(
                columns[f.name]
                if f.name in columns
                else np.full(count, NO_TIME if f.name == "kernels_end" else UNKNOWN, np.int64)
                for f in fields(cls)
            )
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Draft]) -> Draft:
        """All calls of all parts, in order."""
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def take(self, rows: Any) -> Draft:
        """Some of the calls; a call can be taken more than once."""
        return Draft(*(getattr(self, f.name)[rows] for f in fields(self)))


def first_of_each(owner: Int64s, count: int, rows: Int64s) -> Int64s:
    """For each of `count` owners the first of its rows, or UNKNOWN; `owner` is UNKNOWN where a row has none."""
    first = np.full(count + 1, UNKNOWN, np.int64)
    first[owner[::-1]] = rows[::-1]
    return first[:-1]


def latest_of_each(owner: Int64s, count: int, times: Int64s) -> Int64s:
    """For each of `count` owners the latest of its times, or NO_TIME."""
    latest = np.full(count + 1, NO_TIME, np.int64)
    np.maximum.at(latest, owner, times)
    return latest[:-1]


# The parts that calls are made of, and which of them one operator leads to.


@dataclass(frozen=True, slots=True)
class Parts:
    """What of a rank communicates, one column for each kind of event; kernels in order of start."""

    operators: Operators
    nodes: Nodes
    annotations: Int64s
    kernels: Int64s
    launches: Int64s
    """The runtime call that launched each kernel, or UNKNOWN."""
    records: Int64s
    recorded: Int64s
    """The operator that made each record, or UNKNOWN."""
    annotated: Int64s
    """The place, among innermost operators, of the one during which each annotation starts, or UNKNOWN."""
    launched: Int64s
    """The place, among innermost operators, of the one that launched each kernel, or UNKNOWN."""
    waits: int
    """Operators that only wait for others."""


def parts_of(trace: RankTrace, words: Words, edges: Edges) -> Parts:
    """Finds what communicates, and what of it operators lead to."""
    kind = trace.events.kind
    node_rows = named(trace, words, COLLECTIVE_OPERATOR, EventKind.NODE)
    rows = named(trace, words, COLLECTIVE_OPERATOR, EventKind.OPERATOR)
    same, launches = edges.where(Relation.SAME), edges.where(Relation.LAUNCHES)
    of_node = kind[same.source] == EventKind.NODE
    same_node = values_at(same.source[of_node], lookup(same.target[of_node], rows))
    waits = _waits(trace, words, rows, same_node)
    operators = operators_of(trace, words, rows[~waits])
    place = np.append(np.cumsum(operators.innermost) - 1, UNKNOWN)
    annotations = named(trace, words, COLLECTIVE_ANNOTATION, EventKind.ANNOTATION)
    kernels = _kernels(trace, words)
    launching = values_at(launches.source, lookup(launches.target, kernels))
    records = np.flatnonzero(kind == EventKind.RECORD)
    made = (kind[same.source] == EventKind.RECORD) & (kind[same.target] == EventKind.OPERATOR)
    return Parts(
        operators,
        nodes_of(trace, words, node_rows[~_waits(trace, words, node_rows, node_rows)], same),
        annotations,
        kernels,
        launching,
        records,
        values_at(same.target[made], lookup(same.source[made], records)),
        place[operators.issuing_starts(trace, annotations)],
        place[operators.issuing_starts(trace, launching)],
        int(np.count_nonzero(waits)),
    )


def _waits(trace: RankTrace, words: Words, rows: Int64s, nodes: Int64s) -> Bools:
    """Whether an operator is no communication of its own, by its node, else by itself."""
    said = spelled(trace, words, nodes)
    said = np.where(said == UNKNOWN, spelled(trace, words, rows), said)
    return words.only_waits(np.where(said == UNKNOWN, trace.events.name[rows], said))


def _kernels(trace: RankTrace, words: Words) -> Int64s:
    """Work of collectives on devices: kernels by their names, and what else says so."""
    events = trace.events
    kernels = named(trace, words, COLLECTIVE_KERNEL, EventKind.KERNEL)
    told = trace.communications.row
    rows = np.union1d(kernels, told[np.isin(events.kind[told], GPU_WORK)]) if len(told) else kernels
    return rows[np.argsort(events.start[rows], kind="stable")]


def issued_calls(trace: RankTrace, words: Words, parts: Parts) -> Draft:
    """A call for each innermost operator, or several if the recorder saw several; with all that it led to."""
    operators = parts.operators
    rows = operators.rows[operators.innermost]
    place, owner = _owners(trace, parts.kernels, parts.launched, len(rows))
    draft = Draft.of(
        len(place),
        operator=rows[place],
        issuer=place,
        node=parts.nodes.of(rows)[place],
        annotation=first_of_each(parts.annotated, len(rows), parts.annotations)[place],
        kernel=first_of_each(owner, len(place), parts.kernels),
        kernels_end=latest_of_each(owner, len(place), trace.events.end[parts.kernels]),
    )
    made = _made_by(operators, parts.recorded)
    recorded = np.flatnonzero(made != UNKNOWN)
    draft = draft.take(np.concatenate([made[recorded], np.setdiff1d(np.arange(len(place)), made)]))
    draft.record[: len(recorded)] = parts.records[recorded]
    return draft.take(~_moves_nothing(trace, words, operators, draft))


def _owners(trace: RankTrace, kernels: Int64s, launched: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The operator of each call, and the call of each kernel, or UNKNOWN.

    There is one call for each of `count` operators. Of several messages that one operator put on a device, and whose
    work says itself what it sends, each is a call.
    """
    table = trace.communications
    said = lookup(table.row, kernels)
    names_other = (table.source != UNKNOWN) | (table.target != UNKNOWN)
    message = values_at(table.point_to_point & names_other, said, False) & (launched != UNKNOWN)
    messages = np.flatnonzero(message)
    first = np.unique(launched[messages], return_index=True)[1]
    further = np.delete(messages, first)
    owner = launched.copy()
    owner[further] = count + np.arange(len(further))
    return np.concatenate([np.arange(count), launched[further]]), owner


def _made_by(operators: Operators, recorded: Int64s) -> Int64s:
    """The place of the innermost operator that made each record, or UNKNOWN."""
    order = np.argsort(operators.rows)
    position = values_at(order, lookup(operators.rows[order], recorded))
    inner = np.flatnonzero(operators.innermost)
    return np.where(position == UNKNOWN, UNKNOWN, np.searchsorted(inner, position))


def _moves_nothing(trace: RankTrace, words: Words, operators: Operators, draft: Draft) -> Bools:
    """Whether an operator without any effect is not known to be a communication.

    `record_param_comms` alone, of which old profiles say nothing, waits for others; what is functional and calls
    no operator of a backend was traced by a compiler, and not run.
    """
    name = trace.events.name[draft.operator]
    position = np.flatnonzero(operators.innermost)[draft.issuer]
    unsaid = operators.parent[position] == UNKNOWN
    for rows in (draft.operator, draft.node):
        unsaid &= spelled(trace, words, rows) == UNKNOWN
    unknown = unsaid & (name == words.strings.find(RECORDED))
    effect = (draft.record != UNKNOWN) | (draft.kernel != UNKNOWN) | (draft.annotation != UNKNOWN)
    moves_nothing: Bools = ~effect & (unknown | words.matching(FUNCTIONAL, name))
    return moves_nothing


def lone_calls(trace: RankTrace, words: Words, parts: Parts) -> Draft:
    """Annotations of device backends, kernels and nodes that no operator of the profile leads to."""
    events = trace.events
    lone = parts.annotations[(parts.annotated == UNKNOWN)]
    lone = lone[~words.matching(OF_CPU, events.name[lone])]
    issuers = operators_of(trace, words, lone)
    kernels = np.flatnonzero(parts.launched == UNKNOWN)
    launched = issuers.issuing_starts(trace, parts.launches[kernels])
    place, owner = _owners(trace, parts.kernels[kernels], launched, len(lone))
    kernels_end = events.end[parts.kernels[kernels]]
    alone = launched == UNKNOWN
    nodes = parts.nodes.rows[parts.nodes.unseen]
    nodes = nodes[~words.matching(FUNCTIONAL, events.name[nodes])]
    return Draft.concatenate(
        [
            Draft.of(
                len(place),
                annotation=issuers.rows[place],
                kernel=first_of_each(owner, len(place), parts.kernels[kernels]),
                kernels_end=latest_of_each(owner, len(place), kernels_end),
            ),
            Draft.of(
                int(np.count_nonzero(alone)),
                kernel=parts.kernels[kernels[alone]],
                kernels_end=kernels_end[alone],
            ),
            Draft.of(len(nodes), node=nodes),
        ]
    )
