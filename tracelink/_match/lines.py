"""Lines of clocks: a robust first estimate, and lines that violate no observation, moved as little as possible."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._match.bounds import FeasibleRegions, drift_limits, feasible_regions
from tracelink._match.observations import (
    MAX_DRIFT,
    ClockLines,
    Extremes,
    Observations,
    Segments,
    WorstPairs,
    linked,
)
from tracelink._model.columns import Bools, Float64s, Int64s

# Robust slopes of values over time, for each clock, with their uncertainty.


POINTS = 48
"""The rows of a clock are reduced to at most so many points by medians; all pairs of points are used."""

BATCH = 512
"""Clocks whose slopes are in memory at once."""

SIGMAS = 3.0
FEWEST_POINTS = 5
"""With fewer points the scatter is at least that of other clocks."""

DEVIATIONS = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class Slopes:
    """For each clock the median of the slopes between any two of its points, weighted by their distance in time.

    Collectives come in bursts: slopes within a burst are noise, and there are many of them.
    """

    def __init__(self, clock: Int64s, time: Float64s, clocks: int) -> None:
        sizes = np.bincount(clock, minlength=clocks)
        order = np.lexsort((time, clock))
        index = np.empty(len(clock), np.int64)
        index[order] = np.arange(len(clock)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        point = index * np.minimum(sizes, POINTS)[clock] // sizes[clock]
        self._points = Segments(clock * POINTS + point, clocks * POINTS)
        self._time = self._points.median(time).reshape(clocks, POINTS)
        self._count = np.minimum(sizes, POINTS)

    def of(self, values: Float64s) -> tuple[Float64s, Float64s]:
        """For each clock the slope of its values, and its uncertainty (inf: unknown)."""
        points = self._points.median(values).reshape(self._time.shape)
        slope = self._middle(points)
        given = np.isfinite(points)
        rest = np.where(given, points - slope[:, None] * np.where(given, self._time, 0.0), np.nan)
        scatter = self._scatter(np.abs(rest - _middle_of(rest)[:, None]))
        width = self._width(given)
        known = np.isfinite(scatter) & (width > 0)
        half = np.where(known, SIGMAS * scatter / np.where(known, width, 1.0), np.inf)
        return slope, half

    def _scatter(self, away: Float64s) -> Float64s:
        """The scatter of the points of each clock around its line; NaN if unknown."""
        few = self._count < FEWEST_POINTS
        farthest = np.where(np.isfinite(away), away, 0.0).max(axis=1)
        own = np.where(few, farthest, DEVIATIONS * _middle_of(away))
        reliable = own[(self._count > 2) & (few.all() | ~few)]
        typical = float(np.median(reliable)) if len(reliable) else 0.0
        several = (self._count > 1) & (typical > 0)
        return np.where(few, np.where(several, np.maximum(own, typical), np.nan), own)

    def _middle(self, points: Float64s) -> Float64s:
        """The weighted median of the slopes; 0 without any."""
        chunks = [slice(begin, begin + BATCH) for begin in range(0, len(points), BATCH)]
        return np.concatenate([_middle_slopes(points[chunk], self._time[chunk]) for chunk in chunks])

    def _width(self, given: Bools) -> Float64s:
        """The root of the summed squares of the points' distances from their mean time."""
        count = np.maximum(given.sum(axis=1), 1)
        time = np.where(given, self._time, 0.0)
        away = np.where(given, time - (time.sum(axis=1) / count)[:, None], 0.0)
        width: Float64s = np.sqrt((away**2).sum(axis=1))
        return width


def _middle_slopes(points: Float64s, time: Float64s) -> Float64s:
    """The median of the slopes between any two points of each row, weighted by their distance in time."""
    first, second = np.triu_indices(POINTS, 1)
    distance = time[:, second] - time[:, first]
    usable = np.isfinite(distance) & (distance > 0) & np.isfinite(points[:, second] - points[:, first])
    weight = np.where(usable, distance, 0.0)
    slopes = np.where(usable, points[:, second] - points[:, first], 0.0) / np.where(usable, distance, 1.0)
    order = np.argsort(slopes, axis=1)
    reached = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    middle = (reached < reached[:, -1:] / 2).sum(axis=1)
    index = np.take_along_axis(order, np.minimum(middle, len(first) - 1)[:, None], axis=1)
    found = np.take_along_axis(slopes, index, axis=1)[:, 0]
    return np.where(reached[:, -1] > 0, found, 0.0)


def _middle_of(rows: Float64s) -> Float64s:
    """The median of each row's numbers; 0 without any."""
    filled = np.sort(np.where(np.isfinite(rows), rows, np.inf), axis=1)
    count = np.isfinite(rows).sum(axis=1)
    picked = [filled[np.arange(len(rows)), np.maximum(index, 0)] for index in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, (picked[0] + np.where(count > 0, picked[1], 0.0)) / 2, 0.0)


# Lines: fitted from clock to clock by the ends of their meetings, then polished.


POLISHES = 40
SETTLED_NS = 50.0
"""Polishing stops when no time changes by more."""

FINE_DRIFT = 15e-6
"""A drift with a smaller uncertainty than this is used even if zero drift is possible."""


def fit_lines(observations: Observations, unchanged: Float64s, *, drifting: bool) -> ClockLines:
    """A line for each clock; `unchanged` are the offsets of clocks that need no correction.

    Of connected clocks the lowest one is not corrected. Clocks without ends to compare have no drift unless
    `drifting`.
    """
    fit = _LineFit(observations, unchanged, drifting)
    while not fit.fitted.all():
        if not fit.fit_by_ends() and not fit.fit_by_bounds():
            fit.fix_first()
    return _polished(observations.where(fit.comparable), fit)


class _LineFit:
    """The lines of the clocks fitted so far, each by what it shares with those fitted before."""

    def __init__(self, observations: Observations, unchanged: Float64s, drifting: bool) -> None:
        clocks = len(unchanged)
        self._steepest = MAX_DRIFT / (1 + MAX_DRIFT) if drifting else 0.0
        self.observations = observations
        self.lines = ClockLines(unchanged.copy(), np.zeros(clocks))
        self.fitted = np.zeros(clocks, np.bool_)
        self.drifts = np.zeros(clocks, np.bool_)
        """True if its drift is certain enough to be used."""
        self._uncertainty = np.zeros(clocks)
        """Of each drift."""
        has_end = np.isfinite(observations.end)
        several = np.bincount(observations.meeting[has_end], minlength=observations.meetings) > 1
        self.comparable = has_end & several[observations.meeting]
        rows = observations.where(self.comparable)
        self.component = linked(rows.meeting, rows.clock, observations.meetings, clocks)
        """For each clock the lowest one that it is compared with by ends, directly or through others."""

    def fix_first(self) -> None:
        """The lowest clock without a connection to the fitted ones is not corrected."""
        self.fitted[np.flatnonzero(~self.fitted)[0]] = True

    def fit_by_ends(self) -> bool:
        """Fits the clocks with exits that can be compared with those of fitted clocks."""
        known = self.comparable & self.fitted[self.observations.clock]
        rows = self.observations.where(known)
        by_meeting = Segments(rows.meeting, self.observations.meetings)
        common = by_meeting.median(self.lines.at(rows.clock, rows.end))
        uncertainty = by_meeting.largest(self._uncertainty[rows.clock])
        new = self.comparable & ~known & np.isfinite(common)[self.observations.meeting]
        if not new.any():
            return False
        rows = self.observations.where(new)
        self._fit(rows, common[rows.meeting], uncertainty[rows.meeting])
        return True

    def _fit(self, rows: Observations, common: Float64s, uncertainty: Float64s) -> None:
        clocks = len(self.fitted)
        by_clock = Segments(rows.clock, clocks)
        slope, half = Slopes(rows.clock, common, clocks).of(rows.end - common)
        uncertainty = np.hypot(half, np.nan_to_num(by_clock.median(uncertainty)))
        new = by_clock.sizes > 0
        certain = (
            new
            & ((np.abs(slope) > uncertainty) | (uncertainty < FINE_DRIFT))
            & (np.abs(slope) + uncertainty < MAX_DRIFT)
        )
        slope = np.where(certain, slope, 0.0)
        self.lines.offset[new] = by_clock.median(rows.end - common - slope[rows.clock] * common)[new]
        self.lines.drift[new] = (slope / (1 + slope))[new]
        self._uncertainty[new] = np.where(certain, uncertainty, 0.0)[new]
        self.drifts |= certain
        self.fitted |= new

    def fit_by_bounds(self) -> bool:
        """Fits one clock of each component, as close to no correction as the fitted clocks allow."""
        observations, fitted = self.observations, self.fitted
        times = observations.by(self.lines).where(fitted[observations.clock])
        by_meeting = Segments(times.meeting, observations.meetings)
        latest, earliest = by_meeting.largest(times.entered), by_meeting.smallest(times.left)
        rows = observations.where(~fitted[observations.clock])
        latest, earliest = latest[rows.meeting], earliest[rows.meeting]
        bounded = np.isfinite(rows.left - latest) | np.isfinite(rows.entered - earliest)
        if not bounded.any():
            return False
        chosen = np.unique(rows.clock[bounded])
        chosen = chosen[np.unique(self.component[chosen], return_index=True)[1]]
        upper, lower = (rows.left - latest, latest), (rows.entered - earliest, earliest)
        self._fit_within(feasible_regions(rows.clock, len(fitted), upper, lower), chosen)
        return True

    def _fit_within(self, regions: FeasibleRegions, chosen: Int64s) -> None:
        """Fits clocks without drift if that is feasible, else with the drift of the widest range of offsets."""
        no_drift, limit = np.zeros(len(self.fitted)), np.full(len(self.fitted), self._steepest)
        low, high = regions.at(no_drift)
        slope = np.where(low <= high, 0.0, regions.widest(-limit, limit))
        low, high = regions.at(slope)
        offset = np.clip(self.lines.offset, np.minimum(low, high), np.maximum(low, high))
        self.lines.offset[chosen] = offset[chosen]
        self.lines.drift[chosen] = (slope / (1 + slope))[chosen]
        self.fitted[chosen] = True


def _polished(ends: Observations, fit: _LineFit) -> ClockLines:
    """Median polish: a meeting's end is the median of its clocks, a clock's line is fitted to its meetings."""
    lines, start = fit.lines, fit.lines
    if not len(ends):
        return lines
    clocks = len(fit.fitted)
    by_meeting, by_clock = Segments(ends.meeting, ends.meetings), Segments(ends.clock, clocks)
    slopes = Slopes(ends.clock, lines.at(ends.clock, ends.end), clocks) if fit.drifts.any() else None
    for _ in range(POLISHES):
        time = lines.at(ends.clock, ends.end)
        rest = time - by_meeting.median(time)[ends.meeting]
        drift = _credible(slopes.of(rest)[0], fit.drifts, lines) if slopes else np.zeros(clocks)
        shift = np.nan_to_num(by_clock.median(rest - drift[ends.clock] * time))
        lines = lines.then(shift, drift)
        if np.abs(shift[ends.clock] + drift[ends.clock] * time).max() < SETTLED_NS:
            break
    return _anchored(lines, start, fit)


def _credible(drift: Float64s, drifts: Bools, lines: ClockLines) -> Float64s:
    return np.where(drifts & (np.abs(lines.drift + drift) < MAX_DRIFT), drift, 0.0)


def _anchored(lines: ClockLines, start: ClockLines, fit: _LineFit) -> ClockLines:
    """The lines, shifted so that the lowest clock of each component is where it was fitted."""
    lowest = fit.component
    moved = (start.offset - lines.offset)[lowest] * (1 - lines.drift[lowest])
    return lines.then(moved, np.zeros(len(lowest)))


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
