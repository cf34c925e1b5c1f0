"""Passages that no steady clocks explain together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from tracelink.clocks.extremes import Extremes, Worst, early
from tracelink.clocks.passages import Lines, Passages
from tracelink.clocks.segments import Floats
from tracelink.events import Columns, Int64s

TOLERANCE_NS = 1000.0
"""Sources that count in whole microseconds can be off by one: that is no contradiction."""


@dataclass(frozen=True, slots=True)
class Contradictions(Columns):
    """One row for each passage that is not explained."""

    row: Int64s
    clock: Int64s
    partner: Int64s
    early: Floats
    """By how much one of the two leaves before the other enters, at least and at worst."""
    time: Floats

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def joined(cls, parts: Sequence[Contradictions]) -> Contradictions:
        """All of them; numbers of rows are as they were."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)}
        if not parts:
            numbers, floats = np.empty(0, np.int64), np.empty(0)
            return cls(numbers, numbers, numbers, floats, floats)
        return cls(**{name: np.concatenate(values) for name, values in columns.items()})


def violating(passages: Passages, lines: Lines) -> Contradictions:
    """Passages without which nobody leaves before the others have entered, but for the tolerance."""
    found: list[Contradictions] = []
    rows = np.arange(len(passages))
    times = passages.by(lines)
    while len(rows):
        some = _culprits(times.where(np.isin(np.arange(len(times)), rows)))
        if not len(some):
            break
        found.append(Contradictions(rows[some.row], some.clock, some.partner, some.early, some.time))
        rows = np.delete(rows, some.row)
    return Contradictions.joined(found)


def _culprits(times: Passages) -> Contradictions:
    """Of each meeting with a violation, the passage without which least of it is left."""
    extremes = Extremes.of(times)
    worst = Worst.of(times, extremes)
    bad = np.flatnonzero(worst.early > TOLERANCE_NS)
    without_last = np.maximum(early(times, extremes.first, extremes.last_but_one)[bad], 0)
    without_first = np.maximum(early(times, extremes.next_to_first, extremes.last)[bad], 0)
    waits, awaited = worst.waits[bad], worst.awaited[bad]
    one, other = times.clock[waits], times.clock[awaited]
    clocks = int(times.clock.max(initial=0)) + 1
    decided = without_last != without_first
    blamed = np.where(without_last < without_first, other, one)
    votes = np.bincount(blamed[decided], minlength=clocks) * (len(bad) + 1.0)
    votes += np.bincount(one, minlength=clocks) + np.bincount(other, minlength=clocks)
    voted = (votes[other] > votes[one]) | ((votes[other] == votes[one]) & (other > one))
    entering = np.where(decided, without_last < without_first, voted)
    row = np.where(entering, awaited, waits)
    time = np.where(entering, times.entered[row], times.left[row])
    return Contradictions(row, times.clock[row], np.where(entering, one, other), worst.early[bad], time)
