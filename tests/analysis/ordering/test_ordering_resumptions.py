"""A thread goes on when communication on another thread has ended, if it visibly stood still until then."""

from __future__ import annotations

import numpy as np
import pytest

from builders.ordering import RankBuilder, found, named
from tracelink.model.events import EventKind
from tracelink.ordering.order import Order
from tracelink.ordering.threads import resumptions


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
    assert found(order) == {"asked": 1, "waited": 1}


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
    assert order.counts == {"asked": 2, "waited": 0}


def test_several_works_end_in_one_pause(rank: RankBuilder) -> None:
    """The thread waited for the last; the other ended in the first half of the pause."""
    one, two = rank.op("one", 0, 5), rank.op("two", 5, 10)
    rank.op("next", 52, 60)
    done = [rank.op(f"gloo {end}", 6, end, "worker") for end in (20, 50)]
    assert resumed(rank, (one, done[0]), (two, done[1]))[0] == [("gloo 50", "next")]


def test_nothing() -> None:
    assert resumed(RankBuilder())[0] == []
