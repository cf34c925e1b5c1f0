"""Schedules, estimates and orders of execution of graphs, on several ranks, and beside what ran."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracelink
from builders.compile_log import PID, START_US, artifact, log, metrics, record
from builders.data import foreign, traces
from builders.kineto import cpu_op, trace, write
from tracelink._compile.graphs import estimated_graphs, orders_of, repeated
from tracelink._compile.model import (
    CompileReport,
    Divergence,
    Estimate,
    Execution,
    Export,
    Schedule,
    Unscheduled,
)

SCHEDULE, ESTIMATES, EXECUTION = (
    "inductor_collective_schedule",
    "inductor_runtime_and_tensor_meta",
    "graph_execution",
)
REDUCE = "torch.ops._c10d_functional.all_reduce_.default"


def report(folder: Path, *ranks: bytes) -> CompileReport:
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return tracelink.compile(folder)


def schedule(*operations: str, compile_id: str = "0/0") -> str:
    return artifact(SCHEDULE, json.dumps(operations), compile_id)


def estimates(*operations: tuple[str, str, float | None], shape: list[Any] | None = None) -> str:
    outputs = [{"shape": shape or [8], "stride": [1], "dtype": "float32"}]
    rows = [
        {"name": name, "type": kind, "estimated_runtime_ns": time, "outputs": outputs}
        for name, kind, time in operations
    ]
    return artifact(ESTIMATES, json.dumps({"ops": rows}, indent=0), "0/0")


def executed(*ids: str) -> str:
    return artifact(EXECUTION, json.dumps({"graph_execution_order": [{"compile_id": one} for one in ids]}))


STEP = metrics("0/0", co_name="step")

# Estimates.


def test_estimates_of_ranks(tmp_path: Path) -> None:
    fast = estimates(("op0", "compute", 100), ("all_reduce", "collective", 50))
    slow = estimates(("op0", "compute", 100.4), ("all_reduce", "collective", 250))
    found = report(tmp_path, log(STEP, fast), log(STEP, fast, slow), log(STEP, fast))
    assert found.estimates == [
        Estimate(0, "0/0", 1, 2, 1, 150, 50),
        Estimate(1, "0/0", 1, 2, 1, 150, 50),
        Estimate(1, "0/0", 2, 2, 1, 350, 250),
        Estimate(2, "0/0", 1, 2, 1, 150, 50),
    ]
    assert [(one.graph, one.ranks, one.delta_ns, one.time_ns) for one in estimated_graphs(found)] == [
        (2, [1], 0, 350),
        (1, [0, 1, 2], 0, 150),
    ]


def test_estimates_that_differ_between_ranks_are_no_divergence(tmp_path: Path) -> None:
    ranks = [log(STEP, estimates(("op0", "compute", time))) for time in (100, 300, 100)]
    found = report(tmp_path, *ranks)
    (graph,) = estimated_graphs(found)
    assert (graph.fastest_ns, graph.time_ns, graph.rank, graph.delta_ns) == (100, 300, 1, 200)
    assert found.divergences == []


def test_damaged_or_unknown_estimates_are_left_out(tmp_path: Path) -> None:
    ranks = [artifact(ESTIMATES, text, "0/0") for text in ("[1]", '{"ops": 3}', "{")]
    assert report(tmp_path, log(STEP, *ranks, estimates(("a", "b", None)))).estimates == [
        Estimate(0, "0/0", 4, 1, 0, 0, 0)
    ]


@pytest.mark.parametrize("time", ["1e308", "-5", "1e400", "null"])
def test_times_that_cannot_be_are_none(time: str, tmp_path: Path) -> None:
    text = f'{{"ops": [{{"name": "a", "type": "compute", "estimated_runtime_ns": {time}}}]}}'
    found = report(tmp_path, log(STEP, artifact(ESTIMATES, text, "0/0"))).estimates
    assert [one.time_ns for one in found] in ([0], [])


def test_tensors_that_differ_are_shown_at_the_first_one(tmp_path: Path) -> None:
    ranks = [
        log(STEP, estimates(("op0", "compute", 1), ("op1", "compute", 1), shape=[8, size]))
        for size in (4, 4, 6)
    ]
    assert report(tmp_path, *ranks).divergences == [
        Divergence(
            (2,),
            "tensors",
            "0/0",
            "0/0 op0 makes float32[8,6], stride [1]",
            "0/0 op0 makes float32[8,4], stride [1]",
        )
    ]


KEYS = ("ops", "name", "type", "outputs", "estimated_runtime_ns", "graph_execution_order", "compile_id")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "ops",
                    "name",
                    "type",
                    "outputs",
                    "estimated_runtime_ns",
                    "graph_execution_order",
                    "compile_id",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON, st.sampled_from([ESTIMATES, EXECUTION, SCHEDULE]))
def test_any_json_is_a_table_or_nothing(tmp_path: Path, content: Any, name: str) -> None:
    ranks = [log(STEP, artifact(name, json.dumps(content), "0/0")), log(STEP, artifact(name, "{}", "0/0"))]
    found = report(tmp_path, *ranks)
    assert len(found.estimates) <= 2
    estimated_graphs(found)
    orders_of(found)


# Execution order.


def test_an_order_of_execution_that_differs(tmp_path: Path) -> None:
    steps = [metrics(f"{number}/0", co_name=name) for number, name in enumerate("ab")]
    ranks = [
        log(*steps, executed(*ids))
        for ids in (("0/0", "1/0"), ("1/0", "0/0"), ("0/0", "1/0"), ("0/0", "1/0"))
    ]
    found = report(tmp_path, *ranks)
    assert found.executions[1] == Execution(1, ("1/0", "0/0"))
    assert found.divergences == [
        Divergence((1,), "execution order", "1/0", "1/0 b (number 1)", "0/0 a (number 1)")
    ]
    assert orders_of(found) == [(("0/0", "1/0"), [0, 2, 3]), (("1/0", "0/0"), [1])]


def test_ranks_without_a_record_of_their_order_do_not_differ(tmp_path: Path) -> None:
    assert report(tmp_path, log(STEP, executed("0/0")), log(STEP)).divergences == []


@given(st.lists(st.sampled_from(["0/0", "0/1", "1/0"])))
def test_counted_repetitions_are_the_order(ids: list[str]) -> None:
    found = repeated(ids)
    assert [id_ for id_, count in found for _ in range(count)] == ids
    assert all(one[0] != other[0] for one, other in pairwise(found))


# Schedules, and what ran.


def profile(folder: Path, *runs: list[str], at: float = 5.0) -> None:
    """Runs of the region 0/0, each with these operators; the dispatcher calls each within itself again."""
    events = []
    for number, names in enumerate(runs):
        start = (at + number) * 1e6
        events.append(cpu_op("Torch-Compiled Region: 0/0", start, 900_000, pid=PID))
        for index, name in enumerate(names):
            for delay, length in ((0, 100), (10, 50)):
                begin = start + 1000 * (index + 1) + delay
                events.append(cpu_op(f"_c10d_functional::{name}", begin, length, pid=PID))
    write(folder / "kineto_rank0.json", trace(*events, rank=0, baseTimeNanoseconds=START_US * 1000))


def test_schedules_are_compared_with_what_ran(tmp_path: Path) -> None:
    profile(tmp_path, ["all_reduce_", "wait_tensor"], ["all_reduce_"], [], ["all_reduce_", "wait_tensor"])
    operations = (REDUCE, "torch.ops._c10d_functional.wait_tensor.default")
    found = report(tmp_path, log(STEP, schedule(*operations)))
    assert found.schedules == [Schedule(0, "0/0", 1, operations, 2)]
    assert found.unscheduled == [
        Unscheduled(0, "0/0", False, ("all_reduce_",), 1, "step"),
        Unscheduled(0, "0/0", False, (), 1, "step"),
    ]


def test_nothing_is_said_of_graphs_without_a_schedule(tmp_path: Path) -> None:
    profile(tmp_path, ["all_reduce_"])
    found = report(tmp_path, log(STEP))
    assert (found.schedules, found.unscheduled) == ([], [])


@pytest.mark.parametrize(
    ("path", "runs"),
    [("compile_job", [4, 4, 2, 2] * 2), *foreign(("torch_trace/multirank_matched", [4] * 12))],
)
def test_all_recorded_runs_call_what_was_scheduled(path: str, runs: list[int]) -> None:
    found = tracelink.compile(traces(path))
    assert [one.runs for one in found.schedules] == runs
    assert found.unscheduled == []


# Draft export.


def test_notes_of_draft_export(tmp_path: Path) -> None:
    stack = [{"line": 5, "name": "forward", "filename": 0}, {"line": 9, "name": "item", "filename": 1}]
    names = [record("str", [name, number]) for number, name in enumerate(["/me/m.py", "/x/torch/_ops/y.py"])]
    real = {"expr": "u0 > 3", "result": "True", "user_stack": stack}
    notes = [
        record("propagate_real_tensors_provenance", real),
        record("propagate_real_tensors_provenance", real),
        record("mismatched_fake_kernel", {"op": "lib.f.default", "reason": "shapes"}),
        record(
            "guard_on_data_dependent_error",
            {"expr": "Eq(u0, 1)", "stack": stack, "frame_locals": {"locals": [1]}},
        ),
    ]
    assert report(tmp_path, log(*names, *notes)).exports == [
        Export(0, "The value of the example was used", "u0 > 3 is True", "", "/me/m.py", 5, 2),
        Export(
            0,
            "The fake kernel of the operator differs from the operator",
            "lib.f.default",
            "shapes",
            "",
            None,
        ),
        Export(0, "Export failed: the value depends on data", "Eq(u0, 1)", "", "/me/m.py", 5),
    ]


def test_damaged_notes_of_draft_export_are_counted(tmp_path: Path) -> None:
    found = report(tmp_path, log(record("missing_fake_kernel", {"op": 3})))
    assert (found.exports, [one.reason for one in found.findings]) == ([], ["damaged_record", "no_time_zone"])
