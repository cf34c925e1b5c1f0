"""Lanes, slots, node order and dependencies, compared with plain computations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink.converters.chakra.writing.slots import (
    Lanes,
    NodeOrder,
    NodeSlots,
    Pairs,
    control_dependencies,
    data_dependencies,
    node_order,
    share_kernels,
)


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
    pushed = Lanes(lane, place).delayed(time).tolist()
    expected = time.tolist()
    for number in range(3):
        mine = sorted(
            (row for row, spot in enumerate(spots) if spot[0] == number), key=lambda row: (spots[row][1], row)
        )
        for before, after in pairwise(mine):
            expected[after] = max(expected[after], expected[before] + 1)
    assert pushed == expected
    assert listed(Lanes(lane, place).pairs()) == sorted(
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
    """NodeSlots 0 to 3 can have further messages; 4 and 5 have none."""
    further = [*range(6), *others]
    alike = {spot: [row for row, first in enumerate(further) if first == spot] for spot in range(6)}
    expected = {
        (before, after)
        for left, right in both
        if left != right
        for before in alike[left]
        for after in alike[right]
    }
    found = share_kernels(pairs(*both).known(), column(further))
    assert set(listed(found)) == expected


@given(SPOTS, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12))
def test_each_pair_once_and_none_against_the_order(
    spots: list[tuple[int, int, int]], both: list[tuple[int, int]]
) -> None:
    count = len(spots)
    both = [(before, after) for before, after in both if before < count and after < count]
    order = sorted(range(count), key=lambda row: (spots[row][2], row))
    turn = [order.index(row) for row in range(count)]
    turns = NodeOrder(column(order), column(turn), column([spot[2] for spot in spots]))
    found = data_dependencies({"some": pairs(*both), "more": pairs(*both[:2])}, turns)
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
    links = control_dependencies(column(parent), NodeOrder(column(order), column(turn), column([0] * 5)))
    for place, spot in enumerate(order):
        above = parent[spot]
        known = above != UNKNOWN and turn[above] < place
        assert links[place] == ([turn[above] + 1] if known else [])


def spots_of(work: list[int], parent: list[int]) -> NodeSlots:
    none = column([UNKNOWN] * len(work))
    place = column([UNKNOWN if number != UNKNOWN else row for row, number in enumerate(work)])
    return NodeSlots(
        column(list(range(len(work)))),
        place,
        column(work),
        column(parent),
        none,
        column(list(range(len(work)))),
    )


def test_order_is_by_time_then_host_before_device_then_by_what_tells_equal_ones_apart() -> None:
    spots = spots_of([UNKNOWN, UNKNOWN, UNKNOWN, 0], [UNKNOWN] * 4)
    turns = node_order(spots, column([5, 5, 3, 5]), [column([2, 1, 0, 0])], [])
    assert turns.slot.tolist() == [2, 1, 0, 3]
    assert turns.position.tolist() == [2, 1, 0, 3]
    assert turns.time.tolist() == [5, 5, 3, 5]


def test_work_is_not_earlier_than_its_launch_nor_what_follows_it_on_its_stream() -> None:
    spots = spots_of([UNKNOWN, 0, 1], [UNKNOWN, 0, UNKNOWN])
    stream = Lanes(column([UNKNOWN, 7, 7]), column([0, 1, 2]))
    turns = node_order(spots, column([50, 10, 20]), [], [stream])
    assert turns.slot.tolist() == [0, 1, 2]
    assert turns.time.tolist() == [50, 50, 51]


def test_lanes_that_contradict_each_other_end() -> None:
    lanes = [Lanes(column([0, 0]), column(places)) for places in ([0, 1], [1, 0])]
    assert node_order(spots_of([0, 1], [UNKNOWN, UNKNOWN]), column([0, 0]), [], lanes).slot.tolist() == [1, 0]
