"""Tracks of process groups."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import perfetto, perfetto_native
from builders.job import START, JobBuilder
from builders.perfetto import Event, Written, nanoseconds, write
from builders.programs import job_of_programs
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.events import COUNT, EventKind, Relation, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.timeline import groups as module
from tracelink.converters.perfetto.timeline.groups import (
    MIN_SAMPLES,
    Levels,
    group_counters,
    group_tracks,
    levels_of,
    readable_bytes,
    thinned,
    with_outstanding,
)
from tracelink.converters.perfetto.timeline.hangs import Hangs
from tracelink.converters.perfetto.timeline.layout import Numbering


def job(ranks: int) -> tuple[JobBuilder, list[int]]:
    """A stream for each rank, each with a kernel."""
    built = JobBuilder()
    rows = [
        built.add(built.track(TrackKind.STREAM, rank, "0", "7"), "k", 100 * rank, 1000, EventKind.KERNEL)
        for rank in range(ranks)
    ]
    return built, rows


def collectives(written: Written) -> list[Event]:
    return [event for event in written.slices() if event["cat"] == "collective"]


def spans(written: Written) -> list[tuple[str, str, int, int]]:
    """Track, name, start and end of every collective."""
    threads = written.threads()
    return [
        (
            threads[event["pid"], event["tid"]],
            event["name"],
            nanoseconds(event["ts"]),
            nanoseconds(event["ts"]) + nanoseconds(event["dur"]),
        )
        for event in collectives(written)
    ]


def test_a_collective_with_all_that_is_known_of_it() -> None:
    built, rows = job(3)
    built.together(
        built.group(0, 1, 2, description="tp"),
        *rows,
        sequence=12,
        bytes=4_200_000,
        algorithm_gb_s=4.2,
        bus_gb_s=5.6,
    )
    written = write(built.build())
    (event,) = collectives(written)
    assert spans(written) == [("group tp [0, 1, 2]", "all_reduce 4.2 MB", 0, 1200)]
    assert {key: plain(value) for key, value in event["args"].items()} == {
        "sequence": 12,
        "ranks": "0-2",
        "bytes": 4_200_000,
        "last rank": 2,
        "skew_us": 0.2,
        "duration_us": 1,
        "algorithm GB/s": 4.2,
        "bus GB/s": 5.6,
        "verdict": "complete",
        "wait_us": {"rank 0": 0.2, "rank 1": 0.1, "rank 2": 0},
    }


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return value if isinstance(value, str | int) else float(value)


def test_the_process_of_all_groups_stands_before_the_ranks() -> None:
    built, rows = job(2)
    built.together(built.group(0, 1), *rows)
    written = write(built.build())
    sort = {
        e["pid"]: e["args"]["sort_index"] for e in written.events("M") if e["name"] == "process_sort_index"
    }
    assert written.processes() == {2: "collectives · world size 2", 0: "rank 0", 1: "rank 1"}
    assert sorted(sort, key=lambda pid: sort[pid]) == [2, 0, 1]


def test_groups_have_tracks_in_their_order_and_collectives_that_overlap_lanes() -> None:
    built, rows = job(2)
    unused, tp, dp = (built.group(0, 1, description=text) for text in ("unused", "tp", "dp"))
    for group, start, end in ((dp, 0, 50), (tp, 40, 60), (tp, 0, 100), (tp, 100, 110), (tp, 60, 70)):
        built.together(group, *rows, start=START + start, end=START + end)
    assert unused == 0
    assert spans(write(built.build())) == [
        ("group tp [0, 1]", "all_reduce", 0, 100),
        ("group tp [0, 1] (2)", "all_reduce", 40, 60),
        ("group tp [0, 1] (2)", "all_reduce", 60, 70),
        ("group tp [0, 1]", "all_reduce", 100, 110),
        ("group dp [0, 1]", "all_reduce", 0, 50),
    ]


def test_where_nobody_is_known_to_have_entered_the_asking_is_drawn() -> None:
    built, rows = job(2)
    group = built.group(0, 1)
    unknown = {"start": NO_TIME, "end": NO_TIME, "skew": -1, "duration": -1, "last_rank": -1}
    built.together(group, *rows, **unknown)
    for part, asked in zip(built.participations, (20, 70), strict=True):
        part |= {"start": NO_TIME, "end": NO_TIME, "wait": -1, "enqueued": START + asked}
    written = write(built.build())
    assert spans(written) == [("group 0 [0, 1]", "all_reduce", 20, 70)]
    assert set(collectives(written)[0]["args"]) == {"sequence", "ranks", "verdict"}


def test_one_that_never_ended_is_drawn_as_far_as_anything_is_known() -> None:
    built, rows = job(2)
    built.together(built.group(0, 1), *rows, end=NO_TIME, duration=-1)
    for part in built.participations:
        part["end"] = NO_TIME
    written = write(built.build())
    assert spans(written) == [("group 0 [0, 1]", "all_reduce", 0, 100)]
    assert collectives(written)[0]["args"]["duration known"] is False


def test_one_without_any_time_is_counted() -> None:
    built, rows = job(2)
    built.together(built.group(0, 1), *rows, start=NO_TIME, end=NO_TIME)
    for part in built.participations:
        part |= {"start": NO_TIME, "end": NO_TIME}
    written = write(built.build())
    assert "collectives" not in written.processes().values()
    assert written.reasons()["collective_without_time"] == 1


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        (range(8), "group dp [0, 1, 2, 3, 4, 5, 6, 7]"),
        (range(512), "group dp [0-511]"),
        (range(0, 512, 8), "group dp [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, … of 64]"),
    ],
)
def test_long_lists_of_members_are_shortened(ranks: range, name: str) -> None:
    built, rows = job(2)
    built.together(built.group(*ranks, description="dp"), *rows)
    assert [track for track, *_ in spans(write(built.build()))] == [name]


def test_groups_that_look_alike_are_told_apart_by_their_names() -> None:
    built, rows = job(2)
    for name in ("21", "22"):
        built.together(built.group(0, 1, description="tp", name=name), *rows)
    assert [track for track, *_ in spans(write(built.build()))] == ["group tp [0, 1]", "group tp [0, 1] #22"]


def test_only_the_longest_waits_of_many_ranks_are_listed() -> None:
    built, rows = job(100)
    built.together(built.group(*range(100)), *rows)
    (event,) = collectives(write(built.build()))
    assert list(event["args"]["wait_us"]) == [f"rank {rank}" for rank in range(64)]


def test_who_of_the_group_took_no_part_is_named() -> None:
    built, rows = job(3)
    built.together(built.group(*range(8)), *rows)
    (event,) = collectives(write(built.build()))
    assert (event["args"]["ranks"], event["args"]["missing ranks"]) == ("0-2", "3-7")


def test_a_lone_rank_has_no_tracks_of_groups() -> None:
    built, rows = job(1)
    built.together(built.group(0, 1), *rows)
    assert collectives(write(built.build())) == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (4_200_000, "4.2 MB"),
        (99_960_000, "100 MB"),
        (999_600_000, "1.0 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_are_read_at_a_glance(size: int, text: str) -> None:
    assert readable_bytes(size) == text


# Counters.


# How many collectives are in flight, and how fast those of each group are.


Samples = dict[str, list[tuple[int, float]]]
"""For each counter, by its name: time and value."""


def counters(job: LinkedJob) -> Samples:
    first = job.first_ns or 0
    made = group_counters(job, group_tracks(job, Hangs.of(job), Numbering()), Numbering())
    found: Samples = {name: [] for name in made.names}
    for counter, time, value in zip(
        made.counter.tolist(), made.time.tolist(), made.value.tolist(), strict=True
    ):
        found[made.names[counter]].append((time - first, value))
    return found


def test_a_collective_is_in_flight_from_the_first_entering_to_the_last_leaving() -> None:
    built = JobBuilder()
    tp, dp = built.group(0, 1, name="1", description="tp"), built.group(0, 1, name="2", description="dp")
    built.collective(tp, {0: (0, 100), 1: (40, 90)})
    built.collective(dp, {0: (50, 60), 1: (60, 70)})
    built.collective(tp, {0: (100, 120), 1: (100, 110)})
    assert counters(built.job()) == {"collectives in flight": [(0, 1), (50, 2), (70, 1), (120, 0)]}


def test_what_hangs_stays_in_flight(tmp_path: Path) -> None:
    job = job_of_programs(tmp_path, {0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    assert counters(job) == {"collectives in flight": [(0, 1), (2_000_000, 2)]}


def test_the_bandwidth_of_a_group_lasts_from_the_last_entering_to_the_last_leaving() -> None:
    built = JobBuilder()
    tp, dp = built.group(0, 1, name="1", description="tp"), built.group(2, 3, name="2", description="dp")
    built.collective(dp, {2: (0, 30), 3: (0, 30)}, bus_gb_s=7.5)
    built.collective(tp, {0: (0, 100), 1: (40, 90)}, bus_gb_s=12.25)
    built.collective(tp, {0: (150, 160), 1: (150, 170)}, bus_gb_s=0.5)
    built.collective(tp, {0: (200, 210), 1: (200, 210)})
    found = counters(built.job())
    assert found.pop("collectives in flight")
    assert found == {
        "bus GB/s, group tp [0, 1]": [(40, 12.25), (100, 0), (150, 0.5), (170, 0)],
        "bus GB/s, group dp [2, 3]": [(0, 7.5), (30, 0)],
    }


def test_bandwidths_of_collectives_that_overlap_add_up_and_leave_nothing_behind() -> None:
    built = JobBuilder()
    group = built.group(0, 1, name="1", description="tp")
    for start in range(3):
        built.collective(group, {0: (start, start + 5), 1: (start, start + 5)}, bus_gb_s=0.1)
    assert counters(built.job())["bus GB/s, group tp [0, 1]"] == [
        *((0, 0.1), (1, 0.2), (2, 0.3)),
        *((5, 0.2), (6, 0.1), (7, 0)),
    ]


@pytest.mark.parametrize("rate", [math.nan, math.inf, 1e300, 1e13])
def test_a_group_of_which_no_bandwidth_is_known_has_no_counter_of_it(rate: float) -> None:
    built = JobBuilder()
    built.collective(built.group(0, 1, name="1"), {0: (0, 10), 1: (0, 10)}, bus_gb_s=rate)
    assert list(counters(built.job())) == ["collectives in flight"]


def test_what_takes_no_time_and_what_has_no_time_is_never_in_flight() -> None:
    built = JobBuilder()
    group = built.group(0, 1, name="1")
    built.collective(group, {0: (5, 5), 1: (5, 5)})
    built.collective(group, {0: (0, 10), 1: (0, 10)}, start=NO_TIME, end=NO_TIME)
    for part in built.participations[2:]:
        part |= {"start": NO_TIME, "end": NO_TIME, "enqueued": NO_TIME}
    assert counters(built.job()) == {}


def test_numbers_of_counters_stand_behind_those_of_lanes() -> None:
    built = JobBuilder()
    group = built.group(0, 1, name="1")
    for start in (0, 5):
        built.collective(group, {0: (start, start + 10), 1: (start, start + 10)}, bus_gb_s=1.0)
    job, numbering = built.job(), Numbering(1, 2)
    seats = group_tracks(job, Hangs.of(job), numbering)
    made = group_counters(job, seats, numbering)
    numbers = [seats.process, *seats.tids, *made.numbers]
    assert numbers == list(range(seats.process, seats.process + 5))
    assert (made.names, made.units) == (
        ["collectives in flight", "bus GB/s, group 1 [0, 1]"],
        ["count", "GB/s"],
    )


def test_both_formats_have_the_same_samples() -> None:
    built = JobBuilder()
    rows = [built.add(built.track(rank=rank), "all_reduce", 10 * rank, 100 - 10 * rank) for rank in (0, 1)]
    built.together(built.group(0, 1, description="tp"), *rows, bus_gb_s=5.5)
    written, native = perfetto.write(built.build()), perfetto_native.write(built.build())
    bandwidth = "bus GB/s, group tp [0, 1]"
    assert sorted(native.samples) == [
        *((bandwidth, START + 10, 5.5), (bandwidth, START + 100, 0.0)),
        *(("collectives in flight", START, 1.0), ("collectives in flight", START + 100, 0.0)),
    ]
    assert sorted(written.samples()) == sorted(native.samples)
    assert {written.processes()[event["pid"]] for event in written.events("C")} == {
        "collectives · world size 2"
    }
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
    job = job_of_programs(tmp_path, {0: "a1~ a2~", 1: "a1~ a2~"}, a=[0, 1])
    written, native = perfetto.write(job), perfetto_native.write(job)
    assert (written.samples(), native.samples) == ([], [])
    assert [one.name for one in native.slices if one.category == "collective"] == ["all_reduce 4.1 kB"] * 2


# What counters show, out of changes; and which samples are kept of too many.


LevelSamples = list[tuple[int, int, int]]
"""Counter, time and value."""

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), st.integers(-2, 2)), max_size=30)


def columns(samples: LevelSamples) -> Any:
    return np.array(samples, np.int64).reshape(-1, 3).T


def samples(levels: Levels) -> LevelSamples:
    return list(zip(levels.counter.tolist(), levels.time.tolist(), levels.value.tolist(), strict=True))


def shown(changes: LevelSamples) -> LevelSamples:
    """What counters show after these changes."""
    return samples(levels_of(*columns(changes)))


def test_a_counter_shows_the_sum_of_its_changes() -> None:
    assert shown([(0, 10, 1), (1, 15, 5), (0, 20, 1), (0, 30, -1), (0, 40, -1)]) == [
        *((0, 10, 1), (0, 20, 2), (0, 30, 1), (0, 40, 0)),
        (1, 15, 5),
    ]


def test_of_changes_at_one_time_only_the_sum_is_seen() -> None:
    assert shown([(0, 10, 1), (0, 20, -1), (0, 20, 1), (0, 30, -1), (1, 30, 1), (1, 30, -1)]) == [
        *((0, 10, 1), (0, 30, 0)),
    ]


@given(CHANGES)
def test_every_sample_is_a_sum_and_none_repeats_what_is_shown(changes: LevelSamples) -> None:
    expected = []
    for counter in range(4):
        value = 0
        for time in range(-5, 6):
            change = sum(by for of, at, by in changes if (of, at) == (counter, time))
            value += change
            if change:
                expected.append((counter, time, value))
    assert shown(changes) == expected


def zigzag(count: int, counter: int = 0) -> LevelSamples:
    """Every sample is higher or lower than those before and after it."""
    return [(counter, time, 1 + time * 7919 % 1000 + 1000 * (time % 2)) for time in range(count)]


def fewer(given: LevelSamples, events: int = 0) -> LevelSamples:
    return samples(thinned(Levels(*columns(given)), events))


@pytest.mark.parametrize(
    ("count", "events"), [(0, 0), (MIN_SAMPLES, 0), (MIN_SAMPLES + 1, 32 * (MIN_SAMPLES + 1))]
)
def test_few_samples_beside_many_events_are_all_kept(count: int, events: int) -> None:
    assert fewer(zigzag(count), events) == zigzag(count)


def test_of_too_many_no_more_are_kept_than_are_worth_it_and_they_span_the_same() -> None:
    given = zigzag(100_000)
    kept = fewer(given)
    assert MIN_SAMPLES // 2 < len(kept) <= MIN_SAMPLES
    assert set(kept) <= set(given)
    assert kept[-1] == given[-1]
    values = [value for *_, value in given]
    assert {min(values), max(values)} <= {value for *_, value in kept}


def test_a_counter_with_few_samples_keeps_them_beside_one_with_many() -> None:
    kept = fewer(zigzag(10) + zigzag(100_000, counter=1))
    assert [one for one in kept if one[0] == 0] == zigzag(10)
    assert len(kept) <= MIN_SAMPLES


def test_counters_for_which_there_is_no_room_keep_where_they_end() -> None:
    given = [one for counter in range(MIN_SAMPLES) for one in zigzag(4, counter)]
    kept = fewer(given)
    assert [one for one in kept if one[1] == 3] == [one for one in given if one[1] == 3]
    assert len(kept) <= 3 * MIN_SAMPLES


@given(CHANGES, st.integers(1, 12))
def test_a_thinned_counter_ends_as_before_with_its_extremes_and_without_repeats(
    changes: LevelSamples, room: int
) -> None:
    given = shown(changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_SAMPLES", room)
        kept = fewer(given)
    assert set(kept) <= set(given)
    for counter, some in groupby(given, key=lambda one: one[0]):
        whole, left = list(some), [one for one in kept if one[0] == counter]
        values, left_values = ([0, *(value for *_, value in those)] for those in (whole, left))
        assert (min(left_values), max(left_values)) == (min(values), max(values))
        assert left_values[-1] == values[-1]
        assert all(one != other for one, other in pairwise(left_values))


# How much work of each stream has been launched and has not ended.


OutstandingSamples = list[tuple[int, float]]
"""Time and value."""


class Streams(JobBuilder):
    """A graph in which a thread launches work of streams."""

    def stream(self, identity: str = "7", process: str = "0", label: str = "") -> int:
        return self.track(TrackKind.STREAM, 0, process, identity, label)

    def work(
        self,
        stream: int,
        *launches: int,
        start: int | None,
        end: int | None,
        kind: EventKind = EventKind.KERNEL,
    ) -> None:
        """Work that was launched at these times; without `end` it is not finished."""
        duration = UNKNOWN if end is None else end - (start or 0)
        row = self.add(stream, "work", start, duration, kind)
        for time in launches:
            thread = self.track(identity="thread")
            self.edge(self.add(thread, "launch", time, 1, EventKind.RUNTIME), Relation.LAUNCHES, row)


def shown_outstanding(graph: EventGraph) -> dict[str, OutstandingSamples]:
    """The samples of each counter by its name."""
    drawn = with_outstanding(graph, Numbering(digits=2))
    found: dict[str, OutstandingSamples] = {}
    for track, time, value in zip(
        drawn.counters.track.tolist(),
        drawn.counters.time.tolist(),
        drawn.counters.value.tolist(),
        strict=True,
    ):
        found.setdefault(drawn.tracks[track].label, []).append((time - START, value))
    return found


def one(built: Streams) -> OutstandingSamples:
    (found,) = shown_outstanding(built.build()).values()
    return found


def test_work_is_outstanding_from_its_launch_to_its_end() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, 0, start=10, end=50)
    built.work(stream, 5, start=50, end=60, kind=EventKind.MEMCPY)
    assert shown_outstanding(built.build()) == {
        "rank 00 outstanding kernels, stream 7": [(0, 1), (5, 2), (50, 1), (60, 0)]
    }


@pytest.mark.parametrize(
    ("launches", "since"),
    [((), 10), ((4,), 4), ((2, 6, 4), 6), ((12,), 10)],
    ids=["launched by nothing", "launched", "by the innermost", "by a clock that is ahead"],
)
def test_when_work_was_launched(launches: tuple[int, ...], since: int) -> None:
    built = Streams()
    built.work(built.stream(), *launches, start=10, end=50)
    assert one(built) == [(since, 1), (50, 0)]


def test_work_that_never_ends_stays_outstanding() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, start=0, end=10)
    built.work(stream, start=20, end=None)
    assert one(built) == [(0, 1), (10, 0), (20, 1)]


def test_what_is_no_work_of_a_stream_or_has_no_time_does_not_count() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, start=0, end=10, kind=EventKind.SYNCHRONIZATION)
    built.work(stream, start=None, end=None)
    built.work(built.track(), start=0, end=10)
    graph = built.build()
    assert with_outstanding(graph, Numbering()) is graph


def test_each_stream_has_a_counter_of_its_own_however_often_it_is_seen() -> None:
    built = Streams()
    for stream in (built.stream("7"), built.stream("7"), built.stream("9", label="stream 9 (nccl)")):
        built.work(stream, start=0, end=10 * (stream + 1))
    for stream in (built.stream("7", process="1"), built.stream("8", process="1", label="stream 8 ")):
        built.work(stream, start=0, end=10)
    graph = with_outstanding(built.build(), Numbering())
    counters = [track for track in graph.tracks if track.kind == TrackKind.COUNTER]
    assert [(track.process, track.label, track.unit) for track in counters] == [
        ("0", "rank 0 outstanding kernels, stream 7", COUNT),
        ("0", "rank 0 outstanding kernels, stream 9 (nccl)", COUNT),
        ("1", "rank 0 outstanding kernels, stream 7", COUNT),
        ("1", "rank 0 outstanding kernels, stream 8", COUNT),
    ]
    assert graph.counters.value.tolist() == [2, 1, 0, 1, 0, 1, 0, 1, 0]


def test_recorded_counters_stay_what_they_are() -> None:
    built = Streams()
    memory = built.track(TrackKind.COUNTER, 0, "0", "memory", "memory")
    built.sample(memory, 3, 7.0)
    built.work(built.stream(), start=0, end=10)
    assert shown_outstanding(built.build()) == {
        "memory": [(3, 7)],
        "rank 00 outstanding kernels, stream 7": [(0, 1), (10, 0)],
    }


def test_counters_stand_beside_the_streams_of_their_gpu_in_both_formats() -> None:
    built = Streams()
    built.work(built.stream(), start=0, end=10)
    written, native = perfetto.write(built.build()), perfetto_native.write(built.build())
    name = "rank 0 outstanding kernels, stream 7"
    assert written.samples() == native.samples == [(name, START, 1.0), (name, START + 10, 0.0)]
    assert {written.processes()[event["pid"]] for event in written.events("C")} == {"rank 0"}
    assert native.outline() == [
        *("rank 0", "  rank 0 · GPU 0", "    rank 0 stream 7 · compute"),
        f"    {name}",
    ]
    (unit,) = (track.counter.unit for track in native.tracks.values() if track.HasField("counter"))
    assert unit == 2
