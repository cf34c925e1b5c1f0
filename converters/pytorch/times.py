"""Times as PyTorch writes them: decimal microseconds, counted from a base in the header."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

BASE_TIME = "baseTimeNanoseconds"
"""Key of the header."""

LATEST_US = 4e15
"""Times after this (the year 2096) are garbage, and as nanoseconds they would not fit the column."""


def base_time(header: Mapping[str, Any]) -> int | None:
    """Nanoseconds to add to every time of the file; None where the header says something that is no time."""
    try:
        base = int(header.get(BASE_TIME, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return base if abs(base) <= LATEST_US * 1000 else None


def decimal_nanoseconds(text: Any) -> int:
    """Nanoseconds of a decimal number of microseconds, given as text or as a number; `ValueError` if it is none."""
    try:
        number = Decimal(text)
        if not number.copy_abs() <= LATEST_US:
            raise ValueError
        return int((number * 1000).to_integral_value())
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        raise ValueError(f"{text!r} is not a time") from None
