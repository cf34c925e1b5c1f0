"""Ranks that usually come late together, as those of one slow host do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.analysis.recorder_clocks import lags_of
from tracelink.analysis.rounds import Rounds
from tracelink.events import Int64s
from tracelink.journal import Journal

FEWEST_ROUNDS = 20
NOTICEABLE_NS = 1_000_000
COSTLY = 0.2
"""The share of the time that others wait for them."""


@dataclass(frozen=True, slots=True)
class LateTogether:
    """Some ranks, and how much later than the others they usually come."""

    ranks: tuple[int, ...]
    lag_ns: int


def late_together(journal: Journal, parts: Parts, rounds: Rounds) -> LateTogether | None:
    """The ranks, no more than half of all, that others have to wait for in the largest group."""
    largest = rounds.size == rounds.size.max(initial=0)
    if np.count_nonzero(largest) < FEWEST_ROUNDS:
        return None
    span, count = int(np.ptp(rounds.came)), int(np.count_nonzero(largest))
    if _spread(parts, rounds)[largest].sum() < COSTLY * span:
        return None
    lags = lags_of(journal)
    comparable = np.flatnonzero(lags.union == np.bincount(lags.union).argmax())
    order = comparable[np.argsort(lags.lag[comparable])]
    steps = np.diff(lags.lag[order])
    # of a host all ranks are late alike: one step is as high as all others together
    first = len(order) // 2 + int(steps[len(order) // 2 - 1 :].argmax()) if len(order) > 3 else len(order)
    late, others = order[first:], order[:first]
    if len(late) < 2 or len(others) < len(late):
        return None
    step = float(lags.lag[late].min() - lags.lag[others].max())
    if step < NOTICEABLE_NS or 2 * step < np.ptp(lags.lag[order]) or step * count < COSTLY * span:
        return None
    usual = float(np.median(lags.lag[late]) - np.median(lags.lag[others]))
    return LateTogether(tuple(sorted(journal.ranks[late].tolist())), round(usual))


def _spread(parts: Parts, rounds: Rounds) -> Int64s:
    """How long the last of each round came after the first."""
    first = np.cumsum(rounds.size) - rounds.size
    spread: Int64s = rounds.came - np.minimum.reduceat(parts.created[rounds.parts()], first)
    return spread
