"""All of it together: lines, the intervals of their offsets, and what contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.bounds import offset_bounds
from tracelink.clocks.consistency import Contradictions, contradicting, settled
from tracelink.clocks.ends import line_up
from tracelink.clocks.envelopes import envelopes_of
from tracelink.clocks.passages import MAX_DRIFT, Lines, Meetings, Passages
from tracelink.clocks.segments import Floats, linked
from tracelink.events import Int64s

ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A clock some of whose crossings no line explains, and the other clock that shows it most."""

    clock: int
    partner: int
    early_ns: int
    """By how much one left before the other entered at worst."""
    time_ns: int
    """When that begins, since the reference time."""
    crossings: int


@dataclass(frozen=True, slots=True)
class Solution:
    """For each clock its line, as of `reference_ns`, between what its offset lies, and what rests on."""

    reference_ns: int
    offset: Int64s
    drift: Floats
    low: Floats
    high: Floats
    constraints: Int64s
    contradictions: list[Contradiction]


def solve(meetings: Meetings) -> Solution:
    """Where each clock stands; the lowest is the reference."""
    passages, first = meetings.passages, meetings.first
    unchanged = (first[0] - first).astype(np.float64)
    roots = linked(passages.meeting, passages.clock, passages.meetings, len(first))
    found: list[Contradictions] = []
    for _ in range(ATTEMPTS):
        lines = settled(passages, _from_zero(passages, line_up(passages, unchanged)), roots)
        some = contradicting(passages, lines)
        found.append(some)
        kept = np.ones(len(passages), np.bool_)
        kept[some.row] = False
        passages = passages.where(kept)
        if not len(some.row):
            break
    low, high = _intervals(passages, lines, found)
    reference = int(first[0]) + int(lines.offset[0])
    base = first - reference
    return Solution(
        reference,
        base + np.rint(lines.offset).astype(np.int64),
        lines.drift,
        np.floor(base + low),
        np.ceil(base + high),
        meetings.constraints,
        _contradictions(found),
    )


def _from_zero(passages: Passages, lines: Lines) -> Lines:
    """The lines, with the earliest time of all as zero."""
    times = passages.by(lines)
    known = np.concatenate([times.entered[np.isfinite(times.entered)], times.left[np.isfinite(times.left)]])
    start = np.floor(known.min(initial=np.inf))
    return lines.then(
        np.full(len(lines.offset), start if np.isfinite(start) else 0.0), np.zeros(len(lines.drift))
    )


def _intervals(passages: Passages, lines: Lines, found: list[Contradictions]) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the offsets; wide enough for both sides of every contradiction."""
    envelopes = envelopes_of(passages.by(lines), len(lines.offset))
    low, high = offset_bounds(envelopes, lines.drift)
    # a shift is not quite an offset: it is measured by a clock that may drift a little more
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    low, high = low - 4 * MAX_DRIFT * np.abs(low), high + 4 * MAX_DRIFT * np.abs(high)
    for some in found:
        for rows, sign in ((~some.entering, -1), (some.entering, 1)):
            extra = np.zeros(len(low))
            np.maximum.at(extra, some.clock[rows], some.early[rows])
            others = extra[0]
            extra[0] = 0
            if sign > 0:
                high += extra
                low[1:] -= others
            else:
                low -= extra
                high[1:] += others
    return lines.offset + low, lines.offset + high


def _contradictions(found: list[Contradictions]) -> list[Contradiction]:
    clock, partner, early, time = (
        np.concatenate([getattr(some, name) for some in found])
        for name in ("clock", "partner", "early", "time")
    )
    result = []
    for number in np.unique(clock):
        rows = np.flatnonzero(clock == number)
        worst = rows[early[rows].argmax()]
        result.append(
            Contradiction(
                int(number), int(partner[worst]), int(early[worst]), int(time[rows].min()), len(rows)
            )
        )
    return result
