"""Order on one stream, and waits between streams."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.ordering import RankBuilder, found, named
from tracelink._model.events import EventKind, Track
from tracelink._model.trace import Awaited
from tracelink._order.order import Order, can_follow, launched_work
from tracelink._order.streams import stream_order, stream_waits

# Order of the work on one stream.


WORK = st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 5), st.integers(1, 2)), max_size=12)


def test_each_after_the_one_before_it_on_its_stream() -> None:
    rank = RankBuilder()
    rank.work("second", 20, 30, stream=7)
    rank.work("copy", 10, 15, stream=9, kind=EventKind.MEMCPY)
    rank.work("first", 0, 10, stream=7, kind=EventKind.MEMSET)
    rank.work("third", 30, 40, stream=7)
    order = stream_order(rank.part())
    assert named(rank.part(), order) == [("first", "second"), ("second", "third")]
    assert order.counts == {"work": 4, "first": 2}


def test_what_overlaps_on_a_stream_waits_for_what_had_ended() -> None:
    rank = RankBuilder()
    rank.work("first", 0, 10)
    rank.work("early", 12, 30)
    rank.work("overlapping", 20, 40)
    rank.work("after early", 35, 50)
    order = stream_order(rank.part())
    assert named(rank.part(), order) == [
        ("early", "after early"),
        ("first", "early"),
        ("first", "overlapping"),
    ]


def test_streams_of_two_devices_are_two_streams() -> None:
    rank = RankBuilder()
    rank.work("on 0", 0, 10, device=0)
    rank.work("on 1", 20, 30, device=1)
    assert len(stream_order(rank.part())) == 0


def test_a_kernel_without_a_recorded_end_holds_up_nothing() -> None:
    rank = RankBuilder()
    rank.work("ended", 0, 10)
    rank.add(rank.stream(7), "cut off", 20, -1, EventKind.KERNEL)
    rank.work("next", 40, 50)
    assert named(rank.part(), stream_order(rank.part())) == [("ended", "cut off"), ("ended", "next")]


def test_work_without_length_at_one_time_keeps_the_order_of_the_file() -> None:
    rank = RankBuilder()
    for name in ("a", "b", "c"):
        rank.work(name, 5, 5)
    assert named(rank.part(), stream_order(rank.part())) == [("a", "b"), ("b", "c")]


def test_nothing_at_all() -> None:
    order = stream_order(RankBuilder().part())
    assert (len(order), order.counts) == (0, {"work": 0, "first": 0})


@given(WORK)
def test_whatever_ended_before_another_starts_holds_something_up(
    work: list[tuple[int, int, int]],
) -> None:
    """Edges follow time, never in a circle.

    They lead from all that ended before something starts, and to all that something had ended before.
    """
    rank = RankBuilder()
    for start, length, stream in work:
        rank.add(rank.stream(stream), "k", start, length, EventKind.KERNEL)
    part = rank.part()
    events, order = part.events, stream_order(part)
    graph = networkx.DiGraph(zip(order.before.tolist(), order.after.tolist(), strict=True))
    graph.add_nodes_from(range(len(events)))
    assert networkx.is_directed_acyclic_graph(graph)
    assert can_follow(events, order.before, order.after).all()
    rows = np.arange(len(events))
    before, after = np.repeat(rows, len(rows)), np.tile(rows, len(rows))
    apart = (events.track[before] == events.track[after]) & (before != after)
    apart &= can_follow(events, before, after)
    apart &= events.duration[after] >= 0
    assert set(before[apart].tolist()) <= set(order.before.tolist())
    assert set(after[apart].tolist()) <= set(order.after.tolist())


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ((0, 10), (10, 20), True),
        ((0, 10), (9, 20), False),
        ((5, 5), (5, 5), True),
        ((0, 5), (5, 5), True),
        ((5, 5), (5, 9), True),
    ],
)
def test_can_follow(before: tuple[int, int], after: tuple[int, int], *, allowed: bool) -> None:
    rank = RankBuilder()
    rows = [rank.work("a", *before), rank.work("b", *after)]
    part = rank.part()
    one, other = part.rows(EventKind.KERNEL)[[rows[0]]], part.rows(EventKind.KERNEL)[[rows[1]]]
    assert can_follow(part.events, one, other).tolist() == [allowed]
    assert not can_follow(part.events, other, one).any()


def test_what_starts_later_waits_for_all_that_overlapped() -> None:
    rank = RankBuilder()
    rank.work("long", 0, 12)
    rank.work("overlapping", 10, 20)
    rank.work("later", 20, 30)
    assert named(rank.part(), stream_order(rank.part())) == [("long", "later"), ("overlapping", "later")]


# Streams that wait for each other, recorded and inferred.


COMPUTE, SIDE, COMMUNICATION = 7, 20, 40
RECORD, WAIT = "cudaEventRecord", "cudaStreamWaitEvent"


def order_of(rank: RankBuilder) -> Order:
    part = rank.part()
    return stream_waits(part, launched_work(part), rank.synchronizations())


def pairs_of(rank: RankBuilder) -> list[tuple[str, str]]:
    return named(rank.part(), order_of(rank))


def recorded_wait(
    rank: RankBuilder, record: int, wait: int, *, waiting: int, awaited: int, says_record: bool = True
) -> None:
    """An event that is recorded on one stream at a time, and waited for by another stream at a later time."""
    number = 2 * len(rank.rows)
    rank.call(RECORD, record, correlation=number)
    call = rank.call(WAIT, wait, correlation=number + 1)
    rank.recorded(
        Awaited.EVENT_BY_STREAM,
        call,
        stream=waiting,
        event_stream=awaited,
        event_record=number if says_record else -1,
    )


def communication(
    rank: RankBuilder, name: str, start: int, *, runs: tuple[int, int], wait: bool = True
) -> None:
    """A collective as torch issues it: its stream waits for the current one, then the library waits for itself."""
    record = rank.op("record_param_comms", start, start + 9)
    rank.call(RECORD, start + 1, inside=record)
    if wait:
        rank.call(WAIT, start + 2, inside=record)
    call = rank.op(f"nccl:{name}", start + 3, start + 8, inside=record, kind=EventKind.ANNOTATION)
    rank.work(name, *runs, COMMUNICATION, launched=start + 4, inside=call)
    rank.call(RECORD, start + 5, inside=call)
    rank.call(WAIT, start + 6, inside=call)


class TestRecorded:
    def test_the_next_work_of_the_stream_waits_for_the_last_before_the_record(self) -> None:
        rank = RankBuilder()
        rank.work("earlier", 10, 20, COMPUTE, launched=0)
        rank.work("last", 20, 30, COMPUTE, launched=2)
        recorded_wait(rank, 4, 8, waiting=SIDE, awaited=COMPUTE)
        rank.work("not waited for", 30, 35, COMPUTE, launched=6)
        rank.work("next", 50, 60, SIDE, launched=10)
        rank.work("after next", 60, 70, SIDE, launched=12)
        assert pairs_of(rank) == [("last", "next")]
        assert found(order_of(rank)) == {"waits": 1, "recorded": 1}

    def test_profiles_that_do_not_name_the_record_mean_the_last_one_of_the_thread(self) -> None:
        rank = RankBuilder()
        rank.work("last", 20, 30, COMPUTE, launched=2)
        recorded_wait(rank, 4, 8, waiting=SIDE, awaited=COMPUTE, says_record=False)
        rank.work("not waited for", 30, 35, COMPUTE, launched=6)
        rank.work("next", 50, 60, SIDE, launched=10)
        assert pairs_of(rank) == [("last", "next")]

    def test_a_stream_that_got_no_work_passes_on_what_it_waits_for(self) -> None:
        rank = RankBuilder()
        rank.work("first", 20, 30, COMPUTE, launched=2)
        recorded_wait(rank, 4, 5, waiting=SIDE, awaited=COMPUTE)
        recorded_wait(rank, 6, 8, waiting=COMMUNICATION, awaited=SIDE)
        rank.work("third", 50, 60, COMMUNICATION, launched=10)
        assert pairs_of(rank) == [("first", "third")]

    def test_a_stream_that_got_work_since_does_not(self) -> None:
        rank = RankBuilder()
        rank.work("first", 20, 30, COMPUTE, launched=2)
        recorded_wait(rank, 4, 5, waiting=SIDE, awaited=COMPUTE)
        rank.work("second", 30, 40, SIDE, launched=6)
        recorded_wait(rank, 7, 8, waiting=COMMUNICATION, awaited=SIDE)
        rank.work("third", 50, 60, COMMUNICATION, launched=10)
        assert pairs_of(rank) == [("first", "second"), ("second", "third")]

    def test_streams_without_work_have_nothing_to_wait_for(self) -> None:
        rank = RankBuilder()
        recorded_wait(rank, 4, 8, waiting=SIDE, awaited=COMPUTE)
        rank.work("next", 50, 60, SIDE, launched=10)
        assert found(order_of(rank)) == {"waits": 1, "nothing_to_wait_for": 1}

    def test_what_times_contradict_is_counted_and_left_out(self) -> None:
        rank = RankBuilder()
        rank.work("still running", 20, 99, COMPUTE, launched=2)
        recorded_wait(rank, 4, 8, waiting=SIDE, awaited=COMPUTE)
        rank.work("next", 50, 60, SIDE, launched=10)
        order = order_of(rank)
        assert (len(order), found(order)) == (0, {"waits": 1, "contradicted_by_times": 1})

    def test_nothing_is_inferred_where_a_profiler_records_waits(self) -> None:
        rank = RankBuilder()
        rank.work("first", 10, 20, COMPUTE, launched=0)
        recorded_wait(rank, 1, 2, waiting=SIDE, awaited=COMPUTE)
        rank.work("second", 30, 40, SIDE, launched=3)
        rank.call(WAIT, 4)
        rank.work("third", 50, 60, COMPUTE, launched=5)
        assert pairs_of(rank) == [("first", "second")]
        assert found(order_of(rank)) == {"waits": 2, "recorded": 1, "unexplained": 1}


class TestInferred:
    def test_a_collective_waits_for_what_its_thread_launched_before(self) -> None:
        rank = RankBuilder()
        rank.work("gradient", 20, 30, COMPUTE, launched=0)
        communication(rank, "all_reduce", 10, runs=(40, 50))
        assert pairs_of(rank) == [("gradient", "all_reduce")]
        assert found(order_of(rank)) == {"waits": 2, "inferred": 1, "within_a_communication": 1}

    def test_a_short_collective_holds_up_nothing_by_the_library_waiting_for_itself(self) -> None:
        rank = RankBuilder()
        rank.work("gradient", 20, 30, COMPUTE, launched=0)
        communication(rank, "all_reduce", 10, runs=(40, 50), wait=False)
        rank.work("unconcerned", 60, 70, COMPUTE, launched=55)
        assert pairs_of(rank) == []

    def test_each_wait_for_a_collective_is_for_the_next_one(self) -> None:
        rank = RankBuilder()
        communication(rank, "one", 10, runs=(20, 50))
        communication(rank, "two", 30, runs=(50, 60))
        for number, start in ((1, 100), (2, 120)):
            rank.call(WAIT, start)
            rank.work(f"optimizer {number}", start + 10, start + 15, COMPUTE, launched=start + 5)
        assert pairs_of(rank) == [("one", "optimizer 1"), ("two", "optimizer 2")]

    def test_work_that_began_late_visibly_waited_for_the_collective_that_ended_meanwhile(self) -> None:
        rank = RankBuilder()
        communication(rank, "never waited for", 10, runs=(20, 50))
        communication(rank, "awaited", 30, runs=(50, 200))
        rank.call(WAIT, 100)
        rank.work("optimizer", 202, 210, COMPUTE, launched=105)
        assert pairs_of(rank) == [("awaited", "optimizer")]

    def test_another_thread_may_launch_what_waits(self) -> None:
        rank = RankBuilder()
        rank.work("gradient", 2, 5, COMPUTE, launched=0)
        communication(rank, "all_reduce", 10, runs=(20, 50))
        rank.call(WAIT, 100)
        rank.work("optimizer", 120, 130, COMPUTE, launched=110, thread="another")
        assert pairs_of(rank) == [("all_reduce", "optimizer"), ("gradient", "all_reduce")]

    def test_a_collective_that_still_runs_was_not_waited_for(self) -> None:
        rank = RankBuilder()
        communication(rank, "all_reduce", 10, runs=(20, 500))
        rank.call(WAIT, 100)
        rank.work("optimizer", 120, 130, COMPUTE, launched=110)
        assert "unexplained" in found(order_of(rank))
        assert pairs_of(rank) == []

    def test_a_side_stream_waits_for_the_last_work_before_the_record(self) -> None:
        rank = RankBuilder()
        rank.work("copy", 10, 20, SIDE, launched=0, kind=EventKind.MEMCPY)
        rank.call(RECORD, 2)
        rank.call(WAIT, 3)
        rank.work("compute", 30, 40, COMPUTE, launched=5)
        assert pairs_of(rank) == [("copy", "compute")]

    def test_a_side_stream_without_records(self) -> None:
        rank = RankBuilder()
        rank.work("copy", 10, 20, SIDE, launched=0, kind=EventKind.MEMCPY)
        rank.call("hipStreamWaitEvent", 3)
        rank.work("compute", 30, 40, COMPUTE, launched=5)
        assert pairs_of(rank) == [("copy", "compute")]

    def test_a_wait_between_work_of_one_stream_is_unexplained(self) -> None:
        rank = RankBuilder()
        rank.work("one", 10, 20, COMPUTE, launched=0)
        rank.call(WAIT, 3)
        rank.work("two", 30, 40, COMPUTE, launched=5)
        assert found(order_of(rank)) == {"waits": 1, "unexplained": 1}

    def test_a_wait_without_any_work(self) -> None:
        rank = RankBuilder()
        rank.call(WAIT, 3)
        assert found(order_of(rank)) == {"waits": 1, "unexplained": 1}


MOMENTS = st.integers(0, 40)
LAUNCHES = st.lists(
    st.tuples(MOMENTS, MOMENTS, st.integers(0, 5), st.sampled_from([7, 20, 40]), st.sampled_from("ab")),
    max_size=8,
)
WAITS = st.lists(
    st.tuples(MOMENTS, MOMENTS, st.sampled_from([7, 20, 40]), st.sampled_from([7, 20, 40])), max_size=6
)


@given(launches=LAUNCHES, waits=WAITS, says=st.booleans())
def test_times_allow_every_pair(
    launches: list[tuple[int, int, int, int, str]], waits: list[tuple[int, int, int, int]], *, says: bool
) -> None:
    rank = RankBuilder()
    for number, (launched, start, length, stream, thread) in enumerate(launches):
        rank.work(f"k{number}", start, start + length, stream, launched=launched, thread=thread)
    for record, later, waiting, awaited in waits:
        if says:
            recorded_wait(rank, record, record + later, waiting=waiting, awaited=awaited)
        else:
            rank.call(RECORD, record, thread="a")
            rank.call(WAIT, record + later, thread="a")
    part, order = rank.part(), order_of(rank)
    events = part.events
    assert (events.end[order.before] <= events.start[order.after]).all()
    assert networkx.is_directed_acyclic_graph(networkx.DiGraph(zip(order.before, order.after, strict=True)))
    assert order.counts["waits"] == len(waits)
    assert order.counts["waits"] == sum(count for reason, count in order.counts.items() if reason != "waits")
    assert not says or _streams(part.graph.tracks, part.events.track[order.after]) <= {w[2] for w in waits}


def _streams(tracks: list[Track], chosen: list[int]) -> set[int]:
    return {int(tracks[track].identity) for track in chosen}
