"""Order of the work on one stream."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.ordering import RankBuilder, named
from tracelink.model.events import EventKind
from tracelink.ordering.order import can_follow
from tracelink.ordering.streams import stream_order

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
    rank.graph.add(rank.stream(7), "cut off", 20, -1, EventKind.KERNEL)
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
        rank.graph.add(rank.stream(stream), "k", start, length, EventKind.KERNEL)
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
