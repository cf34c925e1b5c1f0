"""Stacks as text next to dumps: what py-spy and faulthandler write."""

from __future__ import annotations

import faulthandler
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import Entries, dumps, hang, healthy, stack
from builders.monitors import COMPILES, FAULT, LOADS, RUNS, faults, py_spy
from builders.recorder import frame
from builders.witnesses import compile_log, compiling
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.bundle import main_thread
from tracelink._hang.facts.model import Category
from tracelink._model.records import Frame, compiler_frame
from tracelink._model.witnesses import Stack

PLAIN = "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait."
TO_GET_LOGS = "run the job with TORCH_TRACE=DIR in the environment"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def diagnosis(folder: Path, files: dict[str, str], entries: Entries | None = None) -> Diagnosis:
    for name, text in files.items():
        write(folder / "stacks", name, text)
    return diagnose([dumps(folder / "dumps", entries or hang(4)), folder / "stacks"])


@pytest.mark.parametrize("name", ["pyspy_rank_2.txt", "rank2/stack.txt"])
def test_a_culprit_in_the_compiler(tmp_path: Path, name: str) -> None:
    found = diagnosis(tmp_path, {name: py_spy(COMPILES)})
    (problem,) = found.problems
    assert problem.message == (
        "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait. Rank 2 is in torch's "
        "compiler (async_compile.py:512), as its stack shows."
    )
    assert problem.category is Category.COMPILING
    assert problem.stacks == (
        Stack(2, "py-spy", "MainThread", COMPILES, True, str(tmp_path / "stacks" / name)),
    )
    assert TO_GET_LOGS in problem.advice
    assert [finding.reason for finding in found.findings] == []


def test_a_culprit_that_does_something_else(tmp_path: Path) -> None:
    (problem,) = diagnosis(tmp_path, {"rank_2.txt": faults(LOADS)}).problems
    assert (problem.message, problem.category) == (PLAIN, Category.NOT_REACHED)
    assert [(one.program, one.frames, one.in_compiler) for one in problem.stacks] == [
        ("faulthandler", LOADS, False)
    ]
    assert TO_GET_LOGS not in problem.advice


def test_compile_logs_say_more_than_stacks(tmp_path: Path) -> None:
    compile_log(tmp_path / "stacks", 2, *compiling("0/0", 2.5))
    (problem,) = diagnosis(tmp_path, {"pyspy_rank_2.txt": py_spy(COMPILES)}).problems
    assert "Rank 2 has been compiling train_step [0/0] (async_compile.wait)" in problem.message
    assert "in torch's compiler" not in problem.message
    assert [one.in_compiler for one in problem.stacks] == [True]
    assert TO_GET_LOGS not in problem.advice


def test_stacks_of_waiting_ranks_are_left_out(tmp_path: Path) -> None:
    (problem,) = diagnosis(tmp_path, {"pyspy_rank_0.txt": py_spy(COMPILES)}).problems
    assert (problem.stacks, problem.message) == ((), PLAIN)


def test_several_culprits(tmp_path: Path) -> None:
    entries = hang(4)
    del entries[1][2:]
    files = {f"rank_{rank}.txt": py_spy(COMPILES) for rank in (1, 2)}
    (problem,) = diagnosis(tmp_path, files, entries).problems
    assert problem.message.endswith(
        " Ranks 1 and 2 are in torch's compiler (async_compile.py:512), as their stacks show."
    )


def test_a_stack_without_a_rank_is_reported(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, {"stack.txt": py_spy(COMPILES)})
    assert [(one.reason, one.message.endswith("stack.txt=N.")) for one in found.findings] == [
        ("unknown_rank", True)
    ]
    assert found.problems[0].stacks == ()


def test_the_rank_that_the_user_gives(tmp_path: Path) -> None:
    path = write(tmp_path, "stack.txt", py_spy(COMPILES))
    (problem,) = diagnose([dumps(tmp_path / "dumps", hang(4)), path], rank_of={"stack.txt": 2}).problems
    assert [one.rank for one in problem.stacks] == [2]


def test_a_file_with_other_text_is_searched_as_a_log(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, {"rank_2.txt": "step 1\nThread pool started\n"})
    assert found.findings == []
    assert found.witnesses
    assert [(one.what, one.count) for one in found.witnesses.used] == [
        ("dumps", 4),
        ("logs without watchdog lines", 1),
    ]


def test_a_named_stack_of_a_healthy_job_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path, "pyspy_rank_2.txt", py_spy(LOADS))
    found = diagnose([dumps(tmp_path / "dumps", healthy(4)), path])
    assert (found.verdict, list(found.findings)) == ("ok", [])


def test_calls_made_by_the_compiler_lead_to_compile_logs(tmp_path: Path) -> None:
    entries = hang(4)
    inside = "/opt/python3.11/site-packages/torch/_dynamo/symbolic_convert.py"
    entries[2][-1]["frames"] = [*stack("step", 20)[:1], frame("run", inside, 7), *stack("step", 20)[1:]]
    (problem,) = diagnose(dumps(tmp_path, entries)).problems
    assert TO_GET_LOGS in problem.advice
    assert (problem.message, problem.category) == (PLAIN, Category.NOT_REACHED)


# Which thread is the main thread.


def test_py_spy_with_local_variables_native_frames_and_child_processes() -> None:
    text = (
        "Process 71: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
        'Thread 80 (active): "pt_autograd_0"\n    backward (torch/autograd/graph.py:1)\n'
        'Thread 71 (idle): "MainThread"\n'
        "    __futex_wait (libc.so.6)\n"
        "    wait (threading.py:320)\n"
        "        Arguments:\n            self: <Condition(x (y.py:3)>\n"
        "    <module> (train.py:9)\n"
        'Process 99: python -m worker\n\nThread 99 (idle): "MainThread"\n    <module> (worker.py:1)\n'
    )
    found = main_thread(text)
    assert found is not None
    assert found.frames == [
        Frame("__futex_wait", "libc.so.6", 0),
        Frame("wait", "threading.py", 320),
        Frame("<module>", "train.py", 9),
    ]


def test_the_newest_of_several_stacks_is_taken() -> None:
    found = main_thread(py_spy(COMPILES) + "\n" + py_spy(LOADS))
    assert found is not None
    assert tuple(found.frames) == LOADS


def test_what_faulthandler_writes_here(tmp_path: Path) -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    with (tmp_path / "stack.txt").open("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read()
    stop.set()
    other.join()
    found = main_thread(text)
    assert found is not None
    assert found.frames[0].name == "test_what_faulthandler_writes_here"
    assert found.frames[0].filename.endswith("test_stacks.py")


def test_a_crash_that_faulthandler_reports() -> None:
    found = main_thread(FAULT)
    assert found is not None
    assert [one.name for one in found.frames] == ["wait", "main", "<module>"]


@given(st.text())
def test_any_text(text: str) -> None:
    found = main_thread(text)
    assert found is None or found.frames


# Whether a stack is in the compiler.


@pytest.mark.parametrize(
    ("file", "name", "inside"),
    [
        ("torch/_dynamo/convert_frame.py", "__call__", True),
        ("/opt/site-packages/torch/_inductor/compile_fx.py", "fx_codegen_and_compile", True),
        ("/opt/site-packages/torch/_inductor/compile_fx.py", "run", False),
        ("/opt/site-packages/torch/_inductor/output_code.py", "__call__", False),
        ("torch/_dynamo/eval_frame.py", "compile_wrapper", False),
        ("torch/_inductor/runtime/triton_heuristics.py", "run", False),
        ("my_torch/_dynamo/convert_frame.py", "f", False),
    ],
)
def test_frames_of_the_compiler(file: str, name: str, inside: bool) -> None:
    one = Frame(name, file, 1)
    assert compiler_frame([Frame("wait", "threading.py", 1), one]) == (one if inside else None)


def test_running_compiled_code_is_not_compiling() -> None:
    assert compiler_frame(RUNS) is None


@pytest.mark.parametrize(
    "line",
    [
        "    " + "a (" * 17_000,
        "    a" + " (a:1" * 10_000,
        '  File "' + '", line 1 in ' * 3_800,
        "=== Rank 1: " * 4_100,
        "Thread 0x1 [" * 4_100,
        "Process 1: python" + " --rank" * 7_100,
        "\x1b[" * 25_000,
    ],
)
def test_50_kb_of_any_line_take_linear_time(line: str) -> None:
    """Quadratic patterns take 10 s for them."""
    heads = ('Thread 1 (idle): "MainThread"', "Thread 0x1 (most recent call first):")
    before = time.process_time()
    for head in heads:
        main_thread(f"{head}\n{line}")
    assert time.process_time() - before < 0.5
