"""`tracelink.converters.chakra_json.plan`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.chakra import TracedJob, named, written
from builders.execution_trace import PROCESS, node, process_root, thread_root
from tracelink._model.causes import exclusive_time, innermost
from tracelink._model.events import EventKind, Relation
from tracelink.converters.chakra_json.plan import reached
from tracelink.converters.chakra_json.schema import accepted_version, current_name, is_refused
from tracelink.converters.chakra_json.writer import microseconds

# Whole columns against the plain way to compute them.


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(-1, 9)), max_size=10)


@given(INTERVALS)
def test_own_time(intervals: list[tuple[int, int, int]]) -> None:
    """The nanoseconds of each interval that none of those directly inside it holds."""
    around = [outer if outer < len(intervals) else -1 for _, _, outer in intervals]
    spans = [set(range(start, start + length)) for start, length, _ in intervals]
    expected = [
        len(
            span - set().union(*(other for other, outer in zip(spans, around, strict=True) if outer == place))
        )
        for place, span in enumerate(spans)
    ]
    start = np.array([start for start, _, _ in intervals], np.int64)
    end = start + np.array([length for _, length, _ in intervals], np.int64)
    assert exclusive_time(start, end, np.array(around, np.int64)).tolist() == expected


@given(st.lists(st.tuples(st.integers(-1, 14), st.booleans()), max_size=15))
def test_innermost(rows: list[tuple[int, bool]]) -> None:
    caller = [outer if outer < len(rows) else -1 for outer, _ in rows]
    marked = [mark for _, mark in rows]

    def plain(row: int) -> int:
        seen: set[int] = set()
        while row != -1 and not marked[row]:
            if row in seen:
                return -1
            seen.add(row)
            row = caller[row]
        return row

    found = innermost(np.array(caller, np.int64), np.array(marked, np.bool_))
    assert found.tolist() == [plain(row) for row in range(len(rows))]


def test_innermost_of_a_deep_chain() -> None:
    length = 100_000
    marked = np.zeros(length, np.bool_)
    marked[0] = True
    assert not innermost(np.arange(-1, length - 1), marked).any()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, b"0.000"),
        (1, b"0.001"),
        (30_975, b"30.975"),
        (-1_500, b"-1.500"),
        (2**62, b"4611686018427387.904"),
    ],
)
def test_microseconds(nanoseconds: int, text: bytes) -> None:
    assert microseconds(nanoseconds) == text


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.0.1", "1.0.2-chakra.0.0.4"),
        ("1.0.2-chakra.0.0.4", "1.0.2-chakra.0.0.4"),
        ("1.0.4-chakra.0.0.4", "1.0.3-chakra.0.0.4"),
        ("1.1.0", "1.1.0-chakra.0.0.4"),
        ("1.1.1-chakra.1.0.0", "1.1.1-chakra.0.0.4"),
        ("2.0.0", "1.1.1-chakra.0.0.4"),
        ("", "1.1.1-chakra.0.0.4"),
    ],
)
def test_accepted_version(version: str, accepted: str) -> None:
    assert accepted_version(version) == accepted


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False),
        ("ncclKernel_Reduce_Scatter_RING_LL", False),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", False),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", False),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", True),
        ("ncclDevKernel_Generic(ncclDevComm*)", True),
        ("void at::native::reduce_kernel", False),
    ],
)
def test_names_that_the_converter_refuses(name: str, refused: bool) -> None:
    assert is_refused(current_name(name)) is refused


@given(st.lists(st.integers(0, 8), max_size=9), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_waits_for_what_is_reached_earlier_make_no_circle(
    parents: list[int], waits: list[tuple[int, int]]
) -> None:
    parent = np.array([0, *(min(outer, place) for place, outer in enumerate(parents))], np.int64)
    latest = reached(parent)
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    for top in np.flatnonzero(parent == 0).tolist()[1:]:
        graph.add_edges_from((later, earlier) for earlier, later in pairwise(preorder(parent.tolist(), top)))
    for one, other in waits:
        if max(one, other) < len(parent) and latest[other] < latest[one]:
            graph.add_edge(one, other)
    assert networkx.is_directed_acyclic_graph(graph)


def preorder(parent: list[int], node: int) -> list[int]:
    inside = [child for child, outer in enumerate(parent) if outer == node and child != node]
    return [node, *(found for child in inside for found in preorder(parent, child))]


# Where nodes stand whose trace does not say it right.


def tree(job: TracedJob, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The name of each node's parent, and the reasons of the findings."""
    content, output = written(job.build(), folder)
    names = {entry["id"]: entry["name"] for entry in content["nodes"]}
    assert list(names) == list(range(len(names)))
    reasons = [finding.reason for finding in output.findings if finding.reason != "without_times"]
    return {entry["name"]: names[entry["ctrl_deps"]] for entry in content["nodes"]}, reasons


def test_a_missing_parent_is_replaced_by_the_root_of_the_thread(tmp_path: Path) -> None:
    job = TracedJob()
    for entry in (thread_root(2), thread_root(3, thread=4), process_root()):
        job.node(entry)
    job.node(node(9, "lost", parent=8, thread=4))
    parents, reasons = tree(job, tmp_path)
    assert parents["lost"] == thread_root().name
    assert reasons == ["parent_replaced"]


def test_a_missing_parent_is_replaced_by_what_the_profile_saw_around_it(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(thread_root(2))
    job.node(process_root())
    outer = job.op("outer", 0, 50, node=node(5, "outer"))
    job.op("lost", 10, 15, node=node(9, "lost", parent=8), inside=outer)
    parents, _ = tree(job, tmp_path)
    assert parents["lost"] == "outer"


def test_circles_of_parents_are_opened(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    for number, parent in ((5, 7), (6, 5), (7, 6), (8, 7)):
        job.node(node(number, f"n{number}", parent=parent))
    parents, reasons = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "n5": PROCESS, "n6": "n5", "n7": "n6", "n8": "n7"}
    assert reasons == ["parent_replaced"]


def test_a_parent_that_began_later_is_believed(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    job.node(node(5, "groups", parent=6))
    job.node(thread_root(6))
    parents, reasons = tree(job, tmp_path)
    assert parents["groups"] == thread_root().name
    assert not reasons


def test_a_root_is_added_where_the_file_was_cut_off_before_it(tmp_path: Path) -> None:
    job = TracedJob()
    for number, thread in ((2, 1), (3, 2)):
        root = thread_root(number, thread)
        job.node(node(number, f"root {thread}", parent=number, thread=root.thread))
    parents, _ = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "root 1": PROCESS, "root 2": PROCESS}


def test_equal_ids_are_two_nodes(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    for name in ("one", "two"):
        job.node(node(5, name, parent=1))
    job.node(node(6, "child", parent=5))
    parents, _ = tree(job, tmp_path)
    assert parents == {PROCESS: PROCESS, "one": PROCESS, "two": PROCESS, "child": "one"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=12)
)
def test_whatever_the_ids_there_is_one_tree(tmp_path: Path, entries: list[tuple[int, int, int]]) -> None:
    job = TracedJob()
    for place, (number, parent, thread) in enumerate(entries):
        job.node(node(number, f"n{place}", parent=parent, thread=thread))
    content, _ = written(job.build(), tmp_path)
    parent: dict[int, Any] = {entry["id"]: entry["ctrl_deps"] for entry in content["nodes"]}
    assert parent[0] == 0
    for place in parent:
        seen = set()
        while place and place not in seen:
            seen.add(place)
            place = parent[place]
        assert place == 0


# The device work that a node had to wait for on the host.


BASE = 1_700_000_000_000_000_000
"""The beginning of the jobs that are built here."""


def job_with(first: str = "first", last: str = "last") -> tuple[TracedJob, int, int]:
    """A kernel that an operator launched, and a later operator; returns their rows."""
    job = TracedJob()
    job.node(process_root())
    operator = job.op(first, 0, 10, node=node(5, first, 1))
    gemm = job.work("gemm", 8, 18, by=job.call("cudaLaunchKernel", 2, inside=operator))
    return job, gemm, job.op(last, 40, 45, node=node(7, last, 1))


@pytest.mark.parametrize("relation", [Relation.DEPENDS_ON, Relation.WAITS_FOR])
def test_as_an_edge_says(relation: Relation, tmp_path: Path) -> None:
    job, gemm, last = job_with()
    job.edge(last, relation, gemm)
    document, _ = written(job.build(), tmp_path)
    assert named(document, "last")["sync_dep"] == [named(document, "gemm")["id"]]
    assert "sync_dep" not in named(document, "first")


def test_as_a_call_that_waited_for_the_stream_tells(tmp_path: Path) -> None:
    job, _, _ = job_with()
    job.call("cudaStreamSynchronize", 12, 22)
    document, _ = written(job.build(), tmp_path)
    assert named(document, "last")["sync_dep"] == [named(document, "gemm")["id"]]


def test_nothing_without_a_wait(tmp_path: Path) -> None:
    document, _ = written(job_with()[0].build(), tmp_path)
    assert not any("sync_dep" in entry for entry in document["nodes"])


def test_work_that_was_launched_only_afterwards_is_not_waited_for(tmp_path: Path) -> None:
    job, gemm, _ = job_with()
    early = job.op("early", -20, -15, node=node(4, "early", 1))
    job.edge(early, Relation.WAITS_FOR, gemm)
    document, _ = written(job.build(), tmp_path)
    assert "sync_dep" not in named(document, "early")


def test_several_works_stand_once_and_in_order(tmp_path: Path) -> None:
    job, gemm, last = job_with()
    copy = job.work("copy", 9, 10, by=job.call("cudaMemcpyAsync", 3), kind=EventKind.MEMCPY)
    middle = job.op("middle", 20, 30, node=node(6, "middle", 1))
    add = job.work("add", 25, 26, by=job.call("cudaLaunchKernel", 22, inside=middle))
    for work in (add, gemm, copy, gemm):
        job.edge(last, Relation.WAITS_FOR, work)
    document, _ = written(job.build(), tmp_path)
    ids = [named(document, name)["id"] for name in ("gemm", "add")]
    assert named(document, "last")["sync_dep"] == ids


def test_times_count_from_the_base_of_the_profile(tmp_path: Path) -> None:
    job = TracedJob(header={"baseTimeNanoseconds": BASE})
    job.node(process_root())
    job.op("op", 5, 7, node=node(5, "op", 1))
    document, _ = written(job.build(), tmp_path)
    assert document["baseTimeNanoseconds"] == BASE
    assert named(document, "op")["ts"] == 5.0
