"""Tracks of process groups."""

from __future__ import annotations

from typing import Any

import pytest

from builders.job import START, JobBuilder
from builders.perfetto import Event, Written, nanoseconds, write
from tracelink._model.columns import NO_TIME
from tracelink._model.events import EventKind, TrackKind
from tracelink.converters.perfetto.timeline.groups import readable_bytes


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
