"""Whole columns against the plain way to compute them: lanes, spreading, gaps, order, work for tensors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.ordering import RankBuilder
from tracelink.converters.chakra.communications import Communicating, usable
from tracelink.converters.chakra.host import device_of, host_of
from tracelink.converters.chakra.nodes import gaps_of
from tracelink.converters.chakra.plan import (
    Lane,
    Pairs,
    Spots,
    Turns,
    control_links,
    device_flow,
    one_after_the_other,
    spread,
    turns_of,
    waiting,
)
from tracelink.converters.chakra.schema import NodeType
from tracelink.model.columns import Int64s
from tracelink.model.graph import NONE


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return sorted(zip(pairs.before.tolist(), pairs.after.tolist(), strict=True))


def pairs(*both: tuple[int, int]) -> Pairs:
    return Pairs(column([before for before, _ in both]), column([after for _, after in both]))


SPOTS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 4), st.integers(0, 20)), max_size=12)
"""Lane, place in it, and time."""


@given(SPOTS)
@example([(0, 0, 9), (0, 0, 9), (0, 1, 3)])
def test_what_shares_a_lane_is_in_its_order_and_only_as_much_later_as_that_needs(
    spots: list[tuple[int, int, int]],
) -> None:
    lane, place, time = (column([spot[part] for spot in spots]) for part in range(3))
    pushed = Lane(lane, place).pushed(time).tolist()
    expected = time.tolist()
    for number in range(3):
        mine = sorted(
            (row for row, spot in enumerate(spots) if spot[0] == number), key=lambda row: (spots[row][1], row)
        )
        for before, after in pairwise(mine):
            expected[after] = max(expected[after], expected[before] + 1)
    assert pushed == expected
    assert listed(Lane(lane, place).pairs()) == sorted(
        (before, after)
        for number in range(3)
        for before, after in pairwise(
            sorted(
                (row for row, spot in enumerate(spots) if spot[0] == number),
                key=lambda row: (spots[row][1], row),
            )
        )
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_every_message_that_shares_an_end_has_the_pairs_of_the_first(
    both: list[tuple[int, int]], others: list[int]
) -> None:
    """Spots 0 to 3 can have further messages; 4 and 5 have none."""
    further = [*range(6), *others]
    alike = {spot: [row for row, first in enumerate(further) if first == spot] for spot in range(6)}
    expected = {
        (before, after)
        for left, right in both
        if left != right
        for before in alike[left]
        for after in alike[right]
    }
    found = spread(pairs(*both).known(), column(further))
    assert set(listed(found)) == expected


@given(SPOTS, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12))
def test_each_pair_once_and_none_against_the_order(
    spots: list[tuple[int, int, int]], both: list[tuple[int, int]]
) -> None:
    count = len(spots)
    both = [(before, after) for before, after in both if before < count and after < count]
    order = sorted(range(count), key=lambda row: (spots[row][2], row))
    turn = [order.index(row) for row in range(count)]
    turns = Turns(column(order), column(turn), column([spot[2] for spot in spots]))
    found = waiting({"some": pairs(*both), "more": pairs(*both[:2])}, turns)
    lists = [found.links[row] for row in range(count)]
    expected: list[set[int]] = [set() for _ in range(count)]
    for before, after in both:
        if turn[before] < turn[after]:
            expected[turn[after]].add(turn[before] + 1)
    assert lists == [sorted(numbers) for numbers in expected]
    against = {
        name: sum(turn[before] >= turn[after] for before, after in some)
        for name, some in (("some", both), ("more", both[:2]))
    }
    assert found.against_order == {name: number for name, number in against.items() if number}


@given(st.permutations(range(5)), st.lists(st.integers(-1, 4), min_size=5, max_size=5))
def test_a_parent_that_comes_later_is_none(order: list[int], parent: list[int]) -> None:
    turn = [order.index(spot) for spot in range(5)]
    links = control_links(column(parent), Turns(column(order), column(turn), column([0] * 5)))
    for place, spot in enumerate(order):
        above = parent[spot]
        known = above != NONE and turn[above] < place
        assert links[place] == ([turn[above] + 1] if known else [])


def spots_of(work: list[int], parent: list[int]) -> Spots:
    none = column([NONE] * len(work))
    place = column([NONE if number != NONE else row for row, number in enumerate(work)])
    return Spots(
        column(list(range(len(work)))),
        place,
        column(work),
        column(parent),
        none,
        column(list(range(len(work)))),
    )


def test_order_is_by_time_then_host_before_device_then_by_what_tells_equal_ones_apart() -> None:
    spots = spots_of([NONE, NONE, NONE, 0], [NONE] * 4)
    turns = turns_of(spots, column([5, 5, 3, 5]), [column([2, 1, 0, 0])], [])
    assert turns.spot.tolist() == [2, 1, 0, 3]
    assert turns.turn.tolist() == [2, 1, 0, 3]
    assert turns.time.tolist() == [5, 5, 3, 5]


def test_work_is_not_earlier_than_its_launch_nor_what_follows_it_on_its_stream() -> None:
    spots = spots_of([NONE, 0, 1], [NONE, 0, NONE])
    stream = Lane(column([NONE, 7, 7]), column([0, 1, 2]))
    turns = turns_of(spots, column([50, 10, 20]), [], [stream])
    assert turns.spot.tolist() == [0, 1, 2]
    assert turns.time.tolist() == [50, 50, 51]


def test_lanes_that_contradict_each_other_end() -> None:
    lanes = [Lane(column([0, 0]), column(places)) for places in ([0, 1], [1, 0])]
    assert turns_of(spots_of([0, 1], [NONE, NONE]), column([0, 0]), [], lanes).spot.tolist() == [1, 0]


INTERVALS = st.lists(
    st.tuples(st.integers(-1, 2), st.booleans(), st.integers(0, 9_000), st.integers(0, 5_000)), max_size=10
)


@given(INTERVALS)
def test_pauses_of_threads(intervals: list[tuple[int, bool, int, int]]) -> None:
    """Of what begins one after the other; a pause lasts a microsecond and ends with what nothing encloses."""
    intervals = sorted(intervals, key=lambda interval: interval[2])
    lane, outermost, start, length = zip(*intervals, strict=True) if intervals else ([], [], [], [])
    begins, lengths = column(list(start)), column(list(length))
    thread = column([100 + number for number in lane])
    gaps = gaps_of(column(list(lane)), thread, np.array(outermost, np.bool_), begins, begins + lengths)
    expected = []
    for row, (number, outer, begin, _) in enumerate(intervals):
        earlier = [other for other in range(row) if intervals[other][0] == number]
        ended = max((intervals[other][2] + intervals[other][3] for other in earlier), default=begin)
        if number >= 0 and outer and begin - ended >= 1000:
            expected.append((earlier[-1], row, ended, begin - ended, 100 + number))
    columns = (gaps.before, gaps.after, gaps.start, gaps.length, gaps.thread)
    assert sorted(zip(*(values.tolist() for values in columns), strict=True)) == sorted(expected)


class TestWorkForTensors:
    """The first work of who reads a tensor after the last work of who wrote it."""

    @pytest.fixture
    def rank(self) -> RankBuilder:
        return RankBuilder()

    def flow(self, rank: RankBuilder, *both: tuple[int, int]) -> list[tuple[str, str]]:
        part = rank.part()
        host = host_of(part)
        device = device_of(part, host)
        place = {row: number for number, row in enumerate(host.row.tolist())}
        writers, readers = (column([place[pair[side]] for pair in both]) for side in (0, 1))
        found = device_flow(part.events, host, device, writers, readers)
        rows = device.row.tolist()
        return [
            (part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in listed(found)
        ]

    def test_the_last_after_the_first(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        for name, at, inside, stream in (
            ("a", 40, make, 7),
            ("b", 50, make, 7),
            ("c", 70, use, 9),
            ("d", 80, use, 9),
        ):
            rank.work(name, at, at + 5, stream, launched=1 if inside == make else 21, inside=inside)
        assert self.flow(rank, (make, use)) == [("b", "c")]

    def test_work_of_inner_operators_is_that_of_the_outer_one_too(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        inner = rank.op("inner", 1, 9, inside=make)
        use = rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=inner)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == [("a", "b")]

    def test_times_must_not_contradict_it(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 90, launched=2, inside=make)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == []

    def test_operators_without_work_put_nothing_in_order(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=make)
        assert self.flow(rank, (make, use), (use, make)) == []

    def test_works_of_one_operator(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        other = rank.op("other", 10, 20)
        for name, at, inside in (("a", 40, make), ("c", 60, make), ("b", 50, other), ("d", 62, make)):
            rank.work(name, at, at + 5, at, launched=11 if inside == other else 1, inside=inside)
        part = rank.part()
        device = device_of(part, host_of(part))
        rows = device.row.tolist()
        found = listed(one_after_the_other(part.events, device))
        assert [(part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in found] == [
            ("a", "c")
        ]


def test_communication_that_lacks_several_things_is_counted_once() -> None:
    told = Communicating.of(
        4,
        type=np.array(
            [NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_COLL], np.uint8
        ),
        collective=column([0, 1, -1, 2]),
        collective_type=column([-1, 0, -1, 0]),
        size=column([-1, -1, 8, 8]),
        source=column([-1, -1, 0, -1]),
    )
    kept, counts = usable(told)
    assert kept.collective.tolist() == [2]
    assert counts == {"operation": 1, "size": 1, "peer": 1}
