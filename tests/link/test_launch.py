"""Launches, and backward operators of forward operators."""

from __future__ import annotations

from msgspec.structs import replace

from builders.trace import TraceBuilder, column, pairs
from tracelink._link.launch import (
    link_annotations,
    link_backward,
    link_calls_by_flows,
    link_launches,
)
from tracelink._link.rank import link_rank
from tracelink._model.communications import Calls
from tracelink._model.events import EventKind, Relation, TrackKind

# *launches*: a call on a thread and the work it put on a device.


def test_equal_correlation_links_a_call_to_kernels_copies_and_memsets() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    edges = []
    for number, kind in enumerate([EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET], start=1):
        call = build.event(EventKind.RUNTIME, "call", number * 10, number * 10 + 2, correlation=number)
        work = build.event(kind, "work", number * 10 + 5, number * 10 + 9, stream, correlation=number)
        edges.append((call, work))

    links = link_launches(build.trace())

    assert pairs(links.edges) == edges
    assert (links.report.linked, links.report.candidates, links.report.unlinked) == (3, 3, {})


def test_a_graph_launch_launches_all_its_kernels() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    call = build.event(EventKind.RUNTIME, "cudaGraphLaunch", 0, 5, correlation=9)
    kernels = [
        build.event(EventKind.KERNEL, "k", 10 * n, 10 * n + 5, stream, correlation=9) for n in (1, 2, 3)
    ]
    links = link_launches(build.trace())
    assert pairs(links.edges) == [(call, kernel) for kernel in kernels]
    assert links.report.notes == {"launched together with others (graphs)": 2}


def test_work_without_a_recorded_call_says_why() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    build.event(EventKind.KERNEL, "before the window", 0, 5, stream, correlation=1)
    build.event(EventKind.KERNEL, "without an id", 5, 9, stream)
    report = link_launches(build.trace()).report
    assert (report.linked, report.candidates) == (0, 2)
    assert report.unlinked == {"no correlation id": 1, "launched outside the recording": 1}


def test_a_source_of_device_work_alone_sees_no_launches() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    build.event(EventKind.KERNEL, "nccl:AllReduce", 0, 5, stream)
    report = link_launches(build.trace()).report
    assert (report.linked, report.candidates, report.unlinked) == (0, 0, {})


def test_arrows_of_the_producer_are_compared_not_followed() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 0, 5, correlation=1)
    build.event(EventKind.KERNEL, "k", 6, 9, stream, correlation=1)
    trace = replace(build.trace(), launch_flows=column([1, 2]))
    assert link_launches(trace).report.notes == {
        "flows in the file that agree": 1,
        "flows in the file without device work": 1,
    }


def test_arrows_between_calls_and_to_synchronizations_become_launches() -> None:
    build = TraceBuilder()
    worker, stream = build.lane(TrackKind.THREAD, "101"), build.lane(TrackKind.STREAM, "7")
    work = build.event(EventKind.RUNTIME, "synchronize", 3, 8, worker, correlation=1)
    call = build.event(EventKind.RUNTIME, "synchronizeStream", 0, 9, correlation=1)
    wait = build.event(EventKind.SYNCHRONIZATION, "Stream Sync", 20, 25, stream, correlation=2)
    waits = build.event(EventKind.RUNTIME, "cudaStreamSynchronize", 20, 29, correlation=2)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 30, 31, correlation=3)
    build.event(EventKind.KERNEL, "k", 32, 33, stream, correlation=3)
    for start in (40, 45):
        build.event(EventKind.RUNTIME, "without an arrow", start, start + 1, worker, correlation=4)
    build.event(EventKind.RUNTIME, "alone", 50, 51, correlation=5)
    links = link_calls_by_flows(replace(build.trace(), launch_flows=column([1, 2, 3, 5])))
    assert pairs(links.edges, Relation.LAUNCHES) == sorted([(call, work), (waits, wait)])
    assert (links.report.linked, links.report.candidates) == (2, 3)
    assert links.report.unlinked == {"no two events have its id": 1}


def test_without_arrows_equal_ids_of_calls_link_nothing() -> None:
    build = TraceBuilder()
    worker = build.lane(TrackKind.THREAD, "101")
    build.event(EventKind.RUNTIME, "synchronizeStream", 0, 9, correlation=1)
    build.event(EventKind.RUNTIME, "synchronize", 3, 8, worker, correlation=1)
    links = link_calls_by_flows(build.trace())
    assert (pairs(links.edges), links.report.candidates) == ([], 0)


def test_an_arrow_within_one_event_is_no_dependency() -> None:
    build = TraceBuilder()
    build.op("within", 0, 9, flow_out=1, flow_in=1)
    cause, effect = build.op("cause", 10, 11, flow_out=2), build.op("effect", 12, 13, flow_in=2)
    build.op("without a start", 20, 21, flow_in=3)
    linked = link_rank(build.trace())
    assert pairs(linked.edges, Relation.DEPENDS_ON) == [(effect, cause)]
    (report,) = [report for report in linked.reports if report.relation == "depends_on.drawn"]
    assert (report.linked, report.candidates) == (1, 3)
    assert report.unlinked == {"its flow has no start": 1, "its flow starts at the same event": 1}


def test_an_annotation_leads_to_its_shadow_on_the_device() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    annotation = build.event(EventKind.ANNOTATION, "ProfilerStep#1", 0, 50, external_id=4)
    shadow = build.event(EventKind.GPU_ANNOTATION, "ProfilerStep#1", 10, 60, stream, external_id=4)
    assert pairs(link_annotations(build.trace(), Calls.empty()).edges) == [(annotation, shadow)]


# *backward of*: flows first, else sequence numbers.


def test_the_arrows_in_the_file_are_followed() -> None:
    build = TraceBuilder()
    forward = build.op("aten::mm", 0, 5, sequence=7, backward_flow_out=1)
    backward = build.op("MmBackward0", 10, 20, sequence=7, forward_thread=1, backward_flow_in=1)
    build.op("MmBackward0 inner", 11, 19, sequence=7, forward_thread=1)
    links = link_backward(build.trace())
    assert pairs(links.edges) == [(backward, forward)]
    assert (links.report.linked, links.report.candidates, links.report.notes) == (1, 1, {})


def test_without_arrows_the_outermost_backward_meets_the_latest_forward() -> None:
    build = TraceBuilder()
    worker = build.lane(TrackKind.THREAD, "101")
    build.op("aten::linear", 0, 9, sequence=7)
    forward = build.op("aten::addmm", 1, 8, sequence=7)
    backward = build.op("evaluate_function: AddmmBackward0", 20, 30, worker, sequence=7, forward_thread=1)
    build.op("AddmmBackward0", 21, 29, worker, sequence=7, forward_thread=1)
    links = link_backward(build.trace())
    assert pairs(links.edges) == [(backward, forward)]


def test_a_backward_without_a_recorded_forward_is_counted() -> None:
    build = TraceBuilder()
    build.op("MmBackward0", 10, 20, sequence=7, forward_thread=1)
    report = link_backward(build.trace()).report
    assert (report.linked, report.candidates) == (0, 1)
    assert report.unlinked == {"its forward operator was not recorded": 1}


def test_sequence_numbers_of_another_thread_do_not_count() -> None:
    build = TraceBuilder()
    loader = build.lane(TrackKind.THREAD, "102")
    forward = [build.op("aten::mm", n * 10, n * 10 + 5, sequence=n) for n in (1, 2, 3)]
    build.op("aten::stack", 37, 38, loader, sequence=3)
    backward = [
        build.op("MmBackward0", 100 - n * 10, 105 - n * 10, sequence=n, forward_thread=1) for n in (1, 2, 3)
    ]
    assert pairs(link_backward(build.trace()).edges) == sorted(zip(backward, forward, strict=True))
