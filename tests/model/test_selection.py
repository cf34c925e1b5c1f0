"""Tests of tracelink._model.selection: ranges of numbers and spans of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.columns import Int64s
from tracelink._model.errors import UsageError
from tracelink._model.selection import Numbers, Spans

# Numbers as a user lists them.


SETS = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3", {3}),
        ("0-3,64", {0, 1, 2, 3, 64}),
        (" 5 , 1-2 ", {1, 2, 5}),
        ("4-4,4", {4}),
        ("1-5,3-4,6", {1, 2, 3, 4, 5, 6}),
    ],
)
def test_numbers_and_ranges_between_commas(text: str, numbers: set[int]) -> None:
    assert set(Numbers.parse(text, "--ranks")) == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "a", "-1", "1-", "1-2-3", "1.5", "0x1", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_what_is_no_number_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as error:
        Numbers.parse(text, "--ranks")
    assert str(error.value).startswith("--ranks: ")
    assert str(error.value).endswith("Write, for example, --ranks 0-7,64")


def test_a_range_that_runs_backwards_is_turned_round_for_the_user() -> None:
    with pytest.raises(UsageError, match=r"--steps: '7-3' runs backwards. Write 3-7."):
        Numbers.parse("1,7-3", "--steps")


@given(SETS)
def test_numbers_are_written_as_they_are_read(numbers: set[int]) -> None:
    made = Numbers.of(numbers)
    assert list(made) == sorted(numbers)
    assert bool(made) == bool(numbers)
    assert not numbers or Numbers.parse(str(made), "--ranks") == made


@given(SETS, SETS)
def test_as_a_set_would(numbers: set[int], others: set[int]) -> None:
    made = Numbers.of(numbers)
    assert [number in made for number in range(42)] == [number in numbers for number in range(42)]
    assert made.mark(np.arange(42)).tolist() == [number in numbers for number in range(42)]
    assert set(made.without(others)) == numbers - others


def test_a_range_costs_nothing_however_long() -> None:
    assert str(Numbers.parse("0-999999999999", "--ranks").without([5])) == "0-4, 6-999999999999"


@pytest.mark.parametrize(("text", "called"), [("3", "step 3"), ("3-4", "steps 3-4"), ("3,5", "steps 3, 5")])
def test_one_number_is_called_by_the_singular(text: str, called: str) -> None:
    assert Numbers.parse(text, "--steps").called("step") == called


# Stretches of time.


STRETCHES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def spans(stretches: list[tuple[int, int]]) -> Spans:
    return Spans.of(column([first for first, _ in stretches]), column([last for _, last in stretches]))


def moments(made: Spans) -> set[int]:
    return {
        moment
        for first, last in zip(made.starts.tolist(), made.ends.tolist(), strict=True)
        for moment in range(first, last)
    }


def covered(stretches: list[tuple[int, int]]) -> set[int]:
    return {moment for first, last in stretches for moment in range(first, last)}


@given(STRETCHES)
def test_together_they_cover_what_each_covers_and_stand_in_order_and_apart(
    stretches: list[tuple[int, int]],
) -> None:
    made = spans(stretches)
    assert moments(made) == covered(stretches)
    assert np.all(made.starts < made.ends)
    assert np.all(made.ends[:-1] < made.starts[1:])


@given(STRETCHES, st.none() | st.integers(0, 30), st.none() | st.integers(0, 30))
def test_within_bounds(stretches: list[tuple[int, int]], first: int | None, last: int | None) -> None:
    inside = {
        moment
        for moment in covered(stretches)
        if (first is None or moment >= first) and (last is None or moment < last)
    }
    assert moments(spans(stretches).within(first, last)) == inside


@given(STRETCHES, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8))
def test_an_event_overlaps_with_any_of_its_moments_and_one_without_length_with_its_start(
    stretches: list[tuple[int, int]], events: list[tuple[int, int]]
) -> None:
    starts, lengths = column([start for start, _ in events]), column([length for _, length in events])
    expected = [
        not covered(stretches).isdisjoint(range(start, start + max(length, 1))) for start, length in events
    ]
    assert spans(stretches).overlap(starts, starts + lengths).tolist() == expected


def test_unbounded_is_everything() -> None:
    times = column([0, 2**62, -(2**62)])
    assert Spans.between(None, None).overlap(times, times).all()
    assert len(Spans.between(5, 5)) == 0
