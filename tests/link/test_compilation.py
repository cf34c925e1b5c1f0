"""Phases of torch.compile, and what ran the code that they made."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.data import foreign, traces
from builders.trace import MAIN, TraceBuilder, pairs
from tracelink import samples
from tracelink._link.compilation import BACKWARD_PHASE, LATENESS, latest, link_compilation
from tracelink._link.nesting import link_calls
from tracelink._link.rank import link_rank
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Key, Relation, Track, TrackKind
from tracelink._model.graph import LinkReport
from tracelink._model.trace import ListedPayloads, RankTrace

CODE = "c" + "a" * 51 + ".py"
OTHER_CODE = "c" + "b" * 51 + ".py"


class Compiling(TraceBuilder):
    """Events of a process that compiles; its compiler has a track of its own."""

    def phase(self, name: str, compile_id: str, start: int, end: int, **keys: int | str) -> int:
        track = Track(TrackKind.THREAD, MAIN.process, "compiler")
        if track not in self.tracks:
            self.tracks.append(track)
        place = self.tracks.index(track)
        return self.event(EventKind.COMPILATION, name, start, end, place, compile_id=compile_id, **keys)

    def region(self, compile_id: str, start: int, end: int, track: int = 0) -> int:
        return self.op(f"Torch-Compiled Region: {compile_id}", start, end, track)

    def graph(self, key: str, start: int, end: int, track: int = 0) -> int:
        return self.annotation(f"## Call CompiledFxGraph {key} ##", start, end, track)


def compiles(trace: RankTrace) -> list[tuple[int, int]]:
    """(phase, what ran its code), for all relations."""
    return pairs(link_rank(trace).edges, Relation.COMPILES)


def reports(trace: RankTrace) -> dict[str, LinkReport]:
    found = link_compilation(trace, link_calls(trace).edges)
    return {links.report.relation: links.report for links in found if links.report.candidates}


# Regions.


def test_region_is_of_the_outermost_phase_of_its_id() -> None:
    build = Compiling()
    first = build.phase("dynamo", "0/0", 0, 10)
    build.phase("backend_compile", "0/0", 2, 8)
    second = build.phase("dynamo", "0/1", 20, 30)
    regions = [build.region("0/0", 11, 12), build.region("0/0", 13, 14), build.region("0/1", 31, 32)]
    assert compiles(build.trace()) == [(first, regions[0]), (first, regions[1]), (second, regions[2])]


def test_copies_of_annotations_on_the_device_run_nothing() -> None:
    build = Compiling()
    stream = build.lane(TrackKind.STREAM, "7")
    phase = build.phase("dynamo", "0/0", 0, 10)
    region = build.annotation("Torch-Compiled Region: 0/0", 11, 12)
    build.event(EventKind.GPU_ANNOTATION, "Torch-Compiled Region: 0/0", 13, 15, stream)
    assert compiles(build.trace()) == [(phase, region)]


def test_region_is_of_the_last_compilation_before_it_if_ids_begin_again() -> None:
    build = Compiling()
    before, after = build.phase("dynamo", "0/0", 0, 10), build.phase("dynamo", "0/0", 20, 30)
    regions = [build.region("0/0", 11, 12), build.region("0/0", 31, 32)]
    assert compiles(build.trace()) == [(before, regions[0]), (after, regions[1])]


def test_reasons_of_regions_without_a_compilation() -> None:
    build = Compiling()
    build.phase("dynamo", "0/0", 10, 20)
    build.region("0/0", 1, 2)
    build.region("7/0", 21, 22)
    build.tracks.append(Track(TrackKind.THREAD, "4", "4"))
    build.region("0/0", 21, 22, len(build.tracks) - 1)
    assert reports(build.trace()) == {
        "compiles.region": LinkReport(
            "compiles.region",
            0,
            3,
            {
                "there is no compile log of its process": 1,
                "its compilation is not in the log": 1,
                "it ran before its compilation began": 1,
            },
            {"compilations that did not run in the recorded time": 1},
        )
    }


# Backward passes and graphs.


def test_backward_pass_is_of_the_compilation_of_its_forward_pass() -> None:
    build = Compiling()
    worker = build.lane(TrackKind.THREAD, "101")
    forward_phase = build.phase("dynamo", "0/0", 0, 10)
    build.phase("dynamo", "1/0", 10, 20)
    backward_phase = build.phase("entire_backward_compile", "0/0", 45, 50)
    region = build.region("0/0", 21, 30)
    build.op("CompiledFunction", 22, 29, sequence=5)
    backward = build.op("CompiledFunctionBackward", 40, 60, worker, sequence=5)
    again = build.op("CompiledFunctionBackward", 70, 80, worker, sequence=5)
    build.op("CompiledFunctionBackward", 90, 95, worker, sequence=6)
    trace = build.trace()
    assert compiles(trace) == [(forward_phase, region), (forward_phase, backward), (backward_phase, again)]
    assert reports(trace)["compiles.backward"].unlinked == {"its forward pass is not in the recording": 1}


def test_key_that_several_compilations_share_is_decided_by_the_region_and_by_the_sequence_number() -> None:
    build = Compiling()
    worker = build.lane(TrackKind.THREAD, "101")
    build.phase("dynamo", "0/0", 0, 10)
    build.phase("inductor_compile", "0/0", 2, 4, cache_key="fa")
    first_backward = build.phase("inductor_compile", "0/0", 5, 6, cache_key="fb")
    build.phase("dynamo", "0/1", 10, 20)
    second = build.phase("inductor_compile", "0/1", 12, 14, cache_key="fa")
    build.phase("inductor_compile", "0/1", 15, 16, cache_key="fb")
    build.region("0/1", 21, 30)
    build.op("CompiledFunction", 22, 29, sequence=1)
    forward = build.graph("fa", 23, 28)
    build.region("0/0", 31, 40)
    build.op("CompiledFunction", 32, 39, sequence=2)
    build.op("CompiledFunctionBackward", 50, 60, worker, sequence=2)
    backward = build.graph("fb", 51, 59, worker)
    trace = build.trace()
    found = compiles(trace)
    assert (second, forward) in found
    assert (first_backward, backward) in found
    assert reports(trace)["compiles.graph"].notes == {"linked by cache key": 2}


def test_graph_without_a_region_is_of_the_only_compilation_with_its_key() -> None:
    build = Compiling()
    only = build.phase("inductor_compile", "0/0", 2, 4, cache_key="fa")
    for number in (1, 2):
        build.phase("inductor_compile", f"{number}/0", 5, 6, cache_key="fb")
    graph = build.graph("fa", 10, 11)
    build.graph("fb", 12, 13)
    trace = build.trace()
    assert compiles(trace) == [(only, graph)]
    assert reports(trace)["compiles.graph"].unlinked == {
        "its key is not in the log, and no region is around it": 1
    }


def test_graph_without_a_key_is_of_the_region_around_it() -> None:
    build = Compiling()
    phase = build.phase("dynamo", "0/0", 0, 10)
    region = build.region("0/0", 11, 20)
    graph = build.graph("None", 12, 19)
    kernel = build.op("graph_0_cpp_fused_add_0", 13, 14)
    trace = build.trace()
    assert compiles(trace) == [(phase, region), (phase, graph), (phase, kernel)]
    assert reports(trace)["compiles.graph"].notes == {"linked by the region around it": 1}


def test_graph_without_a_key_is_the_only_one_of_its_compilation() -> None:
    build = Compiling()
    worker = build.lane(TrackKind.THREAD, "101")
    build.phase("dynamo", "0/0", 0, 10)
    phase = build.phase("inductor_compile", "0/0", 2, 8)
    build.phase("entire_backward_compile", "0/0", 30, 40)
    of_backward = build.phase("inductor_compile", "0/0", 31, 39)
    two = build.phase("dynamo", "1/0", 50, 60)
    for start in (51, 55):
        build.phase("inductor_compile", "1/0", start, start + 3)
    build.region("0/0", 11, 20)
    graph = build.graph("None", 12, 19)
    build.op("CompiledFunction", 13, 18, sequence=1)
    build.op("CompiledFunctionBackward", 41, 49, worker, sequence=1)
    backward = build.graph("None", 42, 48, worker)
    build.region("1/0", 61, 70)
    ambiguous = build.graph("None", 62, 69)
    found = compiles(build.trace())
    assert {(phase, graph), (of_backward, backward), (two, ambiguous)} <= set(found)


def test_kernel_on_the_device_is_of_the_graph_that_launched_it() -> None:
    build = Compiling()
    stream = build.lane(TrackKind.STREAM, "7")
    build.phase("dynamo", "0/0", 0, 10)
    phase = build.phase("inductor_compile", "0/0", 2, 4, cache_key="fa")
    build.region("0/0", 11, 20)
    build.graph("fa", 12, 19)
    build.event(EventKind.RUNTIME, "cuLaunchKernel", 13, 14, correlation=1)
    kernel = build.kernel("triton_poi_fused_add_0", 30, 40, stream, correlation=1)
    assert (phase, kernel) in compiles(build.trace())


def test_kernels_have_the_lines_of_the_program_that_they_compute() -> None:
    build = Compiling()
    build.phase("dynamo", "0/0", 0, 10)
    build.phase("inductor_compile", "0/0", 2, 4, kernel_sources="cpp_fused_add_0: train.py:15 (forward)")
    build.region("0/0", 11, 20)
    build.graph("None", 12, 19)
    kernel = build.op("graph_0_cpp_fused_add_0", 13, 14)
    build.op("graph_0_cpp_fused_mul_1", 15, 16)
    trace = build.trace()
    linked = link_rank(trace).trace
    lines = linked.key(Key.SOURCE_LINES)
    assert [
        (row, linked.strings.texts()[code]) for row, code in zip(lines.rows, lines.values, strict=True)
    ] == [(kernel, "train.py:15 (forward)")]
    assert reports(trace)["compiles.kernel"].notes == {"with the lines of the program that they compute": 1}


def test_kernels_of_a_compilation_from_a_cache_have_the_lines_of_the_one_that_stored_it() -> None:
    build = Compiling()
    build.phase("dynamo", "0/0", 0, 10)
    build.phase(
        "inductor_compile", "0/0", 2, 4, cache_key="fa", kernel_sources="triton_poi_fused_0: a.py:1 (f)"
    )
    cached = build.phase("dynamo", "0/1", 20, 30)
    build.region("0/1", 31, 40)
    build.graph("fa", 32, 39)
    kernel = build.op("triton_poi_fused_0", 33, 34)
    linked = link_rank(build.trace())
    assert (cached, kernel) in pairs(linked.edges, Relation.COMPILES)
    lines = linked.trace.key(Key.SOURCE_LINES)
    assert [linked.trace.strings.texts()[code] for code in lines.values] == ["a.py:1 (f)"]


# Generated kernels without a graph around them: by their files (torch records them for Triton), else by their names.


def with_arguments(build: Compiling, arguments: dict[int, object]) -> RankTrace:
    payloads = [json.dumps(arguments.get(row, {})).encode() for row in range(len(build.rows))]
    return replace(build.trace(), payloads=[ListedPayloads(payloads)])


TRITON, OTHER_TRITON = "triton_poi_fused_add_0", "triton_red_fused_sum_1"


def two_compilations_with_kernels(build: Compiling) -> tuple[int, int]:
    """Both generate the kernel of the same name, in different files; the second one also another kernel."""
    for compile_id, start in (("0/0", 0), ("1/0", 20)):
        build.phase("dynamo", compile_id, start, start + 10)
    first = build.phase("inductor_compile", "0/0", 2, 8, kernel_files=f"{TRITON}: cab.py")
    build.phase("inductor_compile", "1/0", 22, 25, kernel_files=f"{TRITON}: ccd.py")
    second = build.phase("inductor_compile", "1/0", 26, 28, kernel_files=f"{OTHER_TRITON}: cef.py")
    return first, second


def test_triton_kernel_is_of_the_phase_that_generated_its_file() -> None:
    build = Compiling()
    stream = build.lane(TrackKind.STREAM, "7")
    first, second = two_compilations_with_kernels(build)
    by_path = build.op(TRITON, 40, 49)
    build.event(EventKind.RUNTIME, "cuLaunchKernel", 42, 43, correlation=1)
    on_device = build.kernel(TRITON, 60, 70, stream, correlation=1)
    by_hash = build.op(OTHER_TRITON, 50, 55)
    unknown_file = build.op(TRITON, 56, 57)
    trace = with_arguments(
        build,
        {
            by_path: {"kernel_backend": "triton", "kernel_file": "/tmp/other_folder/ab/cab.py"},
            by_hash: {"kernel_hash": "cef"},
            unknown_file: {"kernel_file": "/tmp/cgone.py"},
        },
    )
    assert compiles(trace) == [(first, by_path), (first, on_device), (second, by_hash)]
    (report,) = (one for one in link_rank(trace).reports if one.relation == "compiles.kernel")
    assert report == LinkReport(
        "compiles.kernel",
        3,
        4,
        {"no compiled graph is around it, and no single compilation generated its file or its name": 1},
        {"linked by the file of the kernel": 3},
    )


def test_triton_kernel_without_a_file_is_of_the_only_compilation_with_its_name() -> None:
    build = Compiling()
    _, second = two_compilations_with_kernels(build)
    ambiguous, only = build.op(TRITON, 40, 41), build.op(OTHER_TRITON, 42, 43)
    trace = with_arguments(build, {ambiguous: {}, only: {}})
    assert compiles(trace) == [(second, only)]
    assert reports(trace)["compiles.kernel"].notes == {"linked by the name of the kernel": 1}


def test_triton_node_of_an_execution_trace_has_the_file_without_its_folder() -> None:
    build = Compiling()
    first, _ = two_compilations_with_kernels(build)
    node = build.node(TRITON, 2)
    attributes = [{"name": "kernel_backend", "value": "triton"}, {"name": "kernel_file", "value": "cab.py"}]
    trace = with_arguments(build, {node: {"attrs": attributes}})
    assert compiles(trace) == [(first, node)]


# Files with generated code.


def test_python_function_is_of_the_phase_that_generated_its_file() -> None:
    build = Compiling()
    phase = build.phase("inductor_compile", "0/0", 0, 10, output_code=f"/tmp/aa/{CODE}")
    call = build.event(EventKind.PYTHON, f"/somewhere/else/{CODE}(153): call", 11, 12)
    build.event(EventKind.PYTHON, f"{OTHER_CODE}(1): call", 13, 14)
    build.event(EventKind.PYTHON, f"/tmp/aa/{CODE}(1): <module>", 5, 6)
    trace = build.trace()
    assert compiles(trace) == [(phase, call)]
    assert reports(trace)["compiles.code"].unlinked == {"its file is not in the log": 1}


def test_entry_is_of_the_phase_that_generated_the_innermost_file_of_its_stack() -> None:
    build = Compiling()
    phase = build.phase("inductor_compile", "0/0", 0, 10, output_code=f"/tmp/aa/{CODE}")
    rows = [build.record("gloo:all_reduce", start) for start in (11, 12, 13, 14)]
    frames: list[object] = [
        [
            {"name": "all_reduce", "filename": "c10d.py"},
            {"name": "call", "filename": f"/x/{CODE}", "line": 3},
        ],
        [{"name": "call", "filename": f"/x/{OTHER_CODE}"}],
        [{"name": "call", "filename": "train.py"}],
    ]
    texts = [json.dumps({"frames": one}).encode() for one in frames]
    payloads = ListedPayloads([b"{}"] * rows[0] + texts + [b"damaged"])
    trace = replace(build.trace(), payloads=[payloads])
    assert compiles(trace) == [(phase, rows[0])]
    assert reports(trace)["compiles.recorder"] == LinkReport(
        "compiles.recorder", 1, 2, {"the code that called it is not in the log": 1}
    )


# Phases that a profile has, too.


def test_phase_is_the_first_operator_of_its_name_within_it() -> None:
    build = Compiling()
    outer = build.phase("passes", "0/0", 0, 100)
    inner = build.phase("passes", "0/0", 20, 50)
    build.phase("compile_file", "0/0", 30, 40)
    build.phase("code_gen", "0/0", 41, 42)
    build.phase("passes", "0/0", 5_000, 6_000)
    ops = [build.op("passes", 1, 99), build.op("passes", 21, 49)]
    build.op("passes (dynamo_timed)", 2, 98)
    trace = build.trace()
    assert pairs(link_rank(trace).edges, Relation.SAME) == [(outer, ops[0]), (inner, ops[1])]
    assert reports(trace)["same.compile_kineto"] == LinkReport(
        "same.compile_kineto",
        2,
        4,
        {
            "compile_file of a worker thread, which was not profiled": 1,
            "no operator of its name ran then": 1,
        },
        {"phases outside the profiled time": 1},
    )


def test_before_torch_2_13_a_phase_is_the_operator_of_its_function() -> None:
    build = Compiling()
    phase = build.phase("inductor_compile", "0/0", 0, 100, compiled_function="compile_fx_inner")
    operator = build.annotation("compile_fx_inner (dynamo_timed)", 1, 99)
    assert pairs(link_rank(build.trace()).edges, Relation.SAME) == [(phase, operator)]


def test_operator_that_ends_long_after_the_phase_is_another_one() -> None:
    build = Compiling()
    build.phase("passes", "0/0", 0, 100)
    build.op("passes", 1, 102 + LATENESS)
    assert pairs(link_rank(build.trace()).edges, Relation.SAME) == []


# Searching.


SMALL = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12)


@given(SMALL, SMALL)
def test_latest_is_the_last_row_of_the_group_that_is_not_later(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    columns = [np.array([one[side] for one in part], np.int64) for part in (rows, wanted) for side in (0, 1)]
    expected = [
        max(
            ((at, row) for row, (of, at) in enumerate(rows) if of == group and at <= time),
            default=(0, UNKNOWN),
        )[1]
        for group, time in wanted
    ]
    assert latest(*columns).tolist() == expected


IDS = st.sampled_from(["0/0", "0/1", "!0/1/0"])
PHASES = st.lists(st.tuples(IDS, st.integers(0, 20), st.integers(1, 20), st.booleans()), max_size=8)
REGIONS = st.lists(st.tuples(IDS, st.integers(0, 45)), max_size=8)


@given(PHASES, REGIONS)
def test_region_is_of_the_last_outermost_forward_phase_of_its_id(
    phases: list[tuple[str, int, int, bool]], regions: list[tuple[str, int]]
) -> None:
    build = Compiling()
    for compile_id, start, length, backward in phases:
        build.phase(BACKWARD_PHASE if backward else "dynamo", compile_id, start, start + length)
    first = len(phases)
    for compile_id, start in regions:
        build.region(compile_id, start, start + 1)
    outermost: dict[str, list[int]] = {}
    end: dict[str, int] = {}
    for row in sorted(range(first), key=lambda row: (phases[row][1], -phases[row][2], row)):
        compile_id, start, length, _ = phases[row]
        if start >= end.get(compile_id, -1):
            outermost.setdefault(compile_id, []).append(row)
            end[compile_id] = start + length
    expected = []
    for number, (compile_id, time) in enumerate(regions):
        before = [
            row for row in outermost.get(compile_id, []) if phases[row][1] <= time and not phases[row][3]
        ]
        expected += [(before[-1], first + number)] if before else []
    assert compiles(build.trace()) == sorted(expected)


# Recorded jobs: every row of section 6 of the facts on compile logs.


COMPILE_JOB = {
    "compiles.region": [(6, 6), (9, 9)],
    "compiles.backward": [(3, 3)] * 2,
    "compiles.graph": [(9, 9), (12, 12)],
    "compiles.recorder": [(6, 6)] * 2,
    "same.compile_kineto": [(229, 229), (282, 282)],
}
COMPILE_FAULTS = {
    "compiles.region": [(9, 9)],
    "compiles.backward": [(2, 2)],
    "compiles.graph": [(1, 1)],
    "compiles.kernel": [(1, 1)],
    "same.compile_kineto": [(139, 139)],
    "same.et_kineto": [(2215, 2215)],
}
FOUR_RANKS = {
    "compiles.region": [(12, 12), (12, 12), (13, 13), (12, 12)],
    "compiles.backward": [(4, 4)] * 4,
    "compiles.graph": [(16, 16)] * 4,
    "compiles.recorder": [(12, 12), (12, 12), (20, 20), (12, 12)],
    "same.compile_kineto": [(248, 248), (248, 248), (322, 322), (248, 248)],
}
ONE_RANK = {
    "compiles.region": [(3, 3)],
    "compiles.backward": [(3, 3)],
    "compiles.graph": [(6, 6)],
    "compiles.kernel": [(9, 9)],
    "same.compile_kineto": [(83, 83)],
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("compile_job", COMPILE_JOB),
        ("compile_faults", COMPILE_FAULTS),
        *foreign(("torch_trace/multirank_matched", FOUR_RANKS), ("torch_trace/matched_small", ONE_RANK)),
    ],
)
def test_recorded_jobs(path: str, expected: dict[str, list[tuple[int, int]]]) -> None:
    """Linked and candidates, rank by rank."""
    reports = tracelink.load(traces(path)).reports
    found: dict[str, list[tuple[int, int]]] = {}
    for rank in sorted(reports):
        for report in reports[rank]:
            found.setdefault(report.relation, []).append((report.linked, report.candidates))
    assert {relation: found[relation] for relation in expected} == expected


def test_sample() -> None:
    found = tracelink.load(samples.path("compile_job")).reports
    compiled = {
        rank: {report.relation: (report.linked, report.candidates) for report in found[rank]}
        for rank in found
    }
    assert {
        rank: {name: value for name, value in each.items() if "compile" in name}
        for rank, each in compiled.items()
    } == {
        0: {
            "same.compile_kineto": (229, 229),
            "compiles.region": (6, 6),
            "compiles.backward": (3, 3),
            "compiles.graph": (9, 9),
            "compiles.recorder": (6, 6),
        },
        1: {
            "same.compile_kineto": (282, 282),
            "compiles.region": (9, 9),
            "compiles.backward": (3, 3),
            "compiles.graph": (12, 12),
            "compiles.recorder": (6, 6),
        },
    }
