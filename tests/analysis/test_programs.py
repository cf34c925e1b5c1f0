"""Programs: what a rank left out or did too often, told from what others do and did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.diagnosis.programs import inserted, left_out

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
def test_left_out(own: str, others: str, before: str, count: int | None) -> None:
    assert left_out(codes(own), codes(others), codes(before)) == count


@pytest.mark.parametrize(
    ("own", "others", "count"),
    [("xbcd", "bcd", 1), ("xybcd", "bcd", 2), ("bcd", "bcd", None), ("x", "b", None), ("xcd", "bcd", None)],
)
def test_inserted(own: str, others: str, count: int | None) -> None:
    assert inserted(codes(own), codes(others)) == count


@given(LETTERS, st.integers(1, 3))
def test_whatever_is_left_out_of_different_things_is_counted(text: str, count: int) -> None:
    program = "".join(dict.fromkeys(text)) + "uvwxyz"
    assert left_out(codes(program[count:]), codes(program), codes("")) == count


@given(LETTERS, st.integers(1, 3))
def test_whatever_is_put_before_different_things_is_counted(text: str, count: int) -> None:
    program = "".join(dict.fromkeys(text)) + "uvwxyz"
    assert inserted(codes("?" * count + program), codes(program)) == count
