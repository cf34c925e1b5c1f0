"""`tracelink diagnose` with compile logs and stacks next to dumps."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from builders.command_line import Run
from builders.dumps import SECOND, Entries, dumps, hang, healthy, steps
from builders.html_page import read_html
from builders.monitors import (
    COMPILES,
    LOADS,
    MAIN,
    Group,
    as_json,
    communicator,
    gave_up,
    hung,
    py_spy,
    status,
)
from builders.witnesses import alive, compile_log, compiling, near, recompiled
from tracelink import schemas
from tracelink._model.records import Frame
from tracelink.cli.main import NO, UNREADABLE


def test_page_and_document_of_a_rank_that_compiles(tracelink: Run) -> None:
    guard = recompiled("3/2", "3/1: s.i == 0  # if s.i == 1:  # train.py:31 in forward", 2.6)
    compile_log(Path("traces"), 2, guard, *compiling("3/2", 2.6), alive(12.6))
    folder = dumps(Path("dumps"), hang(4))
    page = tracelink("diagnose", str(folder), "traces", "-v").stdout
    tracelink("diagnose", str(folder), "traces", "-o", "report.html")
    assert "\nclass           culprits  waiting" in page
    assert "\nbusy compiling  2         0-1, 3 " in page
    lines = page.splitlines()
    heading, row = lines[lines.index("In compile logs:") + 1 :][:2]
    assert heading.split()[:3] == ["rank", "id", "function"]
    assert row.startswith(
        "   2  3/2  train_step  entire_frame_compile, async_compile.wait  2026-11-18 06:29:22.203"
    )
    assert "s.i == 0" in row
    html = Path("report.html").read_text()
    assert ">s.i == 0<" in html
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
    page = tracelink(*inputs).stdout
    row = next(line for line in page.splitlines() if "stack (py-spy)" in line)
    assert row.endswith("wait (threading.py:320) < step (train.py:30)")
    result = tracelink(*inputs, "-v")
    tracelink(*inputs, "-o", "report.html")
    assert (
        "Stack of rank 2 (py-spy, MainThread):\n"
        "  threading.py:320                      wait\n"
        "  torch/_inductor/async_compile.py:512  wait\n"
        "  torch/_inductor/compile_fx.py:700     compile_fx_inner\n"
        "  torch/_dynamo/convert_frame.py:1250   __call__\n"
        "  torch/_dynamo/eval_frame.py:736       compile_wrapper\n"
        "  train.py:30                           step\n"
        "  train.py:200                          <module>\n"
    ) in result.stdout
    assert (
        "torch/_inductor/compile_fx.py:700 compile_fx_inner"
        in read_html(Path("report.html").read_text()).text
    )
    document = json.loads(tracelink(*inputs, "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    (shown,) = document["problems"]
    (one,) = shown["stacks"]
    assert (one["rank"], one["program"], one["thread"], one["in_compiler"], one["source"]) == (
        *(2, "py-spy", "MainThread", True),
        "pyspy_rank_2.txt",
    )
    assert one["frames"][1] == {"name": "wait", "filename": "torch/_inductor/async_compile.py", "line": 512}


def write_logs(folder: str, lines: dict[int, list[str]]) -> None:
    Path(folder).mkdir()
    for rank, own in lines.items():
        Path(folder, f"rank_{rank}.log").write_text("\n".join(["step 1", *own]))


def write_stacks(folder: str) -> None:
    Path(folder).mkdir()
    reduces = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2806), *MAIN)
    for rank in range(4):
        Path(folder, f"pyspy_rank_{rank}.txt").write_text(py_spy(LOADS if rank == 2 else reduces))


def test_page_of_logs_and_stacks_without_dumps(tracelink: Run) -> None:
    write_logs("logs", hung(4, 2))
    write_stacks("stacks")
    Path("ras.json").write_bytes(as_json(communicator([21, 21, 20, 21])))
    result = tracelink("diagnose", "logs", "stacks", "ras.json")
    assert result.exit_code == NO
    assert result.stdout == (
        "Rank 2 did not enqueue all_reduce #21 of group 0 (default_pg): its last one is #20, which is finished. 3 "
        "ranks timed out after 10 min in #21.\n"
        "\n"
        "rank  call            called from\n"
        "2     stack (py-spy)  __next__ (dataloader.py:700) < step (train.py:30)\n"
        "\n"
        "Next: Find out why rank 2 is in __next__ (dataloader.py:700), and does not go on.\n"
        "\n"
        "group  description  ranks   last collective   #  state\n"
        "0      default_pg   2       -                20  finished\n"
        "0      default_pg   0-1, 3  all_reduce       21  waiting\n"
        "\n"
        "Stacks of 4 processes, the least common first:\n"
        "rank    called from\n"
        "2       __next__ (dataloader.py:700) < step (train.py:30)\n"
        "0-1, 3  all_reduce (distributed_c10d.py:2806) < step (train.py:30)\n"
        "\n"
        "files                      count  used for                     such as\n"
        "logs with watchdog lines       4  timeouts, last collectives   logs/rank_0.log\n"
        "files with stacks              4  what each rank does          stacks/pyspy_rank_0.txt\n"
        "answers of NCCL's monitor      1  counts of each communicator  ras.json\n"
        "1 note (-v shows it).\n"
    )


def test_verbose_page_lists_the_lines_and_what_contradicts_them(tracelink: Run) -> None:
    write_logs("logs", hung(4, 3))
    write_stacks("stacks")
    page = tracelink("diagnose", "logs", "stacks", "-v").stdout
    assert (
        "Sources that contradict each other\n"
        "Rank 3 did not join all_reduce #21 of group 0 (default_pg), and its stack is in all_reduce "
        "(distributed_c10d.py:2806): what was recorded is older than the stack, or this is another call. "
        "(logs/rank_3.log, stacks/pyspy_rank_3.txt)\n"
    ) in page
    lines = [line.split() for line in page.splitlines()]
    assert ["2", "status", "0", "default_pg", "-", "21", "-", "-", "21", "20"] in lines
    assert ["2", "timed", "out", "-", "-", "nccl:all_reduce", "21", "1,024", "600,000", "-", "-"] in lines


def test_document_of_logs_stacks_and_the_monitor(tracelink: Run) -> None:
    write_logs("logs", hung(2, 1))
    write_stacks("stacks")
    Path("ras.json").write_bytes(as_json(communicator([21, 20])))
    document = json.loads(tracelink("diagnose", "logs", "stacks", "ras.json", "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    witnesses = document["witnesses"]
    assert [(one["sign"], one["rank"], one["enqueued"]) for one in witnesses["reports"]] == [
        ("timed_out", 0, None),
        ("status", 0, 21),
        ("status", 1, 20),
    ]
    assert [one["ranks"] for one in witnesses["stacks"]] == [[2], [0, 1, 3]]
    (answer,) = witnesses["answers"]
    (one,) = answer["communicators"]
    assert [member["counts"]["AllReduce"] for member in one["members"]] == [21, 20]
    assert [(one["what"], one["count"]) for one in witnesses["used"]] == [
        ("logs with watchdog lines", 2),
        ("files with stacks", 4),
        ("answers of NCCL's monitor", 1),
    ]
    assert document["ranks"] == {"present": [], "missing": [], "unreadable": [], "reasons": []}


def test_html_page_escapes_what_logs_contain(tracelink: Run) -> None:
    group = Group("5", "<script>x", 2)
    lines = {rank: gave_up(rank, 3, group=group) for rank in range(3)}
    write_logs("logs", lines | {3: [status(3, 2, 2, group=group)]})
    write_stacks("stacks")
    tracelink("diagnose", "logs", "stacks", "-o", "report.html")
    page = Path("report.html").read_text()
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page
    for heading in ("Stacks", "Watchdog lines", "Files", "Sources that contradict each other"):
        assert f">{heading}</h2>" in page


def test_entries_need_dumps(tracelink: Run) -> None:
    write_logs("logs", hung(3, 1))
    assert "--entries: there is no dump" in tracelink("diagnose", "logs", "--entries").stderr


def test_other_commands_say_what_reads_a_log(tracelink: Run) -> None:
    write_logs("logs", hung(2, 1))
    for command in (["inspect", "logs/rank_0.log"], ["merge", "logs/rank_0.log", "-o", "x.json"]):
        result = tracelink(*command)
        assert result.exit_code == UNREADABLE
        assert "tracelink diagnose reads it" in result.stderr
