"""Exports as rank traces: events, tracks, times, link keys, launches."""

from __future__ import annotations

import gzip
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders import execution_trace as et
from builders import kineto
from builders.data import shared
from builders.nsys import MIDDLE, NEWEST, OLDEST, SESSION_NS, Export, global_thread
from generators.nsys_export import write_export
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Key
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.nsys import is_nsys
from tracelink.converters.nsys.reader import NsysReader


def read(export: Export) -> RankTrace:
    return NsysReader().read(export.source(), Processes(1))


def shown(trace: RankTrace) -> list[tuple[str, str, str, int, int]]:
    """Kind, name, track, start in the session and duration of each event."""
    names, events = trace.strings.texts(), trace.events
    return [
        (EventKind(kind).name, names[name], trace.tracks[track].label, start - SESSION_NS, duration)
        for kind, name, track, start, duration in zip(
            events.kind.tolist(),
            events.name.tolist(),
            events.track.tolist(),
            events.start.tolist(),
            events.duration.tolist(),
            strict=True,
        )
    ]


def keyed(trace: RankTrace, key: Key) -> dict[str, int]:
    """The values of a key by the name of the event."""
    column, names = trace.key(key), trace.strings.texts()
    codes = trace.events.name[column.rows].tolist()
    return {names[code]: value for code, value in zip(codes, column.values.tolist(), strict=True)}


def everything(schema: str) -> Export:
    export = Export(schema)
    export.process(100)
    export.thread_name((100, 107), "pt_autograd_0")
    export.call("cudaLaunchKernel_v7000", 12, 2, correlation=7)
    export.call("cuLaunchKernelEx", 15, 1, correlation=8, thread=(100, 107))
    export.kernel("add_kernel", 20, 4, correlationId=7)
    export.copy(25, 2, correlationId=9, streamId=14, copyKind=2)
    export.fill(28, 1, correlationId=10)
    export.graph(40, 5, correlationId=11)
    export.wait(50, 6, correlationId=12)
    export.range("aten::mul, seq = 45328, op_id = 990726, sizes = [[2, 3]]", 10, 9)
    export.range("Torch-Compiled Region: 0/0, op_id = 5", 60, 9)
    export.range("forward", 5, 100, domainId=1)
    export.range("never closed", 6, None)
    export.nvtx(60, 7, 90, text="across threads")
    export.nvtx(34, 8, text="step done")
    export.nvtx(75, 4, text="train", domainId=1)
    return export


@pytest.mark.parametrize("schema", [OLDEST, MIDDLE, NEWEST])
def test_each_table_becomes_events_of_its_kind(schema: str) -> None:
    trace = read(everything(schema))
    assert shown(trace) == [
        ("KERNEL", "add_kernel", "stream 7", 20, 4),
        ("MEMCPY", "Memcpy DtoH", "stream 14", 25, 2),
        ("MEMSET", "Memset", "stream 7", 28, 1),
        ("KERNEL", "CUDA graph", "stream 7", 40, 5),
        ("SYNCHRONIZATION", "Stream Sync", "stream 7 synchronisation", 50, 6),
        ("RUNTIME", "cudaLaunchKernel", "nsys main thread 100", 12, 2),
        ("RUNTIME", "cuLaunchKernelEx", "nsys thread 107 pt_autograd_0", 15, 1),
        ("OPERATOR", "aten::mul", "nsys main thread 100", 10, 9),
        ("ANNOTATION", "Torch-Compiled Region: 0/0", "nsys main thread 100", 60, 9),
        ("ANNOTATION", "forward", "nsys main thread 100", 5, 100),
        ("ANNOTATION", "never closed", "nsys main thread 100", 6, -1),
        ("SPAN", "across threads", "NVTX start/end ranges", 7, 83),
        ("INSTANT", "step done", "nsys main thread 100", 8, -1),
    ]
    assert keyed(trace, Key.RECORD_FUNCTION) == {"aten::mul": 990726, "Torch-Compiled Region: 0/0": 5}
    assert keyed(trace, Key.SEQUENCE) == {"aten::mul": 45328}
    assert keyed(trace, Key.CORRELATION)["cudaLaunchKernel"] == 7
    assert trace.findings == []


@pytest.mark.parametrize(
    "parameter", [{"EXPORT_PARAM_TIME_NORMALIZE": "true"}, {"EXPORT_PARAM_TIME_SHIFT": "-1000"}]
)
def test_exports_with_other_times_are_refused_with_the_command_to_use(parameter: dict[str, str]) -> None:
    export = everything(NEWEST)
    export.parameters |= parameter
    with pytest.raises(UnreadableError, match="nsys export --type sqlite --ts-normalize false --ts-shift 0"):
        read(export)


def test_processes_of_a_file_are_ranks_whose_equal_correlation_ids_do_not_mix(tmp_path: Path) -> None:
    export = Export()
    for rank, pid in enumerate((100, 200)):
        export.mpi_rank(pid, rank)
        export.call("cudaLaunchKernel_v7000", 10, 2, correlation=1, thread=(pid, pid))
        export.kernel(f"kernel of {pid}", 20, 4, correlationId=1, pid=pid, deviceId=rank)
    export.kernel("launched before", 1, 4, correlationId=2, pid=100)
    graph = tracelink.load(export.write(tmp_path / "job.sqlite"), jobs=1)
    launches = graph.edges.where("launches")
    assert names(graph, launches.target) == ["kernel of 100", "kernel of 200"]
    assert [finding.message for finding in graph.findings if finding.reason == "unlinked.launches"] == [
        "launches: 1 of 2 linked, 1 unmatched: launched outside the recording."
    ]
    assert [(rank.rank, rank.host, rank.world_size) for rank in graph.ranks] == [
        (0, "node0", None),
        (1, "node0", None),
    ]


def test_waits_for_events_of_no_stream_have_a_track_of_their_own() -> None:
    export = Export()
    export.kernel("add", 1, 2)
    export.wait(5, 1, streamId=0xFFFFFFFF, syncType=1)
    assert shown(read(export))[1] == ("SYNCHRONIZATION", "Event Sync", "event synchronisation", 5, 1)


def test_processes_that_only_help_are_left_out_with_a_count() -> None:
    export = Export()
    export.process(300, "wandb-core")
    export.kernel("add", 1, 2)
    export.range("upload", 5, 1, (300, 301))
    trace = read(export)
    assert [(finding.reason, finding.count) for finding in trace.findings] == [("helper_process", 1)]
    assert len(trace.events) == 1


@pytest.mark.parametrize(("device", "rank"), [(3, 3), (-1, None), (10**9, None)])
def test_the_only_device_of_a_process_can_be_its_rank(device: int, rank: int | None) -> None:
    export = Export()
    export.kernel("add", 1, 2, deviceId=device)
    assert read(export).source.device == rank


def test_recognised_by_content() -> None:
    assert is_nsys(everything(MIDDLE).data(), "anything")
    assert not is_nsys(b"SQLite format 3\0" + b"x" * 4096, "export.sqlite")


def test_arguments_are_read_from_the_rows(tmp_path: Path) -> None:
    graph = tracelink.load(with_arguments().write(tmp_path / "job.sqlite"), jobs=1)
    assert [graph.arguments(row) for row in range(len(graph))] == ARGUMENTS


def with_arguments() -> Export:
    export = Export()
    export.kernel("add", 20, 4, gridX=8, gridY=2, gridZ=1, blockX=128, blockY=1, blockZ=1, graphNodeId=77)
    export.copy(30, 4)
    export.wait(40, 1, eventId=0xFFFFFFFF)
    export.call("cudaLaunchKernel_v7000", 10, 2, correlation=7)
    export.range("aten::mul, seq = 4, op_id = 9, sizes = [[2, 3], []]", 10, 9)
    export.range("step 0", 5, 100, domainId=1, category=7, color=0xFF3366FF, doubleValue=0.5)
    export.range("odd", 6, 1, jsonText='say "hi"', uint64Value=3)
    export.range("by id", 7, 1, jsonTextId=export.text('{"loss": 2}'))
    fields = struct.pack("<QQii", 0xABCDEF, 4096, 3, 0)
    export.payload_schema(1 << 24 | 9, ("NCCL communicator ID", 18, None), ("Peer rank", 5, 16))
    export.nccl("ncclSend", 8, 1, 1 << 24 | 9, fields)
    export.nvtx(33, 4, text="iteration", domainId=1, category=7)
    export.nvtx(75, 4, text="it's", domainId=1)
    return export


ARGUMENTS = [
    {"device": 0, "context": 1, "stream": 7, "correlation": 1, "grid": [8, 2, 1], "block": [128, 1, 1],
     "graph node id": 77},
    {"device": 0, "context": 1, "stream": 7, "correlation": 1, "bytes": 4096},
    {"device": 0, "context": 1, "stream": 7, "correlation": 1},
    {"correlation": 7},
    {"Record function id": 9, "Sequence number": 4, "Input Dims": [[2, 3], []]},
    {"color": "#3366FF", "payload": 0.5, "domain": "it's", "category": "iteration"},
    {"payload": 3, "data": 'say "hi"'},
    {"data": {"loss": 2}},
    {"domain": "it's", "NCCL communicator ID": "0xabcdef", "Peer rank": 3},
]  # fmt: skip


@pytest.mark.foreign
def test_launches_of_the_public_slice_are_those_with_equal_process_and_correlation() -> None:
    path = shared("nsys/public/mfu_2gpu_80ms_synth_nccl_payload.sqlite.gz")
    graph = tracelink.load(path, jobs=1)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(gzip.decompress(path.read_bytes()))
    tables = [f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET")]
    work = " UNION ALL ".join(
        f"SELECT globalPid >> 24 AS pid, correlationId FROM {table}" for table in tables
    )
    calls = "SELECT DISTINCT globalTid >> 24 AS pid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    (linked,) = connection.execute(
        f"SELECT count(*) FROM ({work}) JOIN ({calls}) USING (pid, correlationId)"
    ).fetchone()
    (total,) = connection.execute(f"SELECT count(*) FROM ({work})").fetchone()
    assert (len(graph.edges.where("launches")), linked, total) == (1241, 1241, 1273)
    assert [finding.message for finding in graph.findings if finding.reason == "unlinked.launches"] == [
        f"launches: {one} of {of} linked, {of - one} unmatched: launched outside the recording."
        for one, of in ((620, 637), (621, 636))
    ]


@pytest.mark.foreign
def test_the_public_profile_of_one_process_is_linked_completely() -> None:
    graph = tracelink.load(shared("nsys/public/mock.scrubbed.sqlite.gz"), jobs=1)
    assert len(graph.edges.where("launches")) == 3


def test_calls_of_the_operating_system_are_read_on_request_only(tmp_path: Path) -> None:
    export = everything(NEWEST)
    export.system_call("poll", 60, 5)
    path = export.write(tmp_path / "job.sqlite")
    names = [tracelink.load(path, jobs=1, include=include).strings for include in ((), ("osrt",))]
    assert ["poll" in strings for strings in names] == [False, True]
    assert [f.message for f in tracelink.inspect(path).findings if f.reason == "left_out_table"] == [
        f"{path}: 1 row is not read from the table OSRT_API (calls of the operating system). "
        "--include osrt reads them."
    ]
    with pytest.raises(tracelink.UsageError, match="nothing is named 'ossrt'"):
        tracelink.load(path, include=("ossrt",))


def test_gpu_metrics_and_memory_in_use_are_counters_of_the_process_that_uses_the_gpu() -> None:
    export = everything(NEWEST)
    kind = 5 << 32 | 0
    export.add("TARGET_INFO_GPU_METRICS", typeId=kind, metricId=3, metricName="SMs Active [Throughput %]")
    for time, value in ((10, 80), (20, 95)):
        export.add("GPU_METRICS", timestamp=time, typeId=kind, metricId=3, value=value)
    export.add("GPU_METRICS", timestamp=10, typeId=5 << 32 | 7, metricId=3, value=1)
    for time, size, operation, memory in ((30, 512, 0, 2), (50, 512, 1, 2), (40, 64, 0, 2), (45, 9, 0, 1)):
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=time, globalPid=global_thread(100), deviceId=0, bytes=size,
            memoryOperationType=operation, memKind=memory)  # fmt: skip
    trace = read(export)
    counters = trace.counters
    assert [
        (trace.tracks[track].label, trace.tracks[track].unit, time - SESSION_NS, value)
        for track, time, value in zip(
            counters.track.tolist(), counters.time.tolist(), counters.value.tolist(), strict=True
        )
    ] == [
        ("GPU 0 SMs Active [Throughput %]", "", 10, 80),
        ("GPU 0 SMs Active [Throughput %]", "", 20, 95),
        ("GPU 0 memory in use", "bytes", 30, 512),
        ("GPU 0 memory in use", "bytes", 40, 576),
        ("GPU 0 memory in use", "bytes", 50, 64),
    ]
    assert [(finding.reason, finding.count) for finding in trace.findings] == [("unowned_samples", 1)]


def test_operators_are_linked_to_the_execution_trace_of_the_process(tmp_path: Path) -> None:
    nodes = [et.thread_root(2), et.node(5, "aten::mul", handle=990726), et.process_root()]
    (tmp_path / "et_0.json").write_bytes(et.trace(*nodes, pid=100, time="2023-11-14 22:13:20"))
    export = Export()
    export.range("aten::mul, op_id = 990726", 10, 9)
    export.write(tmp_path / "report.sqlite")
    graph = tracelink.load(tmp_path, jobs=1)
    same = graph.edges.where("same")
    assert [(names(graph, same.source), names(graph, same.target))] == [(["aten::mul"], ["aten::mul"])]
    assert [(rank.rank, len(graph.sources)) for rank in graph.ranks] == [(0, 2)]


def names(graph: tracelink.EventGraph, rows: Sequence[int]) -> list[str]:
    return [graph.strings[graph.events.name[row]] for row in rows]


def test_a_generated_export_is_linked_completely(tmp_path: Path) -> None:
    write_export(tmp_path / "report.sqlite", kernels=8, ranges=80, ranks=2)
    graph = tracelink.load(tmp_path / "report.sqlite", jobs=1)
    assert (len(graph), len(graph.ranks), len(graph.edges.where("launches"))) == (96, 2, 8)
    assert len(graph.key("record_function")) == 80


def two_processes(folder: Path) -> Path:
    """Of which nothing but the device tells the rank."""
    export = Export()
    for pid, device in ((100, 1), (200, 0)):
        export.kernel("add", 20, 4, pid=pid, deviceId=device)
    return export.write(folder / "report.sqlite")


def ranks_of_processes(*paths: Path, **options: Any) -> list[tuple[int | None, int | None]]:
    graph = tracelink.load(paths, jobs=1, **options)
    return sorted((source.rank, source.pid) for source in graph.sources if source.format == "nsys")


def test_without_anything_else_the_device_is_the_rank(tmp_path: Path) -> None:
    assert ranks_of_processes(two_processes(tmp_path)) == [(0, 200), (1, 100)]


def test_a_source_of_the_same_process_knows_the_rank_better_than_the_device(tmp_path: Path) -> None:
    path = two_processes(tmp_path)
    profiles = []
    for rank, pid in ((8, 200), (9, 100)):
        profiles.append(tmp_path / f"kineto_{rank}.json")
        event = kineto.cpu_op("aten::add", 10, 5) | {"pid": pid, "tid": pid}
        profiles[-1].write_bytes(kineto.trace(event, rank=rank, baseTimeNanoseconds=SESSION_NS))
    assert ranks_of_processes(path, *profiles) == [(8, 200), (9, 100)]


def test_the_rank_of_a_file_is_that_of_its_first_device(tmp_path: Path) -> None:
    path = two_processes(tmp_path)
    assert ranks_of_processes(path, rank_of={"report.sqlite": 8}) == [(8, 200), (9, 100)]
