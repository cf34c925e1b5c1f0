"""Round trip."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.chakra import TracedJob
from builders.data import foreign, traces
from builders.execution_trace import node, process_root, thread_root
from tracelink import load
from tracelink._api.functions import merge
from tracelink._model.events import GPU_WORK, EventKind, Key, Relation
from tracelink._model.graph import EventGraph

Timed = tuple[str, EventKind, int, int]
BASE = 1_700_000_000_000_000_123


def again(graph: EventGraph, folder: Path) -> EventGraph:
    """The graph that the file of a graph makes."""
    (output,) = merge(graph, folder / "rank0.et.json", jobs=1).outputs
    return load(output.path, jobs=1)


def timed(graph: EventGraph, rows: Iterable[int]) -> list[Timed]:
    events = graph.events
    return sorted(
        (
            graph.name(row).replace("ncclKernel_SendRecv", "ncclDevKernel_SendRecv"),
            EventKind(events.kind[row]),
            int(events.start[row]),
            int(events.duration[row]),
        )
        for row in rows
    )


def merged_parts(graph: EventGraph) -> tuple[list[Timed], list[Timed]]:
    """The operators that are nodes, and the work that has a launch, of a job of traces and profiles."""
    edges = graph.edges
    operators = set(edges.where(Relation.SAME).target[graph.events.timed[edges.where(Relation.SAME).target]])
    launched = edges.where(Relation.LAUNCHES).target
    return timed(graph, operators), timed(graph, launched[graph.events.of_kind(*GPU_WORK)[launched]])


def read_parts(graph: EventGraph) -> tuple[list[Timed], list[Timed]]:
    """The same of a linked trace."""
    work = graph.events.of_kind(*GPU_WORK)
    return timed(graph, (graph.events.timed & ~work).nonzero()[0]), timed(graph, work.nonzero()[0])


def check(merged: EventGraph, folder: Path) -> EventGraph:
    result = again(merged, folder)
    assert read_parts(result) == merged_parts(merged)
    document = json.loads((folder / "rank0.et.json").read_bytes())
    written = {entry["id"]: entry for entry in document["nodes"]}
    ids = result.key(Key.NODE_ID).dense(len(result), -1).tolist()
    assert sorted(ids) == sorted(written)
    assert [result.name(row) for row in range(len(result))] == [written[number]["name"] for number in ids]
    for relation, marked in ((Relation.LAUNCHES, True), (Relation.CALLS, False)):
        edges = result.edges.where(relation)
        told = {
            (ids[source], ids[target])
            for source, target in zip(edges.source.tolist(), edges.target.tolist(), strict=True)
        }
        assert told == {
            (entry["ctrl_deps"], number)
            for number, entry in written.items()
            if ("cat" in entry) is marked and entry["ctrl_deps"] != number
        }
    return result


def test_a_job_built_by_hand(tmp_path: Path) -> None:
    job = TracedJob(header={"baseTimeNanoseconds": BASE})
    job.node(process_root())
    job.node(thread_root())
    step = job.op("## step ##", 0, 100, node=node(5, "## step ##", scope=7), kind=EventKind.ANNOTATION)
    mm = job.op("aten::mm", 10.001, 40.251, node=node(6, "aten::mm", 5), inside=step)
    job.work("gemm", 20.002, 30.005, 9, by=job.call("cudaLaunchKernel", 12, inside=mm))
    copy = job.call("cudaMemcpyAsync", 50, inside=step)
    job.work("Memcpy DtoH", 60, 61, by=copy, kind=EventKind.MEMCPY)
    result = check(job.build(), tmp_path)
    assert result.sources[0].header["baseTimeNanoseconds"] == BASE
    assert [track.identity for track in result.tracks if track.kind == "stream"] == ["7", "9"]


def test_a_node_waits_again_for_what_it_waited_for(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    first = job.op("first", 0, 10, node=node(5, "first", 1))
    gemm = job.work("gemm", 20, 30, by=job.call("cudaLaunchKernel", 2, inside=first))
    other = job.op("other", 11, 16, "2", node=node(6, "other", 1, thread=2))
    last = job.op("last", 40, 45, node=node(7, "last", 1))
    job.edge(last, Relation.WAITS_FOR, gemm)
    job.edge(last, Relation.DEPENDS_ON, other)
    result = again(job.build(), tmp_path)
    edges = result.edges.where(Relation.DEPENDS_ON)
    assert sorted(
        (result.name(source), result.name(target))
        for source, target in zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    ) == [("last", "gemm"), ("last", "other")]


def test_a_linked_trace_is_written_as_it_was(tmp_path: Path) -> None:
    job = TracedJob(header={"baseTimeNanoseconds": BASE})
    job.node(process_root())
    first = job.op("first", 0, 10, node=node(5, "first", 1))
    gemm = job.work("gemm", 20, 30, by=job.call("cudaLaunchKernel", 2, inside=first))
    job.edge(job.op("last", 40, 45, node=node(7, "last", 1)), Relation.WAITS_FOR, gemm)
    again(job.build(), tmp_path)
    once = (tmp_path / "rank0.et.json").read_bytes()
    merge(load(tmp_path / "rank0.et.json", jobs=1), tmp_path / "twice.et.json", jobs=1)
    assert (tmp_path / "twice.et.json").read_bytes() == once
    assert b'"sync_dep":[2]' in once


OPERATORS = st.lists(
    st.tuples(
        st.integers(0, 10**9),
        st.integers(0, 10**6),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 3)), max_size=3),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(OPERATORS, st.integers(0, 2 * 10**18))
def test_any_job_comes_back(
    operators: list[tuple[int, int, int, list[tuple[int, int, int]]]], base: int
) -> None:
    job = TracedJob(header={"baseTimeNanoseconds": base})
    job.node(process_root())
    for number, (start, duration, thread, kernels) in enumerate(operators, start=3):
        name = f"op{number}"
        made = node(number, name, 1, thread=thread + 1)
        row = job.op(name, start / 1000, start / 1000 + duration / 1000, str(thread), node=made)
        for begun, lasted, stream in kernels:
            job.work("k", begun / 1000, begun / 1000 + lasted / 1000, str(stream), by=row)
    with TemporaryDirectory() as folder:
        check(job.build(), Path(folder))


@pytest.mark.parametrize(
    ("trace", "profile"),
    [
        ("cpu_job/et_0.json.gz", "cpu_job/kineto_0.json.gz"),
        ("gpu_pair/et_0.json.gz", "gpu_pair/kineto_0.json.gz"),
        ("gpu_2023/et_0.json.gz", "gpu_2023/kineto_0.json"),
        *foreign(
            *(
                (f"pairs/{name}/host.0.json.gz", f"pairs/{name}/device.0.json.gz")
                for name in ("resnet_110_nccl", "dlrm8", "torch213_gloo2")
            ),
            ("matched8/et_0.json.gz", "matched8/kineto_0.json.gz"),
        ),
    ],
)
def test_jobs_that_ran(trace: str, profile: str, tmp_path: Path) -> None:
    merged = load(et=traces(trace), kineto=traces(profile), jobs=1)
    result = check(merged, tmp_path)
    assert operations(result) == operations(merged)


def operations(graph: EventGraph) -> Counter[tuple[str, str, int | None]]:
    table = graph.table("collectives")
    columns = (table[name].tolist() for name in ("group_name", "operation", "sequence"))
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize(("job", "parts"), [("gpu_2023", 28), *foreign(("pairs/dlrm8", 64))])
def test_ranks_still_do_the_same_together(job: str, parts: int, tmp_path: Path) -> None:
    folder = traces(job)
    merge(load(folder, jobs=1), tmp_path / "linked", to="chakra-json", jobs=1)
    merged, linked = load(folder, jobs=1), load(tmp_path / "linked", jobs=1)
    assert operations(linked) == operations(merged)
    assert Counter(linked.table("collectives")["verdict"]) == Counter(merged.table("collectives")["verdict"])
    assert len(linked.participations) == len(merged.participations) == parts


def test_a_timeline_of_it_has_a_device_of_which_no_number_is_known(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    operator = job.op("first", 0, 10, node=node(5, "first", 1))
    job.work("gemm", 20, 30, by=operator)
    merge(again(job.build(), tmp_path), tmp_path / "timeline.json", jobs=1)
    events = json.loads((tmp_path / "timeline.json").read_bytes())["traceEvents"]
    processes = {
        (event["name"], event["pid"]): event["args"]
        for event in events
        if event["name"] in ("process_name", "process_labels")
    }
    assert processes == {("process_name", 0): {"name": "rank"}, ("process_labels", 0): {"labels": "CPU, GPU"}}
