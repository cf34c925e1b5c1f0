"""Drifts that leave room: clocks that violate something go to the middle of what all others leave them."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.bounds import drift_limits
from tracelink.clocks.consistency import shifted
from tracelink.clocks.extremes import Extremes
from tracelink.clocks.passages import Lines, Passages
from tracelink.clocks.rooms import Rooms, rooms_of
from tracelink.clocks.segments import Floats
from tracelink.events import Int64s

ROUNDS = 12
STEP = 0.5
"""How far a clock goes at once: those it meets go too."""


def centred(passages: Passages, lines: Lines, roots: Int64s) -> Lines | None:
    """Lines that violate nothing; None where this simple way does not lead to them."""
    moving = roots != np.arange(len(roots))
    for _ in range(ROUNDS):
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


def _other(times: Passages, values: Floats, extreme: Int64s, next_to_it: Int64s, nothing: float) -> Floats:
    """For each row the extreme of all other rows of its meeting."""
    row = extreme[times.meeting]
    row = np.where(row == np.arange(len(times)), next_to_it[times.meeting], row)
    return np.where(row >= 0, values[row], nothing)
