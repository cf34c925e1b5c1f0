"""Waits of the host for a device, and order between threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.ordering import RankBuilder, found, named
from tracelink._model.events import EventKind, Relation
from tracelink._model.trace import Awaited
from tracelink._order.host import hand_overs, host_waits, resumptions
from tracelink._order.order import Order, launched_work

COMPUTE, SIDE = 7, 20
COPY = EventKind.MEMCPY
MICROSECOND = 1000


def order_of(rank: RankBuilder) -> Order:
    part = rank.part()
    return host_waits(part, launched_work(part), rank.synchronizations())


def pairs_of(rank: RankBuilder) -> list[tuple[str, str]]:
    return named(rank.part(), order_of(rank))


class TestInferred:
    def test_what_follows_on_the_thread_waits_for_the_stream_that_it_used_last(self) -> None:
        rank = RankBuilder()
        rank.op("aten::item", 0, 60)
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("earlier", 10, 20, COMPUTE, launched=2)
        rank.work("last", 20, 50, COMPUTE, launched=3)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("too early", 50, 52)
        rank.op("on another thread", 55, 70, "other")
        rank.op("next", 61, 70)
        rank.op("after next", 71, 80)
        assert pairs_of(rank) == [("last", "next")]
        assert found(order_of(rank)) == {"waits": 1, "inferred": 1}

    def test_the_outer_one_of_two_that_begin_together_follows(self) -> None:
        rank = RankBuilder()
        rank.work("last", 20, 50, launched=3)
        rank.call("hipStreamSynchronize", 5, 55)
        rank.op("inner", 60, 61)
        rank.op("outer", 60, 70, kind=EventKind.ANNOTATION)
        assert pairs_of(rank) == [("last", "outer")]

    def test_another_thread_may_have_given_the_stream_its_last_work(self) -> None:
        rank = RankBuilder()
        rank.work("own", 10, 20, launched=1)
        rank.work("of another thread", 20, 50, launched=3, thread="other")
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("of another thread", "next")]

    @pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize"])
    def test_a_device_is_waited_for_on_all_its_streams(self, call: str) -> None:
        rank = RankBuilder()
        rank.work("other device", 10, 20, launched=0, device=1)
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("compute", 20, 50, COMPUTE, launched=2)
        rank.call(call, 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("compute", "next"), ("side", "next")]

    def test_work_from_before_the_recording_is_waited_for(self) -> None:
        rank = RankBuilder()
        rank.work("launched before", 10, 50)
        rank.call("cudaDeviceSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("launched before", "next")]

    def test_an_event_is_waited_for_since_its_record(self) -> None:
        rank = RankBuilder()
        rank.work("recorded", 10, 20, launched=1)
        rank.call("cudaEventRecord", 2)
        rank.work("later", 20, 30, launched=3)
        rank.call("cudaEventSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("recorded", "next")]

    def test_where_the_stream_still_runs_it_was_what_ended_during_the_call(self) -> None:
        rank = RankBuilder()
        rank.work("awaited", 10, 50, SIDE, launched=1)
        rank.work("still running", 10, 9 * MICROSECOND, COMPUTE, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("awaited", "next")]

    def test_clocks_of_host_and_device_may_differ_by_a_microsecond(self) -> None:
        rank = RankBuilder()
        rank.work("awaited", 10, 55 + MICROSECOND, launched=1)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("before its end", 60, 70)
        rank.op("next", 2 * MICROSECOND, 3 * MICROSECOND)
        assert pairs_of(rank) == [("awaited", "next")]

    def test_a_wait_that_nothing_explains_is_counted(self) -> None:
        rank = RankBuilder()
        rank.work("still running", 10, 9 * MICROSECOND, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        rank.op("next", 60, 70)
        order = order_of(rank)
        assert (len(order), found(order)) == (0, {"waits": 1, "unexplained": 1})

    def test_a_wait_that_nothing_follows_is_counted(self) -> None:
        rank = RankBuilder()
        rank.work("last", 10, 20, launched=2)
        rank.call("cudaStreamSynchronize", 5, 55)
        assert found(order_of(rank)) == {"waits": 1, "inferred": 1, "nothing_follows": 1}

    def test_asking_for_an_event_is_no_wait(self) -> None:
        rank = RankBuilder()
        rank.work("done", 2, 3, launched=1)
        rank.call("cudaEventQuery", 5, 55)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {}


class TestCopies:
    @pytest.mark.parametrize(
        ("call", "copy", "blocks"),
        [
            ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
            ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
            ("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", False),
            ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", False),
            ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)", True),
            ("hipMemcpyWithStream", "Memcpy DtoH (Device -> Host)", True),
        ],
    )
    def test_some_return_only_when_they_are_done(self, call: str, copy: str, *, blocks: bool) -> None:
        rank = RankBuilder()
        rank.work(copy, 10, 20, kind=COPY, by=rank.call(call, 0, 25))
        rank.op("next", 30, 40)
        assert pairs_of(rank) == ([(copy, "next")] if blocks else [])
        assert found(order_of(rank)) == ({"blocking_copies": 1} if blocks else {})

    def test_a_copy_that_ran_on_was_not_waited_for(self) -> None:
        rank = RankBuilder()
        rank.work(
            "Memcpy DtoH (Device -> Pageable)",
            10,
            9 * MICROSECOND,
            kind=COPY,
            by=rank.call("cudaMemcpy", 0, 25),
        )
        rank.op("next", 30, 40)
        assert pairs_of(rank) == []


class TestRecorded:
    def test_a_stream(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.work("compute", 10, 20, COMPUTE, launched=2)
        call = rank.call("cudaStreamSynchronize", 5, 55, correlation=1)
        rank.recorded(Awaited.STREAM, call, stream=SIDE)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("side", "next")]
        assert found(order_of(rank)) == {"waits": 1, "recorded": 1}

    def test_a_device(self) -> None:
        rank = RankBuilder()
        rank.work("of 0", 10, 20, COMPUTE, launched=1)
        rank.work("of 1", 10, 20, COMPUTE, launched=2, device=1)
        call = rank.call("cudaDeviceSynchronize", 5, 55, correlation=1)
        rank.recorded(Awaited.DEVICE, call, device=0)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("of 0", "next")]

    def test_an_event(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.call("cudaEventRecord", 2, correlation=1)
        rank.work("side, later", 20, 30, SIDE, launched=3)
        rank.work("compute", 10, 20, COMPUTE, launched=4)
        call = rank.call("cudaEventSynchronize", 5, 55, correlation=2)
        rank.recorded(Awaited.EVENT, call, event_stream=SIDE, event_record=1)
        rank.op("next", 60, 70)
        assert pairs_of(rank) == [("side", "next")]

    def test_an_event_that_was_never_recorded(self) -> None:
        rank = RankBuilder()
        rank.work("compute", 10, 20, COMPUTE, launched=4)
        call = rank.call("cudaEventSynchronize", 5, 55, correlation=2)
        rank.recorded(Awaited.EVENT, call)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {"waits": 1, "nothing_to_wait_for": 1}

    def test_asking_for_an_event_is_recorded_too_and_no_wait(self) -> None:
        rank = RankBuilder()
        rank.work("side", 10, 20, SIDE, launched=1)
        rank.call("cudaEventRecord", 2, correlation=1)
        call = rank.call("cudaEventQuery", 30, 31, correlation=2)
        rank.recorded(Awaited.EVENT, call, event_stream=SIDE, event_record=1)
        rank.op("next", 60, 70)
        assert found(order_of(rank)) == {}


MOMENTS = st.integers(0, 40)
NAMES = st.sampled_from(
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventRecord"]
)


@given(
    work=st.lists(st.tuples(MOMENTS, st.integers(0, 2000), st.sampled_from([7, 20]), MOMENTS), max_size=8),
    calls=st.lists(st.tuples(NAMES, MOMENTS, MOMENTS), max_size=6),
    operators=st.lists(st.tuples(MOMENTS, MOMENTS), max_size=6),
)
def test_times_allow_every_pair(
    work: list[tuple[int, int, int, int]],
    calls: list[tuple[str, int, int]],
    operators: list[tuple[int, int]],
) -> None:
    rank = RankBuilder()
    for number, (start, length, stream, launched) in enumerate(work):
        rank.work(f"k{number}", start, start + length, stream, launched=launched or None)
    for name, start, length in calls:
        rank.call(name, start, start + length)
    for start, length in operators:
        rank.op("op", start, start + length)
    part, order = rank.part(), order_of(rank)
    events = part.events
    assert (events.end[order.before] <= events.start[order.after]).all()
    assert (events.kind[order.before] == EventKind.KERNEL).all()
    assert (events.kind[order.after] == EventKind.OPERATOR).all()
    waits = [name for name, *_ in calls if name.endswith("Synchronize")]
    assert order.counts["waits"] == len(waits) == order.counts["inferred"] + order.counts["unexplained"]


# What autograd takes over from the forward thread, and gives back.


ENGINE = "autograd::engine::evaluate_function: "
AUTOGRAD = "pt_autograd_0"


def order_of_threads(rank: RankBuilder) -> Order:
    return hand_overs(rank.part())


def backward_of(rank: RankBuilder, backward: int, forward: int) -> None:
    rank.edge(backward, Relation.BACKWARD_OF, forward)


def test_a_pass_follows_what_its_caller_did_and_what_comes_next_follows_the_pass() -> None:
    rank = RankBuilder()
    step = rank.op("step", 0, 200, kind=EventKind.ANNOTATION)
    forward = rank.op("mul", 5, 10, inside=step)
    rank.op("loss", 20, 30, inside=step)
    node = rank.op(ENGINE + "MulBackward0", 50, 60, AUTOGRAD)
    rank.op("mul in backward", 52, 58, AUTOGRAD, inside=node)
    backward_of(rank, node, forward)
    rank.op("bucket", 62, 70, AUTOGRAD)
    optimizer = rank.op("optimizer", 80, 100, inside=step, kind=EventKind.ANNOTATION)
    rank.op("add_", 85, 90, inside=optimizer)
    order = order_of_threads(rank)
    assert named(rank.part(), order) == [
        ("bucket", "optimizer"),
        ("loss", ENGINE + "MulBackward0"),
        ("mul", ENGINE + "MulBackward0"),
    ]
    assert order.counts == {"backward_of": 1, "forward_had_not_ended": 0, "between_threads": 2}


def test_every_pass_has_its_own_caller() -> None:
    rank = RankBuilder()
    for step in (0, 100):
        forward = rank.op(f"forward {step}", step, step + 10)
        backward_of(rank, rank.op(f"backward {step}", step + 20, step + 30, AUTOGRAD), forward)
        rank.op(f"update {step}", step + 40, step + 50)
    assert named(rank.part(), order_of_threads(rank)) == [
        ("backward 0", "update 0"),
        ("backward 100", "update 100"),
        ("forward 0", "backward 0"),
        ("forward 100", "backward 100"),
    ]


def test_what_the_engine_runs_on_the_caller_ends_no_pass() -> None:
    """It waits for the pass, but the pass goes on without it."""
    rank = RankBuilder()
    forward = rank.op("forward", 0, 10)
    backward_of(rank, rank.op("first", 20, 30, AUTOGRAD), forward)
    accumulate = rank.op(ENGINE + "torch::autograd::AccumulateGrad", 32, 36)
    rank.op("torch::autograd::AccumulateGrad", 33, 35, inside=accumulate)
    rank.op("second", 40, 50, AUTOGRAD)
    assert named(rank.part(), order_of_threads(rank)) == [
        ("first", ENGINE + "torch::autograd::AccumulateGrad"),
        ("forward", "first"),
    ]


def test_on_one_thread_only_the_links_count() -> None:
    rank = RankBuilder()
    forward = rank.op("forward", 0, 10)
    backward_of(rank, rank.op("backward", 20, 30), forward)
    rank.op("update", 40, 50)
    assert named(rank.part(), order_of_threads(rank)) == [("forward", "backward")]


def test_a_forward_operator_that_had_not_ended_was_not_waited_for() -> None:
    rank = RankBuilder()
    forward = rank.op("checkpoint", 0, 100)
    backward_of(rank, rank.op("backward", 20, 30, AUTOGRAD), forward)
    order = order_of_threads(rank)
    assert (len(order), order.counts["forward_had_not_ended"]) == (0, 1)


def test_threads_without_links_hand_nothing_over() -> None:
    rank = RankBuilder()
    rank.op("loader", 0, 10, "worker")
    rank.op("forward", 20, 30)
    assert len(order_of_threads(rank)) == 0


# A thread goes on when communication on another thread has ended, if it visibly stood still until then.


@pytest.fixture
def rank() -> RankBuilder:
    return RankBuilder()


def resumed(rank: RankBuilder, *pairs: tuple[int, int]) -> tuple[list[tuple[str, str]], Order]:
    part = rank.part()
    asked, done = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    order = resumptions(part, asked, done)
    return named(part, order), order


def test_what_the_thread_does_first_after_the_end_of_the_work(rank: RankBuilder) -> None:
    asked = rank.op("allreduce", 0, 10)
    rank.op("next", 52, 60)
    rank.op("later", 70, 80)
    done = rank.op("gloo", 12, 50, "worker", kind=EventKind.ANNOTATION)
    pairs, order = resumed(rank, (asked, done))
    assert pairs == [("gloo", "next")]
    assert found(order) == {"requested": 1, "waited": 1}


def test_work_that_ended_long_before_the_thread_goes_on_was_not_waited_for(rank: RankBuilder) -> None:
    """It ended in the first half of the pause."""
    asked = rank.op("allreduce", 0, 10)
    rank.op("next", 100, 110)
    done = rank.op("gloo", 12, 30, "worker")
    assert resumed(rank, (asked, done))[0] == []


def test_a_thread_that_worked_meanwhile_did_not_wait(rank: RankBuilder) -> None:
    asked = rank.op("allreduce", 0, 10)
    rank.op("busy", 12, 49)
    rank.op("next", 60, 70)
    done = rank.op("gloo", 12, 50, "worker")
    assert resumed(rank, (asked, done))[0] == []


def test_a_thread_can_wait_inside_an_operator(rank: RankBuilder) -> None:
    asked = rank.op("allreduce", 0, 10)
    outer = rank.op("backward", 11, 90)
    rank.op("inner", 52, 60, inside=outer)
    done = rank.op("gloo", 5, 50, "worker")
    assert resumed(rank, (asked, done))[0] == [("gloo", "inner")]


def test_nothing_follows(rank: RankBuilder) -> None:
    asked = rank.op("allreduce", 0, 10)
    done = rank.op("gloo", 12, 50, "worker")
    assert resumed(rank, (asked, done))[0] == []


def test_work_on_the_thread_itself_and_work_without_an_end_say_nothing(rank: RankBuilder) -> None:
    asked = rank.op("allreduce", 0, 10)
    own = rank.op("own", 12, 50)
    rank.op("next", 52, 60)
    endless = rank.op("endless", 12, 11, "worker")
    pairs, order = resumed(rank, (asked, own), (asked, endless), (-1, own), (asked, -1), (own, own))
    assert pairs == []
    assert order.counts == {"requested": 2, "waited": 0}


def test_several_works_end_in_one_pause(rank: RankBuilder) -> None:
    """The thread waited for the last; the other ended in the first half of the pause."""
    one, two = rank.op("one", 0, 5), rank.op("two", 5, 10)
    rank.op("next", 52, 60)
    done = [rank.op(f"gloo {end}", 6, end, "worker") for end in (20, 50)]
    assert resumed(rank, (one, done[0]), (two, done[1]))[0] == [("gloo 50", "next")]


def test_nothing() -> None:
    assert resumed(RankBuilder())[0] == []
