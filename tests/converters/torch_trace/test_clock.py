"""Times of compile logs: zones, years, and what changes within a log."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.compile_log import artifact, begin, end, local_time
from builders.recorder import as_source
from tracelink._io.sources import discover_inputs
from tracelink._model.columns import SECOND
from tracelink._model.compiles import CompileLog
from tracelink.converters.torch_trace.clock import LogClock
from tracelink.converters.torch_trace.log import decoded

HOUR = 3600


def read(*records: str) -> CompileLog:
    return decoded(as_source("".join(records).encode(), "log_rank_0.log"), lambda _: None).log


def seconds(found: CompileLog, since: datetime) -> list[float]:
    """The times of all artifacts."""
    start = round(since.timestamp()) * SECOND
    return [(one.time_ns - start) / SECOND for one in found.artifacts]


def logged(since: datetime, at: float, zone: float) -> list[str]:
    """An artifact and a short phase, `at` seconds after `since`, in the local time of a zone in hours."""
    with local_time(since, zone):
        return [begin("dynamo", at=at), artifact("x", "y", at=at), end("dynamo", at=at)]


@pytest.mark.parametrize("zone", [-10, -7, 0, 5.75, 14])
@pytest.mark.parametrize("year", [2026, 2028])
def test_zone_of_local_times(zone: float, year: int) -> None:
    since = datetime(year, 7, 1, 12, tzinfo=UTC)
    found = read(*logged(since, 0, zone), *logged(since, 5, zone))
    assert seconds(found, since) == [0, 5]
    assert found.source.local_time_ns == round((since.timestamp() + zone * HOUR) * SECOND)
    assert found.last_ns == round((since.timestamp() + 5) * SECOND)


@pytest.mark.parametrize("year", [2025, 2028])
def test_year_ends_within_a_log(year: int) -> None:
    since = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    with local_time(since, 0):
        after = artifact("x", "y", at=4)
    found = read(*logged(since, 0, 0), *logged(since, 3, 0), after)
    assert seconds(found, since) == [0, 3, 4]
    assert found.last_ns == round((since.timestamp() + 4) * SECOND)


def test_year_ends_in_the_local_time_only() -> None:
    since = datetime(2026, 12, 31, 15, tzinfo=UTC) - timedelta(seconds=2)
    assert seconds(read(*logged(since, 0, 9), *logged(since, 3, 9)), since) == [0, 3]


def test_year_ends_within_a_log_without_events(tmp_path: Path) -> None:
    since = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    with local_time(since, 0):
        path.write_text(artifact("x", "y") + artifact("x", "y", at=2))
    os.utime(path, (since.timestamp() + 3,) * 2)
    (source,) = discover_inputs(path).sources
    found = decoded(source, lambda _: None).log
    assert seconds(found, since) == [0, 2]
    assert [one.reason for one in found.findings] == ["no_time_zone"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)], ids=["back", "forward"])
def test_summer_time_ends_or_begins_within_a_log(before: int, after: int) -> None:
    since = datetime(2026, 10, 25, 0, 59, 50, tzinfo=UTC)
    with local_time(since, after):
        first_after = artifact("x", "y", at=11)
    found = read(*logged(since, 0, before), *logged(since, 5, before), first_after, *logged(since, 15, after))
    assert seconds(found, since) == [0, 5, 11, 15]
    assert found.last_ns == round((since.timestamp() + 15) * SECOND)


def test_the_leap_day_ends_within_a_log() -> None:
    since = datetime(2028, 2, 29, 23, 59, 58, tzinfo=UTC)
    assert seconds(read(*logged(since, 0, 0), *logged(since, 3, 0)), since) == [0, 3]


def test_an_event_that_is_logged_late_changes_no_zone() -> None:
    since = datetime(2026, 7, 1, tzinfo=UTC)
    with local_time(since, 1):
        late = begin("other", at=600).replace("00:10:00", "00:50:00")
    found = read(*logged(since, 0, 0), late, *logged(since, 3000, 0), *logged(since, 3001, 0))
    assert seconds(found, since) == [0, 3000, 3001]


INSTANTS = st.lists(st.integers(0, 400 * 86400), min_size=1, max_size=8)


@given(INSTANTS, st.integers(-48, 56), st.integers(2020, 2035))
def test_any_times_of_one_zone(steps: list[int], quarters: int, year: int) -> None:
    """Records with an event each, in order, at most a day apart."""
    times, now = [], datetime(year, 1, 1, tzinfo=UTC)
    for step in steps:
        now += timedelta(seconds=step % 86400)
        times.append(now)
    clock, ticks = LogClock(), []
    for position, time in enumerate(times):
        local = time + timedelta(minutes=15 * quarters)
        day = (
            local.replace(year=2025) if (local.month, local.day) != (2, 29) else datetime(2025, 3, 1)
        ).timetuple()
        seconds = day.tm_yday * 86400 + local.hour * 3600 + local.minute * 60 + local.second
        tick = clock.continued(seconds * SECOND)
        for _ in range(2):
            clock.add_event(tick, round(time.timestamp()) * SECOND, position)
        ticks.append(tick)
    assert clock.settle(as_source(b""))
    found = [clock.since_1970(tick, position) for position, tick in enumerate(ticks)]
    assert found == [round(time.timestamp()) * SECOND for time in times]
