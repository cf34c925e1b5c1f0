"""How far two ranks' clocks are apart, as far as that decides which of their calls are the same.

What repeats can be aligned in several ways, each with another distance of the clocks. Calls that truly are the
same end at nearly the same distance everywhere; of others the distances scatter as the times between calls do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.events import NO_TIME, Int64s
from tracelink.linking.alignment import NONE
from tracelink.linking.timing import Floats, Timeline, Track, mutual

PLAUSIBLE_NS = 250_000_000
"""Clocks that somebody sets are seldom further apart."""

FASTEST_DRIFT = 2e-4
FINEST_DRIFT = 1e-5
"""Drift that is left where it was estimated."""

OVERLAPPING = 0.9
FEWEST = 3
"""Distances of fewer calls say nothing of how they scatter."""

CHANCE = 6
"""Scatterings of n calls that differ by less than this part of the square root of n are alike."""

DECIDES = 12
"""Times decide between ways that labels allow if equal calls are so many scatterings apart."""

DECIDES_ALONE = 100
"""Times decide whatever labels allow if equal calls are so many scatterings apart."""

MOST = 0.7
"""So many of the calls that two ranks made at the same time must coincide."""

FINEST_NS = 5000.0
"""Ends that scatter less coincide."""

PROBES = 24
PEAKS = 2
ROUNDS = 20
WIDTHS = (1000, 200, 40)
"""Offsets are alike that differ by less than such a part of the time between equal calls."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A way to pair calls by time: their times by the other clock are `time + offset + drift * (time - center)`."""

    offset: float
    drift: float
    center: int
    spread: float
    place: Int64s
    """Of the calls that coincide."""
    matched: int

    def expected(self, time: Int64s) -> Int64s:
        """Times by the clock of the others; NO_TIME stays."""
        shift = np.rint(self.offset + self.drift * (time - self.center)).astype(np.int64)
        return np.where(time == NO_TIME, NO_TIME, time + shift)

    def scatters_like(self, sharpest: Shift) -> bool:
        """Whether it is by chance that its calls scatter more than those of another."""
        chance = 1 + CHANCE / float(min(self.matched, sharpest.matched)) ** 0.5
        return bool(self.spread <= sharpest.spread * chance)

    def perfect(self, ours: int, theirs: int) -> bool:
        """Whether all calls coincide as well as they can, by clocks that somebody set."""
        exact = self.spread <= FINEST_NS and abs(self.offset) <= PLAUSIBLE_NS
        return exact and self.matched == ours == theirs

    def like(self, other: Shift) -> bool:
        """Whether both mean the same distance of the clocks."""
        return abs(self.offset - other.offset) <= DECIDES * min(self.spread, other.spread)


def shift_of(track: Track, others: Track, place: Int64s) -> Shift | None:
    """The shift that given places mean; None where too few tell."""
    known = np.flatnonzero((place >= 0) & (track.time != NO_TIME))
    known = known[others.time[place[known]] != NO_TIME]
    if len(known) < FEWEST:
        return None
    time = track.time[known]
    apart = (others.time[place[known]] - time).astype(np.float64)
    center = int(np.median(time))
    drift = _drift(time, apart)
    offset = float(np.median(apart - drift * (time - center)))
    distance = np.abs(apart - offset - drift * (time - center))
    spread = max(float(np.median(distance)), FINEST_NS)
    close = np.full(len(place), NONE, np.int64)
    close[known] = np.where(distance <= DECIDES * spread, place[known], NONE)
    return Shift(offset, drift, center, spread, close, int(np.count_nonzero(close != NONE)))


def sharp(shift: Shift, others: Track, decides: int) -> bool:
    """Whether equal calls are apart by `decides` times as much as the ends of one scatter."""
    return decides * shift.spread <= Timeline(others).typical_gap()


def possible_shifts(track: Track, others: Track) -> list[Shift]:
    """Shifts by which many calls coincide."""
    mine, theirs = Timeline(track), Timeline(others)
    found: list[Shift] = []
    if len(mine.rows) < FEWEST or len(theirs.rows) < FEWEST:
        return found
    for offset in (0, *_peaks(track, mine, others, theirs)):
        if not any(abs(offset - other.offset) <= FINEST_NS for other in found):
            shift = _refined(track, mine, others, theirs, int(offset))
            if shift and not any(shift.like(other) for other in found):
                found.append(shift)
            if shift and shift.perfect(len(mine.rows), len(theirs.rows)):
                break
    return [
        shift
        for shift in found
        if _coincide(shift, track, others) and overlap(track, others, shift.place, shift.drift)
    ]


def best_shift(shifts: Sequence[Shift], others: Track, decides: int) -> Shift | None:
    """The shift by which most calls coincide best.

    None where others are as good, or if it is not sharp enough to decide.
    """
    if not shifts:
        return None
    sharpest = min(shifts, key=lambda shift: shift.spread)
    alike = [shift for shift in shifts if shift.scatters_like(sharpest)]
    alike = [shift for shift in alike if abs(shift.offset) <= PLAUSIBLE_NS] or alike
    most = max(shift.matched for shift in alike)
    best = [shift for shift in alike if shift.matched == most]
    return best[0] if len(best) == 1 and sharp(best[0], others, decides) else None


def overlap(track: Track, others: Track, place: Int64s, drift: float = 0.0) -> bool:
    """Whether there is a distance of the clocks with which nearly all pairs overlap in time that must."""
    paired = np.flatnonzero((place >= 0) & (track.time != NO_TIME))
    paired = paired[others.time[place[paired]] != NO_TIME]
    theirs = place[paired]
    waited = others.entered[theirs] != NO_TIME
    awaited = track.entered[paired] != NO_TIME
    if not (waited & awaited).any():
        return True
    apart = drift * (track.time[paired] - track.time[paired[0]])
    least = np.where(waited, others.entered[theirs] - track.time[paired] - apart, -np.inf)
    most = np.where(awaited, others.time[theirs] - track.entered[paired] - apart, np.inf)
    slack = FINEST_NS + (FINEST_DRIFT if drift else FASTEST_DRIFT) * float(np.ptp(track.time[paired]))
    least, most = np.sort(least), np.sort(most) + slack
    covered = np.arange(1, len(paired) + 1) - np.searchsorted(most, least)
    return bool(covered.max() >= OVERLAPPING * len(paired))


def _coincide(shift: Shift, track: Track, others: Track) -> bool:
    """Whether most of what both ranks did while both were watched is paired."""
    ours, theirs = shift.expected(track.time), others.time
    ours, theirs = ours[ours != NO_TIME], theirs[theirs != NO_TIME]
    first, last = max(ours.min(), theirs.min()), min(ours.max(), theirs.max())
    slack = int(DECIDES * shift.spread)
    both = min(np.count_nonzero((time >= first - slack) & (time <= last + slack)) for time in (ours, theirs))
    return bool(shift.matched >= MOST * both)


def _refined(track: Track, mine: Timeline, others: Track, theirs: Timeline, offset: int) -> Shift | None:
    """The shift near an offset that the calls nearest to each other have in common."""
    expected = np.where(track.time == NO_TIME, NO_TIME, track.time + offset)
    best = None
    for _ in range(ROUNDS):
        shift = shift_of(track, others, mutual(track, mine, others, theirs, expected, np.inf))
        if not shift or (best and shift.spread >= best.spread and shift.matched <= best.matched):
            break
        best, expected = shift, shift.expected(track.time)
    if not best:
        return None
    place = mutual(track, mine, others, theirs, best.expected(track.time), best.spread)
    return replace(best, place=place, matched=int(np.count_nonzero(place != NONE)))


def _peaks(track: Track, mine: Timeline, others: Track, theirs: Timeline) -> Iterator[int]:
    """Offsets by which most of some calls coincide with an equal one."""
    probes = mine.rows[np.linspace(0, len(mine.rows) - 1, min(PROBES, len(mine.rows))).astype(np.int64)]
    apart = np.sort(
        np.concatenate(
            [theirs.all_of(int(track.label[row]), others) - track.time[row] for row in probes.tolist()]
        )
    )
    gap = theirs.typical_gap()
    for part in WIDTHS if np.isfinite(gap) else WIDTHS[:1]:
        width = max(int(gap / part) if np.isfinite(gap) else 0, int(FINEST_NS))
        votes = np.searchsorted(apart, apart + width, side="right") - np.arange(len(apart))
        for _ in range(PEAKS):
            if votes.max(initial=0) < FEWEST:
                break
            best = int(np.argmax(votes))
            middle = int(apart[best + int(votes[best]) // 2])
            yield middle
            votes[np.abs(apart - middle) <= 2 * width] = 0


def _drift(time: Int64s, apart: Floats) -> float:
    """How much faster the other clock goes, from the first and the last third of the distances."""
    third = len(time) // 3
    if third < FEWEST:
        return 0.0
    length = float(np.median(time[-third:]) - np.median(time[:third]))
    if length <= 0:
        return 0.0
    slope = float(np.median(apart[-third:]) - np.median(apart[:third])) / length
    return slope if abs(slope) <= FASTEST_DRIFT else 0.0
