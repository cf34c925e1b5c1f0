"""Nodes and recorder entries of backends whose nodes have no numbers: the same ones are in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int32s, Int64s, Key
from tracelink.linking.alignment import align
from tracelink.linking.calls_draft import Draft
from tracelink.linking.communicating import OF_CPU, Words, as_gloo_does
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.trace import RankTrace


def by_order(
    trace: RankTrace, words: Words, records: Int64s, told: Mapping[str, Any], draft: Draft
) -> Int64s:
    """The record of each call, where there is only one way to line up what has none with what is left."""
    found = draft.record.copy()
    ours = _in_order_of_nodes(trace, draft, told)
    theirs = _in_order_of_creation(trace, words, records)
    if not len(theirs) or not (found[ours] == NONE).any():
        return found
    table = trace.communications
    said = lookup(table.row, theirs)
    mine = as_gloo_does(words, told["operation"][ours], told["elements_in"][ours])
    other = as_gloo_does(
        words, words.operations(trace.events.name[theirs]), values_at(table.elements_in, said)
    )
    kinds = _kinds(np.concatenate([mine[0], other[0]]), np.concatenate([mine[1], other[1]]))
    joined, free = found[ours] != NONE, ~np.isin(theirs, found)
    one = np.where(joined, -1 - found[ours], kinds[: len(ours)])
    two = np.where(free, kinds[len(ours) :], -1 - theirs)
    place = align(one, two).place
    found[ours] = np.where(joined, found[ours], values_at(theirs, place))
    return found


def _in_order_of_nodes(trace: RankTrace, draft: Draft, told: Mapping[str, Any]) -> Int64s:
    """Calls that have a node and could have a record: gloo does not record messages."""
    identity = trace.key(Key.NODE_ID)
    node = values_at(identity.values, lookup(identity.rows, draft.node))
    chosen = (node != NONE) & ~told["point_to_point"] & (draft.kernel == NONE)
    chosen &= (told["sequence"] == UNKNOWN) | (draft.record != NONE)
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
