"""Who entered last and who left first: where a meeting is closest to being violated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.passages import Passages
from tracelink.clocks.segments import Floats, Segments
from tracelink.events import Int64s


@dataclass(frozen=True, slots=True)
class Extremes:
    """For each meeting the rows of who entered last and of who left first, and of those next to them; or -1."""

    last: Int64s
    last_but_one: Int64s
    first: Int64s
    next_to_first: Int64s

    @classmethod
    def of(cls, times: Passages) -> Extremes:
        """Times are on one clock."""
        by_meeting = Segments(times.meeting, times.meetings)
        last, last_but_one = _two_largest(by_meeting, times.entered)
        first, next_to_first = _two_largest(by_meeting, -times.left)
        return cls(last, last_but_one, first, next_to_first)


def _two_largest(by_meeting: Segments, values: Floats) -> tuple[Int64s, Int64s]:
    largest = _row_of_largest(by_meeting, values)
    rest = values.copy()
    rest[largest[largest >= 0]] = -np.inf
    return largest, _row_of_largest(by_meeting, rest)


def _row_of_largest(by_meeting: Segments, values: Floats) -> Int64s:
    rows = np.flatnonzero(np.isfinite(values) & (values == by_meeting.largest(values)[by_meeting.number]))
    result = np.full(len(by_meeting.sizes), -1)
    result[by_meeting.number[rows[::-1]]] = rows[::-1]
    return result


@dataclass(frozen=True, slots=True)
class Worst:
    """For each meeting the rows of who left first and who entered last, of different clocks, and by how much."""

    waits: Int64s
    awaited: Int64s
    early: Floats
    """By how much it left before the other entered; not above 0 where all is well."""

    @classmethod
    def of(cls, times: Passages, extremes: Extremes) -> Worst:
        """Where one clock is both first and last, the worse of the two pairs next to it."""
        one = early(times, extremes.first, extremes.last_but_one)
        other = early(times, extremes.next_to_first, extremes.last)
        same = extremes.first == extremes.last
        waits = np.where(same & (other > one), extremes.next_to_first, extremes.first)
        awaited = np.where(same & (other <= one), extremes.last_but_one, extremes.last)
        return cls(waits, awaited, early(times, waits, awaited))


def early(times: Passages, waits: Int64s, awaited: Int64s) -> Floats:
    """By how much each left before the other of the pair entered; -inf where there is none (-1)."""
    left = np.where(waits >= 0, times.left[waits], np.inf)
    result: Floats = np.where(awaited >= 0, times.entered[awaited], -np.inf) - left
    return result
