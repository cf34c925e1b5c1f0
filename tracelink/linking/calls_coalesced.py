"""Operations that were issued as one: what closes the group has the state and the kernels that its members lack."""

from __future__ import annotations

import re

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s, Key
from tracelink.linking.calls_draft import Draft
from tracelink.linking.communicating import Words
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.trace import RankTrace

CLOSING = re.compile(r"(^|:)(coalesced|[A-Z_]+_coalesced)$")


def without_closings(trace: RankTrace, words: Words, records: Int64s, draft: Draft) -> tuple[Draft, Int64s]:
    """Calls without entries that only close a group, and for each the entry that closes its group, or NONE."""
    redundant, closing = _closings(trace, words, records)
    if not redundant.any():
        return draft, np.full(len(draft), NONE, np.int64)
    place = lookup(records, draft.record)
    drop = values_at(redundant, place, False)
    closing_calls, draft = draft.take(drop), draft.take(~drop)
    closed_by = values_at(closing, place[~drop])
    theirs = lookup(closing_calls.record, closed_by)
    lacking = np.flatnonzero((theirs != NONE) & (draft.kernel == NONE))
    draft.kernel[lacking] = closing_calls.kernel[theirs[lacking]]
    draft.kernels_end[lacking] = closing_calls.kernels_end[theirs[lacking]]
    return draft, closed_by


def _closings(trace: RankTrace, words: Words, records: Int64s) -> tuple[Bools, Int64s]:
    """Which records close a group that has other members, and for each record the one that closes its group."""
    closes = words.matching(CLOSING, trace.events.name[records])
    if not closes.any():
        return closes, np.full(len(records), NONE, np.int64)
    number = _both_numbers(trace, records)
    closing = np.flatnonzero(closes)
    found = values_at(records[closing], lookup(number[closing], number))
    member = (found != NONE) & ~closes & (number != UNKNOWN)
    return closes & np.isin(number, number[member]), np.where(member, found, NONE)


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
    alone = (draft.annotation != NONE) & (draft.operator == NONE) & (draft.record == NONE)
    closes = np.flatnonzero(alone & words.matching(CLOSING, values_at(events.name, draft.annotation)))
    if not len(closes):
        return draft
    issued = np.flatnonzero(draft.operator != NONE)
    starts, tracks = events.start[draft.operator[issued]], events.track[draft.operator[issued]]
    issued = issued[np.lexsort((starts, tracks))]
    keep = np.ones(len(draft), np.bool_)
    for closing in closes[np.argsort(events.start[draft.annotation[closes]], kind="stable")].tolist():
        members = _members(trace, draft, issued, closing)
        draft.kernel[members] = draft.kernel[closing]
        draft.kernels_end[members] = draft.kernels_end[closing]
        unnamed = members[draft.annotation[members] == NONE]
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
    alone = draft.kernel[here] != NONE
    if draft.kernel[closing] == NONE:
        alone |= draft.annotation[here] != NONE
    last = np.flatnonzero(alone)
    members: Int64s = here[last[-1] + 1 if len(last) else 0 :]
    return members
