"""The device work that a node had to wait for on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.chakra import Job, named, written
from builders.execution_trace import node, process_root
from tracelink.model.events import EventKind, Relation

BASE = 1_700_000_000_000_000_000
"""The beginning of the jobs that are built here."""


def job_with(first: str = "first", last: str = "last") -> tuple[Job, int, int]:
    """A kernel that an operator launched, and a later operator; returns their rows."""
    job = Job()
    job.node(process_root())
    operator = job.operator(first, 0, 10, node(5, first, 1))
    gemm = job.kernel("gemm", 8, 10, job.runtime("cudaLaunchKernel", 2, caller=operator))
    return job, gemm, job.operator(last, 40, 5, node(7, last, 1))


@pytest.mark.parametrize("relation", [Relation.DEPENDS_ON, Relation.WAITS_FOR])
def test_as_an_edge_says(relation: Relation, tmp_path: Path) -> None:
    job, gemm, last = job_with()
    job.edge(last, relation, gemm)
    document, _ = written(job.build(), tmp_path)
    assert named(document, "last")["sync_dep"] == [named(document, "gemm")["id"]]
    assert "sync_dep" not in named(document, "first")


def test_as_a_call_that_waited_for_the_stream_tells(tmp_path: Path) -> None:
    job, _, _ = job_with()
    job.runtime("cudaStreamSynchronize", 12, 10)
    document, _ = written(job.build(), tmp_path)
    assert named(document, "last")["sync_dep"] == [named(document, "gemm")["id"]]


def test_nothing_without_a_wait(tmp_path: Path) -> None:
    document, _ = written(job_with()[0].build(), tmp_path)
    assert not any("sync_dep" in entry for entry in document["nodes"])


def test_work_that_was_launched_only_afterwards_is_not_waited_for(tmp_path: Path) -> None:
    job, gemm, _ = job_with()
    early = job.operator("early", -20, 5, node(4, "early", 1))
    job.edge(early, Relation.WAITS_FOR, gemm)
    document, _ = written(job.build(), tmp_path)
    assert "sync_dep" not in named(document, "early")


def test_several_works_stand_once_and_in_order(tmp_path: Path) -> None:
    job, gemm, last = job_with()
    copy = job.kernel("copy", 9, 1, job.runtime("cudaMemcpyAsync", 3), kind=EventKind.MEMCPY)
    middle = job.operator("middle", 20, 10, node(6, "middle", 1))
    add = job.kernel("add", 25, 1, job.runtime("cudaLaunchKernel", 22, caller=middle))
    for work in (add, gemm, copy, gemm):
        job.edge(last, Relation.WAITS_FOR, work)
    document, _ = written(job.build(), tmp_path)
    ids = [named(document, name)["id"] for name in ("gemm", "add")]
    assert named(document, "last")["sync_dep"] == ids


def test_times_count_from_the_base_of_the_profile(tmp_path: Path) -> None:
    job = Job(baseTimeNanoseconds=BASE)
    job.node(process_root())
    job.operator("op", 5, 2, node(5, "op", 1))
    document, _ = written(job.build(), tmp_path)
    assert document["baseTimeNanoseconds"] == BASE
    assert named(document, "op")["ts"] == 5.0
