"""One row for each communication of a rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.errors import Finding
from tracelink.linking.call_evidence import (
    Attributes,
    Pairing,
    Witness,
    attributes_of,
    by_order,
    pair_annotations,
)
from tracelink.linking.communicating import (
    OF_CPU,
    Draft,
    Parts,
    Words,
    chains,
    issued_calls,
    lone_calls,
    parts_of,
)
from tracelink.linking.recorder import by_number, profiled
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s, lookup, values_at
from tracelink.model.communications import Calls, Evidence
from tracelink.model.events import Edges, EventKind, Key
from tracelink.model.graph import LinkReport
from tracelink.model.trace import RankTrace

# Operations that were issued as one: what closes the group has the state and the kernels that its members lack.


CLOSING = re.compile(r"(^|:)(coalesced|[A-Z_]+_coalesced)$")


def without_closings(trace: RankTrace, words: Words, records: Int64s, draft: Draft) -> tuple[Draft, Int64s]:
    """Calls without entries that only close a group, and for each the entry that closes its group, or UNKNOWN."""
    redundant, closing = _closings(trace, words, records)
    if not redundant.any():
        return draft, np.full(len(draft), UNKNOWN, np.int64)
    place = lookup(records, draft.record)
    drop = values_at(redundant, place, False)
    closing_calls, draft = draft.take(drop), draft.take(~drop)
    closed_by = values_at(closing, place[~drop])
    theirs = lookup(closing_calls.record, closed_by)
    lacking = np.flatnonzero((theirs != UNKNOWN) & (draft.kernel == UNKNOWN))
    draft.kernel[lacking] = closing_calls.kernel[theirs[lacking]]
    draft.kernels_end[lacking] = closing_calls.kernels_end[theirs[lacking]]
    return draft, closed_by


def _closings(trace: RankTrace, words: Words, records: Int64s) -> tuple[Bools, Int64s]:
    """Which records close a group that has other members, and for each record the one that closes its group."""
    closes = words.matching(CLOSING, trace.events.name[records])
    if not closes.any():
        return closes, np.full(len(records), UNKNOWN, np.int64)
    number = _both_numbers(trace, records)
    closing = np.flatnonzero(closes)
    found = values_at(records[closing], lookup(number[closing], number))
    member = (found != UNKNOWN) & ~closes & (number != UNKNOWN)
    return closes & np.isin(number, number[member]), np.where(member, found, UNKNOWN)


def _both_numbers(trace: RankTrace, records: Int64s) -> Int64s:
    """One value for what all of a group have in common, and no others.

    The closing entry is not marked as one of messages where its members are: only the number of collectives and
    that of messages together tell whose it is.
    """
    number = np.zeros(len(records), np.int64)
    known = np.zeros(len(records), np.bool_)
    for key in (Key.GROUP, Key.COLLECTIVE_SEQUENCE, Key.P2P_SEQUENCE):
        column = trace.key(key)
        values = values_at(column.values, lookup(column.rows, records), UNKNOWN)
        distinct, place = np.unique(values, return_inverse=True)
        number = number * len(distinct) + place
        known |= (values != UNKNOWN) & (key != Key.GROUP)
    return np.where(known, number, UNKNOWN)


def closed_by_annotations(trace: RankTrace, words: Words, draft: Draft) -> Draft:
    """Calls without annotations that only close a group; its members get the kernels that were launched then."""
    events = trace.events
    alone = (draft.annotation != UNKNOWN) & (draft.operator == UNKNOWN) & (draft.record == UNKNOWN)
    closes = np.flatnonzero(alone & words.matching(CLOSING, values_at(events.name, draft.annotation)))
    if not len(closes):
        return draft
    issued = np.flatnonzero(draft.operator != UNKNOWN)
    starts, tracks = events.start[draft.operator[issued]], events.track[draft.operator[issued]]
    issued = issued[np.lexsort((starts, tracks))]
    keep = np.ones(len(draft), np.bool_)
    for closing in closes[np.argsort(events.start[draft.annotation[closes]], kind="stable")].tolist():
        members = _members(trace, draft, issued, closing)
        draft.kernel[members] = draft.kernel[closing]
        draft.kernels_end[members] = draft.kernels_end[closing]
        unnamed = members[draft.annotation[members] == UNKNOWN]
        draft.annotation[unnamed] = draft.annotation[closing]
        keep[closing] = not len(members)
    return draft.take(keep)


def _members(trace: RankTrace, draft: Draft, issued: Int64s, closing: int) -> Int64s:
    """The calls just before on the same thread that launched nothing; what has a kernel was issued alone.

    Where no kernels were recorded at all, only messages can be told: as members they have no annotation.
    """
    events, annotation = trace.events, draft.annotation[closing]
    operators = draft.operator[issued]
    here = issued[events.track[operators] == events.track[annotation]]
    here = here[: np.searchsorted(events.start[draft.operator[here]], events.start[annotation])]
    alone = draft.kernel[here] != UNKNOWN
    if draft.kernel[closing] == UNKNOWN:
        alone |= draft.annotation[here] != UNKNOWN
    last = np.flatnonzero(alone)
    members: Int64s = here[last[-1] + 1 if len(last) else 0 :]
    return members


# How the parts of calls were joined.


def reports_of(trace: RankTrace, parts: Parts, calls: Calls, pairing: Pairing) -> list[LinkReport]:
    """One report for each part that a call can have beside its operator."""
    reports = [
        _operators(parts, calls),
        _records(trace, parts, calls),
        _annotations(parts, calls, pairing),
        _kernels(parts, calls),
        _nodes(parts, calls),
    ]
    return [report for report in reports if report.candidates]


def _operators(parts: Parts, calls: Calls) -> LinkReport:
    inner = int(np.count_nonzero(parts.operators.innermost))
    linked = _distinct(calls.operator)
    notes = {
        "operators around others": len(parts.operators.rows) - inner,
        "operators that move no data": parts.waits + inner - linked,
    }
    return LinkReport("communication.operator", linked, linked, notes=_counts(notes))


def _records(trace: RankTrace, parts: Parts, calls: Calls) -> LinkReport:
    """Candidates are the entries from the profiled time, and those that something else tells of."""
    recorded = calls.take(calls.record != UNKNOWN)
    joined = np.zeros(len(recorded), np.bool_)
    for column in (recorded.operator, recorded.annotation, recorded.node, recorded.kernel):
        joined |= column != UNKNOWN
    alone = recorded.record[~joined]
    missing = int(np.count_nonzero(profiled(trace, trace.events.start[alone])))
    notes = {
        "entries that nothing else tells of": len(alone) - missing,
        "entries that only close a group": len(parts.records) - len(recorded),
    }
    linked = int(np.count_nonzero(joined))
    unlinked = {"nothing else tells of it, though it is from the profiled time": missing}
    return LinkReport(
        "communication.recorder",
        linked,
        linked + missing,
        _counts(unlinked),
        _counts(notes) if linked else {},
    )


def _annotations(parts: Parts, calls: Calls, pairing: Pairing) -> LinkReport:
    total = len(parts.annotations)
    there = calls.annotation != UNKNOWN
    alone = int(np.count_nonzero(there & (calls.operator == UNKNOWN) & (calls.record == UNKNOWN)))
    further = total - _distinct(calls.annotation)
    unlinked = {"no operator of the profile issued it": alone}
    notes = {
        "further annotations of the same operator": further,
        "on other threads, by record-function id": pairing.by_identity,
        "on other threads, by order": pairing.by_order,
    }
    return LinkReport("communication.annotation", total - alone, total, _counts(unlinked), _counts(notes))


def _kernels(parts: Parts, calls: Calls) -> LinkReport:
    lone = (calls.kernel != UNKNOWN) & (calls.operator == UNKNOWN) & (calls.annotation == UNKNOWN)
    place = lookup(parts.kernels, np.unique(calls.kernel[lone]))
    unlaunched = int(np.count_nonzero(parts.launches[place] == UNKNOWN))
    unlinked = {
        "launched outside the recording": unlaunched,
        "no operator that communicates launched it": len(place) - unlaunched,
    }
    total = len(parts.kernels)
    return LinkReport("communication.kernel", total - len(place), total, _counts(unlinked))


def _nodes(parts: Parts, calls: Calls) -> LinkReport:
    """Candidates are the operators, where there is an execution trace at all."""
    issued = calls.operator != UNKNOWN
    candidates = _distinct(calls.operator) if len(parts.nodes.rows) else 0
    linked = _distinct(calls.operator[issued & (calls.node != UNKNOWN)])
    unlinked = {"no node of the execution trace is the same as its operator": candidates - linked}
    alone = _distinct(calls.node[~issued])
    return LinkReport(
        "communication.node",
        linked,
        candidates,
        _counts(unlinked),
        _counts({"nodes that the profile does not have": alone}),
    )


def _distinct(rows: Int64s) -> int:
    return len(np.unique(rows[rows != UNKNOWN]))


def _counts(counts: dict[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if count}


# When calls were asked for, entered and left, what that rests on, and the order that follows.


def times_of(trace: RankTrace, words: Words, draft: Draft, closed_by: Int64s) -> dict[str, Any]:
    """The columns `enqueued`, `start`, `end`, `evidence` and `state`."""
    events = trace.events
    working = words.matching(OF_CPU, values_at(events.name, draft.annotation))
    created = values_at(events.start, draft.record, NO_TIME)
    asked = np.where(draft.operator != UNKNOWN, draft.operator, draft.annotation)
    asked[working & (draft.operator == UNKNOWN)] = UNKNOWN
    enqueued = np.where(created != NO_TIME, created, values_at(events.start, asked, NO_TIME))
    closing = np.where(closed_by != UNKNOWN, closed_by, draft.record)
    state = trace.key(Key.STATE)
    known = values_at(state.values, lookup(state.rows, closing)).astype(np.int32)
    columns: dict[str, Any] = {"enqueued": enqueued, "state": known}
    closed = values_at(events.start, closing, NO_TIME)
    duration = values_at(events.duration, closing, UNKNOWN)
    completed = (duration >= 0) & (closed != NO_TIME)
    evidence = np.where(completed, np.int32(Evidence.RECORDER), np.int32(Evidence.NONE))
    entered, left = np.full(len(draft), NO_TIME, np.int64), np.where(completed, closed + duration, NO_TIME)
    work = draft.annotation[working]
    lasted = events.duration[work]
    entered[working] = events.start[work]
    left[working] = np.where(lasted >= 0, events.start[work] + lasted, NO_TIME)
    evidence[working] = Evidence.ANNOTATION
    run = draft.kernel != UNKNOWN
    entered[run], left[run] = events.start[draft.kernel[run]], draft.kernels_end[run]
    evidence[run] = Evidence.KERNEL
    return columns | {"start": entered, "end": left, "evidence": evidence}


def in_order(trace: RankTrace, calls: Calls) -> Calls:
    """By the time they were asked for, else entered or left; what has none by its node, else by its number."""
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
    """The time of the last call before each whose node comes first: ids count up as operators begin."""
    known = np.flatnonzero(timed & (node != UNKNOWN))
    known = known[np.argsort(node[known], kind="stable")]
    latest = np.maximum.accumulate(time[known]) if len(known) else np.empty(0, np.int64)
    before = np.searchsorted(node[known], node) - 1
    return np.where((before == UNKNOWN) | (node == UNKNOWN), NO_TIME, values_at(latest, before, NO_TIME))


# Calls: all that is known of each communication of a rank, joined into one row.


@dataclass(frozen=True, slots=True)
class LinkedCalls:
    """The calls of a rank, with the reports on how they were joined and what did not fit."""

    calls: Calls
    reports: Sequence[LinkReport]
    findings: Sequence[Finding]


def calls_of(trace: RankTrace, edges: Edges) -> LinkedCalls:
    """A row for each communication, in the order in which the rank asked for them."""
    words = Words(trace.strings)
    if (trace.events.kind == EventKind.RECORD).all():
        return _recorded_alone(trace, words)
    parts = parts_of(trace, words, edges)
    draft = Draft.concatenate([issued_calls(trace, words, parts), lone_calls(trace, words, parts)])
    draft = closed_by_annotations(trace, words, draft)
    draft = _with_records(trace, words, parts, draft)
    draft, pairing = _with_annotations(trace, words, parts, draft)
    draft, closed_by = without_closings(trace, words, parts.records, draft)
    attributes = _attributes(trace, words, parts, draft)
    calls = _calls(trace, words, draft, closed_by, attributes)
    return LinkedCalls(calls, reports_of(trace, parts, calls, pairing), attributes.findings)


def _recorded_alone(trace: RankTrace, words: Words) -> LinkedCalls:
    """Entries of a recorder are calls as they are; there can be very many of them."""
    records = np.arange(len(trace.events))
    draft, closed_by = without_closings(trace, words, records, Draft.of(len(records), record=records))
    attributes = attributes_of(trace, words, [Witness("flight recorder", draft.record)])
    return LinkedCalls(_calls(trace, words, draft, closed_by, attributes), (), attributes.findings)


def _calls(trace: RankTrace, words: Words, draft: Draft, closed_by: Int64s, attributes: Attributes) -> Calls:
    calls = Calls.of(
        len(draft),
        record=draft.record,
        operator=draft.operator,
        annotation=draft.annotation,
        node=draft.node,
        kernel=draft.kernel,
        **attributes.columns,
        **times_of(trace, words, draft, closed_by),
    )
    return in_order(trace, calls)


def _with_records(trace: RankTrace, words: Words, parts: Parts, draft: Draft) -> Draft:
    """Records that no operator made join the call of the same number, else the node at the same place in order.

    What is left are calls of their own.
    """
    left = parts.records[~np.isin(parts.records, draft.record)] if len(draft) else parts.records
    if len(left) and len(draft):
        told = _attributes(trace, words, parts, draft).columns
        without = np.flatnonzero(draft.record == UNKNOWN)
        draft.record[without] = by_number(trace.communications, left, told, without)
        draft.record = by_order(trace, words, parts.records, told, draft)
        left = left[~np.isin(left, draft.record)]
    return Draft.concatenate([draft, Draft.of(len(left), record=left)])


def _with_annotations(trace: RankTrace, words: Words, parts: Parts, draft: Draft) -> tuple[Draft, Pairing]:
    """Annotations that run on threads of their own join the call that they do the work of."""
    left = parts.annotations[~np.isin(parts.annotations, draft.annotation)]
    left = left[values_at(parts.annotated, lookup(parts.annotations, left)) == UNKNOWN]
    if not len(left):
        return draft, Pairing.none()
    told = _attributes(trace, words, parts, draft).columns
    pairing = pair_annotations(trace, words, draft, told, left)
    paired = pairing.call != UNKNOWN
    draft.annotation[pairing.call[paired]] = left[paired]
    alone = left[~paired]
    return Draft.concatenate([draft, Draft.of(len(alone), annotation=alone)]), pairing


def _attributes(trace: RankTrace, words: Words, parts: Parts, draft: Draft) -> Attributes:
    operators, nodes = _operators_around(parts, draft), _nodes_around(parts, draft)
    witnesses = [
        Witness("flight recorder", draft.record),
        Witness("execution trace", draft.node),
        Witness("profile", draft.operator),
        Witness("kernel", draft.kernel),
    ]
    for around in operators:
        witnesses += [Witness("execution trace", parts.nodes.of(around)), Witness("profile", around)]
    witnesses += [Witness("execution trace", around) for around in nodes]
    return attributes_of(trace, words, [*witnesses, Witness("annotation", draft.annotation)])


def _operators_around(parts: Parts, draft: Draft) -> list[Int64s]:
    """The operators around each call's own, from the inside out, as long as they are around no other."""
    operators = parts.operators
    levels = chains(np.flatnonzero(operators.innermost), operators.parent)[1:]
    return [values_at(values_at(operators.rows, level, UNKNOWN), draft.issuer) for level in levels]


def _nodes_around(parts: Parts, draft: Draft) -> list[Int64s]:
    """The nodes around the node of a call that no profile saw."""
    nodes = parts.nodes
    levels = chains(nodes.unseen, nodes.parent)
    place = lookup(nodes.rows[levels[0]], draft.node)
    return [values_at(values_at(nodes.rows, level, UNKNOWN), place) for level in levels[1:]]
