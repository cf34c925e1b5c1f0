"""Arguments of profiled events: inputs of operators, and times as decimal microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

INPUT_DIMS, INPUT_TYPES, INPUT_VALUES = "Input Dims", "Input type", "Concrete Inputs"
INPUT_DIMS_MARK = b'"%s"' % INPUT_DIMS.encode()


class OperatorInputs(msgspec.Struct):
    """The inputs in the arguments of an operator, as raw JSON."""

    values: msgspec.Raw = msgspec.field(name=INPUT_VALUES, default=msgspec.Raw(b"[]"))
    shapes: msgspec.Raw = msgspec.field(name=INPUT_DIMS, default=msgspec.Raw(b"[]"))
    types: msgspec.Raw = msgspec.field(name=INPUT_TYPES, default=msgspec.Raw(b"[]"))


# Times: decimal microseconds, counted from a base in the header.

BASE_TIME = "baseTimeNanoseconds"
"""Key of the header."""

LATEST_US = 4e15
"""Later times (after the year 2096) are invalid, and would not fit the column as nanoseconds."""


def base_time(header: Mapping[str, Any]) -> int | None:
    """Nanoseconds to add to every time of the file; None if the value in the header is invalid."""
    if isinstance(header.get(BASE_TIME), bool):
        return None
    try:
        base = int(header.get(BASE_TIME, 0))
    except (TypeError, ValueError, OverflowError):
        return None
    return base if abs(base) <= LATEST_US * 1000 else None


def decimal_nanoseconds(text: Any) -> int:
    """Nanoseconds of a decimal number of microseconds, as string or number; `ValueError` if it is invalid."""
    try:
        if isinstance(text, bool):
            raise ValueError
        number = Decimal(text)
        if not number.copy_abs() <= LATEST_US:
            raise ValueError
        return int((number * 1000).to_integral_value())
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        raise ValueError(f"{text!r} is not a valid time") from None
