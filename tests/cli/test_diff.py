"""Tests of `tracelink diff`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from builders.command_line import Run
from builders.compile_log import instant, log, metrics
from builders.html_page import read_html
from tracelink import samples, schemas
from tracelink.cli.main import FINE, NO, USAGE

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


# Logs of torch.compile: alone, and next to profiles.


LOG = "dedicated_log_torch_trace_rank_0_x.log"
STEP = {"co_name": "step", "co_filename": "/home/me/train.py", "co_firstlineno": 7, "graph_op_count": 2}
GUARD = "0/0: tensor 'x' size mismatch   # x"
COMPILED = """\
Compiling took 2.0 s on the rank with most, before 3.0 s: 1 new or more frequent, 1 gone or less frequent, \
0 functions slower.

change  what           function  at          because                   before  after  time before (ms)  time after (ms)
new     failure        step      train.py:7  Unsupported: print.            0      1             0.000            0.000
gone    recompilation  step      train.py:7  tensor 'x' size mismatch       1      0         1,000.000            0.000

function  defined at  compiled before  after  time before (ms)  time after (ms)  difference (ms)
step      train.py:7                2      1         3,000.000        2,000.000       -1,000.000
warning: after/dedicated_log_torch_trace_rank_0_x.log: no event shows the time zone and the year; \
times are taken as UTC.
"""


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    """A run that compiles a function twice, and one in which that fails."""
    twice = metrics("0/0", seconds=2, **STEP), metrics("0/1", seconds=1, recompile_reason=GUARD, **STEP)
    failed = metrics("0/0", seconds=2, fail_type="Unsupported", fail_reason="print.\nmore", **STEP)
    for name, content in (("before", log(*twice, instant("x", at=4))), ("after", log(failed))):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOG).write_bytes(content)
    return "before", "after"


def test_logs_alone(tracelink: Run, logs: tuple[str, str]) -> None:
    before, after = logs
    result = tracelink("diff", before, after)
    assert (result.exit_code, result.stdout) == (NO, COMPILED)
    assert tracelink("diff", after, after).exit_code == FINE


def test_one_line_for_each_thing_that_is_worse(tracelink: Run, logs: tuple[str, str]) -> None:
    result = tracelink("diff", *logs, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (
        NO,
        "",
        "tracelink: New failure of step (train.py:7): Unsupported: print (0 before, 1 after).\n",
    )


def test_logs_as_json(tracelink: Run, logs: tuple[str, str]) -> None:
    document = json.loads(tracelink("diff", *logs, "--json").stdout)
    jsonschema.validate(document, schemas.load("diff"))
    diff = document["compile"]
    assert (diff["is_worse"], diff["before_ns"], diff["after_ns"]) == (True, 3_000_000_000, 2_000_000_000)
    assert [(one["reason"], one["is_worse"]) for one in diff["failures"] + diff["recompiles"]] == [
        ("Unsupported: print.", True),
        ("tensor 'x' size mismatch", False),
    ]


def test_files_have_what_changed(tracelink: Run, logs: tuple[str, str]) -> None:
    assert tracelink("diff", *logs, "-o", "diff.csv").exit_code == NO
    assert Path("diff.failures.csv").read_text().splitlines() == [
        "function,file,line,before,after,before_ns,after_ns,is_worse,reason",
        "step,train.py,7,0,1,0,0,True,Unsupported: print.",
    ]
    tracelink("diff", *logs, "-o", "diff.html")
    page = read_html(Path("diff.html").read_text())
    assert [row[:2] for row in page.rows("New and more frequent first")] == [
        ["new", "failure"],
        ["gone", "recompilation"],
    ]


def test_logs_next_to_profiles_give_both_parts(tracelink: Run, logs: tuple[str, str]) -> None:
    for name, run in zip(logs, RUNS, strict=True):
        shutil.copytree(run, name, dirs_exist_ok=True)
    result = tracelink("diff", *logs)
    assert result.exit_code == NO
    assert result.stdout.splitlines()[0].startswith(
        "A step takes 1.401 ms, 0.329 ms (31 %) longer than before"
    )
    for line in COMPILED.splitlines()[:3]:
        assert line in result.stdout
    document = json.loads(tracelink("diff", *logs, "--json").stdout)
    jsonschema.validate(document, schemas.load("diff"))
    assert (document["step"]["before_steps"], document["compile"]["is_worse"]) == (6, True)


def test_logs_in_one_run_only_are_not_compared(tracelink: Run, logs: tuple[str, str]) -> None:
    shutil.copytree(RUNS[0], "before", dirs_exist_ok=True)
    result = tracelink("diff", "before", RUNS[1], "--json")
    assert (result.exit_code, json.loads(result.stdout)["compile"]) == (FINE, None)


def test_one_of_several_starts_in_the_logs_of_the_first_run(tracelink: Run, logs: tuple[str, str]) -> None:
    assert tracelink("diff", *logs, "--run", "1").stdout == COMPILED
    result = tracelink("diff", *logs, "--run", "2")
    assert (result.exit_code, "there is no run 2" in result.stderr) == (USAGE, True)


def test_gates_need_profiles(tracelink: Run, logs: tuple[str, str]) -> None:
    result = tracelink("diff", *logs, "--gate", "step_time > +5%")
    assert (result.exit_code, "there are only logs of torch.compile. Name folders" in result.stderr) == (
        USAGE,
        True,
    )
