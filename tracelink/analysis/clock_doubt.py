"""How much of what looks like being late may be a clock that is ahead."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.attendance import Attendance
from tracelink.analysis.parts import Parts
from tracelink.analysis.recorder_clocks import lags_of
from tracelink.analysis.rounds import Rounds
from tracelink.clocks.segments import Floats
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.journal import Journal

TOLERANCE_NS = 100_000
SELDOM = 0.1
"""What is so in fewer rounds is an exception, and no property of a clock."""
OFTEN = 0.25
RUN_AHEAD_NS = 10_000_000
"""Ranks may go on before a collective is over; if it seems so this often and by so much, it is rather their clocks."""

ONE_LOOK_NS = 1_000_000
"""What a watchdog sees to be over within this time it has seen at one look."""
FEWEST_LOOKS = 20
"""So many make an average of when it sees what is over."""
NEVER = np.iinfo(np.int64).max
PROMPT_NS = 20_000_000
PROMPT = 0.1
"""Where others go on so soon after it came, as a share of how late it was, they waited for it."""


def by_one_clock(journal: Journal, parts: Parts, rounds: Rounds) -> Int64s | None:
    """When each part was created, if clocks differ: all ranks then come equally late on average.

    None where ranks may well have left all rounds after everybody came, by the clocks they have.
    """
    if not len(rounds):
        return None
    rows = rounds.parts()
    left, most = _left(journal, parts, rows)
    early = _early(rounds, parts.created[rows], left)
    if np.mean(early) <= most:
        return None
    lag = lags_of(journal).lag
    if most and np.ptp(lag) < RUN_AHEAD_NS:
        return None
    lags = np.rint(lag).astype(np.int64)[np.searchsorted(journal.ranks, parts.rank)]
    times = parts.created[rows] - lags[rows]
    corrected = _early(rounds, times, np.where(left == NEVER, NEVER, left - lags[rows]))
    if np.count_nonzero(corrected) > np.count_nonzero(early) / 2:
        return None
    return np.where(parts.created == NO_TIME, NO_TIME, parts.created - lags)


def _left(journal: Journal, parts: Parts, rows: Int64s) -> tuple[Int64s, float]:
    """When each part had certainly been left; and of how many rounds that may be untrue.

    It is what the recorder saw. Of recorders that see nothing, the next thing that the rank did.
    """
    last = parts.last[rows]
    over = journal.records.completed[last]
    if (over != NO_TIME).any():
        return np.where(over == NO_TIME, NEVER, over), 0.0
    after = np.minimum(last + 1, len(journal) - 1)
    following = journal.records.created[after]
    known = (after > last) & (journal.rank[after] == parts.rank[rows]) & (following != NO_TIME)
    return np.where(known, following, NEVER), OFTEN


def _early(rounds: Rounds, came: Int64s, left: Int64s) -> Bools:
    """Whether somebody left a round before everybody had come."""
    first = np.cumsum(rounds.size) - rounds.size
    early: Bools = np.minimum.reduceat(left, first) < np.maximum.reduceat(came, first) - TOLERANCE_NS
    return early


def possibly_ahead(seen: Attendance) -> tuple[float, bool]:
    """By how much the rank's clock may be ahead of those of the others in a group, in ns; and whether it surely is."""
    always = _usual(seen.own - np.median(seen.came, axis=1))
    if always <= 0:
        return 0.0, False
    ends = _by_ends(seen)
    ahead = max(0.0, min(always, ends, _prompt(seen, always)))
    return ahead, bool(np.isfinite(ends))


def _usual(values: Floats) -> float:
    """What nearly all are above."""
    known = values[np.isfinite(values)]
    return float(np.quantile(known, SELDOM)) if len(known) else np.inf


def _by_ends(seen: Attendance) -> float:
    """All leave together, and watchdogs look equally often: what one sees later, its clock is ahead."""
    later = seen.own_over - np.median(seen.over, axis=1)
    later = later[np.isfinite(later)]
    seen_over = np.sort(seen.own_over[np.isfinite(seen.own_over)])
    looks = 1 + int(np.count_nonzero(np.diff(seen_over) > ONE_LOOK_NS))
    if min(len(later), looks) < FEWEST_LOOKS:
        return np.inf
    middle = float(np.median(later))
    deviation = 1.4826 * float(np.median(np.abs(later - middle)))
    # three standard errors of a median
    return middle + 3 * 1.2533 * deviation / float(np.sqrt(looks))


def _prompt(seen: Attendance, always: float) -> float:
    """Others go on right after it came: by chance that is hardly so."""
    soon = _usual(seen.next.min(axis=1) - seen.own)
    return soon if always >= PROMPT_NS and 0 <= soon <= PROMPT * always else np.inf
