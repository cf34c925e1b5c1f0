"""How many collectives are in flight, and how fast those of each group are."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from builders import perfetto, perfetto_native
from builders.graph import START, GraphBuilder
from builders.job import JobBuilder
from builders.told import job_told
from tracelink.converters.perfetto.timeline.derived import Hangs, group_counters
from tracelink.converters.perfetto.timeline.groups import group_seats
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.model.columns import NO_TIME
from tracelink.model.job import Job

Samples = dict[str, list[tuple[int, float]]]
"""For each counter, by its name: time and value."""


def counters(job: Job) -> Samples:
    first = job.first_ns or 0
    made = group_counters(job, group_seats(job, Hangs.of(job), Numbering()), Numbering())
    found: Samples = {name: [] for name in made.names}
    for counter, time, value in zip(
        made.counter.tolist(), made.time.tolist(), made.value.tolist(), strict=True
    ):
        found[made.names[counter]].append((time - first, value))
    return found


def test_a_collective_is_in_flight_from_the_first_entering_to_the_last_leaving() -> None:
    built = JobBuilder()
    tp, dp = built.group("1", [0, 1], "tp"), built.group("2", [0, 1], "dp")
    built.collective(tp, {0: (0, 100), 1: (40, 90)})
    built.collective(dp, {0: (50, 60), 1: (60, 70)})
    built.collective(tp, {0: (100, 120), 1: (100, 110)})
    assert counters(built.build()) == {"collectives in flight": [(0, 1), (50, 2), (70, 1), (120, 0)]}


def test_what_hangs_stays_in_flight(tmp_path: Path) -> None:
    job = job_told(tmp_path, {0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    assert counters(job) == {"collectives in flight": [(0, 1), (2_000_000, 2)]}


def test_the_bandwidth_of_a_group_lasts_from_the_last_entering_to_the_last_leaving() -> None:
    built = JobBuilder()
    tp, dp = built.group("1", [0, 1], "tp"), built.group("2", [2, 3], "dp")
    built.collective(dp, {2: (0, 30), 3: (0, 30)}, bus_gb_s=7.5)
    built.collective(tp, {0: (0, 100), 1: (40, 90)}, bus_gb_s=12.25)
    built.collective(tp, {0: (150, 160), 1: (150, 170)}, bus_gb_s=0.5)
    built.collective(tp, {0: (200, 210), 1: (200, 210)})
    found = counters(built.build())
    assert found.pop("collectives in flight")
    assert found == {
        "bus GB/s, group tp [0, 1]": [(40, 12.25), (100, 0), (150, 0.5), (170, 0)],
        "bus GB/s, group dp [2, 3]": [(0, 7.5), (30, 0)],
    }


def test_bandwidths_of_collectives_that_overlap_add_up_and_leave_nothing_behind() -> None:
    built = JobBuilder()
    group = built.group("1", [0, 1], "tp")
    for start in range(3):
        built.collective(group, {0: (start, start + 5), 1: (start, start + 5)}, bus_gb_s=0.1)
    assert counters(built.build())["bus GB/s, group tp [0, 1]"] == [
        *((0, 0.1), (1, 0.2), (2, 0.3)),
        *((5, 0.2), (6, 0.1), (7, 0)),
    ]


@pytest.mark.parametrize("rate", [math.nan, math.inf])
def test_a_group_of_which_no_bandwidth_is_known_has_no_counter_of_it(rate: float) -> None:
    built = JobBuilder()
    built.collective(built.group("1", [0, 1]), {0: (0, 10), 1: (0, 10)}, bus_gb_s=rate)
    assert list(counters(built.build())) == ["collectives in flight"]


def test_what_takes_no_time_and_what_has_no_time_is_never_in_flight() -> None:
    built = JobBuilder()
    group = built.group("1", [0, 1])
    built.collective(group, {0: (5, 5), 1: (5, 5)})
    built.collective(group, {0: (0, 10), 1: (0, 10)}, start=NO_TIME, end=NO_TIME)
    for part in built.participations[2:]:
        part |= {"start": NO_TIME, "end": NO_TIME, "enqueued": NO_TIME}
    assert counters(built.build()) == {}


def test_numbers_of_counters_stand_behind_those_of_lanes() -> None:
    built = JobBuilder()
    group = built.group("1", [0, 1])
    for start in (0, 5):
        built.collective(group, {0: (start, start + 10), 1: (start, start + 10)}, bus_gb_s=1.0)
    job, numbering = built.build(), Numbering(1, 2)
    seats = group_seats(job, Hangs.of(job), numbering)
    made = group_counters(job, seats, numbering)
    numbers = [seats.process, *seats.tids, *made.numbers]
    assert numbers == list(range(seats.process, seats.process + 5))
    assert (made.names, made.units) == (
        ["collectives in flight", "bus GB/s, group 1 [0, 1]"],
        ["count", "GB/s"],
    )


def test_both_formats_have_the_same_samples() -> None:
    built = GraphBuilder()
    rows = [built.add(built.track(rank=rank), "all_reduce", 10 * rank, 100 - 10 * rank) for rank in (0, 1)]
    built.together(built.group(0, 1, description="tp"), *rows, bus_gb_s=5.5)
    written, native = perfetto.write(built.build()), perfetto_native.write(built.build())
    bandwidth = "bus GB/s, group tp [0, 1]"
    assert sorted(native.samples) == [
        *((bandwidth, START + 10, 5.5), (bandwidth, START + 100, 0.0)),
        *(("collectives in flight", START, 1.0), ("collectives in flight", START + 100, 0.0)),
    ]
    assert sorted(written.samples()) == sorted(native.samples)
    assert {written.processes()[event["pid"]] for event in written.events("C")} == {"collectives"}
    assert native.outline()[:4] == [
        "collectives",
        "  group tp [0, 1]",
        "  collectives in flight",
        f"  {bandwidth}",
    ]
    assert {
        track.name: (track.counter.unit, track.counter.unit_name)
        for track in native.tracks.values()
        if track.HasField("counter")
    } == {"collectives in flight": (2, ""), bandwidth: (0, "GB/s")}


def test_a_job_without_any_sample_is_written(tmp_path: Path) -> None:
    """Recorders that never tell when anything ends, and ranks that ask for everything at once."""
    job = job_told(tmp_path, {0: "a1~ a2~", 1: "a1~ a2~"}, a=[0, 1])
    written, native = perfetto.write(job), perfetto_native.write(job)
    assert (written.samples(), native.samples) == ([], [])
    assert [one.name for one in native.slices if one.category == "collective"] == ["all_reduce 4.1 kB"] * 2
