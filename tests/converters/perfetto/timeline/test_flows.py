"""Flows within a rank and between ranks."""

from __future__ import annotations

from decimal import Decimal

import pytest

from builders.job import JobBuilder
from builders.perfetto import Event, Written, nanoseconds, write
from tracelink._model.columns import NO_TIME
from tracelink._model.communications import Evidence
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.findings import Severity
from tracelink.converters.perfetto.timeline.flows import MOST_RUNS
from tracelink.converters.perfetto.timeline.layout import FIRST_SLICE_FLOW, FLOWS_PER_BLOCK
from tracelink.converters.perfetto.timeline.schema import ARRIVAL_CATEGORY

# Arrows: each binds to its own slices, by events of its own or carried by the slices.


def job() -> tuple[JobBuilder, int, int]:
    built = JobBuilder()
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
    assert written.slice("outer")["bind_id"] == written.slice("gemm")["bind_id"] == FIRST_SLICE_FLOW
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
    assert drawn + written.reasons()["flow_crowded"] == 3


def test_an_effect_before_its_cause_is_drawn_from_the_earlier_and_counted() -> None:
    built, thread, stream = job()
    call = built.add(thread, "cudaLaunchKernel", 1000, 500, EventKind.RUNTIME)
    kernel = built.add(stream, "gemm", 400, 100, EventKind.KERNEL)
    built.edge(call, Relation.LAUNCHES, kernel)
    written = write(built.build())
    assert without_place(arrows(written)) == [("s", "ac2g", 1, "0.4"), ("f", "ac2g", 1, "1.0")]
    assert written.reasons() == {"flow_reversed": 1}


def test_an_effect_that_waits_for_its_cause_is_drawn_from_the_earlier_without_a_warning() -> None:
    built, thread, stream = job()
    wait = built.add(thread, "cudaStreamSynchronize", 400, 900, EventKind.RUNTIME)
    kernel = built.add(stream, "gemm", 1000, 200, EventKind.KERNEL)
    built.edge(wait, Relation.DEPENDS_ON, kernel)
    written = write(built.build())
    assert without_place(arrows(written)) == [("s", "depends", 1, "0.4"), ("f", "depends", 1, "1.0")]
    assert [(finding.reason, finding.severity, finding.count) for finding in written.findings] == [
        ("flow_reversed", Severity.INFO, 1)
    ]


def test_numbers_are_unique_over_ranks_and_relations() -> None:
    built = JobBuilder()
    for rank in range(2):
        thread = built.track(rank=rank)
        for start in (0, 1000):
            call = built.add(thread, "call", start, 10, EventKind.RUNTIME)
            work = built.add(thread, "work", start + 100, 10)
            built.edge(call, Relation.LAUNCHES, work)
            built.edge(work, Relation.BACKWARD_OF, call)
    numbers = [event["id"] for event in write(built.build()).events("s")]
    assert sorted(numbers) == [*range(1, 5), *range(FLOWS_PER_BLOCK + 1, FLOWS_PER_BLOCK + 5)]


def launching_ranks(ranks: int, *correlations: int | None) -> JobBuilder:
    """Calls of these correlation ids on each rank, each with a kernel; the first kernel leads to an operator."""
    built = JobBuilder()
    for rank in range(ranks):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        kernels = []
        for index, correlation in enumerate(correlations):
            keys = {} if correlation is None else {Key.CORRELATION: correlation}
            call = built.add(thread, "call", 100 * index, 10, EventKind.RUNTIME, keys=keys)
            kernels.append(built.add(stream, "work", 100 * index + 50, 10, EventKind.KERNEL, keys=keys))
            built.edge(call, Relation.LAUNCHES, kernels[-1])
        waits = built.add(thread, "aten::item", 1000, 10, keys={Key.CORRELATION: 7})
        built.edge(waits, Relation.WAITS_FOR, kernels[0])
    return built


def numbers_by_start(built: JobBuilder) -> list[tuple[str, int, int]]:
    """(category, ns, id) of the start of each arrow."""
    starts = write(built.build()).events("s")
    return sorted((event["cat"], nanoseconds(event["ts"]), event["id"]) for event in starts)


def test_launches_of_a_single_rank_have_unique_correlation_ids_as_numbers() -> None:
    assert numbers_by_start(launching_ranks(1, 7, 4, 9, 4, None, 0)) == [
        ("ac2g", 0, 7),
        ("ac2g", 100, 10),
        ("ac2g", 200, 9),
        ("ac2g", 300, 11),
        ("ac2g", 400, 12),
        ("ac2g", 500, 13),
        ("waits", 50, 14),
    ]


def test_launches_of_several_ranks_have_numbers_of_their_own() -> None:
    first = [("ac2g", 0, 1), ("ac2g", 100, 2), ("waits", 50, 3)]
    second = [(category, start, number + FLOWS_PER_BLOCK) for category, start, number in first]
    assert numbers_by_start(launching_ranks(2, 7, 4)) == sorted(first + second)


def test_an_edge_to_what_is_not_drawn_is_counted() -> None:
    built, thread, _ = job()
    drawn = built.add(thread, "aten::mm", 0, 100)
    hidden = built.add(built.track(TrackKind.NODES), "node", None, -1, EventKind.NODE)
    built.edge(drawn, Relation.DEPENDS_ON, hidden)
    written = write(built.build())
    assert arrows(written) == []
    assert written.reasons() == {"untimed": 1, "flow_without_end": 1}


def test_a_compilation_has_arrows_to_the_first_runs_of_everything_that_it_made() -> None:
    built, thread, _ = job()
    phase = built.add(
        built.track(identity="compiler"), "inductor_compile", 0, MOST_RUNS + 50, EventKind.COMPILATION
    )
    for number in reversed(range(MOST_RUNS + 3)):
        built.edge(phase, Relation.COMPILES, built.add(thread, "kernel", 1000 + 10 * number, 5))
    built.edge(phase, Relation.COMPILES, built.add(thread, "other kernel", 9000, 5))
    written = write(built.build())
    kept = [Decimal(1000 + 10 * number) / 1000 for number in range(MOST_RUNS)]
    assert sorted(event["ts"] for event in written.events("f")) == [*kept, Decimal(9)]
    assert written.reasons() == {"flow_to_later_run": 3}


# Arrows between ranks: from who entered last to the others' ends, from a sending to its receiving.


def kernels(*spans: tuple[int, int] | None) -> tuple[JobBuilder, list[int]]:
    """For each rank a stream with one kernel."""
    built = JobBuilder()
    rows = []
    for rank, span in enumerate(spans):
        stream = built.track(TrackKind.STREAM, rank, "0", "7")
        start, end = span or (None, None)
        rows.append(built.add(stream, f"of {rank}", start, (end or 0) - (start or 0), EventKind.KERNEL))
    return built, rows


def rank_arrows(written: Written) -> list[tuple[str, int, int, str, int, int]]:
    """Category, where and when each arrow begins, and the instant where it ends: name, place and time."""
    begins = {(e["id"], e["cat"], e["name"]): e for e in written.events("s")}
    events = marks(written, "i", "f")
    found = []
    for instant, end in zip(events[::2], events[1::2], strict=True):
        assert (instant["ph"], end["ph"], end["bp"]) == ("i", "f", "e")
        assert [instant[key] for key in ("pid", "tid", "ts", "cat")] == [
            end[key] for key in ("pid", "tid", "ts", "cat")
        ]
        begin = begins[end["id"], end["cat"], end["name"]]
        name = f"{instant['name']} {text(instant['args']['link'])}"
        found.append((end["cat"], begin["tid"], at(begin), name, end["tid"], at(end)))
    return found


def marks(written: Written, *phases: str) -> list[Event]:
    """Events on tracks of ranks: those of groups say in instants who entered last."""
    return [event for event in written.events(*phases) if event["cat"] != ARRIVAL_CATEGORY]


def at(event: Event) -> int:
    return nanoseconds(event["ts"])


def text(arguments: dict[str, int]) -> str:
    return " ".join(f"{key} {value}" for key, value in arguments.items())


def test_who_entered_last_points_at_the_ends_of_the_others() -> None:
    built, rows = kernels((0, 500), (300, 510), (20, 505))
    built.together(built.group(0, 1, 2), *rows)
    written = write(built.build())
    places = [written.slice(f"of {rank}")["tid"] for rank in range(3)]
    assert rank_arrows(written) == [
        ("waits", places[1], 300, "waited for rank 1", places[0], 499),
        ("waits", places[1], 300, "waited for rank 1", places[2], 504),
    ]
    assert [begin["id"] for begin in written.events("s")] == [3 * FLOWS_PER_BLOCK + 1]
    assert written.findings == ()


def test_a_message_leads_from_the_sending_to_the_end_of_the_receiving() -> None:
    built, (receive, send) = kernels((0, 500), (300, 350))
    built.message(built.group(0, 1), send, receive)
    written = write(built.build())
    place, other = (written.slice(f"of {rank}")["tid"] for rank in range(2))
    assert rank_arrows(written) == [("message", other, 300, "received from rank 1", place, 499)]


def test_an_end_has_its_instant_just_before_it() -> None:
    """The engine gives an end to what opened last on its thread, and what has one time in the file's order."""
    built, (one, two, three) = kernels((0, 500), (300, 500), (310, 500))
    group = built.group(0, 1, 2)
    built.together(group, one, two)
    built.together(group, one, three)
    phases = [event["ph"] for event in marks(write(built.build()), "s", "i", "f")]
    assert phases == ["s", "s", "i", "f", "i", "f"]


def test_an_operator_that_only_asks_leaves_the_arrow_to_the_recorder() -> None:
    built, entries = kernels((0, 500), (300, 500))
    built.together(built.group(0, 1), *entries, as_what="record")
    asked = built.add(1, "asks", 0, 10)
    for part in built.participations:
        part["evidence"] = Evidence.RECORDER
    built.participations[1]["operator"] = asked
    assert [(begin, end) for _, _, begin, _, _, end in rank_arrows(write(built.build()))] == [(300, 499)]


def test_an_event_without_length_is_where_its_arrow_ends() -> None:
    built, rows = kernels((300, 300), (300, 350))
    built.message(built.group(0, 1), rows[1], rows[0])
    assert [arrow[-1] for arrow in rank_arrows(write(built.build()))] == [300]


@pytest.mark.parametrize(("end", "drawn"), [(301, 1), (300, 0), (200, 0)])
def test_no_arrow_runs_back_in_time(end: int, drawn: int) -> None:
    built, (waits, last) = kernels((0, end), (300, 400))
    built.together(built.group(0, 1), waits, last)
    built.participations[0]["end"] = NO_TIME
    written = write(built.build())
    assert len(rank_arrows(written)) == drawn
    assert written.reasons() == ({} if drawn else {"flow_against_time": 1})


def test_an_arrow_from_a_slice_that_opens_together_with_others_is_counted() -> None:
    built, rows = kernels((0, 500), (300, 500))
    built.add(1, "opens with it", 300, 10, EventKind.KERNEL)
    built.together(built.group(0, 1), *rows)
    written = write(built.build())
    assert rank_arrows(written) == []
    assert written.reasons() == {"flow_crowded": 1}


def test_an_arrow_to_what_is_not_drawn_is_counted() -> None:
    built, (sends, receives) = kernels((0, 500), None)
    built.message(built.group(0, 1), sends, receives, received=0)
    written = write(built.build())
    assert rank_arrows(written) == []
    assert written.reasons() == {"untimed": 1, "flow_without_end": 1}


def test_an_arrow_to_an_end_that_was_not_recorded_is_counted() -> None:
    built, (waits, last) = kernels((0, -1), (300, 400))
    built.together(built.group(0, 1), waits, last)
    written = write(built.build())
    assert rank_arrows(written) == []
    assert written.reasons() == {"unfinished": 1, "flow_to_unfinished": 1}


def test_events_say_what_they_are_a_part_of() -> None:
    built, (first, last, alone) = kernels((0, 500), (300, 500), (0, 10))
    tp, world = built.group(0, 1, description="tp", name="21"), built.group(0, 1, 2, name="0")
    built.together(tp, first, last, sequence=7)
    built.together(world, alone, skew=-1)
    written = write(built.build())
    assert [written.slice(f"of {rank}")["args"]["collective"] for rank in range(3)] == [
        {"group": "tp #7", "wait_us": Decimal("0.3"), "waits_for_rank": 1},
        {"group": "tp #7", "wait_us": 0, "last": True},
        {"group": "0 #1", "wait_us": 0},
    ]


def test_a_kernel_of_several_collectives_names_them_all() -> None:
    built, rows = kernels((0, 500), (300, 500))
    group = built.group(0, 1, description="tp")
    built.together(group, *rows)
    built.together(group, *rows)
    assert write(built.build()).slice("of 1")["args"]["collective"]["group"] == "tp #0, tp #1"
