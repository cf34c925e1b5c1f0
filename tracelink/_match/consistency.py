"""Lines that violate no observation: the first estimate, moved as little as possible."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._match.bounds import FeasibleRegions, drift_limits, feasible_regions
from tracelink._match.observations import MAX_DRIFT, ClockLines, Extremes, Observations, Segments, WorstPairs
from tracelink._model.columns import Bools, Float64s, Int64s

# Shifts of clocks with fixed drifts, so that no clock leaves a meeting too early.


MARGIN_NS = 3.0
"""A margin against violations by rounding to nanoseconds."""
ROWS = 1 << 24
"""The most rows that all rounds together process, with at least this many rounds."""
FEWEST_ROUNDS = 10


def _closing_shift(times: Observations, clocks: int) -> Float64s | None:
    """By how much to set each clock back; None if no shifts without violations were found.

    Moving clocks back only and moving them forward only both lead to such shifts; so does their mean.
    """
    meetings = _Shifts(times, clocks)
    back, forward = meetings.closed(1), meetings.closed(-1)
    return None if back is None or forward is None else (back + forward) / 2


class _Shifts:
    def __init__(self, times: Observations, clocks: int) -> None:
        self._clock = times.clock
        self._entered = times.entered + MARGIN_NS
        self._left = np.maximum(times.left, self._entered)
        self._by_meeting = Segments(times.meeting, times.meetings)
        self._by_clock = Segments(times.clock, clocks)

    def closed(self, sign: int) -> Float64s | None:
        """The smallest shifts, all negative (1) or all positive (-1)."""
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


# The point nearest to zero that meets linear constraints, or violates them least: an interior-point method.


PENALTY = 1e6
"""The weight of a violation against a distance from zero: high enough to avoid all avoidable violations."""
STEPS = 80
EXACT = 1e-9
STIFFEST = 1e12
"""The limit of the stiffness of a row; beyond it rounding hides everything else."""
CENTRE = 0.1
SHORT_OF_EDGE = 0.99


class Constraints(Struct, frozen=True):
    """Rows of: excess + (weighted sum of the variables in `index`) <= 0."""

    index: Int64s
    weight: Float64s
    excess: Float64s

    def of(self, point: Float64s) -> Float64s:
        """The weighted sum of each row."""
        result: Float64s = (self.weight * point[self.index]).sum(axis=1)
        return result

    def back(self, force: Float64s, variables: int) -> Float64s:
        """The transpose of `of`."""
        pushed = (self.weight * force[:, None]).ravel()
        return np.bincount(self.index.ravel(), pushed, minlength=variables).astype(np.float64)

    def squared(self, force: Float64s, variables: int) -> Float64s:
        """The identity plus the outer products of the rows, each times its force."""
        cell = self.index[:, :, None] * variables + self.index[:, None, :]
        value = self.weight[:, :, None] * (self.weight * force[:, None])[:, None, :]
        flat = np.bincount(cell.ravel(), value.ravel(), minlength=variables**2)
        result: Float64s = flat.reshape(variables, variables) + np.eye(variables)
        return result


def nearest_point(constraints: Constraints, variables: int) -> Float64s:
    """The point that minimises half its squared length, plus a penalty for each violation."""
    scale = max(float(np.abs(constraints.excess).max(initial=0)), 1.0)
    search = _Search(
        Constraints(constraints.index, constraints.weight, constraints.excess / scale), variables
    )
    for _ in range(STEPS):
        if search.gap < EXACT:
            break
        search.step()
    return search.point * scale


class _Search:
    """A point, its violations and slacks, and the forces of the rows on it; all inside their limits."""

    def __init__(self, constraints: Constraints, variables: int) -> None:
        self.constraints = constraints
        self.point = np.zeros(variables)
        self._violation = np.maximum(constraints.excess, 0) + 1
        self._slack = self._violation - constraints.excess
        self._force = np.ones(len(constraints.excess))

    @property
    def gap(self) -> float:
        """The mean complementarity gap of the rows."""
        spare = (PENALTY - self._force) * self._violation
        return float((self._force * self._slack + spare).mean()) / 2

    def step(self) -> None:
        """One Newton step towards the centre of the feasible region."""
        target = CENTRE * self.gap
        force, slack, violation, spare = self._force, self._slack, self._violation, PENALTY - self._force
        missing = violation - self.constraints.of(self.point) - self.constraints.excess - slack
        give = np.maximum(violation / spare + slack / force, 1 / STIFFEST)
        pull = target / force - slack - target / spare + violation - missing
        slope = -(self.point + self.constraints.back(force, len(self.point)))
        matrix = self.constraints.squared(1 / give, len(self.point))
        pushed = slope - self.constraints.back(pull / give, len(self.point))
        move = np.linalg.solve(matrix, pushed).astype(np.float64)
        force_move = (pull + self.constraints.of(move)) / give
        violation_move = (target - spare * violation + violation * force_move) / spare
        slack_move = (target - force * slack - slack * force_move) / force
        reach = min(
            _reach(force, force_move),
            _reach(spare, -force_move),
            _reach(violation, violation_move),
            _reach(slack, slack_move),
        )
        self.point = np.asarray(self.point + reach * move, np.float64)
        self._force = force + reach * force_move
        self._violation = violation + reach * violation_move
        self._slack = slack + reach * slack_move


def _reach(value: Float64s, move: Float64s) -> float:
    """The part of the move that keeps all values positive."""
    falling = move < 0
    if not falling.any():
        return 1.0
    return min(1.0, SHORT_OF_EDGE * float((-value[falling] / move[falling]).min()))


# Lines with which no clock leaves before the others have entered.


ROUNDS = 20
STRETCHES = 16


def shift_lines(observations: Observations, lines: ClockLines, roots: Int64s) -> ClockLines | None:
    """The lines, shifted so that they violate nothing; None if drifts would have to change for that.

    `roots` is for each clock the clock that it is measured by, which keeps its line.
    """
    shift = _closing_shift(observations.by(lines), len(roots))
    return None if shift is None else lines.then(shift - shift[roots], np.zeros(len(roots)))


def settle_lines(observations: Observations, lines: ClockLines, roots: Int64s) -> ClockLines:
    """Lines near the given ones that violate nothing, or as little as possible."""
    times = observations.by(lines)
    span = max(float(times.entered.max(initial=1)), 1.0)
    fixed = roots == np.arange(len(roots))
    limits = _drift_constraints(lines, span, fixed)
    work = np.empty((0, 2), np.int64)
    moved = lines
    for _ in range(ROUNDS):
        pairs = _worst_pairs(observations.by(moved), span)
        pairs = pairs[~np.isin(_code(pairs), _code(work))]
        if not len(pairs):
            break
        work = np.concatenate([work, pairs])
        point = nearest_point(_joined(_pair_constraints(times, work, span, fixed), limits), 2 * len(roots))
        moved = lines.then(point[::2], point[1::2] / span)
        closed = shift_lines(observations, moved, roots)
        if closed:
            return closed
    return moved


def _code(pairs: Int64s) -> Int64s:
    return (pairs[:, 0] << 32) + pairs[:, 1]


def _worst_pairs(times: Observations, span: float) -> Int64s:
    """The worst pair of each violated meeting; one for each pair of clocks and stretch of time."""
    worst = WorstPairs.of(times, Extremes.of(times))
    chosen = np.flatnonzero(worst.violation > 0)
    chosen = chosen[np.argsort(-worst.violation[chosen])]
    waits, awaited = worst.waits[chosen], worst.awaited[chosen]
    stretch = np.clip(times.left[waits] * STRETCHES / span, -1, STRETCHES).astype(np.int64)
    keys = np.stack([times.clock[waits], times.clock[awaited], stretch], axis=1)
    kept = np.unique(keys, axis=0, return_index=True)[1]
    return np.stack([waits[kept], awaited[kept]], axis=1)


def _pair_constraints(times: Observations, work: Int64s, span: float, fixed: Bools) -> Constraints:
    """In each pair the first leaves after the second enters; variables are shift, and drift times span."""
    waits, awaited = work.T
    left, entered = times.left[waits], times.entered[awaited]
    first, second = 2 * times.clock[waits], 2 * times.clock[awaited]
    index = np.stack([first, first + 1, second, second + 1], axis=1)
    weight = np.stack([np.ones(len(work)), left / span, -np.ones(len(work)), -entered / span], axis=1)
    weight[fixed[index // 2]] = 0
    return Constraints(index, weight, entered - left + MARGIN_NS)


def _drift_constraints(lines: ClockLines, span: float, fixed: Bools) -> Constraints:
    """No clock drifts by more than `MAX_DRIFT`."""
    clocks = np.flatnonzero(~fixed)
    drift = lines.drift[clocks]
    most, least = ((limit - drift) / (1 - drift) * span for limit in (MAX_DRIFT, -MAX_DRIFT))
    index = np.repeat(2 * np.concatenate([clocks, clocks])[:, None] + 1, 4, axis=1)
    weight = np.zeros(index.shape)
    weight[:, 0] = np.repeat([1.0, -1.0], len(clocks))
    return Constraints(index, weight, np.concatenate([-most, least]))


def _joined(first: Constraints, second: Constraints) -> Constraints:
    return Constraints(
        np.concatenate([first.index, second.index]),
        np.concatenate([first.weight, second.weight]),
        np.concatenate([first.excess, second.excess]),
    )


# Centring: clocks with violations move to the middle of the range that all others leave them.


ROUNDS_CENTRING = 12
STEP = 0.5
"""The part of the way that a clock moves at once: the clocks that it meets move too."""


def centre_lines(observations: Observations, lines: ClockLines, roots: Int64s) -> ClockLines | None:
    """Lines that violate nothing; None if this simple method does not find them."""
    moving = roots != np.arange(len(roots))
    for _ in range(ROUNDS_CENTRING):
        regions = _regions(observations.by(lines), len(roots))
        low, high = regions.at(np.zeros(len(roots)))
        cramped = moving & ((low > 0) | (high < 0))
        drift = np.where(cramped, STEP * regions.widest(*drift_limits(lines.drift)), 0.0)
        low, high = regions.at(drift)
        both = np.isfinite(low) & np.isfinite(high)
        middle = np.where(both, (low + np.where(both, high, 0)) / 2, np.clip(0, low, high))
        lines = lines.then(np.where(cramped, STEP * middle, 0.0), drift)
        done = shift_lines(observations, lines, roots)
        if done:
            return done
    return None


def _regions(times: Observations, clocks: int) -> FeasibleRegions:
    extremes = Extremes.of(times)
    latest = _other(times, times.entered, extremes.last, extremes.last_but_one, -np.inf)
    earliest = _other(times, times.left, extremes.first, extremes.next_to_first, np.inf)
    upper, lower = (times.left - latest, times.left), (times.entered - earliest, times.entered)
    return feasible_regions(times.clock, clocks, upper, lower)


def _other(
    times: Observations, values: Float64s, extreme: Int64s, next_to_it: Int64s, missing: float
) -> Float64s:
    """For each row the extreme over all other rows of its meeting."""
    row = extreme[times.meeting]
    row = np.where(row == np.arange(len(times)), next_to_it[times.meeting], row)
    return np.where(row >= 0, values[row], missing)
