"""Lines along which nobody leaves before the others have entered."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.closure import MARGIN_NS, closing_shift
from tracelink.clocks.extremes import Extremes, Worst
from tracelink.clocks.nearest import Demands, nearest
from tracelink.clocks.passages import MAX_DRIFT, Lines, Passages
from tracelink.events import Bools, Int64s

ROUNDS = 20
STRETCHES = 16


def shifted(passages: Passages, lines: Lines, roots: Int64s) -> Lines | None:
    """The lines, shifted so that they violate nothing; None where drifts would have to change for that.

    `roots` says for each clock which clock it is measured by: that one keeps its line.
    """
    shift = closing_shift(passages.by(lines), len(roots))
    return None if shift is None else lines.then(shift - shift[roots], np.zeros(len(roots)))


def settled(passages: Passages, lines: Lines, roots: Int64s) -> Lines:
    """Lines near those given that violate nothing, or as little as can be."""
    times = passages.by(lines)
    span = max(float(times.entered.max(initial=1)), 1.0)
    fixed = roots == np.arange(len(roots))
    limits = _limits(lines, span, fixed)
    work = np.empty((0, 2), np.int64)
    moved = lines
    for _ in range(ROUNDS):
        pairs = _worst_pairs(passages.by(moved), span)
        pairs = pairs[~np.isin(_code(pairs), _code(work))]
        if not len(pairs):
            break
        work = np.concatenate([work, pairs])
        point = nearest(_joined(_demands(times, work, span, fixed), limits), 2 * len(roots))
        moved = lines.then(point[::2], point[1::2] / span)
        closed = shifted(passages, moved, roots)
        if closed:
            return closed
    return moved


def _code(pairs: Int64s) -> Int64s:
    return (pairs[:, 0] << 32) + pairs[:, 1]


def _worst_pairs(times: Passages, span: float) -> Int64s:
    """The worst pair of each meeting where somebody leaves too early; of one pair of clocks few in each stretch."""
    worst = Worst.of(times, Extremes.of(times))
    chosen = np.flatnonzero(worst.early > 0)
    chosen = chosen[np.argsort(-worst.early[chosen])]
    waits, awaited = worst.waits[chosen], worst.awaited[chosen]
    stretch = np.clip(times.left[waits] * STRETCHES / span, -1, STRETCHES).astype(np.int64)
    keys = np.stack([times.clock[waits], times.clock[awaited], stretch], axis=1)
    kept = np.unique(keys, axis=0, return_index=True)[1]
    return np.stack([waits[kept], awaited[kept]], axis=1)


def _demands(times: Passages, work: Int64s, span: float, fixed: Bools) -> Demands:
    """That of each pair the one leaves after the other enters: variables are shift and drift times span."""
    waits, awaited = work.T
    left, entered = times.left[waits], times.entered[awaited]
    one, other = 2 * times.clock[waits], 2 * times.clock[awaited]
    index = np.stack([one, one + 1, other, other + 1], axis=1)
    weight = np.stack([np.ones(len(work)), left / span, -np.ones(len(work)), -entered / span], axis=1)
    weight[fixed[index // 2]] = 0
    return Demands(index, weight, entered - left + MARGIN_NS)


def _limits(lines: Lines, span: float, fixed: Bools) -> Demands:
    """That no clock drifts more than clocks do."""
    clocks = np.flatnonzero(~fixed)
    drift = lines.drift[clocks]
    most, least = ((limit - drift) / (1 - drift) * span for limit in (MAX_DRIFT, -MAX_DRIFT))
    index = np.repeat(2 * np.concatenate([clocks, clocks])[:, None] + 1, 4, axis=1)
    weight = np.zeros(index.shape)
    weight[:, 0] = np.repeat([1.0, -1.0], len(clocks))
    return Demands(index, weight, np.concatenate([-most, least]))


def _joined(one: Demands, other: Demands) -> Demands:
    return Demands(
        np.concatenate([one.index, other.index]),
        np.concatenate([one.weight, other.weight]),
        np.concatenate([one.excess, other.excess]),
    )
