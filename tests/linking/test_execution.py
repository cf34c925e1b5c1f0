"""Execution-trace nodes and the operators that they describe."""

from __future__ import annotations

from builders.trace import TraceBuilder, pairs
from tracelink.linking.execution import link_execution
from tracelink.model.events import EventKind, TrackKind

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

    links = link_execution(build.build())

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
    report = link_execution(build.build()).report
    assert (report.linked, report.candidates) == (2, 3)
    assert report.unlinked == {"the profile has a different name for its id": 1}


def test_external_ids_serve_where_they_are_the_record_function_ids() -> None:
    build = TraceBuilder()
    nodes = [build.node(f"op {number}", number + 2, record_function=number) for number in (1, 2)]
    ops = [build.op(f"op {number}", number, number + 1, external_id=number) for number in (1, 2)]
    links = link_execution(build.build())
    assert pairs(links.edges) == list(zip(nodes, ops, strict=True))
    assert links.report.notes == {"linked by External id": 2}


def test_without_ids_the_order_on_each_thread_decides() -> None:
    build = TraceBuilder()
    worker = build.track(TrackKind.THREAD, "101")
    forward = [build.node(name, number) for number, name in enumerate(["mm", "relu", "mm"], start=3)]
    backward = [build.node(name, number, thread=2) for number, name in enumerate(["mmB", "reluB"], start=9)]
    on_worker = [build.op(name, n * 10, n * 10 + 5, worker) for n, name in enumerate(["mmB", "reluB"])]
    on_main = [
        build.op(name, n * 10, n * 10 + 5) for n, name in enumerate(["ProfilerStep#1", "mm", "relu", "mm"])
    ]
    links = link_execution(build.build())
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
    report = link_execution(build.build()).report
    assert report.linked == 0
    assert report.unlinked == {"several operators match": 3}


def test_without_a_profile_there_is_nothing_to_link() -> None:
    build = TraceBuilder()
    build.node("mm", 3)
    build.event(EventKind.RECORD, "gloo:all_reduce", 0, 0)
    report = link_execution(build.build()).report
    assert (report.linked, report.candidates) == (0, 0)


def test_a_node_of_a_linked_trace_is_none_of_its_operators() -> None:
    build = TraceBuilder()
    build.node("mm", 3)
    build.op("mm", 0, 5, node_id=4)
    report = link_execution(build.build()).report
    assert (report.linked, report.candidates) == (0, 0)
