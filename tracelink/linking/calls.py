"""Calls: all that is known of each communication of a rank, joined into one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.communications import Calls
from tracelink.events import Edges, EventKind, Int64s
from tracelink.findings import Finding
from tracelink.linking.calls_aligned import by_order
from tracelink.linking.calls_annotation import Pairing, pair_annotations
from tracelink.linking.calls_attributes import Attributes, Witness, attributes_of
from tracelink.linking.calls_coalesced import closed_by_annotations, without_closings
from tracelink.linking.calls_draft import Draft
from tracelink.linking.calls_numbered import by_number
from tracelink.linking.calls_parts import Parts, issued_calls, lone_calls, parts_of
from tracelink.linking.calls_report import reports_of
from tracelink.linking.calls_times import in_order, times_of
from tracelink.linking.communicating import Words, chains
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.linking.report import LinkReport
from tracelink.trace import RankTrace


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
        without = np.flatnonzero(draft.record == NONE)
        draft.record[without] = by_number(trace.communications, left, told, without)
        draft.record = by_order(trace, words, parts.records, told, draft)
        left = left[~np.isin(left, draft.record)]
    return Draft.concatenate([draft, Draft.of(len(left), record=left)])


def _with_annotations(trace: RankTrace, words: Words, parts: Parts, draft: Draft) -> tuple[Draft, Pairing]:
    """Annotations that run on threads of their own join the call that they do the work of."""
    left = parts.annotations[~np.isin(parts.annotations, draft.annotation)]
    left = left[values_at(parts.annotated, lookup(parts.annotations, left)) == NONE]
    if not len(left):
        return draft, Pairing.none()
    told = _attributes(trace, words, parts, draft).columns
    pairing = pair_annotations(trace, words, draft, told, left)
    paired = pairing.call != NONE
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
    return [values_at(values_at(operators.rows, level, NONE), draft.issuer) for level in levels]


def _nodes_around(parts: Parts, draft: Draft) -> list[Int64s]:
    """The nodes around the node of a call that no profile saw."""
    nodes = parts.nodes
    levels = chains(nodes.unseen, nodes.parent)
    place = lookup(nodes.rows[levels[0]], draft.node)
    return [values_at(values_at(nodes.rows, level, NONE), place) for level in levels[1:]]
