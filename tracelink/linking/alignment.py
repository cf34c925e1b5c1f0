"""Aligning two sequences where elements may be missing from either, and nothing is guessed.

The shortest edit scripts are found by Myers' algorithm, all diagonals of a step at once. Where something repeats
there are several; all lie between two outermost ones, and what these two do alike is done by every one.
What they do not agree on is ambiguous and stays unpaired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.events import Bools, Int64s

NONE = -1

MOST_EDITS = 4000
"""Sequences that differ more than this are not the same run; the memory needed grows with the square."""

SHORT_RUN = 32

MULTIPLIER = np.uint64(6364136223846793005)


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each element of the first sequence its place in the second, or -1."""

    place: Int64s
    ambiguous: Bools
    """Elements that could be paired in more than one way, or be left over."""


def align(one: Int64s, other: Int64s, most: int = MOST_EDITS) -> Alignment:
    """Pairs equal elements in order, where there is one way to do it with the fewest left over.

    Where even that takes more than `most` edits, everything is ambiguous.
    """
    history = _history(_Texts(one, other), most)
    if history is None:
        return Alignment(np.full(len(one), NONE, np.int64), np.ones(len(one), np.bool_))
    first = _trace_back(history, one, other, skipping=True)
    last = _trace_back(history, one, other, skipping=False)
    same = (first.place == last.place) & (first.place != NONE)
    either = (first.place != NONE) | (last.place != NONE)
    either |= _between(one, other, first.left_at, last.left_at)
    return Alignment(np.where(same, first.place, NONE), either & ~same)


def _history(text: _Texts, most: int) -> list[Int64s] | None:
    """How far each diagonal gets with each number of edits, until the end is reached."""
    history: list[Int64s] = []
    reach = text.extend(np.zeros(1, np.int64), np.zeros(1, np.int64))
    for edits in range(most):
        history.append(reach)
        diagonal = np.arange(-edits, edits + 1, 2)
        if ((reach >= len(text.one)) & (reach - diagonal >= len(text.other))).any():
            return history
        reach = _step(text, reach, edits + 1)
    return None


def _between(one: Int64s, other: Int64s, some: Int64s, others: Int64s) -> Bools:
    """Whether elements that two scripts leave over at different places have an equal between these places."""
    low, high = np.minimum(some, others), np.maximum(some, others)
    left = np.flatnonzero((low != NONE) & (low < high))
    result = np.zeros(len(one), np.bool_)
    if len(left):
        order = np.argsort(other, kind="stable")
        begin = np.searchsorted(other[order], one[left])
        end = np.searchsorted(other[order], one[left], side="right")
        for element, first, last in zip(left.tolist(), begin.tolist(), end.tolist(), strict=True):
            places = order[first:last]
            result[element] = np.searchsorted(places, low[element]) < np.searchsorted(places, high[element])
    return result


def _step(text: _Texts, reach: Int64s, edits: int) -> Int64s:
    """How far each diagonal gets with one more edit; diagonal k is place in one minus place in the other."""
    diagonal = np.arange(-edits, edits + 1, 2)
    x = np.maximum(np.append(NONE, reach + 1), np.append(reach, NONE))
    x = np.minimum(x, len(text.one))
    y = x - diagonal
    inside = (y >= 0) & (y <= len(text.other))
    x[inside] = text.extend(x[inside], y[inside])
    x[~inside] = np.where(y[~inside] > len(text.other), len(text.other) + diagonal[~inside], NONE)
    reached: Int64s = np.minimum(x, len(text.one))
    return reached


@dataclass(frozen=True, slots=True)
class _Script:
    """One edit script: the places of the elements, and at which place each one is left over that is."""

    place: Int64s
    left_at: Int64s


def _trace_back(history: list[Int64s], one: Int64s, other: Int64s, *, skipping: bool) -> _Script:
    """An outermost script: from the end on it skips elements of one, or passes over the other's, where it can."""
    x, y = len(one), len(other)
    script = _Script(np.full(x, NONE, np.int64), np.full(x, NONE, np.int64))
    for edits in range(len(history) - 1, 0, -1):
        run = _run_before(one, other, x, y)
        skip_from, pass_from = _arrivals(history[edits - 1], (x - y + edits) // 2)
        by_skip, by_pass = x - min(x, skip_from), x - min(x, pass_from)
        can_skip = by_skip <= run and by_skip < x
        can_pass = by_pass <= run and by_pass < y
        skip = can_skip if skipping else not can_pass
        moved = (by_skip if skipping else run) if skip else (run if skipping else by_pass)
        script.place[x - moved : x] = np.arange(y - moved, y)
        x, y = x - moved, y - moved
        if skip:
            x -= 1
            script.left_at[x] = y
        else:
            y -= 1
    script.place[:x] = np.arange(x)
    return script


def _arrivals(reach: Int64s, index: int) -> tuple[int, int]:
    """The furthest places that one more edit leads to: a skip from the diagonal below, a pass from that above."""
    skipped = int(reach[index - 1]) + 1 if index > 0 else NONE
    passed = int(reach[index]) if index < len(reach) else NONE
    return skipped, passed


def _run_before(one: Int64s, other: Int64s, x: int, y: int) -> int:
    """How many elements before these places are equal."""
    run, step = 0, SHORT_RUN
    while size := min(step, x - run, y - run):
        different = np.flatnonzero(one[x - run - size : x - run] != other[y - run - size : y - run])
        if len(different):
            return run + size - 1 - int(different[-1])
        run, step = run + size, 2 * step
    return run


class _Texts:
    """Two sequences whose runs can be compared at any two places at once, by hash."""

    def __init__(self, one: Int64s, other: Int64s) -> None:
        self.one = one
        self.other = other
        longest = max(len(one), len(other))
        self._powers = _powers(longest + 1)
        self._hash_one = _prefix_hashes(one, self._powers)
        self._hash_other = _prefix_hashes(other, self._powers)

    def extend(self, x: Int64s, y: Int64s) -> Int64s:
        """x plus the length of the equal run that begins at (x, y), for all pairs at once."""
        result = x.copy()
        room = np.minimum(len(self.one) - x, len(self.other) - y)
        more = np.flatnonzero(room > 0)
        more = more[self.one[x[more]] == self.other[y[more]]]
        if not len(more):
            return result
        low, high = np.ones(len(more), np.int64), room[more]
        x, y = x[more], y[more]
        while np.any(low < high):
            middle = (low + high + 1) >> 1
            equal = self._run(self._hash_one, x, middle) == self._run(self._hash_other, y, middle)
            low = np.where(equal, middle, low)
            high = np.where(equal, high, middle - 1)
        result[more] += low
        return result

    def _run(self, hashes: npt.NDArray[np.uint64], start: Int64s, length: Int64s) -> npt.NDArray[np.uint64]:
        """A number for the run of this length; runs of equal content have equal numbers wherever they stand."""
        run = hashes[start + length] - hashes[start]
        aligned: npt.NDArray[np.uint64] = run * self._powers[len(self._powers) - 1 - start]
        return aligned


def _powers(count: int) -> npt.NDArray[np.uint64]:
    powers: npt.NDArray[np.uint64] = np.multiply.accumulate(np.full(count, MULTIPLIER, np.uint64))
    return powers


def _prefix_hashes(values: Int64s, powers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (values.astype(np.uint64) + np.uint64(1)) * MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    terms = mixed * powers[: len(values)]
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
