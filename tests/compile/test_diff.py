"""Two runs compared: what is new, gone, slower or faster."""

from __future__ import annotations

from pathlib import Path

import tracelink
from builders.compile_log import artifact, begin, instant, log, metrics
from builders.data import traces
from tracelink._compile.diff import Change, CompileDiff, FunctionTime, compared
from tracelink._compile.model import CompileReport
from tracelink._model.columns import SECOND

STEP = {"co_name": "step", "co_filename": "/home/me/train.py", "co_firstlineno": 7}


def report(folder: Path, *ranks: bytes) -> CompileReport:
    """The report of a run whose ranks have these logs."""
    folder.mkdir(parents=True)
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return tracelink.compile(folder)


def diff(folder: Path, before: list[bytes], after: list[bytes]) -> CompileDiff:
    return compared(report(folder / "before", *before), report(folder / "after", *after))


def test_same_run_has_no_change() -> None:
    found = tracelink.compile(traces("compile_faults"))
    same = compared(found, found)
    assert (same.changes, same.is_worse) == ([], False)
    assert same.before_ns == same.after_ns > 0


def test_ids_ranks_and_lines_do_not_matter(tmp_path: Path) -> None:
    """The function is compiled second, on more ranks, and moved by an edit above it; ids of objects differ."""
    guard = "0/0: ___check_obj_id(fn, {})  # fn()"
    one = log(metrics("0/0", **STEP), metrics("0/1", recompile_reason=guard.format(140_001_002), **STEP))
    moved = STEP | {"co_firstlineno": 9}
    two = log(
        metrics("1/0", **moved), metrics("1/1", recompile_reason=guard.format(139_998_001_555), **moved)
    )
    found = diff(tmp_path, [one], [two, two])
    assert (found.changes, found.is_worse) == ([], False)
    assert found.functions == [FunctionTime("step", "train.py", 9, 2, 2, 2 * SECOND, 2 * SECOND)]


def test_recompilations_that_are_new_and_gone(tmp_path: Path) -> None:
    def run(reason: str, times: int) -> bytes:
        again = [
            metrics(f"0/{number}", recompile_reason=f"0/0: {reason}  # x", **STEP)
            for number in range(1, times + 1)
        ]
        return log(metrics("0/0", **STEP), *again)

    found = diff(tmp_path, [run("x == 1", 1)], [run("y == 2", 2)])
    assert found.recompiles == [
        Change("step", "train.py", 7, 0, 2, 0, 2 * SECOND, is_worse=True, reason="y == 2"),
        Change("step", "train.py", 7, 1, 0, SECOND, 0, reason="x == 1"),
    ]
    assert [one.is_worse for one in found.recompiles] == [True, False]
    assert found.is_worse


def test_graph_breaks_failures_and_open_work(tmp_path: Path) -> None:
    text = "Graph break in user code at /home/me/train.py:17\nGraph Break Reason: print"
    failed = metrics("1/0", fail_type="Unsupported", fail_reason="no", co_name="loss")
    bad = log(
        metrics("0/0", **STEP),
        artifact("dynamo_graph_break_reason", text, "0/0"),
        failed,
        begin("backend_compile", "0/1", at=3),
        instant("x", at=5),
    )
    good = log(metrics("0/0", **STEP))
    worse, better = diff(tmp_path / "1", [good], [bad]), diff(tmp_path / "2", [bad], [good])
    assert [one for _, one in worse.changes] == [
        Change("loss", "", None, 0, 1, is_worse=True, reason="Unsupported: no"),
        Change("step", "train.py", 7, 0, 1, 0, 2 * SECOND, is_worse=True, reason="backend_compile"),
        Change("step", "train.py", 17, 0, 1, is_worse=True, reason="print"),
    ]
    assert len(better.changes) == 3
    assert (worse.is_worse, better.is_worse) == (True, False)


def with_break(file: str, line: int, definition: int) -> bytes:
    """A function with a graph break, and what runs after it."""
    text = (
        f"Graph break in user code at /me/{file}:{line}\nGraph Break Reason: Encountered graph break when attempting "
        "to trace CALL: f(x)\n\nUnsupported\n  Explanation: No print."
    )
    step = {"co_name": "step", "co_filename": f"/me/{file}", "co_firstlineno": definition}
    resumed = {
        "co_name": f"torch_dynamo_resume_in_step_at_{line}",
        "co_filename": f"/me/{file}",
        "co_firstlineno": line,
    }
    artifacts = artifact("dynamo_graph_break_reason", text, "0/0")
    return log(artifacts, metrics("0/0", **step), metrics("1/0", **resumed))


def test_graph_breaks_that_moved_are_the_same(tmp_path: Path) -> None:
    """Lines above them were added; the name of what runs after a break contains its line."""
    found = diff(tmp_path, [with_break("train.py", 17, 7)], [with_break("train.py", 19, 9)])
    assert (found.changes, found.is_worse) == ([], False)
    assert [(one.function, one.before, one.after) for one in found.functions] == [
        ("step", 1, 1),
        ("torch_dynamo_resume_in_step_at_19", 1, 1),
    ]


def test_functions_of_a_file_with_another_name_are_the_same(tmp_path: Path) -> None:
    found = diff(tmp_path, [with_break("train.py", 17, 7)], [with_break("train_v2.py", 17, 7)])
    assert list(found.changes) == []
    assert [(one.file, one.before, one.after) for one in found.functions] == [("train_v2.py", 1, 1)] * 2


def test_functions_of_other_files_whose_name_is_not_unique_differ(tmp_path: Path) -> None:
    forward = {"co_name": "forward", "co_firstlineno": 7}
    two = log(*(metrics(f"{at}/0", co_filename=f"{name}.py", **forward) for at, name in enumerate("ab")))
    found = diff(tmp_path, [two], [log(metrics("0/0", co_filename="c.py", **forward))])
    assert sorted((one.file, one.before, one.after) for one in found.functions) == [
        ("a.py", 1, 0),
        ("b.py", 1, 0),
        ("c.py", 0, 1),
    ]


def test_a_new_graph_break_has_its_line_and_its_explanation(tmp_path: Path) -> None:
    good = log(metrics("0/0", co_name="step", co_filename="/me/train.py", co_firstlineno=7))
    found = diff(tmp_path, [good], [with_break("train.py", 17, 7)])
    assert found.graph_breaks == [Change("step", "train.py", 17, 0, 1, is_worse=True, reason="No print.")]


def test_divergences(tmp_path: Path) -> None:
    good, other = log(metrics("0/0", co_name="step")), log(metrics("0/0", co_name="loss"))
    found = diff(tmp_path, [good] * 3, [good, good, other])
    assert found.divergences == [Change("", "", None, 0, 1, is_worse=True, reason="compile")]


def test_time_of_a_function(tmp_path: Path) -> None:
    """The slowest rank counts; 20 % and 1 s more are noise."""

    def run(step: float, loss: float) -> bytes:
        return log(metrics("0/0", seconds=step, **STEP), metrics("1/0", seconds=loss, co_name="loss"))

    found = diff(tmp_path, [run(9, 10), run(10, 10)], [run(11, 14), run(11, 10)])
    assert found.functions == [
        FunctionTime("loss", "", None, 1, 1, 10 * SECOND, 14 * SECOND, is_worse=True),
        FunctionTime("step", "train.py", 7, 1, 1, 10 * SECOND, 11 * SECOND),
    ]
    assert [one.is_worse for one in found.functions] == [True, False]
    assert (found.before_ns, found.after_ns) == (20 * SECOND, 25 * SECOND)
