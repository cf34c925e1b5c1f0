"""Tests of `tracelink diff`."""

from __future__ import annotations

import json

import pytest

from builders.command_line import Run
from tracelink import samples

RUNS = (str(samples.path("run_before")), str(samples.path("run_after")))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (RUNS, 0),
        ((*RUNS, "--gate", "step_time > +50%"), 0),
        ((*RUNS, "--gate", "step_time > +5%"), 1),
        ((*RUNS, "--gate", "step_time"), 2),
        ((*RUNS, "--gate", "nothing > 5%"), 2),
        ((*RUNS, "--steps", "9"), 2),
        ((RUNS[0], str(samples.path("cpu_job"))), 3),
        ((RUNS[0], str(samples.path("cpu_job")), "--gate", "step_time > +5%"), 3),
        ((RUNS[0], str(samples.path("cpu_job")), "--anyway"), 0),
        ((RUNS[0], str(samples.path("cpu_job")), "--anyway", "--gate", "step_time > +5%"), 1),
        (RUNS[:1], 2),
        ((*RUNS, "--md", "--json"), 2),
        ((RUNS[0], str(samples.path("hung_job"))), 3),
    ],
)
def test_exit_codes(tracelink: Run, arguments: tuple[str, ...], code: int) -> None:
    assert tracelink("diff", *arguments).exit_code == code


def test_page(tracelink: Run) -> None:
    lines = tracelink("diff", *RUNS, "--gate", "aten::mm > +10%").stdout.splitlines()
    assert lines[0] == (
        "A step takes 1.401 ms, 0.329 ms (30.6%) longer than before: mostly idle: data loading +0.133 ms and "
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL: waiting for rank +0.111 ms."
    )
    assert lines[2:8] == [
        "part of the step         before     after     change",
        "compute                0.571 ms  0.689 ms  +0.118 ms",
        "exposed communication  0.389 ms  0.465 ms  +0.076 ms",
        "exposed copy           0.030 ms  0.030 ms   0.000 ms",
        "idle                   0.083 ms  0.217 ms  +0.134 ms",
        "step                   1.073 ms  1.401 ms  +0.329 ms",
    ]
    assert lines[-1] == (
        "gate aten::mm > +10%: failed; 0.262 ms before, 0.335 ms after (+0.073 ms, limit +0.026 ms)"
    )


def test_quiet_prints_gates_that_failed(tracelink: Run) -> None:
    found = tracelink("diff", *RUNS, "-q", "--gate", "step_time > +5%", "--gate", "idle > 1s")
    assert found.stdout == ""
    assert [line for line in found.stderr.splitlines() if line] == [
        "tracelink: gate step_time > +5%: failed; 1.073 ms before, 1.401 ms after (+0.329 ms, limit +0.054 ms)"
    ]


def test_causes_of_the_document_add_up(tracelink: Run) -> None:
    document = json.loads(tracelink("diff", *RUNS, "--json").stdout)
    assert sum(cause["delta_ns"] for cause in document["causes"]) == document["step"]["delta_ns"]


def test_markdown(tracelink: Run) -> None:
    lines = tracelink("diff", *RUNS, "--md").stdout.splitlines()
    assert lines[0].startswith("**A step takes 1.401 ms")
    assert "| **step** | 1.073 ms | 1.401 ms | +0.329 ms |" in lines
