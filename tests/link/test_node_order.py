"""The position of a recording in a longer one (of nodes without ids among operators)."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.trace import column
from tracelink._link.alignment import align, align_start
from tracelink._link.node_order import ascending, place
from tracelink._model.columns import UNKNOWN

NAMES = st.lists(st.integers(0, 3), max_size=12)


@given(NAMES, NAMES)
@example([0, 1, 2, 2], [0, 0, 1])
def test_short_sequences_are_aligned_with_the_fewest_left_over(first: list[int], second: list[int]) -> None:
    """But for those of which the elements that both have occur once as a whole: they are placed there."""
    placed, aligned = (function(column(first), column(second)) for function in (place, align))
    known = aligned.index != UNKNOWN
    assert placed.index[known].tolist() == aligned.index[known].tolist()
    shorter = sum(label in second for label in first) <= sum(label in first for label in second)
    assert ((placed.index == UNKNOWN) | known | shorter).all()


@given(NAMES, NAMES, st.integers(1, 6))
def test_pairs_are_equal_and_in_order_whatever_the_number_of_edits(
    first: list[int], second: list[int], most: int
) -> None:
    index = place(column(first), column(second), most=most).index.tolist()
    paired = [(left, right) for left, right in enumerate(index) if right != UNKNOWN]
    assert all(first[left] == second[right] for left, right in paired)
    assert [right for _, right in paired] == sorted({right for _, right in paired})


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 9), st.integers(1, 10), st.data())
def test_one_anchor_places_a_recording_among_equal_ones(
    recording: list[int], number: int, count: int, data: st.DataObject
) -> None:
    number %= count
    anchor = data.draw(st.integers(0, len(recording) - 1))
    begin = number * len(recording)
    anchors = np.full(len(recording), UNKNOWN, np.int64)
    anchors[anchor] = begin + anchor
    placed = place(column(recording), column(recording * count), anchors)
    assert placed.index.tolist() == list(range(begin, begin + len(recording)))


@pytest.mark.parametrize("length", [100, 5_000, 100_000])
def test_what_surrounds_a_recording_makes_no_difference(length: int) -> None:
    random = np.random.default_rng(7)
    recording = random.integers(0, 50, 900)
    kept = np.sort(random.choice(900, 880, replace=False))
    around = np.full(length, recording[0])
    placed = place(recording[kept], np.concatenate([around, recording, around]))
    known = placed.index != UNKNOWN
    assert placed.index[known].tolist() == (kept + length)[known].tolist()
    assert np.count_nonzero(~known) < 10
    assert placed.ambiguous.tolist() == (~known).tolist()


def test_long_sequences_that_differ_take_linear_time() -> None:
    random = np.random.default_rng(7)
    long = random.integers(0, 200, 200_000)
    begin = time.process_time()
    kept = np.sort(random.choice(len(long), 195_000, replace=False))
    placed = place(long[kept], long)
    nothing = place(random.integers(0, 200, 50_000), long)
    assert time.process_time() - begin < 20
    known = placed.index != UNKNOWN
    assert known.mean() > 0.99
    assert (placed.index == kept)[known].all()
    assert not (nothing.index != UNKNOWN).any()


def test_of_equal_elements_in_long_sequences_none_is_guessed() -> None:
    """The run of sevens is one shorter: which one is missing is unknown, although its end is unique."""
    random = np.random.default_rng(7)
    head, tail = random.integers(10, 60, 300), random.integers(10, 60, 300)
    around = np.full(5_000, 10)
    second = np.concatenate([around, head, [7] * 5, tail, around])
    placed = place(np.concatenate([head, [7] * 4, tail]), second)
    assert np.flatnonzero(placed.index == UNKNOWN).tolist() == [300, 301, 302, 303]
    assert np.flatnonzero(placed.ambiguous).tolist() == [300, 301, 302, 303]


def test_elements_after_an_anchor_pass_as_little_as_possible() -> None:
    aligned = align_start(column([1, 2, 3]), column([1, 9, 2, 3, 1, 2, 3]))
    assert aligned is not None
    assert aligned.index.tolist() == [0, 2, 3]
    assert align_start(column([1, 2]), column([3, 4, 5]), most=2) is None


@given(st.lists(st.integers(-1, 20), max_size=12))
def test_the_longest_ascending_choice(partner: list[int]) -> None:
    chosen = ascending(column(partner))
    values = [value for value, keep in zip(partner, chosen.tolist(), strict=True) if keep]
    assert values == sorted(set(values))
    assert UNKNOWN not in values
    best = [1] * len(partner)
    for right in range(len(partner)):
        for left in range(right):
            if UNKNOWN < partner[left] < partner[right]:
                best[right] = max(best[right], best[left] + 1)
    assert len(values) == max(
        (b for b, value in zip(best, partner, strict=True) if value != UNKNOWN), default=0
    )
