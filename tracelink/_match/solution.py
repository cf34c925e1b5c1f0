"""The clock solution: lines, bounds of their offsets, and observations that no steady clocks explain."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.bounds import FeasibleRegions, envelopes_of, infeasibility, offset_bounds
from tracelink._match.lines import centre_lines, fit_lines, settle_lines, shift_lines
from tracelink._match.observations import (
    MAX_DRIFT,
    ClockLines,
    ClockObservations,
    Extremes,
    Observations,
    Segments,
    WorstPairs,
    linked,
    violation_of,
)
from tracelink._model.columns import Bools, Float64s, Int64s, Table

# Observations that the given lines violate.


TOLERANCE_NS = 1000.0
"""Sources with times in integer microseconds can be off by one; this is not a contradiction."""


class _Contradictions(Table, frozen=True):
    """One row for each observation that is not explained."""

    row: Int64s
    clock: Int64s
    partner: Int64s
    violation: Float64s
    """The least and worst amount by which one of the two leaves before the other enters."""
    time: Float64s


def _violations(observations: Observations, lines: ClockLines) -> _Contradictions:
    """Observations to skip, so that no clock leaves before the others have entered by more than the tolerance."""
    found: list[_Contradictions] = []
    rows = np.arange(len(observations))
    times = observations.by(lines)
    while len(rows):
        worst = _worst_observations(times.where(np.isin(np.arange(len(times)), rows)))
        if not len(worst):
            break
        found.append(
            _Contradictions(rows[worst.row], worst.clock, worst.partner, worst.violation, worst.time)
        )
        rows = np.delete(rows, worst.row)
    return _Contradictions.concatenate(found)


def _worst_observations(times: Observations) -> _Contradictions:
    """For each meeting with a violation the observation that causes most of it."""
    extremes = Extremes.of(times)
    worst = WorstPairs.of(times, extremes)
    bad = np.flatnonzero(worst.violation > TOLERANCE_NS)
    without_last = np.maximum(violation_of(times, extremes.first, extremes.last_but_one)[bad], 0)
    without_first = np.maximum(violation_of(times, extremes.next_to_first, extremes.last)[bad], 0)
    waits, awaited = worst.waits[bad], worst.awaited[bad]
    clock, partner = times.clock[waits], times.clock[awaited]
    clocks = int(times.clock.max(initial=0)) + 1
    decided = without_last != without_first
    blamed = np.where(without_last < without_first, partner, clock)
    votes = np.bincount(blamed[decided], minlength=clocks) * (len(bad) + 1.0)
    votes += np.bincount(clock, minlength=clocks) + np.bincount(partner, minlength=clocks)
    voted = (votes[partner] > votes[clock]) | ((votes[partner] == votes[clock]) & (partner > clock))
    entering = np.where(decided, without_last < without_first, voted)
    row = np.where(entering, awaited, waits)
    time = np.where(entering, times.entered[row], times.left[row])
    return _Contradictions(
        row, times.clock[row], np.where(entering, clock, partner), worst.violation[bad], time
    )


# Clocks that contradict others at any drift, and which of their observations no steady clock explains.


SHARES = (1, 2, 4, 8)
"""A line is tried on all observations of a clock, on each half, each quarter, ...: on one part it is steady."""
REFINEMENTS = 8


def _unexplained(observations: Observations, lines: ClockLines) -> _Contradictions:
    """Observations to skip, of as few clocks as possible, so that no two clocks contradict each other at any drift."""
    times = observations.by(lines)
    excess = infeasibility(envelopes_of(times, len(lines.offset)), lines.drift)
    suspects = _suspects(excess)
    trusted = ~np.isin(times.clock, suspects)
    by_meeting = Segments(times.meeting[trusted], times.meetings)
    earliest, latest = by_meeting.smallest(times.left[trusted]), by_meeting.largest(times.entered[trusted])
    found = []
    for clock in suspects.tolist():
        rows = np.flatnonzero(times.clock == clock)
        meeting, own = times.meeting[rows], times.where(times.clock == clock)
        upper, lower = own.left - latest[meeting], own.entered - earliest[meeting]
        time = np.where(np.isfinite(own.entered), own.entered, own.left)
        order = np.argsort(time)
        rejected = order[~_steady(lower[order], upper[order], time[order])]
        partner = _partner(excess[clock], suspects)
        found.append(
            _Contradictions(
                rows[rejected],
                np.full(len(rejected), clock),
                np.full(len(rejected), partner),
                np.full(len(rejected), excess[clock, partner]),
                time[rejected],
            )
        )
    return _Contradictions.concatenate(found)


def _suspects(excess: Float64s) -> Int64s:
    """The fewest clocks to exclude so that no pair contradicts; those with the most contradictions first."""
    excess = np.where(excess > TOLERANCE_NS, excess, 0)
    suspects: list[int] = []
    while excess.any():
        partners, total = np.count_nonzero(excess, axis=1), excess.sum(axis=1)
        suspects.append(int(np.lexsort((np.arange(len(total)), total, partners))[-1]))
        excess[suspects[-1], :] = excess[:, suspects[-1]] = 0
    return np.array(suspects, np.int64)


def _partner(excess: Float64s, suspects: Int64s) -> int:
    """The clock that contradicts most, if possible not a suspect."""
    trusted = excess.copy()
    trusted[suspects] = -np.inf
    return int((trusted if trusted.max() > TOLERANCE_NS else excess).argmax())


def _steady(lower: Float64s, upper: Float64s, time: Float64s) -> Bools:
    """The largest set of bounds that one offset and drift fit; observations are in the order of time."""
    index = np.arange(len(time))
    chosen = np.concatenate([index * share // len(time) == np.arange(share)[:, None] for share in SHARES])
    for _ in range(REFINEMENTS):
        beyond = _beyond(lower, upper, time, chosen)
        chosen = beyond <= 0
    best = chosen.sum(axis=1).argmax()
    # bounds just beyond the middle line may still fit another line
    nearest_point = np.argsort(beyond[best])
    low, high = int(np.count_nonzero(chosen[best])), len(time)
    while low < high:
        most = (low + high + 1) // 2
        tried = np.isin(index, nearest_point[:most])[None, :]
        low, high = (most, high) if _infeasibility(lower, upper, time, tried) <= 0 else (low, most - 1)
    return np.isin(index, nearest_point[:low])


def _beyond(lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools) -> Float64s:
    """By how much the middle line of the chosen bounds violates each bound."""
    drift, low, high = _middle(lower, upper, time, chosen)
    half = np.where(np.isfinite(low) & np.isfinite(high), (high - low) / 2, 0)
    line_at_zero = np.where(np.isfinite(low), low + half, np.where(np.isfinite(high), high, 0))
    line = line_at_zero[:, None] + drift[:, None] * time
    return np.maximum(lower - line, line - upper)


def _infeasibility(lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools) -> float:
    _, low, high = _middle(lower, upper, time, chosen)
    return float((low - high)[0])


def _middle(
    lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools
) -> tuple[Float64s, Float64s, Float64s]:
    """The drift with the widest range of offsets within the chosen bounds, and this range."""
    times, limit = np.broadcast_to(time, chosen.shape), np.full(len(chosen), 2 * MAX_DRIFT)
    regions = FeasibleRegions(np.where(chosen, upper, np.inf), times, np.where(chosen, lower, -np.inf), times)
    drift = regions.widest(-limit, limit)
    return (drift, *regions.at(drift))


# The solution.


ATTEMPTS = 20


class Contradiction(Struct, frozen=True):
    """A clock with observations that no steady clock explains, and the clock that contradicts it most."""

    clock: int
    partner: int
    violation_ns: int
    """By how much one of them leaves before the other enters."""
    first_ns: int
    last_ns: int
    """The first and last time of the observations, since the reference time."""
    observations: int


class Solution(Struct, frozen=True):
    """For each clock its line at `reference_ns`, the bounds of its offset, and the number of constraints."""

    reference_ns: int
    offset: Int64s
    drift: Float64s
    low: Float64s
    high: Float64s
    constraints: Int64s
    contradictions: list[Contradiction]


def solve(meetings: ClockObservations) -> Solution:
    """The line of each clock; the lowest clock is the reference."""
    observations, first = meetings.observations, meetings.first
    unchanged = (first[0] - first).astype(np.float64)
    roots = linked(observations.meeting, observations.clock, observations.meetings, len(first))
    kept = np.ones(len(observations), np.bool_)
    found: list[_Contradictions] = []
    for _ in range(ATTEMPTS):
        lines, rejected = _attempt(observations.where(kept), unchanged, roots)
        if not len(rejected):
            break
        found.append(replace(rejected, row=np.flatnonzero(kept)[rejected.row]))
        kept[found[-1].row] = False
    low, high = _intervals(observations.where(kept), observations.where(~kept), lines)
    reference = int(first[0]) + int(lines.offset[0])
    base = first - reference
    return Solution(
        reference,
        base + np.rint(lines.offset).astype(np.int64),
        lines.drift,
        np.floor(base + low),
        np.ceil(base + high),
        meetings.constraints,
        _by_clock(_Contradictions.concatenate(found)),
    )


def _attempt(
    observations: Observations, unchanged: Float64s, roots: Int64s
) -> tuple[ClockLines, _Contradictions]:
    """Lines for all clocks, and the observations to skip before better ones are possible."""
    for drifting in (False, True):
        lines = _from_zero(observations, fit_lines(observations, unchanged, drifting=drifting))
        consistent = shift_lines(observations, lines, roots)
        if consistent:
            return consistent, _Contradictions.concatenate([])
    rejected = _unexplained(observations, lines)
    if len(rejected):
        return lines, rejected
    consistent = centre_lines(observations, lines, roots)
    if consistent:
        return consistent, rejected
    lines = settle_lines(observations, lines, roots)
    return lines, _violations(observations, lines)


def _from_zero(observations: Observations, lines: ClockLines) -> ClockLines:
    """The lines, with zero at the earliest time."""
    times = observations.by(lines)
    known = np.concatenate([times.entered[np.isfinite(times.entered)], times.left[np.isfinite(times.left)]])
    start = float(np.floor(known.min())) if len(known) else 0.0
    return lines.then(np.full(len(lines.offset), start), np.zeros(len(lines.drift)))


def _intervals(kept: Observations, dropped: Observations, lines: ClockLines) -> tuple[Float64s, Float64s]:
    """Lower and upper bounds of the offsets, wide enough for both sides of every contradiction."""
    low, high = offset_bounds(envelopes_of(kept.by(lines), len(lines.offset)), lines.drift)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    down, up = _strays(kept.by(lines), dropped.by(lines), len(lines.offset))
    # the other side is not known better than this one
    width = high - low
    low, high = np.where(down > 0, low - down - width, low), np.where(up > 0, high + up + width, high)
    # a shift differs slightly from an offset: it is measured on a clock that may drift a little more
    return lines.offset + low * (1 + 4 * MAX_DRIFT), lines.offset + high * (1 + 4 * MAX_DRIFT)


def _strays(kept: Observations, dropped: Observations, clocks: int) -> tuple[Float64s, Float64s]:
    """The distance of each clock from its line in skipped observations, backward and forward."""
    by_meeting, by_clock = (
        Segments(kept.meeting, dropped.meetings + kept.meetings),
        Segments(dropped.clock, clocks),
    )
    earliest, latest = by_meeting.smallest(kept.left), by_meeting.largest(kept.entered)
    down = np.maximum(by_clock.largest(latest[dropped.meeting] - dropped.left), 0)
    up = np.maximum(by_clock.largest(dropped.entered - earliest[dropped.meeting]), 0)
    # a deviation of the reference is the opposite deviation of all other clocks
    down[1:], up[1:] = down[1:] + up[0], up[1:] + down[0]
    down[0] = up[0] = 0
    return down, up


def _by_clock(found: _Contradictions) -> list[Contradiction]:
    result = []
    for clock in np.unique(found.clock):
        rows = np.flatnonzero(found.clock == clock)
        worst = rows[found.violation[rows].argmax()]
        result.append(
            Contradiction(
                int(clock),
                int(found.partner[worst]),
                int(found.violation[worst]),
                int(found.time[rows].min()),
                int(found.time[rows].max()),
                len(rows),
            )
        )
    return result
