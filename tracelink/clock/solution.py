"""All of it together; contradictions and suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tracelink.clock.bounds import Rooms, envelopes_of, lacking_room, offset_bounds
from tracelink.clock.consistency import centred, settled, shifted
from tracelink.clock.lines import line_up
from tracelink.clock.observations import (
    MAX_DRIFT,
    Extremes,
    Lines,
    Meetings,
    Passages,
    Segments,
    Worst,
    early,
    linked,
)
from tracelink.model.columns import Bools, Columns, Float64s, Int64s

# Passages that no steady clocks explain together.


TOLERANCE_NS = 1000.0
"""Sources that count in whole microseconds can be off by one: that is no contradiction."""


@dataclass(frozen=True, slots=True)
class Contradictions(Columns):
    """One row for each passage that is not explained."""

    row: Int64s
    clock: Int64s
    partner: Int64s
    early: Float64s
    """By how much one of the two leaves before the other enters, at least and at worst."""
    time: Float64s

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


# Clocks that contradict others by themselves, and which of their passages one steady clock does not explain.


SHARES = (1, 2, 4, 8)
"""A clock is tried on the whole of its passages, on each half, each quarter, ...: on one of them it is steady."""
REFINEMENTS = 8


def unexplained(passages: Passages, lines: Lines) -> Contradictions:
    """Passages without which no two clocks contradict each other, whatever their drifts; of the fewest clocks."""
    times = passages.by(lines)
    lacking = lacking_room(envelopes_of(times, len(lines.offset)), lines.drift)
    suspects = _suspects(lacking)
    trusted = ~np.isin(times.clock, suspects)
    by_meeting = Segments(times.meeting[trusted], times.meetings)
    earliest, latest = by_meeting.smallest(times.left[trusted]), by_meeting.largest(times.entered[trusted])
    found = []
    for clock in suspects.tolist():
        rows = np.flatnonzero(times.clock == clock)
        meeting, mine = times.meeting[rows], times.where(times.clock == clock)
        upper, lower = mine.left - latest[meeting], mine.entered - earliest[meeting]
        time = np.where(np.isfinite(mine.entered), mine.entered, mine.left)
        order = np.argsort(time)
        odd = order[~_steady(lower[order], upper[order], time[order])]
        partner = _partner(lacking[clock], suspects)
        found.append(
            Contradictions(
                rows[odd],
                np.full(len(odd), clock),
                np.full(len(odd), partner),
                np.full(len(odd), lacking[clock, partner]),
                time[odd],
            )
        )
    return Contradictions.joined(found)


def _suspects(lacking: Float64s) -> Int64s:
    """The fewest clocks without which no pair contradicts itself; rather one that does so with many, and by more."""
    lacking = np.where(lacking > TOLERANCE_NS, lacking, 0)
    suspects: list[int] = []
    while lacking.any():
        partners, total = np.count_nonzero(lacking, axis=1), lacking.sum(axis=1)
        suspects.append(int(np.lexsort((np.arange(len(total)), total, partners))[-1]))
        lacking[suspects[-1], :] = lacking[:, suspects[-1]] = 0
    return np.array(suspects, np.int64)


def _partner(lacking: Float64s, suspects: Int64s) -> int:
    """The clock that contradicts most, rather one that is no suspect."""
    trusted = lacking.copy()
    trusted[suspects] = -np.inf
    return int((trusted if trusted.max() > TOLERANCE_NS else lacking).argmax())


def _steady(lower: Float64s, upper: Float64s, time: Float64s) -> Bools:
    """The most bounds that one offset and drift fit, of a clock whose passages are in the order of time."""
    place = np.arange(len(time))
    chosen = np.concatenate([place * share // len(time) == np.arange(share)[:, None] for share in SHARES])
    for _ in range(REFINEMENTS):
        beyond = _beyond(lower, upper, time, chosen)
        chosen = beyond <= 0
    best = chosen.sum(axis=1).argmax()
    # others can be just beyond the line in the middle of what is possible, yet not beyond every line
    nearest = np.argsort(beyond[best])
    low, high = int(np.count_nonzero(chosen[best])), len(time)
    while low < high:
        most = (low + high + 1) // 2
        tried = np.isin(place, nearest[:most])[None, :]
        low, high = (most, high) if _lacking(lower, upper, time, tried) <= 0 else (low, most - 1)
    return np.isin(place, nearest[:low])


def _beyond(lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools) -> Float64s:
    """By how much each bound is violated by the line in the middle of what the chosen ones leave."""
    drift, low, high = _middle(lower, upper, time, chosen)
    half = np.where(np.isfinite(low) & np.isfinite(high), (high - low) / 2, 0)
    shown = np.where(np.isfinite(low), low + half, np.where(np.isfinite(high), high, 0))
    line = shown[:, None] + drift[:, None] * time
    return np.maximum(lower - line, line - upper)


def _lacking(lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools) -> float:
    _, low, high = _middle(lower, upper, time, chosen)
    return float((low - high)[0])


def _middle(
    lower: Float64s, upper: Float64s, time: Float64s, chosen: Bools
) -> tuple[Float64s, Float64s, Float64s]:
    """The drift at which the chosen bounds leave most room, and between what the offset must lie there."""
    times, limit = np.broadcast_to(time, chosen.shape), np.full(len(chosen), 2 * MAX_DRIFT)
    rooms = Rooms(np.where(chosen, upper, np.inf), times, np.where(chosen, lower, -np.inf), times)
    drift = rooms.roomiest(-limit, limit)
    return (drift, *rooms.at(drift))


# All of it together: lines, the intervals of their offsets, and what contradicts itself.


ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A clock some of whose passages no steady clock explains, and the other clock that shows it most."""

    clock: int
    partner: int
    early_ns: int
    """By how much one of them leaves before the other enters."""
    first_ns: int
    last_ns: int
    """From when to when the passages are, since the reference time."""
    passages: int


@dataclass(frozen=True, slots=True)
class Solution:
    """For each clock its line, as of `reference_ns`, between what its offset lies, and what that rests on."""

    reference_ns: int
    offset: Int64s
    drift: Float64s
    low: Float64s
    high: Float64s
    constraints: Int64s
    contradictions: list[Contradiction]


def solve(meetings: Meetings) -> Solution:
    """Where each clock stands; the lowest is the reference."""
    passages, first = meetings.passages, meetings.first
    unchanged = (first[0] - first).astype(np.float64)
    roots = linked(passages.meeting, passages.clock, passages.meetings, len(first))
    kept = np.ones(len(passages), np.bool_)
    found: list[Contradictions] = []
    for _ in range(ATTEMPTS):
        lines, some = _attempt(passages.where(kept), unchanged, roots)
        if not len(some):
            break
        found.append(replace(some, row=np.flatnonzero(kept)[some.row]))
        kept[found[-1].row] = False
    low, high = _intervals(passages.where(kept), passages.where(~kept), lines)
    reference = int(first[0]) + int(lines.offset[0])
    base = first - reference
    return Solution(
        reference,
        base + np.rint(lines.offset).astype(np.int64),
        lines.drift,
        np.floor(base + low),
        np.ceil(base + high),
        meetings.constraints,
        _by_clock(Contradictions.joined(found)),
    )


def _attempt(passages: Passages, unchanged: Float64s, roots: Int64s) -> tuple[Lines, Contradictions]:
    """Lines for all clocks, and the passages that have to go before there are better ones."""
    for drifting in (False, True):
        lines = _from_zero(passages, line_up(passages, unchanged, drifting=drifting))
        easy = shifted(passages, lines, roots)
        if easy:
            return easy, Contradictions.joined([])
    odd = unexplained(passages, lines)
    if len(odd):
        return lines, odd
    easy = centred(passages, lines, roots)
    if easy:
        return easy, odd
    lines = settled(passages, lines, roots)
    return lines, violating(passages, lines)


def _from_zero(passages: Passages, lines: Lines) -> Lines:
    """The lines, with the earliest time of all as zero."""
    times = passages.by(lines)
    known = np.concatenate([times.entered[np.isfinite(times.entered)], times.left[np.isfinite(times.left)]])
    start = float(np.floor(known.min())) if len(known) else 0.0
    return lines.then(np.full(len(lines.offset), start), np.zeros(len(lines.drift)))


def _intervals(kept: Passages, dropped: Passages, lines: Lines) -> tuple[Float64s, Float64s]:
    """Lower and upper bounds of the offsets; wide enough for both sides of every contradiction."""
    low, high = offset_bounds(envelopes_of(kept.by(lines), len(lines.offset)), lines.drift)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    down, up = _strays(kept.by(lines), dropped.by(lines), len(lines.offset))
    # the other side is known no better than this one
    width = high - low
    low, high = np.where(down > 0, low - down - width, low), np.where(up > 0, high + up + width, high)
    # a shift is not quite an offset: it is measured by a clock that may drift a little more
    return lines.offset + low * (1 + 4 * MAX_DRIFT), lines.offset + high * (1 + 4 * MAX_DRIFT)


def _strays(kept: Passages, dropped: Passages, clocks: int) -> tuple[Float64s, Float64s]:
    """How far each clock strays from its line in dropped passages, back and forward."""
    by_meeting, by_clock = (
        Segments(kept.meeting, dropped.meetings + kept.meetings),
        Segments(dropped.clock, clocks),
    )
    earliest, latest = by_meeting.smallest(kept.left), by_meeting.largest(kept.entered)
    down = np.maximum(by_clock.largest(latest[dropped.meeting] - dropped.left), 0)
    up = np.maximum(by_clock.largest(dropped.entered - earliest[dropped.meeting]), 0)
    # where the reference strays, all others do the opposite
    down[1:], up[1:] = down[1:] + up[0], up[1:] + down[0]
    down[0] = up[0] = 0
    return down, up


def _by_clock(found: Contradictions) -> list[Contradiction]:
    result = []
    for clock in np.unique(found.clock):
        rows = np.flatnonzero(found.clock == clock)
        worst = rows[found.early[rows].argmax()]
        result.append(
            Contradiction(
                int(clock),
                int(found.partner[worst]),
                int(found.early[worst]),
                int(found.time[rows].min()),
                int(found.time[rows].max()),
                len(rows),
            )
        )
    return result
