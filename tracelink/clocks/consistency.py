"""Lines along which nobody leaves before the others have entered, and crossings that no line can explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.closure import MARGIN_NS, closing_shift
from tracelink.clocks.nearest import Demands, nearest
from tracelink.clocks.passages import MAX_DRIFT, Lines, Passages
from tracelink.clocks.segments import Floats, Segments
from tracelink.events import Bools, Int64s

ROUNDS = 60
STRETCHES = 16
TOLERANCE_NS = 1000.0
"""Sources that count in whole microseconds can be off by one: that is no contradiction."""


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
        one = _early(times, extremes.first, extremes.last_but_one)
        other = _early(times, extremes.next_to_first, extremes.last)
        same = extremes.first == extremes.last
        waits = np.where(same & (other > one), extremes.next_to_first, extremes.first)
        awaited = np.where(same & (other <= one), extremes.last_but_one, extremes.last)
        return cls(waits, awaited, _early(times, waits, awaited))


def _early(times: Passages, waits: Int64s, awaited: Int64s) -> Floats:
    left = np.where(waits >= 0, times.left[waits], np.inf)
    result: Floats = np.where(awaited >= 0, times.entered[awaited], -np.inf) - left
    return result


def settled(passages: Passages, lines: Lines, roots: Int64s) -> Lines:
    """Lines near those given that violate nothing, or as little as can be; clocks that are roots keep theirs.

    `roots` says for each clock which.
    """
    span = max(float(passages.by(lines).entered.max(initial=1)), 1.0)
    fixed = roots == np.arange(len(roots))
    limits = _limits(lines, span, fixed)
    work = np.empty((0, 2), np.int64)
    times = passages.by(lines)
    moved = lines
    for _ in range(ROUNDS):
        now = passages.by(moved)
        shift = closing_shift(now, len(roots))
        if shift is not None:
            return moved.then(shift - shift[roots], np.zeros(len(roots)))
        pairs = _worst_pairs(now, span)
        pairs = pairs[~np.isin(_code(pairs), _code(work))]
        if not len(pairs):
            break
        work = np.concatenate([work, pairs])
        point = nearest(_joined(_demands(times, work, span, fixed), limits), 2 * len(roots))
        moved = lines.then(point[::2], point[1::2] / span)
    return moved


def _code(pairs: Int64s) -> Int64s:
    return (pairs[:, 0] << 32) + pairs[:, 1]


def _worst_pairs(times: Passages, span: float) -> Int64s:
    """The worst pair of each meeting where somebody leaves too early; of one pair of clocks few in each stretch."""
    worst = Worst.of(times, Extremes.of(times))
    chosen = np.flatnonzero(worst.early > 0)
    chosen = chosen[np.argsort(-worst.early[chosen])]
    waits, awaited = worst.waits[chosen], worst.awaited[chosen]
    stretch = np.clip(times.left[waits] * STRETCHES / span, -1, STRETCHES).astype(np.int64)
    keys = np.stack([times.clock[waits], times.clock[awaited], stretch], axis=1)
    kept = np.unique(keys, axis=0, return_index=True)[1]
    return np.stack([waits[kept], awaited[kept]], axis=1)


def _demands(times: Passages, work: Int64s, span: float, fixed: Bools) -> Demands:
    """That of each pair the one leaves after the other enters: variables are shift and drift times span."""
    waits, awaited = work.T
    left, entered = times.left[waits], times.entered[awaited]
    one, other = 2 * times.clock[waits], 2 * times.clock[awaited]
    index = np.stack([one, one + 1, other, other + 1], axis=1)
    weight = np.stack([np.ones(len(work)), left / span, -np.ones(len(work)), -entered / span], axis=1)
    weight[fixed[index // 2]] = 0
    return Demands(index, weight, entered - left + MARGIN_NS)


def _limits(lines: Lines, span: float, fixed: Bools) -> Demands:
    """That no clock drifts more than clocks do."""
    clocks = np.flatnonzero(~fixed)
    drift = lines.drift[clocks]
    most, least = ((limit - drift) / (1 - drift) * span for limit in (MAX_DRIFT, -MAX_DRIFT))
    index = np.repeat(2 * np.concatenate([clocks, clocks])[:, None] + 1, 4, axis=1)
    weight = np.zeros(index.shape)
    weight[:, 0] = np.repeat([1.0, -1.0], len(clocks))
    return Demands(index, weight, np.concatenate([-most, least]))


def _joined(one: Demands, other: Demands) -> Demands:
    return Demands(
        np.concatenate([one.index, other.index]),
        np.concatenate([one.weight, other.weight]),
        np.concatenate([one.excess, other.excess]),
    )


@dataclass(frozen=True, slots=True)
class Contradictions:
    """One row for each crossing that no line explains."""

    row: Int64s
    clock: Int64s
    partner: Int64s
    early: Floats
    """By how much the one left before the other entered."""
    entering: Bools
    """Whether it is the one that entered late, else it left early."""
    time: Floats


def contradicting(passages: Passages, lines: Lines) -> Contradictions:
    """Rows without which nobody leaves before the others have entered, but for the tolerance."""
    found: list[Contradictions] = []
    kept = np.ones(len(passages), np.bool_)
    rows = np.arange(len(passages))
    while True:
        times = passages.by(lines).where(kept)
        some = _culprits(times)
        if not len(some.row):
            break
        some_rows = rows[kept][some.row]
        kept[some_rows] = False
        found.append(
            Contradictions(some_rows, some.clock, some.partner, some.early, some.entering, some.time)
        )
    if not found:
        return some
    return Contradictions(*(np.concatenate([getattr(f, n) for f in found]) for n in Contradictions.__slots__))


def _culprits(times: Passages) -> Contradictions:
    """Of each meeting with a violation, the row without which least of it is left."""
    extremes = Extremes.of(times)
    worst = Worst.of(times, extremes)
    bad = np.flatnonzero(worst.early > TOLERANCE_NS)
    without_last = np.maximum(_early(times, extremes.first, extremes.last_but_one)[bad], 0)
    without_first = np.maximum(_early(times, extremes.next_to_first, extremes.last)[bad], 0)
    waits, awaited = worst.waits[bad], worst.awaited[bad]
    one, other = times.clock[waits], times.clock[awaited]
    clocks = int(times.clock.max(initial=0)) + 1
    decided = without_last != without_first
    blamed = np.where(without_last < without_first, other, one)
    votes = np.bincount(blamed[decided], minlength=clocks) * (len(bad) + 1.0)
    votes += np.bincount(one, minlength=clocks) + np.bincount(other, minlength=clocks)
    entering = np.where(
        decided,
        without_last < without_first,
        (votes[other] > votes[one]) | ((votes[other] == votes[one]) & (other > one)),
    )
    row = np.where(entering, awaited, waits)
    time = np.where(entering, times.entered[row], times.left[row]) if len(row) else np.empty(0)
    return Contradictions(
        row, times.clock[row], np.where(entering, one, other), worst.early[bad], entering, time
    )
