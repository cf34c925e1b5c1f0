"""Execution-trace nodes and the operators that they describe."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import tracelink
from builders.data import foreign, traces
from builders.trace import TraceBuilder, pairs
from tracelink._link.execution import link_execution
from tracelink._model.columns import SECOND
from tracelink._model.events import EventKind, Events, Key, Relation, TrackKind
from tracelink._model.findings import Severity
from tracelink._model.trace import RankTrace, SourceInfo

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
