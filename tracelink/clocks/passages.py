"""Clocks passing through meetings: what ranks' crossings say once ranks that share a clock are one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

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
    order = np.lexsort((clock, meeting))
    meeting, clock, together = meeting[order], clock[order], together[order]
    entered, left = entered[order], left[order]
    awaited, waits = entered != NO_TIME, left != NO_TIME
    first = _first(clock, np.where(awaited, entered, left), np.where(waits, left, entered), clocks)
    starts, number = _runs(meeting, clock)
    row = np.cumsum(np.bincount(starts, minlength=len(order))) - 1
    ended = together & waits
    passages = Passages(
        number,
        clock[starts].astype(np.int64),
        _extreme(np.maximum, (entered - first[clock])[awaited], row[awaited], len(starts), -np.inf),
        _extreme(np.minimum, (left - first[clock])[waits], row[waits], len(starts), np.inf),
        Segments(row[ended], len(starts)).median((left - first[clock])[ended].astype(np.float64)),
    )
    who_waits = np.bincount(row[waits], minlength=len(starts))
    who_is_awaited = np.bincount(row[awaited], minlength=len(starts))
    counts = _constraints(passages, who_waits, who_is_awaited, clocks)
    several = np.bincount(passages.meeting, minlength=passages.meetings) > 1
    return Meetings(passages.where(several[passages.meeting]), first, counts)


_NEVER = np.iinfo(np.int64).max


def _runs(meeting: Int64s, clock: Int64s) -> tuple[Int64s, Int64s]:
    """Where each clock's crossings of one meeting start, and the meeting's number from 0."""
    new_meeting = np.append(True, meeting[1:] != meeting[:-1])[: len(meeting)]
    new = new_meeting | np.append(True, clock[1:] != clock[:-1])[: len(meeting)]
    starts = np.flatnonzero(new)
    return starts, (np.cumsum(new_meeting) - 1)[starts]


def _extreme(function: Any, times: Int64s, row: Int64s, rows: int, nothing: float) -> Floats:
    """For each row the extreme of its times, which stand together."""
    result = np.full(rows, nothing)
    starts = np.flatnonzero(np.append(True, row[1:] != row[:-1])[: len(row)])
    if len(starts):
        result[row[starts]] = function.reduceat(times, starts)
    return result


def _first(clock: Int64s, one: Int64s, other: Int64s, clocks: int) -> Int64s:
    """The earliest time of each clock; where it has none, that of all."""
    first = np.full(clocks, _NEVER)
    earlier = np.minimum(one, other)
    np.minimum.at(first, clock[earlier != NO_TIME], earlier[earlier != NO_TIME])
    earliest = int(first.min(initial=_NEVER))
    return np.where(first == _NEVER, 0 if earliest == _NEVER else earliest, first)


def _constraints(passages: Passages, waits: Int64s, awaited: Int64s, clocks: int) -> Int64s:
    """For each clock the pairs that it makes with others."""
    all_wait = np.bincount(passages.meeting, waits).astype(np.int64)[passages.meeting]
    all_awaited = np.bincount(passages.meeting, awaited).astype(np.int64)[passages.meeting]
    pairs = waits * (all_awaited - awaited) + awaited * (all_wait - waits)
    return np.bincount(passages.clock, pairs, minlength=clocks).astype(np.int64)
