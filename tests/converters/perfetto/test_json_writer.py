"""Chrome JSON: documents, events, arguments, flows."""

from __future__ import annotations

import gzip
import json
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from builders.job import START, JobBuilder
from builders.perfetto import nanoseconds, write
from tracelink._io.targets import file_target
from tracelink._model.clock import Clock
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.graph import EventGraph, Rank
from tracelink._model.job import LinkedJob, Part
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter

WHOLE = """{
"schemaVersion": 1,
"deviceProperties": [],
"distributedInfo": {"backend": "nccl", "rank": 0},
"displayTimeUnit": "ms",
"baseTimeNanoseconds": 1700000000000000000,
"tracelink": {"ranks": [{"rank": 0, "clock_offset_ns": 0, "sources": [{"format": "kineto"}]}]},
"traceEvents": [
{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "node-1 · rank"}},
{"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "CPU, GPU 0"}},
{"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "ts": 0, "args": {"sort_index": 1}},
{"ph": "M", "name": "thread_name", "pid": 0, "tid": 101, "ts": 0, "args": {"name": "rank 0 thread 101 python3", "original tid": "101", "original pid": "100"}},
{"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 101, "ts": 0, "args": {"sort_index": 1}},
{"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "rank 0 stream 7 · compute", "original tid": "7", "original pid": "0"}},
{"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 7, "ts": 0, "args": {"sort_index": 2}},
{"ph":"X","cat":"cuda_runtime","pid":0,"tid":101,"name":"cudaLaunchKernel","ts":1.0,"dur":2.5,"args":{"cbid": 211}},
{"ph":"X","cat":"kernel","pid":0,"tid":7,"name":"gemm","ts":2000000.001,"dur":0.9},
{"ph":"C","name":"rank 0 outstanding kernels, stream 7","pid":0,"tid":0,"ts":2000000.001,"args":{"value":1.0}},
{"ph":"C","name":"rank 0 outstanding kernels, stream 7","pid":0,"tid":0,"ts":2000000.901,"args":{"value":0.0}}
]
}
"""  # noqa: E501


def test_a_whole_document() -> None:
    built = JobBuilder(header={"distributedInfo": {"backend": "nccl"}, "username": "somebody"}, host="node-1")
    thread = built.track(label="thread 101 (python3)")
    stream = built.track(TrackKind.STREAM, process="0", identity="7", label="stream 7")
    built.add(thread, "cudaLaunchKernel", 1000, 2500, EventKind.RUNTIME, b'{"cbid": 211}')
    built.add(stream, "gemm", 2_000_000_001, 900, EventKind.KERNEL)
    assert write(built.build()).text.decode() == WHOLE


def test_each_rank_is_one_process_in_order() -> None:
    built = JobBuilder()
    for rank in range(11):
        built.add(built.track(rank=rank), "step", 0, 10)
        built.add(built.track(TrackKind.STREAM, rank, "0", "7"), "gemm", 0, 10, EventKind.KERNEL)
        built.add(built.track(TrackKind.COMMUNICATOR, rank, "", "0"), "all_reduce", 0, 10, EventKind.RECORD)
    written = write(built.build())
    assert written.processes() == {rank: f"rank {rank}" for rank in range(11)}
    assert list(written.threads().values()) == [
        f"rank {rank:02} {name}"
        for rank in range(11)
        for name in ("thread 101", "stream 7 · compute", "group 0")
    ]
    assert len(written.threads()) == 33
    assert [rank["rank"] for rank in written.document["tracelink"]["ranks"]] == list(range(11))
    assert "distributedInfo" not in written.document


def test_a_rank_of_many_keeps_its_header_and_says_nothing_private() -> None:
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0}],
        "distributedInfo": {"rank": 1},
        "cupti_version": 18,
        "traceName": "/home/somebody/trace.json",
        "username": "somebody",
        "INFO": ["on a host"],
        "baseTimeNanoseconds": 5,
    }
    built = JobBuilder(header=header)
    for rank in range(2):
        built.add(built.track(rank=rank), "step", 0, 10)
    (source,) = write(built.build()).document["tracelink"]["ranks"][1]["sources"]
    assert source == {
        "format": "kineto",
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0}],
        "distributedInfo": {"rank": 1},
        "cupti_version": 18,
    }


def test_times_are_exact_after_the_base() -> None:
    built = JobBuilder()
    thread = built.track()
    times = [123_456_789, 123_456_790, 7_999_999_999_999_999]
    for time in times:
        built.add(thread, f"at {time}", time, 1)
    written = write(built.build())
    base = written.document["baseTimeNanoseconds"]
    assert [base + nanoseconds(event["ts"]) - START for event in written.slices()] == times


def test_slices_that_overlap_get_a_thread_named_after_the_first() -> None:
    built = JobBuilder()
    stream = built.track(TrackKind.STREAM, 0, "0", "7", "stream 7")
    built.add(stream, "one", 0, 11, EventKind.KERNEL)
    built.add(stream, "two", 10, 10, EventKind.KERNEL)
    written = write(built.build())
    threads = written.threads()
    names = [threads[event["pid"], event["tid"]] for event in written.slices()]
    assert names == ["rank 0 stream 7 · compute", "rank 0 stream 7 · compute (2)"]
    assert written.reasons() == {"overlap": 1}


def test_instants_and_categories() -> None:
    built = JobBuilder()
    thread = built.track()
    built.add(thread, "[memory]", 5, 0, EventKind.MEMORY, {"Bytes": 512})
    built.add(thread, "cuLaunchKernel", 5, 0, EventKind.RUNTIME)
    built.add(thread, "cudaMalloc", 5, 0, EventKind.RUNTIME)
    assert [(e["ph"], e["cat"], e.get("s"), "dur" in e) for e in write(built.build()).slices()] == [
        ("i", "cpu_instant_event", "t", False),
        ("X", "cuda_driver", None, True),
        ("X", "cuda_runtime", None, True),
    ]


def test_counters_are_drawn_where_they_are_numbers() -> None:
    built = JobBuilder()
    built.add(built.track(), "step", 0, 10)
    counter = built.track(TrackKind.COUNTER, process="GPU 0 Counters", identity="sm", label="sm active")
    for time, value in ((0, 1.0), (10, 0.25), (20, float("nan"))):
        built.sample(counter, time, value)
    written = write(built.build())
    assert [(e["name"], str(e["ts"]), e["args"]) for e in written.events("C")] == [
        ("sm active", "0.0", {"value": 1}),
        ("sm active", "0.01", {"value": 0.25}),
    ]
    assert written.reasons() == {"counter_not_finite": 1}


def record(built: JobBuilder, state: str, start: int, duration: int = -1, group: str = "0") -> int:
    track = built.track(TrackKind.COMMUNICATOR, 0, "", group)
    return built.add(track, state, start, duration, EventKind.RECORD, {"state": state}, {Key.STATE: state})


def test_a_recorder_entry_without_an_end_lasts_as_long_as_the_operator_that_is_the_same() -> None:
    built = JobBuilder()
    operator = built.add(built.track(), "c10d::allreduce_", 90, 60)
    entry = record(built, "scheduled", 100)
    built.edge(entry, Relation.SAME, operator)
    written = write(built.build())
    assert nanoseconds(written.slice("scheduled")["dur"]) == 50
    assert written.slice("scheduled")["args"] == {
        "recorder": {"state": "scheduled"},
        "link": {"duration known": False},
    }
    assert [event["cat"] for event in written.events("s", "f")] == ["same", "same"]
    assert written.reasons() == {"unfinished": 1}


def test_an_entry_that_hangs_is_drawn_to_the_last_event_of_its_rank() -> None:
    built = JobBuilder()
    built.add(built.track(), "step", 0, 1000)
    built.add(built.track(rank=1), "step", 0, 9000)
    track = built.track(TrackKind.COMMUNICATOR, 0, "", "0")
    for state, start, duration in (("completed", 10, 20), ("started", 100, -1)):
        built.add(track, state, start, duration, EventKind.RECORD, None, {Key.STATE: state})
    record(built, "scheduled", 100, group="gloo, where nothing ever starts")
    graph = in_rank_order(built)
    written = write(graph)
    lengths = {
        name: nanoseconds(written.slice(name)["dur"]) for name in ("completed", "started", "scheduled")
    }
    assert lengths == {"completed": 20, "started": 900, "scheduled": 0}


def in_rank_order(built: JobBuilder) -> EventGraph:
    """Events of one source stand together; there are no edges to renumber."""
    order = sorted(range(len(built.rows)), key=lambda row: built.tracks[built.rows[row][2]].rank)
    place = {row: index for index, row in enumerate(order)}
    built.rows = [built.rows[row] for row in order]
    built.payloads = [built.payloads[row] for row in order]
    built.keys = {key: [(place[row], code) for row, code in pairs] for key, pairs in built.keys.items()}
    return built.build()


def test_a_generated_kernel_has_the_lines_of_the_program_that_it_computes() -> None:
    built = JobBuilder()
    lines = {Key.SOURCE_LINES: 'train.py:15 (step), "<string>":1 (f)'}
    built.add(built.track(), "triton_poi_fused_add_0", 0, 5, keys=lines)
    assert write(built.build()).slice("triton_poi_fused_add_0")["args"] == {
        "link": {"source lines": 'train.py:15 (step), "<string>":1 (f)'}
    }


def test_an_operator_names_the_execution_trace_node_that_is_the_same() -> None:
    built = JobBuilder()
    operator = built.add(built.track(), "aten::mm", 0, 10, args={"External id": 5})
    nodes = built.track(TrackKind.NODES)
    node = built.add(nodes, "aten::mm", None, -1, EventKind.NODE, keys={Key.NODE_ID: 42})
    built.add(
        nodes, "[pytorch|profiler|execution_trace|thread]", None, -1, EventKind.NODE, keys={Key.NODE_ID: 1}
    )
    built.edge(node, Relation.SAME, operator)
    written = write(built.build())
    assert [event["args"] for event in written.slices()] == [
        {"External id": 5, "link": {"execution trace node": 42}}
    ]
    assert written.reasons() == {"untimed": 1}


def test_nodes_alone_are_drawn_in_the_order_of_their_ids_around_their_children() -> None:
    built = JobBuilder()
    nodes = built.track(TrackKind.NODES)
    for name, node, parent in (("child", 3, 2), ("root", 2, 1), ("after", 9, 1), ("grandchild", 4, 3)):
        keys: dict[Key, int | str] = {Key.NODE_ID: node, Key.NODE_PARENT: parent}
        built.add(nodes, name, None, -1, EventKind.NODE, keys=keys)
    written = write(built.build())
    assert [(e["name"], nanoseconds(e["ts"]), nanoseconds(e["dur"])) for e in written.slices()] == [
        ("child", 1000, 2000),
        ("root", 0, 3000),
        ("after", 3000, 1000),
        ("grandchild", 2000, 1000),
    ]
    assert [(f.severity, f.reason, f.count) for f in written.findings] == [("warning", "logical_order", 4)]


def test_a_graph_without_events() -> None:
    built = JobBuilder()
    built.track()
    document = write(built.build()).document
    assert document["traceEvents"] == []
    assert document["distributedInfo"] == {"rank": 0}


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_parts_written_side_by_side_are_the_same_bytes(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelink.converters.perfetto.json_writer.SECTION_ROWS", 7)
    monkeypatch.setattr("tracelink.converters.perfetto.timeline.job.LARGE", 7)
    built = JobBuilder()
    for rank in range(3):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        for number in range(20):
            call = built.add(thread, "call", 100 * number, 50, EventKind.RUNTIME, {"rank": rank, "n": number})
            kernel = built.add(stream, f"k{number}", 100 * number + 60, 30, EventKind.KERNEL)
            built.edge(call, Relation.LAUNCHES, kernel)
    group = built.group(0, 1, 2)
    for number in range(20):
        built.together(group, *(40 * rank + 2 * number + 1 for rank in range(3)))
    graph = built.build()
    contents = []
    for jobs in (1, 2, 3, 4):
        path = tmp_path / f"{jobs}{suffix}"
        PerfettoJsonWriter().write(LinkedJob.of(graph), file_target(path), Processes(jobs))
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] == contents[2]
    text = gzip.decompress(contents[0]) if suffix.endswith(".gz") else contents[0]
    assert text == write(graph).text
    assert sum(event["ph"] == "X" for event in json.loads(text)["traceEvents"]) == 140


def test_ranks_are_in_memory_one_at_a_time() -> None:
    built = JobBuilder()
    for rank in range(3):
        built.add(built.track(rank=rank), "step", 0, 10)
    job = LinkedJob.of(built.build())
    columns: list[weakref.ref[np.ndarray]] = []

    @dataclass
    class Watched:
        part: Part

        @property
        def rank(self) -> int:
            return self.part.rank

        def load(self) -> EventGraph:
            assert all(column() is None for column in columns)
            graph = self.part.load()
            columns.append(weakref.ref(graph.events.start))
            return graph

    assert len(write(replace(job, parts=[Watched(part) for part in job.parts])).slices()) == 3
    assert len(columns) == 3


def test_a_rank_whose_clock_was_corrected_says_by_how_much() -> None:
    built = JobBuilder()
    for rank in range(2):
        built.add(built.track(rank=rank), "step", 0, 10)
    clock = Clock(1, "", 1500, -2.5, 1400, 1700, 30)
    job = replace(LinkedJob.of(built.build()), ranks=[Rank(0), Rank.with_clock(clock)])
    first, second = write(job).document["tracelink"]["ranks"]
    assert first == {"rank": 0, "clock_offset_ns": 0, "sources": [{"format": "kineto"}]}
    assert second == first | {
        "rank": 1,
        "clock_offset_ns": 1500,
        "clock_drift_ppm": -2.5,
        "clock_low_ns": 1400,
        "clock_high_ns": 1700,
        "clock_uncertainty_ns": 200,
    }
