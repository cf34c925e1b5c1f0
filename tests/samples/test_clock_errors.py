"""Clocks with known errors, and recorded files that are given them."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import traces
from builders.recorder import as_json, collective, dump, pickled
from generators.clock_errors import mistime_job, mistimed_dump, mistimed_json, mistimed_profile
from generators.job import HostClock

START = 1_735_632_360_000_000_000
PROFILE = b"""{
  "host_name": "vm",
  "baseTimeNanoseconds": 1735632360000000000,
  "traceEvents": [
  {"ph": "M", "name": "process_name", "ts": 1000000.000, "pid": 1, "args": {"name": "says \\"ts\\": 5"}},
  {"ph": "X", "name": "op", "ts": 2000000.500,
    "dur": 1000000.000, "args": {"External id": 7}},
  {"ph": "s", "id": 3, "ts": 2000000.500, "name": "ac2g"}
  ]
}"""

clocks = st.builds(
    HostClock,
    st.integers(-50_000_000, 50_000_000),
    st.floats(-50, 50),
    st.integers(START - 10**12, START + 10**12),
)
times = st.integers(START - 10**13, START + 10**13)


@given(clocks, times)
def test_at_its_reference_a_clock_is_off_by_its_offset(clock: HostClock, time: int) -> None:
    assert clock.offset_at(clock.reference_ns) == clock.offset_ns
    later = clock.offset_at(clock.reference_ns + 10**9) - clock.offset_ns
    assert later == round(clock.drift_ppm * 1000)


@given(clocks, times, times)
def test_what_comes_later_is_shown_no_earlier(clock: HostClock, one: int, other: int) -> None:
    first, second = sorted((one, other))
    assert clock.shown(first) <= clock.shown(second)


def test_a_clock_that_is_set_jumps_once() -> None:
    clock = HostClock(offset_ns=5, step_ns=100, step_at_ns=1_000)
    assert [clock.offset_at(time) for time in (0, 999, 1_000, 2_000)] == [5, 5, 105, 105]


def test_only_times_and_the_host_change_in_a_profile() -> None:
    clock = HostClock(offset_ns=1_500, drift_ppm=10.0, reference_ns=START)
    text = mistimed_profile(PROFILE, clock, "other").decode()
    assert text == PROFILE.decode().replace('"vm"', '"other"').replace(
        '"ts": 1000000.000', '"ts": 1000011.500'
    ).replace('"ts": 2000000.500', '"ts": 2000022.000').replace('"dur": 1000000.000', '"dur": 1000010.000')


def test_a_right_clock_changes_nothing() -> None:
    assert mistimed_profile(PROFILE, HostClock()) == PROFILE


@given(clocks, st.integers(0, 10**12), st.integers(0, 10**9), st.integers(0, 10**9))
def test_what_was_inside_stays_inside(clock: HostClock, start: int, before: int, within: int) -> None:
    outer, inner = (start, before + within), (start + before, within)
    events = [{"ts": a / 1000, "dur": b / 1000} for a, b in (outer, inner)]
    text = json.dumps({"baseTimeNanoseconds": START, "traceEvents": events})
    shown = json.loads(mistimed_profile(text.encode(), clock))["traceEvents"]
    (first, last), (begin, end) = [
        (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)) for event in shown
    ]
    assert first <= begin
    assert end <= last + 1  # the sum of two doubles


def test_a_duration_that_stands_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="does not stand behind its start"):
        mistimed_profile(b'{"traceEvents": [{"dur": 5, "ts": 7}]}', HostClock())


def test_all_times_of_a_dump_change_and_those_that_are_not_there_stay_so() -> None:
    clock = HostClock(offset_ns=-1_000, drift_ppm=100.0, reference_ns=START)
    done = collective(created=START, completed=START + 2_000_000, duration_ms=1.0)
    content = dump(done, collective(sequence=2, created=START + 10_000_000))
    first, second = pickle.loads(mistimed_dump(pickled(content), clock))["entries"]
    assert first["time_created_ns"] == START - 1_000
    assert first["time_discovered_completed_ns"] == START + 2_000_000 - 1_000 + 200
    assert first["duration_ms"] == 1.0001
    assert second["time_created_ns"] == START + 10_000_000 - 1_000 + 1_000
    assert second["time_discovered_completed_ns"] is None
    in_json = json.loads(mistimed_json(as_json(content), clock))["entries"]
    names = ("time_created_ns", "time_discovered_completed_ns")
    assert [[e[name] for name in names] for e in in_json] == [
        [e[name] or 0 for name in names] for e in (first, second)
    ]


def test_a_dump_that_would_run_code_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"a dump holds no posix\.system"):
        mistimed_dump(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.", HostClock())


def test_a_recorded_job_gets_a_host_for_each_rank(tmp_path: Path) -> None:
    folder = traces("cpu_job")
    mistime_job(folder, tmp_path, {1: HostClock(offset_ns=20_000_000)})
    changed = [
        path.relative_to(tmp_path).as_posix()
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file() and path.read_bytes() != (folder / path.relative_to(tmp_path)).read_bytes()
    ]
    assert set(changed) >= {"fr/comm_lib_trace_rank_1", "kineto_1.json.gz"}
    assert set(changed) <= {"fr/comm_lib_trace_rank_1", "kineto_1.json.gz", "et_1.json.gz"}
    header = gzip.decompress((tmp_path / "kineto_1.json.gz").read_bytes())[:2000]
    assert b'"host_name": "node001"' in header
