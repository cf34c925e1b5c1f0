"""Columns of text as numbers and times, whole columns at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

import numpy as np
from msgspec import Struct

from tracelink._model.columns import NO_TIME, SECOND, Float64s, Int64s
from tracelink._model.metrics import Basis
from tracelink.converters.metrics import schema

SEPARATOR = "\n"

# Numbers.


def numbers(cells: Sequence[str], unit: str = "") -> tuple[Float64s, int]:
    """The value of each cell, NaN where there is none, and the number of cells that are no numbers at all.

    A cell in another unit than that of the column is converted.
    """
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells)), 0
    except ValueError:
        pass
    try:
        return np.fromiter(map(float, _without_unit(cells, unit)), np.float64, len(cells)), 0
    except ValueError:
        pass
    known = {cell: _number(cell, unit) for cell in set(cells)}
    values = np.array([known[cell] for cell in cells], np.float64)
    wrong = {cell for cell, value in known.items() if math.isnan(value) and not is_missing(cell)}
    return values, sum(1 for cell in cells if cell in wrong) if wrong else 0


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return cell.strip().lower() in schema.MISSING


def unit_of(cell: str) -> str:
    """The unit in `56 %` and `14 MB`; empty if there is none."""
    match = schema.UNIT_OF_CELL.match(cell.strip().strip("()"))
    return match[2] if match else ""


def _without_unit(cells: Sequence[str], unit: str) -> Sequence[str]:
    """The cells without the unit of the column."""
    text = SEPARATOR.join(cells)
    if not unit or text.count(SEPARATOR) != len(cells) - 1:
        return cells
    for missing in ("[N/A]", "[Not Supported]", "N/A"):
        text = text.replace(missing, "nan")
    return text.replace(unit, "").split(SEPARATOR)


def _number(cell: str, unit: str) -> float:
    text = cell.strip()
    try:
        return float(text)
    except ValueError:
        pass
    match = schema.UNIT_OF_CELL.match(text.strip("()"))
    if not match:
        return math.nan
    own, wanted = schema.SCALES.get(match[2].lower()), schema.SCALES.get(unit.lower())
    try:
        value = float(match[1].replace(",", ""))
    except ValueError:
        return math.nan
    if not unit or match[2].lower() == unit.lower():
        return value
    return value * own[1] / wanted[1] if own and wanted and own[0] == wanted[0] else math.nan


# Times.

DATE_AND_TIME = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
COMPACT_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
TIME_OF_DAY = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
DECIMAL = re.compile(r"[-+]?\d{1,20}(?:\.\d{0,18})?(?:[eE]\+?\d{1,2})?", re.ASCII)
SCALES = ((4 * 10**9, SECOND), (4 * 10**12, 10**6), (4 * 10**15, 10**3), (4 * 10**18, 1))
"""Numbers below are seconds, milliseconds, microseconds, nanoseconds since 1970."""
FIRST_EPOCH = 10**9
"""Smaller numbers do not count from 1970: they would be of before 2001."""
DAY = 86400 * SECOND
MORE_DIGITS = {SECOND: re.compile(r"\.\d{7}|[eE]"), 10**6: re.compile(r"\.\d{4}|[eE]")}
"""Seconds and milliseconds with more digits than a float of 53 bits holds."""
_DATE = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
DATES = re.compile(rf"{_DATE}(?:{SEPARATOR}{_DATE})*+", re.ASCII)


class TimeFormat(Struct, frozen=True):
    """How a column writes times, as far as its first cell tells."""

    basis: Basis
    scale: int = 0
    """Nanoseconds of the number 1; 0 for text."""


def time_format(cell: str, unit: str = "") -> TimeFormat | None:
    """The format of a cell; None if it is no time. `unit` is what the name of the column says."""
    text = cell.strip()
    if match := DATE_AND_TIME.fullmatch(text):
        return TimeFormat(Basis.EPOCH if match[8] else Basis.LOCAL)
    if COMPACT_DATE.fullmatch(text):
        return TimeFormat(Basis.LOCAL)
    if TIME_OF_DAY.fullmatch(text):
        return TimeFormat(Basis.DAY)
    if not DECIMAL.fullmatch(text):
        return None
    number = Decimal(text)  # a float rounds the last nanoseconds of a unit's range up into the next unit
    if number < FIRST_EPOCH:
        return TimeFormat(Basis.START, schema.NANOSECONDS.get(unit, SECOND))
    scale = next((scale for limit, scale in SCALES if number < limit), 0)
    return TimeFormat(Basis.EPOCH, scale) if scale else None


def times(cells: Sequence[str], form: TimeFormat) -> Int64s:
    """Nanoseconds of each cell, NO_TIME where it is not of this format."""
    if form.scale:
        return _decimal_times(cells, form.scale)
    if form.basis is Basis.LOCAL and (fast := _dates(cells)) is not None:
        return fast
    known = {cell: _text_time(cell, form.basis) for cell in set(cells)}
    return np.array([known[cell] for cell in cells], np.int64)


def _decimal_times(cells: Sequence[str], scale: int) -> Int64s:
    text = SEPARATOR.join(cells)
    try:
        if "." not in text and "e" not in text and "E" not in text:
            whole = np.fromiter(map(int, cells), np.int64, len(cells))
            return np.where(np.abs(whole) < 4 * 10**18 // scale, whole * scale, NO_TIME)
        if scale in MORE_DIGITS and not MORE_DIGITS[scale].search(text):
            micro = np.fromiter(map(float, cells), np.float64, len(cells)) * (scale // 1000)
            usable = np.abs(micro) < 4e15
            return np.where(usable, np.where(usable, micro, 0).round().astype(np.int64) * 1000, NO_TIME)
    except (ValueError, OverflowError):
        pass
    return np.array([_decimal_time(cell, scale) for cell in cells], np.int64)


def _decimal_time(cell: str, scale: int) -> int:
    text = cell.strip()
    try:
        value = Decimal(text) * scale if DECIMAL.fullmatch(text) else None
        return int(value) if value is not None and value.copy_abs() < 4 * 10**18 else NO_TIME
    except (InvalidOperation, OverflowError):
        return NO_TIME


def _dates(cells: Sequence[str]) -> Int64s | None:
    """Dates and times without a zone, all at once; None if one of them is written differently."""
    text = SEPARATOR.join(map(str.strip, cells)).replace("/", "-")
    if not DATES.fullmatch(text):
        return None
    try:
        parsed = np.array(text.split(SEPARATOR), "datetime64[ns]")
    except ValueError:
        return None
    return np.where(np.isnat(parsed), NO_TIME, parsed.view(np.int64))


def _text_time(cell: str, basis: Basis) -> int:
    text = cell.strip()
    match = DATE_AND_TIME.fullmatch(text) or COMPACT_DATE.fullmatch(text)
    try:
        if match and basis is not Basis.DAY:
            zone = match[8] if match.re is DATE_AND_TIME else None
            if (basis is Basis.EPOCH) != bool(zone):
                return NO_TIME
            moment = datetime(*(int(match[part]) for part in range(1, 7)), tzinfo=UTC)  # type: ignore[misc,arg-type]
            elapsed = int(moment.timestamp()) * SECOND + _fraction(match[7])
            return elapsed - _offset(zone or "")
    except (ValueError, OverflowError):
        return NO_TIME
    if (match := TIME_OF_DAY.fullmatch(text)) and basis is Basis.DAY:
        hours, minutes, seconds = (int(match[part]) for part in (1, 2, 3))
        return (hours * 3600 + minutes * 60 + seconds) * SECOND + _fraction(match[4])
    return NO_TIME


def _fraction(digits: str | None) -> int:
    return int((digits or "").ljust(9, "0"))


def _offset(zone: str) -> int:
    """Nanoseconds that a zone is ahead of UTC."""
    if zone[:1] not in ("+", "-"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (minutes if zone[0] == "+" else -minutes) * 60 * SECOND


def unwrapped(found: Int64s, last: int) -> Int64s:
    """Times of day that go on after midnight; `last` is the time before the first of them."""
    known = found != NO_TIME
    jumps = np.diff(found[known], prepend=last % DAY) < -DAY // 2
    result = found.copy()
    result[known] += (last // DAY + np.cumsum(jumps)) * DAY
    return result
