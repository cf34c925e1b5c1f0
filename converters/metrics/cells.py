"""Columns of text as numbers and times, whole columns at a time, and samples as they are collected."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, SECOND, Bools, Float64s, Int64s
from tracelink._model.errors import UnreadableError
from tracelink._model.events import Counters
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.metrics import Basis, Gauge, Readings
from tracelink._model.text import subject
from tracelink._model.trace import SourceInfo
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
    """True if a cell says that there is no value."""
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


# Samples of one file as they are collected: what they measure, when, how much; and what was skipped.

FORMAT = "metrics"
MOST_GAUGES = 50_000
"""More counters than this cannot be shown, and come from damaged names."""
LONGEST_NAME = 400

MESSAGES = {
    "no_value": ("value", "without a number (N/A, -, NaN) {} skipped"),
    "sentinels": ("value", "that stand for an unknown one (infinite, blank, or 9.2e18) {} skipped"),
    "not_numbers": ("cell", "that are neither a number nor a known word for no value {} skipped"),
    "no_time": ("row", "without a readable time {} skipped"),
    "damaged_rows": ("row", "with another number of cells than their header {} skipped"),
    "noise": ("line", "that are no part of a table {} skipped"),
    "long_lines": ("line", "longer than 1 MB {} skipped"),
    "since_boot": ("value", "in the first row of vmstat {} skipped: averages since the machine was started"),
    "many_gauges": ("value", f"of counters after the first {MOST_GAUGES:,} {{}} skipped"),
    "text_columns": ("column", "without numbers {} skipped"),
    "many_columns": ("column", "{} skipped: the table has too many"),
    "damaged_objects": ("object", "that are no JSON object with values {} skipped"),
}
"""What findings say of each kind of loss, after its number."""
PROBLEMS = frozenset(("not_numbers", "no_time", "damaged_rows", "long_lines", "many_gauges", "many_columns"))
"""Losses that are warnings: the others are expected."""


class Samples(Struct):
    """Collects the samples of a file; all of its times count from the same."""

    basis: Basis | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    last_of_day: int = 0
    """The last time since the midnight before the first sample, for times without a date."""
    findings: list[Finding] = field(default_factory=list)
    _numbers: dict[Gauge, int] = field(default_factory=dict)
    _tracks: list[Int64s] = field(default_factory=list)
    _times: list[Int64s] = field(default_factory=list)
    cut: str = ""
    """Why what follows could not be read."""
    _values: list[Float64s] = field(default_factory=list)

    def add(self, gauge: Gauge, times: Int64s, values: Float64s, *, of_dcgm: bool = False) -> None:
        """Samples of one gauge; what has no time is not counted here, as rows with several values have one time."""
        self.add_mixed([gauge], np.zeros(len(values), np.int64), times, values, of_dcgm=of_dcgm)

    def add_mixed(
        self,
        gauges: Sequence[Gauge],
        which: Int64s,
        times: Int64s,
        values: Float64s,
        *,
        of_dcgm: bool = False,
    ) -> None:
        """Samples of several gauges: `which` is an index of `gauges`."""
        missing = np.isnan(values)
        blank = np.isinf(values) | (np.abs(np.where(missing, 0, values)) >= schema.LARGEST)
        if of_dcgm:
            blank |= _is_blank(values)
        numbers = np.array([self._number(gauge) for gauge in gauges], np.int64)[which]
        unnumbered = numbers < 0
        timed = times != NO_TIME
        self.skipped["no_value"] += int(np.count_nonzero(missing & timed))
        self.skipped["sentinels"] += int(np.count_nonzero(blank & timed))
        self.skipped["many_gauges"] += int(np.count_nonzero(unnumbered & timed))
        keep = timed & ~(missing | blank | unnumbered)
        self._tracks.append(numbers[keep].astype(np.int32))
        self._times.append(times[keep])
        self._values.append(values[keep])

    def _number(self, gauge: Gauge) -> int:
        known = self._numbers.get(gauge)
        if known is None and len(self._numbers) < MOST_GAUGES:
            known = self._numbers[gauge] = len(self._numbers)
        return -1 if known is None else known

    def readings(self, source: Source, version: str, damage: str = "") -> Readings:
        """All of it; raises `UnreadableError` if there is no sample."""
        counters = Counters(
            _joined(self._tracks, np.int32), _joined(self._times, np.int64), _joined(self._values, np.float64)
        )
        if not len(counters):
            lost = "; ".join(finding.message.rstrip(".") for finding in self._losses())
            raise UnreadableError(
                f"it contains no sample{f' ({lost})' if lost else ''}",
                source=source.path,
                advice="Record it again.",
            )
        findings = [
            replace(found, message=f"{source.path}: {found.message}", source=source.path)
            for found in (*self.findings, *self._losses())
        ]
        if cut := damage or self.cut:
            findings.append(
                Truncated(source.path, f"it ends early ({cut})", len(counters), "sample").finding()
            )
        info = SourceInfo(source.path, FORMAT, version, records=self.rows, bytes=source.bytes)
        gauges = list(self._numbers)
        used = np.bincount(counters.track, minlength=len(gauges)) > 0
        number = (np.cumsum(used) - 1).astype(np.int32)
        counters = replace(counters, track=number[counters.track])
        kept = [gauge for gauge, is_used in zip(gauges, used.tolist(), strict=True) if is_used]
        return Readings(info, self.basis or Basis.EPOCH, kept, counters, findings)

    def _losses(self) -> list[Finding]:
        return [
            Finding(
                Severity.WARNING if reason in PROBLEMS else Severity.INFO,
                reason,
                f"{_lost(reason, count)}.",
                count,
            )
            for reason, count in self.skipped.items()
            if count > 0
        ]


def _lost(reason: str, count: int) -> str:
    thing, rest = MESSAGES[reason]
    counted, _, were = subject(count, thing, "were").rpartition(" ")
    if count == 1:
        rest = rest.replace("that stand ", "that stands ").replace("that are ", "that is ")
    return f"{counted} {rest.format(were)}"


def _is_blank(values: Float64s) -> Bools:
    """True for each value that DCGM writes for an unknown one."""
    return ((values >= schema.BLANK_32) & (values < schema.BLANK_32 + schema.BLANKS)) | (
        (values >= schema.BLANK_FLOAT) & (values < schema.BLANK_FLOAT + schema.BLANKS)
    )


def _joined(parts: list[Any], dtype: Any) -> Any:
    """One column of all parts, whose memory is given back."""
    column = np.concatenate([np.empty(0, dtype), *parts])
    parts.clear()
    return column
