"""Tests of `tracelink diff`."""

from __future__ import annotations

import json
from pathlib import Path

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
        ((*RUNS, "-o", "out.txt"), 2),
        ((RUNS[0], str(samples.path("hung_job"))), 3),
    ],
)
def test_exit_codes(tracelink: Run, arguments: tuple[str, ...], code: int) -> None:
    assert tracelink("diff", *arguments).exit_code == code


def test_page(tracelink: Run) -> None:
    lines = tracelink("diff", *RUNS, "--gate", "aten::mm > +10%").stdout.splitlines()
    assert lines[0] == (
        "A step takes 1.401 ms, 0.329 ms (31 %) longer than before: mostly idle: data loading +0.133 ms and "
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL: waiting for rank +0.111 ms."
    )
    assert lines[1] == (
        "gate aten::mm > +10%: failed; 0.262 ms before, 0.335 ms after (+0.073 ms, limit +0.026 ms)"
    )
    assert lines[3:9] == [
        "part of the step       before (ms)  after (ms)  change (ms)",
        "compute                      0.571       0.689       +0.118",
        "exposed communication        0.389       0.465       +0.076",
        "exposed copy                 0.030       0.030        0.000",
        "idle                         0.083       0.217       +0.134",
        "step                         1.073       1.401       +0.329",
    ]


def test_quiet_prints_gates_that_failed(tracelink: Run) -> None:
    found = tracelink("diff", *RUNS, "-q", "--gate", "step_time > +5%", "--gate", "idle > 1s")
    assert found.stdout == ""
    assert [line for line in found.stderr.splitlines() if line] == [
        "tracelink: gate step_time > +5%: failed; 1.073 ms before, 1.401 ms after (+0.329 ms, limit +0.054 ms)"
    ]


def test_causes_of_the_document_add_up(tracelink: Run) -> None:
    document = json.loads(tracelink("diff", *RUNS, "--json").stdout)
    assert sum(cause["delta_ns"] for cause in document["causes"]) == document["step"]["delta_ns"]


def test_markdown_and_the_exit_code_of_gates(tracelink: Run, tmp_path: Path) -> None:
    assert tracelink("diff", *RUNS, "-o", "comment.md", "--gate", "step_time > +5%").exit_code == 1
    lines = (tmp_path / "comment.md").read_text().splitlines()
    assert lines[0].startswith("**A step takes 1.401 ms")
    assert r"| step | 1.073 | 1.401 | \+0.329 |" in lines


def test_output_that_is_a_run(tracelink: Run, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    run.write_bytes(b"{}")
    assert tracelink("diff", str(run), RUNS[1], "-o", str(run)).exit_code != 0
    assert run.read_bytes() == b"{}"
