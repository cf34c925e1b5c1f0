"""Decimal microseconds to whole nanoseconds, exactly."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracelink.events import UNFINISHED, Int64s

if TYPE_CHECKING:
    from typing_extensions import Buffer

EXACT_BELOW = float(1 << 43)
"""Up to here a double of microseconds still tells all nanoseconds apart (102 days)."""

LATEST_US = 4e15
"""Times after this (the year 2096) are garbage, and as nanoseconds they would not fit the column."""

LONG_DIGITS = 13
"""A whole number of microseconds that is not below `EXACT_BELOW` has at least so many digits."""

LONGEST_US = 1e13
"""A duration above this (116 days) is a wrapped or garbage value, not a measurement."""


def nanoseconds(microseconds: npt.NDArray[np.float64]) -> Int64s:
    """Whole nanoseconds: the whole and the fraction are scaled apart, so that neither is rounded twice."""
    whole = np.floor(microseconds)
    fraction = np.rint((microseconds - whole) * 1000.0)
    return whole.astype(np.int64) * 1000 + fraction.astype(np.int64)


def loses_fractions(microseconds: npt.NDArray[np.float64], text: Buffer) -> bool:
    """Whether these times are so large that a double cannot hold their fraction, and the text has some."""
    large = np.abs(microseconds) >= EXACT_BELOW
    if not large.any():
        return False
    return bool(np.any(large & (microseconds != np.floor(microseconds)))) or _has_long_fractions(text)


def _has_long_fractions(text: Buffer) -> bool:
    """Whether there is a decimal point behind so many digits that a double may have rounded the fraction away."""
    characters = np.frombuffer(memoryview(text), np.uint8)
    points = np.flatnonzero(characters == ord("."))
    points = points[points >= LONG_DIGITS]
    for back in range(1, LONG_DIGITS + 1):
        before = characters[points - back]
        points = points[(before >= ord("0")) & (before <= ord("9"))]
    return bool(len(points))


def are_times(microseconds: npt.NDArray[np.float64]) -> bool:
    """Whether all are numbers that a time can be."""
    return bool(np.all(np.abs(microseconds) <= LATEST_US))


def durations(microseconds: npt.NDArray[np.float64]) -> tuple[Int64s, int]:
    """Nanoseconds, and how many were no duration (negative, endless, not a number): those are unfinished."""
    with np.errstate(invalid="ignore"):
        usable = (microseconds >= 0) & (microseconds <= LONGEST_US)
    if usable.all():
        return nanoseconds(microseconds), 0
    result = nanoseconds(np.where(usable, microseconds, 0.0))
    result[~usable] = UNFINISHED
    return result, int(np.count_nonzero(~usable))


def decimal_nanoseconds(text: Any) -> int:
    """Nanoseconds of a decimal number of microseconds, given as text or as a number; `ValueError` if it is none."""
    try:
        number = Decimal(text)
        if not number.copy_abs() <= LATEST_US:
            raise ValueError
        return int((number * 1000).to_integral_value())
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        raise ValueError(f"{text!r} is not a time") from None
