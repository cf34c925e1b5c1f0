"""Calls: one row for each communication of a rank, with everything that its sources contain about it.

Events in (operators, nodes, annotations, kernels, recorder entries), linked by edges; `Calls` out, in the order
in which the rank requested them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._link.call_events import (
    OF_CPU,
    CallEvents,
    Draft,
    Vocabulary,
    call_events,
    chains,
    issued_calls,
    unissued_calls,
)
from tracelink._link.call_evidence import (
    AnnotationPairing,
    Attributes,
    EvidenceSource,
    attributes_of,
    pair_annotations,
    records_by_order,
)
from tracelink._link.launch import of_sources_with_hosts
from tracelink._link.same import profiled, records_by_number
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, lookup, values_at
from tracelink._model.communications import Calls, Evidence
from tracelink._model.events import Edges, EventKind, Key
from tracelink._model.findings import Finding
from tracelink._model.graph import LinkReport, nonzero
from tracelink._model.trace import RankTrace

CLOSING = re.compile(r"(^|:)(coalesced|[A-Z_]+_coalesced)$")


class LinkedCalls(Struct, frozen=True):
    """The calls of a rank, with reports on their parts and findings on contradictions."""

    calls: Calls
    reports: Sequence[LinkReport]
    findings: Sequence[Finding]


def calls_of(trace: RankTrace, edges: Edges) -> LinkedCalls:
    """A row for each communication, in the order in which the rank requested them."""
    vocabulary = Vocabulary(trace.strings)
    if (trace.events.kind == EventKind.RECORD).all():
        return _recorded_alone(trace, vocabulary)
    parts = call_events(trace, vocabulary, edges)
    draft = Draft.concatenate(
        [issued_calls(trace, vocabulary, parts), unissued_calls(trace, vocabulary, parts)]
    )
    draft = _closed_by_annotations(trace, vocabulary, draft)
    draft = _with_records(trace, vocabulary, parts, draft)
    draft, pairing = _with_annotations(trace, vocabulary, parts, draft)
    draft, closed_by = _without_closing_calls(trace, vocabulary, parts.records, draft)
    attributes = _attributes(trace, vocabulary, parts, draft)
    calls = _calls(trace, vocabulary, draft, closed_by, attributes)
    return LinkedCalls(calls, _reports_of(trace, parts, calls, pairing), attributes.findings)


def _recorded_alone(trace: RankTrace, vocabulary: Vocabulary) -> LinkedCalls:
    """Recorder entries without a profile are calls as they are, without any joining: there can be very many."""
    records = np.arange(len(trace.events))
    draft, closed_by = _without_closing_calls(
        trace, vocabulary, records, Draft.of(len(records), record=records)
    )
    attributes = attributes_of(trace, vocabulary, [EvidenceSource("flight recorder", draft.record)])
    return LinkedCalls(_calls(trace, vocabulary, draft, closed_by, attributes), (), attributes.findings)


def _calls(
    trace: RankTrace, vocabulary: Vocabulary, draft: Draft, closed_by: Int64s, attributes: Attributes
) -> Calls:
    calls = Calls.of(
        len(draft),
        record=draft.record,
        operator=draft.operator,
        annotation=draft.annotation,
        node=draft.node,
        kernel=draft.kernel,
        **attributes.columns,
        **_times_of(trace, vocabulary, draft, closed_by),
    )
    return _sorted_calls(trace, calls)


def _with_records(trace: RankTrace, vocabulary: Vocabulary, parts: CallEvents, draft: Draft) -> Draft:
    """Records without an operator join the call with their number, else the call at their position in order.

    The remaining ones are calls of their own.
    """
    left = parts.records[~np.isin(parts.records, draft.record)] if len(draft) else parts.records
    if len(left) and len(draft):
        attributes = _attributes(trace, vocabulary, parts, draft).columns
        without = np.flatnonzero(draft.record == UNKNOWN)
        draft.record[without] = records_by_number(trace.communications, left, attributes, without)
        draft = replace(draft, record=records_by_order(trace, vocabulary, parts.records, attributes, draft))
        left = left[~np.isin(left, draft.record)]
    return Draft.concatenate([draft, Draft.of(len(left), record=left)])


def _with_annotations(
    trace: RankTrace, vocabulary: Vocabulary, parts: CallEvents, draft: Draft
) -> tuple[Draft, AnnotationPairing]:
    """Annotations on threads of a backend join the call that issued their work; others are calls of their own."""
    left = parts.annotations[~np.isin(parts.annotations, draft.annotation)]
    left = left[values_at(parts.annotated, lookup(parts.annotations, left)) == UNKNOWN]
    if not len(left):
        return draft, AnnotationPairing.empty()
    attributes = _attributes(trace, vocabulary, parts, draft).columns
    pairing = pair_annotations(trace, vocabulary, draft, attributes, left)
    match_keys = pairing.call != UNKNOWN
    draft.annotation[pairing.call[match_keys]] = left[match_keys]
    alone = left[~match_keys]
    return Draft.concatenate([draft, Draft.of(len(alone), annotation=alone)]), pairing


def _attributes(trace: RankTrace, vocabulary: Vocabulary, parts: CallEvents, draft: Draft) -> Attributes:
    operators, nodes = _operators_around(parts, draft), _nodes_around(parts, draft)
    sources = [
        EvidenceSource("flight recorder", draft.record),
        EvidenceSource("execution trace", draft.node),
        EvidenceSource("profile", draft.operator),
        EvidenceSource("kernel", draft.kernel),
    ]
    for around in operators:
        sources += [
            EvidenceSource("execution trace", parts.nodes.of(around)),
            EvidenceSource("profile", around),
        ]
    sources += [EvidenceSource("execution trace", around) for around in nodes]
    sources += [EvidenceSource("NCCL call", draft.library), EvidenceSource("annotation", draft.annotation)]
    attributes = attributes_of(trace, vocabulary, sources)
    if len(parts.library.rows):
        from tracelink._link.library_calls import sum_sent

        sum_sent(trace, parts, draft.library, draft.issuer, attributes.columns)
    return attributes


def _operators_around(parts: CallEvents, draft: Draft) -> list[Int64s]:
    """The operators around each call's own, from the inside out, while they enclose no other call."""
    operators = parts.operators
    levels = chains(np.flatnonzero(operators.innermost), operators.parent)[1:]
    return [values_at(values_at(operators.rows, level, UNKNOWN), draft.issuer) for level in levels]


def _nodes_around(parts: CallEvents, draft: Draft) -> list[Int64s]:
    """The nodes around the node of each call that is not in a profile."""
    nodes = parts.nodes
    levels = chains(nodes.unprofiled, nodes.parent)
    index = lookup(nodes.rows[levels[0]], draft.node)
    return [values_at(values_at(nodes.rows, level, UNKNOWN), index) for level in levels[1:]]


# Coalesced calls: the end of a group has the state and the kernels of its members.


def _without_closing_calls(
    trace: RankTrace, vocabulary: Vocabulary, records: Int64s, draft: Draft
) -> tuple[Draft, Int64s]:
    """Calls without those that only close a group, and for each call the entry that closes its group, or UNKNOWN."""
    redundant, closing = _closings(trace, vocabulary, records)
    if not redundant.any():
        return draft, np.full(len(draft), UNKNOWN, np.int64)
    index = lookup(records, draft.record)
    drop = values_at(redundant, index, False)
    closing_calls, draft = draft.take(drop), draft.take(~drop)
    closed_by = values_at(closing, index[~drop])
    closing_call = lookup(closing_calls.record, closed_by)
    without_kernel = np.flatnonzero((closing_call != UNKNOWN) & (draft.kernel == UNKNOWN))
    draft.kernel[without_kernel] = closing_calls.kernel[closing_call[without_kernel]]
    draft.kernels_end[without_kernel] = closing_calls.kernels_end[closing_call[without_kernel]]
    return draft, closed_by


def _closings(trace: RankTrace, vocabulary: Vocabulary, records: Int64s) -> tuple[Bools, Int64s]:
    """The records that close a group with other members, and for each record the one that closes its group."""
    closes = vocabulary.matches(CLOSING, trace.events.name[records])
    if not closes.any():
        return closes, np.full(len(records), UNKNOWN, np.int64)
    number = _both_numbers(trace, records)
    closing = np.flatnonzero(closes)
    found = values_at(records[closing], lookup(number[closing], number))
    member = (found != UNKNOWN) & ~closes & (number != UNKNOWN)
    return closes & np.isin(number, number[member]), np.where(member, found, UNKNOWN)


def _both_numbers(trace: RankTrace, records: Int64s) -> Int64s:
    """One value for all members of a coalesced group.

    The closing entry of messages is not marked as a message: only the numbers of collectives and of messages
    together identify its group.
    """
    number = np.zeros(len(records), np.int64)
    known = np.zeros(len(records), np.bool_)
    for key in (Key.GROUP, Key.COLLECTIVE_SEQUENCE, Key.P2P_SEQUENCE):
        column = trace.key(key)
        values = values_at(column.values, lookup(column.rows, records), UNKNOWN)
        distinct, code = np.unique(values, return_inverse=True)
        number = number * len(distinct) + code
        known |= (values != UNKNOWN) & (key != Key.GROUP)
    return np.where(known, number, UNKNOWN)


def _closed_by_annotations(trace: RankTrace, vocabulary: Vocabulary, draft: Draft) -> Draft:
    """Calls without annotations that only close a group; the members get the kernels that these launched."""
    events = trace.events
    unissued = (draft.annotation != UNKNOWN) & (draft.operator == UNKNOWN) & (draft.record == UNKNOWN)
    closing_calls = np.flatnonzero(
        unissued & vocabulary.matches(CLOSING, values_at(events.name, draft.annotation))
    )
    if not len(closing_calls):
        return draft
    issued = np.flatnonzero(draft.operator != UNKNOWN)
    starts, tracks = events.start[draft.operator[issued]], events.track[draft.operator[issued]]
    issued = issued[np.lexsort((starts, tracks))]
    keep = np.ones(len(draft), np.bool_)
    for closing in closing_calls[
        np.argsort(events.start[draft.annotation[closing_calls]], kind="stable")
    ].tolist():
        members = _members(trace, draft, issued, closing)
        draft.kernel[members] = draft.kernel[closing]
        draft.kernels_end[members] = draft.kernels_end[closing]
        unnamed = members[draft.annotation[members] == UNKNOWN]
        draft.annotation[unnamed] = draft.annotation[closing]
        keep[closing] = not len(members)
    return draft.take(keep)


def _members(trace: RankTrace, draft: Draft, issued: Int64s, closing: int) -> Int64s:
    """The preceding calls on the same thread without a kernel; a call with a kernel was issued by itself.

    Without recorded kernels only messages can be recognised as members: they have no annotation.
    """
    events, annotation = trace.events, draft.annotation[closing]
    operators = draft.operator[issued]
    on_thread = issued[events.track[operators] == events.track[annotation]]
    on_thread = on_thread[
        : np.searchsorted(events.start[draft.operator[on_thread]], events.start[annotation])
    ]
    complete = draft.kernel[on_thread] != UNKNOWN
    if draft.kernel[closing] == UNKNOWN:
        complete |= draft.annotation[on_thread] != UNKNOWN
    last = np.flatnonzero(complete)
    members: Int64s = on_thread[last[-1] + 1 if len(last) else 0 :]
    return members


# Times of calls (requested, started, ended), the evidence for them, and the order that follows.


def _times_of(trace: RankTrace, vocabulary: Vocabulary, draft: Draft, closed_by: Int64s) -> dict[str, Any]:
    """The columns `enqueued`, `start`, `end`, `evidence` and `state`."""
    events = trace.events
    works_inside = vocabulary.matches(OF_CPU, values_at(events.name, draft.annotation))
    created = values_at(events.start, draft.record, NO_TIME)
    requested = np.where(draft.operator != UNKNOWN, draft.operator, draft.annotation)
    requested[works_inside & (draft.operator == UNKNOWN)] = UNKNOWN
    enqueued = np.where(created != NO_TIME, created, values_at(events.start, requested, NO_TIME))
    closing = np.where(closed_by != UNKNOWN, closed_by, draft.record)
    state = trace.key(Key.STATE)
    known = values_at(state.values, lookup(state.rows, closing)).astype(np.int32)
    columns: dict[str, Any] = {"enqueued": enqueued, "state": known}
    closed = values_at(events.start, closing, NO_TIME)
    duration = values_at(events.duration, closing, UNKNOWN)
    completed = (duration >= 0) & (closed != NO_TIME)
    evidence = np.where(completed, np.int32(Evidence.RECORDER), np.int32(Evidence.NONE))
    entered, left = np.full(len(draft), NO_TIME, np.int64), np.where(completed, closed + duration, NO_TIME)
    work = draft.annotation[works_inside]
    duration_of_work = events.duration[work]
    entered[works_inside] = events.start[work]
    left[works_inside] = np.where(duration_of_work >= 0, events.start[work] + duration_of_work, NO_TIME)
    evidence[works_inside] = Evidence.ANNOTATION
    on_device = draft.kernel != UNKNOWN
    entered[on_device], left[on_device] = events.start[draft.kernel[on_device]], draft.kernels_end[on_device]
    evidence[on_device] = Evidence.KERNEL
    return columns | {"start": entered, "end": left, "evidence": evidence}


def _sorted_calls(trace: RankTrace, calls: Calls) -> Calls:
    """By time of request, else start or end; calls without times by node id, else by number."""
    time = calls.enqueued
    for other in (calls.start, calls.end):
        time = np.where(time == NO_TIME, other, time)
    timed = time != NO_TIME
    if timed.all():
        return calls if np.all(np.diff(time) >= 0) else calls.take(np.argsort(time, kind="stable"))
    identity = trace.key(Key.NODE_ID)
    node = values_at(identity.values, lookup(identity.rows, calls.node))
    time = np.where(timed, time, _time_by_node(node, time, timed))
    return calls.take(np.lexsort((calls.sequence, node, ~timed, time)))


def _time_by_node(node: Int64s, time: Int64s, timed: Any) -> Int64s:
    """The time of the last timed call with a smaller node id: ids count operators as they start."""
    known = np.flatnonzero(timed & (node != UNKNOWN))
    known = known[np.argsort(node[known], kind="stable")]
    latest = np.maximum.accumulate(time[known]) if len(known) else np.empty(0, np.int64)
    before = np.searchsorted(node[known], node) - 1
    return np.where((before == UNKNOWN) | (node == UNKNOWN), NO_TIME, values_at(latest, before, NO_TIME))


# Reports on how the events of calls were joined.


def _reports_of(
    trace: RankTrace, parts: CallEvents, calls: Calls, pairing: AnnotationPairing
) -> list[LinkReport]:
    """One report for each kind of event that calls have."""
    reports = [
        _operators(parts, calls),
        _records(trace, parts, calls),
        _annotations(parts, calls, pairing),
        _kernels(trace, parts, calls),
        _nodes(parts, calls),
    ]
    return [report for report in reports if report.candidates]


def _operators(parts: CallEvents, calls: Calls) -> LinkReport:
    inner = int(np.count_nonzero(parts.operators.innermost))
    linked = _distinct(calls.operator)
    notes = {
        "operators that enclose others": len(parts.operators.rows) - inner,
        "operators that move no data": parts.waits + inner - linked,
    }
    return LinkReport("communication.operator", linked, linked, notes=nonzero(notes))


def _records(trace: RankTrace, parts: CallEvents, calls: Calls) -> LinkReport:
    """Candidates are the entries of the profiled time, and those with another event."""
    recorded = calls.take(calls.record != UNKNOWN)
    joined = np.zeros(len(recorded), np.bool_)
    for column in (recorded.operator, recorded.annotation, recorded.node, recorded.kernel):
        joined |= column != UNKNOWN
    alone = recorded.record[~joined]
    missing = int(np.count_nonzero(profiled(trace, trace.events.start[alone])))
    notes = {
        "entries without any other event": len(alone) - missing,
        "entries that only close a group": len(parts.records) - len(recorded),
    }
    linked = int(np.count_nonzero(joined))
    unlinked = {"no other event, although it is in the profiled time": missing}
    return LinkReport(
        "communication.recorder",
        linked,
        linked + missing,
        nonzero(unlinked),
        nonzero(notes) if linked else {},
    )


def _annotations(parts: CallEvents, calls: Calls, pairing: AnnotationPairing) -> LinkReport:
    total = len(parts.annotations)
    present = np.isin(calls.annotation, parts.annotations)
    unissued = int(np.count_nonzero(present & (calls.operator == UNKNOWN) & (calls.record == UNKNOWN)))
    further = total - _distinct(calls.annotation[present])
    unlinked = {"no profiled operator issued it": unissued}
    notes = {
        "further annotations of the same operator": further,
        "on other threads, by record-function id": pairing.by_identity,
        "on other threads, by order": pairing.by_order,
    }
    return LinkReport("communication.annotation", total - unissued, total, nonzero(unlinked), nonzero(notes))


def _kernels(trace: RankTrace, parts: CallEvents, calls: Calls) -> LinkReport:
    with_hosts = of_sources_with_hosts(trace)
    unissued = (calls.kernel != UNKNOWN) & (calls.operator == UNKNOWN) & (calls.annotation == UNKNOWN)
    unissued &= values_at(with_hosts, calls.kernel, False)
    index = lookup(parts.kernels, np.unique(calls.kernel[unissued]))
    unlaunched = int(np.count_nonzero(parts.launches[index] == UNKNOWN))
    unlinked = {
        "launched outside the recording": unlaunched,
        "no communication operator launched it": len(index) - unlaunched,
    }
    total = int(np.count_nonzero(with_hosts[parts.kernels]))
    return LinkReport("communication.kernel", total - len(index), total, nonzero(unlinked))


def _nodes(parts: CallEvents, calls: Calls) -> LinkReport:
    """Candidates are the operators, if there is an execution trace."""
    issued = calls.operator != UNKNOWN
    candidates = _distinct(calls.operator) if len(parts.nodes.rows) else 0
    linked = _distinct(calls.operator[issued & (calls.node != UNKNOWN)])
    unlinked = {"no execution-trace node for its operator": candidates - linked}
    unprofiled = _distinct(calls.node[~issued])
    return LinkReport(
        "communication.node",
        linked,
        candidates,
        nonzero(unlinked),
        nonzero({"nodes that are not in the profile": unprofiled}),
    )


def _distinct(rows: Int64s) -> int:
    return len(np.unique(rows[rows != UNKNOWN]))
