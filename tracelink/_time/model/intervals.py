"""Arithmetic on stretches of time: intersection, difference, and how much of each window is covered.

Stretches are `Spans`: sorted, disjoint, and without those of no length. `Spans.of` is the union.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from tracelink._model.columns import Int64s, ranges
from tracelink._model.selection import EARLIEST, LATEST, Spans

Label = TypeVar("Label")

NOTHING = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def intersection(left: Spans, right: Spans) -> Spans:
    """What both cover."""
    first = np.searchsorted(right.ends, left.starts, side="right")
    count = np.maximum(np.searchsorted(right.starts, left.ends) - first, 0)
    of_left, of_right = np.repeat(np.arange(len(left)), count), ranges(first, count)
    return Spans(
        np.maximum(left.starts[of_left], right.starts[of_right]),
        np.minimum(left.ends[of_left], right.ends[of_right]),
    )


def difference(left: Spans, right: Spans) -> Spans:
    """What the first covers and the second does not."""
    return intersection(left, gaps_of(right)) if len(right) else left


def gaps_of(spans: Spans) -> Spans:
    """Everything that they do not cover, before the first and after the last as well."""
    return Spans(np.append(EARLIEST, spans.ends), np.append(spans.starts, LATEST))


def union(*parts: Spans) -> Spans:
    """What any of them covers."""
    if len(parts) == 1:
        return parts[0]
    return Spans.of(
        np.concatenate([np.empty(0, np.int64), *(part.starts for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)]),
    )


def divided(whole: Spans, claims: Iterable[tuple[Label, Spans]]) -> tuple[list[tuple[Label, Spans]], Spans]:
    """What each claim covers of the whole, without what earlier claims cover; and the rest."""
    found, rest = [], whole
    for label, claim in claims:
        if not len(rest):
            break
        if not len(claim):
            continue
        mine = intersection(rest, claim)
        if len(mine):
            found.append((label, mine))
            rest = difference(rest, mine)
    return found, rest


def length(spans: Spans) -> int:
    """How much time they cover."""
    return int((spans.ends - spans.starts).sum())


def covered(spans: Spans, starts: Int64s, ends: Int64s) -> Int64s:
    """How much of each window they cover; windows may overlap."""
    before = np.append(0, np.cumsum(spans.ends - spans.starts))
    return _covered_before(spans, before, ends) - _covered_before(spans, before, starts)


def _covered_before(spans: Spans, before: Int64s, times: Int64s) -> Int64s:
    """How much time they cover before each of these times."""
    following = np.searchsorted(spans.starts, times, side="right")
    last_end = np.append(EARLIEST, spans.ends)[following]
    return before[following] - np.maximum(np.where(following > 0, last_end - times, 0), 0)


def without_overlaps(starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Stretches in the order of their starts, each without what earlier ones cover; some become empty."""
    if not len(starts):
        return starts, ends
    reached = np.maximum.accumulate(ends)
    starts = np.maximum(starts, np.append(EARLIEST, reached[:-1]))
    return starts, np.maximum(ends, starts)
