"""Aligning two sequences of names where gaps are allowed and nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.events import Bools, Int64s

WINDOWS = (1, 4, 16, 64)
"""Lengths of the runs of names that anchor an alignment where they occur once in both sequences."""

MULTIPLIER = 6364136223846793005
"""Odd, so that multiplying by it modulo 2**64 loses nothing: names in a run are told apart by place."""

NONE = -1

Runs = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each element of the first sequence its place in the second, or -1."""

    place: Int64s
    ambiguous: int
    """Elements that have candidates in the second sequence, but no single right one."""


def align(one: Int64s, other: Int64s) -> Alignment:
    """Pairs equal elements in order: common ends first, then from runs that occur once in both."""
    place = np.full(len(one), NONE, np.int64)
    taken = np.zeros(len(other), np.bool_)
    head = _common(one, other)
    tail = _common(one[head:][::-1], other[head:][::-1])
    _pair(place, taken, 0, 0, head)
    _pair(place, taken, len(one) - tail, len(other) - tail, tail)
    middle, counterpart = one[head : len(one) - tail], other[head : len(other) - tail]
    if len(middle) and len(counterpart):
        for left, right in _anchors(middle, counterpart):
            _extend(one, other, place, taken, left + head, right + head)
    _keep_in_order(place)
    open_names = other[~_marks(len(other), place[place != NONE])]
    ambiguous = int(np.count_nonzero(np.isin(one[place == NONE], open_names)))
    return Alignment(place, ambiguous)


def _common(one: Int64s, other: Int64s) -> int:
    """How many elements are equal from the start."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _pair(place: Int64s, taken: Bools, left: int, right: int, count: int) -> None:
    place[left : left + count] = np.arange(right, right + count)
    taken[right : right + count] = True


def _anchors(one: Int64s, other: Int64s) -> list[tuple[int, int]]:
    """Pairs of places where the same run stands once in both, longest runs first, each set in one order."""
    anchors: list[tuple[int, int]] = []
    for window in reversed(WINDOWS):
        if window > min(len(one), len(other)):
            continue
        left, right = _unique_in_both(_runs(one, window), _runs(other, window))
        anchors += _increasing(left, right)
    return anchors


def _runs(values: Int64s, window: int) -> Runs:
    """One number for the run of `window` values that begins at each place."""
    count = len(values) - window + 1
    code = np.zeros(count, np.uint64)
    for shift in range(window):
        code = code * np.uint64(MULTIPLIER) + values[shift : shift + count].astype(np.uint64) + np.uint64(1)
    return code


def _unique_in_both(one: Runs, other: Runs) -> tuple[Int64s, Int64s]:
    values, first, count = np.unique(one, return_index=True, return_counts=True)
    other_values, other_first, other_count = np.unique(other, return_index=True, return_counts=True)
    values, first = values[count == 1], first[count == 1]
    other_values, other_first = other_values[other_count == 1], other_first[other_count == 1]
    _, left, right = np.intersect1d(values, other_values, assume_unique=True, return_indices=True)
    order = np.argsort(first[left])
    return first[left][order], other_first[right][order]


def _increasing(left: Int64s, right: Int64s) -> list[tuple[int, int]]:
    """The longest selection of pairs that is in order on both sides (patience sorting)."""
    tails: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    values = right.tolist()
    for number, value in enumerate(values):
        pile = int(np.searchsorted(tails, value)) if tails and value < tails[-1] else len(tails)
        before.append(piles[pile - 1] if pile else NONE)
        if pile == len(tails):
            tails.append(value)
            piles.append(number)
        else:
            tails[pile] = value
            piles[pile] = number
    chosen: list[tuple[int, int]] = []
    number = piles[-1] if piles else NONE
    while number != NONE:
        chosen.append((int(left[number]), values[number]))
        number = before[number]
    return chosen[::-1]


def _extend(one: Int64s, other: Int64s, place: Int64s, taken: Bools, left: int, right: int) -> None:
    """Pairs what is equal around an anchor, up to what is paired already."""
    if place[left] != NONE or taken[right]:
        return
    ahead = _free(place[left:] != NONE, taken[right:])
    count = _common(one[left : left + ahead], other[right : right + ahead])
    _pair(place, taken, left, right, count)
    behind = _free(place[:left][::-1] != NONE, taken[:right][::-1])
    back = _common(one[left - behind : left][::-1], other[right - behind : right][::-1])
    _pair(place, taken, left - back, right - back, back)


def _free(one: Bools, other: Bools) -> int:
    """How far both sides are unpaired."""
    length = min(len(one), len(other))
    paired = np.flatnonzero(one[:length] | other[:length])
    return int(paired[0]) if len(paired) else length


def _keep_in_order(place: Int64s) -> None:
    """Takes back pairs that cross others: both orders are orders of time, so one of them is wrong."""
    paired = np.flatnonzero(place != NONE)
    if np.all(np.diff(place[paired]) > 0):
        return
    kept = {left for left, _ in _increasing(paired, place[paired])}
    for left in paired.tolist():
        if left not in kept:
            place[left] = NONE


def _marks(length: int, places: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[places] = True
    return marks
