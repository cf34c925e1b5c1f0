"""Arrows: each binds to its own slices, by events of its own or carried by the slices."""

from __future__ import annotations

from builders.graph import GraphBuilder
from builders.perfetto import Event, Written, write
from tracelink.converters.perfetto.timeline.layout import ARROWS, BINDINGS
from tracelink.model.events import EventKind, Relation, TrackKind


def job() -> tuple[GraphBuilder, int, int]:
    built = GraphBuilder()
    return built, built.track(), built.track(TrackKind.STREAM, process="0", identity="7")


def without_place(events: list[Event]) -> list[tuple[str, str, int, str]]:
    return [(e["ph"], e["cat"], e["id"], str(e["ts"])) for e in events]


def arrows(written: Written) -> list[Event]:
    return written.events("s", "f")


def test_a_launch_leads_from_the_call_to_the_kernel() -> None:
    built, thread, stream = job()
    call = built.add(thread, "cudaLaunchKernel", 1000, 500, EventKind.RUNTIME)
    kernel = built.add(stream, "gemm", 2500, 900, EventKind.KERNEL)
    built.edge(call, Relation.LAUNCHES, kernel)
    written = write(built.build())
    launch, work = written.slice("cudaLaunchKernel"), written.slice("gemm")
    common = {"cat": "ac2g", "name": "ac2g", "id": 1}
    assert arrows(written) == [
        {"ph": "s", **common, "pid": launch["pid"], "tid": launch["tid"], "ts": launch["ts"]},
        {"ph": "f", "bp": "e", **common, "pid": work["pid"], "tid": work["tid"], "ts": work["ts"]},
    ]
    assert written.findings == ()


def test_one_number_for_all_arrows_of_an_event_and_starts_before_ends() -> None:
    built, thread, stream = job()
    graph_launch = built.add(thread, "cudaGraphLaunch", 0, 5, EventKind.RUNTIME)
    other = built.add(thread, "cudaLaunchKernel", 10, 5, EventKind.RUNTIME)
    for number in range(3):
        kernel = built.add(stream, f"k{number}", 20 + 10 * number, 5, EventKind.KERNEL)
        built.edge(other if number == 1 else graph_launch, Relation.LAUNCHES, kernel)
    assert without_place(arrows(write(built.build()))) == [
        ("s", "ac2g", 1, "0.0"),
        ("s", "ac2g", 2, "0.01"),
        ("f", "ac2g", 1, "0.02"),
        ("f", "ac2g", 1, "0.04"),
        ("f", "ac2g", 2, "0.03"),
    ]


def test_backward_is_drawn_from_forward_and_calls_are_not_drawn() -> None:
    built, thread, _ = job()
    forward = built.add(thread, "aten::mm", 0, 100)
    inner = built.add(thread, "aten::mm_inner", 10, 20)
    backward = built.add(thread, "MmBackward0", 200, 100)
    built.edge(backward, Relation.BACKWARD_OF, forward)
    built.edge(forward, Relation.CALLS, inner)
    assert without_place(arrows(write(built.build()))) == [
        ("s", "fwdbwd", 1, "0.0"),
        ("f", "fwdbwd", 1, "0.2"),
    ]


def test_a_slice_whose_child_starts_with_it_carries_the_arrow_itself() -> None:
    built, thread, stream = job()
    call = built.add(thread, "outer", 1000, 500, EventKind.RUNTIME)
    built.add(thread, "inner", 1000, 100)
    kernel = built.add(stream, "gemm", 2500, 900, EventKind.KERNEL)
    built.edge(call, Relation.LAUNCHES, kernel)
    written = write(built.build())
    assert arrows(written) == []
    assert written.slice("outer")["bind_id"] == written.slice("gemm")["bind_id"] == BINDINGS
    assert written.slice("outer")["flow_out"] is True
    assert written.slice("gemm")["flow_in"] is True
    assert "bind_id" not in written.slice("inner")


def test_a_second_arrow_to_a_slice_ahead_of_others_comes_in_from_in_front() -> None:
    built, thread, stream = job()
    one = built.add(thread, "one", 100, 10, EventKind.RUNTIME)
    two = built.add(thread, "two", 200, 10, EventKind.RUNTIME)
    work = built.add(stream, "work", 300, 50, EventKind.GPU_ANNOTATION)
    built.add(stream, "gemm", 300, 40, EventKind.KERNEL)
    built.edge(one, Relation.LAUNCHES, work)
    built.edge(two, Relation.LAUNCHES, work)
    written = write(built.build())
    (end,) = written.events("f")
    assert str(end["ts"]) == "0.299"
    assert "bp" not in end
    assert written.findings == ()


def test_an_arrow_that_nothing_can_carry_is_counted() -> None:
    built, thread, stream = job()
    calls = [built.add(thread, f"call {n}", 100, 10 - n, EventKind.RUNTIME) for n in range(3)]
    work = built.add(stream, "work", 300, 50, EventKind.GPU_ANNOTATION)
    built.add(stream, "gemm", 300, 40, EventKind.KERNEL)
    for call in calls:
        built.edge(call, Relation.LAUNCHES, work)
    written = write(built.build())
    drawn = len(written.events("f")) + sum("flow_in" in event for event in written.slices())
    assert drawn + written.reasons()["arrow_crowded"] == 3


def test_an_effect_before_its_cause_is_drawn_from_the_earlier_and_counted() -> None:
    built, thread, stream = job()
    call = built.add(thread, "cudaLaunchKernel", 1000, 500, EventKind.RUNTIME)
    kernel = built.add(stream, "gemm", 400, 100, EventKind.KERNEL)
    built.edge(call, Relation.LAUNCHES, kernel)
    written = write(built.build())
    assert without_place(arrows(written)) == [("s", "ac2g", 1, "0.4"), ("f", "ac2g", 1, "1.0")]
    assert written.reasons() == {"arrow_turned": 1}


def test_numbers_are_unique_over_ranks_and_relations() -> None:
    built = GraphBuilder()
    for rank in range(2):
        thread = built.track(rank=rank)
        for start in (0, 1000):
            call = built.add(thread, "call", start, 10, EventKind.RUNTIME)
            work = built.add(thread, "work", start + 100, 10)
            built.edge(call, Relation.LAUNCHES, work)
            built.edge(work, Relation.BACKWARD_OF, call)
    numbers = [event["id"] for event in write(built.build()).events("s")]
    assert sorted(numbers) == [*range(1, 5), *range(ARROWS + 1, ARROWS + 5)]


def test_an_edge_to_what_is_not_drawn_is_counted() -> None:
    built, thread, _ = job()
    drawn = built.add(thread, "aten::mm", 0, 100)
    hidden = built.add(built.track(TrackKind.NODES), "node", None, -1, EventKind.NODE)
    built.edge(drawn, Relation.DEPENDS_ON, hidden)
    written = write(built.build())
    assert arrows(written) == []
    assert written.reasons() == {"untimed": 1, "arrow_without_end": 1}
