"""`tracelink summary`: the page, JSON and its options."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from builders.command_line import Run
from tracelink import samples, summarize
from tracelink.answers.model.results import CriticalPath
from tracelink.cli.answers.causes import show_path
from tracelink.cli.terminal import Page

PAIR = str(samples.path("gpu_pair"))


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
        "rank  steps    a step  compute  comm.  copies   idle",
        "   0      2  1.430 ms     58 %   34 %   2.3 %  6.2 %  ##################===========-..",
        "   1      2  1.427 ms     59 %   32 %   2.3 %  6.4 %  ###################==========-..",
        " all      4  1.428 ms     59 %   33 %   2.3 %  6.3 %  ###################==========-..",
    ]


def test_verbose_shows_operators_modules_and_lines(tracelink: Run) -> None:
    lines = tracelink("summary", PAIR, "-v").stdout.splitlines()
    headers = [line.split()[0] for line in lines if line.endswith("on devices")]
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
    ],
)
def test_what_does_not_exist_is_an_error_of_usage(
    tracelink: Run, arguments: tuple[str, ...], message: str
) -> None:
    result = tracelink("summary", PAIR, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_dumps_alone_have_no_breakdown(tracelink: Run) -> None:
    result = tracelink("summary", str(samples.path("hung_job")))
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


def test_ranks_on_the_critical_path_without_a_majority() -> None:
    path = CriticalPath(100, {"compute": 100}, {"0": 25, "1": 45, "2": 30}, {}, [], [], 0, 0)
    page = Page()
    show_path(page, structs.replace(summarize(PAIR), critical_path=path), verbose=False)
    assert "It is 45 % on rank 1, 30 % on rank 2, 25 % on rank 0." in page.text
