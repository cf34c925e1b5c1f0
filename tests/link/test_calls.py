"""Calls: one row for each communication of a rank."""

from __future__ import annotations

from typing import Any

import pytest

from builders.trace import TraceBuilder, rows_of
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._model.communications import Evidence
from tracelink._model.events import EventKind, Key, Relation, TrackKind


def linked(build: TraceBuilder) -> tuple[LinkedRank, list[dict[str, Any]]]:
    rank = link_rank(build.trace())
    return rank, rows_of(rank.calls, rank.trace)


def calls_of(build: TraceBuilder) -> list[dict[str, Any]]:
    return linked(build)[1]


def report(rank: LinkedRank, relation: str) -> tuple[int, int, dict[str, int], dict[str, int]]:
    (found,) = (report for report in rank.reports if report.relation == relation)
    return found.linked, found.candidates, dict(found.unlinked), dict(found.notes)


class Nccl:
    """A collective of NCCL as a profile shows it: operators in each other, a launch, a kernel."""

    def __init__(self, build: TraceBuilder, start: int = 0, correlation: int = 1, **said: Any) -> None:
        stream = build.lane(TrackKind.STREAM, "20")
        self.outer = build.op("c10d::allreduce_", start, start + 100)
        self.operator = build.op("record_param_comms", start + 10, start + 90)
        build.communication(self.operator, **{"operation": "allreduce", "group": "0"} | said)
        self.annotation = build.annotation("nccl:all_reduce", start + 20, start + 80)
        build.event(EventKind.RUNTIME, "cudaLaunchKernel", start + 30, start + 40, correlation=correlation)
        self.kernel = build.kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            start + 200,
            start + 300,
            stream,
            correlation=correlation,
        )


def test_everything_that_tells_of_a_collective_is_one_call() -> None:
    build = TraceBuilder()
    seen = Nccl(build, elements_in=8, type="Float", size=2)
    record = build.record("nccl:all_reduce", 15, state="completed")
    build.communication(record, operation="nccl:all_reduce", group="0", sequence=7)

    assert calls_of(build) == [
        {
            "operation": "all_reduce",
            "group": "0",
            "sequence": 7,
            "elements_in": 8,
            "type": "Float",
            "size": 2,
            "record": record,
            "operator": seen.operator,
            "annotation": seen.annotation,
            "kernel": seen.kernel,
            "enqueued": 15,
            "start": 200,
            "end": 300,
            "evidence": Evidence.KERNEL,
            "state": "completed",
        }
    ]


def test_the_node_of_the_operator_gives_the_number_that_the_profile_lacks() -> None:
    build = TraceBuilder()
    seen = Nccl(build)
    build.keys[Key.RECORD_FUNCTION] = [(seen.operator, 5)]
    node = build.node("record_param_comms", 9, record_function=5)
    build.communication(node, operation="allreduce", sequence=147)
    (call,) = calls_of(build)
    assert (call["node"], call["sequence"], call["group"]) == (node, 147, "0")


def test_waits_are_counted_and_no_calls() -> None:
    build = TraceBuilder()
    Nccl(build)
    build.communication(build.op("record_param_comms", 400, 410), operation="wait", sequence=1)
    build.op("_c10d_functional::wait_tensor", 420, 430)
    rank, calls = linked(build)
    assert [call["operation"] for call in calls] == ["all_reduce"]
    notes = {"operators that enclose others": 1, "operators that move no data": 2}
    assert report(rank, "communication.operator") == (1, 1, {}, notes)


def test_an_old_record_that_says_nothing_and_does_nothing_is_a_wait() -> None:
    build = TraceBuilder()
    build.op("record_param_comms", 0, 10)
    seen = Nccl(build, 100)
    assert [call["operator"] for call in calls_of(build)] == [seen.operator]


def test_an_operator_that_a_compiler_only_traced_is_no_call() -> None:
    build = TraceBuilder()
    build.op("_c10d_functional::all_reduce", 0, 10)
    build.node("_c10d_functional::all_reduce", 4)
    build.op("_c10d_functional::all_reduce", 20, 50)
    run = build.op("c10d::allreduce_", 25, 45)
    assert [call["operator"] for call in calls_of(build)] == [run]


def test_what_an_operator_around_alone_says_counts_for_the_one_inside() -> None:
    build = TraceBuilder()
    outer = build.op("c10d::broadcast_", 0, 100)
    build.communication(outer, operation="c10d::broadcast_", source=3, elements_in=4)
    inner = build.op("record_param_comms", 10, 90)
    build.communication(inner, operation="broadcast", elements_in=5)
    (call,) = calls_of(build)
    assert (call["source"], call["elements_in"]) == (3, 5)


def test_several_inside_one_operator_are_several_calls_and_share_nothing() -> None:
    build = TraceBuilder()
    build.communication(build.op("c10d::alltoall_", 0, 100), operation="c10d::alltoall_", elements_in=9)
    for start in (10, 40):
        build.communication(build.op("record_param_comms", start, start + 20), operation="send")
    assert [(call["operation"], "elements_in" in call) for call in calls_of(build)] == [("send", False)] * 2


def test_a_call_with_several_kernels_lasts_from_the_first_to_the_end_of_the_last() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "20")
    build.op("c10d::alltoall_base_", 0, 100)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 10, 20, correlation=1)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 20, 30, correlation=2)
    build.kernel("ncclDevKernel_SendRecv(x)", 300, 350, stream, correlation=2)
    first = build.kernel("ncclDevKernel_SendRecv(x)", 200, 400, stream, correlation=1)
    build.kernel("elementwise", 500, 600, stream, correlation=1)
    (call,) = calls_of(build)
    assert (call["kernel"], call["start"], call["end"], call["operation"]) == (first, 200, 400, "all_to_all")


def test_kernels_from_before_the_window_and_of_graphs_are_calls_of_their_own() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "20")
    before = build.kernel("ncclDevKernel_AllReduce_Sum_f32(x)", 5, 9, stream, correlation=1)
    build.event(EventKind.RUNTIME, "cudaGraphLaunch", 10, 20, correlation=2)
    graph = build.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 30, 40, stream, correlation=2)
    told = build.kernel("ncclDevKernel_Generic(x)", 50, 60, stream)
    build.communication(told, operation="allgather", group="1", sequence=4)
    rank, calls = linked(build)
    by_kernel = {"evidence": Evidence.KERNEL}
    assert calls == [
        by_kernel | {"operation": "all_reduce", "kernel": before, "start": 5, "end": 9},
        by_kernel | {"operation": "SendRecv", "kernel": graph, "start": 30, "end": 40},
        by_kernel
        | {"operation": "all_gather", "group": "1", "sequence": 4, "kernel": told, "start": 50, "end": 60},
    ]
    why = {"launched outside the recording": 2, "no communication operator launched it": 1}
    assert report(rank, "communication.kernel") == (0, 3, why, {})


def test_an_annotation_of_a_device_backend_that_stands_alone_says_when_it_was_asked_for_and_no_more() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "20")
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 10, 20, correlation=1)
    kernel = build.kernel("ncclDevKernel_SendRecv(x)", 30, 90, stream, correlation=1)
    annotation = build.annotation("nccl:coalesced", 5, 25)
    without = build.annotation("nccl:broadcast", 200, 225)
    assert calls_of(build) == [
        {
            "operation": "coalesced",
            "annotation": annotation,
            "kernel": kernel,
            "enqueued": 5,
            "start": 30,
            "end": 90,
            "evidence": Evidence.KERNEL,
        },
        {"operation": "broadcast", "annotation": without, "enqueued": 200, "evidence": Evidence.NONE},
    ]


def test_a_recorder_alone_knows_when_a_call_was_asked_for_and_at_best_when_it_was_over() -> None:
    build = TraceBuilder()
    done = build.record("nccl:all_reduce", 100, 250, state="completed")
    build.communication(done, operation="nccl:all_reduce", group="0", sequence=1)
    hung = build.record("nccl:send 1->2", 300, state="started")
    build.communication(
        hung, operation="nccl:send 1->2", group="0", sequence=4, point_to_point=True, source=1, target=2
    )
    rank, calls = linked(build)
    assert calls == [
        {
            "operation": "all_reduce",
            "group": "0",
            "sequence": 1,
            "record": done,
            "enqueued": 100,
            "end": 250,
            "evidence": Evidence.RECORDER,
            "state": "completed",
        },
        {
            "operation": "send",
            "group": "0",
            "sequence": 4,
            "point_to_point": True,
            "source": 1,
            "target": 2,
            "record": hung,
            "enqueued": 300,
            "evidence": Evidence.NONE,
            "state": "started",
        },
    ]
    assert rank.reports == []


def test_an_execution_trace_alone_gives_calls_without_times_in_the_order_of_its_nodes() -> None:
    build = TraceBuilder()
    build.node("c10d::allreduce_", 7)
    last = build.node("record_param_comms", 8, node_parent=7)
    build.communication(last, operation="allreduce", sequence=2)
    first = build.node("c10d::broadcast_", 3)
    build.communication(build.node("record_param_comms", 9), operation="wait", sequence=2)
    none = {"evidence": Evidence.NONE}
    assert calls_of(build) == [
        none | {"operation": "broadcast", "node": first},
        none | {"operation": "all_reduce", "node": last, "sequence": 2},
    ]


def test_nodes_that_the_profile_did_not_see_stand_between_those_that_it_saw() -> None:
    build = TraceBuilder()
    for number, start in ((10, 100), (30, 300)):
        build.op("c10d::allreduce_", start, start + 10, record_function=number)
        build.node("c10d::allreduce_", number, record_function=number)
    build.node("c10d::barrier", 20, record_function=20)
    build.node("c10d::broadcast_", 5, record_function=5)
    assert [call["operation"] for call in calls_of(build)] == [
        "broadcast",
        "all_reduce",
        "barrier",
        "all_reduce",
    ]


def test_an_entry_joins_the_node_of_its_number_where_there_is_no_profile() -> None:
    build = TraceBuilder()
    node = build.node("record_param_comms", 8)
    build.communication(node, operation="allreduce", group="0", sequence=2)
    record = build.record("nccl:all_reduce", 15)
    build.communication(record, operation="nccl:all_reduce", group="0", sequence=2)
    (call,) = calls_of(build)
    assert (call["node"], call["record"], call["enqueued"]) == (node, record, 15)


def test_an_entry_whose_number_two_nodes_have_is_of_neither() -> None:
    build = TraceBuilder()
    for identity in (8, 9):
        build.communication(
            build.node("record_param_comms", identity), operation="allreduce", group="0", sequence=2
        )
    record = build.record("nccl:all_reduce", 15)
    build.communication(record, operation="nccl:all_reduce", group="0", sequence=2)
    assert [call.get("record") for call in calls_of(build)] == [None, None, record]


def test_an_entry_joins_the_kernel_of_its_number() -> None:
    build = TraceBuilder()
    kernel = build.kernel("ncclDevKernel_Generic(x)", 50, 60, build.lane(TrackKind.STREAM, "20"))
    build.communication(kernel, operation="allreduce", group="0", sequence=2)
    record = build.record("nccl:all_reduce", 15)
    build.communication(record, operation="nccl:all_reduce", group="0", sequence=2)
    (call,) = calls_of(build)
    assert (call["kernel"], call["record"], call["enqueued"], call["start"]) == (kernel, record, 15, 50)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (("gloo:all_reduce", "c10d::_reduce_scatter_base_"), "reduce_scatter"),
        (("nccl:all_reduce_barrier", "c10d::barrier"), "barrier"),
        (("nccl:_broadcast_oop", "c10d::allgather_"), "broadcast"),
    ],
)
def test_what_a_backend_does_instead_of_what_was_asked_for_is_no_contradiction(
    records: tuple[str, str], expected: str
) -> None:
    recorded, asked = records
    build = TraceBuilder()
    build.communication(build.op(asked, 0, 100), operation=asked, elements_out=4)
    build.communication(build.record(recorded, 10), operation=recorded, elements_out=8)
    rank, (call,) = linked(build)
    assert call["operation"] == expected
    assert call["elements_out"] == (8 if expected == "broadcast" else 4)
    assert not [finding for finding in rank.findings if finding.reason == "communication_contradiction"]


def test_sources_that_contradict_each_other_are_reported_and_the_recorder_is_used() -> None:
    build = TraceBuilder()
    Nccl(build, operation="broadcast", sequence=6)
    record = build.record("nccl:all_reduce", 15)
    build.communication(record, operation="nccl:all_reduce", group="1", sequence=7)
    rank, (call,) = linked(build)
    assert (call["operation"], call["group"], call["sequence"]) == ("all_reduce", "1", 7)
    told = [finding for finding in rank.findings if finding.reason == "communication_contradiction"]
    assert [(finding.count, finding.example) for finding in told] == [
        (1, "broadcast in the profile, elsewhere all_reduce"),
        (1, "0 in the profile, elsewhere 1"),
        (1, "6 in the profile, elsewhere 7"),
    ]


def test_several_entries_of_one_operator_are_several_calls() -> None:
    build = TraceBuilder()
    seen = Nccl(build)
    records = [build.record("nccl:_broadcast_oop", time) for time in (15, 16)]
    for record in records:
        build.communication(record, operation="nccl:_broadcast_oop", group="0", sequence=3)
    calls = calls_of(build)
    assert [(call["record"], call["operator"], call["kernel"]) for call in calls] == [
        (record, seen.operator, seen.kernel) for record in records
    ]


def entry(build: TraceBuilder, name: str, created: int, *, collective: int, message: int, **said: Any) -> int:
    """An entry as recorders write it: with both of the group's numbers, whichever counts."""
    completed = said.pop("completed", None)
    row = build.record(
        name,
        created,
        completed,
        group="0",
        collective_sequence=collective,
        p2p_sequence=message,
        state="completed" if completed else "scheduled",
    )
    counts_messages = said.get("point_to_point", False)
    number = message if counts_messages else collective
    return build.communication(row, operation=name, group="0", sequence=number, **said)


def test_the_entry_that_closes_a_group_of_messages_gives_its_members_state_and_end() -> None:
    """The closing entry itself is not marked as one of messages."""
    build = TraceBuilder()
    before = entry(build, "nccl:all_reduce", 5, collective=8, message=2, completed=7)
    members = [
        entry(build, name, 10, collective=8, message=3, point_to_point=True)
        for name in ("nccl:send 0->1", "nccl:recv 0<-1")
    ]
    entry(build, "nccl:coalesced", 20, collective=8, message=3, completed=90)
    expected = [(before, "completed", 7), *((member, "completed", 90) for member in members)]
    assert [(call["record"], call["state"], call["end"]) for call in calls_of(build)] == expected


def test_the_entry_that_closes_a_group_of_collectives_does_so_too() -> None:
    build = TraceBuilder()
    members = [entry(build, "nccl:_broadcast_oop", 10, collective=4, message=0) for _ in range(3)]
    entry(build, "nccl:ALLGATHER_coalesced", 20, collective=4, message=0, completed=90)
    assert [(call["record"], call["end"]) for call in calls_of(build)] == [(member, 90) for member in members]


def test_a_closing_entry_whose_members_were_overwritten_is_a_call_without_a_number() -> None:
    build = TraceBuilder()
    closing = entry(build, "nccl:coalesced", 20, collective=8, message=3)
    assert calls_of(build) == [
        {
            "operation": "coalesced",
            "group": "0",
            "record": closing,
            "enqueued": 20,
            "evidence": Evidence.NONE,
            "state": "scheduled",
        }
    ]


def test_kernels_of_messages_that_are_issued_as_one_are_launched_when_the_group_is_closed() -> None:
    build = TraceBuilder()
    alone = Nccl(build, correlation=9)
    stream = build.lane(TrackKind.STREAM, "21")
    messages = []
    for start, name in ((1000, "send"), (1100, "recv")):
        build.op(f"c10d::{name}", start, start + 50)
        operator = build.op("record_param_comms", start + 10, start + 40)
        messages.append(build.communication(operator, operation=name, group="0"))
    closing = build.annotation("nccl:coalesced", 1200, 1300)
    build.event(EventKind.RUNTIME, "cudaLaunchKernel", 1220, 1230, correlation=2)
    kernel = build.kernel("ncclDevKernel_SendRecv(x)", 1400, 1500, stream, correlation=2)
    first, *others = calls_of(build)
    assert first["operator"] == alone.operator
    assert [(call["operator"], call["annotation"], call["kernel"], call["end"]) for call in others] == [
        (message, closing, kernel, 1500) for message in messages
    ]


def test_without_kernels_only_messages_can_be_told_to_be_of_a_group() -> None:
    build = TraceBuilder()
    build.op("c10d::allreduce_", 0, 50)
    build.annotation("nccl:all_reduce", 10, 40)
    message = build.op("c10d::send", 100, 150)
    closing = build.annotation("nccl:coalesced", 200, 250)
    assert [(call["operation"], call["annotation"]) for call in calls_of(build)] == [
        ("all_reduce", 1),
        ("send", closing),
    ]
    assert calls_of(build)[1]["operator"] == message


def test_making_a_communicator_inside_the_first_collective_is_no_call() -> None:
    build = TraceBuilder()
    seen = Nccl(build)
    for start, name in ((42, "init"), (44, "broadcastUniqueNCCLID")):
        build.communication(build.op("record_param_comms", start, start + 1), operation=name, group="0")
    (call,) = calls_of(build)
    assert (call["operator"], call["operation"]) == (seen.operator, "all_reduce")


def test_an_operator_leads_by_an_arrow_to_its_work_on_another_thread() -> None:
    build = TraceBuilder()
    worker = build.lane(TrackKind.THREAD, "201")
    operator = build.op("c10d::allreduce_", 0, 100)
    work = build.annotation("gloo:all_reduce", 50, 150, worker)
    rank, _ = linked(build)
    launches = rank.edges.where(Relation.LAUNCHES)
    assert (launches.source.tolist(), launches.target.tolist()) == ([operator], [work])
    assert report(rank, "launches.annotation") == (1, 1, {}, {})


def test_a_rank_without_communication_has_no_calls() -> None:
    build = TraceBuilder()
    build.op("aten::mm", 0, 10)
    rank, calls = linked(build)
    assert (calls, [report.relation for report in rank.reports]) == ([], ["calls"])


def test_entries_and_nodes_without_numbers_are_the_same_where_they_line_up_in_one_way() -> None:
    """gloo numbers neither; the recorder starts before the execution trace."""
    build = TraceBuilder()
    recorded = ["gloo:broadcast", "gloo:all_reduce", "gloo:all_reduce", "gloo:barrier", "gloo:all_gather"]
    records = [
        build.communication(build.record(name, 10 * place), operation=name, group="0", sequence=place)
        for place, name in enumerate(recorded)
    ]
    names = ["c10d::_reduce_scatter_base_", "c10d::barrier", "c10d::send", "c10d::allgather_"]
    nodes = [
        build.communication(build.node(name, 20 + place), operation=name) for place, name in enumerate(names)
    ]
    calls = calls_of(build)
    assert {call["node"]: call.get("record") for call in calls if "node" in call} == {
        nodes[0]: None,
        nodes[1]: records[3],
        nodes[2]: None,
        nodes[3]: records[4],
    }
    assert len(calls) == len(records) + 2


@pytest.mark.parametrize("around", ["record_param_comms", "nccl:coalesced"])
def test_messages_that_one_operator_put_on_a_device_are_calls_of_their_own(around: str) -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "20")
    kind = EventKind.ANNOTATION if ":" in around else EventKind.OPERATOR
    operator = build.event(kind, around, 0, 10)
    kernels = [build.kernel("ncclDevKernel_SendRecv", 20, 30, stream) for _ in range(3)]
    for tag, kernel in enumerate(kernels):
        build.edge(operator, Relation.LAUNCHES, kernel)
        build.communication(
            kernel, operation="send", point_to_point=True, target=1, global_ranks=True, tag=tag
        )
    told = [(call["operation"], call["tag"], call["kernel"], call["target"]) for call in calls_of(build)]
    assert sorted(told) == [("send", tag, kernel, 1) for tag, kernel in enumerate(kernels)]
