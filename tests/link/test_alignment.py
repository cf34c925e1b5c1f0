"""Aligning two sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders.trace import column
from tracelink._link.alignment import align
from tracelink._model.columns import UNKNOWN

NAMES = st.lists(st.integers(0, 3), max_size=14)


def places(one: list[int], other: list[int]) -> list[int]:
    return align(column(one), column(other)).index.tolist()


def test_equal_sequences_pair_element_by_element() -> None:
    assert places([5, 6, 5, 7], [5, 6, 5, 7]) == [0, 1, 2, 3]


def test_a_missing_head_middle_and_tail_do_not_shift_the_rest() -> None:
    assert places([1, 2, 3, 4, 5, 6, 7], [2, 3, 5, 6]) == [UNKNOWN, 0, 1, UNKNOWN, 2, 3, UNKNOWN]


def test_extra_elements_are_passed_over() -> None:
    assert places([1, 2, 3], [9, 1, 9, 2, 9, 3, 9]) == [1, 3, 5]


def test_one_of_several_equal_elements_is_not_guessed() -> None:
    alignment = align(column([4, 4, 4]), column([4, 4]))
    assert alignment.ambiguous.sum() + (alignment.index != UNKNOWN).sum() == 3
    assert alignment.ambiguous.any()


def test_nothing_in_common_pairs_nothing() -> None:
    assert places([1, 2], [3]) == [UNKNOWN, UNKNOWN]
    assert places([], [1]) == []
    assert places([1], []) == [UNKNOWN]


@given(NAMES, NAMES)
def test_pairs_are_equal_and_in_order(one: list[int], other: list[int]) -> None:
    paired = [(left, right) for left, right in enumerate(places(one, other)) if right != UNKNOWN]
    assert all(one[left] == other[right] for left, right in paired)
    assert [right for _, right in paired] == sorted({right for _, right in paired})


@given(st.lists(st.integers(0, 1000), unique=True, max_size=30), st.data())
def test_distinct_names_always_find_each_other(names: list[int], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True) if names else st.just([]))
    other = [names[place] for place in sorted(kept)]
    expected = [other.index(name) if name in other else UNKNOWN for name in names]
    assert places(names, other) == expected


def possible(one: list[int], other: list[int]) -> list[set[int]]:
    """For each element every place that it has in any of the shortest scripts, UNKNOWN where it can be left over."""
    ahead = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    behind = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for x in range(len(one)):
        for y in range(len(other)):
            ahead[x + 1][y + 1] = max(ahead[x][y + 1], ahead[x + 1][y], ahead[x][y] + (one[x] == other[y]))
    for x in reversed(range(len(one))):
        for y in reversed(range(len(other))):
            behind[x][y] = max(
                behind[x + 1][y], behind[x][y + 1], behind[x + 1][y + 1] + (one[x] == other[y])
            )
    longest = ahead[-1][-1]
    return [
        {
            y
            for y, value in enumerate(other)
            if value == one[x] and ahead[x][y] + 1 + behind[x + 1][y + 1] == longest
        }
        | {UNKNOWN for y in range(len(other) + 1) if ahead[x][y] + behind[x + 1][y] == longest}
        for x in range(len(one))
    ]


@given(NAMES, NAMES)
def test_a_place_is_given_where_every_shortest_script_gives_it_and_nowhere_else(
    one: list[int], other: list[int]
) -> None:
    alignment = align(column(one), column(other))
    for place, ambiguous, choices in zip(
        alignment.index.tolist(), alignment.ambiguous.tolist(), possible(one, other), strict=True
    ):
        assert place == (next(iter(choices)) if len(choices) == 1 else UNKNOWN)
        assert ambiguous or len(choices) == 1


def test_what_differs_too_much_is_ambiguous_as_a_whole() -> None:
    alignment = align(column([1, 2, 3]), column([3, 1, 2]), most=1)
    assert (alignment.index.tolist(), alignment.ambiguous.tolist()) == ([UNKNOWN] * 3, [True] * 3)
