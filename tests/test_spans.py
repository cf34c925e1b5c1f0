"""Stretches of time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink.model.columns import Int64s
from tracelink.ranges import Spans

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
