"""Which files are written, and what is told of what is not in them."""

from __future__ import annotations

import gzip
import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from builders.chakra import Job, named, written
from builders.execution_trace import node, process_root, thread_root
from tracelink.api import write
from tracelink.errors import Severity, UsageError
from tracelink.model.events import EventKind
from tracelink.model.graph import EventGraph


def two_ranks() -> Job:
    job = Job()
    for rank in (0, 3):
        job.node(process_root(), rank=rank)
        job.operator(f"of {rank}", 0, 5, node(5, f"of {rank}", parent=1), rank=rank)
    return job


def reasons(graph: EventGraph, folder: Path) -> dict[str, int]:
    _, output = written(graph, folder)
    return {finding.reason: finding.count for finding in output.findings}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_for_each_rank(tmp_path: Path, jobs: int) -> None:
    outputs = write(two_ranks().build(), tmp_path / "out", to="chakra-json", jobs=jobs)
    assert [(Path(output.path).name, output.rank, output.events) for output in outputs] == [
        ("et_0.json", 0, 2),
        ("et_3.json", 3, 2),
    ]
    for output in outputs:
        text = Path(output.path).read_bytes()
        assert output.bytes == len(text)
        assert named(json.loads(text), f"of {output.rank}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["et_0.json", "et_3.json"]


def test_the_suffix_means_this_format_and_compression(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    (output,) = write(job.build(), tmp_path / "one.et.json.gz")
    assert output.format == "chakra-json"
    assert json.loads(gzip.decompress(Path(output.path).read_bytes()))["nodes"]


def test_several_ranks_do_not_fit_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
    with pytest.raises(UsageError, match=r"takes one file, and these are 2 ranks.*-o DIRECTORY/"):
        write(two_ranks().build(), "-", to="chakra-json")
    assert not buffer.getvalue()


def test_a_rank_without_an_execution_trace_is_an_error_of_that_rank(tmp_path: Path) -> None:
    job = two_ranks()
    job.operator("profiled", 0, 1, rank=5)
    outputs = write(job.build(), tmp_path / "out", to="chakra-json", jobs=1)
    assert [output.rank for output in outputs] == [0, 3]
    (finding,) = (finding for output in outputs for finding in output.findings)
    assert (finding.severity, finding.reason) == (Severity.ERROR, "no_execution_trace")
    assert "rank 5" in finding.message


def test_no_execution_trace_at_all_is_a_usage_error(tmp_path: Path) -> None:
    job = Job()
    job.operator("profiled", 0, 1)
    with pytest.raises(UsageError, match="no rank has an execution trace"):
        write(job.build(), tmp_path / "x.et.json")
    assert not list(tmp_path.iterdir())


def test_device_work_that_cannot_be_placed_is_counted(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    outer = job.operator("outer", 0, 10, node(5, "outer", parent=1))
    job.kernel("placed", 20, 1, job.runtime("cudaLaunchKernel", 1, caller=outer))
    job.kernel("before the recording", 0, 1, None)
    job.kernel("of nobody", 30, 1, job.runtime("cudaLaunchKernel", 15))
    job.kernel("of nobody", 31, 1, job.runtime("cudaLaunchKernel", 16))
    assert reasons(job.build(), tmp_path) == {"without_launch": 1, "without_node": 2}


def test_a_trace_without_a_profile_has_no_times(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    assert reasons(job.build(), tmp_path) == {"without_times": 1}


def test_kernels_that_the_converter_does_not_know_are_told(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    outer = job.operator("nccl:all_to_all", 0, 10, node(5, "nccl:all_to_all", parent=1))
    launch = job.runtime("cudaLaunchKernel", 1, caller=outer)
    job.kernel("ncclKernel_SendRecv_RING", 20, 1, launch)
    job.kernel("ncclDevKernel_Reduce_Sum", 30, 1, launch)
    content, output = written(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_SendRecv_RING")
    assert {finding.reason: finding.example for finding in output.findings} == {
        "renamed_kernel": "ncclKernel_SendRecv_RING",
        "refused_kernel": "ncclDevKernel_Reduce_Sum",
    }


def test_nodes_that_are_the_same_operator_do_no_harm(tmp_path: Path) -> None:
    """Record-function ids that stand twice in a file."""
    job = Job()
    job.node(process_root())
    job.node(thread_root())
    outer = job.operator("outer", 0, 10, node(5, "outer"))
    job.node(node(6, "outer"), outer)
    job.kernel("placed", 20, 1, job.runtime("cudaLaunchKernel", 1, caller=outer))
    job.kernel("copied", 20, 1, job.runtime("cudaMemcpy", 3, caller=outer), kind=EventKind.MEMCPY)
    content, _ = written(job.build(), tmp_path)
    assert [entry["name"] for entry in content["nodes"][2:]] == ["outer", "placed", "copied", "outer"]
    assert [entry["inclusive_dur"] for entry in content["nodes"][2:]] == [10, 1, 1, 10]
