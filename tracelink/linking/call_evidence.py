"""Records, annotations and nodes of a call; what they agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.linking.alignment import align
from tracelink.linking.communicating import OF_CPU, RECORDED, Draft, Words, as_gloo_does, spelled
from tracelink.linking.recorder import profiled
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, lookup, values_at
from tracelink.model.communications import FLAGS, Communications
from tracelink.model.events import EventKind, Key
from tracelink.model.operations import POINT_TO_POINT, Operation
from tracelink.model.trace import RankTrace

# Nodes and recorder entries of backends whose nodes have no numbers: the same ones are in the same order.


def by_order(
    trace: RankTrace, words: Words, records: Int64s, told: Mapping[str, Any], draft: Draft
) -> Int64s:
    """The record of each call, where there is only one way to line up what has none with what is left."""
    found = draft.record.copy()
    ours = _in_order_of_nodes(trace, draft, told)
    theirs = _in_order_of_creation(trace, words, records)
    if not len(theirs) or not (found[ours] == UNKNOWN).any():
        return found
    table = trace.communications
    said = lookup(table.row, theirs)
    mine = as_gloo_does(words, told["operation"][ours], told["elements_in"][ours])
    other = as_gloo_does(
        words, words.operations(trace.events.name[theirs]), values_at(table.elements_in, said)
    )
    kinds = _kinds(np.concatenate([mine[0], other[0]]), np.concatenate([mine[1], other[1]]))
    joined, free = found[ours] != UNKNOWN, ~np.isin(theirs, found)
    one = np.where(joined, -1 - found[ours], kinds[: len(ours)])
    two = np.where(free, kinds[len(ours) :], -1 - theirs)
    place = align(one, two).index
    found[ours] = np.where(joined, found[ours], values_at(theirs, place))
    return found


def _in_order_of_nodes(trace: RankTrace, draft: Draft, told: Mapping[str, Any]) -> Int64s:
    """Calls that have a node and could have a record: gloo does not record messages."""
    identity = trace.key(Key.NODE_ID)
    node = values_at(identity.values, lookup(identity.rows, draft.node))
    chosen = (node != UNKNOWN) & ~told["point_to_point"] & (draft.kernel == UNKNOWN)
    chosen &= (told["sequence"] == UNKNOWN) | (draft.record != UNKNOWN)
    calls = np.flatnonzero(chosen)
    return calls[np.argsort(node[calls], kind="stable")]


def _in_order_of_creation(trace: RankTrace, words: Words, records: Int64s) -> Int64s:
    events = trace.events
    chosen = words.matching(OF_CPU, events.name[records]) & (events.start[records] != NO_TIME)
    records = records[chosen]
    return records[np.argsort(events.start[records], kind="stable")]


def _kinds(operation: Int32s, elements: Int64s) -> Int64s:
    """One number for each operation of each size; a size counts only if it is known of all of the operation."""
    distinct, place = np.unique(operation, return_inverse=True)
    unsized = np.zeros(len(distinct), np.bool_)
    unsized[place[elements == UNKNOWN]] = True
    sizes = np.unique(np.where(unsized[place], UNKNOWN, elements), return_inverse=True)[1]
    kinds: Int64s = place * (int(sizes.max(initial=0)) + 1) + sizes
    return kinds


# The annotations around the work of CPU backends, which runs on threads of its own, and the calls they are of.


TOLD = ("operation", "group", "elements_in", "type")

MOST_WAITING = 256
"""Calls of one operation that can wait for their work at a time; older ones were never annotated."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """For each annotation the call that it is of, or UNKNOWN, and how many were found in which way."""

    call: Int64s
    by_identity: int
    by_order: int

    @classmethod
    def none(cls) -> Pairing:
        """There was nothing to pair."""
        return cls(np.empty(0, np.int64), 0, 0)


def pair_annotations(
    trace: RankTrace, words: Words, draft: Draft, told: Mapping[str, Any], rows: Int64s
) -> Pairing:
    """Annotations on threads that issue nothing, and the calls that wait for such work."""
    waiting = np.flatnonzero((draft.annotation == UNKNOWN) & (draft.kernel == UNKNOWN))
    begun = np.where(draft.operator != UNKNOWN, draft.operator, draft.record)[waiting]
    waiting = waiting[profiled(trace, values_at(trace.events.start, begun, NO_TIME))]
    calls = _issued(trace, words, draft.take(waiting), {name: told[name][waiting] for name in TOLD})
    annotations = _annotated(trace, words, rows)
    found = _by_identity(trace, calls, annotations)
    identified = int(np.count_nonzero(found != UNKNOWN))
    free = np.setdiff1d(np.arange(len(waiting)), found)
    ordered = _by_order(calls, annotations, free, np.flatnonzero(found == UNKNOWN))
    found = np.where(found == UNKNOWN, ordered, found)
    call = np.where(found == UNKNOWN, UNKNOWN, values_at(waiting, found))
    return Pairing(call, identified, int(np.count_nonzero(found != UNKNOWN)) - identified)


@dataclass(frozen=True, slots=True)
class Work:
    """Things that stand for one communication each, as calls see them or as annotations do."""

    rows: Int64s
    start: Int64s
    thread: Int64s
    operation: Int32s
    group: Int32s
    elements: Int64s
    type: Int32s


def _issued(trace: RankTrace, words: Words, draft: Draft, told: Mapping[str, Any]) -> Work:
    """Calls by the operation that their annotation will name."""
    events = trace.events
    rows = np.where(draft.operator != UNKNOWN, draft.operator, draft.record)
    operation, elements = as_gloo_does(words, told["operation"], told["elements_in"])
    track = events.track[rows].astype(np.int64)
    return Work(rows, events.start[rows], track, operation, told["group"], elements, told["type"])


def _annotated(trace: RankTrace, words: Words, rows: Int64s) -> Work:
    """Annotations by what they say themselves."""
    events, table = trace.events, trace.communications
    said = lookup(table.row, rows)
    operation, elements = as_gloo_does(
        words, words.operations(events.name[rows]), values_at(table.elements_in, said)
    )
    track = events.track[rows].astype(np.int64)
    unknown = np.full(len(rows), UNKNOWN, np.int32)
    return Work(rows, events.start[rows], track, operation, unknown, elements, values_at(table.type, said))


def _by_identity(trace: RankTrace, calls: Work, annotations: Work) -> Int64s:
    """For each annotation the call that issued it, or UNKNOWN: the profiler numbers both where they are issued.

    The number of an annotation that runs elsewhere lies between those of the operator that issued it and of
    whatever its thread does after that operator.
    """
    numbers = trace.key(Key.RECORD_FUNCTION)
    numbers = numbers.where(numbers.values > 0)
    wanted = values_at(numbers.values, lookup(numbers.rows, annotations.rows))
    own = values_at(numbers.values, lookup(numbers.rows, calls.rows))
    found = np.full(len(annotations.rows), UNKNOWN, np.int64)
    nearest = np.full(len(annotations.rows), UNKNOWN, np.int64)
    for thread in np.unique(calls.thread[own != UNKNOWN]):
        place = np.flatnonzero((calls.thread == thread) & (own != UNKNOWN))
        place = place[np.argsort(own[place], kind="stable")]
        last = np.searchsorted(own[place], wanted) - 1
        call = np.where(last == UNKNOWN, UNKNOWN, place[last])
        next_number = _number_after(trace, int(thread), numbers.rows, numbers.values, calls.rows[call])
        fits = (wanted != UNKNOWN) & (last != UNKNOWN) & (wanted < next_number)
        fits &= (annotations.operation == calls.operation[call]) & (own[call] > nearest)
        found[fits], nearest[fits] = call[fits], own[call[fits]]
    return found


def _number_after(trace: RankTrace, thread: int, rows: Int64s, values: Int64s, operators: Int64s) -> Int64s:
    """The number of what begins on a thread after each operator has ended."""
    events = trace.events
    here = np.flatnonzero(events.track[rows] == thread)
    here = here[np.argsort(events.start[rows[here]], kind="stable")]
    after = np.searchsorted(events.start[rows[here]], events.end[operators])
    following: Int64s = np.append(values[here], np.iinfo(np.int64).max)[after]
    return following


@dataclass(slots=True)
class _Waiting:
    """Calls that have been issued by a time and have no annotation yet, by operation and in order."""

    calls: Work
    places: list[int]
    next: int = 0
    by_operation: dict[int, list[int]] = field(default_factory=dict)

    def until(self, time: int) -> None:
        """Lets in what is issued by `time`."""
        while self.next < len(self.places) and self.calls.start[self.places[self.next]] <= time:
            place = self.places[self.next]
            queue = self.by_operation.setdefault(int(self.calls.operation[place]), [])
            queue.append(place)
            del queue[:-MOST_WAITING]
            self.next += 1

    def like(self, annotations: Work, index: int) -> Iterator[int]:
        """Places of the calls that an annotation can be of, the oldest first."""
        for place in self.by_operation.get(int(annotations.operation[index]), ()):
            if all(
                theirs[place] == ours[index] or UNKNOWN in (theirs[place], ours[index])
                for theirs, ours in (
                    (self.calls.elements, annotations.elements),
                    (self.calls.type, annotations.type),
                )
            ):
                yield place

    def done(self, place: int) -> None:
        """A call has its annotation."""
        self.by_operation[int(self.calls.operation[place])].remove(place)


def _by_order(calls: Work, annotations: Work, open_calls: Int64s, open_annotations: Int64s) -> Int64s:
    """For each annotation the oldest call that it can be of, or UNKNOWN; `open_…` are the places still unpaired.

    Every group has threads of its own, which take its work in the order of issue.
    """
    found = np.full(len(annotations.rows), UNKNOWN, np.int64)
    if not len(open_annotations):
        return found
    order = open_calls[np.argsort(calls.start[open_calls], kind="stable")].tolist()
    turns = open_annotations[np.argsort(annotations.start[open_annotations], kind="stable")].tolist()
    group_of = _groups_of_threads(calls, annotations, order, turns)
    waiting = _Waiting(calls, order)
    for index in turns:
        waiting.until(int(annotations.start[index]))
        group = group_of.get(int(annotations.thread[index]), UNKNOWN)
        for place in waiting.like(annotations, index):
            if UNKNOWN in (group, calls.group[place]) or int(calls.group[place]) == group:
                found[index] = place
                waiting.done(place)
                break
    return found


def _groups_of_threads(calls: Work, annotations: Work, order: list[int], turns: list[int]) -> dict[int, int]:
    """The group that each thread works for, learned from annotations that can be of one call only.

    Where there are several calls it is not known which of them still waits, until none does.
    """
    waiting = _Waiting(calls, order)
    votes: Counter[tuple[int, int]] = Counter()
    unsure: set[tuple[int, int]] = set()
    for index in turns:
        waiting.until(int(annotations.start[index]))
        places = list(waiting.like(annotations, index))
        if not places:
            continue
        what = int(annotations.operation[index]), int(annotations.elements[index])
        group = int(calls.group[places[0]])
        waiting.done(places[0])
        if len(places) > 1:
            unsure.add(what)
        elif what in unsure:
            unsure.remove(what)
        elif group != UNKNOWN:
            votes[int(annotations.thread[index]), group] += 1
    return {thread: group for (thread, group), _ in reversed(votes.most_common())}


# The attributes of calls: each from the best source that tells it, and where sources contradict each other.


NUMBERED = ("sequence", "point_to_point")
PEERS = ("source", "target", "global_ranks")
COUNTS = ("elements_in", "elements_out", "shape")
TOLD_ALONE = ("group", "tag", "elements_in", "elements_out", "type", "size", "members", "shape")

SUBSTITUTES = {
    (Operation.REDUCE_SCATTER.value, Operation.ALL_REDUCE.value),
    (Operation.BARRIER.value, Operation.ALL_REDUCE.value),
}
"""What was asked for and what the backend does for it and records: gloo has no reduce_scatter of its own."""
PARTS = {
    (Operation.ALL_GATHER.value, Operation.BROADCAST.value),
    (Operation.REDUCE_SCATTER.value, Operation.REDUCE.value),
    (Operation.ALL_TO_ALL.value, Operation.SEND.value),
    (Operation.ALL_TO_ALL.value, Operation.RECV.value),
    (Operation.GATHER.value, Operation.SEND.value),
    (Operation.GATHER.value, Operation.RECV.value),
    (Operation.SCATTER.value, Operation.SEND.value),
    (Operation.SCATTER.value, Operation.RECV.value),
    *((Operation.COALESCED.value, operation.value) for operation in Operation),
}
"""What was asked for and what a backend makes it of; what closes a group, and what the group is of."""


@dataclass(frozen=True, slots=True)
class Witness:
    """One of the events that tell of each call: its row or UNKNOWN, and by what name people know it."""

    name: str
    rows: Int64s


@dataclass(frozen=True, slots=True)
class _Testimony:
    """What one witness says: places in the communications, and operations."""

    witness: Witness
    said: Int64s
    operation: Int32s
    known: Bools
    asked: Bools
    """Whether it is what the program asked for, and not what the backend made of it."""
    sworn: Bools
    """Whether the operation counts against that of others; a kernel's name is only a hint."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Columns of calls, by name, and what of them is disputed."""

    columns: dict[str, Any]
    findings: Sequence[Finding]


def attributes_of(trace: RankTrace, words: Words, witnesses: Sequence[Witness]) -> Attributes:
    """What the witnesses, the best first, tell of each call."""
    table = trace.communications
    heard = [_hear(trace, words, witness) for witness in witnesses]
    places = [testimony.said for testimony in heard]
    columns = _columns(table, places)
    operation, substituted = _operation(words, heard)
    if substituted.any():
        asked = [np.where(one.asked, one.said, UNKNOWN) for one in heard]
        for name in COUNTS:
            better = _told(table, (name,), asked)[name]
            columns[name] = np.where(substituted & (better != UNKNOWN), better, columns[name])
    columns["operation"] = operation
    messages = np.isin(operation, [words.strings.find(name.value) for name in POINT_TO_POINT])
    columns["point_to_point"] |= messages & (columns["sequence"] == UNKNOWN)
    closing = operation == words.strings.find(Operation.COALESCED.value)
    # What only closes a group of messages is numbered as if it were a collective.
    columns["sequence"][closing & ~columns["point_to_point"]] = UNKNOWN
    return Attributes(columns, _contradictions(words, heard, columns, table))


def _hear(trace: RankTrace, words: Words, witness: Witness) -> _Testimony:
    table, events = trace.communications, trace.events
    there = witness.rows != UNKNOWN
    said = lookup(table.row, witness.rows)
    operation = spelled(trace, words, witness.rows)
    names = values_at(events.name, witness.rows)
    recorded = names == words.strings.find(RECORDED)
    hinted = (operation == UNKNOWN) | (operation == names)
    operation = words.operations(np.where((operation == UNKNOWN) & ~recorded, names, operation))
    known = words.known(operation)
    kind = values_at(events.kind, witness.rows, EventKind.OTHER)
    asked = known & there & ~recorded & ((kind == EventKind.OPERATOR) | (kind == EventKind.NODE))
    sworn = known & (said != UNKNOWN) & ((kind != EventKind.KERNEL) | ~hinted)
    return _Testimony(witness, said, operation, known, asked, sworn)


def _columns(table: Communications, places: Sequence[Int64s]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    columns |= _told(table, NUMBERED, places, table.sequence != UNKNOWN)
    columns |= _told(table, PEERS, places, (table.source != UNKNOWN) | (table.target != UNKNOWN))
    for name in TOLD_ALONE:
        columns |= _told(table, (name,), places)
    return columns


def _told(
    table: Communications, names: Sequence[str], places: Sequence[Int64s], tells: Bools | None = None
) -> dict[str, Any]:
    """Columns from the first that tells, together where they mean nothing apart."""
    place = places[0]
    if len(places) > 1:
        tells = getattr(table, names[0]) != UNKNOWN if tells is None else tells
        place = np.where(values_at(tells, place, False), place, UNKNOWN)
        for others in places[1:]:
            place = np.where((place == UNKNOWN) & values_at(tells, others, False), others, place)
    return {name: values_at(getattr(table, name), place, kind_of_unknown(name)) for name in names}


def kind_of_unknown(name: str) -> int | bool:
    """What stands in a column for what is not known."""
    return False if name in FLAGS else UNKNOWN


def _operation(words: Words, heard: Sequence[_Testimony]) -> tuple[Int32s, Bools]:
    """The first operation that is known, else any; and where it is what was asked for, not what was done."""
    operation = _first([one.operation for one in heard], [one.known for one in heard])
    asked = _first([one.operation for one in heard], [one.asked for one in heard])
    substituted = _among(words, asked, operation, SUBSTITUTES)
    operation = np.where(substituted, asked, operation)
    any_text = _first([one.operation for one in heard], [one.operation != UNKNOWN for one in heard])
    return np.where(operation == UNKNOWN, any_text, operation).astype(np.int32), substituted


def _first(values: Sequence[Int32s], usable: Sequence[Bools]) -> Int32s:
    found = np.where(usable[0], values[0], UNKNOWN)
    for value, use in zip(values[1:], usable[1:], strict=True):
        found = np.where((found == UNKNOWN) & use, value, found)
    return found.astype(np.int32)


def _among(words: Words, one: Int32s, other: Int32s, pairs: set[tuple[str, str]]) -> Bools:
    """Whether each two operations are one of the pairs."""
    found = np.zeros(len(one), np.bool_)
    for first, second in pairs:
        codes = words.strings.find(first), words.strings.find(second)
        if UNKNOWN not in codes:
            found |= (one == codes[0]) & (other == codes[1])
    return found


def _contradictions(
    words: Words, heard: Sequence[_Testimony], columns: dict[str, Any], table: Communications
) -> list[Finding]:
    """One finding for each of operation, group and sequence that sources give differently."""
    findings = []
    for name in ("operation", "group", "sequence"):
        disputed = np.zeros(len(columns["operation"]), np.bool_)
        example = ""
        for one in heard if len(heard) > 1 else ():
            differs, said = _differs(words, one, columns, table, name)
            if differs.any() and not example:
                example = _example(words, columns, name, int(np.flatnonzero(differs)[0]), said, one.witness)
            disputed |= differs
        if count := int(np.count_nonzero(disputed)):
            message = (
                f"{count} communications have another {name} in one source than in another; "
                "the flight recorder was believed, else the execution trace"
            )
            findings.append(
                Finding(Severity.WARNING, "communication_contradiction", message, count, example=example)
            )
    return findings


def _differs(
    words: Words, one: _Testimony, columns: dict[str, Any], table: Communications, name: str
) -> tuple[Bools, Any]:
    chosen = columns[name]
    if name == "operation":
        said: Any = one.operation
        differs = one.sworn & (said != chosen) & (chosen != UNKNOWN)
        if not differs.any():
            return differs, said
        differs &= ~_among(words, chosen, said, SUBSTITUTES | PARTS)
        return differs & ~_among(words, said, chosen, SUBSTITUTES | PARTS), said
    said = values_at(getattr(table, name), one.said)
    differs = (said != UNKNOWN) & (said != chosen)
    if name == "sequence":
        differs &= values_at(table.point_to_point, one.said, False) == columns["point_to_point"]
    return differs, said


def _example(words: Words, columns: dict[str, Any], name: str, row: int, said: Any, witness: Witness) -> str:
    def text(value: int) -> str:
        return str(value) if name == "sequence" else words.strings.texts()[value]

    return f"{text(int(said[row]))} by the {witness.name}, elsewhere {text(int(columns[name][row]))}"
