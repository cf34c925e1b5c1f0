"""Numbers as a user lists them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.errors import UsageError
from tracelink.ranges import Numbers

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
