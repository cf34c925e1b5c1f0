"""Tracks, counters, slices in halves, and flows."""

from __future__ import annotations

import pytest

from builders.kineto import (
    counter,
    cpu_op,
    instant,
    kernel,
    memory,
    metadata,
    read,
    reasons,
    seen,
    slice_,
    trace,
    tracks,
)
from tracelink.model.events import BYTES, EventKind, Track, TrackKind
from tracelink.model.trace import RankTrace


def samples(result: RankTrace) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Every sample, by process and counter."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for track, time, value in zip(
        result.counters.track.tolist(),
        result.counters.time.tolist(),
        result.counters.value.tolist(),
        strict=True,
    ):
        of = result.tracks[track]
        assert of.kind == TrackKind.COUNTER
        found.setdefault((of.process, of.identity), []).append((time, value))
    return found


def units(result: RankTrace) -> set[str]:
    """What the values of counters are in."""
    return {track.unit for track in result.tracks if track.kind == TrackKind.COUNTER}


def test_threads_and_streams_are_called_what_the_metadata_says() -> None:
    result = read(
        trace(
            metadata("process_name", 10, name="python"),
            metadata("process_labels", 10, labels="CPU"),
            metadata("process_sort_index", 10, sort_index=10),
            metadata("thread_name", 10, 11, name="first name"),
            metadata("thread_name", 10, 11, name="pt_main_thread"),
            metadata("thread_sort_index", 10, 11, sort_index=5),
            metadata("thread_name", 0, 7, name="stream 7 "),
            cpu_op(pid=10, tid=11),
            cpu_op(pid=10, tid=12),
            kernel(device=0, stream=7),
            kernel(device=0, stream=20),
            slice_("cuda_sync", "Stream Sync", pid=0, tid=1_000_007),
            slice_("cuda_sync", "Context Sync", pid=0, tid=-1),
        )
    )
    assert tracks(result) == [
        Track(TrackKind.THREAD, "10", "11", "pt_main_thread", sort=5, process_label="python"),
        Track(TrackKind.THREAD, "10", "12", "thread 12", sort=12, process_label="python"),
        Track(TrackKind.STREAM, "0", "7", "stream 7", sort=7),
        Track(TrackKind.STREAM, "0", "20", "stream 20", sort=20),
        Track(TrackKind.STREAM, "0", "1000007", "stream 7 synchronisation", sort=1_000_007),
        Track(TrackKind.STREAM, "0", "-1", "stream -1", sort=-1),
    ]


def test_a_process_and_a_device_of_the_same_number_are_two_places() -> None:
    result = read(trace(cpu_op(pid=0, tid=7), kernel(device=0, stream=7), cpu_op(pid=0, tid=7)))
    assert tracks(result) == [
        Track(TrackKind.THREAD, "0", "7", "thread 7", sort=7),
        Track(TrackKind.STREAM, "0", "7", "stream 7", sort=7),
        Track(TrackKind.THREAD, "0", "7", "thread 7", sort=7),
    ]
    assert len(result.tracks) == 2


def test_ids_that_are_texts() -> None:
    result = read(
        trace(
            slice_("Operator", "aten::add", pid=10, tid="3340707648"),
            slice_("Kernel", "add", pid=0, tid="stream 7"),
            slice_("Trace", "PyTorch Profiler (0)", pid="Spans", tid="PyTorch Profiler"),
            instant("Iteration Start: PyTorch Profiler", 1, pid="Traces", tid="Trace PyTorch Profiler"),
            instant("Record Window End", 2, pid="", tid=""),
            slice_("overhead", "Buffer Flush", pid=-1, tid=0),
            cpu_op(pid=10, tid=12),
        )
    )
    assert tracks(result) == [
        Track(TrackKind.THREAD, "10", "3340707648", "thread 3340707648"),
        Track(TrackKind.STREAM, "0", "stream 7", "stream 7"),
        Track(TrackKind.PROCESS, "Spans", "PyTorch Profiler", "PyTorch Profiler"),
        Track(TrackKind.PROCESS, "Traces", "Trace PyTorch Profiler", "Trace PyTorch Profiler"),
        Track(TrackKind.PROCESS, "", "", ""),
        Track(TrackKind.PROCESS, "-1", "0", "0"),
        Track(TrackKind.THREAD, "10", "12", "thread 12", sort=12),
    ]


def test_a_number_written_as_text_is_another_lane_than_the_number() -> None:
    result = read(trace(cpu_op(tid="7"), cpu_op(tid=7), cpu_op(tid="7")))
    first, second, third = result.events.track.tolist()
    assert first == third != second
    assert len(result.tracks) == 2


@pytest.mark.parametrize("pid", [2**31, 2**63 - 1, -5, -(2**40), -(2**63)])
def test_process_ids_of_any_size(pid: int) -> None:
    result = read(trace(cpu_op(pid=pid, tid=7), cpu_op(pid=pid, tid=7)))
    assert {track.process for track in tracks(result)} == {str(pid)}


def test_memory_events_become_counters_of_each_device() -> None:
    result = read(
        trace(
            memory(1, 512, 2048),
            memory(2, 1024, 2048),
            memory(3, 64, device_type=0, device=-1),
            memory(4, 5, 6, device=1),
            memory(5, 7, 8, device_type=20, device=2),
            memory(6, 9, 10, device_type=13),
        )
    )
    assert samples(result) == {
        ("", "GPU 0 allocated"): [(1000, 512), (2000, 1024)],
        ("", "GPU 0 reserved"): [(1000, 2048), (2000, 2048)],
        ("", "CPU allocated"): [(3000, 64)],
        ("", "GPU 1 allocated"): [(4000, 5)],
        ("", "GPU 1 reserved"): [(4000, 6)],
        ("", "GPU 2 allocated"): [(5000, 7)],
        ("", "GPU 2 reserved"): [(5000, 8)],
        ("", "device type 13 0 allocated"): [(6000, 9)],
        ("", "device type 13 0 reserved"): [(6000, 10)],
    }
    assert units(result) == {BYTES}
    assert {one.kind for one in seen(result)} == {EventKind.MEMORY}


def test_memory_events_of_2021_have_no_category() -> None:
    old = memory(1, 512)
    del old["cat"]
    result = read(trace(old, memory(2, 1024), cpu_op(ts=3)))
    assert samples(result)["", "GPU 0 allocated"] == [(1000, 512), (2000, 1024)]
    assert [one.kind for one in seen(result)] == [EventKind.MEMORY, EventKind.MEMORY, EventKind.OPERATOR]


def test_counters_that_the_producer_sampled() -> None:
    result = read(
        trace(
            counter("sm__cycles", 1, {"": 5}),
            counter("sm__cycles", 2.5, {"": 6.5}),
            counter("Bandwidth", 3, {"read": 1, "written": "2"}, pid=0),
            counter("Bandwidth", 4, {"read": "no number"}, pid=0),
            cpu_op(ts=9),
            baseTimeNanoseconds=1_000_000_000,
        )
    )
    assert samples(result) == {
        ("GPU 0 Counters", "sm__cycles"): [(1_000_001_000, 5), (1_000_002_500, 6.5)],
        ("0", "Bandwidth read"): [(1_000_003_000, 1)],
        ("0", "Bandwidth written"): [(1_000_003_000, 2)],
    }
    assert units(result) == {""}
    assert reasons(result) == {"not_an_event": 1}
