"""Programs of ranks: habits, counterparts, skipped and extra collectives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.programs import journal_of_programs
from tracelink.diagnosis.programs import Counterparts, Habits, extra_count, skipped_count

# Habits and counterparts.


STEP = "b1 a>1 a>1 a<1 a>1 a<1 a<1"
"""One forward, one backward, of three microbatches."""
TWO = [0, 1]


def last_deviates(words: str) -> bool:
    journal = journal_of_programs({0: words, 1: ""}, a=TWO, b=TWO)
    return Habits(journal).deviates(len(journal) - 1)


def test_usual_call_of_every_step() -> None:
    steps = f"{STEP} {STEP} {STEP}"
    assert not last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a<1")
    assert last_deviates(f"{steps} b1 a>1 a>1 a<1 a>1 a<1 a>1")


def test_first_step_has_no_habits() -> None:
    assert not last_deviates("b1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a>1 a<1 a<1")


def test_single_call_is_not_a_habit() -> None:
    assert not last_deviates("b1 a>1 b1 a<1")


def test_counterparts_in_similar_groups() -> None:
    journal = journal_of_programs(
        {0: "a>1", 1: "a<0", 2: "c>1", 3: "c<0"}, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3]
    )
    assert Counterparts(journal).of(0, 1) == [(1, 3)]
    assert Counterparts(journal).expected(0, 1, 1) == Counterparts(journal).codes(np.array([3]))


def test_differing_counterparts() -> None:
    descriptions = {"a": "pp", "c": "pp", "d": "pp"}
    words = {0: "a>1", 2: "c>1", 4: "d<1"}
    journal = journal_of_programs(words, descriptions=descriptions, a=[0, 1], c=[2, 3], d=[4, 5])
    assert Counterparts(journal).expected(0, 0, 1) == ()


def test_any_order_within_a_batch() -> None:
    words = {0: "[a>1 a<1]", 2: "[c<1 c>1]"}
    journal = journal_of_programs(words, descriptions={"a": "pp", "c": "pp"}, a=[0, 1], c=[2, 3])
    counterparts = Counterparts(journal)
    assert counterparts.expected(0, 0, 1) == counterparts.codes(counterparts.message_rows(0, 0, 1))


# Skipped and extra collectives.


LETTERS = st.text("abcdef", min_size=4, max_size=12)


def codes(text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([ord(letter) for letter in text], np.int64)


@pytest.mark.parametrize(
    ("own", "others", "before", "count"),
    [
        ("cd", "bcd", "a", 1),
        ("d", "bcd", "a", 2),
        ("b", "a", "abcabc", 1),
        ("c", "a", "abcabc", 2),
        ("x", "a", "abcabc", None),
        ("xcd", "bcd", "a", None),
        ("b", "a", "", None),
        ("", "a", "abab", None),
    ],
    ids=[
        "what follows is there",
        "two of them",
        "the others stopped, and before b came after a",
        "and c after that",
        "x never came",
        "the rest agrees where it stands",
        "nothing is known of what follows",
        "it did nothing more",
    ],
)
def test_skipped_count(own: str, others: str, before: str, count: int | None) -> None:
    assert skipped_count(codes(own), codes(others), codes(before)) == count


@pytest.mark.parametrize(
    ("own", "others", "count"),
    [("xbcd", "bcd", 1), ("xybcd", "bcd", 2), ("bcd", "bcd", None), ("x", "b", None), ("xcd", "bcd", None)],
)
def test_extra_count(own: str, others: str, count: int | None) -> None:
    assert extra_count(codes(own), codes(others)) == count


@given(LETTERS, st.integers(1, 3))
def test_any_skipped_calls_are_counted(text: str, count: int) -> None:
    program = "".join(dict.fromkeys(text)) + "uvwxyz"
    assert skipped_count(codes(program[count:]), codes(program), codes("")) == count


@given(LETTERS, st.integers(1, 3))
def test_any_extra_calls_are_counted(text: str, count: int) -> None:
    program = "".join(dict.fromkeys(text)) + "uvwxyz"
    assert extra_count(codes("?" * count + program), codes(program)) == count
