"""Hand-overs between threads, and resumptions after communication."""

from __future__ import annotations

import numpy as np
import pytest

from builders.ordering import RankBuilder, found, named
from tracelink._model.events import EventKind, Relation
from tracelink._order.order import Order
from tracelink._order.threads import hand_overs, resumptions

# What autograd takes over from the forward thread, and gives back.


ENGINE = "autograd::engine::evaluate_function: "
AUTOGRAD = "pt_autograd_0"


def order_of(rank: RankBuilder) -> Order:
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
    order = order_of(rank)
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
    assert named(rank.part(), order_of(rank)) == [
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
    assert named(rank.part(), order_of(rank)) == [
        ("first", ENGINE + "torch::autograd::AccumulateGrad"),
        ("forward", "first"),
    ]


def test_on_one_thread_only_the_links_count() -> None:
    rank = RankBuilder()
    forward = rank.op("forward", 0, 10)
    backward_of(rank, rank.op("backward", 20, 30), forward)
    rank.op("update", 40, 50)
    assert named(rank.part(), order_of(rank)) == [("forward", "backward")]


def test_a_forward_operator_that_had_not_ended_was_not_waited_for() -> None:
    rank = RankBuilder()
    forward = rank.op("checkpoint", 0, 100)
    backward_of(rank, rank.op("backward", 20, 30, AUTOGRAD), forward)
    order = order_of(rank)
    assert (len(order), order.counts["forward_had_not_ended"]) == (0, 1)


def test_threads_without_links_hand_nothing_over() -> None:
    rank = RankBuilder()
    rank.op("loader", 0, 10, "worker")
    rank.op("forward", 20, 30)
    assert len(order_of(rank)) == 0


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
