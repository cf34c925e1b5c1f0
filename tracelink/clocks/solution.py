"""All of it together: lines, the intervals of their offsets, and what contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracelink.clocks.bounds import offset_bounds
from tracelink.clocks.centring import centred
from tracelink.clocks.consistency import settled, shifted
from tracelink.clocks.contradictions import Contradictions, violating
from tracelink.clocks.ends import line_up
from tracelink.clocks.envelopes import envelopes_of
from tracelink.clocks.passages import MAX_DRIFT, Lines, Meetings, Passages
from tracelink.clocks.segments import Floats, Segments, linked
from tracelink.clocks.suspects import unexplained
from tracelink.events import Int64s

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


def _attempt(passages: Passages, unchanged: Floats, roots: Int64s) -> tuple[Lines, Contradictions]:
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


def _intervals(kept: Passages, dropped: Passages, lines: Lines) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the offsets; wide enough for both sides of every contradiction."""
    low, high = offset_bounds(envelopes_of(kept.by(lines), len(lines.offset)), lines.drift)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    down, up = _strays(kept.by(lines), dropped.by(lines), len(lines.offset))
    # the other side is known no better than this one
    width = high - low
    low, high = np.where(down > 0, low - down - width, low), np.where(up > 0, high + up + width, high)
    # a shift is not quite an offset: it is measured by a clock that may drift a little more
    return lines.offset + low * (1 + 4 * MAX_DRIFT), lines.offset + high * (1 + 4 * MAX_DRIFT)


def _strays(kept: Passages, dropped: Passages, clocks: int) -> tuple[Floats, Floats]:
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
