"""How long compiled code ran, from profiles of the ranks that have logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.compile_log import PID, START_US, begin, end, instant, log, metrics
from builders.data import traces
from builders.kineto import cpu_op, trace, write
from tracelink import samples
from tracelink._compile.model import CompileReport
from tracelink._compile.runtime import Compiling
from tracelink._model.columns import MILLISECOND

GRAPH = {"co_name": "step", "graph_op_count": 3}
"""What is known of a compilation that made code."""


def compilation(compile_id: str, at: float, seconds: float, **fields: Any) -> str:
    return (
        begin("dynamo", compile_id, at=at)
        + end("dynamo", compile_id, at=at + seconds)
        + metrics(compile_id, start=at, seconds=seconds, **{**GRAPH, **fields})
    )


def operator(name: str, at: float, milliseconds: float, pid: int = PID, thread: int = 1, **keys: Any) -> Any:
    """An operator, in seconds after the start of the log."""
    return cpu_op(name, at * 1e6, milliseconds * 1000, pid=pid, tid=thread, **keys)


def region(compile_id: str, at: float, milliseconds: float, pid: int = PID) -> Any:
    return operator(f"Torch-Compiled Region: {compile_id}", at, milliseconds, pid)


def profile(path: Path, *elements: Any, rank: int | None = 0) -> None:
    write(path, trace(*elements, rank=rank, baseTimeNanoseconds=START_US * 1000))


def write_log(folder: Path, *records: str, rank: int = 0, name: str = "x", pid: int = PID) -> None:
    content = log(*records).replace(f" {PID} ".encode(), f" {pid} ".encode())
    (folder / f"dedicated_log_torch_trace_rank_{rank}_{name}.log").write_bytes(content)


def ran(report: CompileReport) -> list[tuple[int, str, bool, float | None, int | None]]:
    """Rank, id, whether it is a backward graph, milliseconds and runs."""
    return [
        (
            one.rank,
            one.id,
            one.backward,
            None if one.runtime_ns is None else one.runtime_ns / MILLISECOND,
            one.runs,
        )
        for one in report.compiles
    ]


def test_regions_of_each_compilation(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 2), compilation("0/1", 5, 1), compilation("1/0", 8, 1))
    profile(
        tmp_path / "kineto_rank0.json",
        region("0/0", 3.5, 2),
        region("0/0", 4, 3),
        region("0/1", 7, 1),
        region("9/9", 7.5, 1),
    )
    found = tracelink.compile(tmp_path)
    assert ran(found) == [(0, "0/0", False, 5, 2), (0, "0/1", False, 1, 1), (0, "1/0", False, 0, 0)]
    assert found.findings == []


def test_without_a_profile_of_its_process_nothing_is_known(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 2))
    write_log(tmp_path, compilation("0/0", 1, 2), rank=1)
    profile(tmp_path / "kineto_rank0.json", region("0/0", 4, 3, pid=1))
    profile(tmp_path / "kineto_rank2.json", region("0/0", 4, 3), rank=2)
    assert ran(tracelink.compile(tmp_path)) == [(0, "0/0", False, None, None), (1, "0/0", False, None, None)]


def test_backward_passes_count_for_the_backward_graph_without_its_compilation(tmp_path: Path) -> None:
    backward_compilation = (
        begin("entire_backward_compile", "0/0", at=4.001)
        + end("entire_backward_compile", "0/0", at=6.001)
        + metrics("0/0", start=4, seconds=2, backward=True, co_name="step")
    )
    write_log(tmp_path, compilation("0/0", 1, 2), backward_compilation)
    profile(
        tmp_path / "kineto_rank0.json",
        region("0/0", 3.5, 8),
        operator("CompiledFunction", 3.501, 6, Sequence_number=7),
        operator("CompiledFunctionBackward", 4, 2010, thread=2, Sequence_number=7),
        operator("CompiledFunctionBackward", 8, 5, thread=2, Sequence_number=8),
    )
    assert ran(tracelink.compile(tmp_path)) == [(0, "0/0", False, 8, 1), (0, "0/0", True, 10, 1)]


def test_backward_graph_that_was_compiled_with_its_forward_graph_is_part_of_it(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 2))
    profile(
        tmp_path / "kineto_rank0.json",
        region("0/0", 3.5, 8),
        operator("CompiledFunction", 3.501, 6, Sequence_number=7),
        operator("CompiledFunctionBackward", 4, 10, thread=2, Sequence_number=7),
    )
    assert ran(tracelink.compile(tmp_path)) == [(0, "0/0", False, 18, 1)]


def test_failed_compilations_have_no_code(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 2, fail_type="Unsupported"))
    profile(tmp_path / "kineto_rank0.json", region("1/0", 3.5, 8))
    assert ran(tracelink.compile(tmp_path)) == [(0, "0/0", False, None, None)]


def test_processes_of_one_number_after_a_restart(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 1))
    write_log(tmp_path, compilation("0/0", 101, 1), name="y")
    profile(tmp_path / "kineto_rank0.json", region("0/0", 5, 2), region("0/0", 105, 3))
    assert ran(tracelink.compile(tmp_path)) == [(0, "0/0", False, 2, 1), (0, "0/0", False, 3, 1)]


def test_truncated_profile_is_reported(tmp_path: Path) -> None:
    write_log(tmp_path, compilation("0/0", 1, 2), instant("x", at=4))
    path = tmp_path / "kineto_rank0.json"
    profile(path, region("0/0", 5, 2), region("0/0", 6, 2))
    path.write_bytes(path.read_bytes()[:-40])
    found = tracelink.compile(tmp_path)
    assert [finding.reason for finding in found.findings] == ["truncated"]
    assert ran(found) == [(0, "0/0", False, 2, 1)]


TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=6)


@given(TIMES, st.lists(st.integers(0, 40), max_size=8))
def test_time_compiled_until(work: list[tuple[int, int]], times: list[int]) -> None:
    busy = {tick for start, length in work for tick in range(start, start + length)}
    merged = Compiling.merged([(start, start + length) for start, length in work])
    assert merged.until(np.array(times, np.int64)).tolist() == [
        len([tick for tick in busy if tick < time]) for time in times
    ]


def test_recorded_ranks() -> None:
    found = tracelink.compile(traces("compile_job"))
    assert [(one.id, one.backward, one.runs) for one in found.compiles if one.rank == 1] == [
        ("0/0", False, 2),
        ("0/0", True, 2),
        ("1/0", False, 3),
        ("2/0", False, 3),
        ("0/1", False, 1),
    ]
    assert all(one.runtime_ns for one in found.compiles)


def test_sample() -> None:
    found = tracelink.compile(samples.path("compile_job"))
    assert [(one.rank, one.id, one.backward, one.runs) for one in found.compiles if one.rank == 0] == [
        (0, "0/0", False, 2),
        (0, "0/0", True, 2),
        (0, "1/0", False, 3),
        (0, "0/1", False, 1),
    ]
