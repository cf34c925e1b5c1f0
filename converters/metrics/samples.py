"""Samples of one file as they are collected: what they measure, when, how much; and what was skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, Bools, Float64s, Int64s
from tracelink._model.errors import UnreadableError
from tracelink._model.events import Counters
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.metrics import Basis, Gauge, Readings
from tracelink._model.text import subject
from tracelink._model.trace import SourceInfo
from tracelink.converters.metrics import schema

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
    """Whether values are what DCGM writes for unknown ones."""
    return ((values >= schema.BLANK_32) & (values < schema.BLANK_32 + schema.BLANKS)) | (
        (values >= schema.BLANK_FLOAT) & (values < schema.BLANK_FLOAT + schema.BLANKS)
    )


def _joined(parts: list[Any], dtype: Any) -> Any:
    """One column of all parts, whose memory is given back."""
    column = np.concatenate([np.empty(0, dtype), *parts])
    parts.clear()
    return column
