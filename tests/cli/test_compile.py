"""`tracelink compile`: the page, one line for each problem, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from builders.command_line import Run
from builders.compile_log import PID, START_US, artifact, begin, instant, log, metrics, record
from builders.html_page import read_html
from builders.kineto import cpu_op, trace
from builders.kineto import write as write_file
from tracelink import samples, schemas
from tracelink.cli.main import FINE, NO, UNREADABLE, USAGE

RECOMPILED = {"co_name": "step", "co_filename": "/home/me/train.py", "co_firstlineno": 7, "graph_op_count": 2}
GOOD = log(
    metrics("0/0", seconds=2, **RECOMPILED),
    metrics("0/1", seconds=1, recompile_reason="0/0: tensor 'x' size mismatch   # x", **RECOMPILED),
    artifact("fx_graph_cache_miss", '{"key": "abc"}', "0/0"),
    artifact("fx_graph_cache_hit", '{"key": "abc"}', "0/1"),
    instant("x", at=4),
)
PAGE = """\
2 compilations of 1 function took 3.0 s: 1 recompiled, 0 graph breaks, 0 failed.

function  defined at  ranks  compiled  recompiled  breaks  failed  time (ms)
step [0]  train.py:7  0             2           1       0       0  3,000.000

recompiled because        at          function  ranks  times  time (ms)
tensor 'x' size mismatch  train.py:7  step      0          1  1,000.000

fx_graph_cache: 1 hit, 1 miss.
"""


def write(rank: int, content: bytes) -> Path:
    path = Path(f"dedicated_log_torch_trace_rank_{rank}_x.log")
    path.write_bytes(content)
    return path


def test_page(tracelink: Run) -> None:
    result = tracelink("compile", str(write(0, GOOD)))
    assert (result.exit_code, result.stdout, result.stderr) == (FINE, PAGE, "")


def test_page_with_a_profile(tracelink: Run) -> None:
    path = write(0, GOOD)
    regions = [cpu_op("Torch-Compiled Region: 0/0", 5_000_000 + at, 500, pid=PID) for at in (0, 1000)]
    write_file(Path("kineto_rank0.json"), trace(*regions, rank=0, baseTimeNanoseconds=START_US * 1000))
    result = tracelink("compile", ".")
    table, _, rest = PAGE.partition("\nrecompiled")
    expected = table.replace("  time (ms)\n", "  time (ms)  ran (ms)\n").replace(
        "1       0       0  3,000.000", "1       0       0  3,000.000     1.000"
    )
    took = "step [0] took 3.0 s to compile, as long as 6,000 of its runs take"
    hint = f"{took}: 2 runs in the profiled time took 1.0 ms.\n"
    assert (result.exit_code, result.stdout) == (FINE, f"{expected}{hint}\nrecompiled{rest}")
    assert tracelink("compile", str(path)).stdout == PAGE


def test_a_rank_that_the_user_names(tracelink: Run) -> None:
    path = Path("odd.log")
    path.write_bytes(GOOD)
    made = json.loads(tracelink("compile", "odd.log", "--rank", "odd.log=5", "--json").stdout)
    assert made["ranks"] == [5]


def test_function_that_did_not_run_in_the_profiled_time(tracelink: Run) -> None:
    write(0, GOOD)
    other = cpu_op("Torch-Compiled Region: 9/0", 5_000_000, 500, pid=PID)
    write_file(Path("kineto_rank0.json"), trace(other, rank=0, baseTimeNanoseconds=START_US * 1000))
    assert (
        "step [0] took 3.0 s to compile, and did not run in the profiled time."
        in tracelink("compile", ".").stdout
    )


def test_one_line_for_each_problem(tracelink: Run) -> None:
    write(
        0, log(metrics("0/0", co_name="step"), begin("async_compile.wait", "1/0", at=1), instant("x", at=395))
    )
    write(1, log(metrics("0/0", co_name="step", fail_type="Unsupported", fail_reason="print.\nmore")))
    write(2, log(metrics("0/0", co_name="step")))
    result = tracelink("compile", ".", "-q")
    assert (result.exit_code, result.stdout.splitlines()) == (
        NO,
        [
            "Rank 0 was compiling a function [1/0] when its log ends: async_compile.wait has been open for 6 min 34 s.",
            "Rank 1 compiled something else than the other ranks in [0/0]: step: failed (Unsupported), where the "
            "others have step: compiled.",
            "step [0/0] failed to compile: Unsupported: print.",
        ],
    )


def test_two_ranks_that_compiled_differently(tracelink: Run) -> None:
    write(0, log(metrics("0/0", co_name="step", fail_type="Unsupported", fail_reason="print")))
    write(1, log(metrics("0/0", co_name="step")))
    first = tracelink("compile", ".", "-q").stdout.splitlines()[0]
    sides = ("step: failed (Unsupported)", "step: compiled")
    assert first in [
        f"Ranks 0 and 1 did not compile the same in [0/0]: {a} on one, {b} on the other."
        for a, b in (sides, sides[::-1])
    ]


def test_json(tracelink: Run) -> None:
    result = tracelink("compile", str(write(0, GOOD)), "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("compile"))
    assert [(one["id"], one["duration_ns"], one["recompile_of"]) for one in document["compiles"]] == [
        ("0/0", 2_000_000_000, ""),
        ("0/1", 1_000_000_000, "0/0"),
    ]


def test_nothing_was_compiled(tracelink: Run) -> None:
    result = tracelink("compile", str(write(0, log(artifact("torch_version", "{}"), instant("x", at=1)))))
    assert (result.exit_code, result.stdout) == (FINE, "Nothing was compiled.\n")


def test_draft_export(tracelink: Run) -> None:
    result = tracelink(
        "compile",
        str(write(0, log(record("missing_fake_kernel", {"op": "lib.f.default"}), instant("x", at=1)))),
    )
    assert (result.exit_code, result.stdout) == (
        FINE,
        "Nothing was compiled; draft export made 1 note.\n\n"
        "draft export                     about          rank  times\n"
        "The operator has no fake kernel  lib.f.default     0      1\n",
    )


def test_guards_with_other_sizes_are_one_reason_with_the_line_of_the_guard(tracelink: Run) -> None:
    where = "  # if x.n == 1:  # me/model.py:16 in forward (HINT: x)"
    again = [
        metrics(
            f"0/{number}",
            recompile_reason=f"0/0: tensor 'x' size mismatch at index 0. expected 4, actual {number}{where}",
            **RECOMPILED,
        )
        for number in range(1, 4)
    ]
    result = tracelink(
        "compile", str(write(0, log(metrics("0/0", **RECOMPILED), *again, instant("x", at=1))))
    )
    assert result.stdout.split("\n\n")[2].splitlines() == [
        "recompiled because                                      at           function  ranks  times  time (ms)",
        "tensor 'x' size mismatch at index 0 (3 different ones)  model.py:16  step      0          3  3,000.000",
    ]


def test_many_problems_are_counted(tracelink: Run) -> None:
    failed = [metrics(f"{number}/0", co_name=f"f{number}", fail_type="Unsupported") for number in range(20)]
    path = str(write(0, log(*failed, instant("x", at=1))))
    lines = tracelink("compile", path).stdout.splitlines()
    assert lines[11:14] == [
        "f11 [11/0] failed to compile: Unsupported.",
        "8 more problems (-v shows them).",
        "20 compilations of 20 functions took 20.0 s: 0 recompiled, 0 graph breaks, 20 failed.",
    ]
    assert len(tracelink("compile", path, "-q").stdout.splitlines()) == 20
    assert tracelink("compile", str(write(0, GOOD)), "-q").stdout == ""


def test_collectives_that_waited_for_a_compilation(tracelink: Run) -> None:
    result = tracelink("compile", str(samples.path("compile_job")))
    table = next(part for part in result.stdout.split("\n\n") if part.startswith("waited for a compilation"))
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["barrier", "3", "0"],
        ["all_reduce", "2", "0"],
        ["all_reduce", "7", "0"],
        ["all_reduce", "1", "0"],
    ]


def test_ranks_that_were_compiling_the_same_are_one_line(tracelink: Run) -> None:
    for rank in range(4):
        write(rank, log(begin("dynamo", "1/0", at=1), instant("x", at=31 + rank)))
    lines = tracelink("compile", ".", "-q").stdout.splitlines()
    assert lines == [
        "Ranks 0-3 were compiling a function [1/0] when their logs end: dynamo has been open for up to 33.0 s."
    ]


def test_a_run_of_several(tracelink: Run) -> None:
    for name, at in (("a", 0), ("b", 100)):
        content = log(
            begin("dynamo", "0/0", at=at), metrics("0/0", start=at, co_name=name), instant("x", at=at + 1)
        )
        Path(f"dedicated_log_torch_trace_rank_0_{name}.log").write_bytes(
            content.replace(b'"frame_id"', b'"rank": 0, "frame_id"')
        )
    both, last = tracelink("compile", "."), tracelink("compile", ".", "--run", "2")
    assert "--run 2 shows the last one only." in both.stdout + both.stderr
    assert ("b [0]" in last.stdout, "a [0]" in last.stdout) == (True, False)
    assert tracelink("compile", ".", "--run", "3").exit_code == USAGE


def test_no_log(tracelink: Run) -> None:
    Path("traces").mkdir()
    Path("traces/a.txt").write_text("hello")
    result = tracelink("compile", "traces")
    assert result.exit_code == UNREADABLE
    assert result.stderr == (
        "tracelink: no compile log found: this file is something else. Record logs with TORCH_TRACE=DIR in the "
        "environment of the job, and name DIR.\n"
    )


# Files.


def test_page_and_artifacts(tracelink: Run) -> None:
    result = tracelink("compile", str(write(0, GOOD)), "-o", "report.html", "--artifacts", "out")
    assert result.stdout.splitlines()[1].startswith("Wrote report.html (")
    assert result.stderr == "Wrote out: 2 artifacts, 28 B.\n"
    page = read_html(Path("report.html").read_text())
    assert page.rows("The most costly first, by guard")[0][:3] == [
        "tensor 'x' size mismatch",
        "train.py:7",
        "step",
    ]
    assert [one.attributes["id"] for one in page.all("details", class_="compilation")] == [
        "c-0-0/0",
        "c-0-0/1",
    ]
    assert sorted(path.as_posix() for path in Path("out").rglob("*.json")) == [
        "out/rank_0/0_0/fx_graph_cache_miss.json",
        "out/rank_0/0_1/fx_graph_cache_hit.json",
    ]


def test_artifacts_are_files(tracelink: Run) -> None:
    result = tracelink("compile", str(write(0, GOOD)), "--artifacts", "-")
    assert (result.exit_code, result.stderr) == (
        USAGE,
        "tracelink: files cannot be written to standard output. Name a folder.\n",
    )


def test_answers_as_files(tracelink: Run) -> None:
    path = str(write(0, GOOD))
    document = tracelink("compile", path, "--json").stdout
    for name in ("a.json", "a.md", "a.csv"):
        assert tracelink("compile", path, "-o", name).exit_code == FINE
    assert Path("a.json").read_text() == document.rstrip("\n")
    assert "tensor 'x' size mismatch" in Path("a.md").read_text()
    lines = Path("a.compiles.csv").read_text().splitlines()
    assert (lines[0].split(",")[:4], len(lines)) == (["rank", "id", "function", "reason"], 3)


def test_an_input_is_not_overwritten(tracelink: Run) -> None:
    path = Path("log.json")
    path.write_bytes(GOOD)
    result = tracelink("compile", "log.json", "--rank", "log.json=0", "-o", "log.json")
    assert (result.exit_code, path.read_bytes() == GOOD) == (USAGE, True)


def test_caches_that_hit_on_some_ranks_only(tracelink: Run) -> None:
    for rank, state in enumerate(["hit", "hit", "miss"]):
        write(rank, log(artifact(f"fx_graph_cache_{state}", "{}", "0/0"), metrics("0/0", co_name="step")))
    result = tracelink("compile", ".")
    assert result.exit_code == FINE
    assert result.stdout.split("\n\n")[2].splitlines()[:3] == [
        "fx_graph_cache: 2 hit, 1 miss.",
        "hit on some ranks only  id   function  hit on ranks  not on ranks",
        "fx_graph_cache          0/0  step      0-1           2",
    ]
