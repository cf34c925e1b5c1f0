"""Attributes of calls from all their sources: which record and annotation a call has, and what the sources agree on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from tracelink._link.call_events import (
    OF_CPU,
    Draft,
    Vocabulary,
    as_gloo_records,
    declared_operations,
)
from tracelink._link.same import profiled
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, lookup, values_at
from tracelink._model.communications import Communications
from tracelink._model.events import EventKind, Key
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, RECORD_OPERATOR, Operation
from tracelink._model.trace import RankTrace

# Records by order: nodes and flight-recorder entries of backends without sequence numbers in nodes.


def records_by_order(
    trace: RankTrace, vocabulary: Vocabulary, records: Int64s, attributes: Mapping[str, Any], draft: Draft
) -> Int64s:
    """The record of each call; calls without one get a remaining record if there is only one way to align both."""
    found = draft.record.copy()
    call_order = _in_order_of_nodes(trace, draft, attributes)
    record_order = _in_order_of_creation(trace, vocabulary, records)
    if not len(record_order) or not (found[call_order] == UNKNOWN).any():
        return found
    table = trace.communications
    statement = lookup(table.row, record_order)
    call_work = as_gloo_records(
        vocabulary, attributes["operation"][call_order], attributes["elements_in"][call_order]
    )
    record_work = as_gloo_records(
        vocabulary,
        vocabulary.operations(trace.events.name[record_order]),
        values_at(table.elements_in, statement),
    )
    kinds = _kinds(
        np.concatenate([call_work[0], record_work[0]]), np.concatenate([call_work[1], record_work[1]])
    )
    has_record, free = found[call_order] != UNKNOWN, ~np.isin(record_order, found)
    call_keys = np.where(has_record, -1 - found[call_order], kinds[: len(call_order)])
    record_keys = np.where(free, kinds[len(call_order) :], -1 - record_order)
    from tracelink._link.alignment import align  # only if records without an operator are left

    index = align(call_keys, record_keys).index
    found[call_order] = np.where(has_record, found[call_order], values_at(record_order, index))
    return found


def _in_order_of_nodes(trace: RankTrace, draft: Draft, attributes: Mapping[str, Any]) -> Int64s:
    """Calls with a node that can have a record, by node id: gloo does not record messages."""
    identity = trace.key(Key.NODE_ID)
    node = values_at(identity.values, lookup(identity.rows, draft.node))
    chosen = (node != UNKNOWN) & ~attributes["point_to_point"] & (draft.kernel == UNKNOWN)
    chosen &= (attributes["sequence"] == UNKNOWN) | (draft.record != UNKNOWN)
    calls = np.flatnonzero(chosen)
    return calls[np.argsort(node[calls], kind="stable")]


def _in_order_of_creation(trace: RankTrace, vocabulary: Vocabulary, records: Int64s) -> Int64s:
    events = trace.events
    chosen = vocabulary.matches(OF_CPU, events.name[records]) & (events.start[records] != NO_TIME)
    records = records[chosen]
    return records[np.argsort(events.start[records], kind="stable")]


def _kinds(operation: Int32s, elements: Int64s) -> Int64s:
    """One number for each operation and size; sizes count only if known for all calls of the operation."""
    distinct, code = np.unique(operation, return_inverse=True)
    unsized = np.zeros(len(distinct), np.bool_)
    unsized[code[elements == UNKNOWN]] = True
    sizes = np.unique(np.where(unsized[code], UNKNOWN, elements), return_inverse=True)[1]
    kinds: Int64s = code * (int(sizes.max(initial=0)) + 1) + sizes
    return kinds


# Annotations around the work of CPU backends, which runs on threads of its own, and the calls that issued it.


COMPARED = ("operation", "group", "elements_in", "type")

MOST_WAITING = 256
"""The most calls of one operation that can be waiting; older ones were never annotated."""


class AnnotationPairing(Struct, frozen=True):
    """The call of each annotation."""

    call: Int64s
    """Or UNKNOWN."""
    by_identity: int
    by_order: int
    """The number of pairs of each kind."""

    @classmethod
    def empty(cls) -> AnnotationPairing:
        """No annotations."""
        return cls(np.empty(0, np.int64), 0, 0)


def pair_annotations(
    trace: RankTrace, vocabulary: Vocabulary, draft: Draft, attributes: Mapping[str, Any], rows: Int64s
) -> AnnotationPairing:
    """Pairs annotations on threads that issue nothing with the calls that wait for such work."""
    waiting = np.flatnonzero((draft.annotation == UNKNOWN) & (draft.kernel == UNKNOWN))
    issued = np.where(draft.operator != UNKNOWN, draft.operator, draft.record)[waiting]
    waiting = waiting[profiled(trace, values_at(trace.events.start, issued, NO_TIME))]
    calls = _issued(
        trace, vocabulary, draft.take(waiting), {name: attributes[name][waiting] for name in COMPARED}
    )
    annotations = _annotated(trace, vocabulary, rows)
    found = _by_identity(trace, calls, annotations)
    identified = int(np.count_nonzero(found != UNKNOWN))
    free = np.setdiff1d(np.arange(len(waiting)), found)
    ordered = _by_order(calls, annotations, free, np.flatnonzero(found == UNKNOWN))
    found = np.where(found == UNKNOWN, ordered, found)
    call = np.where(found == UNKNOWN, UNKNOWN, values_at(waiting, found))
    return AnnotationPairing(call, identified, int(np.count_nonzero(found != UNKNOWN)) - identified)


class _CommunicationWork(Struct, frozen=True):
    """Communications, either as calls describe them or as annotations do."""

    rows: Int64s
    start: Int64s
    thread: Int64s
    operation: Int32s
    group: Int32s
    elements: Int64s
    type: Int32s


def _issued(
    trace: RankTrace, vocabulary: Vocabulary, draft: Draft, attributes: Mapping[str, Any]
) -> _CommunicationWork:
    """Calls, with the operation that their annotation will have."""
    events = trace.events
    rows = np.where(draft.operator != UNKNOWN, draft.operator, draft.record)
    operation, elements = as_gloo_records(vocabulary, attributes["operation"], attributes["elements_in"])
    track = events.track[rows].astype(np.int64)
    return _CommunicationWork(
        rows, events.start[rows], track, operation, attributes["group"], elements, attributes["type"]
    )


def _annotated(trace: RankTrace, vocabulary: Vocabulary, rows: Int64s) -> _CommunicationWork:
    """Annotations, with what they state."""
    events, table = trace.events, trace.communications
    statement = lookup(table.row, rows)
    operation, elements = as_gloo_records(
        vocabulary, vocabulary.operations(events.name[rows]), values_at(table.elements_in, statement)
    )
    track = events.track[rows].astype(np.int64)
    unknown = np.full(len(rows), UNKNOWN, np.int32)
    return _CommunicationWork(
        rows, events.start[rows], track, operation, unknown, elements, values_at(table.type, statement)
    )


def _by_identity(trace: RankTrace, calls: _CommunicationWork, annotations: _CommunicationWork) -> Int64s:
    """For each annotation the call that issued it, or UNKNOWN: the profiler numbers both when they are issued.

    The number of an annotation on another thread is between that of the operator that issued it and that of the
    next event on the operator's thread.
    """
    numbers = trace.key(Key.RECORD_FUNCTION)
    numbers = numbers.take(numbers.values > 0)
    annotation_number = values_at(numbers.values, lookup(numbers.rows, annotations.rows))
    call_number = values_at(numbers.values, lookup(numbers.rows, calls.rows))
    found = np.full(len(annotations.rows), UNKNOWN, np.int64)
    nearest = np.full(len(annotations.rows), UNKNOWN, np.int64)
    for thread in np.unique(calls.thread[call_number != UNKNOWN]):
        index = np.flatnonzero((calls.thread == thread) & (call_number != UNKNOWN))
        index = index[np.argsort(call_number[index], kind="stable")]
        last = np.searchsorted(call_number[index], annotation_number) - 1
        call = np.where(last == UNKNOWN, UNKNOWN, index[last])
        next_number = _number_after(trace, int(thread), numbers.rows, numbers.values, calls.rows[call])
        fits = (annotation_number != UNKNOWN) & (last != UNKNOWN) & (annotation_number < next_number)
        fits &= (annotations.operation == calls.operation[call]) & (call_number[call] > nearest)
        found[fits], nearest[fits] = call[fits], call_number[call[fits]]
    return found


def _number_after(trace: RankTrace, thread: int, rows: Int64s, values: Int64s, operators: Int64s) -> Int64s:
    """The number of the first event that starts on a thread after each operator has ended."""
    events = trace.events
    here = np.flatnonzero(events.track[rows] == thread)
    here = here[np.argsort(events.start[rows[here]], kind="stable")]
    after = np.searchsorted(events.start[rows[here]], events.end[operators])
    following: Int64s = np.append(values[here], np.iinfo(np.int64).max)[after]
    return following


class _Waiting(Struct):
    """Calls that were issued before a time and have no annotation yet, by operation and in order."""

    calls: _CommunicationWork
    call_order: list[int]
    next: int = 0
    by_operation: dict[int, list[int]] = field(default_factory=dict)

    def until(self, time: int) -> None:
        """Adds calls that were issued until `time`."""
        while self.next < len(self.call_order) and self.calls.start[self.call_order[self.next]] <= time:
            call = self.call_order[self.next]
            queue = self.by_operation.setdefault(int(self.calls.operation[call]), [])
            queue.append(call)
            del queue[:-MOST_WAITING]
            self.next += 1

    def candidates(self, annotations: _CommunicationWork, index: int) -> Iterator[int]:
        """The calls that an annotation can be of, the oldest first."""
        for call in self.by_operation.get(int(annotations.operation[index]), ()):
            if all(
                call_values[call] == annotation_values[index]
                or UNKNOWN in (call_values[call], annotation_values[index])
                for call_values, annotation_values in (
                    (self.calls.elements, annotations.elements),
                    (self.calls.type, annotations.type),
                )
            ):
                yield call

    def remove(self, call: int) -> None:
        """Removes a call that has its annotation."""
        self.by_operation[int(self.calls.operation[call])].remove(call)


def _by_order(
    calls: _CommunicationWork, annotations: _CommunicationWork, open_calls: Int64s, open_annotations: Int64s
) -> Int64s:
    """For each annotation the oldest call that it can be of, or UNKNOWN; `open_…` are the indexes still unpaired.

    Every group has its own threads, which take its work in the order of issue.
    """
    found = np.full(len(annotations.rows), UNKNOWN, np.int64)
    if not len(open_annotations):
        return found
    call_order = open_calls[np.argsort(calls.start[open_calls], kind="stable")].tolist()
    annotation_order = open_annotations[
        np.argsort(annotations.start[open_annotations], kind="stable")
    ].tolist()
    group_of = _groups_of_threads(calls, annotations, call_order, annotation_order)
    waiting = _Waiting(calls, call_order)
    for index in annotation_order:
        waiting.until(int(annotations.start[index]))
        group = group_of.get(int(annotations.thread[index]), UNKNOWN)
        for call in waiting.candidates(annotations, index):
            if UNKNOWN in (group, calls.group[call]) or int(calls.group[call]) == group:
                found[index] = call
                waiting.remove(call)
                break
    return found


def _groups_of_threads(
    calls: _CommunicationWork,
    annotations: _CommunicationWork,
    call_order: list[int],
    annotation_order: list[int],
) -> dict[int, int]:
    """The group that each thread works for, from annotations that can be of one call only.

    With several candidate calls it is undecided which of them still waits, until none does.
    """
    waiting = _Waiting(calls, call_order)
    votes: Counter[tuple[int, int]] = Counter()
    undecided: set[tuple[int, int]] = set()
    for index in annotation_order:
        waiting.until(int(annotations.start[index]))
        candidates = list(waiting.candidates(annotations, index))
        if not candidates:
            continue
        kind = int(annotations.operation[index]), int(annotations.elements[index])
        group = int(calls.group[candidates[0]])
        waiting.remove(candidates[0])
        if len(candidates) > 1:
            undecided.add(kind)
        elif kind in undecided:
            undecided.remove(kind)
        elif group != UNKNOWN:
            votes[int(annotations.thread[index]), group] += 1
    return {thread: group for (thread, group), _ in reversed(votes.most_common())}


# Attributes of calls: each from the best source that has it, and contradictions between sources.


COMMUNICATOR = re.compile(r"^0x[0-9a-f]+$")
"""NCCL's own name of a group, which torch does not know."""
NUMBERED = ("sequence", "point_to_point")
PEERS = ("source", "target", "global_ranks")
COUNTS = ("elements_in", "elements_out", "shape")
INDEPENDENT = ("group", "tag", "elements_in", "elements_out", "type", "size", "members", "shape")

SUBSTITUTES = {
    (Operation.REDUCE_SCATTER.value, Operation.ALL_REDUCE.value),
    (Operation.BARRIER.value, Operation.ALL_REDUCE.value),
}
"""Requested operation, and what the backend does and records instead: gloo has no reduce_scatter of its own."""
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
"""Requested operation, and what a backend composes it of; the end of a coalesced group, and its members."""


class EvidenceSource(Struct, frozen=True):
    """One kind of event that describes calls."""

    name: str
    """As messages call it."""
    rows: Int64s
    """The event of each call, or UNKNOWN."""


class _Claim(Struct, frozen=True):
    """The statements of one source on each call."""

    source: EvidenceSource
    statement: Int64s
    """Row of `trace.communications`, or UNKNOWN."""
    operation: Int32s
    known: Bools
    requested: Bools
    """True if it is what the program requested, not what the backend did."""
    binding: Bools
    """True if a different operation in another source is a contradiction; a kernel's name is only a hint."""


class Attributes(Struct, frozen=True):
    """Columns of calls by name, and findings on contradictions."""

    columns: dict[str, Any]
    findings: Sequence[Finding]


def attributes_of(trace: RankTrace, vocabulary: Vocabulary, sources: Sequence[EvidenceSource]) -> Attributes:
    """The attributes of each call; the best sources come first."""
    table = trace.communications
    claims = [_claim(trace, vocabulary, source) for source in sources]
    statements = [claim.statement for claim in claims]
    columns = _columns(table, statements)
    operation, substituted = _operation(vocabulary, claims)
    if substituted.any():
        requested = [np.where(claim.requested, claim.statement, UNKNOWN) for claim in claims]
        for name in COUNTS:
            value = _from_first(table, (name,), requested)[name]
            columns[name] = np.where(substituted & (value != UNKNOWN), value, columns[name])
    columns["operation"] = operation
    messages = np.isin(operation, [vocabulary.strings.find(name.value) for name in POINT_TO_POINT])
    columns["point_to_point"] |= messages & (columns["sequence"] == UNKNOWN)
    closing = operation == vocabulary.strings.find(Operation.COALESCED.value)
    # the end of a group of messages is numbered as if it were a collective
    columns["sequence"][closing & ~columns["point_to_point"]] = UNKNOWN
    return Attributes(columns, _contradictions(vocabulary, claims, columns, table))


def _claim(trace: RankTrace, vocabulary: Vocabulary, source: EvidenceSource) -> _Claim:
    table, events = trace.communications, trace.events
    present = source.rows != UNKNOWN
    statement = lookup(table.row, source.rows)
    operation = declared_operations(trace, vocabulary, source.rows)
    name_codes = values_at(events.name, source.rows)
    recorded = name_codes == vocabulary.strings.find(RECORD_OPERATOR)
    from_name = (operation == UNKNOWN) | (operation == name_codes)
    operation = vocabulary.operations(np.where((operation == UNKNOWN) & ~recorded, name_codes, operation))
    known = vocabulary.are_known(operation)
    kind = values_at(events.kind, source.rows, EventKind.OTHER)
    requested = known & present & ~recorded & ((kind == EventKind.OPERATOR) | (kind == EventKind.NODE))
    binding = known & (statement != UNKNOWN) & ((kind != EventKind.KERNEL) | ~from_name)
    return _Claim(source, statement, operation, known, requested, binding)


def _columns(table: Communications, statements: Sequence[Int64s]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    columns |= _from_first(table, NUMBERED, statements, table.sequence != UNKNOWN)
    columns |= _from_first(table, PEERS, statements, (table.source != UNKNOWN) | (table.target != UNKNOWN))
    for name in INDEPENDENT:
        columns |= _from_first(table, (name,), statements)
    return columns


def _from_first(
    table: Communications, names: Sequence[str], statements: Sequence[Int64s], usable: Bools | None = None
) -> dict[str, Any]:
    """Columns from the first statement with a usable value; several names come from one statement."""
    statement = statements[0]
    if len(statements) > 1:
        usable = getattr(table, names[0]) != UNKNOWN if usable is None else usable
        statement = np.where(values_at(usable, statement, False), statement, UNKNOWN)
        for further in statements[1:]:
            statement = np.where(
                (statement == UNKNOWN) & values_at(usable, further, False), further, statement
            )
    return {name: values_at(getattr(table, name), statement, table.unknown(name)) for name in names}


def _operation(vocabulary: Vocabulary, claims: Sequence[_Claim]) -> tuple[Int32s, Bools]:
    """The first known operation, else any; and whether it is the requested one, for which the backend substituted."""
    operation = _first([claim.operation for claim in claims], [claim.known for claim in claims])
    requested = _first([claim.operation for claim in claims], [claim.requested for claim in claims])
    substituted = _among(vocabulary, requested, operation, SUBSTITUTES)
    operation = np.where(substituted, requested, operation)
    any_operation = _first(
        [claim.operation for claim in claims], [claim.operation != UNKNOWN for claim in claims]
    )
    return np.where(operation == UNKNOWN, any_operation, operation).astype(np.int32), substituted


def _first(values: Sequence[Int32s], usable: Sequence[Bools]) -> Int32s:
    found = np.where(usable[0], values[0], UNKNOWN)
    for value, use in zip(values[1:], usable[1:], strict=True):
        found = np.where((found == UNKNOWN) & use, value, found)
    return found.astype(np.int32)


def _among(vocabulary: Vocabulary, first: Int32s, second: Int32s, pairs: set[tuple[str, str]]) -> Bools:
    """True for two operations that are one of `pairs`."""
    found = np.zeros(len(first), np.bool_)
    for one_name, other_name in pairs:
        codes = vocabulary.strings.find(one_name), vocabulary.strings.find(other_name)
        if UNKNOWN not in codes:
            found |= (first == codes[0]) & (second == codes[1])
    return found


def _contradictions(
    vocabulary: Vocabulary, claims: Sequence[_Claim], columns: dict[str, Any], table: Communications
) -> list[Finding]:
    """One finding for each of operation, group and sequence with different values in different sources."""
    findings = []
    for name in ("operation", "group", "sequence"):
        disputed = np.zeros(len(columns["operation"]), np.bool_)
        example = ""
        for claim in claims if len(claims) > 1 else ():
            differs, value = _differs(vocabulary, claim, columns, table, name)
            if differs.any() and not example:
                example = _example(
                    vocabulary, columns, name, int(np.flatnonzero(differs)[0]), value, claim.source
                )
            disputed |= differs
        if count := int(np.count_nonzero(disputed)):
            message = (
                f"{count} communications have a different {name} in different sources; "
                "the flight recorder is used, else the execution trace."
            )
            findings.append(
                Finding(Severity.WARNING, "communication_contradiction", message, count, example=example)
            )
    return findings


def _differs(
    vocabulary: Vocabulary, claim: _Claim, columns: dict[str, Any], table: Communications, name: str
) -> tuple[Bools, Any]:
    chosen = columns[name]
    if name == "operation":
        value: Any = claim.operation
        differs = claim.binding & (value != chosen) & (chosen != UNKNOWN)
        if not differs.any():
            return differs, value
        differs &= ~_among(vocabulary, chosen, value, SUBSTITUTES | PARTS)
        return differs & ~_among(vocabulary, value, chosen, SUBSTITUTES | PARTS), value
    value = values_at(getattr(table, name), claim.statement)
    differs = (value != UNKNOWN) & (value != chosen)
    if name == "group" and differs.any():
        differs &= ~vocabulary.matches(COMMUNICATOR, value)
    if name == "sequence":
        differs &= values_at(table.point_to_point, claim.statement, False) == columns["point_to_point"]
    return differs, value


def _example(
    vocabulary: Vocabulary, columns: dict[str, Any], name: str, row: int, value: Any, source: EvidenceSource
) -> str:
    def name_of(code: int) -> str:
        return str(code) if name == "sequence" else vocabulary.strings.texts()[code]

    return f"{name_of(int(value[row]))} in the {source.name}, elsewhere {name_of(int(columns[name][row]))}"
