"""The parts that calls are made of, and which of them one operator leads to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import GPU_WORK, Bools, Edges, EventKind, Int64s, Relation
from tracelink.linking.calls_draft import Draft, first_of_each, latest_of_each
from tracelink.linking.communicating import (
    FUNCTIONAL,
    OF_CPU,
    RECORDED,
    Nodes,
    Operators,
    Words,
    named,
    nodes_of,
    operators_of,
    spelled,
)
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.trace import RankTrace


@dataclass(frozen=True, slots=True)
class Parts:
    """What of a rank communicates, one column for each kind of event; kernels in order of start."""

    operators: Operators
    nodes: Nodes
    annotations: Int64s
    kernels: Int64s
    launches: Int64s
    """The runtime call that launched each kernel, or NONE."""
    records: Int64s
    recorded: Int64s
    """The operator that made each record, or NONE."""
    annotated: Int64s
    """The place, among innermost operators, of the one during which each annotation starts, or NONE."""
    launched: Int64s
    """The place, among innermost operators, of the one that launched each kernel, or NONE."""
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
    place = np.append(np.cumsum(operators.innermost) - 1, NONE)
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
    recorded = np.flatnonzero(made != NONE)
    draft = draft.take(np.concatenate([made[recorded], np.setdiff1d(np.arange(len(place)), made)]))
    draft.record[: len(recorded)] = parts.records[recorded]
    return draft.take(~_moves_nothing(trace, words, operators, draft))


def _owners(trace: RankTrace, kernels: Int64s, launched: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The operator of each call, and the call of each kernel, or NONE.

    There is one call for each of `count` operators. Of several messages that one operator put on a device, and whose
    work says itself what it sends, each is a call.
    """
    table = trace.communications
    said = lookup(table.row, kernels)
    names_other = (table.source != UNKNOWN) | (table.target != UNKNOWN)
    message = values_at(table.point_to_point & names_other, said, False) & (launched != NONE)
    messages = np.flatnonzero(message)
    first = np.unique(launched[messages], return_index=True)[1]
    further = np.delete(messages, first)
    owner = launched.copy()
    owner[further] = count + np.arange(len(further))
    return np.concatenate([np.arange(count), launched[further]]), owner


def _made_by(operators: Operators, recorded: Int64s) -> Int64s:
    """The place of the innermost operator that made each record, or NONE."""
    order = np.argsort(operators.rows)
    position = values_at(order, lookup(operators.rows[order], recorded))
    inner = np.flatnonzero(operators.innermost)
    return np.where(position == NONE, NONE, np.searchsorted(inner, position))


def _moves_nothing(trace: RankTrace, words: Words, operators: Operators, draft: Draft) -> Bools:
    """Whether an operator without any effect is not known to be a communication.

    `record_param_comms` alone, of which old profiles say nothing, waits for others; what is functional and calls
    no operator of a backend was traced by a compiler, and not run.
    """
    name = trace.events.name[draft.operator]
    position = np.flatnonzero(operators.innermost)[draft.issuer]
    unsaid = operators.parent[position] == NONE
    for rows in (draft.operator, draft.node):
        unsaid &= spelled(trace, words, rows) == UNKNOWN
    unknown = unsaid & (name == words.strings.find(RECORDED))
    effect = (draft.record != NONE) | (draft.kernel != NONE) | (draft.annotation != NONE)
    moves_nothing: Bools = ~effect & (unknown | words.matching(FUNCTIONAL, name))
    return moves_nothing


def lone_calls(trace: RankTrace, words: Words, parts: Parts) -> Draft:
    """Annotations of device backends, kernels and nodes that no operator of the profile leads to."""
    events = trace.events
    lone = parts.annotations[(parts.annotated == NONE)]
    lone = lone[~words.matching(OF_CPU, events.name[lone])]
    issuers = operators_of(trace, words, lone)
    kernels = np.flatnonzero(parts.launched == NONE)
    launched = issuers.issuing_starts(trace, parts.launches[kernels])
    place, owner = _owners(trace, parts.kernels[kernels], launched, len(lone))
    kernels_end = events.end[parts.kernels[kernels]]
    alone = launched == NONE
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
