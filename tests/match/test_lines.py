"""Robust slopes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._match.lines import Constraints, Slopes, nearest_point


def slope_of(time: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    slope, doubt = Slopes(np.zeros(len(time), np.int64), time, 1).of(values)
    return float(slope[0]), float(doubt[0])


def test_outliers_do_not_tilt_a_slope() -> None:
    time = np.arange(200.0)
    values = 3 * time
    values[[7, 60, 61, 150]] = 1e6
    assert slope_of(time, values) == (pytest.approx(3), pytest.approx(0, abs=1e-9))


def test_each_clock_has_its_own_slope_and_none_has_none() -> None:
    clock = np.array([0, 2] * 20)
    time = np.repeat(np.arange(20.0), 2)
    slope, doubt = Slopes(clock, time, 3).of(np.where(clock == 0, 5 * time, -time))
    assert slope.tolist() == [5, 0, -1]
    assert doubt.tolist() == [0, np.inf, 0]


def test_few_points_say_nothing_for_certain() -> None:
    time = np.arange(4.0)
    assert slope_of(time, time) == (1, np.inf)


def test_few_points_scatter_as_those_of_other_clocks() -> None:
    random = np.random.default_rng(1)
    clock = np.repeat([0, 1], [40, 3])
    time = np.concatenate([np.arange(40.0), [0.0, 20.0, 39.0]])
    slope, doubt = Slopes(clock, time, 2).of(2 * time + random.normal(0, 1, len(time)))
    assert (np.abs(slope - 2) < doubt).all()
    assert 0.05 < doubt[1] < 1


def test_bursts_of_points_tell_a_slope_by_their_distance() -> None:
    random = np.random.default_rng(2)
    time = (np.arange(4)[:, None] * 1e9 + np.arange(12) * 1e4).ravel()
    slope, doubt = slope_of(time, 20e-6 * time + random.normal(0, 2000, len(time)))
    assert abs(slope - 20e-6) < doubt < 1.5e-6


def test_the_true_slope_is_within_the_doubt_nearly_always() -> None:
    random = np.random.default_rng(0)
    clock, time = np.repeat(np.arange(400), 60), np.tile(np.arange(60.0), 400)
    slope, doubt = Slopes(clock, time, 400).of(2 * time + random.normal(0, 10, len(time)))
    assert np.count_nonzero(np.abs(slope - 2) > doubt) <= 6
    assert np.median(doubt) < 0.5


# The nearest point that meets constraints.


def constraints(*rows: tuple[list[float], float]) -> Constraints:
    """Weights of the variables from the first on, and the most that the sum may be."""
    weight = np.array([weights for weights, _ in rows], np.float64)
    index = np.broadcast_to(np.arange(weight.shape[1]), weight.shape)
    return Constraints(index, weight, -np.array([most for _, most in rows], np.float64))


def test_where_zero_meets_all_demands_it_is_nearest() -> None:
    np.testing.assert_allclose(nearest_point(constraints(([1, 0], 5), ([0, -1], 3)), 2), [0, 0], atol=1e-6)


def test_one_demand_moves_along_its_weights() -> None:
    np.testing.assert_allclose(nearest_point(constraints(([-3, -4], -50)), 2), [6, 8], atol=1e-5)


def test_equalities_are_met() -> None:
    np.testing.assert_allclose(
        nearest_point(constraints(([1, 1], 10), ([-1, -1], -10), ([1, -1], -4)), 2), [3, 7], atol=1e-4
    )


def test_what_cannot_be_met_is_violated_as_little_as_can_be() -> None:
    point = nearest_point(constraints(([1, 0], -1), ([-1, 0], -1), ([-1, 0], -1.5), ([0, 1], -7)), 2)
    # at most -1, at least 1, at least 1.5: from 1 to 1.5 the sum of the violations is least
    assert 1 - 1e-4 <= point[0] <= 1.5 + 1e-4
    np.testing.assert_allclose(point[1], -7, atol=1e-4)


@given(
    st.lists(st.floats(-50, 50), min_size=4, max_size=4),
    st.lists(
        st.tuples(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.floats(0, 20)),
        min_size=1,
        max_size=12,
    ),
)
def test_demands_that_some_point_meets_are_met_by_one_that_is_no_farther(
    somewhere: list[float], rows: list[tuple[list[int], float]]
) -> None:
    met = constraints(
        *(([float(w) for w in weights], float(np.dot(weights, somewhere)) + slack) for weights, slack in rows)
    )
    point = nearest_point(met, 4)
    assert (met.of(point) + met.excess).max() < 1e-4
    assert np.linalg.norm(point) <= np.linalg.norm(somewhere) + 0.01
