"""Times as PyTorch writes them: decimal microseconds, counted from a base in the header."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

BASE_TIME = "baseTimeNanoseconds"
"""Key of the header."""

LATEST_US = 4e15
"""Later times (after the year 2096) are invalid, and would not fit the column as nanoseconds."""


def base_time(header: Mapping[str, Any]) -> int | None:
    """Nanoseconds to add to every time of the file; None if the value in the header is invalid."""
    try:
        base = int(header.get(BASE_TIME, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return base if abs(base) <= LATEST_US * 1000 else None


def decimal_nanoseconds(text: Any) -> int:
    """Nanoseconds of a decimal number of microseconds, as string or number; `ValueError` if it is invalid."""
    try:
        number = Decimal(text)
        if not number.copy_abs() <= LATEST_US:
            raise ValueError
        return int((number * 1000).to_integral_value())
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        raise ValueError(f"{text!r} is not a valid time") from None
