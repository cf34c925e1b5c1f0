"""Sizes of decoded values as JSON are bounded before they are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.flight_recorder import decoding
from tracelink.converters.flight_recorder.decoding import JsonSizes, json_bytes

LEAVES = st.none() | st.booleans() | st.integers(-(1 << 71), 1 << 71) | st.floats() | st.text(max_size=40)
KEYS = st.text(max_size=20) | st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5) | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


@given(st.lists(VALUES, max_size=6), st.integers(1, 2000))
def test_values_that_fit_are_not_larger_than_the_limit(values: list[Any], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoding, "_MAX_JSON_BYTES", limit)
        fitting = JsonSizes().fitting(values)
        assert fitting == [JsonSizes().fits(value) for value in values]
    assert all(len(json_bytes(value)) <= limit for value, fits in zip(values, fitting, strict=True) if fits)


def doubled(levels: int) -> list[Any]:
    """A value that contains the value of one level less twice."""
    value: list[Any] = ["text"]
    for _ in range(levels):
        value = [value, value]
    return value


def wide(levels: int) -> dict[str, Any]:
    """The same with dicts that have many keys."""
    value: Any = "text"
    for _ in range(levels):
        value = {f"key {number}": value for number in range(60)}
    return value


@pytest.mark.parametrize(
    "value", [doubled(14), doubled(40), wide(4), wide(12), [["x" * 100] * 50_000] * 50_000]
)
def test_values_that_contain_each_other_many_times_take_no_time(value: Any) -> None:
    entries = [{"frames": value, "number": number} for number in range(2000)]
    assert JsonSizes().fitting([*entries, {"frames": ["x"]}]) == [*[value == doubled(14)] * 2000, True]


def test_values_with_keys_that_json_cannot_have_do_not_fit() -> None:
    assert JsonSizes().fitting([{("a", "b"): 1}, {"a": 1}, {None: 1}]) == [False, True, False]
