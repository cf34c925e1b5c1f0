"""One order of what ranks do together, out of the order in which each of them does its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink.diagnosis.matrix import Programs, last_lines

Done = list[list[int]]
"""For each rank the numbers of what it does, one after the other."""


def lines(
    done: Sequence[Sequence[int]],
    times: Sequence[Sequence[int]] | None = None,
    most: int | None = None,
    *,
    units: Sequence[int] | None = None,
    alike: Sequence[int] | None = None,
) -> list[list[int]]:
    """The lines of a table; `alike` is by number."""
    number = np.array([one for own in done for one in own], np.int64)
    programs = Programs(
        number,
        number if alike is None else np.array(alike, np.int64)[number],
        np.arange(len(number)) if units is None else np.array(units),
        np.zeros(len(number), np.int64) if times is None else np.array([one for own in times for one in own]),
        np.cumsum([0, *map(len, done)]),
    )
    return [sorted(line) for line in last_lines(programs, most)]


def ordered(done: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> list[int]:
    """The same, where each line holds one thing."""
    return [one for (one,) in lines(done, *args, **kwargs)]


@st.composite
def agreeing(draw: st.DrawFn) -> Done:
    """Ranks that each leave out some of one program."""
    whole = draw(st.permutations(range(draw(st.integers(1, 12)))))
    programs = [[one for one in whole if draw(st.booleans())] for _ in range(draw(st.integers(1, 5)))]
    return [*programs, whole]


contradicting = st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=5)


def everything(programs: Done) -> list[int]:
    """Everything, without gaps in the numbers."""
    return sorted({one for program in programs for one in program})


def without_gaps(programs: Done) -> Done:
    place = {one: place for place, one in enumerate(everything(programs))}
    return [[place[one] for one in program] for program in programs]


def test_ranks_that_skip_something_keep_their_order() -> None:
    assert ordered([[0, 1, 3], [0, 2, 3], [1, 2]]) == [0, 1, 2, 3]


def test_time_orders_what_no_rank_does() -> None:
    early, late = [[0, 1], [2, 3]], [[10, 40], [20, 30]]
    assert ordered(early, late) == [0, 2, 3, 1]


def test_a_clock_that_is_behind_does_not_turn_a_program_round() -> None:
    assert ordered([[0, 1], [1, 2]], [[100, 101], [1, 2]]) == [0, 1, 2]


def test_the_last_of_a_rank_that_is_far_behind_stands_far_up() -> None:
    assert ordered([[0, 1, 2, 3], [0]], most=2) == [2, 3]


def test_where_ranks_contradict_each_other_most_are_right() -> None:
    assert ordered([[0, 1], [0, 1], [1, 0]]) == [0, 1]


def test_what_is_issued_as_one_has_no_order() -> None:
    assert ordered([[0, 1, 2], [0, 2, 1]], [[0, 9, 5], [0, 5, 9]], units=[0, 1, 1, 3, 4, 4]) == [0, 2, 1]


class TestAlike:
    """0 and 1 are alike, and 2 and 3."""

    def test_shares_a_line(self) -> None:
        assert lines([[0, 2, 4], [1, 3, 4]], alike=[0, 0, 2, 2, 4]) == [[0, 1], [2, 3], [4]]

    def test_does_not_where_a_rank_would_leave_its_order(self) -> None:
        assert lines([[0, 2], [3, 1]], alike=[0, 0, 2, 2]) == [[3], [0, 1], [2]]

    def test_a_rank_whose_clock_is_far_behind_is_in_the_last_lines_too(self) -> None:
        ahead, behind = [8, 9], [1, 2]
        assert lines([[0, 2], [1, 3]], [ahead, behind], most=1, alike=[0, 0, 2, 2]) == [[2, 3]]


def test_nothing() -> None:
    assert ordered([[], []]) == []


@given(agreeing())
def test_ranks_that_agree_are_all_right(programs: Done) -> None:
    assert ordered(programs) == programs[-1]


@given(contradicting)
def test_everything_stands_there_once(programs: Done) -> None:
    programs = without_gaps(programs)
    assert sorted(ordered(programs)) == everything(programs)


@given(contradicting, st.integers(0, 9))
def test_the_last_are_the_end_of_all(programs: Done, most: int) -> None:
    programs = without_gaps(programs)
    whole = ordered(programs)
    assert ordered(programs, most=most) == whole[max(0, len(whole) - most) :]


@given(agreeing(), st.randoms(use_true_random=False))
def test_it_does_not_matter_whose_program_comes_first(programs: Done, random: st.randoms) -> None:  # type: ignore[valid-type]
    shuffled = list(programs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ordered(shuffled) == ordered(programs)
