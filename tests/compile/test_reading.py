"""What compile logs show: compilations, graph breaks, failures, open work, caches."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import tracelink
from builders.compile_log import artifact, begin, instant, log, metrics, record
from builders.compile_log import started as starting
from builders.data import shared, traces
from tracelink import samples
from tracelink._compile.model import (
    CacheUse,
    CompileReport,
    Divergence,
    Failure,
    GraphBreak,
    OpenPhase,
    PartialHit,
    Status,
)
from tracelink._compile.summary import breaks_of, functions_of, guards_of, headlines
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError, UsageError


def report(folder: Path, *ranks: bytes) -> CompileReport:
    """The report of ranks with these logs."""
    folder.mkdir(exist_ok=True)
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return tracelink.compile(folder)


def statuses(found: CompileReport) -> list[tuple[str, str, str]]:
    return [(one.id, one.function, one.status.value) for one in found.compiles]


def test_status_of_compilations(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        log(
            metrics("0/0", co_name="good", graph_op_count=3),
            metrics("1/0", co_name="nothing", graph_op_count=0),
            metrics("2/0", co_name="broken", graph_op_count=1, restart_reasons=["print"]),
            metrics("3/0", co_name="bad", fail_type="Unsupported", fail_reason="why\nmore"),
            record("dynamo_start", {"stack": []}, compile_id="4/0"),
            begin("entire_frame_compile", "5/0", at=3),
        ),
    )
    assert statuses(found) == [
        ("0/0", "good", "ok"),
        ("1/0", "nothing", "empty"),
        ("2/0", "broken", "break"),
        ("3/0", "bad", "error"),
        ("4/0", "", "unknown"),
        ("5/0", "", "open"),
    ]
    assert found.failures == [Failure(0, "3/0", "bad", "why\nmore", type="Unsupported")]
    assert not found.is_clean


def test_function_that_exceeds_the_recompile_limit_has_the_name_of_its_frame(tmp_path: Path) -> None:
    limit = metrics(
        "1/8", fail_type="Unsupported", fail_reason="limit", recompile_reason="1/7: s.i == 1   # if s.i"
    )
    found = report(tmp_path, log(metrics("1/0", co_name="step"), limit))
    last = found.compiles[-1]
    assert (last.function, last.recompile_of, last.reason) == ("step", "1/7", "s.i == 1")


def test_graph_breaks(tmp_path: Path) -> None:
    text = (
        "Graph break in user code at /home/me/train.py:17\nGraph Break Reason: Failed to trace print\n  Hint: none\n\n"
        "User code traceback:\n  somewhere"
    )
    breaks = [artifact("dynamo_graph_break_reason", text, "0/0")] * 2
    found = report(tmp_path, log(*breaks, artifact("dynamo_graph_break_reason", "no place", "1/0")))
    assert found.graph_breaks == [
        GraphBreak(0, "0/0", "", "Failed to trace print\n  Hint: none", "/home/me/train.py", 17, 2),
        GraphBreak(0, "1/0", "", "no place"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Graph Break Reason: " + "\n" * 50_000,
        "Graph Break Reason: " * 2_500 + "\n \n" * 8_000,
        "Graph break in user code at " * 1_800,
        "Graph break encountered:" * 2_000,
    ],
)
def test_50_kb_of_a_graph_break_take_linear_time(tmp_path: Path, text: str) -> None:
    file = log(artifact("dynamo_graph_break_reason", text, "0/0"))
    before = time.process_time()
    report(tmp_path, file)
    assert time.process_time() - before < 1


def test_a_graph_break_costs_its_attempts_and_what_goes_on_after_it(tmp_path: Path) -> None:
    def broken(compile_id: str, line: int, function: str, at: float) -> str:
        text = (
            f"Graph break in user code at /me/train.py:{line}\nGraph Break Reason: print\n\nUser code traceback:\n"
            f'  File "/me/train.py", line 90, in main\n    step()\n'
            f'  File "/me/train.py", line {line}, in {function}\n    print()\n'
        )
        return artifact("dynamo_graph_break_reason", text, compile_id, at=at)

    file = {"co_filename": "/me/train.py"}
    again = {**file, "restart_reasons": ["print"], "dynamo_time_before_restart_s": 0.5}
    resumed = "torch_dynamo_resume_in_step_at_"
    found = report(
        tmp_path,
        log(
            broken("0/0", 17, "step", 1),
            metrics("0/0", co_name="step", start=0, seconds=2, **again),
            broken("1/0", 19, f"{resumed}17", 3),
            metrics("1/0", co_name=f"{resumed}17", start=2, seconds=3, **again),
            metrics("2/0", co_name=f"{resumed}19", start=5, seconds=4, **file),
            broken("0/1", 17, "step", 10),
            metrics("0/1", co_name="step", start=9, seconds=2, **again),
            metrics("1/1", co_name=f"{resumed}17", start=11, seconds=5, **file),
            metrics("1/0", start=20, seconds=1, backward=True),
            metrics("3/0", co_name="torch_dynamo_resume_in_other_at_17", start=30, seconds=7, **file),
        ),
    )
    assert [(one.id, one.line, one.cost_ns) for one in found.graph_breaks] == [
        ("0/0", 17, 4.5 * SECOND),
        ("1/0", 19, 4.5 * SECOND),
        ("0/1", 17, 5.5 * SECOND),
    ]
    (often, once) = breaks_of(found)
    assert (often.line, often.times, often.time_ns) == ("train.py:17", 2, 10 * SECOND)
    assert (once.line, once.times, once.time_ns) == ("train.py:19", 1, 4.5 * SECOND)
    assert [(one.function, one.breaks) for one in functions_of(found)[:3]] == [
        (f"{resumed}17 [1]", 1),
        ("torch_dynamo_resume_in_other_at_17 [3]", 0),
        ("step [0]", 2),
    ]


def test_where_an_open_compilation_is_defined(tmp_path: Path) -> None:
    strings = record("str", ["/me/train.py", 0])
    (one,) = report(tmp_path, log(strings, starting("0/0", "step"), begin("dynamo", "0/0", at=1))).compiles
    assert (one.file, one.line, one.called_at) == ("/me/train.py", 12, "train.py:90 (main)")


def test_open_work_is_the_longest_first(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        log(
            starting("0/0", "call", at=1),
            begin("dynamo", "0/0", at=1, fn_name="_compile.compile_inner"),
            begin("wait", "0/0", at=3),
            instant("x", at=5),
        ),
    )
    assert [(one.name, one.id, one.for_ns, one.function) for one in found.open] == [
        ("dynamo", "0/0", 4 * SECOND, "call"),
        ("wait", "0/0", 2 * SECOND, "call"),
    ]
    assert isinstance(found.open[0], OpenPhase)
    assert headlines(found) == [
        "Rank 0 was compiling call [0/0] when its log ends: dynamo has been open for 4.0 s, and wait began last."
    ]


def test_caches(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        log(
            artifact("fx_graph_cache_miss", '{"key": "abc"}', "0/0"),
            artifact("aotautograd_cache_hit", "damaged", "0/0"),
        ),
    )
    assert found.caches == [
        CacheUse(0, "0/0", "fx_graph_cache", "miss", "abc"),
        CacheUse(0, "0/0", "aotautograd_cache", "hit", ""),
    ]


# Differences between ranks.


def test_rank_that_compiles_something_else(tmp_path: Path) -> None:
    same = log(metrics("0/0", co_name="step"), metrics("1/0", co_name="loss"))
    other = log(
        metrics("0/0", co_name="step"), metrics("1/0", co_name="extra"), metrics("2/0", co_name="loss")
    )
    found = report(tmp_path, same, same, other, same)
    assert found.divergences == [
        Divergence((2,), "compile", "1/0", "1/0 extra: compiled", "1/0 loss: compiled")
    ]


def test_two_ranks_that_differ_are_a_tie(tmp_path: Path) -> None:
    one, two = log(metrics("0/0", co_name="step")), log(metrics("0/0", co_name="loss"))
    (found,) = report(tmp_path, one, two).divergences
    assert (found.outliers, found.tie) == ((0, 1), True)


def test_collectives_of_every_graph_of_a_compilation(tmp_path: Path) -> None:
    """Forward and backward share an id."""

    def rank(backward: str) -> bytes:
        schedules = [
            artifact("inductor_collective_schedule", text, "0/0") for text in ('["all_reduce"]', backward)
        ]
        return log(*schedules)

    found = report(tmp_path, rank("[]"), rank("[]"), rank('["all_gather"]'))
    assert [(one.outliers, one.what, one.found, one.expected) for one in found.divergences] == [
        ((2,), "collectives", "0/0 all_gather (1 of 1)", "0/0 no collective")
    ]


def graph(text: str, compile_id: str = "0/0") -> str:
    return record("dynamo_output_graph", {}, text, compile_id=compile_id)


def code(text: str, compile_id: str = "0/0") -> str:
    return record("inductor_output_code", {}, text, compile_id=compile_id)


def test_graph_that_differs(tmp_path: Path) -> None:
    """Generated code that differs as a consequence is not reported."""
    step = metrics("0/0", co_name="step")
    same = log(graph("a = x + 1\nreturn a"), code("one"), step)
    other = log(graph("a = x + 1\nb = sin(a)\nreturn b"), code("two"), step)
    found = report(tmp_path, same, other, same)
    assert found.divergences == [Divergence((1,), "graphs", "0/0", "0/0 b = sin(a)", "0/0 return a")]


def test_generated_code_that_differs(tmp_path: Path) -> None:
    """On a rank with other numbers of artifacts too."""
    step = metrics("0/0", co_name="step")
    same = log(graph("g"), code("x = 1\ny = 22"), step)
    other = log(artifact("note", "n", "0/0"), graph("g"), code("x = 1\ny = 23"), step)
    found = report(tmp_path, same, same, same, other)
    assert found.divergences == [Divergence((3,), "generated code", "0/0", "0/0 y = 23", "0/0 y = 22")]


def test_devices_paths_groups_and_cache_hits_are_no_divergence(tmp_path: Path) -> None:
    def rank(number: int) -> bytes:
        device = f"torch.cuda._DeviceGuard({number}); empty((2,), 'cuda:{number}'); stream{number}"
        text = f"# AOT ID: ['{number}_forward']\n{device}\nall_reduce(x, 'sum', '{number + 7}')  # /tmp/u{number}/k.py"
        cached = [] if number else [record("aot_joint_graph", {}, "joint", compile_id="0/0")]
        return log(graph(f"x.to(device(type='cuda', index={number}))"), *cached, code(text), metrics("0/0"))

    assert report(tmp_path, *map(rank, range(4))).divergences == []


def test_functions_of_one_id_are_not_compared(tmp_path: Path) -> None:
    """That another function was compiled is the divergence."""
    found = report(
        tmp_path,
        *[log(graph(name), metrics("0/0", co_name=name)) for name in ("step", "step", "loss")],
    )
    assert [(one.outliers, one.what) for one in found.divergences] == [((2,), "compile")]


def test_guard_that_failed_on_one_rank_only(tmp_path: Path) -> None:
    def rank(guard: str) -> bytes:
        return log(metrics("0/1", co_name="step", recompile_reason=f"0/0: {guard}  # x"))

    sizes = [f"tensor 'x' size mismatch at index 0. expected 8, actual {size}" for size in (9, 10)]
    assert report(tmp_path, *map(rank, sizes)).divergences == []
    found = report(tmp_path, *map(rank, ["s.i == 1", "s.i == 1", "s.lr == 0.1"]))
    assert found.divergences == [
        Divergence((2,), "recompilations", "0/1", "0/1 0/0: s.lr == 0.1", "0/1 0/0: s.i == 1")
    ]


def test_caches_that_hit_on_some_ranks_only(tmp_path: Path) -> None:
    def rank(state: str) -> bytes:
        return log(artifact(f"fx_graph_cache_{state}", "{}", "0/0"), metrics("0/0", co_name="step"))

    found = report(tmp_path, *map(rank, ["hit", "miss", "hit", "bypass"]))
    assert found.partial_hits == [PartialHit("0/0", "step", "fx_graph_cache", (0, 2), (1, 3))]
    assert (found.divergences, found.is_clean) == ([], True)
    assert report(tmp_path, *map(rank, ["hit"] * 4)).partial_hits == []


# Inputs.


def test_files_of_other_formats_are_left_out() -> None:
    found = tracelink.compile(samples.path("compile_job"))
    assert (list(found.ranks), len(found.sources)) == ([0, 1], 2)


def test_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(UnreadableError, match="no compile log found: this file is something else") as caught:
        tracelink.compile(tmp_path)
    assert "TORCH_TRACE=DIR" in caught.value.advice


def test_frames(tmp_path: Path) -> None:
    found = report(tmp_path, log(metrics("0/0", co_name="step", seconds=2)))
    assert found.to_pandas("compiles")["duration_ns"].tolist() == [2 * SECOND]
    with pytest.raises(UsageError, match="no table 'compile'"):
        found.to_pandas("compile")


# A forked process writes its own log, which names files by the numbers of its parent.


STACK = [
    {"line": 3, "name": "train", "filename": 0},
    {"line": 8, "name": "step", "filename": 1},
    {"line": 12, "name": "forward", "filename": 1},
]
FILES = log(record("str", ["/home/me/train.py", 0]), record("str", ["/home/me/model.py", 1]))


def started(compile_id: str, at: float) -> str:
    start = record("dynamo_start", {"stack": STACK}, compile_id=compile_id, at=at)
    return begin("dynamo", compile_id, at=at) + start


def called_at(folder: Path) -> list[tuple[str, str]]:
    return [(one.id, one.called_at) for one in tracelink.compile(folder).compiles]


def test_log_of_a_forked_process_has_the_names_of_files_of_its_parent(tmp_path: Path) -> None:
    parent, child = FILES + log(started("0/0", 1)), log(started("1/0", 2))
    (tmp_path / "dedicated_log_torch_trace_a.log").write_bytes(child.replace(b" 4711 ", b" 4712 "))
    (tmp_path / "dedicated_log_torch_trace_b.log").write_bytes(parent)
    assert called_at(tmp_path) == [("0/0", "model.py:8 (step)"), ("1/0", "model.py:8 (step)")]


def test_log_of_a_later_process_or_another_folder_names_no_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "dedicated_log_torch_trace_a.log").write_bytes(FILES + log(started("0/0", 1)))
    (tmp_path / "b" / "dedicated_log_torch_trace_b.log").write_bytes(FILES + log(started("0/1", 5)))
    (tmp_path / "b" / "dedicated_log_torch_trace_c.log").write_bytes(log(started("1/0", 2)))
    assert called_at(tmp_path) == [
        ("0/0", "model.py:8 (step)"),
        ("1/0", "(unknown):8 (step)"),
        ("0/1", "model.py:8 (step)"),
    ]


# Logs that others renamed, and old ones.


def test_a_renamed_log_has_the_rank_of_its_name(tmp_path: Path) -> None:
    content = log(metrics("0/0", co_name="step"), instant("x", at=1)).replace(
        b'"frame_id"', b'"rank": 1, "frame_id"'
    )
    found = report(tmp_path, *[content] * 3)
    assert (list(found.ranks), found.divergences) == ([0, 1, 2], [])
    assert [(one.reason, one.count) for one in found.findings] == [("renamed_log", 1)] * 2


def test_functions_of_ranks_with_the_same_number_are_not_mixed(tmp_path: Path) -> None:
    found = report(tmp_path, log(metrics("0/0", co_name="a")), log(metrics("0/0", co_name="b", seconds=2)))
    assert [(one.function, one.ranks, one.time_ns) for one in functions_of(found)] == [
        ("b [0]", {1}, 2 * SECOND),
        ("a [0]", {0}, SECOND),
    ]


def test_guards_about_objects_are_one_reason(tmp_path: Path) -> None:
    """Their numbers differ in each process."""
    ranks = [
        log(
            metrics("0/0", co_name="step"),
            metrics("0/1", co_name="step", recompile_reason=f"0/0: ___check_obj_id(fn, {number})  # fn"),
        )
        for number in (139_645_370_122_560, 140_439_264_606_080)
    ]
    (reason,) = guards_of(report(tmp_path, *ranks).compiles)
    assert (reason.reason, reason.times) == ("___check_obj_id(fn, ...) (2 different ones)", 2)


def test_other_artifacts_of_caches_are_no_answers(tmp_path: Path) -> None:
    assert report(tmp_path, log(artifact("aotautograd_cache_hash", "{}", "0/0"))).caches == []


# Differences that are none.


def test_graphs_that_differ_in_comments_only_are_the_same(tmp_path: Path) -> None:
    def graph(comment: str, line: str) -> bytes:
        text = f"def forward(x):\n    # {comment}\n    {line}\n"
        return log(metrics("0/0", co_name="step"), artifact("dynamo_output_graph", text, "0/0"))

    same = [graph(comment, "return x") for comment in ("by a", "by a", "by b")]
    assert report(tmp_path / "1", *same).divergences == []
    other = [graph("by a", "return x"), graph("by a", "return x"), graph("by b", "return y")]
    assert [(one.outliers, one.found) for one in report(tmp_path / "2", *other).divergences] == [
        ((2,), "0/0 return y")
    ]


# Recorded logs.


def test_recorded_faults() -> None:
    """Before the process group exists, a graph break, recompiled until the limit, failed, autograd, forked."""
    found = tracelink.compile(traces("compile_faults"))
    forward = [one.id for one in found.compiles if not one.backward]
    assert forward == [
        *("0/0", "1/0", "2/0", "3/0", "4/0", "4/1", "4/2", "4/3", "5/0", "5/1", "6/0", "1/1", "!0/7/0", "8/0")
    ]
    assert [one.id for one in found.compiles if one.backward] == ["5/0", "5/1"]
    assert [one.id for one in found.compiles if one.status is Status.ERROR] == ["4/3", "6/0"]
    assert [one.id for one in found.compiles if one.recompile_of] == ["4/1", "4/2", "4/3", "5/1", "1/1"]
    assert [one.id for one in found.graph_breaks] == ["2/0"]
    assert (found.divergences, found.open, len(found.runs)) == ([], [], 1)


def test_harmless_differences_of_ranks_are_no_divergence() -> None:
    """Names of files, keys and times differ; the graphs of rank 1 differ by its graph break only."""
    found = tracelink.compile(samples.path("compile_job")).divergences
    assert [(one.what, one.id) for one in found] == [("compile", "1/0"), ("graphs", "1/0")]


@pytest.mark.foreign
def test_recorded_outlier() -> None:
    found = tracelink.compile(shared("torch_trace/multirank_matched"))
    assert found.divergences == [
        Divergence((2,), "compile", "2/2", "2/2 local: graph break", "nothing"),
        Divergence(
            (2,), "collectives", "0/0", "0/0 all_reduce_ (4 of 6)", "0/0 nothing after wait_tensor (3 of 3)"
        ),
        Divergence(
            (2,),
            "graphs",
            "0/0",
            '0/0 tensor_1: "f32[8, 32][32, 1]cpu" = torch.ops._c10d_functional.all_reduce(h_1, \'…',
            '0/0 linear_1: "f32[8, 32][32, 1]cpu" = torch._C._nn.linear(h_1, l_lin2_parameters_w…',
        ),
        Divergence(
            (2,),
            "tensors",
            "0/0",
            "0/0 all_reduce_ makes nothing",
            "0/0 extern_kernels.addmm makes float32[8,32], stride [32,1]",
        ),
        Divergence(
            (2,),
            "execution order",
            "3/0",
            "3/0 torch_dynamo_resume_in_local_at_32 (number 11)",
            "2/1 local (number 11)",
        ),
    ]


def test_report_in_a_few_lines(tmp_path: Path) -> None:
    found = repr(report(tmp_path, log(metrics("0/0", co_name="step"))))
    assert found.splitlines()[0] == (
        "<CompileReport: 1 compilation of 1 function took 1.0 s: 0 recompiled, 0 graph breaks, 0 failed."
    )
    assert found.splitlines()[1].startswith("  tables: compiles 1, graph_breaks 0, failures 0, open 0")
