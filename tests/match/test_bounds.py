"""Bounds on offset and drift."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._match.bounds import FeasibleRegions

NUMBERS = st.floats(-100, 100)
BOUNDS = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=12)


def rooms_around(offset: float, drift: float, bounds: list[tuple[float, float, float]]) -> FeasibleRegions:
    """Bounds that an offset and a drift keep: times, and how far above and below each bound lies."""
    time, above, below = (np.array([column]) for column in zip(*bounds, strict=True))
    line = offset + drift * time
    return FeasibleRegions(line + above, time, line - below, time)


@given(NUMBERS, st.floats(-5, 5), BOUNDS)
def test_what_keeps_all_bounds_is_never_excluded(
    offset: float, drift: float, bounds: list[tuple[float, float, float]]
) -> None:
    regions = rooms_around(offset, drift, bounds)
    low, high = regions.drifts(np.full(1, -5.0), np.full(1, 5.0))
    assert low[0] - 1e-9 <= drift <= high[0] + 1e-9
    # the greatest offset comes with the least drift
    assert regions.at(high)[0][0] - 1e-6 <= offset <= regions.at(low)[1][0] + 1e-6


@given(NUMBERS, st.floats(-5, 5), BOUNDS)
def test_the_ends_of_the_drifts_leave_hardly_any_room(
    offset: float, drift: float, bounds: list[tuple[float, float, float]]
) -> None:
    regions = rooms_around(offset, drift, bounds)
    for end, limit in zip(regions.drifts(np.full(1, -5.0), np.full(1, 5.0)), (-5.0, 5.0), strict=True):
        low, high = regions.at(end)
        assert end[0] == limit or abs(high[0] - low[0]) < 1e-6


def test_most_room_is_in_the_middle() -> None:
    regions = FeasibleRegions(
        np.array([[1.0, 3.0]]), np.array([[0.0, 1.0]]), np.array([[-1.0, 1.0]]), np.array([[0.0, 1.0]])
    )
    drift = regions.widest(np.full(1, -10.0), np.full(1, 10.0))
    np.testing.assert_allclose(drift, 2, atol=1e-9)
    np.testing.assert_allclose(regions.at(drift), [[-1], [1]], atol=1e-9)
