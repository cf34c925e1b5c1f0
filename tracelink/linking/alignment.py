"""Aligning two sequences where elements may be missing from either, and nothing is guessed.

The shortest edit script is found twice, once from each end (Myers' algorithm, all diagonals of a step at once).
Where something repeats, several scripts are equally short and the two differ: what they do not agree on is
ambiguous and stays unpaired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelink.events import Bools, Int64s

NONE = -1

MOST_EDITS = 4000
"""Sequences that differ more than this are not the same run; the memory needed grows with the square."""

MULTIPLIER = np.uint64(6364136223846793005)


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each element of the first sequence its place in the second, or -1."""

    place: Int64s
    ambiguous: Bools
    """Elements that could be paired in more than one way."""


def align(one: Int64s, other: Int64s) -> Alignment:
    """Pairs equal elements in order, where there is one way to do it with the fewest left over."""
    forward = _shortest(one, other)
    backward = _shortest(one[::-1], other[::-1])[::-1]
    backward = np.where(backward == NONE, NONE, len(other) - 1 - backward)
    place = np.where(forward == backward, forward, NONE)
    return Alignment(place, (place == NONE) & ((forward != NONE) | (backward != NONE)))


def _shortest(one: Int64s, other: Int64s) -> Int64s:
    """Places by one shortest edit script; all -1 where even that is too long."""
    place = np.full(len(one), NONE, np.int64)
    text = _Texts(one, other)
    history: list[Int64s] = []
    reach = text.extend(np.zeros(1, np.int64), np.zeros(1, np.int64))
    for edits in range(MOST_EDITS):
        history.append(reach)
        diagonal = np.arange(-edits, edits + 1, 2)
        done = np.flatnonzero((reach >= len(one)) & (reach - diagonal >= len(other)))
        if len(done):
            _trace_back(history, edits, int(diagonal[done[0]]), place)
            return place
        reach = _step(text, reach, edits + 1)
    return place


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


def _trace_back(history: list[Int64s], edits: int, diagonal: int, place: Int64s) -> None:
    """Walks the script back from its end and pairs what lies on its diagonals."""
    x = int(history[edits][(diagonal + edits) // 2])
    for step in range(edits, -1, -1):
        if step == 0:
            start, before = 0, 0
        else:
            reach = history[step - 1]
            index = (diagonal + step) // 2
            skipped = int(reach[index - 1]) + 1 if index > 0 else NONE
            added = int(reach[index]) if index < len(reach) else NONE
            before = diagonal - 1 if skipped >= added else diagonal + 1
            start = max(skipped, added)
        place[start:x] = np.arange(start, x) - diagonal
        if step:
            x = start - 1 if before == diagonal - 1 else start
            diagonal = before


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
