"""`tracelink diagnose` with compile logs and stacks next to dumps."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from builders.busy_compiling import alive, compile_log, compiling, near, recompiled
from builders.command_line import Run
from builders.dumps import SECOND, Entries, dumps, hang, healthy, steps
from builders.stacks import COMPILES, py_spy
from tracelink import schemas


def test_page_and_document_of_a_rank_that_compiles(tracelink: Run) -> None:
    guard = recompiled("3/2", "3/1: s.i == 0  # if s.i == 1:  # train.py:31 in forward", 2.6)
    compile_log(Path("traces"), 2, guard, *compiling("3/2", 2.6), alive(12.6))
    folder = dumps(Path("dumps"), hang(4))
    page = tracelink("diagnose", str(folder), "traces", "--html", "report.html").stdout
    assert "Class: busy compiling (torch.compile, on the host).\n" in page
    assert (
        "In the compile log of rank 2:\n"
        "  compiling  train_step [3/2] (async_compile.wait)\n"
        "  since      06:29:22.203435 UTC, for at least 10.0 s: the log ends within it\n"
        "  for the    second time or later (warm), because s.i == 0 failed at train.py:31\n"
        "  within     entire_frame_compile > async_compile.wait\n"
    ) in page
    html = Path("report.html").read_text()
    assert "In the compile log of rank 2" in html
    assert "second time or later (warm), because s.i == 0 failed at train.py:31" in html
    document = json.loads(tracelink("diagnose", str(folder), "traces", "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    (shown,) = document["problems"]
    assert shown["class"] == "busy_compiling"
    (one,) = shown["compiling"]
    since = one.pop("since_ns")
    assert near(since, 2.6)
    assert one.pop("duration_ns") == pytest.approx(10 * SECOND, abs=SECOND / 100)
    assert one == {
        "rank": 2,
        "id": "3/2",
        "function": "train_step",
        "phases": ["entire_frame_compile", "async_compile.wait"],
        "open": True,
        "cold": False,
        "sources": [str(Path("traces/dedicated_log_torch_trace_rank_2_abc.log"))],
        "guard": "s.i == 0",
        "guard_frame": {"name": "forward", "filename": "train.py", "line": 31},
    }


def undecided() -> Entries:
    """Ranks 0 and 2 wait for 1 and 3, which may be on their way."""
    waiting = {rank: steps(rank, 1) for rank in (0, 2)}
    return waiting | {rank: steps(rank, 2, group=("1", "dp"))[:1] for rank in (1, 3)}


@pytest.mark.parametrize(
    ("entries", "options", "logged", "exit_code", "verdict", "category"),
    [
        (hang(4), (), compiling("0/0", 2.5), 1, "problem", "busy_compiling"),
        (hang(4), (), compiling("0/0", 0, 1), 1, "problem", "not_reached"),
        (undecided(), (), compiling("0/0", 1.5), 4, "in_flight", "busy_compiling"),
        (undecided(), (), compiling("0/0", 0, 0.5), 4, "in_flight", "in_flight"),
        (undecided(), ("--hung",), compiling("0/0", 1.5), 1, "problem", "busy_compiling"),
        (healthy(4), (), compiling("0/0", 2.5), 0, "ok", None),
    ],
    ids=["compiles", "compiled before", "may run", "may run, compiled before", "known to hang", "healthy"],
)
def test_exit_codes_and_classes(
    tracelink: Run,
    entries: Entries,
    options: tuple[str, ...],
    logged: list[str],
    exit_code: int,
    verdict: str,
    category: str | None,
) -> None:
    for rank in (1, 2, 3):
        compile_log(Path("traces"), rank, *logged, alive(60))
    folder = dumps(Path("dumps"), entries)
    result = tracelink("diagnose", str(folder), "traces", "--json", *options)
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    classes = [problem["class"] for problem in document["problems"][:1]]
    assert (result.exit_code, document["verdict"], classes) == (
        exit_code,
        verdict,
        [category] if category else [],
    )


def test_page_and_document_of_a_rank_with_a_stack(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), hang(4))
    Path("pyspy_rank_2.txt").write_text(py_spy(COMPILES))
    inputs = ["diagnose", str(folder), "pyspy_rank_2.txt"]
    result = tracelink(*inputs, "--html", "report.html")
    assert result.stderr.startswith("Wrote report.html")
    assert (
        "The stack of rank 2 (py-spy, MainThread):\n"
        "  threading.py:320       wait\n"
        "  async_compile.py:512   wait\n"
        "  compile_fx.py:700      compile_fx_inner\n"
        "  convert_frame.py:1250  __call__\n"
        "  eval_frame.py:736      compile_wrapper\n"
        "  train.py:30            step\n"
        "  train.py:200           <module>\n"
    ) in result.stdout
    assert "compile_fx_inner at torch/_inductor/compile_fx.py:700" in Path("report.html").read_text()
    document = json.loads(tracelink(*inputs, "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    (shown,) = document["problems"]
    (one,) = shown["stacks"]
    assert (one["rank"], one["program"], one["thread"], one["in_compiler"], one["source"]) == (
        *(2, "py-spy", "MainThread", True),
        "pyspy_rank_2.txt",
    )
    assert one["frames"][1] == {"name": "wait", "filename": "torch/_inductor/async_compile.py", "line": 512}
