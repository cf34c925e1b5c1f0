"""Tracks and facts of one rank."""

from __future__ import annotations

import json

from builders import perfetto
from builders.job import START, JobBuilder
from builders.perfetto_native import write
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.job import LinkedJob

# What a native trace says to readers of tracelink's own, in packets that viewers pass over.


def launched() -> JobBuilder:
    built = JobBuilder()
    built.group(0, 1, description="dp")
    for rank in (0, 1):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        launch = built.add(thread, "launch", 0, 5, EventKind.RUNTIME)
        outer = built.add(thread, "outer", 0, 9)
        kernel = built.add(stream, "kernel", 10, 8, EventKind.KERNEL)
        built.edge(launch, Relation.LAUNCHES, kernel)
        built.edge(launch, Relation.SAME, outer)
        built.sample(built.track(TrackKind.COUNTER, rank, "0", "memory"), 5, 2.0)
    return built


def test_the_header_of_the_json_stands_before_everything() -> None:
    job = LinkedJob.of(launched().build())
    native, document = write(job), perfetto.write(job).document
    del document["traceEvents"]
    assert native.packets[0].HasField("tracelink")
    assert native.facts[0] == json.loads(json.dumps(document))
    assert native.facts[0]["baseTimeNanoseconds"] == START


def test_a_rank_says_what_its_tracks_and_arrows_are() -> None:
    """An arrow that leads from the event that is met second is told apart from the others of its relation."""
    assert write(launched().build()).facts[1] == {
        "rank": 0,
        "title": "rank 0",
        "processes": [[1, "rank 0 (100)", "CPU", "100"], [2, "rank 0 · GPU 0", "GPU 0", "0"]],
        "threads": [[1, 3, "rank 0 thread 101", "101"], [2, 4, "rank 0 stream 7 · compute", "7"]],
        "counters": [[5, 2, "memory"], [6, 2, "rank 0 outstanding kernels, stream 7"]],
        "first arrow": 1,
        "arrows": [["ac2g", 1, 0], ["same", 1, 1]],
    }


# The outline of a native trace: what stands below what, in which order, under which name.


def test_a_rank_has_its_threads_then_its_gpus_its_groups_and_the_rest() -> None:
    built = JobBuilder(host="node-1")
    for kind, process, identity, label, name, what in [
        (TrackKind.PROCESS, "-1", "0", "", "Buffer Flush", EventKind.OVERHEAD),
        (
            TrackKind.PROCESS,
            "DrawnCollectives",
            "PyTorch Profiler",
            "PyTorch Profiler",
            "span",
            EventKind.SPAN,
        ),
        (TrackKind.STREAM, "3", "-1", "", "Context Sync", EventKind.SYNCHRONIZATION),
        (TrackKind.STREAM, "3", "22", "", "Memcpy HtoD", EventKind.MEMCPY),
        (TrackKind.STREAM, "3", "13", "", "ncclDevKernel_AllReduce", EventKind.KERNEL),
        (TrackKind.STREAM, "3", "7", "", "gemm", EventKind.KERNEL),
        (TrackKind.COMMUNICATOR, "", "0", "0 (default_pg)", "nccl:all_reduce", EventKind.RECORD),
        (TrackKind.THREAD, "100", "99", "thread 99 (pt_autograd_0)", "backward", EventKind.OPERATOR),
        (TrackKind.THREAD, "100", "100", "thread 100 (python)", "forward", EventKind.OPERATOR),
    ]:
        built.add(built.track(kind, 0, process, identity, label), name, 0, 10, what)
    built.sample(built.track(TrackKind.COUNTER, 0, "", "GPU 3 allocated", "GPU 3 allocated"), 5, 1.0)
    built.sample(built.track(TrackKind.COUNTER, 0, "", "CPU allocated", "CPU allocated"), 5, 1.0)
    assert write(built.build()).outline() == [
        "rank 0 · node-1",
        "  rank 0 main thread 100",
        "  rank 0 thread 99 pt_autograd_0",
        "  rank 0 · node-1 · GPU 3",
        "    rank 0 stream 7 · compute",
        "    rank 0 stream 13 · communication",
        "    rank 0 stream 22 · copy",
        "    rank 0 stream -1",
        "    GPU 3 allocated",
        "    rank 0 outstanding kernels, stream 22",
        "    rank 0 outstanding kernels, stream 13",
        "    rank 0 outstanding kernels, stream 7",
        "  rank 0 · node-1 · process groups",
        "    rank 0 group 0 (default_pg)",
        "  rank 0 · node-1 · profiler",
        "    rank 0 profiler overhead",
        "    rank 0 PyTorch Profiler",
        "  CPU allocated",
    ]


def test_a_rank_with_nothing_but_groups_has_them_directly() -> None:
    built = JobBuilder()
    built.add(built.track(TrackKind.COMMUNICATOR, 0, "", "0", "0 (dp)"), "all_reduce", 0, 9, EventKind.RECORD)
    assert write(built.build()).outline() == ["rank 0", "  rank 0 group 0 (dp)"]


def test_lanes_of_a_thread_have_its_name_and_stand_together() -> None:
    """Viewers draw siblings of one name as one track."""
    built = JobBuilder()
    first, second = built.track(identity="101"), built.track(identity="102")
    for start in (0, 5):
        built.add(first, "crossing", start, 10)
    built.add(second, "step", 0, 10)
    names = ["rank 0 thread 101", "rank 0 thread 101", "rank 0 thread 102"]
    assert write(built.build()).outline() == ["rank 0", *(f"  {name}" for name in names)]


def test_further_processes_of_a_rank_have_branches_of_their_own() -> None:
    built = JobBuilder()
    for process in ("100", "200"):
        built.add(built.track(TrackKind.THREAD, 0, process, process), "step", 0, 10)
        built.sample(built.track(TrackKind.COUNTER, 0, process, "load", "load"), 5, 1.0)
    assert write(built.build()).outline() == [
        "rank 0",
        "  rank 0 main thread 100",
        "  rank 0 (200)",
        "    rank 0 main thread 200",
        "    load",
        "  load",
    ]


def test_no_two_counters_of_a_rank_have_one_name() -> None:
    built = JobBuilder()
    built.add(built.track(TrackKind.THREAD, 0, "100", "100"), "step", 0, 10)
    for process in ("100", ""):
        built.sample(built.track(TrackKind.COUNTER, 0, process, "load", "load"), 5, 1.0)
    outline = write(built.build()).outline()
    assert [name for name in outline if "load" in name] == ["  load", "  load #5"]


def test_ranks_sort_as_their_numbers_do() -> None:
    built = JobBuilder()
    for rank in (2, 10):
        built.add(built.track(TrackKind.THREAD, rank, "100", "100"), "step", 0, 10)
    assert write(built.build()).outline() == [
        "rank 02",
        "  rank 02 main thread 100",
        "rank 10",
        "  rank 10 main thread 100",
    ]
