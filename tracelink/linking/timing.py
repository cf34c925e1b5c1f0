"""Telling by time which of several equal calls of two ranks are the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracelink.events import NO_TIME, Bools, Int64s

NONE = -1

Floats = npt.NDArray[np.float64]

CLEARLY = 3
"""The nearest is meant if the next is this many times as far away."""

AROUND = 4
"""So many neighbours on either side tell how far two ranks' clocks are apart at a call."""


def expected_times(time: Int64s, place: Int64s, others: Int64s) -> Int64s | None:
    """The times by the other's clock, as the calls that have a place there tell; None where none does."""
    known = np.flatnonzero((place >= 0) & (time != NO_TIME))
    known = known[others[place[known]] != NO_TIME]
    if not len(known):
        return None
    apart = _smoothed(others[place[known]] - time[known])
    shift = np.rint(np.interp(np.arange(len(time)), known, apart)).astype(np.int64)
    return np.where(time == NO_TIME, NO_TIME, time + shift)


def _smoothed(values: Int64s) -> Floats:
    """The median of each value and its neighbours."""
    width = 2 * AROUND + 1
    padded = np.pad(values, AROUND, mode="edge")
    smoothed: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    return smoothed


def nearest_in_time(label: Int64s, time: Int64s, others_label: Int64s, others: Int64s) -> Int64s:
    """For each call the one of the others that is equal and clearly the nearest to it, as it is to that; else -1."""
    place = np.full(len(label), NONE, np.int64)
    for value in np.unique(label):
        mine = np.flatnonzero((label == value) & (time != NO_TIME))
        theirs = np.flatnonzero((others_label == value) & (others != NO_TIME))
        if len(mine) and len(theirs):
            there, clear = _nearest(time[mine], others[theirs])
            back, also = _nearest(others[theirs], time[mine])
            mutual = clear & also[there] & (back[there] == np.arange(len(mine)))
            place[mine[mutual]] = theirs[there[mutual]]
    return _in_order(place)


def _nearest(time: Int64s, others: Int64s) -> tuple[Int64s, Bools]:
    """The nearest of the others, and whether every further one is clearly further away."""
    order = np.argsort(others, kind="stable")
    ranked = others[order]
    right = np.searchsorted(ranked, time)
    around = right[:, None] + np.arange(-2, 2)
    outside = (around < 0) | (around >= len(ranked))
    distance = np.abs(ranked[np.clip(around, 0, len(ranked) - 1)] - time[:, None]).astype(np.float64)
    distance[outside] = np.inf
    best = np.argmin(distance, axis=1)
    near, next_near = np.partition(distance, 1, axis=1)[:, :2].T
    place = np.take_along_axis(around, best[:, None], axis=1)[:, 0]
    return order[place], near * CLEARLY < next_near


def _in_order(place: Int64s) -> Int64s:
    """Without the places that contradict the order of others."""
    found = np.flatnonzero(place >= 0)
    values = place[found]
    before = np.maximum.accumulate(np.concatenate([np.full(1, NONE), values]))[:-1]
    after = np.minimum.accumulate(np.concatenate([values, np.full(1, np.iinfo(np.int64).max)])[::-1])[::-1][
        1:
    ]
    crossing = (values <= before) | (values >= after)
    result = place.copy()
    result[found[crossing]] = NONE
    return result
