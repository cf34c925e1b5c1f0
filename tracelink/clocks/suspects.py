"""Clocks that contradict others by themselves, and which of their passages one steady clock does not explain."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.bounds import lacking_room
from tracelink.clocks.contradictions import TOLERANCE_NS, Contradictions
from tracelink.clocks.envelopes import envelopes_of
from tracelink.clocks.passages import MAX_DRIFT, Lines, Passages
from tracelink.clocks.rooms import Rooms
from tracelink.clocks.segments import Floats, Segments
from tracelink.events import Bools, Int64s

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


def _suspects(lacking: Floats) -> Int64s:
    """The fewest clocks without which no pair contradicts itself; rather one that does so with many, and by more."""
    lacking = np.where(lacking > TOLERANCE_NS, lacking, 0)
    suspects: list[int] = []
    while lacking.any():
        partners, total = np.count_nonzero(lacking, axis=1), lacking.sum(axis=1)
        suspects.append(int(np.lexsort((np.arange(len(total)), total, partners))[-1]))
        lacking[suspects[-1], :] = lacking[:, suspects[-1]] = 0
    return np.array(suspects, np.int64)


def _partner(lacking: Floats, suspects: Int64s) -> int:
    """The clock that contradicts most, rather one that is no suspect."""
    trusted = lacking.copy()
    trusted[suspects] = -np.inf
    return int((trusted if trusted.max() > TOLERANCE_NS else lacking).argmax())


def _steady(lower: Floats, upper: Floats, time: Floats) -> Bools:
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


def _beyond(lower: Floats, upper: Floats, time: Floats, chosen: Bools) -> Floats:
    """By how much each bound is violated by the line in the middle of what the chosen ones leave."""
    drift, low, high = _middle(lower, upper, time, chosen)
    half = np.where(np.isfinite(low) & np.isfinite(high), (high - low) / 2, 0)
    shown = np.where(np.isfinite(low), low + half, np.where(np.isfinite(high), high, 0))
    line = shown[:, None] + drift[:, None] * time
    return np.maximum(lower - line, line - upper)


def _lacking(lower: Floats, upper: Floats, time: Floats, chosen: Bools) -> float:
    _, low, high = _middle(lower, upper, time, chosen)
    return float((low - high)[0])


def _middle(lower: Floats, upper: Floats, time: Floats, chosen: Bools) -> tuple[Floats, Floats, Floats]:
    """The drift at which the chosen bounds leave most room, and between what the offset must lie there."""
    times, limit = np.broadcast_to(time, chosen.shape), np.full(len(chosen), 2 * MAX_DRIFT)
    rooms = Rooms(np.where(chosen, upper, np.inf), times, np.where(chosen, lower, -np.inf), times)
    drift = rooms.roomiest(-limit, limit)
    return (drift, *rooms.at(drift))
