"""Clocks passing through meetings: what ranks' crossings say once ranks that share a clock are one."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tracelink.clocks.segments import Floats, Segments
from tracelink.events import NO_TIME, Bools, Columns, Int64s

MAX_DRIFT = 200e-6
"""No clock of a computer goes faster or slower than another by more."""


@dataclass(frozen=True, slots=True)
class Lines:
    """For each clock, how its own times become times of the reference clock: (time - offset)(1 - drift)."""

    offset: Floats
    drift: Floats

    def at(self, clock: Int64s, time: Floats) -> Floats:
        """Times of the reference clock."""
        result: Floats = (time - self.offset[clock]) * (1 - self.drift[clock])
        return result

    def then(self, shift: Floats, drift: Floats) -> Lines:
        """These lines, and what they give once more corrected: by time * (1 - drift) - shift."""
        rate = (1 - self.drift) * (1 - drift)
        return Lines(self.offset + shift / rate, 1 - rate)


@dataclass(frozen=True, slots=True)
class Passages(Columns):
    """One row for each clock in each meeting, ordered by meeting and clock; times since the clock's own first."""

    meeting: Int64s
    clock: Int64s
    entered: Floats
    """When the last of its ranks that are awaited entered; -inf where nobody waits for it."""
    left: Floats
    """When the first of its ranks that wait left; inf where it does not wait."""
    end: Floats
    """When it left, where leaving compares clocks; else NaN."""

    def __len__(self) -> int:
        return len(self.meeting)

    @classmethod
    def none(cls) -> Passages:
        """No meeting at all."""
        numbers, times = np.empty(0, np.int64), np.empty(0)
        return cls(numbers, numbers, times, times, times)

    @property
    def meetings(self) -> int:
        """How many meetings there can be."""
        return int(self.meeting[-1]) + 1 if len(self) else 0

    def where(self, chosen: Bools) -> Passages:
        """The chosen rows."""
        return Passages(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def by(self, lines: Lines) -> Passages:
        """The same with all times on the reference clock."""
        times = (lines.at(self.clock, time) for time in (self.entered, self.left, self.end))
        return Passages(self.meeting, self.clock, *times)


@dataclass(frozen=True, slots=True)
class Meetings:
    """What crossings say of clocks."""

    passages: Passages
    first: Int64s
    """For each clock its earliest time, in ns since 1970: passages count from there; where it has none, that of all."""
    constraints: Int64s
    """For each clock the pairs of a rank that waits and one that is awaited, one of them by this clock."""


def meetings_of(
    meeting: Int64s, clock: Int64s, entered: Int64s, left: Int64s, together: Bools, clocks: int
) -> Meetings:
    """Crossings put together by clock; `entered` and `left` are NO_TIME where nobody awaits or it does not wait."""
    first = _first(clock, entered, left, clocks)
    order = np.lexsort((clock, meeting))
    meeting, clock = meeting[order], clock[order]
    began = first[clock]
    entered, left = entered[order], left[order]
    enters = np.where(entered == NO_TIME, -np.inf, entered - began)
    leaves = np.where(left == NO_TIME, np.inf, left - began)
    new_meeting = np.append(True, meeting[1:] != meeting[:-1])[: len(meeting)]
    new = new_meeting | np.append(True, clock[1:] != clock[:-1])[: len(meeting)]
    starts = np.flatnonzero(new)
    if not len(starts):
        return Meetings(Passages.none(), first, np.zeros(clocks, np.int64))
    ended = together[order] & np.isfinite(leaves)
    passages = Passages(
        (np.cumsum(new_meeting) - 1)[starts],
        clock[starts].astype(np.int64),
        np.maximum.reduceat(enters, starts),
        np.minimum.reduceat(leaves, starts),
        Segments((np.cumsum(new) - 1)[ended], len(starts)).median(leaves[ended]),
    )
    waits, awaited = (
        np.add.reduceat(np.isfinite(times), starts, dtype=np.int64) for times in (leaves, enters)
    )
    counts = _constraints(passages, waits, awaited, clocks)
    timed = np.isfinite(passages.entered) | np.isfinite(passages.left)
    several = np.bincount(passages.meeting[timed], minlength=passages.meetings) > 1
    return Meetings(passages.where(timed & several[passages.meeting]), first, counts)


def _first(clock: Int64s, entered: Int64s, left: Int64s, clocks: int) -> Int64s:
    """The earliest time of each clock; where it has none, that of all."""
    never = np.iinfo(np.int64).max
    first = np.full(clocks, never)
    for times in (entered, left):
        known = times != NO_TIME
        np.minimum.at(first, clock[known], times[known])
    earliest = int(first.min(initial=never))
    return np.where(first == never, 0 if earliest == never else earliest, first)


def _constraints(passages: Passages, waits: Int64s, awaited: Int64s, clocks: int) -> Int64s:
    """For each clock the pairs that it makes with others."""
    all_wait = np.bincount(passages.meeting, waits).astype(np.int64)[passages.meeting]
    all_awaited = np.bincount(passages.meeting, awaited).astype(np.int64)[passages.meeting]
    pairs = waits * (all_awaited - awaited) + awaited * (all_wait - waits)
    return np.bincount(passages.clock, pairs, minlength=clocks).astype(np.int64)
