"""Execution-trace nodes and the operators that they describe."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.data import foreign, plain, shared, traces
from builders.nsys import SESSION_NS, Export
from builders.trace import TraceBuilder, pairs
from tracelink import samples
from tracelink._link.launch import link_launches
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._link.same import link_execution, link_ranges, link_recorder, link_recorder_kernels, nearest
from tracelink._model.columns import MICROSECOND, SECOND, UNKNOWN
from tracelink._model.events import EventKind, Events, Key, Relation, Track, TrackKind
from tracelink._model.findings import Severity
from tracelink._model.trace import RankTrace, SourceInfo, combine

PROCESS = "[pytorch|profiler|execution_trace|process]"
THREAD = "[pytorch|profiler|execution_trace|thread]"


def test_equal_record_function_ids_and_names_link() -> None:
    build = TraceBuilder()
    build.node(PROCESS, 1)
    build.node(THREAD, 2)
    mm = build.node("aten::mm", 3, record_function=10)
    relu = build.node("aten::relu", 4, record_function=11)
    build.node("## process_group:init ##", 5, record_function=2)
    profiled = [
        build.op("aten::mm", 0, 5, record_function=10),
        build.op("aten::relu", 6, 9, record_function=11),
    ]

    links = link_execution(build.trace())

    assert pairs(links.edges) == list(zip([mm, relu], profiled, strict=True))
    assert (links.report.linked, links.report.candidates) == (2, 2)
    assert links.report.notes == {
        "nodes outside the profiled time": 1,
        "linked by record-function id": 2,
    }


def test_an_id_with_another_name_is_not_the_same_operator() -> None:
    build = TraceBuilder()
    for number in (1, 2, 3):
        build.node(f"op {number}", number, record_function=number)
    build.op("op 1", 0, 1, record_function=1)
    build.op("another", 2, 3, record_function=2)
    build.op("op 3", 4, 5, record_function=3)
    report = link_execution(build.trace()).report
    assert (report.linked, report.candidates) == (2, 3)
    assert report.unlinked == {"the profile has a different name for its id": 1}


def test_external_ids_serve_where_they_are_the_record_function_ids() -> None:
    build = TraceBuilder()
    nodes = [build.node(f"op {number}", number + 2, record_function=number) for number in (1, 2)]
    ops = [build.op(f"op {number}", number, number + 1, external_id=number) for number in (1, 2)]
    links = link_execution(build.trace())
    assert pairs(links.edges) == list(zip(nodes, ops, strict=True))
    assert links.report.notes == {"linked by External id": 2}


def test_without_ids_the_order_on_each_thread_decides() -> None:
    build = TraceBuilder()
    worker = build.lane(TrackKind.THREAD, "101")
    forward = [build.node(name, number) for number, name in enumerate(["mm", "relu", "mm"], start=3)]
    backward = [build.node(name, number, thread=2) for number, name in enumerate(["mmB", "reluB"], start=9)]
    on_worker = [build.op(name, n * 10, n * 10 + 5, worker) for n, name in enumerate(["mmB", "reluB"])]
    on_main = [
        build.op(name, n * 10, n * 10 + 5) for n, name in enumerate(["ProfilerStep#1", "mm", "relu", "mm"])
    ]
    links = link_execution(build.trace())
    assert pairs(links.edges) == list(zip(forward, on_main[1:], strict=True)) + list(
        zip(backward, on_worker, strict=True)
    )
    assert links.report.notes == {"linked by name and order": 5}


def test_what_could_be_two_operators_is_left_and_counted() -> None:
    build = TraceBuilder()
    for number in range(3):
        build.node("mm", number + 3)
    for number in range(2):
        build.op("mm", number * 10, number * 10 + 5)
    report = link_execution(build.trace()).report
    assert report.linked == 0
    assert report.unlinked == {"several operators match": 3}


def test_without_a_profile_there_is_nothing_to_link() -> None:
    build = TraceBuilder()
    build.node("mm", 3)
    build.event(EventKind.RECORD, "gloo:all_reduce", 0, 0)
    report = link_execution(build.trace()).report
    assert (report.linked, report.candidates) == (0, 0)


def test_a_node_of_a_linked_trace_is_none_of_its_operators() -> None:
    build = TraceBuilder()
    build.node("mm", 3)
    build.op("mm", 0, 5, node_id=4)
    report = link_execution(build.trace()).report
    assert (report.linked, report.candidates) == (0, 0)


# One iteration in an execution trace, many in the profile.

NAMES = ("linear", "t", "transpose", "addmm", "relu", "t", "mul")
DAY = 24 * 3600 * SECOND
LAUNCHED = 1_700_000_000 * SECOND


def iterations(
    count: int, recorded: int, *, numbered: tuple[int, ...] = (1, 2)
) -> tuple[TraceBuilder, list[int], list[int]]:
    """A profile of `count` iterations on two threads, and nodes of one; the nodes and their operators."""
    build = TraceBuilder()
    worker = build.lane(TrackKind.THREAD, "101")
    nodes, true = [], []
    for thread in (1, 2):
        for place, name in enumerate(NAMES):
            keys = {"sequence": recorded * 10 + place} if place % 3 == 0 and thread in numbered else {}
            nodes.append(build.node(name, 100 * thread + place, thread, **keys))
    for number in range(count):
        for thread, track in ((1, 0), (2, worker)):
            for place, name in enumerate(NAMES):
                keys = {"sequence": number * 10 + place} if place % 3 == 0 else {}
                start = (number * 2 + thread) * 1_000_000 + place * 10
                row = build.op(name, start, start + 5, track, **keys)
                if number == recorded:
                    true.append(row)
    return build, nodes, true


@pytest.mark.parametrize("numbered", [(1, 2), (1,), (2,)], ids=["both threads", "main", "worker"])
def test_sequence_numbers_select_the_iteration_on_all_threads(numbered: tuple[int, ...]) -> None:
    build, nodes, true = iterations(40, 17, numbered=numbered)
    links = link_execution(build.trace())
    assert pairs(links.edges) == list(zip(nodes, true, strict=True))
    assert links.report.notes == {"linked by name and order": 14, "equal sequence numbers": 3 * len(numbered)}
    assert links.report.unlinked == {}


def test_equal_iterations_without_numbers_are_not_guessed() -> None:
    build, _, _ = iterations(40, 17, numbered=())
    links = link_execution(build.trace())
    assert pairs(links.edges) == []
    assert links.report.unlinked == {"several operators match": 14}


@pytest.mark.parametrize("before", [0, 3_900, 4_100, 50_000])
@pytest.mark.parametrize("name", ["other", "linear", "t"])
def test_equal_operators_before_the_iteration_cost_no_link(before: int, name: str) -> None:
    build = TraceBuilder()
    for number in range(before):
        build.op(name, number * 10, number * 10 + 5)
    steps = [f"{name} {number}" if number % 5 else name for number in range(100) for name in NAMES]
    true = [build.op(step, 10**7 + place * 10, 10**7 + place * 10 + 5) for place, step in enumerate(steps)]
    nodes = [build.node(step, place + 3) for place, step in enumerate(steps) if place != 333]
    del true[333]
    assert pairs(link_execution(build.trace()).edges) == sorted(zip(nodes, true, strict=True))


def test_children_stay_inside_the_operators_of_their_parents() -> None:
    """Of three equal children, one has no node: which one is unknown, and none is linked beyond its parent."""
    build = TraceBuilder()
    outer = build.op("foreach", 0, 100)
    for start in (10, 20, 30):
        build.op("result_type", start, start + 5)
    last = build.op("relu", 110, 120)
    nodes = [build.node("foreach", 3), build.node("relu", 9)]
    for identity in (4, 5):
        build.node("result_type", identity, node_parent=3)
    links = link_execution(build.trace())
    assert pairs(links.edges) == list(zip(nodes, (outer, last), strict=True))
    assert links.report.unlinked == {"several operators match": 2}


@pytest.mark.parametrize(
    ("path", "linked", "with_number"), [("one_iteration", 77, 36), *foreign(("pairs/param_linear", 928, 201))]
)
def test_each_node_is_linked_to_the_operator_of_its_iteration(
    path: str, linked: int, with_number: int
) -> None:
    """Equal names fit once for each iteration; equal numbers only once."""
    graph = tracelink.load([traces(path)], jobs=1)
    same = graph.edges.where(Relation.SAME)
    number = graph.key(Key.SEQUENCE).dense(len(graph.events), -1)
    name, track = graph.events.name, graph.events.track
    node, operator = same.source, same.target
    assert len(same) == linked
    assert (name[node] == name[operator]).all()
    numbered = (number[node] >= 0) & (number[operator] >= 0)
    assert numbered.sum() == with_number
    assert (number[node] == number[operator])[numbered].all()
    for thread in set(track[operator].tolist()):
        own = np.sort(operator[track[operator] == thread])
        among = np.flatnonzero((track == thread) & np.isin(name, name[own]) & graph.events.timed)
        by_time = among[np.argsort(graph.events.start[among], kind="stable")]
        begin = by_time.tolist().index(own[np.argmin(graph.events.start[own])])
        assert sorted(by_time[begin : begin + len(own)].tolist()) == own.tolist()


# Recordings of different runs.


def two_sources(pid: int | None, local_time: int | None, *, ids: int = 0, name: str = "mm") -> RankTrace:
    """An execution trace of this process and time, and a profile of process 100 of 2023."""
    build = TraceBuilder()
    for number in range(20):
        keys = {"record_function": number + 1} if number < ids else {}
        build.node(name, number + 3, **keys)
    for number in range(20):
        keys = {"record_function": number + 1} if number < ids else {}
        build.op("mm", number * 10, number * 10 + 5, **keys)
    trace = build.trace()
    trace.sources = [
        SourceInfo("et.json", "execution-trace", rank=0, pid=pid, local_time_ns=local_time),
        SourceInfo("profile.json", "kineto", rank=0, pid=100, start_ns=LAUNCHED, end_ns=LAUNCHED + SECOND),
    ]
    columns = trace.events.columns()
    columns["source"] = (trace.events.kind == EventKind.OPERATOR).astype("int32")
    trace.events = Events(**columns)
    return trace


@pytest.mark.parametrize(
    ("pid", "time"), [(100, LAUNCHED + DAY), (None, None), (100, None), (None, LAUNCHED)]
)
def test_one_process_and_time_link(pid: int | None, time: int | None) -> None:
    links = link_execution(two_sources(pid, time))
    assert (len(links.edges), links.findings) == (20, ())


@pytest.mark.parametrize(
    ("trace", "evidence"),
    [
        (two_sources(7, LAUNCHED), "their processes are 7 and 100"),
        (
            two_sources(100, LAUNCHED - 365 * DAY),
            "they were recorded 2022-11-14 22:13:20 and 2023-11-14 22:13:20",
        ),
        (
            two_sources(7, LAUNCHED + 3 * DAY),
            "their processes are 7 and 100; they were recorded 2023-11-17 22:13:20 and 2023-11-14 22:13:20",
        ),
        (two_sources(100, LAUNCHED, name="other"), "the profile has no operator with the name of a node"),
    ],
    ids=["process", "time", "process and time", "names"],
)
def test_recordings_of_different_runs_are_not_linked_and_the_evidence_is_reported(
    trace: RankTrace, evidence: str
) -> None:
    links = link_execution(trace)
    assert len(links.edges) == 0
    assert links.report.unlinked == {"the profile is of another run": 20}
    (finding,) = links.findings
    assert (finding.severity, finding.reason, finding.count) == (Severity.WARNING, "different_runs", 20)
    assert finding.message == (
        f"et.json and profile.json are not of one run: {evidence}. "
        "They are not linked; give an execution trace and a profile of one run."
    )


def test_equal_ids_and_names_link_other_processes_with_a_finding() -> None:
    links = link_execution(two_sources(7, LAUNCHED, ids=20))
    assert len(links.edges) == 20
    (finding,) = links.findings
    assert finding.severity == Severity.INFO
    assert finding.message.endswith(
        "their processes are 7 and 100. Linked nevertheless: ids and names of the operators are equal."
    )


def test_a_profile_without_times_since_1970_contradicts_no_time() -> None:
    trace = two_sources(100, LAUNCHED)
    trace.sources[1] = replace(trace.sources[1], start_ns=5, end_ns=10)
    assert link_execution(trace).findings == ()


# Ranges of Nsight Systems and the profiled events that describe the same code.

US = MICROSECOND


def both(system: TraceBuilder, profile: TraceBuilder) -> RankTrace:
    """One rank that Nsight Systems and a profiler recorded."""
    ranges = system.trace()
    ranges.sources = [replace(ranges.sources[0], format="nsys")]
    ranges.tracks = [Track(TrackKind.THREAD, "100", "100 nsys")]
    return combine([ranges, profile.trace()])


def same(linked_ranges: LinkedRank) -> list[tuple[int, int]]:
    edges = linked_ranges.edges.where(Relation.SAME)
    return list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))


def test_ids_link_operators_however_far_apart() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    system.op("aten::mul", 0, 5 * US, record_function=9)
    system.op("aten::add", 10 * US, 15 * US, record_function=10)
    profile.op("aten::mul", 7000 * US, 7005 * US, record_function=9)
    profile.op("aten::sub", 10 * US, 15 * US, record_function=10)
    assert same(link_rank(both(system, profile))) == [(0, 2)]


def test_ranges_without_ids_are_linked_to_the_nearest_event_of_their_name() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    for step in range(3):
        system.annotation("step", step * 100 * US, (step * 100 + 80) * US)
    for step in range(1, 4):
        profile.annotation("step", (step * 100 + 6) * US, (step * 100 + 79) * US)
    linked_ranges = link_rank(both(system, profile))
    assert same(linked_ranges) == [(1, 3), (2, 4)]
    assert [finding.message for finding in linked_ranges.findings if finding.reason == "times_of_ranges"] == [
        "built.json: ranges and the same events of the profile start 6.0 µs and end 1.0 µs apart (medians; "
        "at most 6 µs)."
    ]


def test_ranges_of_another_process_are_not_linked() -> None:
    system, profile = TraceBuilder(), TraceBuilder(tracks=[Track(TrackKind.THREAD, "200", "200")])
    system.annotation("step", 0, 80 * US)
    profile.annotation("step", 0, 80 * US)
    assert same(link_rank(both(system, profile))) == []


def test_other_linkers_use_the_profile_of_an_operator_that_both_recorded() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    row = system.op("c10d::allreduce_", 0, 5 * US, record_function=9)
    profile.op("c10d::allreduce_", 1 * US, 5 * US, record_function=9)
    linked_ranges = link_rank(both(system, profile))
    assert linked_ranges.calls.operator.tolist() == [1]
    assert linked_ranges.trace.events.kind[row] == EventKind.OPERATOR


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
)
def test_nearest_is_the_least_difference_of_all_pairs(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    columns = [
        np.array([pair[index] for pair in pairs], np.int64) for pairs in (first, second) for index in (0, 1)
    ]
    found = nearest(*columns)
    for (label, time), index in zip(first, found.tolist(), strict=True):
        gaps = [abs(other - time) for other_label, other in second if other_label == label]
        assert (index == UNKNOWN) == (not gaps)
        assert not gaps or (second[index][0], abs(second[index][1] - time)) == (label, min(gaps))


@pytest.fixture(scope="module")
def four_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded job with an export of nsys, whose ranges begin 7 us before the annotations of the profiles."""
    folder = tmp_path_factory.mktemp("job") / "job"
    shutil.copytree(samples.path("cpu_job"), folder)
    export = Export()
    for rank in range(2):
        profile = json.loads(plain(f"cpu_job/kineto_{rank}.json.gz"), parse_float=Decimal)
        base = profile["baseTimeNanoseconds"] - SESSION_NS - 7 * US
        notes = [
            one for one in profile["traceEvents"] if one["name"].startswith(("## step", "## forw", "## back"))
        ]
        export.process(notes[0]["pid"])
        export.mpi_rank(notes[0]["pid"], rank)
        for one in notes:
            start, end = (base + int(1000 * time) for time in (one["ts"], one["ts"] + one["dur"]))
            export.range(one["name"], start, end - start, (one["pid"], one["tid"]))
    export.write(folder / "nsys.sqlite")
    return folder


def test_four_sources_of_one_run_are_one_timeline(four_sources: Path) -> None:
    """nsys, Kineto, execution trace and flight recorder of two ranks."""
    assert_linked(
        four_sources, {"same.nsys": (6, 6), "same.et_kineto": (533, 533), "same.recorder_kineto": (8, 8)}
    )


@pytest.mark.foreign
def test_five_sources_of_one_run_are_one_timeline() -> None:
    """nsys, Kineto, execution trace, flight recorder and compile log of two ranks."""
    expected = {"same.nsys": (15, 15), "same.et_kineto": (1031, 1031), "same.recorder_kineto": (6, 6)}
    assert_linked(shared("nsys/v2023/matched"), expected)


def assert_linked(folder: Path, expected: dict[str, tuple[int, int]]) -> None:
    merged = tracelink.merge(folder, jobs=1)
    linked_ranges = {
        of_rank.rank: {
            one.relation: (one.linked, one.candidates)
            for one in of_rank.links.values()
            if one.relation in expected
        }
        for of_rank in merged.ranks
    }
    assert linked_ranges == {0: expected, 1: expected}


def test_ranges_and_annotations_keep_their_times(four_sources: Path) -> None:
    assert_apart(four_sources, 12, 7)


@pytest.mark.foreign
def test_nsys_and_profile_start_at_most_ten_microseconds_apart() -> None:
    assert_apart(shared("nsys/v2023/matched"), 30, 7.5)


def assert_apart(folder: Path, count: int, typical: float) -> None:
    graph = tracelink.load(folder, jobs=1)
    events = graph.events
    system = [number for number, source in enumerate(graph.sources) if source.format == "nsys"]
    edges = graph.edges.where("same")
    edges = edges.take(np.isin(events.source[edges.source], system))
    apart = (events.start[edges.target] - events.start[edges.source]) / MICROSECOND
    assert len(apart) == count
    assert np.median(apart) == pytest.approx(typical, abs=2.5)


def test_a_trace_without_ranges_is_left_as_it_is() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    system.kernel("k", 0, 1, 0)
    profile.op("aten::mul", 0, 1)
    trace = both(system, profile)
    assert link_ranges(trace).distinct is trace


# Flight-recorder entries, their operators and kernels.


def test_an_entry_belongs_to_the_innermost_collective_operator_around_its_creation() -> None:
    build = TraceBuilder()
    group = build.lane(TrackKind.COMMUNICATOR, "0")
    build.op("c10d::allreduce_", 0, 100)
    inner = build.op("record_param_comms", 10, 90)
    build.op("aten::mm", 100, 200)
    entry = build.event(EventKind.RECORD, "nccl:all_reduce", 50, 49, group)
    links = link_recorder(build.trace())
    assert pairs(links.edges) == [(entry, inner)]
    assert (links.report.linked, links.report.candidates) == (1, 1)


def test_of_two_threads_the_one_that_does_what_the_entry_says_is_meant() -> None:
    build = TraceBuilder()
    group, autograd = build.lane(TrackKind.COMMUNICATOR, "0"), build.lane(TrackKind.THREAD, "101")
    build.op("c10d::broadcast_", 0, 100)
    reduce = build.op("c10d::allreduce_", 0, 100, autograd)
    entry = build.event(EventKind.RECORD, "gloo:all_reduce", 50, 49, group)
    assert pairs(link_recorder(build.trace()).edges) == [(entry, reduce)]


def test_entries_from_before_the_profile_are_no_candidates() -> None:
    build = TraceBuilder()
    group = build.lane(TrackKind.COMMUNICATOR, "0")
    build.event(EventKind.RECORD, "gloo:all_reduce", 10, 9, group)
    build.op("c10d::allreduce_", 100, 200)
    build.event(EventKind.RECORD, "gloo:barrier", 250, 249, group)
    build.op("aten::mm", 240, 300)
    report = link_recorder(build.trace()).report
    assert (report.linked, report.candidates) == (0, 1)
    assert report.unlinked == {"no collective operator ran when it was created": 1}
    assert report.notes == {"entries outside the profiled time": 1}


def test_the_collective_kernels_of_the_operator_are_the_same_too() -> None:
    build = TraceBuilder()
    group, stream = build.lane(TrackKind.COMMUNICATOR, "0"), build.lane(TrackKind.STREAM, "20")
    build.op("c10d::allreduce_", 0, 100)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 20, 25, correlation=1)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 30, 35, correlation=2)
    kernel = build.event(EventKind.KERNEL, "ncclDevKernel_AllReduce_Sum_f32", 60, 160, stream, correlation=1)
    build.event(EventKind.KERNEL, "elementwise_kernel", 170, 180, stream, correlation=2)
    entry = build.event(EventKind.RECORD, "nccl:all_reduce", 15, 14, group)
    trace = build.trace()
    links = link_recorder_kernels(trace, link_recorder(trace).edges, link_launches(trace).edges)
    assert pairs(links.edges) == [(entry, kernel)]
    assert (links.report.linked, links.report.candidates) == (1, 1)


def test_an_entry_belongs_to_the_operator_of_its_number_whatever_the_time() -> None:
    build = TraceBuilder()
    number = {"group": "0", "sequence": 4}
    operator = build.communication(build.op("record_param_comms", 10, 20), operation="allreduce", **number)
    build.communication(build.op("record_param_comms", 40, 60), operation="wait", **number)
    entry = build.communication(build.record("nccl:all_reduce", 50), operation="nccl:all_reduce", **number)
    links = link_recorder(build.trace())
    assert pairs(links.edges) == [(entry, operator)]
    assert links.report.notes == {"linked by number": 1}


def test_several_of_one_number_are_the_same_in_order_if_they_are_as_many() -> None:
    build = TraceBuilder()
    number = {"group": "0", "sequence": 4}
    operators = [
        build.communication(build.op("record_param_comms", start, start + 5), operation="broadcast", **number)
        for start in (10, 20)
    ]
    entries = [
        build.communication(build.record("nccl:broadcast", time), operation="nccl:broadcast", **number)
        for time in (12, 13)
    ]
    assert pairs(link_recorder(build.trace()).edges) == list(zip(entries, operators, strict=True))
    build.communication(build.record("nccl:broadcast", 14), operation="nccl:broadcast", **number)
    assert pairs(link_recorder(build.trace()).edges) == [(entry, operators[0]) for entry in (*entries, 4)]
