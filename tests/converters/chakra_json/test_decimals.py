"""Microseconds as text to nanoseconds, without a float between."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.chakra_json.reader import nanoseconds_of
from tracelink.model.columns import NO_TIME

LATEST_NS = 4 * 10**18


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4458676423385.774", 4458676423385774),
        ("1712345678901234.567", 1712345678901234567),
        ("0", 0),
        ("-1.5", -1500),
        ("12.", 12000),
        ("1e3", 1_000_000),
        ("4.458676423385774e12", 4458676423385774),
        ("0.0004", 0),
        ("2.0006", 2001),
        ("000000000000000000000000007.25", 7250),
        ("", NO_TIME),
        ("null", NO_TIME),
        ("true", NO_TIME),
        ('"7.25"', NO_TIME),
        ("NaN", NO_TIME),
        ("-", NO_TIME),
        (".", NO_TIME),
        ("1.2.3", NO_TIME),
        ("4-2", NO_TIME),
        ("9999999999999999", NO_TIME),
        ("1e400", NO_TIME),
    ],
)
def test_each_text(text: str, expected: int) -> None:
    assert nanoseconds_of([b"1", text.encode(), b"1"]).tolist() == [1000, expected, 1000]


def test_none_at_all() -> None:
    assert nanoseconds_of([]).tolist() == []


@given(st.lists(st.integers(-LATEST_NS, LATEST_NS)))
def test_all_whole_nanoseconds_come_back(numbers: list[int]) -> None:
    texts = [str(Decimal(number) / 1000 if number % 7 else Decimal(number).scaleb(-3)) for number in numbers]
    assert nanoseconds_of([text.encode() for text in texts]).tolist() == numbers


@given(st.lists(st.text("0123456789.-e", max_size=30)))
def test_any_text_is_what_a_decimal_makes_of_it(texts: list[str]) -> None:
    assert nanoseconds_of([text.encode() for text in texts]).tolist() == [plainly(text) for text in texts]


def plainly(text: str) -> int:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return NO_TIME
    return int((number * 1000).to_integral_value()) if number.copy_abs() <= LATEST_NS // 1000 else NO_TIME
