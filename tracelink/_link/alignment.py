"""Aligning two sequences that may each have gaps: pairs are only made where there is one way to do it.

The fewest elements are left over (Myers' shortest edit script); what several shortest scripts pair differently
is ambiguous and stays unpaired.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s

MOST_EDITS = 4000
"""Sequences that differ more than this are not the same run; the memory needed grows with the square."""

LEFT_OVER = 4
"""Elements of a longer sequence that may be passed to pair one element more."""

SHORT_RUN = 32

MULTIPLIER = np.uint64(6364136223846793005)


class Alignment(Struct, frozen=True):
    """The pairs of elements of the first sequence and elements of the second."""

    index: Int64s
    """Of the paired element in the second sequence, or UNKNOWN."""
    ambiguous: Bools
    """Elements that could be paired in more than one way, or be left over."""
    exceeded: bool = False
    """True if the sequences differ by more edits than allowed."""


def align(first: Int64s, second: Int64s, most: int = MOST_EDITS) -> Alignment:
    """Pairs equal elements in order where there is one way to do it with the fewest left over.

    If that takes more than `most` edits, everything is ambiguous.
    """
    history = None if _differ_more(first, second, most) else _history(_Pair(first, second), most)
    if history is None:
        return Alignment(np.full(len(first), UNKNOWN, np.int64), np.ones(len(first), np.bool_), True)
    return _alignment(history, first, second)


def _alignment(history: list[Int64s], first: Int64s, second: Int64s) -> Alignment:
    """The part that all shortest scripts have in common; `history` ends with the edits that reach both ends."""
    early = _trace_back(history, first, second, skipping=True)
    late = _trace_back(history, first, second, skipping=False)
    same = (early.index == late.index) & (early.index != UNKNOWN)
    either = (early.index != UNKNOWN) | (late.index != UNKNOWN)
    either |= _between(first, second, early.left_at, late.left_at)
    return Alignment(np.where(same, early.index, UNKNOWN), either & ~same)


def align_start(first: Int64s, second: Int64s, most: int = MOST_EDITS) -> Alignment | None:
    """Pairs equal elements like `align`, but `second` may go on where `first` ends; None if that takes too many edits.

    An element of `first` that is left over costs as much as LEFT_OVER elements of `second` that are passed.
    """
    pair = _Pair(first, second)
    history: list[Int64s] = []
    reach = pair.extend(np.zeros(1, np.int64), np.zeros(1, np.int64))
    best = (LEFT_OVER * (len(first) + len(second)) + 1, 0, 0)
    for edits in range(min(most, best[0])):
        history.append(reach)
        diagonal = np.arange(-edits, edits + 1, 2)
        ended = np.flatnonzero((reach >= len(first)) & (len(first) - diagonal <= len(second)))
        if len(ended):
            left_over, passed = (edits + diagonal[ended[0]]) // 2, (edits - diagonal[ended[0]]) // 2
            best = min(
                best, (int(LEFT_OVER * left_over + passed), edits, int(len(first) - diagonal[ended[0]]))
            )
        if edits >= best[0]:
            break
        reach = _step(pair, reach, edits + 1)
    else:
        return None
    _, edits, end = best
    return _alignment(history[: edits + 1], first, second[:end])


def _differ_more(first: Int64s, second: Int64s, most: int) -> bool:
    """True if one sequence has so many elements that the other does not have that no alignment is possible."""
    count = len(first) + len(second)
    if count < most:
        return False
    _, label = np.unique(np.concatenate([first, second]), return_inverse=True)
    of_first = np.bincount(label[: len(first)], minlength=count)
    surplus = np.abs(of_first - np.bincount(label[len(first) :], minlength=count)).sum()
    return bool(surplus >= most)


def _history(pair: _Pair, most: int) -> list[Int64s] | None:
    """The reach of each diagonal with each number of edits, until the end is reached; None beyond `most`."""
    history: list[Int64s] = []
    reach = pair.extend(np.zeros(1, np.int64), np.zeros(1, np.int64))
    for edits in range(most):
        history.append(reach)
        diagonal = np.arange(-edits, edits + 1, 2)
        if ((reach >= len(pair.first)) & (reach - diagonal >= len(pair.second))).any():
            return history
        reach = _step(pair, reach, edits + 1)
    return None


def _between(first: Int64s, second: Int64s, left_at: Int64s, also_left_at: Int64s) -> Bools:
    """True if elements that two scripts leave over at different positions have an equal between the positions."""
    low, high = np.minimum(left_at, also_left_at), np.maximum(left_at, also_left_at)
    left = np.flatnonzero((low != UNKNOWN) & (low < high))
    result = np.zeros(len(first), np.bool_)
    if len(left):
        order = np.argsort(second, kind="stable")
        begin = np.searchsorted(second[order], first[left])
        end = np.searchsorted(second[order], first[left], side="right")
        for element, start, stop in zip(left.tolist(), begin.tolist(), end.tolist(), strict=True):
            equal = order[start:stop]
            result[element] = np.searchsorted(equal, low[element]) < np.searchsorted(equal, high[element])
    return result


def _step(pair: _Pair, reach: Int64s, edits: int) -> Int64s:
    """The reach of each diagonal with one more edit; diagonal k is index in the first minus index in the second."""
    diagonal = np.arange(-edits, edits + 1, 2)
    x = np.maximum(np.append(UNKNOWN, reach + 1), np.append(reach, UNKNOWN))
    x = np.minimum(x, len(pair.first))
    y = x - diagonal
    inside = (y >= 0) & (y <= len(pair.second))
    x[inside] = pair.extend(x[inside], y[inside])
    x[~inside] = np.where(y[~inside] > len(pair.second), len(pair.second) + diagonal[~inside], UNKNOWN)
    reached: Int64s = np.minimum(x, len(pair.first))
    return reached


class _Script(Struct, frozen=True):
    """One edit script over the elements of the first sequence."""

    index: Int64s
    """Of the paired element in the second sequence, or UNKNOWN."""
    left_at: Int64s
    """Of an element that is left over: its position in the second sequence, else UNKNOWN."""


def _trace_back(history: list[Int64s], first: Int64s, second: Int64s, *, skipping: bool) -> _Script:
    """An outermost script: from the end backwards it skips in the first sequence, or in the second, whenever it can."""
    x, y = len(first), len(second)
    script = _Script(np.full(x, UNKNOWN, np.int64), np.full(x, UNKNOWN, np.int64))
    for edits in range(len(history) - 1, 0, -1):
        run = _run_before(first, second, x, y)
        skip_from, pass_from = _arrivals(history[edits - 1], (x - y + edits) // 2)
        by_skip, by_pass = x - min(x, skip_from), x - min(x, pass_from)
        can_skip = by_skip <= run and by_skip < x
        can_pass = by_pass <= run and by_pass < y
        skip = can_skip if skipping else not can_pass
        moved = (by_skip if skipping else run) if skip else (run if skipping else by_pass)
        script.index[x - moved : x] = np.arange(y - moved, y)
        x, y = x - moved, y - moved
        if skip:
            x -= 1
            script.left_at[x] = y
        else:
            y -= 1
    script.index[:x] = np.arange(x)
    return script


def _arrivals(reach: Int64s, index: int) -> tuple[int, int]:
    """The furthest positions after one more edit: a skip from the diagonal below, a pass from the one above."""
    skipped = int(reach[index - 1]) + 1 if index > 0 else UNKNOWN
    passed = int(reach[index]) if index < len(reach) else UNKNOWN
    return skipped, passed


def _run_before(first: Int64s, second: Int64s, x: int, y: int) -> int:
    """The number of equal elements before these positions."""
    run, step = 0, SHORT_RUN
    while size := min(step, x - run, y - run):
        different = np.flatnonzero(first[x - run - size : x - run] != second[y - run - size : y - run])
        if len(different):
            return run + size - 1 - int(different[-1])
        run, step = run + size, 2 * step
    return run


class _Pair:
    """Two sequences, with hashes by which runs at any two positions are compared at once."""

    def __init__(self, first: Int64s, second: Int64s) -> None:
        self.first = first
        self.second = second
        longest = max(len(first), len(second))
        self._powers = _powers(longest + 1)
        self._hash_first = _prefix_hashes(first, self._powers)
        self._hash_second = _prefix_hashes(second, self._powers)

    def extend(self, x: Int64s, y: Int64s) -> Int64s:
        """x plus the length of the equal run that begins at (x, y), for all pairs at once."""
        result = x.copy()
        room = np.minimum(len(self.first) - x, len(self.second) - y)
        more = np.flatnonzero(room > 0)
        more = more[self.first[x[more]] == self.second[y[more]]]
        if not len(more):
            return result
        low, high = np.ones(len(more), np.int64), room[more]
        x, y = x[more], y[more]
        while np.any(low < high):
            middle = (low + high + 1) >> 1
            equal = self._run(self._hash_first, x, middle) == self._run(self._hash_second, y, middle)
            low = np.where(equal, middle, low)
            high = np.where(equal, high, middle - 1)
        result[more] += low
        return result

    def _run(self, hashes: npt.NDArray[np.uint64], start: Int64s, length: Int64s) -> npt.NDArray[np.uint64]:
        """A hash of the run of this length; equal runs have equal hashes at any position."""
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


def run_hashes(values: Int64s, length: int, longest: int) -> npt.NDArray[np.uint64]:
    """A hash of each run of `length` elements; equal for equal runs of sequences up to `longest`."""
    powers = _powers(longest + 1)
    hashes = _prefix_hashes(values, powers)
    start = np.arange(len(values) - length + 1)
    aligned: npt.NDArray[np.uint64] = (hashes[start + length] - hashes[start]) * powers[longest - start]
    return aligned
