"""When the samples of a file of metrics were taken, by the clock of their machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from msgspec import Struct

from tracelink._model.columns import SECOND, Int64s
from tracelink._model.findings import Finding, Severity
from tracelink._model.metrics import Basis, Metrics, Readings, parse_time
from tracelink._model.text import counted, duration, moment
from tracelink._model.trace import SourceInfo

QUARTER_HOUR = 900 * SECOND
DAY = 86400 * SECOND
MARGIN = 60 * SECOND
"""Samples are kept this long before and after the events, or as long as the events last if that is longer."""
FARTHEST = 14 * 4
"""Quarter hours that the zone of a file can differ from the right one."""
EARLIEST, LATEST = 0, 4_000_000_000 * SECOND
"""Other times are invalid."""


class Witness(Struct, frozen=True):
    """A rank as its other sources know it."""

    rank: int
    host: str = ""
    pids: frozenset[int] = frozenset()
    devices: frozenset[str] = frozenset()
    """Numbers of the GPUs on which it ran kernels."""
    first_ns: int | None = None
    last_ns: int | None = None
    sources: Sequence[SourceInfo] = ()

    @classmethod
    def of(
        cls,
        rank: int,
        sources: Sequence[SourceInfo],
        devices: frozenset[str],
        first_ns: int | None,
        last_ns: int | None,
    ) -> Witness:
        """A rank with these sources and devices, whose events are of this time."""
        host = next((source.host for source in sources if source.host), "")
        pids = frozenset(source.pid for source in sources if source.pid is not None)
        return cls(rank, host, pids, devices, first_ns, last_ns, sources)

    @property
    def zone_ns(self) -> int | None:
        """What to add to local times of its machine; None if no source has both local times and others."""
        differences = {
            round((source.start_ns - source.local_time_ns) / QUARTER_HOUR) * QUARTER_HOUR
            for source in self.sources
            if source.start_ns is not None and source.local_time_ns is not None
        }
        return differences.pop() if len(differences) == 1 else None


def timed(
    readings: Readings, witnesses: Sequence[Witness], options: Metrics, findings: list[Finding]
) -> tuple[Int64s, Int64s] | None:
    """The rows of the samples that are used, and their times since 1970; None if these cannot be known."""
    found = _since_1970(readings, witnesses, options, findings)
    if found is None:
        return None
    times, zone = found
    path = readings.source.path
    valid = (times >= EARLIEST) & (times <= LATEST)
    if outside := int(np.count_nonzero(~valid)):
        message = f"{path}: {counted(outside, 'sample')} with invalid times were skipped."
        findings.append(Finding(Severity.WARNING, "invalid_times", message, outside, path))
    rows = np.flatnonzero(valid)
    firsts = [witness.first_ns for witness in witnesses if witness.first_ns is not None]
    lasts = [witness.last_ns for witness in witnesses if witness.last_ns is not None]
    if not firsts or not lasts or not len(rows):
        return rows, times[rows]
    return _within(rows, times[rows], (min(firsts), max(lasts)), path, findings, zone)


# Times since 1970.


def _since_1970(
    readings: Readings, witnesses: Sequence[Witness], options: Metrics, findings: list[Finding]
) -> tuple[Int64s, int | None] | None:
    """The times, and the offset of the time zone by which they were read if another zone could be right."""
    path, times = readings.source.path, readings.counters.time
    if readings.basis is Basis.EPOCH or not len(times):
        return times, None
    if readings.basis in (Basis.LOCAL, Basis.DAY):
        day = 0 if readings.basis is Basis.LOCAL else _day(path, witnesses, options, findings)
        if day is None:
            return None
        in_utc = _in_utc(times + day, path, witnesses, options, findings)
        return in_utc, int(times[0]) + day - int(in_utc[0])
    if readings.basis is Basis.ROUND and times.any():
        if options.interval_ns is None or options.start is None:
            findings.append(_no_times(path))
            return None
        times = times * options.interval_ns
    if options.start is None:
        findings.append(_no_times(path))
        return None
    start, local = parse_time(options.start)
    if not local:
        return times + start, None
    first = int(_in_utc(np.array([start]), path, witnesses, options, findings)[0])
    return times + first, start - first


def _no_times(path: str) -> Finding:
    message = (
        f"{path}: it does not say when its samples were taken; it was not used. Give the time of the first sample and "
        "the time between two: --metrics-start '2026-11-18 06:42:10' --interval 1"
    )
    return Finding(Severity.ERROR, "no_times", message, source=path)


def _in_utc(
    times: Int64s, path: str, witnesses: Sequence[Witness], options: Metrics, findings: list[Finding]
) -> Int64s:
    """Local times in UTC: by the zone that the user gave, else by that of compile logs of the same machine."""
    if options.zone is not None:
        return _moved(times, options.zone)
    zones = {zone for witness in witnesses if (zone := witness.zone_ns) is not None}
    if len(zones) == 1:
        zone = zones.pop()
        message = (
            f"{path}: its local times were read as {_zone_in_words(-zone)}, the time zone of the compile log."
        )
        findings.append(Finding(Severity.INFO, "zone_of_log", message, source=path))
        return times + zone
    why = "compile logs disagree on it" if zones else "it does not contain its time zone"
    message = f"{path}: local times were taken as UTC: {why}. Give the time zone, such as --tz +02:00"
    findings.append(Finding(Severity.WARNING, "no_time_zone", message, source=path))
    return times


def _moved(times: Int64s, zone: tzinfo) -> Int64s:
    """Local times of a zone in UTC; a zone is asked once for each quarter of an hour."""
    quarters, which = np.unique(times // QUARTER_HOUR, return_inverse=True)
    epoch = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
    offsets = []
    for quarter in quarters.tolist():
        try:
            local = (epoch + timedelta(seconds=quarter * 900)).replace(tzinfo=zone)
            offset = local.utcoffset() or timedelta()
        except OverflowError:
            offset = timedelta()
        offsets.append(round(offset.total_seconds()) * SECOND)
    return times - np.array(offsets, np.int64)[which]


def _day(path: str, witnesses: Sequence[Witness], options: Metrics, findings: list[Finding]) -> int | None:
    """The first day of times that have no date."""
    if options.start is not None:
        return parse_time(options.start)[0] // DAY * DAY
    firsts = [witness.first_ns for witness in witnesses if witness.first_ns is not None]
    if not firsts:
        findings.append(_no_times(path))
        return None
    first = min(firsts)
    ahead = first - int(_in_utc(np.array([first]), path, witnesses, options, [])[0])
    day = (first + ahead) // DAY * DAY
    message = (
        f"{path}: its times have no date; the day of the first event was taken ({moment(day)[:10]}). To give another: "
        f"--metrics-start {moment(day)[:10]}"
    )
    findings.append(Finding(Severity.WARNING, "no_date", message, source=path))
    return day


def _zone_in_words(offset_ns: int) -> str:
    minutes = abs(offset_ns) // (60 * SECOND)
    return f"UTC{'-' if offset_ns < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


# Samples of the time of the events.


def _within(
    rows: Int64s,
    times: Int64s,
    events: tuple[int, int],
    path: str,
    findings: list[Finding],
    zone: int | None,
) -> tuple[Int64s, Int64s]:
    """The samples around the events; the others would make the events a point on the timeline."""
    first, last = int(times.min()), int(times.max())
    margin = max(MARGIN, events[1] - events[0])
    near = (times >= events[0] - margin) & (times <= events[1] + margin)
    if not near.any():
        findings.append(_apart((first, last), events, path, zone))
    if dropped := len(times) - int(np.count_nonzero(near)):
        message = (
            f"{path}: {counted(dropped, 'sample')} more than {duration(margin)} before the first or after the last "
            "event were left out."
        )
        findings.append(Finding(Severity.INFO, "samples_left_out", message, dropped, path))
    return rows[near], times[near]


def _apart(samples: tuple[int, int], events: tuple[int, int], path: str, zone: int | None) -> Finding:
    """By how much samples and events miss each other, and the zone in which they would not."""
    early = samples[1] < events[0]
    gap = events[0] - samples[1] if early else samples[0] - events[1]
    text = (
        f"{path}: no sample is from the time of the events: "
        + (f"the last one is {duration(gap)} before the first event." if early else "")
        + (f"the first one is {duration(gap)} after the last event." if not early else "")
    )
    shifts = sorted(range(-FARTHEST, FARTHEST + 1), key=lambda shift: (shift % 4 != 0, abs(shift)))
    fitting = (
        shift
        for shift in shifts
        if samples[0] + shift * QUARTER_HOUR <= events[1] and samples[1] + shift * QUARTER_HOUR >= events[0]
    )
    if zone is not None and (shift := next(fitting, None)) is not None:
        fits = _zone_in_words(zone - shift * QUARTER_HOUR).removeprefix("UTC")
        text += f" They would overlap with --tz {fits}"
    return Finding(Severity.WARNING, "metrics_apart", text, source=path)
