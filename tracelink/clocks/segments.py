"""Rows that share a number: medians and extremes of all numbers at once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.events import Int32s, Int64s

Floats = npt.NDArray[np.float64]


class Segments:
    """Rows by the number (0 to `count` - 1) that each carries."""

    def __init__(self, number: Int64s, count: int) -> None:
        self.number = number
        self.sizes = np.bincount(number, minlength=count)
        self._order = np.argsort(number, kind="stable").astype(np.int32)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def median(self, values: Floats) -> Floats:
        """For each number the median of its rows; NaN where it has none."""
        result = np.full(len(self.sizes), np.nan)
        padded = np.append(values, np.inf)
        for segments, rows in self._blocks:
            block = np.sort(padded[rows], axis=1)
            line, size = np.arange(len(segments)), self.sizes[segments]
            result[segments] = (block[line, (size - 1) // 2] + block[line, size // 2]) / 2
        return result

    def largest(self, values: Floats) -> Floats:
        """For each number the largest of its rows; -inf where it has none."""
        return self._reduced(np.maximum, values, -np.inf)

    def smallest(self, values: Floats) -> Floats:
        """For each number the smallest of its rows; inf where it has none."""
        return self._reduced(np.minimum, values, np.inf)

    def _reduced(self, function: Any, values: Floats, nothing: float) -> Floats:
        result = np.full(len(self.sizes), nothing)
        filled = self.sizes > 0
        if filled.any():
            result[filled] = function.reduceat(values[self._order], self._starts[filled])
        return result

    @cached_property
    def _blocks(self) -> list[tuple[Int64s, Int32s]]:
        """Segments of about one size, and their rows side by side; one row too many stands for nothing."""
        order = np.append(self._order, np.int32(len(self._order)))
        blocks = []
        widths = 1 << np.ceil(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)
        for width in np.unique(widths[self.sizes > 0]):
            segments = np.flatnonzero((widths == width) & (self.sizes > 0))
            column = np.arange(width)
            places = self._starts[segments, None] + column
            blocks.append(
                (segments, order[np.where(column < self.sizes[segments, None], places, len(self._order))])
            )
        return blocks


def linked(meeting: Int64s, clock: Int64s, meetings: int, clocks: int) -> Int64s:
    """For each clock the lowest clock that it is linked with through meetings."""
    label = np.arange(clocks)
    while True:
        lowest = np.full(meetings, clocks)
        np.minimum.at(lowest, meeting, label[clock])
        nearer = label.copy()
        np.minimum.at(nearer, clock, lowest[meeting])
        if np.array_equal(nearer, label):
            return label
        label = nearer
