"""`tracelink summary`: its options, JSON, and files of its answer."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from builders.command_line import Run
from tracelink import samples

PAIR = str(samples.path("gpu_pair"))
JOB = str(samples.path("run_before"))


def test_the_page_of_the_gpu_pair(tracelink: Run) -> None:
    result = tracelink("summary", PAIR)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "A step takes 1.431 ms (median of 2): 59 % compute, 33 % exposed communication, 2.3 % exposed copies, "
        "6.3 % idle.",
        "Nothing computes while data are transferred for 30 % of the time (435.152 µs a step), most of it in "
        "all_reduce of 4.2 MB at 19.3 GB/s.",
        "The kernel with most compute time is ampere_sgemm_128x64_tn: 74 % of it, launched by aten::mm.",
    ]
    assert lines[4:9] == [
        "Time of steps: # compute  = exposed communication  - exposed copies  . idle",
        "rank  steps  a step (ms)  compute (%)  comm. (%)  copies (%)  idle (%)",
        "0         2        1.430         57.6       33.9         2.3       6.2  ##################===========-..",
        "1         2        1.427         59.4       31.9         2.3       6.4  ###################==========-..",
        "all       4        1.428         58.5       32.9         2.3       6.3  ###################==========-..",
    ]


def test_verbose_shows_operators_modules_and_lines(tracelink: Run) -> None:
    lines = tracelink("summary", PAIR, "-v").stdout.splitlines()
    headers = [line.split()[0] for line in lines if "on devices (" in line]
    assert headers == ["operator", "module", "line"]


def test_ranks_and_steps_are_selected(tracelink: Run) -> None:
    document = json.loads(tracelink("summary", PAIR, "--json", "--ranks", "1", "--steps", "2").stdout)
    assert [(rank["rank"], [step["step"] for step in rank["steps"]]) for rank in document["ranks"]] == [
        (1, [2])
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "9"), "there is no step 9 on any rank"),
        (("--steps", "x"), "--steps: 'x' is not a number or a range of numbers"),
        (("--ranks", "7"), "there is no rank 7. The inputs are of ranks 0-1."),
        (("-o", "no/such/report.html"), "no/such"),
        (("-o", "folder/"), "unknown suffix"),
        (("-o", "kineto_0.json.gz"), "unknown suffix '.gz'"),
    ],
)
def test_what_does_not_exist_is_an_error_of_usage(
    tracelink: Run, arguments: tuple[str, ...], message: str
) -> None:
    result = tracelink("summary", PAIR, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_dumps_alone_have_no_breakdown(tracelink: Run) -> None:
    result = tracelink("summary", str(samples.path("hung_job")))
    assert result.stdout.startswith("No rank has a profile: there is no time to divide.\n")
    assert (
        "Ranks 0-7: no profile, so there is no breakdown of the time. `tracelink diagnose PATH` says what "
        "flight-recorder dumps show; `tracelink run` records profiles." in result.stdout
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "aten::mm",
            "operator 'aten::mm' runs only within other operators, and what-if changes the outermost ones. Ask about "
            "what it is in, such as 'operator autograd::engine::evaluate_function: AddmmBackward0 2x'.",
        ),
        ("nothing", "there is no operator 'nothing'. tracelink summary -v lists the operators."),
    ],
)
def test_an_operator_that_cannot_be_asked_about_is_explained(tracelink: Run, name: str, message: str) -> None:
    result = tracelink("summary", PAIR, "--what-if", f"operator {name} 2x")
    assert (result.exit_code, result.stderr) == (2, f"tracelink: {message}\n")


def test_page(tracelink: Run, tmp_path: Path) -> None:
    found = tracelink("summary", JOB, "-o", "report.html")
    size = (tmp_path / "report.html").stat().st_size
    assert found.stdout.splitlines()[-1] == f"Wrote report.html ({size / 1000:.1f} kB)."


def test_a_csv_file_for_each_table(tracelink: Run, tmp_path: Path) -> None:
    assert tracelink("summary", JOB, "-o", "out.csv").exit_code == 0
    with (tmp_path / "out.breakdown.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["steps"]) for row in rows] == [("0", "6"), ("1", "6")]
    for row in rows:
        parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
        assert sum(int(row[part]) for part in parts) == int(row["duration_ns"])


def test_the_file_of_json_is_what_json_prints(tracelink: Run, tmp_path: Path) -> None:
    tracelink("summary", JOB, "-o", "out.json")
    printed = json.loads(tracelink("summary", JOB, "--json").stdout)
    assert json.loads((tmp_path / "out.json").read_text()) == printed


def test_markdown(tracelink: Run, tmp_path: Path) -> None:
    tracelink("summary", JOB, "-o", "out.md")
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0].startswith("**A step takes 1.084 ms")
    assert [line for line in lines if line.startswith("### ")] == [
        "### Time of steps",
        "### Why ranks do not compute",
        "### Critical path",
        "### Kernels",
        "### Late launches",
        "### Waits of the host",
        "### Late ranks",
        "### Collectives",
        "### Memory",
        "### Notes",
    ]


def test_output_that_is_an_input(tracelink: Run, tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "trace.html"
    trace.parent.mkdir()
    trace.write_bytes(next(samples.path("run_before").iterdir()).read_bytes())
    before = trace.read_bytes()
    found = tracelink("summary", str(trace), "-o", str(trace))
    assert (found.exit_code, "is one of the inputs" in found.stderr) == (2, True)
    assert trace.read_bytes() == before
