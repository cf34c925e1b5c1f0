"""Operations that were issued as one: the recorder's closing entry has the state that its members lack."""

from __future__ import annotations

import re

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.linking.calls_draft import Draft
from tracelink.linking.calls_numbered import numbers_said
from tracelink.linking.communicating import Words
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.trace import RankTrace

CLOSING = re.compile(r"(^|:)coalesced$|^[A-Z_]+_coalesced$")


def closings_of(trace: RankTrace, words: Words, records: Int64s) -> tuple[Bools, Int64s]:
    """Which records close a group that has other members, and for each record the one that closes its group."""
    closes = words.matching(CLOSING, trace.events.name[records])
    none = np.full(len(records), NONE, np.int64)
    if not closes.any():
        return closes, none
    number = numbers_said(trace.communications, records)
    closing = np.flatnonzero(closes & (number != UNKNOWN))
    found = values_at(records[closing], lookup(number[closing], number))
    member = (found != NONE) & ~closes
    redundant = closes & (number != UNKNOWN) & np.isin(number, number[member])
    return redundant, np.where(member, found, NONE)


def without_closings(trace: RankTrace, words: Words, records: Int64s, draft: Draft) -> tuple[Draft, Int64s]:
    """Calls without those that only close a group, and for each the record that closes its group, or NONE."""
    redundant, closing = closings_of(trace, words, records)
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
