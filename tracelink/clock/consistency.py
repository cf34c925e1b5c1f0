"""Lines that violate nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clock.bounds import Rooms, drift_limits, rooms_of
from tracelink.clock.observations import MAX_DRIFT, Extremes, Lines, Passages, Segments, Worst
from tracelink.model.columns import Bools, Float64s, Int64s

# Shifts of clocks whose drifts are settled: nobody leaves too early, and nothing moves that need not.


MARGIN_NS = 3.0
"""Rounding to whole nanoseconds must not bring a violation back."""
ROWS = 1 << 24
"""So many rows are looked at: the rounds are as many as that allows, but not fewer than these."""
FEWEST_ROUNDS = 10


def closing_shift(times: Passages, clocks: int) -> Float64s | None:
    """By how much to set each clock back; None where no shifts were found that violate nothing.

    Both moving clocks back only and moving them forward only lead to such shifts; so does their mean.
    """
    meetings = _Meetings(times, clocks)
    back, forward = meetings.closed(1), meetings.closed(-1)
    return None if back is None or forward is None else (back + forward) / 2


class _Meetings:
    def __init__(self, times: Passages, clocks: int) -> None:
        self._clock = times.clock
        self._entered = times.entered + MARGIN_NS
        self._left = np.maximum(times.left, self._entered)
        self._by_meeting = Segments(times.meeting, times.meetings)
        self._by_clock = Segments(times.clock, clocks)

    def closed(self, sign: int) -> Float64s | None:
        """The nearest shifts, all of them negative (1) or positive (-1)."""
        ins, outs = (self._entered, self._left) if sign > 0 else (-self._left, -self._entered)
        shift = np.zeros(len(self._by_clock.sizes))
        # a chain of shifts has no more links than there are clocks, unless it never ends
        for _ in range(min(len(shift) + 1, max(FEWEST_ROUNDS, ROWS // max(len(ins), 1)))):
            latest = self._by_meeting.largest(ins - shift[self._clock])
            allowed = self._by_clock.smallest(outs - latest[self._by_meeting.number])
            if not (allowed < shift).any():
                return sign * shift
            shift = np.minimum(shift, allowed)
        return None


# The nearest point to zero that meets demands, or violates them least: an interior-point method.


PENALTY = 1e6
"""How much worse a violation is than as large a distance from zero: so high that none is accepted that need not be."""
STEPS = 80
EXACT = 1e-9
STIFFEST = 1e12
"""Rows are not held more firmly than this: beyond it, what else decides is lost in rounding."""
CENTRE = 0.1
SHORT_OF_EDGE = 0.99


@dataclass(frozen=True, slots=True)
class Demands:
    """Rows that say: excess + (weights of the variables in `index`) <= 0."""

    index: Int64s
    weight: Float64s
    excess: Float64s

    def of(self, point: Float64s) -> Float64s:
        """What the variables add to each row."""
        result: Float64s = (self.weight * point[self.index]).sum(axis=1)
        return result

    def back(self, force: Float64s, variables: int) -> Float64s:
        """The transpose of `of`."""
        pushed = (self.weight * force[:, None]).ravel()
        return np.bincount(self.index.ravel(), pushed, minlength=variables).astype(np.float64)

    def squared(self, force: Float64s, variables: int) -> Float64s:
        """The identity and the rows' squares, each times its force."""
        cell = self.index[:, :, None] * variables + self.index[:, None, :]
        value = self.weight[:, :, None] * (self.weight * force[:, None])[:, None, :]
        flat = np.bincount(cell.ravel(), value.ravel(), minlength=variables**2)
        result: Float64s = flat.reshape(variables, variables) + np.eye(variables)
        return result


def nearest(demands: Demands, variables: int) -> Float64s:
    """The point that minimises half its squared length, plus a penalty for each violation."""
    scale = max(float(np.abs(demands.excess).max(initial=0)), 1.0)
    search = _Search(Demands(demands.index, demands.weight, demands.excess / scale), variables)
    for _ in range(STEPS):
        if search.gap < EXACT:
            break
        search.step()
    return search.point * scale


class _Search:
    """A point, its violations and rooms, and the forces with which rows hold it; all inside their limits."""

    def __init__(self, demands: Demands, variables: int) -> None:
        self.demands = demands
        self.point = np.zeros(variables)
        self._violation = np.maximum(demands.excess, 0) + 1
        self._room = self._violation - demands.excess
        self._force = np.ones(len(demands.excess))

    @property
    def gap(self) -> float:
        """How far rows are from either not holding or being met exactly, on average."""
        spare = (PENALTY - self._force) * self._violation
        return float((self._force * self._room + spare).mean()) / 2

    def step(self) -> None:
        """One Newton step towards the centre of what is left."""
        target = CENTRE * self.gap
        force, room, violation, spare = self._force, self._room, self._violation, PENALTY - self._force
        missing = violation - self.demands.of(self.point) - self.demands.excess - room
        give = np.maximum(violation / spare + room / force, 1 / STIFFEST)
        pull = target / force - room - target / spare + violation - missing
        slope = -(self.point + self.demands.back(force, len(self.point)))
        matrix = self.demands.squared(1 / give, len(self.point))
        pushed = slope - self.demands.back(pull / give, len(self.point))
        move = np.linalg.solve(matrix, pushed).astype(np.float64)
        force_move = (pull + self.demands.of(move)) / give
        violation_move = (target - spare * violation + violation * force_move) / spare
        room_move = (target - force * room - room * force_move) / force
        reach = min(
            _reach(force, force_move),
            _reach(spare, -force_move),
            _reach(violation, violation_move),
            _reach(room, room_move),
        )
        self.point = np.asarray(self.point + reach * move, np.float64)
        self._force = force + reach * force_move
        self._violation = violation + reach * violation_move
        self._room = room + reach * room_move


def _reach(value: Float64s, move: Float64s) -> float:
    """How much of the move keeps all values positive."""
    falling = move < 0
    if not falling.any():
        return 1.0
    return min(1.0, SHORT_OF_EDGE * float((-value[falling] / move[falling]).min()))


# Lines along which nobody leaves before the others have entered.


ROUNDS = 20
STRETCHES = 16


def shifted(passages: Passages, lines: Lines, roots: Int64s) -> Lines | None:
    """The lines, shifted so that they violate nothing; None where drifts would have to change for that.

    `roots` says for each clock which clock it is measured by: that one keeps its line.
    """
    shift = closing_shift(passages.by(lines), len(roots))
    return None if shift is None else lines.then(shift - shift[roots], np.zeros(len(roots)))


def settled(passages: Passages, lines: Lines, roots: Int64s) -> Lines:
    """Lines near those given that violate nothing, or as little as can be."""
    times = passages.by(lines)
    span = max(float(times.entered.max(initial=1)), 1.0)
    fixed = roots == np.arange(len(roots))
    limits = _limits(lines, span, fixed)
    work = np.empty((0, 2), np.int64)
    moved = lines
    for _ in range(ROUNDS):
        pairs = _worst_pairs(passages.by(moved), span)
        pairs = pairs[~np.isin(_code(pairs), _code(work))]
        if not len(pairs):
            break
        work = np.concatenate([work, pairs])
        point = nearest(_joined(_demands(times, work, span, fixed), limits), 2 * len(roots))
        moved = lines.then(point[::2], point[1::2] / span)
        closed = shifted(passages, moved, roots)
        if closed:
            return closed
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


# Drifts that leave room: clocks that violate something go to the middle of what all others leave them.


ROUNDS_CENTRING = 12
STEP = 0.5
"""How far a clock goes at once: those it meets go too."""


def centred(passages: Passages, lines: Lines, roots: Int64s) -> Lines | None:
    """Lines that violate nothing; None where this simple way does not lead to them."""
    moving = roots != np.arange(len(roots))
    for _ in range(ROUNDS_CENTRING):
        rooms = _rooms(passages.by(lines), len(roots))
        low, high = rooms.at(np.zeros(len(roots)))
        cramped = moving & ((low > 0) | (high < 0))
        drift = np.where(cramped, STEP * rooms.roomiest(*drift_limits(lines.drift)), 0.0)
        low, high = rooms.at(drift)
        both = np.isfinite(low) & np.isfinite(high)
        middle = np.where(both, (low + np.where(both, high, 0)) / 2, np.clip(0, low, high))
        lines = lines.then(np.where(cramped, STEP * middle, 0.0), drift)
        done = shifted(passages, lines, roots)
        if done:
            return done
    return None


def _rooms(times: Passages, clocks: int) -> Rooms:
    extremes = Extremes.of(times)
    latest = _other(times, times.entered, extremes.last, extremes.last_but_one, -np.inf)
    earliest = _other(times, times.left, extremes.first, extremes.next_to_first, np.inf)
    upper, lower = (times.left - latest, times.left), (times.entered - earliest, times.entered)
    return rooms_of(times.clock, clocks, upper, lower)


def _other(
    times: Passages, values: Float64s, extreme: Int64s, next_to_it: Int64s, nothing: float
) -> Float64s:
    """For each row the extreme of all other rows of its meeting."""
    row = extreme[times.meeting]
    row = np.where(row == np.arange(len(times)), next_to_it[times.meeting], row)
    return np.where(row >= 0, values[row], nothing)
