"""Grouped medians and extremes; connected clocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._match.observations import Segments, linked

ROWS = st.lists(st.tuples(st.integers(0, 9), st.floats(-1e6, 1e6)), max_size=60)


@given(ROWS)
def test_segments_are_what_numpy_says_of_each(rows: list[tuple[int, float]]) -> None:
    number = np.array([row[0] for row in rows], np.int64)
    values = np.array([row[1] for row in rows])
    segments = Segments(number, 10)
    each = [values[number == segment] for segment in range(10)]
    np.testing.assert_array_equal(segments.median(values), [np.median(v) if len(v) else np.nan for v in each])
    np.testing.assert_array_equal(segments.largest(values), [v.max(initial=-np.inf) for v in each])
    np.testing.assert_array_equal(segments.smallest(values), [v.min(initial=np.inf) for v in each])
    assert segments.sizes.tolist() == [len(v) for v in each]


def test_clocks_are_linked_through_any_meetings() -> None:
    meeting, clock = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([5, 2, 2, 4, 1, 3, 0])
    assert linked(meeting, clock, 4, 7).tolist() == [0, 1, 2, 1, 2, 2, 6]
