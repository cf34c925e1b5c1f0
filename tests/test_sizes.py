"""Sizes in two digits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.text import KILO, UNITS, about


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (7, "7 B"),
        (994, "990 B"),
        (996, "1.0 kB"),
        (3_140_000, "3.1 MB"),
        (9_960_000, "10 MB"),
        (312_345_678, "310 MB"),
        (4_200_000_000, "4.2 GB"),
        (12 * 10**15, "12000 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert about(count) == text


@given(st.integers(100, 10**14))
def test_what_is_said_is_near(count: int) -> None:
    match = re.fullmatch(r"(\d{1,3}|\d\.\d) (\w+)", about(count))
    assert match
    assert float(match[1]) * KILO ** UNITS.index(match[2]) == pytest.approx(count, rel=0.051)
