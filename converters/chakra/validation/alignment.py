"""Two sequences side by side, so that one missing item is one difference and not one at each place behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.events import Int64s

MOST = 50
"""Differences after which two sequences are not of one program, and not worth to be aligned."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two sequences differ; a place is None where the other has something more."""

    left: int | None
    right: int | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """Every difference, or the first one only where there are too many to tell them apart."""

    differences: Sequence[Difference]
    hopeless: bool = False


def aligned(left: Int64s, right: Int64s) -> Alignment:
    """The fewest items that must be left out on either side, so that the rest is the same.

    What is left out on both sides at one place is one item that differs.
    """
    begin = _common(left, right)
    behind = _common(left[begin:][::-1], right[begin:][::-1])
    inner_left = left[begin : len(left) - behind].tolist()
    inner_right = right[begin : len(right) - behind].tolist()
    kept = _kept(inner_left, inner_right)
    if kept is None:
        return Alignment([Difference(begin, begin)], hopeless=True)
    differences = list[Difference]()
    at_left = at_right = 0
    for next_left, next_right in [*kept, (len(inner_left), len(inner_right))]:
        both = min(next_left - at_left, next_right - at_right)
        differences += [Difference(begin + at_left + i, begin + at_right + i) for i in range(both)]
        differences += [Difference(begin + i, None) for i in range(at_left + both, next_left)]
        differences += [Difference(None, begin + i) for i in range(at_right + both, next_right)]
        at_left, at_right = next_left + 1, next_right + 1
    return Alignment(differences)


def _common(left: Int64s, right: Int64s) -> int:
    """How many items both begin with."""
    count = min(len(left), len(right))
    differing = np.flatnonzero(left[:count] != right[:count])
    return int(differing[0]) if len(differing) else count


def _kept(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]] | None:
    """Places of what both have, by Myers' greedy search; None beyond `MOST` differences."""
    reached = {1: 0}
    history: list[dict[int, int]] = []
    for steps in range(min(len(left) + len(right), 2 * MOST) + 1):
        history.append(dict(reached))
        for diagonal in range(-steps, steps + 1, 2):
            before = _before(reached, diagonal, steps)
            x = reached[before] + (before < diagonal)
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _path(history, len(left), len(right))
    return None


def _before(reached: dict[int, int], diagonal: int, steps: int) -> int:
    """The diagonal from which one more step gets furthest on this one."""
    down = diagonal == -steps or (diagonal != steps and reached[diagonal - 1] < reached[diagonal + 1])
    return diagonal + 1 if down else diagonal - 1


def _path(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """What was passed together on the way to the end, first to last."""
    kept = []
    for steps in range(len(history) - 1, -1, -1):
        reached = history[steps]
        diagonal = x - y
        before = _before(reached, diagonal, steps)
        from_x, from_y = reached[before], reached[before] - before
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            kept.append((x, y))
        x, y = from_x, from_y
    return kept[::-1]
