"""Flight-recorder entries, their operators and kernels."""

from __future__ import annotations

from builders.trace import TraceBuilder, pairs
from tracelink._link.launch import link_launches
from tracelink._link.recorder import link_recorder, link_recorder_kernels
from tracelink._model.events import EventKind, TrackKind


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
